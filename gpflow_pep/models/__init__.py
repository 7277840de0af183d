"""GPflow models trained by Power Expectation Propagation."""

from ..sites.memory import Memory
from .classification import PEPClassification
from .parameters import ConvergenceWarning
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
