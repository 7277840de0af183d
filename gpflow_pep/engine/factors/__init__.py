"""Tilted integrals: the integral of one factor to a power under a Gaussian, for every
likelihood.

Everything that is special about a likelihood is registered in its own file. All files
of this folder are imported, so a new file does not need other changes.
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
