"""Functions of the standard normal distribution."""

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "x: [any...]",
    "return: [any...]",
)
def normal_cdf(x: tf.Tensor) -> tf.Tensor:
    r"""
    Compute :math:`\Phi(x)` to all digits of small values too.

    :param x: Any values.
    """
    return 0.5 * tf.math.erfc(x * -np.sqrt(0.5))
