"""Kernel and inducing variables turned into matrices."""

from .distance import (
    input_scales,
    nearest_by_products,
    nearest_by_tree,
    scaled_inputs,
    search_tree,
)
from .evaluate import Prior, Projection, project, project_blocks, whiten
from .nearest import NearestPredecessors, largest_group, nearest_predecessors
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
    "input_scales",
    "largest_group",
    "mixes_outputs",
    "nearest_by_products",
    "nearest_by_tree",
    "nearest_predecessors",
    "project",
    "project_blocks",
    "scaled_inputs",
    "search_tree",
    "well_conditioned",
    "whiten",
]
