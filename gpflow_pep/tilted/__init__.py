"""Tilted integrals: one factor to a power under a Gaussian, for every likelihood."""

from . import (
    bernoulli,
    beta,
    classes,
    gaussian,
    log_rate,
    multiclass,
    multilatent,
    ordinal,
    probit,
    softmax,
    student_t,
    switched,
)
from .classes import class_probabilities, num_classes
from .dispatch import implementations, scalar_factor
from .generic import ScalarFactor
from .moments import TiltedDerivatives, log_power_expectation, tilted_derivatives
from .support import Layout, Support, check_num_latent, check_support, layout, support

__all__ = [
    "Layout",
    "ScalarFactor",
    "Support",
    "TiltedDerivatives",
    "bernoulli",
    "beta",
    "check_num_latent",
    "check_support",
    "class_probabilities",
    "classes",
    "gaussian",
    "implementations",
    "layout",
    "log_power_expectation",
    "log_rate",
    "multiclass",
    "multilatent",
    "num_classes",
    "ordinal",
    "probit",
    "scalar_factor",
    "softmax",
    "student_t",
    "support",
    "switched",
    "tilted_derivatives",
]
