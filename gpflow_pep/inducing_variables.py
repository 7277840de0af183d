"""Inducing variables that GPflow lacks, with their prior covariances."""

from .engine.prior.blurred import BlurredInducingPoints, multiplied_out, sum_of_products
from .engine.prior.wrapped import InducingVariablesWrapper, NoisyInducingVariables

__all__ = [
    "BlurredInducingPoints",
    "InducingVariablesWrapper",
    "NoisyInducingVariables",
    "multiplied_out",
    "sum_of_products",
]
