"""Kernel and inducing variables turned into matrices."""

from .distance import (
    input_scales,
    nearest_by_products,
    nearest_by_tree,
    scaled_inputs,
    search_tree,
)
from .evaluate import Parts, Prior, Projection, project, project_blocks, whiten
from .nearest import NearestPredecessors, largest_group, nearest_predecessors
from .points import inducing_inputs, project_points, take_latent
from .priors import (
    check_columns,
    check_independent,
    check_inducing_variable,
    mixes_outputs,
    split_outputs,
)
from .trial import check_kernel_at_row, check_mean_at_row
from .well_conditioned import WellConditioned, covariance_of_u, well_conditioned

__all__ = [
    "NearestPredecessors",
    "Parts",
    "Prior",
    "Projection",
    "WellConditioned",
    "check_columns",
    "check_independent",
    "check_inducing_variable",
    "check_kernel_at_row",
    "check_mean_at_row",
    "covariance_of_u",
    "inducing_inputs",
    "input_scales",
    "largest_group",
    "mixes_outputs",
    "nearest_by_products",
    "nearest_by_tree",
    "nearest_predecessors",
    "project",
    "project_blocks",
    "project_points",
    "scaled_inputs",
    "search_tree",
    "split_outputs",
    "take_latent",
    "well_conditioned",
    "whiten",
]
