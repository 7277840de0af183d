"""GPflow models trained by Power Expectation Propagation."""

from .regression import PEPRegression

__all__ = ["PEPRegression"]
