"""Numerical building blocks: functions of tensors that know nothing of models."""

from . import chunks, linalg, power, quadrature

__all__ = ["chunks", "linalg", "power", "quadrature"]
