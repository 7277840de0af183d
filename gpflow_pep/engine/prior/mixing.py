"""Kernels of outputs that are mixed from independent latent functions."""

from typing import Any

from gpflow.inducing_variables import (
    InducingVariables,
    MultioutputInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, SeparateIndependent
from gpflow.models.util import inducingpoint_wrapper

from .. import checks
from .evaluate import Parts


def latent_parts(parts: Parts) -> Parts:
    """Take the parts of mixed outputs as those of their latent functions; the mean stays that of f.

    What W is made of stays among their variables: a derivative that is refused in these is refused
    in them too.
    """
    kernel = SeparateIndependent(list(parts.kernel.latent_kernels))
    kernel.mixed = parts.kernel
    return parts._replace(kernel=kernel)


def share_inducing_variable(inducing_variable: Any) -> InducingVariables:
    """Let all latent functions share inducing variables that are not of several already."""
    if isinstance(inducing_variable, MultioutputInducingVariables):
        return inducing_variable
    return SharedIndependentInducingVariables(inducingpoint_wrapper(inducing_variable))


def check_mixed(kernel: Kernel, num_outputs: int, num_latent_gps: int | None) -> None:
    """Refuse a kernel that is not of as many outputs, or of as many latent functions, as it should.

    :param num_latent_gps: As GPflow counts them, or None.
    """
    rows, columns = (int(size) for size in kernel.W.shape)
    remedy = "Pass gpflow.kernels.LinearCoregionalization(kernels, W) with such a W."
    if rows != num_outputs:
        expected = f"{num_outputs} rows, one for each column of Y"
        raise checks.refusal("W", f"shape {rows, columns}", expected, remedy)
    number = len(kernel.latent_kernels)
    if columns != number:
        expected = f"{number} columns, one for each latent kernel"
        raise checks.refusal("W", f"shape {rows, columns}", expected, remedy)
    if num_latent_gps not in (None, number):
        expected = f"{number}, one for each latent kernel"
        raise checks.refusal("num_latent_gps", num_latent_gps, expected, "Leave it out.")
