"""Gaussian noise: everything in closed form."""

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Gaussian, GaussianMC

from ..ops.power import log1p_ratio
from .dispatch import implementations


def gaussian_log_power_expectation(
    mean: tf.Tensor, variance: tf.Tensor, y: tf.Tensor, noise: tf.Tensor, alpha: tf.Tensor
) -> tf.Tensor:
    r"""
    Compute :math:`\frac{1}{\alpha} \log \int N(f; m, v) N(y; f, \sigma^2)^\alpha df`:

    .. math::

       -\frac12 \log 2\pi\sigma^2 - \frac{1}{2\alpha} \log(1 + \alpha v / \sigma^2)
       - \frac12 \frac{(y - m)^2}{\sigma^2 + \alpha v}

    :param mean: m.
    :param variance: v.
    :param y: The target.
    :param noise: :math:`\sigma^2`.
    :param alpha: The power; all arguments broadcast.
    """
    return -0.5 * (
        np.log(2.0 * np.pi)
        + tf.math.log(noise)
        + log1p_ratio(variance / noise, alpha)
        + (y - mean) ** 2 / (noise + alpha * variance)
    )


@implementations.register(Gaussian)
@implementations.register(GaussianMC)
def _gaussian(
    likelihood: Gaussian,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    noise = likelihood.variance_at(X)
    terms = gaussian_log_power_expectation(Fmu, Fvar, Y, noise, alpha[:, None])
    return tf.reduce_sum(terms, axis=-1)
