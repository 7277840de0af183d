"""Matern covariances as functions of squared distances, with derivatives where these are 0 too."""

from collections.abc import Callable

import tensorflow as tf

#: What is added to exp(-t) (1 + t), by order, and minus the derivative in t².
_SMOOTHNESS = {1: (0.0, 1.0 / 2.0), 2: (1.0 / 3.0, 1.0 / 6.0)}


def matern_profile(order: int, squared: tf.Tensor) -> tf.Tensor:
    r"""
    Compute the Matern correlation of smoothness order + 1/2 of :math:`t^2`: of order 0 to 2,
    :math:`e^{-t}, (1 + t) e^{-t}, (1 + t + t^2 / 3) e^{-t}`. Its derivative is minus that of one
    order less, over 2 or 6. GPflow has a root clipped at 0, without second derivatives there.

    :param squared: :math:`t^2`, which rounding may have made negative.
    """
    if order == 0:
        return tf.exp(-tf.sqrt(tf.maximum(squared, 1e-36)))  # GPflow's limit
    quadratic, slope = _SMOOTHNESS[order]

    @tf.custom_gradient
    def profile(squared: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        squared = tf.identity(squared)  # of this graph, for gradients of compiled gradients
        t = tf.sqrt(tf.nn.relu(squared))
        value = (1.0 + t + quadratic * tf.square(t)) * tf.exp(-t)
        return value, lambda upstream: -slope * upstream * matern_profile(order - 1, squared)

    return profile(squared)
