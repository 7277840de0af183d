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
from .support import check_num_latent, check_support

__all__ = [
    "ScalarFactor",
    "TiltedDerivatives",
    "bernoulli",
    "beta",
    "check_num_latent",
    "check_support",
    "gaussian",
    "implementations",
    "log_power_expectation",
    "log_rate",
    "multiclass",
    "multilatent",
    "ordinal",
    "scalar_factor",
    "softmax",
    "student_t",
    "switched",
    "tilted_derivatives",
]
