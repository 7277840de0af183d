"""Inducing variables that stand for others, with something added to their ``Kuu``."""

import tensorflow as tf
from check_shapes import Shape, check_shapes
from gpflow.base import TensorLike, TensorType
from gpflow.covariances import Kuf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel


class InducingVariablesWrapper(InducingVariables):
    """
    Other inducing variables, whose ``Kuf`` it shares; a subclass registers its own ``Kuu``.

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
    "inducing_variable: [M, D, broadcast P]",
    "Xnew: [batch..., N, D]",
    "return: [M, batch..., N]",
)
def _Kuf_of_others(
    inducing_variable: InducingVariablesWrapper, kernel: Kernel, Xnew: TensorType
) -> tf.Tensor:
    return Kuf(inducing_variable.inducing_variable, kernel, Xnew)
