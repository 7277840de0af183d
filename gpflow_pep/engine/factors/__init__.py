"""Tilted integrals: one factor to a power under a Gaussian, for every likelihood.

What is special about a likelihood is registered in a file of its own. Every file of
this folder is imported, so that a new one needs no other change.
"""

import importlib
import pkgutil

from ..numerics.quadrature import Structure
from .classes import class_probabilities
from .generic import AccuracyWarning, ScalarFactor
from .moments import (
    Layout,
    Support,
    TiltedDerivatives,
    Traits,
    check_num_latent,
    check_support,
    derivatives_in_moments_and_parameters,
    implementation_for,
    implementations,
    layout,
    layout_of,
    log_power_expectation,
    num_classes,
    require_resolved,
    scalar_factor,
    support,
    tilted_derivatives,
    traits,
)
from .targets import predict_mean_and_var

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
