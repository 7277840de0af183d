"""Inducing variables whose prior covariance can always be factorised."""

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.config import default_jitter
from gpflow.covariances import Kuu
from gpflow.kernels import Kernel

from ..ops.linalg import jitter_needed
from .wrapper import InducingVariablesWrapper


class WellConditioned(InducingVariablesWrapper):
    """
    Other inducing variables, with as much jitter added to ``Kuu`` as its Cholesky factor needs.

    That is none in all ordinary cases. Models factorise this ``Kuu``, and so do the GPflow
    posteriors that they hand out: both see the same matrix, whatever happened.

    :param inducing_variable: Any inducing variables that GPflow's ``Kuu`` and ``Kuf`` know.
    """


@Kuu.register(WellConditioned, Kernel)
@check_shapes(
    "inducing_variable: [M, D, broadcast P]",
    "return: [M, M]",
)
def _Kuu_well_conditioned(
    inducing_variable: WellConditioned, kernel: Kernel, *, jitter: float = 0.0
) -> tf.Tensor:
    K = Kuu(inducing_variable.inducing_variable, kernel, jitter=jitter)
    eye = tf.eye(tf.shape(K)[-1], dtype=K.dtype)
    # GPflow's wrappers of several outputs ask for none here, and add the default themselves.
    to_come = max(default_jitter() - jitter, 0.0)
    return K + jitter_needed(K + to_come * eye) * eye
