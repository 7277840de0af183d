"""Functions of the power :math:`\\alpha` that have a finite limit at
:math:`\\alpha = 0`.

This module is the only place where :math:`\\alpha` near 0 is special.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

#: Below this size of ``t`` ``log(1 + t) / t`` is computed as the integral of
#: ``1 / (1 + x t)`` over ``x`` from 0 to 1, by a Gauss-Legendre rule. Its error is
#: about ``(t / 4) ** (2 * nodes)``, which is 1e-19.
_NEAR = 0.05
_NODES, _WEIGHTS = 0.5 * np.stack(np.polynomial.legendre.leggauss(5)) + [[0.5], [0.0]]
#: Replaces a power of 0 in quotients by the power that keep all digits for every other
#: power.
_SMALLEST_POWER = 1e-30

_elementwise = check_shapes(
    "x: [broadcast any...]", "alpha: [broadcast any...]", "return: [any...]"
)


def _log1p_over(t: tf.Tensor) -> tf.Tensor:
    """``log(1 + t) / t``, smooth through ``t = 0`` where it is 1, with derivatives of
    any order.
    """
    near = tf.abs(t) < _NEAR
    # Each branch sees a harmless argument where the other one is chosen, so that
    # neither value nor derivative of the branch not taken is ever NaN.
    t_near = tf.where(near, t, tf.zeros_like(t))
    t_far = tf.where(near, tf.ones_like(t), t)
    column = [-1, *[1] * t.shape.rank]
    first, second = (
        tf.constant(coefficients.reshape(column), t.dtype)
        for coefficients in (1.0 / _WEIGHTS, _NODES / _WEIGHTS)
    )
    integral = tf.reduce_sum(
        tf.math.reciprocal(first + second * tf.expand_dims(t_near, 0)), 0
    )
    return tf.where(near, integral, tf.math.log1p(t_far) / t_far)


@_elementwise
def log1p_over_power(x: TensorType, alpha: TensorType) -> tf.Tensor:
    r"""
    Compute :math:`\log(1 + \alpha x) / \alpha`, which tends to :math:`x` as
    :math:`\alpha \to 0`.

    Every log-determinant of Power EP depends on the power in this way, for instance
    :math:`\tfrac{1}{\alpha} \log|I + \alpha D / \sigma^2|` in Bui, Yan & Turner (2017),
    section 3.6. Value and derivatives (in both arguments, of any order) are accurate
    for every :math:`\alpha`, 0 included.

    :param x: Any values with :math:`\alpha x > -1`.
    :param alpha: The power, in :math:`[0, 1]`; broadcast against ``x``.
    """
    x = tf.convert_to_tensor(x)
    return x * _log1p_over(tf.convert_to_tensor(alpha, x.dtype) * x)


@_elementwise
def expm1_over_power(x: TensorType, alpha: TensorType) -> tf.Tensor:
    r"""
    Compute :math:`(e^{\alpha x} - 1) / \alpha`, which tends to :math:`x` as
    :math:`\alpha \to 0`.

    The value and its first derivative in ``x`` are accurate for every :math:`\alpha`.
    The derivative in :math:`\alpha` and second derivatives are not accurate if
    :math:`\alpha` is close to 0.

    :param x: Any finite values; in single precision the result for values below 1e-8
        may be 0.
    :param alpha: The power, in :math:`[0, 1]`; broadcast against ``x``.
    """
    x = tf.convert_to_tensor(x)
    power = tf.maximum(tf.convert_to_tensor(alpha, x.dtype), _SMALLEST_POWER)
    return tf.math.expm1(power * x) / power


@_elementwise
def fast_log1p_over_power(x: TensorType, alpha: TensorType) -> tf.Tensor:
    r"""Compute :func:`log1p_over_power` with fewer operations. It is the inverse of
    :func:`expm1_over_power`, and as accurate.
    """
    x = tf.convert_to_tensor(x)
    power = tf.maximum(tf.convert_to_tensor(alpha, x.dtype), _SMALLEST_POWER)
    return tf.math.log1p(power * x) / power


@check_shapes(
    "values: [Q, any...]",
    "weights: [Q, any...]",
    "alpha: [broadcast any...]",
    "return: [any...]",
)
def log_power_mean(
    values: TensorType, weights: TensorType, alpha: TensorType
) -> tf.Tensor:
    r"""Compute :math:`\frac{1}{\alpha} \log \sum_i w_i e^{\alpha \ell_i}`, which tends
    to :math:`\sum_i w_i \ell_i` as :math:`\alpha \to 0`.

    It is the logarithm of a power mean. Value and derivatives are accurate for every
    :math:`\alpha` in :math:`[0, 1]`, also where :math:`\alpha` is so small that
    :math:`e^{\alpha \ell_i}` rounds to 1, and where all of its terms underflow.
    Derivatives in the weights are along directions that leave their sum at 1.

    :param values: The :math:`\ell_i`, finite, along the first axis.
    :param weights: The :math:`w_i \ge 0`, which sum to 1 along the first axis.
    :param alpha: The power, in :math:`[0, 1]`.
    """
    values = tf.convert_to_tensor(values)
    weights = tf.convert_to_tensor(weights, values.dtype)
    alpha = tf.convert_to_tensor(alpha, values.dtype)

    @tf.custom_gradient
    def mean(
        values: tf.Tensor, weights: tf.Tensor, alpha: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[..., Any]]:
        # Below the smallest normal number a weight counts as 0: it could meet an
        # exponential that overflows.
        counts = weights > np.finfo(values.dtype.as_numpy_dtype).tiny
        result, terms = _log_power_mean(values, weights, alpha, counts)
        zero = alpha == 0.0
        # A quotient of sums keeps the digits that the difference of a value and the
        # result loses if both are large.
        tilted = tf.where(zero, weights, terms / tf.reduce_sum(terms, axis=0))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            share = upstream * tilted
            distance = tf.where(counts, values - result, 0.0)
            excess = expm1_over_power(
                tf.where(zero, tf.zeros_like(distance), distance), alpha
            )
            score = tf.where(zero, distance, excess)
            by_alpha = divide_by_power(tf.reduce_sum(share * distance, axis=0), alpha)
            return share, upstream * score, _sum_to(by_alpha, alpha)

        return result, gradient

    result: tf.Tensor = mean(values, weights, alpha)
    return result


def _sum_to(gradient: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
    """Sum over the axes along which a source was broadcast."""
    added = gradient.shape.rank - source.shape.rank
    axes = list(range(added))
    for axis, size in enumerate(source.shape):
        if size == 1 and gradient.shape[added + axis] != 1:
            axes.append(added + axis)
    if not axes:
        return gradient
    kept = tf.reduce_sum(gradient, axis=axes, keepdims=True)
    return tf.reshape(kept, tf.shape(source))


def _log_power_mean(
    values: tf.Tensor, weights: tf.Tensor, alpha: tf.Tensor, counts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute :func:`log_power_mean`.

    :param counts: Which weights are not 0.
    :return: The result, and the terms of the sum, divided by the largest exponential;
        with a power of 0 the terms are for a power of 1.
    """
    lowest = tf.constant(values.dtype.min, values.dtype)
    largest = tf.stop_gradient(tf.reduce_max(tf.where(counts, values, lowest), axis=0))
    values = tf.where(counts, values, largest)
    # The quotients have all digits for every alpha but 0, where the result is a mean.
    zero = alpha == 0.0
    divisor = tf.where(zero, tf.ones_like(alpha), alpha)
    terms = weights * tf.exp(divisor * (values - largest))
    log_mean = tf.math.log(tf.reduce_sum(tf.stop_gradient(terms), axis=0))
    # To within 1 / alpha of the result, expm1 and log1p keep all digits.
    origin = largest + tf.where(log_mean < -1.0, log_mean / divisor, 0.0)
    distance = values - tf.stop_gradient(origin)
    excess = tf.where(
        zero,
        tf.reduce_sum(weights * distance, axis=0),
        tf.reduce_sum(weights * tf.math.expm1(divisor * distance), axis=0) / divisor,
    )
    return tf.stop_gradient(origin) + log1p_over_power(excess, alpha), terms


@_elementwise
def divide_by_power(x: TensorType, alpha: TensorType) -> tf.Tensor:
    r"""
    Compute :math:`x / \alpha` for an :math:`x` that a factor to the power
    :math:`\alpha` caused.

    A power of 0 has no effect, so the result is 0 if both are 0.

    :param alpha: The power, in :math:`[0, 1]`.
    """
    return tf.math.divide_no_nan(
        x, tf.convert_to_tensor(alpha, tf.convert_to_tensor(x).dtype)
    )
