"""Kernel and inducing variables turned into matrices."""

from .distance import (
    input_scales,
    nearest_by_products,
    nearest_by_tree,
    scaled_inputs,
    search_tree,
)
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
    "input_scales",
    "mixes_outputs",
    "nearest_by_products",
    "nearest_by_tree",
    "project",
    "project_blocks",
    "scaled_inputs",
    "search_tree",
    "well_conditioned",
    "whiten",
]
