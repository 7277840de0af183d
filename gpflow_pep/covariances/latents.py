"""Latent functions that are independent a priori: which kernel and inducing variables each has."""

from typing import NamedTuple

from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingVariables,
    MultioutputInducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    Kernel,
    MultioutputKernel,
    SeparateIndependent,
    SharedIndependent,
)

from .blurred import BlurredInducingPoints, sum_of_products
from .well_conditioned import WellConditioned


class Prior(NamedTuple):
    """A kernel with inducing variables, and the latent functions that have them."""

    kernel: Kernel
    inducing_variable: InducingVariables
    latents: tuple[int, ...]


def independent_priors(
    kernel: Kernel, inducing_variable: InducingVariables, num_latent: int
) -> list[Prior]:
    """
    Take GPflow's multi-output constructs apart into kernels of one output.

    :param kernel: A kernel of one output, shared by all; ``SharedIndependent``; or
        ``SeparateIndependent``.
    :param inducing_variable: Inducing variables of one output, shared by all; or wrapped as shared
        or separate independent ones.
    :param num_latent: How many latent functions there are.
    :return: Priors that differ, each once.
    :raises ValueError: If the kernel mixes latent functions, the numbers do not agree, or a kernel
        has no closed form for its inducing variables.
    """
    if isinstance(kernel, SeparateIndependent):
        kernels = list(kernel.kernels)
    elif isinstance(kernel, SharedIndependent):
        kernels = [kernel.kernel] * num_latent
    elif isinstance(kernel, MultioutputKernel):
        raise ValueError(
            f"kernel: got {type(kernel).__name__}, which mixes latent functions; expected latent"
            " functions that are independent a priori. Use gpflow.kernels.SharedIndependent or"
            " SeparateIndependent."
        )
    else:
        kernels = [kernel] * num_latent
    if isinstance(inducing_variable, FallbackSeparateIndependentInducingVariables):
        variables = list(inducing_variable.inducing_variable_list)
    elif isinstance(inducing_variable, FallbackSharedIndependentInducingVariables):
        variables = [inducing_variable.inducing_variable] * num_latent
    else:
        variables = [inducing_variable] * num_latent
    if isinstance(kernel, MultioutputKernel) != isinstance(
        inducing_variable, MultioutputInducingVariables
    ):
        raise ValueError(
            f"kernel and inducing_variable: got {type(kernel).__name__} with"
            f" {type(inducing_variable).__name__}, expected both of one output or both of several."
            " Wrap the kernel in gpflow.kernels.SharedIndependent, or the inducing variables in"
            " gpflow.inducing_variables.SharedIndependentInducingVariables."
        )
    for name, parts in (("kernel", kernels), ("inducing_variable", variables)):
        if len(parts) != num_latent:
            raise ValueError(
                f"{name}: got {len(parts)} of one output each, expected {num_latent}, one for each"
                " latent function. Give as many."
            )
    priors: dict[tuple[int, int], Prior] = {}
    for latent, (k, iv) in enumerate(zip(kernels, variables, strict=True)):
        if isinstance(iv, BlurredInducingPoints):
            sum_of_products(k)  # refuses a kernel that has no closed form
        known = priors.get((id(k), id(iv)), Prior(k, iv, ()))
        priors[id(k), id(iv)] = known._replace(latents=(*known.latents, latent))
    return list(priors.values())


def well_conditioned(inducing_variable: InducingVariables, kernel: Kernel) -> InducingVariables:
    """
    Make inducing variables well-conditioned inside GPflow's multi-output wrappers.

    :param inducing_variable: Of one output, or of several that are independent. Those of one output
        under a kernel of several, which GPflow correlates, stay as they are.
    :param kernel: The kernel.
    """
    if isinstance(inducing_variable, FallbackSeparateIndependentInducingVariables):
        return SeparateIndependentInducingVariables(
            [WellConditioned(iv) for iv in inducing_variable.inducing_variable_list]
        )
    if isinstance(inducing_variable, FallbackSharedIndependentInducingVariables):
        return SharedIndependentInducingVariables(
            WellConditioned(inducing_variable.inducing_variable)
        )
    if isinstance(kernel, MultioutputKernel):
        return inducing_variable
    return WellConditioned(inducing_variable)
