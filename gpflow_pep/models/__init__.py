"""GPflow models trained by Power Expectation Propagation."""

from importlib import import_module as _import_module

from ..engine.sites.memory import Memory
from ..engine.sites.record import ConvergenceWarning
from .classification import PEPClassification
from .pep import PEP
from .regression import PEPRegression
from .tied import APEP, ARPEP, RPAPEP

# Classes that those above choose by themselves.
for _variants in ("mixed_pep", "mixed_regression"):
    _import_module(f"{__name__}.{_variants}")

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
