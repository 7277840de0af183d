r"""Integrals against a Gaussian of functions that may vary on a much smaller scale than
the Gaussian.

The rule for all of them is the trapezoid rule in a stretched variable. It converges
exponentially for analytic integrands. The rate depends on the distance of their complex
singularities in the stretched variable. So nodes are dense in the *structures*, the
intervals in which the integrand varies on its own scale, and sparser with the distance
from them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from .chunks import sizes_may_vary
from .power import divide_by_power
from .tapes import constant

#: Nodes reach this number of standard deviations from the mean. A Gaussian has 6e-18 of
#: its mass outside.
REACH = 8.6
#: The number of nodes of the rule.
NUM_NODES = 96
#: Further than this many standard deviations, the mode of a factor times a Gaussian is
#: not near the Gaussian's mean, and the rule is moved.
_FAR = 4.0
#: A peak ends at this number of its standard deviations.
PEAK_EXTENT = 6.0
_SEARCH_NODES = 9
#: If the slope is below this, the integrand is flat on the finest grid.
_SMALL_DROP = 1e-6


class Structure(NamedTuple):
    """An interval in which the integrand varies on its own scale, in units of f.
    Outside of the interval, the scale is the distance from it.
    """

    centre: tf.Tensor  #: The middle of the interval, [broadcast N, broadcast L].
    resolution: tf.Tensor
    """The scale of the structure, about the distance of its singularities from the real
    line, [broadcast N, broadcast L].
    """
    #: The distance from the middle to the ends, [broadcast N, broadcast L].
    extent: tf.Tensor


class Mode(NamedTuple):
    r"""The approximate peak of :math:`N(f; m, v) p(f)^\alpha`. It only decides where
    nodes are.
    """

    slope: tf.Tensor
    r"""[N, L], :math:`d \log p / d f` at the peak, which is at
    :math:`m + \alpha v \cdot` slope.
    """
    width: tf.Tensor | None
    """The standard deviation of the peak in units of f, [N, L]; None if the structures
    and the Gaussian resolve it already.
    """


class Nodes(NamedTuple):
    r"""A rule for expectations under :math:`N(f; m + \alpha v g, v)`, where g is a
    mode's slope.
    """

    f: tf.Tensor  #: [Q, N, L], the nodes; constants for differentiation.
    #: [Q, N, L], positive, of sum 1 over the nodes; differentiable in m and v.
    weights: tf.Tensor
    offset: tf.Tensor
    """[Q, N, L], f - m with f held constant, to all its digits: differentiable in m."""


class _Stretch(NamedTuple):
    """x = centre + step asinh(resolution ((1 - mu) t + mu sinh t) / step), increasing
    in t.
    """

    centre: tf.Tensor
    resolution: tf.Tensor
    mu: tf.Tensor
    step: float

    def forward(self, t: tf.Tensor) -> "tuple[tf.Tensor, tf.Tensor]":
        """Compute x and dx/dt."""
        # With exp, log and sqrt only, which are many times faster than the hyperbolic
        # functions, and as few operations as can be: these are the largest tensors of a
        # sweep.
        grown = tf.exp(t)
        shrunk = 1.0 / grown
        scale = self.resolution / self.step
        linear = scale * (1.0 - self.mu)
        half_mu = scale * (0.5 * self.mu)
        y = linear * t + half_mu * (grown - shrunk)
        root = tf.sqrt(y * y + 1.0)
        x = self.centre + tf.sign(y) * (self.step * tf.math.log(tf.abs(y) + root))
        return x, (self.step * linear + (self.step * half_mu) * (grown + shrunk)) / root

    def inverse(self, x: tf.Tensor) -> tf.Tensor:
        """Compute t approximately, by a few Newton steps from above, from where they
        converge monotonically.
        """
        y = self.step / self.resolution * tf.sinh((x - self.centre) / self.step)
        size = tf.abs(y)
        linear = 1.0 - self.mu
        t = tf.asinh(size / self.mu)
        t = tf.where(size < t * linear, size / (1.0 - 0.999 * self.mu), t)
        for _ in range(4):
            excess = linear * t + self.mu * tf.sinh(t) - size
            t = t - excess / (linear + self.mu * tf.cosh(t))
        return tf.sign(y) * t


def _even_column(start: float, count: TensorType, dtype: tf.DType) -> tf.Tensor:
    """Make even steps up to 1, [Q, 1, 1], by fewer operations than the 75 of
    ``tf.linspace``.
    """
    if isinstance(count, int):
        shares = np.arange(count) / (count - 1)
        return tf.constant((start + (1.0 - start) * shares)[:, None, None], dtype)
    share = tf.range(count, dtype=dtype) / tf.cast(count - 1, dtype)
    return (start + (1.0 - start) * share)[:, None, None]


def _compose(
    structures: Sequence[Structure], low: tf.Tensor, high: tf.Tensor
) -> "tuple[list[_Stretch], tf.Tensor]":
    """Find stretches, the first one outermost, that resolve all structures (in standard
    deviations), and both ends in the innermost variable, [2, N, L]."""
    # The ends, and the structures that are left, go through all stretches together.
    centres = [
        tf.clip_by_value(structure.centre, low, high) for structure in structures
    ]
    points = tf.stack([low, high, *centres])
    slopes = tf.ones_like(points[2:])
    stretches: list[_Stretch] = []
    for k, structure in enumerate(structures, 1):
        # Standard deviations per unit of the stretched variable where only the Gaussian
        # varies.
        step = 1.0 if stretches else 2.0
        # Linear up to the extent, where the exponential takes over. Nothing needs finer
        # steps than the Gaussian's own.
        resolution = tf.minimum(structure.resolution / slopes[0], step)
        mu = 1.0 / tf.cosh(tf.minimum(structure.extent / slopes[0], step) / resolution)
        stretches.append(_Stretch(points[2], resolution, mu, step))
        points = stretches[-1].inverse(tf.concat([points[:2], points[3:]], axis=0))
        if k < len(structures):
            slopes = slopes[1:] * stretches[-1].forward(points[2:])[1]
    return stretches, points


def stretched_nodes(
    mean: tf.Tensor,
    variance: tf.Tensor,
    alpha: tf.Tensor,
    structures: Sequence[Structure],
    mode: Mode,
    num_nodes: TensorType = NUM_NODES,
    largest_step: TensorType | None = None,
) -> Nodes:
    r"""Place the nodes for :math:`\int N(f; m, v) p(f)^\alpha df`.

    With g the mode's slope this is the expectation of
    :math:`(p(f) e^{-g (f - m)})^\alpha` under :math:`N(f; m + \alpha v g, v)`, times
    :math:`e^{\alpha^2 g^2 v / 2}`: an identity for every g, which moves the Gaussian to
    where the integrand is. The weights are for that Gaussian.

    :param structures: The structures of :math:`\log p`. A structure out of the
        Gaussian's reach costs a few nodes and does no harm.
    :param largest_step: The largest step of the stretched variable. There are fewer
        nodes if this step needs fewer in all rows. None uses all nodes.
    """
    constant_mean = tf.stop_gradient(mean)
    deviation = tf.sqrt(tf.stop_gradient(variance))
    moved = tf.stop_gradient(alpha * mode.slope) * deviation
    # A factor that is not log-concave may leave a second peak near the Gaussian's own
    # mean.
    back = tf.where(tf.abs(moved) > 2.0 * REACH, tf.zeros_like(moved), -moved)
    low = tf.minimum(back, 0.0) - REACH
    high = tf.maximum(back, 0.0) + REACH
    if mode.width is not None:
        peak = Structure(
            constant_mean + deviation * moved, mode.width, PEAK_EXTENT * mode.width
        )
        structures = [*structures, peak]
    # Nodes are constants. A structure may depend on parameters of the likelihood, and a
    # tape would keep everything that is computed from it: 60 kB a row for Student's t.
    fixed = [Structure(*map(tf.stop_gradient, structure)) for structure in structures]
    standard = [
        Structure(
            (structure.centre - constant_mean) / deviation - moved,
            structure.resolution / deviation,
            structure.extent / deviation,
        )
        for structure in fixed
    ]
    stretches, ends = _compose(standard, low, high)
    count: TensorType = num_nodes
    if largest_step is not None and sizes_may_vary():
        steps = tf.math.ceil(tf.reduce_max(ends[1] - ends[0]) / largest_step)
        # NaN gives the largest number.
        count = tf.cast(tf.minimum(steps, num_nodes - 1.0), tf.int32) + 1
    fraction = _even_column(0.0, count, mean.dtype)
    x = ends[0] + (ends[1] - ends[0]) * fraction
    spacing = tf.ones_like(x)
    for stretch in reversed(stretches):
        x, step = stretch.forward(x)
        spacing = spacing * step
    # The nodes are standardised, so that the rule is exact for the Gaussian's own two
    # moments: then derivatives of an integral give a tilted variance that is positive,
    # however small it is.
    weights = spacing * tf.exp(-0.5 * x * x)
    weights = weights / tf.reduce_sum(weights, axis=0)
    x = x - tf.reduce_sum(weights * x, axis=0)
    x = x / tf.sqrt(tf.reduce_sum(weights * x * x, axis=0))
    x = tf.stop_gradient(x)
    weights = tf.stop_gradient(weights)
    offset = deviation * (x + moved) + (constant_mean - mean)
    drift = alpha * tf.stop_gradient(mode.slope)
    weights = reweigh(
        weights, tf.stop_gradient(offset) + constant_mean, mean, variance, drift
    )
    return Nodes(tf.stop_gradient(constant_mean + offset), weights, offset)


def reweigh(
    weights: tf.Tensor,
    f: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    drift: tf.Tensor,
) -> tf.Tensor:
    r"""Give the weights the derivatives of :math:`N(f; m + g v, v)` at f held constant.

    That is ``softmax(constant + log N)`` at far less cost, differentiable to any order.
    """

    @tf.custom_gradient
    def identity(*moments: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        mean, variance, drift = moments

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            share = upstream * identity(*moments)
            x = (f - (mean + drift * variance)) / variance
            first = tf.reduce_sum(share * x, axis=0)
            second = tf.reduce_sum(share * (x * x - 1.0 / variance), axis=0)
            return first, 0.5 * second + drift * first, variance * first

        return tf.identity(weights), gradient

    return identity(mean, variance, drift + tf.zeros_like(mean))


@constant
def search_mode(
    log_factor: Callable[[tf.Tensor], tf.Tensor],
    mean: tf.Tensor,
    variance: tf.Tensor,
    alpha: tf.Tensor,
    structures: Sequence[Structure],
) -> Mode:
    r"""Find the peak of :math:`N(f; m, v) p(f)^\alpha` by zooming in on a grid.

    :param log_factor: :math:`\log p` of f [Q, N, L], unimodal outside the structures:
        the peak is between them and the mean.
    """
    deviation = tf.sqrt(variance)

    def exponent(x: tf.Tensor) -> tf.Tensor:
        return alpha * log_factor(mean + deviation * x) - 0.5 * x * x

    fraction = _even_column(0.0, _SEARCH_NODES, mean.dtype)
    low = -REACH * tf.ones_like(mean)
    high = REACH * tf.ones_like(mean)
    places = [(structure.centre - mean) / deviation for structure in structures]
    extents = [structure.extent / deviation for structure in structures]
    for place, extent in zip(places, extents):
        low = tf.minimum(low, place - extent)
        high = tf.maximum(high, place + extent)
    # A narrow peak escapes the grid, and is in a structure.
    top = tf.reduce_max(exponent(low + (high - low) * fraction), axis=0)
    for place, extent in zip(places, extents):
        height = exponent(place[None])[0]
        low = tf.where(height > top, place - extent, low)
        high = tf.where(height > top, place + extent, high)
        top = tf.maximum(height, top)

    x, width = zoom_in(exponent, 0.5 * (low + high), 0.5 * (high - low), 16)
    x = tf.where(tf.abs(x) > _FAR, x, tf.zeros_like(x))
    return Mode(divide_by_power(x, alpha * deviation), width * deviation)


def zoom_in(
    exponent: Callable[[tf.Tensor], tf.Tensor],
    middle: tf.Tensor,
    reach: tf.Tensor,
    rounds: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Find a peak, to within its width, by ever finer grids.

    :param exponent: The logarithm of the function, whose argument is in standard
        deviations, [Q, N, L].
    :param reach: The distance from the middle of the first grid to its ends.
    :return: The place of the peak, and its width, in standard deviations and at most 1.
    """
    fraction = _even_column(-1.0, _SEARCH_NODES, middle.dtype)

    def zoom(
        middle: tf.Tensor, reach: tf.Tensor, *_: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        x = middle + reach * fraction
        values = exponent(x)
        best = tf.argmax(values, axis=0)
        hot = tf.one_hot(best, _SEARCH_NODES, axis=0, dtype=x.dtype)
        at_end = (best == 0) | (best == _SEARCH_NODES - 1)
        # The drop is measured to the lower one of the neighbours.
        low, high = (
            tf.reduce_sum(tf.roll(hot, by, axis=0) * values, axis=0) for by in (-1, 1)
        )
        drop = tf.reduce_max(values, axis=0) - tf.minimum(low, high)
        step = 2.0 * reach / (_SEARCH_NODES - 1.0)
        finer = at_end | (drop > 0.5) | (step > 1.0)
        width = step * tf.math.rsqrt(2.0 * tf.maximum(drop, _SMALL_DROP))
        middle = tf.where(finer, tf.reduce_sum(hot * x, axis=0), middle)
        return middle, tf.where(finer & ~at_end, step, reach), finer, width

    middle, reach, _, width = tf.while_loop(
        lambda middle, reach, finer, width: tf.reduce_any(finer),
        zoom,
        (middle, reach, tf.ones_like(middle, tf.bool), tf.ones_like(middle)),
        maximum_iterations=rounds,
    )
    # A flat top ends within the last reach, because the coarser grid had a drop there.
    return middle, tf.minimum(width, tf.minimum(2.0 * reach, 1.0))


def no_tilt(mean: tf.Tensor, variance: tf.Tensor) -> Mode:
    """Use the mode of the Gaussian, for factors of bounded variation."""
    return Mode(tf.zeros_like(mean), None)
