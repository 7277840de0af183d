r"""Wrappers of inducing variables: with noise, and with as much jitter as is needed.

Noise makes the jitter of ``Kuu`` a parameter of the approximation (Titsias 2009, section 6). Of
:math:`\lambda = u + \epsilon` with :math:`\epsilon \sim N(0, v I)`, ``Kuu`` is that of u plus
v I, and ``Kuf`` is that of u. The prior of f does not change, so that v is a parameter of the
approximation, as Z is.
"""

import numpy as np
import tensorflow as tf
from check_shapes import Shape, check_shapes
from gpflow import Parameter
from gpflow.base import TensorLike, TensorType
from gpflow.config import default_float, default_jitter
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.models.util import InducingVariablesLike, inducingpoint_wrapper

from ..checks import check_real
from ..numerics.linalg import jitter_needed
from .evaluate import centred, convert_user_code


class InducingVariablesWrapper(InducingVariables):
    """A wrapper of inducing variables, with their ``Kuf``; a subclass registers its own ``Kuu``.

    :param inducing_variable: Any inducing variables with a registered ``Kuu`` and ``Kuf``.
    """

    def __init__(self, inducing_variable: InducingVariables, name: str | None = None) -> None:
        super().__init__(name=name)
        self.inducing_variable = inducing_variable

    @property
    def num_inducing(self) -> tf.Tensor:
        """See :class:`gpflow.inducing_variables.InducingVariables`."""
        return self.inducing_variable.num_inducing

    @property
    def shape(self) -> Shape:
        """See :class:`gpflow.inducing_variables.InducingVariables`."""
        return self.inducing_variable.shape


@Kuf.register(InducingVariablesWrapper, Kernel, TensorLike)
@check_shapes(
    "inducing_variable: [M, E, broadcast P]  # E is not D of patches",
    "Xnew: [batch..., N, D]",
    "return: [M, batch..., N]",
)
def _Kuf_of_others(
    inducing_variable: InducingVariablesWrapper, kernel: Kernel, Xnew: TensorType
) -> tf.Tensor:
    return Kuf(inducing_variable.inducing_variable, kernel, Xnew)


class NoisyInducingVariables(InducingVariablesWrapper):
    r"""Other inducing variables u with noise, :math:`\lambda = u + \epsilon`,
    :math:`\epsilon \sim N(0, v I)`.

    At :math:`\alpha = 0` the objective is a lower bound of the exact log marginal likelihood for
    every v, and so v may be trained with all else (Titsias 2009, section 6): started large, it
    keeps ``Kuu`` far from singular in the first steps, and falls as training goes on, because
    without noise u determines more of f. GPflow's default jitter comes on top.

    It serves in models of this package and of GPflow, in ``SharedIndependentInducingVariables`` and
    ``SeparateIndependentInducingVariables`` too.

    :param inducing_variable: Inducing inputs Z [M, D], or any inducing variables of one output
        with a registered ``Kuu`` and ``Kuf``.
    :param variance: v, at least 0. Trainable is ``deviation``, its square root of either sign, so
        that v may become 0 exactly. There the gradient vanishes: start from above.
    :raises ValueError: If v is not such a number.
    """

    def __init__(
        self,
        inducing_variable: InducingVariablesLike,
        variance: float = 1.0,
        name: str | None = None,
    ) -> None:
        remedy = "Pass one variance of the noise for all inducing variables."
        v = check_real("variance", np.asarray(variance)[()], "[0, inf)", remedy)
        super().__init__(inducingpoint_wrapper(inducing_variable), name)
        self.deviation = Parameter(np.sqrt(v), dtype=default_float())

    @property
    def variance(self) -> tf.Tensor:
        """v, [], the variance of the noise."""
        return tf.square(self.deviation)


@Kuu.register(NoisyInducingVariables, Kernel)
@check_shapes("inducing_variable: [M, D, 1]", "return: [M, M]")
def _Kuu_noisy(
    inducing_variable: NoisyInducingVariables, kernel: Kernel, *, jitter: float = 0.0
) -> tf.Tensor:
    K = Kuu(inducing_variable.inducing_variable, kernel, jitter=jitter)
    return K + inducing_variable.variance * tf.eye(tf.shape(K)[0], dtype=K.dtype)


class WellConditioned(InducingVariablesWrapper):
    """Inducing variables with as much jitter added to ``Kuu`` as its Cholesky factor needs."""


@Kuu.register(WellConditioned, Kernel)
@check_shapes("inducing_variable: [M, D, broadcast P]", "return: [M, M]")
def _Kuu_well_conditioned(
    inducing_variable: WellConditioned, kernel: Kernel, *, jitter: float = 0.0
) -> tf.Tensor:
    K = Kuu(inducing_variable.inducing_variable, kernel, jitter=jitter)
    eye = tf.eye(tf.shape(K)[-1], dtype=K.dtype)
    # GPflow's wrappers of several outputs pass none here, and add the default themselves.
    to_come = max(default_jitter() - jitter, 0.0)
    return K + jitter_needed(K + to_come * eye) * eye


def well_conditioned(inducing_variable: InducingVariables, kernel: Kernel) -> InducingVariables:
    """Make inducing variables well-conditioned inside GPflow's multi-output wrappers.

    :param inducing_variable: Of one output, or of several that are independent. Those of one output
        under a kernel of several, which GPflow correlates, stay as they are.
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
