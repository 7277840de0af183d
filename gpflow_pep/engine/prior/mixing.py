"""Kernels of outputs that are mixed from independent latent functions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.inducing_variables import (
    InducingVariables,
    MultioutputInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Combination, Kernel, LinearCoregionalization, SeparateIndependent
from gpflow.models.util import inducingpoint_wrapper
from gpflow.utilities import positive

from .. import checks
from .evaluate import Parts


class CoregionalizationWithDiagonal(LinearCoregionalization):
    r"""Outputs mixed from common functions, and from a function that each output has for itself.

    .. math:: f_p = \sum_{q=1}^{R} w_{pq}\, g_q + \sqrt{\kappa_p}\, c_p

    It is ``LinearCoregionalization`` of R + P latent functions, whose weights are
    :math:`W = [w, \mathrm{diag}(\sqrt{\kappa})]`, of which only :math:`w` and :math:`\kappa` are
    trained. With the same kernel object for all latent functions, it is the intrinsic model of
    coregionalisation: the covariance is that kernel times :math:`w wᵀ + \mathrm{diag}(\kappa)`
    (Bonilla, Chai & Williams 2008), which GPflow's ``Coregion`` has in long form.

    :param kernels: Of :math:`g_1, \ldots, g_R` and then of :math:`c_1, \ldots, c_P`.
    :param weights: :math:`w`, [P, R].
    :param kappa: :math:`\kappa`, [P], positive.
    :raises ValueError: If there are not as many kernels, or a :math:`\kappa` is not positive.
    """

    @check_shapes("weights: [P, R]", "kappa: [P]")
    def __init__(
        self,
        kernels: Sequence[Kernel],
        weights: TensorType,
        kappa: TensorType,
        name: str | None = None,
    ) -> None:
        if not np.all(np.asarray(kappa) > 0.0):
            raise checks.refusal("kappa", repr(kappa), "positive numbers", "Pass 0.1, for example.")
        Combination.__init__(self, kernels=kernels, name=name)
        self.weights = Parameter(weights)
        self.kappa = Parameter(kappa, transform=positive())
        number = sum(map(int, self.weights.shape))
        if len(self.kernels) != number:
            expected = f"{number}, one for each column of the weights and one for each output"
            raise checks.refusal("kernels", len(self.kernels), expected, "Give as many.")

    @property
    def W(self) -> tf.Tensor:  # type: ignore[override]
        """[P, R + P], the weights of all latent functions; a function of the parameters."""
        return tf.concat([self.weights, tf.linalg.diag(tf.sqrt(self.kappa))], axis=1)


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
