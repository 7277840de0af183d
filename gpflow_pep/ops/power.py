"""Functions of the power :math:`\\alpha` that have a finite limit at :math:`\\alpha = 0`.

This module is the only place where :math:`\\alpha` near 0 is special.
"""

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

#: Below this size of ``t`` the Taylor series of ``log(1 + t) / t`` is used. With 14 terms the first
#: one left out is below 0.05 ** 14 = 6e-19, less than half a unit of the last digit of float64.
_SERIES_RADIUS = 0.05
_SERIES_TERMS = 14


@check_shapes(
    "t: [any...]",
    "return: [any...]",
)
def _log1p_over(t: tf.Tensor) -> tf.Tensor:
    """``log(1 + t) / t``, smooth through ``t = 0`` where it is 1, with derivatives of any order."""
    near = tf.abs(t) < _SERIES_RADIUS
    # Each branch sees a harmless argument where the other one is chosen, so that neither value nor
    # derivative of the branch not taken is ever NaN.
    t_near = tf.where(near, t, tf.zeros_like(t))
    t_far = tf.where(near, tf.ones_like(t), t)
    coefficients = [(-1.0) ** k / (k + 1) for k in range(_SERIES_TERMS)]
    series = tf.zeros_like(t)
    for coefficient in reversed(coefficients):
        series = series * t_near + tf.constant(coefficient, t.dtype)
    return tf.where(near, series, tf.math.log1p(t_far) / t_far)


@check_shapes(
    "x: [broadcast any...]",
    "alpha: [broadcast any...]",
    "return: [any...]",
)
def log1p_ratio(x: TensorType, alpha: TensorType) -> tf.Tensor:
    r"""
    Compute :math:`\log(1 + \alpha x) / \alpha`, which tends to :math:`x` as :math:`\alpha \to 0`.

    It is how the power enters every log-determinant of Power EP, for instance
    :math:`\tfrac{1}{\alpha} \log|I + \alpha D / \sigma^2|` in Bui, Yan & Turner (2017), section
    3.6. Value and derivatives (in both arguments, of any order) are accurate for every
    :math:`\alpha`, 0 included.

    :param x: Any values with :math:`\alpha x > -1`.
    :param alpha: The power, in :math:`[0, 1]`; broadcast against ``x``.
    """
    x = tf.convert_to_tensor(x)
    return x * _log1p_over(tf.convert_to_tensor(alpha, x.dtype) * x)


def is_power(value: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> bool:
    """Whether all values are in the range of a power, :math:`[0, 1]`; NaN is not."""
    return bool(np.all((value >= 0.0) & (value <= 1.0)))
