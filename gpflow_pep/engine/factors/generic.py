r"""The general rule for likelihoods with one latent function for each target.

**From the values of the density.** For likelihoods that are not registered, only the
values of the density are known. The places of the nodes are then searched, and the
accuracy is checked.

Nodes are dense around two peaks: the peak of the Gaussian times the density to the
power, and the peak of the Gaussian times the density itself. The rule with every second
node shows at no cost whether the integral is resolved, because the error of a rule
falls fast with the number of nodes: if both rules agree to :data:`RESOLVED`, the rule
with all nodes was more accurate by orders of magnitude for smooth densities, and by a
factor of four for densities with a kink. If a density jumps between two nodes, both
rules may miss the same part. Therefore jumps are located first, and nodes are dense
around them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import ScalarLikelihood
from tensorflow import Tensor

from ..numerics.chunks import sizes_may_vary
from ..numerics.linalg import warn
from ..numerics.power import divide_by_power, expm1_over_power, log_power_mean
from ..numerics.quadrature import (
    NUM_NODES,
    PEAK_EXTENT,
    Mode,
    Nodes,
    Structure,
    search_mode,
    stretched_nodes,
    zoom_in,
)
from ..numerics.tapes import constant

Function = Callable[[Tensor], Tensor]
MeanAndVariance = Callable[[Tensor, Tensor], Tensor]


class ScalarFactor(NamedTuple):
    r"""A factor :math:`p(y | f)` of each row and column, and known facts about it that
    help to place nodes.

    Register a function ``(likelihood, X, Y, alpha [N, 1]) -> ScalarFactor`` with
    ``gpflow_pep.likelihoods.scalar_factor`` for a likelihood of your own.
    """

    #: Computes :math:`\log p(y | f)` for f [Q, N, P]. The result must be finite for
    #: every finite f.
    log_prob: Function
    structures: Sequence[Structure]
    r"""The intervals in which :math:`\log p`, to the power :math:`\alpha`, varies
    fast.
    """
    mode: Callable[[Tensor, Tensor], Mode] | None = None
    """Computes the tilted mode from mean and variance; None searches for the mode."""
    mean_prob: MeanAndVariance | None = None
    r"""Computes :math:`E[p]` in closed form, for a p that is bounded away from 0 (with
    the mode ``no_tilt``).
    """
    exact: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    r"""Computes from mean and variance whether the integral has a closed form, bool [N,
    P], and its value in that case.
    """
    num_nodes: int | Tensor = NUM_NODES  #: The number of nodes of the rule.


class _Rule(NamedTuple):
    r"""Nodes for the tilted integral of one factor."""

    nodes: Nodes
    #: The slope of the mode, [N, P]; see
    #: :class:`~gpflow_pep.engine.numerics.quadrature.Mode`.
    slope: Tensor
    offset: Tensor
    """The correction of the power mean for the move of the nodes, [N, P]."""

    def mean(self, log_prob: Tensor, alpha: Tensor, stride: int = 1) -> Tensor:
        r"""Compute the integral, [N, P].

        :param stride: 2 selects every second node, which is the rule with half as many
            nodes.
        """
        weights = self.nodes.weights[::stride]
        if stride > 1:
            weights /= tf.reduce_sum(weights, axis=0)
        values = (log_prob - self.slope * self.nodes.offset)[::stride]
        return self.offset + log_power_mean(values, weights, alpha)


def place(factor: ScalarFactor, mean: Tensor, variance: Tensor, alpha: Tensor) -> _Rule:
    """Place the nodes for a factor."""
    if factor.mode is not None:
        mode = factor.mode(tf.stop_gradient(mean), tf.stop_gradient(variance))
    else:
        mode = search_mode(factor.log_prob, mean, variance, alpha, factor.structures)
    nodes = stretched_nodes(
        mean, variance, alpha, factor.structures, mode, factor.num_nodes
    )
    slope = tf.stop_gradient(mode.slope)
    return _Rule(nodes, slope, 0.5 * (alpha * slope * variance) * slope)


class Narrow(NamedTuple):
    r"""Rows whose Gaussian is so narrow, compared with the scale of :math:`\log p`,
    that rounding errors are larger than the effect of its variance.

    For these rows the integral is linear in the variance, between the density itself at
    variance 0 and a variance that nodes resolve: :math:`\ell = \log p(m) + \tfrac{v}{2}
    (\log p'' + \alpha (\log p')^2) + O(v^2)`.
    """

    rows: Tensor  #: Whether rows are narrow, [N, P].
    variance: Tensor  #: The variances of narrow rows, [N, P]; 0 for other rows.
    #: A variance that nodes resolve for narrow rows, and the variance of other rows,
    #: [N, P].
    wider: Tensor

    def between(self, log_prob: Tensor, integral: Tensor) -> Tensor:
        """Interpolate between the density at the mean and the integral over the wider
        Gaussian.
        """
        share = self.variance / self.wider
        return tf.where(self.rows, log_prob + share * (integral - log_prob), integral)


def find_narrow(variance: Tensor, scale: Tensor | float = 1.0) -> Narrow:
    r"""Find the rows for which a rule for the Gaussian would give rounding errors or,
    at variance 0, no result.

    :param scale: The scale on which :math:`\log p` varies.
    """
    rounding = rounding_of(variance)
    square = tf.stop_gradient(tf.square(tf.convert_to_tensor(scale, variance.dtype)))
    rows = variance < rounding * square
    wider = tf.where(rows, rounding**0.5 * square, variance)
    return Narrow(rows, tf.where(rows, variance, 0.0), wider)


def integrate(
    factor: ScalarFactor, mean: Tensor, variance: Tensor, alpha: Tensor
) -> Tensor:
    r"""Compute :math:`\frac{1}{\alpha} \log \int N(f; m, v) p(y|f)^\alpha df`,
    [N, P].
    """
    scales = [
        structure.resolution + tf.zeros_like(mean) for structure in factor.structures
    ]
    rows = find_narrow(variance, tf.reduce_min(scales, axis=0) if scales else 1.0)
    integral = _by_rule(factor, mean, rows.wider, alpha)
    if factor.exact is not None:
        integral = tf.where(*factor.exact(mean, rows.wider), integral)
    at_mean = factor.log_prob(tf.expand_dims(mean, 0))
    return rows.between(tf.squeeze(at_mean, axis=0), integral)


def _by_rule(
    factor: ScalarFactor, mean: Tensor, variance: Tensor, alpha: Tensor
) -> Tensor:
    rule = place(factor, mean, variance, alpha)
    nodes = rule.nodes
    log_prob = factor.log_prob(rule.nodes.f)
    if factor.mean_prob is not None:
        # The error of the rule for E[p], which is fully corrected at alpha = 1, so that
        # the result there is the closed form.
        by_rule = tf.reduce_sum(nodes.weights * tf.exp(log_prob), axis=0)
        missed = tf.math.log(factor.mean_prob(mean, variance)) - tf.math.log(by_rule)
        return log_power_mean(log_prob, nodes.weights, alpha) + alpha * missed
    return rule.mean(log_prob, alpha)


def rounding_of(like: Tensor) -> Any:
    """Return the epsilon of a tensor's float type."""
    return np.finfo(like.dtype.as_numpy_dtype).eps


def bounded_log(x: Tensor) -> Tensor:
    """Compute a logarithm that is finite at 0."""
    return tf.math.log(tf.maximum(x, np.finfo(x.dtype.as_numpy_dtype).tiny))


#: Two rules agree if they differ by at most this, relative to 1 + abs(ell).
RESOLVED = 1e-3
#: A change of the logarithm between neighbouring nodes from which it may be a jump.
_JUMP = 2.0
#: The resolution at a jump, as a fraction of the distance between its two nodes. The
#: integral's error is a fraction of it.
_AT_JUMP = 1e-6
_ZOOM_ROUNDS = 40
#: Within this number of standard deviations around the mean the rule has nodes in any
#: case.
BULK = 4.0


class AccuracyWarning(UserWarning):
    """The integral of a likelihood is not as accurate as usual."""


def smallest(like: Tensor) -> float:
    """Return a small number that replaces 0 and whose powers do not underflow."""
    return float(np.finfo(like.dtype.as_numpy_dtype).tiny) ** 0.25


def bounded(log_prob: Function) -> Function:
    """Make a log density finite. If it is not a number, the density counts as 0.

    It is not a number also if the density is above the largest float. This happens far
    from all relevant values, where the terms of a log density are huge and cancel, so
    that their rounding errors may look like a peak.
    """

    def finite_log_prob(F: Tensor) -> Tensor:
        values = log_prob(F)
        lowest = tf.constant(-1.0 / smallest(values), values.dtype)
        is_number = tf.math.is_finite(values) & (
            values < np.log(float(values.dtype.max))
        )
        return tf.maximum(tf.where(is_number, values, lowest), lowest)

    return finite_log_prob


def is_resolved(value: Tensor, by_half: Tensor, tolerance: float = RESOLVED) -> Tensor:
    """Whether the rules with all nodes and with half of them agree, and some node had a
    density.
    """
    # NaN is not resolved.
    agree = tf.abs(value - by_half) <= tolerance * (1.0 + tf.abs(value))
    return agree & ~_is_zero(value)


def _is_zero(log_prob: Tensor) -> Tensor:
    """Whether a density is 0 or practically 0; see :func:`bounded`."""
    return log_prob <= -0.5 / smallest(log_prob)


def _outermost(rule: _Rule, log_prob: Tensor, value: Tensor, alpha: Tensor) -> Tensor:
    """Compute the contribution of the outermost nodes to an integral. It is nearly 0,
    unless there is much mass further out.
    """
    ends = tf.stack([rule.nodes.weights[0], rule.nodes.weights[-1]])
    excess = tf.stack([log_prob[0], log_prob[-1]]) - value
    return tf.reduce_sum(ends * tf.abs(expm1_over_power(excess, alpha)), axis=0)


def _factor_of_values(
    log_prob: Callable[[Tensor], Tensor],
    Fmu: Tensor,
    Fvar: Tensor,
    power: Tensor,
    Y: Tensor,
) -> ScalarFactor:
    """Place nodes around the peaks of the tilted density and of the density itself."""
    powers = power + tf.zeros_like(Fmu)
    mean = tf.stop_gradient(Fmu)
    deviation = tf.sqrt(tf.stop_gradient(Fvar))
    tilted = _peak(log_prob, mean, deviation, powers, Y)
    # Nodes are also placed at the peak of the density under this Gaussian and under a
    # Gaussian of ten times its width.
    ones = tf.ones_like(Fmu)
    own_peaks = [
        _peak(log_prob, mean, width, ones, Y) for width in (deviation, 10.0 * deviation)
    ]
    shift = (tilted.centre - mean) / deviation
    # A peak within the bulk of the Gaussian needs nodes, but not another Gaussian.
    shift = tf.where(tf.abs(shift) > BULK, shift, tf.zeros_like(shift))
    mode = Mode(divide_by_power(shift, powers * deviation), None)
    return ScalarFactor(log_prob, [tilted, *own_peaks], lambda *_: mode, num_nodes=200)


def integrate_density(
    likelihood: ScalarLikelihood,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
) -> Tensor:
    """Integrate a likelihood with a latent function for each column from the values of
    its density.

    If these values do not resolve the integral, there is a warning. If no node has a
    density, or at alpha 0 if not all nodes have one, the result is NaN.
    """
    power = alpha[:, None]
    log_prob = bounded(lambda F: likelihood._scalar_log_prob(X, F, Y))
    rows = find_narrow(Fvar)
    Fvar = rows.wider
    factor = _factor_of_values(log_prob, Fmu, Fvar, power, Y)

    def by_rule(factor: ScalarFactor) -> tuple[_Rule, Tensor, Tensor, Tensor]:
        rule = place(factor, Fmu, Fvar, power)
        values = log_prob(rule.nodes.f)
        value = rule.mean(values, power)
        by_half = tf.stop_gradient(rule.mean(values, power, stride=2))
        return rule, values, value, by_half + _outermost(rule, values, value, power)

    rule, values, *by_coarse = by_rule(factor)

    # Without a jump the denser rule has three nodes with weight 0, because a
    # conditional branch would not have a gradient when the sites' equations are
    # differentiated.
    jumps = _added_by_jumps(rule, values, by_coarse[0], power)
    jump = tf.reduce_any(jumps > 0.0, axis=0)
    has_jumps = tf.reduce_any(jump) if sizes_may_vary() else True
    structures = [
        *factor.structures,
        *_at_jumps(log_prob, rule.nodes.f, jumps, has_jumps),
    ]
    dense = factor._replace(
        structures=structures, num_nodes=tf.where(has_jumps, 600, 3)
    )
    nodes, at_nodes, value, by_half = by_rule(dense)
    by_half += tf.reduce_max(_added_by_jumps(nodes, at_nodes, value, power), axis=0)
    value, by_half = (
        tf.where(jump, *pair) for pair in zip((value, by_half), by_coarse)
    )
    error = tf.stop_gradient(tf.abs(value - by_half) / (1.0 + tf.abs(value)))
    message = (
        f"The integral of {type(likelihood).__name__} by the values of its density is"
        f" not accurate to {RESOLVED:g}: half of the nodes give another result."
        " Standardise the targets, or register its peaks with"
        " gpflow_pep.likelihoods.scalar_factor; see the page on likelihoods of your"
        " own."
    )
    unresolved = tf.reduce_any(~is_resolved(value, by_half))
    warn(
        AccuracyWarning,
        unresolved,
        message,
        {"Largest difference": tf.reduce_max(error)},
    )
    without = _is_zero(values)
    none = tf.reduce_any(without, axis=0) & (power == 0.0) | tf.reduce_all(
        without, axis=0
    )
    value = rows.between(log_prob(Fmu[None])[0], value)
    terms = tf.where(none, tf.constant(np.nan, value.dtype), value)
    return tf.reduce_sum(terms, axis=-1)


@constant
def _is_jump(log_prob: Tensor) -> Tensor:
    """
    Whether a density jumps between neighbouring nodes, bool [Q - 1, N, P]: its
    logarithm changes by much, and ten times as much as in the neighbouring intervals.
    Smooth densities of GPflow have no jump (tests/engine/factors/test_numeric.py).
    """
    change = tf.abs(log_prob[1:] - log_prob[:-1])
    ends = tf.concat([change[:1], change, change[-1:]], axis=0)
    return change > tf.maximum(10.0 * tf.minimum(ends[:-2], ends[2:]), _JUMP)


@constant
def _added_by_jumps(
    rule: _Rule, log_prob: Tensor, value: Tensor, alpha: Tensor
) -> Tensor:
    """Compute the contribution of intervals with a jump to an integral, [Q - 1, N, P];
    0 for other intervals.
    """
    excess = expm1_over_power(log_prob - value, alpha)
    weights = tf.maximum(rule.nodes.weights[1:], rule.nodes.weights[:-1])
    missed = weights * tf.abs(excess[1:] - excess[:-1])
    matters = missed > (1.0 + tf.abs(value)) * _AT_JUMP
    return tf.where(_is_jump(log_prob) & matters, missed, tf.zeros_like(missed))


@constant
def _at_jumps(
    log_prob: Function, f: Tensor, jumps: Tensor, has_jumps: Any
) -> list[Structure]:
    """Halve the distances between the nodes f [Q, N, P] next to the four largest jumps
    of a row, if there are any.
    """
    sizes, places_of_largest = tf.math.top_k(tf.transpose(jumps, [1, 2, 0]), 4)
    of_rows = tf.transpose(f, [1, 2, 0])
    ends = [tf.gather(of_rows, places_of_largest + k, batch_dims=2) for k in (0, 1)]
    sizes, low, high = (tf.transpose(values, [2, 0, 1]) for values in (sizes, *ends))

    def halve(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        middle = 0.5 * (low + high)
        at_low, at_middle, at_high = map(log_prob, (low, middle, high))
        above = tf.abs(at_middle - at_low) < tf.abs(at_middle - at_high)
        return tf.where(above, middle, low), tf.where(above, high, middle)

    places = tf.while_loop(
        lambda *_: has_jumps, halve, (low, high), maximum_iterations=_ZOOM_ROUNDS
    )
    # If there is no jump, the structure is wide and empty and does not move nodes.
    scale = tf.where(sizes > 0.0, _AT_JUMP * (high - low), tf.constant(np.inf, f.dtype))
    empty = tf.zeros_like(scale)
    return [
        Structure(*parts) for parts in zip(*map(tf.unstack, (places[0], scale, empty)))
    ]


@constant
def _peak(
    log_prob: Function, mean: Tensor, deviation: Tensor, alpha: Tensor, Y: Tensor
) -> Structure:
    """Zoom in on the peak of the Gaussian times the factor to the power, until the peak
    is found to within its width.
    """

    def exponent(x: Tensor) -> Tensor:
        return alpha * log_prob(mean + deviation * x) - 0.5 * x * x

    # A factor may rise by more than the Gaussian falls far away, so the search begins
    # there.
    shifts = tf.constant(np.sinh(np.linspace(-6.0, 6.0, 33))[:, None, None], mean.dtype)
    heights = exponent(shifts)
    at_y = (Y[:, : mean.shape[1]] - mean) / deviation
    start = tf.gather(shifts[:, 0, 0], tf.argmax(heights, axis=0))
    # A peak that is far from all of these may be at y.
    is_at_y = exponent(at_y[None])[0] > tf.reduce_max(heights, axis=0) + _JUMP
    start = tf.where(is_at_y, at_y, start)
    middle, width = zoom_in(exponent, start, 1.0 + tf.abs(start), _ZOOM_ROUNDS)
    width = deviation * width
    return Structure(mean + deviation * middle, width, PEAK_EXTENT * width)
