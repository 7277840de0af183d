"""Matrices of kernels and inducing variables."""

from .evaluate import (
    Parts,
    PartsBySubstitution,
    Projection,
    centred,
    is_mixed,
    latent_kernels,
    project,
    project_points,
    split_outputs,
    whiten,
)
from .nearest import input_scales, nearest_by_products, nearest_others
from .priors import (
    check_columns,
    check_independent,
    check_inducing_variable,
    check_kernel_at_row,
    check_mean_at_row,
    check_near_origin,
    count_columns,
    example_inputs,
    inducing_inputs,
    mixes_outputs,
)
from .wrapped import covariance_of_u, well_conditioned
