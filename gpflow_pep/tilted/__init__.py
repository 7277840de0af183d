"""Tilted integrals: one factor to a power under a Gaussian, for every likelihood."""

from . import (
    bernoulli,
    beta,
    gaussian,
    log_rate,
    multiclass,
    multilatent,
    ordinal,
    softmax,
    student_t,
    switched,
)
from .dispatch import implementations, scalar_factor
from .generic import ScalarFactor
from .moments import TiltedDerivatives, log_power_expectation, tilted_derivatives

__all__ = [
    "ScalarFactor",
    "TiltedDerivatives",
    "bernoulli",
    "beta",
    "gaussian",
    "implementations",
    "log_power_expectation",
    "log_rate",
    "multiclass",
    "multilatent",
    "noisy_label",
    "ordinal",
    "scalar_factor",
    "softmax",
    "student_t",
    "switched",
    "tilted_derivatives",
]
