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
from .points import at_latent, inducing_inputs, project_points
from .priors import (
    check_columns,
    check_independent,
    check_inducing_variable,
    mixes_outputs,
    of_one_output,
)
from .trial import check_kernel_at_row, check_mean_at_row
from .well_conditioned import WellConditioned, covariance_of_u, well_conditioned

__all__ = [
    "NearestPredecessors",
    "Prior",
    "Projection",
    "WellConditioned",
    "at_latent",
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
    "of_one_output",
    "project",
    "project_blocks",
    "project_points",
    "scaled_inputs",
    "search_tree",
    "well_conditioned",
    "whiten",
]
