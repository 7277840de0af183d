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
    unknown,
)
from .classes import class_probabilities, num_classes
from .dispatch import implementations, scalar_factor
from .generic import ScalarFactor
from .moments import TiltedDerivatives, log_power_expectation, tilted_derivatives
from .scalar import implementation_for, require_resolved
from .support import Layout, Support, check_num_latent, check_support, layout, support
from .unknown import AccuracyWarning

__all__ = [
    "AccuracyWarning",
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
    "implementation_for",
    "implementations",
    "layout",
    "log_power_expectation",
    "log_rate",
    "multiclass",
    "multilatent",
    "num_classes",
    "ordinal",
    "probit",
    "require_resolved",
    "scalar_factor",
    "softmax",
    "student_t",
    "support",
    "switched",
    "tilted_derivatives",
    "unknown",
]
