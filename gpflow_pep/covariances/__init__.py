"""Kernel and inducing variables turned into matrices."""

from .evaluate import Prior, Projection, project, project_blocks, whiten
from .priors import check_columns, check_independent, check_inducing_variable, mixes_outputs
from .well_conditioned import WellConditioned, well_conditioned

__all__ = [
    "Prior",
    "Projection",
    "WellConditioned",
    "check_columns",
    "check_independent",
    "check_inducing_variable",
    "mixes_outputs",
    "project",
    "project_blocks",
    "well_conditioned",
    "whiten",
]
