r"""Several classes of which the largest latent function decides: RobustMax, of two values."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.likelihoods import MultiClass

from ..ops.quadrature import REACH, Core, no_tilt, stretched_nodes
from .bernoulli import two_valued
from .dispatch import implementations

#: The ends of even nodes. As the product grows with t, the part of P left of them is at most
#: Phi(-7.5), 3e-14; the right end is further off, because a tiny P may come from there.
_EVEN_START, _EVEN_END = -7.5, REACH
#: How many there are: the least that suffice for all rows. The error of the trapezoid rule of step
#: h is bounded by :math:`|\Phi(x + i y)|` on lines beside the real one. Relative to the probability
#: plus 1e-3 / (L - 1) it was at most 1e-10, and that of the derivatives 1e-9, for 2 to 20 classes
#: where h^2 (1 + sum of the rates' cubes)^(2/3) is below 0.65.
_NUM_EVEN = 48, 64, 96, 144
_LARGEST_STEP = 0.65**0.5
_NUM_STRETCHED = 144
#: A normal distribution function ends so many of its standard deviations from its middle.
_CDF_EXTENT = 6.0
_CDF_RESOLUTION = 0.7
_MORE_CORES = 2
#: Of the label's variance, which is added to the others'. That changes the integral as little, and
#: nodes need not be spread over more orders of magnitude than they resolve.
_SMALLEST_RATIO = 1e-12
#: Stands for a distribution function of 0 in a quotient: it is 0 beside any error rate of labels.
_SMALLEST_CDF = 1e-30


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
    # Classes first: sums over them then run along memory.
    m, v = tf.transpose(mean), tf.transpose(variance)
    own = tf.equal(tf.range(tf.shape(m)[0], dtype=label.dtype)[:, None], label)

    def of_label(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.where(own, x, tf.zeros_like(x)), axis=0)

    def of_others(x: tf.Tensor) -> tf.Tensor:
        # In any order: the first class takes the place of the label.
        return tf.where(own[1:], x[:1], x[1:])

    own_variance = of_label(v)
    smallest = _SMALLEST_RATIO * tf.stop_gradient(own_variance)
    precision = tf.math.rsqrt(of_others(v) + smallest)
    margin = (of_label(m) - of_others(m)) * precision
    largest = prob_above_all(margin, tf.sqrt(own_variance) * precision)
    return largest, 1.0 - largest


@check_shapes(
    "margin: [K, N]",
    "rate: [K, N]",
    "return: [N]",
)
def prob_above_all(margin: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
    r"""
    Compute :math:`P = \int N(t; 0, 1) \prod_k \Phi(a_k + b_k t) \, dt`.

    Where all rates of all rows are moderate nodes are even, and the same for all rows, and more of
    them where rates are larger; otherwise they are stretched. Beside rounding errors are relative
    to P, and those of 1 - P to 1 - P.

    :param margin: The :math:`a_k`.
    :param rate: The :math:`b_k > 0`.
    """

    @tf.custom_gradient
    def probability(
        margin: tf.Tensor, rate: tf.Tensor
    ) -> "tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]":
        value, *derivatives = _by_rule(margin, rate)
        return value, lambda upstream: tuple(upstream * by for by in derivatives)

    return probability(margin, rate)


@tf.custom_gradient
def _by_rule(
    margin: tf.Tensor, rate: tf.Tensor
) -> "tuple[tuple[tf.Tensor, ...], Callable[..., Sequence[tf.Tensor]]]":
    """Compute what :func:`_integrals` does by the rule that is accurate."""
    a, b = _unwatched(margin), _unwatched(rate)
    most = tf.reduce_max(tf.reduce_sum(b * b * b, axis=0))
    enough = [most <= _most_cubes(number) for number in _NUM_EVEN]
    rules = [partial(_integrals, a, b, _even_nodes(number, a.dtype)) for number in _NUM_EVEN]
    values = tf.switch_case(
        len(_NUM_EVEN) - tf.reduce_sum(tf.cast(enough, tf.int32)),
        [*rules, lambda: _integrals(a, b, _stretched_nodes(a, b))],
    )

    def gradient(*upstream: tf.Tensor) -> Sequence[tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch((margin, rate))
            again = _integrals(margin, rate, _stretched_nodes(margin, rate))
        return tape.gradient(again, (margin, rate), upstream)

    return values, gradient


def _unwatched(x: tf.Tensor) -> tf.Tensor:
    """
    Hide a tensor from tapes, which ``tf.stop_gradient`` does not.

    Inside of two of them ``tf.cond`` would build the derivatives of both branches at once.
    """
    integer = tf.int64 if x.dtype == tf.float64 else tf.int32
    return tf.bitcast(tf.bitcast(x, integer), x.dtype)


class _Nodes(NamedTuple):
    """A rule for expectations under the standard normal distribution."""

    t: tf.Tensor
    """[Q, broadcast N]"""

    weights: tf.Tensor
    """[Q, broadcast N], of sum 1."""


def _most_cubes(number: int) -> float:
    """Find the largest sum of the rates' cubes for which so many even nodes are accurate."""
    step = (_EVEN_END - _EVEN_START) / (number - 1)
    return float((_LARGEST_STEP / step) ** 3 - 1.0)


def _even_nodes(number: int, dtype: tf.DType) -> _Nodes:
    t = np.linspace(_EVEN_START, _EVEN_END, number)
    weights = np.exp(-0.5 * t * t)
    weights /= weights.sum()
    # Exact for the first two moments, as stretched nodes are.
    t -= weights @ t
    t /= np.sqrt(weights @ (t * t))
    return _Nodes(tf.constant(t[:, None], dtype), tf.constant(weights[:, None], dtype))


def _integrals(
    margin: tf.Tensor, rate: tf.Tensor, nodes: _Nodes
) -> "tuple[tf.Tensor, tf.Tensor, tf.Tensor]":
    """Compute P [N] and its derivatives in the margins and rates [K, N]."""
    x = (margin * -np.sqrt(0.5))[:, None, :] + (rate * -np.sqrt(0.5))[:, None, :] * nodes.t
    cdf = tf.maximum(tf.math.erfc(x), _SMALLEST_CDF)  # twice it
    weighted = tf.reduce_prod(0.5 * cdf, axis=0) * nodes.weights
    derivative = tf.exp(-x * x) / cdf * (np.sqrt(2.0 / np.pi) * weighted)
    by_rate = tf.reduce_sum(derivative * nodes.t, axis=1)
    return tf.reduce_sum(weighted, axis=0), tf.reduce_sum(derivative, axis=1), by_rate


def _stretched_nodes(margin: tf.Tensor, rate: tf.Tensor) -> _Nodes:
    """Nodes for distribution functions that rise over very different widths."""
    width = tf.transpose(1.0 / tf.stop_gradient(rate))
    cores = _cores(tf.transpose(-tf.stop_gradient(margin)) * width, width)
    zero = tf.zeros_like(width[:, :1])
    one = zero + 1.0
    nodes = stretched_nodes(zero, one, one, cores, no_tilt(zero, one), _NUM_STRETCHED)
    return _Nodes(nodes.f[..., 0], nodes.weights[..., 0])


def _cores(place: tf.Tensor, width: tf.Tensor) -> "list[Core]":
    """
    Find the rises of distribution functions that matter: the narrowest, and those that it leaves
    least resolved.

    A rise does not matter where the product is 0, left of another one, or beyond the nodes.
    """
    extent = _CDF_EXTENT * width
    alive = place + extent >= tf.reduce_max(place - extent, axis=1, keepdims=True)
    return least_resolved(alive & (tf.abs(place) < REACH + extent), place, width)


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
