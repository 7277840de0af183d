"""GPflow models that are trained by Power Expectation Propagation."""

from ..engine.sites.memory import Memory
from ..engine.sites.record import ConvergenceWarning
from .pep import PEP, PEPClassification
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
