"""Kernel and inducing variables turned into matrices."""

from .blurred import BlurredInducingPoints, sum_of_products
from .latents import Prior, independent_priors, well_conditioned
from .noisy import NoisyInducingVariables
from .projection import Projection, prior_factor, project, project_blocks
from .well_conditioned import WellConditioned

__all__ = [
    "BlurredInducingPoints",
    "NoisyInducingVariables",
    "Prior",
    "Projection",
    "WellConditioned",
    "independent_priors",
    "prior_factor",
    "project",
    "project_blocks",
    "sum_of_products",
    "well_conditioned",
]
