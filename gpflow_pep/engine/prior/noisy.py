r"""Inducing variables with noise: the jitter of ``Kuu`` as a parameter of the approximation.

Source: Titsias (2009), section 6. Of :math:`\lambda = u + \epsilon` with
:math:`\epsilon \sim N(0, v I)`, ``Kuu`` is that of u plus v I, and ``Kuf`` is that of u. The prior
of f does not change, so that v is a parameter of the approximation, as Z is.
"""

import numpy as np
import tensorflow as tf
from check_shapes import Shape, check_shapes
from gpflow import Parameter
from gpflow.base import TensorLike, TensorType
from gpflow.config import default_float
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.models.util import InducingVariablesLike, inducingpoint_wrapper

from ..checks import check_real


class InducingVariablesWrapper(InducingVariables):
    """
    A wrapper of inducing variables, with their ``Kuf``; a subclass registers its own ``Kuu``.

    :param inducing_variable: Any inducing variables that GPflow's ``Kuu`` and ``Kuf`` know.
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
    r"""
    Other inducing variables u with noise, :math:`\lambda = u + \epsilon`,
    :math:`\epsilon \sim N(0, v I)`.

    At :math:`\alpha = 0` the objective is a lower bound of the exact log marginal likelihood for
    every v, and so v may be trained with all else (Titsias 2009, section 6): started large, it
    keeps ``Kuu`` far from singular in the first steps, and falls as training goes on, because
    without noise u says more of f. GPflow's default jitter comes on top, the least that is left.

    It serves in models of this package and of GPflow, in ``SharedIndependentInducingVariables`` and
    ``SeparateIndependentInducingVariables`` too.

    :param inducing_variable: Inducing inputs Z [M, D], or any inducing variables of one output that
        GPflow's ``Kuu`` and ``Kuf`` know.
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
@check_shapes(
    "inducing_variable: [M, D, 1]",
    "return: [M, M]",
)
def _Kuu_noisy(
    inducing_variable: NoisyInducingVariables, kernel: Kernel, *, jitter: float = 0.0
) -> tf.Tensor:
    K = Kuu(inducing_variable.inducing_variable, kernel, jitter=jitter)
    return K + inducing_variable.variance * tf.eye(tf.shape(K)[0], dtype=K.dtype)
