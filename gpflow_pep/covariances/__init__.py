"""Kernel and inducing variables turned into matrices."""

from .latents import Prior, independent_priors, well_conditioned
from .projection import Projection, prior_factor, project, project_blocks
from .well_conditioned import WellConditioned

__all__ = [
    "Prior",
    "Projection",
    "WellConditioned",
    "independent_priors",
    "prior_factor",
    "project",
    "project_blocks",
    "well_conditioned",
]
