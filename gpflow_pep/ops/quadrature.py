r"""Integrals against a Gaussian of functions that may vary on a much smaller scale than it does.

One rule for all of them: the trapezoid rule in a stretched variable. It converges exponentially
for analytic integrands, at a rate that the distance of their complex singularities sets, measured
in the stretched variable; so nodes are placed densely in the *cores*, the intervals in which the
integrand has its own structure, and ever more sparsely away from them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes

from .power import per_power

#: Nodes reach so many standard deviations from the mean: a Gaussian has 6e-18 of its mass outside.
REACH = 8.6
#: Nodes of the rule.
NUM_NODES = 128
#: Standard deviations per unit of the stretched variable where only the Gaussian varies.
_GAUSSIAN_STEP = 2.0
#: Further than this many standard deviations, the mode of a factor times a Gaussian is not near the
#: Gaussian's mean, and the rule is moved.
_FAR = 4.0
#: A peak ends so many of its standard deviations away.
_PEAK_EXTENT = 6.0
_SEARCH_NODES = 9
_SEARCH_ROUNDS = 16
_NEWTON_STEPS = 8


class Core(NamedTuple):
    """An interval with structure, in units of f; outside of it, distance sets the scale."""

    centre: tf.Tensor
    """[broadcast N, broadcast L], its middle."""

    resolution: tf.Tensor
    """[broadcast N, broadcast L], the scale of the structure: about the distance to singularities."""

    extent: tf.Tensor
    """[broadcast N, broadcast L], from the middle to the ends."""


class Mode(NamedTuple):
    r"""The peak of :math:`N(f; m, v) p(f)^\alpha`, roughly: it decides where nodes are, no more."""

    slope: tf.Tensor
    r"""[N, L], :math:`d \log p / d f` there, so that it is at :math:`m + \alpha v \cdot` slope."""

    width: tf.Tensor
    """[N, L], its standard deviation in units of f."""


class Nodes(NamedTuple):
    r"""A rule for expectations under :math:`N(f; m + \alpha v g, v)`, where g is a mode's slope."""

    f: tf.Tensor
    """[Q, N, L], where; constants for differentiation."""

    weights: tf.Tensor
    """[Q, N, L], positive, of sum 1 over the nodes; differentiable in m and v."""

    offset: tf.Tensor
    """[Q, N, L], f - m with f held constant, to all its digits: differentiable in m."""


class _Stretch(NamedTuple):
    """x = centre + step asinh(resolution ((1 - mu) t + mu sinh t) / step), increasing in t."""

    centre: tf.Tensor
    resolution: tf.Tensor
    mu: tf.Tensor
    step: float

    def forward(self, t: tf.Tensor) -> "tuple[tf.Tensor, tf.Tensor]":
        """x and dx/dt."""
        y = self.resolution / self.step * ((1.0 - self.mu) * t + self.mu * tf.sinh(t))
        slope = self.resolution * (1.0 - self.mu + self.mu * tf.cosh(t)) / tf.sqrt(1.0 + y**2)
        return self.centre + self.step * tf.asinh(y), slope

    def inverse(self, x: tf.Tensor) -> tf.Tensor:
        """t, nearly: a few Newton steps from above, from where they converge monotonically."""
        y = self.step / self.resolution * tf.sinh((x - self.centre) / self.step)
        size = tf.abs(y)
        t = tf.asinh(size / self.mu)
        for _ in range(_NEWTON_STEPS):
            excess = (1.0 - self.mu) * t + self.mu * tf.sinh(t) - size
            t = t - excess / (1.0 - self.mu + self.mu * tf.cosh(t))
        return tf.sign(y) * t


def _stretch(centre: tf.Tensor, resolution: tf.Tensor, extent: tf.Tensor, step: float) -> _Stretch:
    resolution = tf.minimum(resolution, step)
    # Linear up to the extent, where the exponential takes over. Nothing needs finer steps than the
    # Gaussian's own.
    mu = 1.0 / tf.cosh(tf.minimum(extent, step) / resolution)
    return _Stretch(centre, resolution, mu, step)


def _compose(cores: Sequence[Core], low: tf.Tensor, high: tf.Tensor) -> "list[_Stretch]":
    """Stretches, the first one outermost, that resolve all cores (in standard deviations)."""
    stretches: list[_Stretch] = []
    for core in cores:
        place, slope = tf.clip_by_value(core.centre, low, high), tf.ones_like(low)
        for stretch in stretches:
            place = stretch.inverse(place)
            slope = slope * stretch.forward(place)[1]
        step = 1.0 if stretches else _GAUSSIAN_STEP
        stretches.append(_stretch(place, core.resolution / slope, core.extent / slope, step))
    return stretches


@check_shapes(
    "mean: [N, L]",
    "variance: [N, L]",
    "alpha: [broadcast N, broadcast L]",
    "return.f: [Q, N, L]",
    "return.weights: [Q, N, L]",
    "return.offset: [Q, N, L]",
)
def stretched_nodes(
    mean: tf.Tensor,
    variance: tf.Tensor,
    alpha: tf.Tensor,
    cores: Sequence[Core],
    mode: Mode,
    num_nodes: int = NUM_NODES,
) -> Nodes:
    r"""
    Place the nodes for :math:`\int N(f; m, v) p(f)^\alpha df`.

    With g the mode's slope this is the expectation of :math:`(p(f) e^{-g (f - m)})^\alpha` under
    :math:`N(f; m + \alpha v g, v)`, times :math:`e^{\alpha^2 g^2 v / 2}`: an identity for every g,
    which moves the Gaussian to where the integrand is. The weights are for that Gaussian.

    :param mean: Means m.
    :param variance: Variances v > 0.
    :param alpha: The power.
    :param cores: Where :math:`\log p` has structure. A core outside the reach of the Gaussian costs
        a few nodes and does no harm.
    :param mode: The integrand's peak.
    :param num_nodes: Q.
    """
    constant_mean, deviation = tf.stop_gradient(mean), tf.sqrt(tf.stop_gradient(variance))
    moved = tf.stop_gradient(alpha * mode.slope) * deviation
    # A factor that is not log-concave may leave a second peak near the Gaussian's own mean.
    back = tf.where(tf.abs(moved) > 2.0 * REACH, tf.zeros_like(moved), -moved)
    low = tf.minimum(back, 0.0) - REACH
    high = tf.maximum(back, 0.0) + REACH
    peak = Core(constant_mean + deviation * moved, mode.width, _PEAK_EXTENT * mode.width)
    standard = [
        Core(
            (core.centre - constant_mean) / deviation - moved,
            core.resolution / deviation,
            core.extent / deviation,
        )
        for core in (*cores, peak)
    ]
    stretches = _compose(standard, low, high)
    t_low, t_high = low, high
    for stretch in stretches:
        t_low, t_high = stretch.inverse(t_low), stretch.inverse(t_high)
    fraction = tf.reshape(tf.linspace(tf.zeros([], mean.dtype), 1.0, num_nodes), [-1, 1, 1])
    x = t_low + (t_high - t_low) * fraction
    log_spacing = tf.zeros_like(x)
    for stretch in reversed(stretches):
        x, spacing = stretch.forward(x)
        log_spacing = log_spacing + tf.math.log(spacing)
    x, log_spacing = tf.stop_gradient(x), tf.stop_gradient(log_spacing)
    offset = deviation * (x + moved) + (constant_mean - mean)
    residual = offset - alpha * tf.stop_gradient(mode.slope) * variance
    weights = tf.nn.softmax(log_spacing - 0.5 * residual**2 / variance, axis=0)
    return Nodes(tf.stop_gradient(constant_mean + offset), weights, offset)


def search_mode(
    log_factor: Callable[[tf.Tensor], tf.Tensor],
    mean: tf.Tensor,
    variance: tf.Tensor,
    alpha: tf.Tensor,
    cores: Sequence[Core],
) -> Mode:
    r"""
    Find the peak of :math:`N(f; m, v) p(f)^\alpha` by zooming in on a grid.

    :param log_factor: :math:`\log p` of f [Q, N, L], unimodal outside the cores.
    :param mean: Means m [N, L].
    :param variance: Variances v > 0 [N, L].
    :param alpha: The power.
    :param cores: Where :math:`\log p` has structure: the peak is between them and the mean.
    """
    mean, variance = tf.stop_gradient(mean), tf.stop_gradient(variance)
    deviation = tf.sqrt(variance)
    low, high = -REACH * tf.ones_like(mean), REACH * tf.ones_like(mean)
    for core in cores:
        low = tf.minimum(low, (core.centre - core.extent - mean) / deviation)
        high = tf.maximum(high, (core.centre + core.extent - mean) / deviation)
    fraction = tf.reshape(tf.linspace(tf.zeros([], mean.dtype), 1.0, _SEARCH_NODES), [-1, 1, 1])

    def on_grid(low: tf.Tensor, high: tf.Tensor) -> "tuple[tf.Tensor, tf.Tensor]":
        x = low + (high - low) * fraction
        values = alpha * log_factor(mean + deviation * x) - 0.5 * x**2
        best = tf.clip_by_value(tf.argmax(values, axis=0), 1, _SEARCH_NODES - 2)
        hot = tf.one_hot(best, _SEARCH_NODES, axis=0, dtype=x.dtype)
        centre = tf.reduce_sum(hot * x, axis=0)
        # Drops to the left and right neighbours of the best node.
        top = tf.reduce_sum(hot * values, axis=0)
        sides = [tf.reduce_sum(tf.roll(hot, by, axis=0) * values, axis=0) for by in (-1, 1)]
        return centre, top - tf.minimum(*sides)

    def zoom(low: tf.Tensor, high: tf.Tensor) -> "tuple[tf.Tensor, tf.Tensor]":
        centre, drop = on_grid(low, high)
        step = (high - low) / (_SEARCH_NODES - 1.0)
        finer = (drop > 0.5) | (step > 1.0)
        return tf.where(finer, centre - step, low), tf.where(finer, centre + step, high)

    low, high = tf.while_loop(
        lambda low, high: True,
        zoom,
        (low, high),
        maximum_iterations=_SEARCH_ROUNDS,
    )
    x, drop = on_grid(low, high)
    step = (high - low) / (_SEARCH_NODES - 1.0)
    x = tf.where(tf.abs(x) > _FAR, x, tf.zeros_like(x))
    width = tf.minimum(step / tf.sqrt(2.0 * tf.maximum(drop, 1e-6)), 1.0)
    return Mode(
        tf.stop_gradient(per_power(x, alpha * deviation)),
        tf.stop_gradient(width * deviation),
    )


def no_tilt(mean: tf.Tensor, variance: tf.Tensor) -> Mode:
    """The mode for factors of bounded variation: the Gaussian's own."""
    return Mode(tf.zeros_like(mean), tf.sqrt(variance))
