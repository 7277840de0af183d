"""Kernel and inducing variables turned into matrices."""

from .evaluate import Prior, Projection, project, project_blocks, whiten
from .nearest import NearestPredecessors, largest_group, nearest_predecessors, scaled_inputs
from .priors import check_columns, check_independent, check_inducing_variable, mixes_outputs
from .well_conditioned import WellConditioned, well_conditioned

__all__ = [
    "NearestPredecessors",
    "Prior",
    "Projection",
    "WellConditioned",
    "check_columns",
    "check_independent",
    "check_inducing_variable",
    "largest_group",
    "mixes_outputs",
    "nearest_predecessors",
    "project",
    "project_blocks",
    "scaled_inputs",
    "well_conditioned",
    "whiten",
]
