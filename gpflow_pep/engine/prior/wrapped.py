"""Inducing variables with as much jitter as is needed, and whitened ones."""

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


class Whitened(InducingVariables):
    """Whitened inducing variables :math:`v = L^{-1} u`, whose prior is N(0, I).

    :param inducing_variable: Those of u, of one output or of several.
    :param L: The Cholesky factor of the covariance of u: [M, M], which all outputs
        share or which is of all outputs together, or [L, M, M] of each.
    """

    def __init__(self, inducing_variable: InducingVariables, L: tf.Tensor) -> None:
        super().__init__()
        self.inducing_variable = inducing_variable
        self.L = tf.convert_to_tensor(L)

    @property
    def num_inducing(self) -> tf.Tensor:
        """See :class:`gpflow.inducing_variables.InducingVariables`."""
        return self.inducing_variable.num_inducing

    @property
    def shape(self) -> Shape:
        """See :class:`gpflow.inducing_variables.InducingVariables`."""
        return self.inducing_variable.shape


@Kuf.register(Whitened, Kernel, TensorLike)
@check_shapes("return: [...]  # as that of u")
def _Kuf_whitened(
    inducing_variable: Whitened, kernel: Kernel, Xnew: TensorType
) -> tf.Tensor:
    K = Kuf(inducing_variable.inducing_variable, kernel, Xnew)
    L = inducing_variable.L
    if L.shape.rank > 2:
        return tf.linalg.triangular_solve(L, K)
    columns = tf.reshape(K, [tf.shape(L)[0], -1])
    return tf.reshape(tf.linalg.triangular_solve(L, columns), tf.shape(K))


@Kuu.register(Whitened, Kernel)
@check_shapes("return: [broadcast L, M, M]")
def _Kuu_whitened(
    inducing_variable: Whitened, kernel: Kernel, *, jitter: float = 0.0
) -> tf.Tensor:
    del jitter  # L has it
    shape = tf.shape(inducing_variable.L)
    return tf.eye(shape[-1], batch_shape=shape[:-2], dtype=inducing_variable.L.dtype)


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
