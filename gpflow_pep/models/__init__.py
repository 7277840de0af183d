"""GPflow models trained by Power Expectation Propagation."""

from .classification import PEPClassification
from .parameters import ConvergenceWarning
from .pep import PEP
from .regression import PEPRegression

__all__ = ["PEP", "ConvergenceWarning", "PEPClassification", "PEPRegression"]
