"""Kernels that GPflow lacks."""

from .derivatives import ValueOrDerivative, profile, rows_of

__all__ = ["ValueOrDerivative", "profile", "rows_of"]
