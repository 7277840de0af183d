"""Inducing variables that GPflow lacks."""

from .covariances.blurred import BlurredInducingPoints

__all__ = ["BlurredInducingPoints"]
