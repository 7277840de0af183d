"""GPflow models trained by Power Expectation Propagation."""

from .pep import PEP
from .regression import PEPRegression

__all__ = ["PEP", "PEPRegression"]
