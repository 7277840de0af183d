r"""
Integrals over several latent functions of which only the values of the density are known.

One latent function after the other is integrated, the first one innermost, each by the rule for
one, whose nodes are where the factor is *given* the outer ones. Where that is, is searched for at
every node of the outer ones, so the search has to be cheap: it halves intervals, and takes what is
further inside by Laplace's method.

Whether the nodes resolve an integral is seen by the rule of every second node. Few nodes come
first, and many, with a search that looks far away as well, for the rows that these leave over.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from ..ops.power import divide_by_power
from ..ops.quadrature import REACH, Mode, Structure
from .generic import Function, Narrow, ScalarFactor, find_narrow, place
from .numeric import BULK, RESOLVED, outermost


class Placing(NamedTuple):
    """How nodes are placed for each latent function."""

    num_nodes: int

    tolerance: float
    """How close the rules of all and of half of the nodes have to be, relative to 1 + abs(ell)."""

    search_reach: float = REACH
    """The search begins at the best of ``num_starts`` hyperbolic sines of even steps up to so many
    standard deviations, and halves the steps at most ``num_halvings`` times."""

    num_starts: int = 9
    num_halvings: int = 6

    structure_extent: float = 1.5
    """In the widths of a peak, how far its nodes are even."""

    both_powers: bool = False
    """Whether to look for the peak of the density to the power as well as for that of itself."""


_CAREFUL: dict[str, Any] = {
    "search_reach": 2000.0,
    "num_starts": 41,
    "num_halvings": 30,
    "structure_extent": 6.0,
    "both_powers": True,
}
#: By the number of latent functions: for all rows, and for those that this does not resolve.
PLACINGS = {
    1: (Placing(48, 1e-5), Placing(128, RESOLVED, **_CAREFUL)),
    2: (Placing(32, 1e-5), Placing(80, RESOLVED, **_CAREFUL)),
    3: (Placing(20, 1e-5), Placing(32, RESOLVED, **_CAREFUL)),
}
#: A search ends where the exponent falls by less than this in a step.
_SMALL_DROP = 0.7


class Peak(NamedTuple):
    """A peak in units of the Gaussian's standard deviation, [K, N] each; constants."""

    x: Tensor
    width: Tensor
    height: Tensor


class NestedIntegral(NamedTuple):
    """An integral, and what the rules of half of the nodes make of it."""

    value: Tensor
    """[N], by all nodes."""

    low: Tensor
    """[N], with the rule of every second node wherever that gives less; a constant for
    differentiation. See :mod:`gpflow_pep.tilted.numeric`."""

    high: Tensor
    """[N], with it wherever that gives more."""


def nested_log_power_expectation(
    log_prob: Function, mean: Tensor, variance: Tensor, alpha: Tensor, placing: Placing
) -> NestedIntegral:
    r"""
    Compute :math:`\frac{1}{\alpha} \log \int N(f; m, v) p(y | f)^\alpha df` in several dimensions.

    A power mean over two variables is the power mean over the second of the power means over the
    first.

    :param log_prob: :math:`\log p` for F [K, N, L], [K, N].
    :param alpha: [N].
    """
    num_rows = tf.shape(mean)[0]

    def call_beside(outer: Tensor, function: Callable[[Tensor], Any], f: Tensor) -> Any:
        """Call a function of F [Q K, N, J + 1] for f [Q, K N, 1] and outer [K, N, J]."""
        nodes, count = tf.shape(f)[0], tf.shape(outer)[0]
        f_of_rows = tf.reshape(f, [nodes * count, num_rows, 1])
        F = tf.concat([f_of_rows, tf.tile(outer, [nodes, 1, 1])], axis=2)
        return tf.nest.map_structure(lambda part: tf.reshape(part, tf.shape(f)), function(F))

    def moments_of(outer: Tensor, dimension: int) -> tuple[Tensor, Narrow]:
        """Take mean and variance of every row, for each of the outer values, [K N, 1]."""
        m, v = (
            tf.tile(part[:, dimension, None], [tf.shape(outer)[0], 1]) for part in (mean, variance)
        )
        return m, find_narrow(v)

    def log_integral(outer: Tensor, power: Tensor, dimension: int) -> Tensor:
        """Integrate all up to a dimension out, to a power [N K, 1], roughly."""
        if dimension < 0:
            return tf.reshape(power, tf.shape(outer)[:2]) * log_prob(outer)
        peak = peak_of(outer, power, dimension)
        return tf.reshape(peak.height + tf.math.log(peak.width), tf.shape(outer)[:2])

    def peak_of(outer: Tensor, power: Tensor, dimension: int) -> Peak:
        m, narrow = moments_of(outer, dimension)
        m, deviation = tf.stop_gradient(m), tf.stop_gradient(tf.sqrt(narrow.wider))

        def exponent(x: Tensor) -> Tensor:
            powers = tf.tile(power, [tf.shape(x)[0], 1])
            inner = call_beside(
                outer, lambda F: log_integral(F, powers, dimension - 1), m + deviation * x
            )
            return inner - 0.5 * x * x

        return find_peak(exponent, m, placing)

    def factor_of(outer: Tensor, power: Tensor, dimension: int) -> ScalarFactor:
        """Find where one latent function has structure, given the outer ones."""
        m, narrow = moments_of(outer, dimension)
        m, deviation = tf.stop_gradient(m), tf.stop_gradient(tf.sqrt(narrow.wider))
        powers, repeats = [tf.ones_like(power)], 1
        if placing.both_powers:
            powers, repeats = [tf.stop_gradient(power), *powers], 2
        both = peak_of(tf.tile(outer, [repeats, 1, 1]), tf.concat(powers, axis=0), dimension)
        peaks = [Peak(*part) for part in zip(*(tf.split(part, repeats) for part in both))]
        structures = [
            Structure(
                m + deviation * peak.x,
                deviation * peak.width,
                placing.structure_extent * deviation * peak.width,
            )
            for peak in peaks
        ]
        # A peak within the Gaussian's bulk needs nodes, but no other Gaussian.
        x = peaks[0].x
        is_far = placing.both_powers & (tf.abs(x) > BULK)
        slope = divide_by_power(tf.where(is_far, x, tf.zeros_like(x)), power * deviation)
        return ScalarFactor(log_prob, structures, lambda *_: Mode(slope, None), num_nodes=0)

    def integrate_inner(outer: Tensor, dimension: int) -> NestedIntegral:
        """Integrate all up to a dimension out, for outer [K, N, J]."""
        if dimension < 0:
            values = log_prob(outer)
            return NestedIntegral(values, values, values)
        m, narrow = moments_of(outer, dimension)
        power = tf.tile(alpha[:, None], [tf.shape(outer)[0], 1])
        factor = factor_of(outer, power, dimension)._replace(num_nodes=placing.num_nodes)
        rule = place(factor, m, narrow.wider, power)
        # The density at the mean is of use where the Gaussian is narrow.
        f = tf.concat([rule.nodes.f, m[None]], axis=0)
        at_nodes = call_beside(outer, lambda F: integrate_inner(F, dimension - 1), f)
        values, low, high = (part[:-1] for part in at_nodes)
        integral = rule.mean(values, power)
        error = rule.mean(values, power, stride=2) - integral
        more = tf.maximum(error, 0.0)
        if not placing.both_powers:  # nor does it look further out
            more += outermost(rule, values, integral, power)
        parts = (
            narrow.between(at_nodes.value[-1], integral),
            tf.stop_gradient(rule.mean(low, power) + tf.minimum(error, 0.0)),
            tf.stop_gradient(rule.mean(high, power) + more),
        )
        return NestedIntegral(*(tf.reshape(part, tf.shape(outer)[:2]) for part in parts))

    no_values = tf.zeros([1, num_rows, 0], mean.dtype)
    integral = integrate_inner(no_values, int(mean.shape[1]) - 1)
    return NestedIntegral(*(part[0] for part in integral))


def find_peak(exponent: Callable[[Tensor], Tensor], like: Tensor, placing: Placing) -> Peak:
    """
    Find a peak, to within its width, by halving the interval around the best of a few places.

    :param exponent: The logarithm of what has the peak, of x [Q, ...] standard deviations.
    :param like: A tensor of the peak's shape, [K N, 1].
    """
    end, last = np.arcsinh(placing.search_reach), placing.num_starts - 1
    starts = tf.linspace(tf.constant(-end, like.dtype), end, last + 1)
    values = exponent(tf.sinh(starts[:, None, None] + tf.zeros_like(like)))
    best = tf.clip_by_value(tf.argmax(values, axis=0), 1, last - 1)
    hot = tf.one_hot(best, last + 1, axis=0, dtype=like.dtype)
    three = tf.stack([tf.reduce_sum(tf.roll(hot, k, axis=0) * values, axis=0) for k in (-1, 0, 1)])

    def is_coarse(three: Tensor) -> Tensor:
        left, middle, right = tf.unstack(three)
        low, high = tf.minimum(left, right), tf.maximum(left, right)
        return (middle - low > _SMALL_DROP) | (middle < high)

    def halve(t: Tensor, step: Tensor, three: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        coarse, half = is_coarse(three), 0.5 * step
        near = exponent(tf.sinh(tf.stack([t - half, t + half])))
        five = tf.stack([three[0], near[0], three[1], near[1], three[2]])
        best = tf.clip_by_value(tf.argmax(five, axis=0), 1, 3)
        narrower = tf.where(best == 1, five[:3], tf.where(best == 3, five[2:], five[1:4]))
        return (
            tf.where(coarse, t + half * tf.cast(best - 2, t.dtype), t),
            tf.where(coarse, half, step),
            tf.where(coarse, narrower, three),
        )

    step = tf.ones_like(like) * (2.0 * end / last)
    t, step, three = tf.while_loop(
        lambda t, step, three: tf.reduce_any(is_coarse(three)),
        halve,
        (tf.gather(starts, best), step, three),
        maximum_iterations=placing.num_halvings,
    )
    left, height, right = tf.unstack(three)
    drop = tf.maximum(height - tf.minimum(left, right), _SMALL_DROP / 8.0)
    width = tf.minimum(step * tf.cosh(t) * tf.math.rsqrt(2.0 * drop), 1.0)
    return Peak(*map(tf.stop_gradient, (tf.sinh(t), width, height)))
