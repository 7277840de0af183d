"""GPflow models trained by Power Expectation Propagation."""

from ..engine.sites.memory import Memory
from ..engine.sites.record import ConvergenceWarning
from .classification import PEPClassification
from .pep import PEP
from .regression import PEPRegression
from .tied import APEP, ARPEP, RPAPEP

__all__ = [
    "APEP",
    "ARPEP",
    "PEP",
    "RPAPEP",
    "ConvergenceWarning",
    "Memory",
    "PEPClassification",
    "PEPRegression",
]
