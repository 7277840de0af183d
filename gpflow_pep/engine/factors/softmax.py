r"""Softmax: one integral over a maximum, for any number of classes.

With :math:`S = \sum_k e^{f_k}` the factor to a power is
:math:`e^{\alpha f_y} S^{-\alpha}`, and the power of S is an expectation over
independent standard Gumbel variables (the Gumbel-max identity):

.. math::

   S^{-\alpha} = \frac{1}{\Gamma(1 + \alpha)}
       E\left[e^{-\alpha \max_k (f_k + g_k)}\right].

The Gaussians are independent, so :math:`e^{\alpha f_y}` moves one of them, to the mean
:math:`m_y + \alpha v_y`, and the maximum W has the distribution function
:math:`\prod_k F_k(w)`, where :math:`F_k` is the distribution function of a Gaussian
plus a Gumbel variable. One integral over w remains:

.. math::

   \ell = m_y + \tfrac{1}{2} \alpha v_y - \tfrac{1}{\alpha} \log \Gamma(1 + \alpha)
          + \tfrac{1}{\alpha} \log \int e^{-\alpha w} \, d \prod_k F_k(w).

Each :math:`F_k` is itself an integral. A short sum of Gaussians and a normal
distribution function equals :math:`\exp(-e^{-x})` to 5e-7 (relative to :math:`e^{x}` if
that is smaller). Its expectation under a Gaussian has a closed form, with an error that
is not larger for any mean and variance, so that no inner quadrature is needed.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Softmax
from tensorflow import Tensor

from ..numerics.power import log_power_mean
from ..numerics.quadrature import REACH, Structure, no_tilt, stretched_nodes
from ..numerics.softmax_in_numpy import (
    BUMPS,
    CENTRE,
    GUMBEL_PLACE,
    GUMBEL_VARIANCE,
    HIGHEST_GUMBEL,
    LOWEST_GUMBEL,
    MORE_STRUCTURES,
    NUM_NODES,
    RISE_EXTENT,
    RISE_RESOLUTION,
    SMALLEST,
    WIDTH,
)
from .classes import normal_cdf, register_classes
from .moments import implementations

#: The largest step of the stretched variable that suffices: the rule errs by 5e-8 where
#: variances are .01 to 1000, below by 5e-7 at most (2 to 6 classes, powers 0, .5 and 1;
#: relative to 1 plus the value), and jumps by as much where the nodes are others.
_STEP = 0.35
#: Left of minus this the normal distribution function is its asymptotic series.
_FAR_LEFT = 12.0


class _Rise(NamedTuple):
    r"""A distribution function at the nodes: :math:`\log F` and :math:`F' / F`."""

    log_cdf: Tensor
    rate: Tensor


def _gumbel_plus_gaussian(x: Tensor, variance: Tensor) -> _Rise:
    r"""
    Compute the distribution function of a standard Gumbel variable plus a Gaussian one
    of mean 0, :math:`F(x) = E[\exp(-e^{z - x})]`, to 5e-7 relative to
    :math:`\min(1, E[e^{x - z}])`.

    :param x: The arguments, [C, Q, N]. They are at most a few standard deviations plus
        the variance below 0.
    """
    scale = tf.math.rsqrt(WIDTH**2 + variance)
    t = (x - CENTRE) * scale
    log_tail = -0.5 * tf.square(tf.minimum(t, 0.0))
    # All but the logarithm of the tail is divided by the tail. Few operations: these
    # tensors are the largest of a sweep.
    cdf = _scaled_normal_cdf(t, log_tail)
    slopes = tf.zeros_like(cdf)
    for place, deviation, height in BUMPS:
        precision = 1.0 / (deviation**2 + variance)
        offset = x - place
        slope = offset * (-0.5 * precision)
        bump = (height * deviation * tf.sqrt(precision)) * tf.exp(
            offset * slope - log_tail
        )
        cdf += bump
        slopes += slope * bump
    normal = tf.exp(-0.5 * t * t - log_tail) * (scale / np.sqrt(2.0 * np.pi))
    # The sum with the bumps may be negative where it is smaller than this. It is
    # replaced by a constant there.
    cdf, density = (
        tf.maximum(values, SMALLEST) for values in (cdf, normal + 2.0 * slopes)
    )
    return _Rise(log_tail + tf.math.log(cdf), density / cdf)


def _scaled_normal_cdf(t: Tensor, log_tail: Tensor) -> Tensor:
    r"""Compute :math:`\Phi(t) e^{t^2 / 2}` where t is negative, else
    :math:`\Phi(t)`.
    """
    near = normal_cdf(t) * tf.exp(-tf.maximum(log_tail, -0.5 * _FAR_LEFT**2))
    # The asymptotic series; the first term left out is below 2e-9.
    u = 1.0 / tf.square(tf.minimum(t, -_FAR_LEFT))
    series = 1.0 - u * (1.0 - 3.0 * u * (1.0 - 5.0 * u * (1.0 - 7.0 * u)))
    return tf.where(
        t > -_FAR_LEFT, near, tf.sqrt(u) * series * (1.0 / np.sqrt(2.0 * np.pi))
    )


def _log_gamma_ratio(alpha: Tensor) -> Tensor:
    r"""
    Compute :math:`\frac{1}{\alpha} \log \Gamma(1 + \alpha)`, the mean of the digamma
    function from 1 to :math:`1 + \alpha`.
    """
    places, weights = np.polynomial.legendre.leggauss(10)
    return tf.add_n(
        [
            0.5 * w * tf.math.digamma(1.0 + 0.5 * (1.0 + x) * alpha)
            for x, w in zip(places, weights)
        ]
    )


def _softmax_log_power_expectation(
    label: Tensor, mean: Tensor, variance: Tensor, alpha: Tensor
) -> Tensor:
    r"""Compute the tilted integral of the softmax, as the module describes.

    Its derivatives in the moments are expectations over W of density proportional to
    :math:`e^{-\alpha w} \prod_k F_k(w)`: with the moved means :math:`\mu_k`

    .. math::

       \frac{\partial \ell}{\partial \mu_k} = -E\left[\frac{F_k'}{F_k}\right], \qquad
       \frac{\partial \ell}{\partial v_k} = \frac{1}{2} E\left[\frac{F_k''}{F_k}\right]
       = \frac{1}{2} E\left[\frac{F_k'}{F_k} \Big(\alpha - \sum_{j \ne k}
       \frac{F_j'}{F_j}\Big)\right],

    by :math:`\partial_v F = F'' / 2`, the heat equation, and then by parts.

    :param mean: Means of independent latent functions [N, L], of double precision.
    """
    one_hot = tf.one_hot(label, tf.shape(mean)[1], dtype=mean.dtype)

    @tf.custom_gradient
    def integral(mean: Tensor, variance: Tensor, alpha: Tensor) -> tuple[Tensor, Any]:
        value, derivatives = _integral_and_derivatives(one_hot, mean, variance, alpha)

        def gradient(upstream: Tensor) -> tuple[Tensor, ...]:
            by_mean, by_variance, by_alpha = derivatives
            column = upstream[:, None]
            return column * by_mean, column * by_variance, upstream * by_alpha

        return value, gradient

    return integral(mean, variance, alpha + tf.zeros_like(mean[:, 0]))


def _integral_and_derivatives(
    one_hot: Tensor, mean: Tensor, variance: Tensor, alpha: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Compute the tilted integrals, and their derivatives in mean, variance
    and power.
    """
    power = alpha[:, None]
    nodes = _nodes(one_hot, mean, variance, power, _STEP)
    moved, spread = (
        tf.transpose(moment)[:, None, :]
        for moment in (mean + power * one_hot * variance, variance)
    )
    rise = _gumbel_plus_gaussian(nodes.w - moved, spread)
    log_product = nodes.log_spacing + tf.reduce_sum(rise.log_cdf, axis=0)
    rates = tf.reduce_sum(rise.rate, axis=0)
    log_density = log_product + tf.math.log(rates)
    own_mean, own_variance = (
        tf.reduce_sum(one_hot * moment, axis=1) for moment in (mean, variance)
    )
    shift = own_mean + 0.5 * alpha * own_variance
    values = shift - nodes.w
    # Moved by several standard deviations the distribution of W is not where the
    # integrand is, so that all of its density there may underflow. Then the power is
    # not small beside the spread, and the logarithm can be divided by it.
    far = alpha**2 * own_variance > 1.0
    divisor = tf.where(far, alpha, tf.ones_like(alpha))
    directly = tf.reduce_logsumexp(log_density + divisor * values, axis=0) / divisor
    weights = tf.nn.softmax(
        tf.where(far, tf.zeros_like(log_density), log_density), axis=0
    )
    ratio = _log_gamma_ratio(alpha)
    value = tf.where(far, directly, log_power_mean(values, weights, alpha)) - ratio

    log_mass = tf.reduce_logsumexp(log_density - alpha * nodes.w, axis=0)
    share = tf.exp(log_product - alpha * nodes.w - log_mass)
    shared = share * rise.rate
    by_moved = -tf.transpose(tf.reduce_sum(shared, axis=1))
    by_spread = tf.transpose(
        tf.reduce_sum(shared * (alpha - rates + rise.rate), axis=1)
    )
    by_variance = 0.5 * by_spread + power * one_hot * (0.5 + by_moved)
    expected = tf.reduce_sum(
        tf.exp(log_density - alpha * nodes.w - log_mass) * nodes.w, axis=0
    )
    rest = expected + tf.math.digamma(1.0 + alpha) + value - shift
    by_alpha = own_variance * (0.5 + tf.reduce_sum(one_hot * by_moved, axis=1))
    by_alpha -= tf.math.divide_no_nan(rest, alpha)
    return value, (one_hot + by_moved, by_variance, by_alpha)


def softmax_probabilities(mean: Tensor, variance: Tensor) -> Tensor:
    r"""Compute the probability of each class, [N, C]: the one whose latent function
    plus a Gumbel variable is the largest,

    .. math::

        P_c = \int e^{m_c + v_c / 2 - w} F_c(w - v_c) \prod_{k \ne c} F_k(w) \, dw.

    That is the tilted integral at power 1, integrated by parts: the nodes do for all
    classes.

    :param mean: Means of independent latent functions [N, C].
    """
    mean = tf.cast(mean, tf.float64)
    variance = tf.cast(variance, tf.float64)
    ones = tf.ones_like(mean)
    nodes = _nodes(ones, mean, variance, ones)
    m, v = (tf.transpose(part)[:, None, :] for part in (mean, variance))
    x = nodes.w - m
    log_cdf, moved = (_gumbel_plus_gaussian(part, v).log_cdf for part in (x, x - v))
    values = (
        tf.reduce_sum(log_cdf, axis=0)
        - log_cdf
        + moved
        - x
        + 0.5 * v
        + nodes.log_spacing
    )
    return tf.exp(tf.transpose(tf.reduce_logsumexp(values, axis=1)))


class _Nodes(NamedTuple):
    """A trapezoid rule: its places and the logarithms of its weights, [Q, N] each."""

    w: Tensor
    log_spacing: Tensor


def _nodes(
    one_hot: Tensor,
    mean: Tensor,
    variance: Tensor,
    power: Tensor,
    largest_step: float | None = None,
) -> _Nodes:
    """Nodes for the integral over W: constants, dense where a distribution function
    rises.
    """
    mean, variance, power = (
        tf.stop_gradient(values) for values in (mean, variance, power)
    )
    deviation = tf.sqrt(variance)
    # The power draws the maximum down, against every class but the label's.
    drawn = (1.0 - one_hot) * power * variance
    low = (
        tf.reduce_max(mean - drawn - REACH * deviation, axis=1, keepdims=True)
        + LOWEST_GUMBEL
    )
    high = (
        tf.reduce_max(mean + REACH * deviation, axis=1, keepdims=True) + HIGHEST_GUMBEL
    )
    width = tf.sqrt(variance + GUMBEL_VARIANCE)
    alive = mean + REACH * deviation + HIGHEST_GUMBEL > low
    structures = _least_resolved(alive, mean + GUMBEL_PLACE, width)
    # The rule is one for a Gaussian: that which reaches from one end to the other.
    middle = 0.5 * (low + high)
    reach = 0.5 * (high - low) / REACH
    ones = tf.ones_like(middle)
    # The most nodes. Wider Gaussians, of which the rises are ever smaller parts, have
    # errors of 1e-5.
    count = NUM_NODES if largest_step is None else 112
    rule = stretched_nodes(
        middle, reach**2, ones, structures, no_tilt(middle, reach), count, largest_step
    )
    z = rule.offset / reach
    log_spacing = tf.math.log(rule.weights * reach) + 0.5 * (
        z * z + np.log(2.0 * np.pi)
    )
    return _Nodes(rule.f[..., 0], log_spacing[..., 0])


def _least_resolved(
    alive: Tensor, mean: Tensor, deviation: Tensor
) -> "list[Structure]":
    """Find structures for the narrowest rise, and for the least resolved ones beside
    it.
    """
    far = tf.constant(mean.dtype.max, mean.dtype) / 4.0

    def structure(score: Tensor) -> Structure:
        chosen = tf.one_hot(
            tf.argmin(score, axis=1), tf.shape(mean)[1], dtype=mean.dtype
        )
        width = tf.reduce_sum(chosen * deviation, axis=1, keepdims=True)
        centre = tf.reduce_sum(chosen * mean, axis=1, keepdims=True)
        return Structure(centre, RISE_RESOLUTION * width, RISE_EXTENT * width)

    structures = [structure(tf.where(alive, deviation, far))]
    nearest = far * tf.ones_like(mean)
    for _ in range(MORE_STRUCTURES):
        distance = tf.maximum(
            tf.abs(mean - structures[0].centre), structures[0].resolution
        )
        nearest = tf.minimum(nearest, distance)
        structures.insert(0, structure(tf.where(alive, deviation / nearest, far)))
    return structures


@implementations.register(Softmax)
def _softmax(
    likelihood: Softmax, X: Tensor, Fmu: Tensor, Fvar: Tensor, Y: Tensor, alpha: Tensor
) -> Tensor:
    # Always in double precision, because the shift by the power times the variance
    # cancels.
    mean, variance, power = (
        tf.cast(values, tf.float64) for values in (Fmu, Fvar, alpha)
    )
    label = tf.cast(Y[:, 0], tf.int32)
    return tf.cast(
        _softmax_log_power_expectation(label, mean, variance, power), Fmu.dtype
    )


register_classes(Softmax, probabilities=softmax_probabilities)
