r"""Several classes of which the largest latent function decides: RobustMax, of two values."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.likelihoods import MultiClass

from ..ops.quadrature import REACH, Core, no_tilt, stretched_nodes
from .bernoulli import two_valued
from .dispatch import implementations
from .probit import normal_cdf

#: A normal distribution function ends so many of its standard deviations from its middle.
_CDF_EXTENT = 6.0
_CDF_RESOLUTION = 0.7
_MORE_CORES = 2
_NUM_NODES = 144
#: Of the label's variance, which is added to the others'. That changes the integral as little, and
#: nodes need not be spread over more orders of magnitude than they resolve.
_SMALLEST_RATIO = 1e-12
_LOG_SQRT_TWO_PI = 0.5 * np.log(2.0 * np.pi)


@check_shapes(
    "label: [N]",
    "mean: [N, L]",
    "variance: [N, L]",
    "return[0]: [N]",
    "return[1]: [N]",
)
def prob_is_largest(
    label: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor
) -> "tuple[tf.Tensor, tf.Tensor]":
    r"""
    Compute the probability that the label's latent function is the largest, and that it is not:

    .. math::

       P = \int N(f; m_y, v_y) \prod_{k \ne y} \Phi\left(\frac{f - m_k}{\sqrt{v_k}}\right) df

    (Villacampa-Calvo & Hernández-Lobato 2020, equation A.34).

    :param label: The label y of each row, in 0 ... L - 1.
    :param mean: Means of independent latent functions.
    :param variance: Their variances, positive.
    """
    own = tf.one_hot(label, tf.shape(mean)[1], dtype=mean.dtype)
    own_mean = tf.reduce_sum(own * mean, axis=1, keepdims=True)
    own_variance = tf.reduce_sum(own * variance, axis=1, keepdims=True)
    variance += (1.0 - own) * _SMALLEST_RATIO * tf.stop_gradient(own_variance)
    cores = _cores(own, mean, tf.sqrt(variance), tf.sqrt(own_variance))
    nodes = stretched_nodes(
        own_mean,
        own_variance,
        tf.ones_like(own_mean),
        cores,
        no_tilt(own_mean, own_variance),
        _NUM_NODES,
    )
    # Classes first: sums over them then run along memory.
    others = _others(label, tf.shape(mean)[1])
    centre = tf.transpose(tf.gather(mean, others, batch_dims=1))[:, None, :]
    rate = tf.transpose(tf.math.rsqrt(tf.gather(variance, others, batch_dims=1)))[:, None, :]
    log_product = tf.reduce_sum(_log_normal_cdf((nodes.f[None, :, :, 0] - centre) * rate), axis=0)
    weights = nodes.weights[:, :, 0]
    largest = tf.reduce_sum(weights * tf.exp(log_product), axis=0)
    return largest, tf.reduce_sum(weights * -tf.math.expm1(log_product), axis=0)


def _others(label: tf.Tensor, num_classes: tf.Tensor) -> tf.Tensor:
    """Find the classes that are not the label, [N, C - 1]."""
    classes = tf.range(num_classes - 1, dtype=label.dtype)
    return classes + tf.cast(classes >= label[:, None], label.dtype)


@tf.custom_gradient
def _log_normal_cdf(x: tf.Tensor) -> "tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]":
    # Beyond, the probability is 0 or 1 beside any error rate of labels; float32 still holds it.
    x = tf.clip_by_value(x, -12.0, 12.0)
    value = tf.math.log(normal_cdf(x))

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return upstream * tf.exp(-0.5 * x * x - value - _LOG_SQRT_TWO_PI)

    return value, gradient


def _cores(
    own: tf.Tensor, mean: tf.Tensor, deviation: tf.Tensor, own_deviation: tf.Tensor
) -> "list[Core]":
    """
    Find the rises of the other classes' distribution functions that matter: the narrowest, and the
    one that it leaves least resolved.

    A rise does not matter where the product is 0, left of another class's rise.
    """
    far = tf.constant(mean.dtype.max, mean.dtype) / 4.0
    other = own == 0.0
    start = tf.where(other, mean - _CDF_EXTENT * deviation, -far)
    end = mean + _CDF_EXTENT * deviation
    alive = other & (end >= tf.reduce_max(start, axis=1, keepdims=True))
    # Beyond its own class's reach a rise is not seen.
    own_mean = tf.reduce_sum(own * mean, axis=1, keepdims=True)
    reach = REACH * own_deviation
    alive = alive & (tf.abs(mean - own_mean) < reach + _CDF_EXTENT * deviation)
    return least_resolved(alive, mean, deviation)


def least_resolved(alive: tf.Tensor, mean: tf.Tensor, deviation: tf.Tensor) -> "list[Core]":
    """
    Cores for the narrowest rise, and for those that it leaves least resolved.

    :param alive: Which rises matter [N, L].
    :param mean: Where they are [N, L].
    :param deviation: Their widths, as standard deviations [N, L].
    """
    far = tf.constant(mean.dtype.max, mean.dtype) / 4.0

    def core(score: tf.Tensor) -> Core:
        chosen = tf.one_hot(tf.argmin(score, axis=1), tf.shape(mean)[1], dtype=mean.dtype)
        width = tf.reduce_sum(chosen * deviation, axis=1, keepdims=True)
        centre = tf.reduce_sum(chosen * mean, axis=1, keepdims=True)
        return Core(centre, _CDF_RESOLUTION * width, _CDF_EXTENT * width)

    cores = [core(tf.where(alive, deviation, far))]
    nearest = far * tf.ones_like(mean)
    for _ in range(_MORE_CORES):
        distance = tf.maximum(tf.abs(mean - cores[0].centre), cores[0].resolution)
        nearest = tf.minimum(nearest, distance)
        cores.insert(0, core(tf.where(alive, deviation / nearest, far)))
    return cores


@implementations.register(MultiClass)
def _multi_class(
    likelihood: MultiClass,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    high = 1.0 - tf.cast(likelihood.invlink.epsilon, Fmu.dtype)
    low = tf.cast(likelihood.invlink.eps_k1, Fmu.dtype)
    largest, not_largest = prob_is_largest(tf.cast(Y[:, 0], tf.int32), Fmu, Fvar)
    return two_valued(largest, not_largest, high, low, alpha)
