"""Inducing variables that GPflow lacks, with their prior covariances."""

from .engine.prior.blurred import BlurredInducingPoints, multiplied_out, sum_of_products
from .engine.refusals import absent

__all__ = ["BlurredInducingPoints", "multiplied_out", "sum_of_products"]

__getattr__ = absent(__name__)
