"""Inducing variables that GPflow lacks, with their prior covariances."""

from .blurred import BlurredInducingPoints, sum_of_products
from .noisy import InducingVariablesWrapper, NoisyInducingVariables

__all__ = [
    "BlurredInducingPoints",
    "InducingVariablesWrapper",
    "NoisyInducingVariables",
    "sum_of_products",
]
