"""Inducing variables that GPflow lacks."""

from .covariances.blurred import BlurredInducingPoints
from .covariances.noisy import NoisyInducingVariables

__all__ = ["BlurredInducingPoints", "NoisyInducingVariables"]
