"""Kernel and inducing variables turned into matrices."""

from .evaluate import Prior, Projection, project, project_blocks, whiten
from .points import at_latent, inducing_inputs, project_points
from .priors import (
    check_columns,
    check_independent,
    check_inducing_variable,
    mixes_outputs,
    of_one_output,
)
from .well_conditioned import WellConditioned, well_conditioned

__all__ = [
    "Prior",
    "Projection",
    "WellConditioned",
    "at_latent",
    "check_columns",
    "check_independent",
    "check_inducing_variable",
    "inducing_inputs",
    "mixes_outputs",
    "of_one_output",
    "project",
    "project_blocks",
    "project_points",
    "well_conditioned",
    "whiten",
]
