"""Tilted integrals: one factor to a power under a Gaussian, for every likelihood."""

from . import bernoulli, gaussian, log_rate, student_t
from .dispatch import implementations, scalar_factor
from .generic import ScalarFactor
from .moments import TiltedDerivatives, log_power_expectation, tilted_derivatives

__all__ = [
    "ScalarFactor",
    "TiltedDerivatives",
    "bernoulli",
    "gaussian",
    "implementations",
    "log_power_expectation",
    "log_rate",
    "scalar_factor",
    "student_t",
    "tilted_derivatives",
]
