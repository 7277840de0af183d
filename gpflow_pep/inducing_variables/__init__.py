"""Inducing variables that GPflow lacks, with their prior covariances."""

from .blurred import BlurredInducingPoints, sum_of_products
from .noisy import NoisyInducingVariables
from .wrapper import InducingVariablesWrapper

__all__ = [
    "BlurredInducingPoints",
    "InducingVariablesWrapper",
    "NoisyInducingVariables",
    "sum_of_products",
]
