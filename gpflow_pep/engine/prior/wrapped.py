"""Inducing variables with as much jitter as is needed."""

import tensorflow as tf
from check_shapes import Shape, check_shapes
from gpflow.base import TensorLike, TensorType
from gpflow.config import default_jitter
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, MultioutputKernel

from ..numerics.linalg import jitter_needed
from .evaluate import centred, convert_user_code


class WellConditioned(InducingVariables):
    """Inducing variables with as much jitter added to ``Kuu`` as its Cholesky factor
    needs.
    """

    def __init__(self, inducing_variable: InducingVariables) -> None:
        super().__init__()
        self.inducing_variable = inducing_variable

    @property
    def num_inducing(self) -> tf.Tensor:
        """See :class:`gpflow.inducing_variables.InducingVariables`."""
        return self.inducing_variable.num_inducing

    @property
    def shape(self) -> Shape:
        """See :class:`gpflow.inducing_variables.InducingVariables`."""
        return self.inducing_variable.shape


@Kuf.register(WellConditioned, Kernel, TensorLike)
@check_shapes(
    "inducing_variable: [M, E, broadcast P]  # E is not D of patches",
    "Xnew: [batch..., N, D]",
    "return: [M, batch..., N]",
)
def _Kuf_of_others(
    inducing_variable: WellConditioned, kernel: Kernel, Xnew: TensorType
) -> tf.Tensor:
    return Kuf(inducing_variable.inducing_variable, kernel, Xnew)


@Kuu.register(WellConditioned, Kernel)
@check_shapes("inducing_variable: [M, D, broadcast P]", "return: [M, M]")
def _Kuu_well_conditioned(
    inducing_variable: WellConditioned, kernel: Kernel, *, jitter: float = 0.0
) -> tf.Tensor:
    K = Kuu(inducing_variable.inducing_variable, kernel, jitter=jitter)
    eye = tf.eye(tf.shape(K)[-1], dtype=K.dtype)
    # GPflow's wrappers of several outputs pass none here, and add the default
    # themselves.
    to_come = max(default_jitter() - jitter, 0.0)
    return K + jitter_needed(K + to_come * eye) * eye


def well_conditioned(
    inducing_variable: InducingVariables, kernel: Kernel
) -> InducingVariables:
    """Make inducing variables well-conditioned inside GPflow's multi-output wrappers.

    :param inducing_variable: Of one output, or of several that are independent. Those
        of one output under a kernel of several, which GPflow correlates, stay as they
        are.
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


@convert_user_code
def covariance_of_u(inducing_variable: InducingVariables, kernel: Kernel) -> tf.Tensor:
    """Compute the prior covariance of u, [1, M, M] or [L, M, M]."""
    variables = well_conditioned(inducing_variable, kernel)
    K = Kuu(variables, centred(kernel), jitter=default_jitter())
    size = tf.shape(K)[-1] * (tf.shape(K)[0] if K.shape.rank == 4 else 1)
    # Outputs that GPflow correlates come as [M, P, M, P].
    return tf.reshape(K, [-1, size, size])
