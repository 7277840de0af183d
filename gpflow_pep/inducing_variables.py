"""Inducing variables that GPflow lacks, with their prior covariances."""

from .engine.prior.blurred import BlurredInducingPoints, multiplied_out, sum_of_products

__all__ = ["BlurredInducingPoints", "multiplied_out", "sum_of_products"]
