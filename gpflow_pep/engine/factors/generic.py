r"""The one rule for likelihoods whose rows have one latent function for each target.

**By the values of the density.** Of other likelihoods only these are known: where nodes
belong is searched for, and whether they were enough is found out.

Nodes are dense around two peaks: that of the Gaussian times the density to the power,
and that of the Gaussian times the density itself. Whether they resolve the integral is
seen at no cost by the rule of every second node, because the error of a rule falls fast
with its nodes: where both agree to :data:`RESOLVED`, that of all nodes was better by
orders of magnitude for smooth densities, and by a factor of four for those with a kink.
Of a density that jumps between two nodes both may miss the same part, so that jumps are
located first, and nodes are dense around them.
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
    r"""A factor :math:`p(y | f)` of each row and column, and what is known about it
    beforehand.

    Register a function ``(likelihood, X, Y, alpha [N, 1]) -> ScalarFactor`` with
    ``gpflow_pep.likelihoods.scalar_factor`` for a likelihood of your own.
    """

    log_prob: Function  #: :math:`\log p(y | f)` for f [Q, N, P]: finite wherever f is.
    structures: Sequence[Structure]
    r"""Where :math:`\log p`, to the power :math:`\alpha`, varies fast."""
    mode: Callable[[Tensor, Tensor], Mode] | None = None
    """The tilted mode from mean and variance; None to search for it."""
    mean_prob: MeanAndVariance | None = None
    r""":math:`E[p]` in closed form, for p that is bounded away from 0 (and mode
    ``no_tilt``).
    """
    exact: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    r"""Where the integral has a closed form, bool [N, P], and what it is there; from
    mean and variance.
    """
    num_nodes: int | Tensor = NUM_NODES  #: Nodes of the rule.


class _Rule(NamedTuple):
    r"""Nodes for the tilted integral of one factor."""

    nodes: Nodes
    #: [N, P], of the mode, see :class:`~gpflow_pep.engine.numerics.quadrature.Mode`.
    slope: Tensor
    offset: Tensor
    """[N, P], what is added to the power mean over the nodes, because these are moved.
    """

    def mean(self, log_prob: Tensor, alpha: Tensor, stride: int = 1) -> Tensor:
        r"""Compute the integral, [N, P].

        :param stride: 2 for every second node, which is the rule of half as many.
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
    r"""Rows whose Gaussian is so narrow beside :math:`\log p` that rounding outweighs
    its variance.

    There the integral is linear in the variance, from the density itself at 0 to where
    nodes resolve it:
    :math:`\ell = \log p(m) + \tfrac{v}{2} (\log p'' + \alpha (\log p')^2) + O(v^2)`.
    """

    rows: Tensor  #: [N, P], which they are.
    variance: Tensor  #: [N, P], theirs, and 0 for others.
    wider: Tensor  #: [N, P], a variance that nodes resolve, and that of the other rows.

    def between(self, log_prob: Tensor, integral: Tensor) -> Tensor:
        """Go from the density at the mean to the integral over the wider Gaussian."""
        share = self.variance / self.wider
        return tf.where(self.rows, log_prob + share * (integral - log_prob), integral)


def find_narrow(variance: Tensor, scale: Tensor | float = 1.0) -> Narrow:
    r"""Find the rows of which a rule for the Gaussian would give rounding errors or, at
    0, nothing.

    :param scale: Over which :math:`\log p` varies.
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
        # What the rule misses of E[p], in full at alpha = 1, where the closed form is
        # what is left.
        by_rule = tf.reduce_sum(nodes.weights * tf.exp(log_prob), axis=0)
        missed = tf.math.log(factor.mean_prob(mean, variance)) - tf.math.log(by_rule)
        return log_power_mean(log_prob, nodes.weights, alpha) + alpha * missed
    return rule.mean(log_prob, alpha)


def sum_columns(values: Tensor) -> Tensor:
    """Sum [N, P] over columns; of one column it takes fewer operations."""
    if values.shape[-1] == 1:
        return tf.squeeze(values, axis=-1)
    return tf.reduce_sum(values, axis=-1)


def rounding_of(like: Tensor) -> Any:
    """Give the epsilon of a tensor's float."""
    return np.finfo(like.dtype.as_numpy_dtype).eps


def bounded_log(x: Tensor) -> Tensor:
    """Compute the logarithm, but finite at 0."""
    return tf.math.log(tf.maximum(x, np.finfo(x.dtype.as_numpy_dtype).tiny))


#: Two rules agree where they differ by at most so much, relative to 1 + abs(ell).
RESOLVED = 1e-3
#: A change of the logarithm from a node to the next that may be a jump.
_JUMP = 2.0
#: The resolution at a jump, as a part of the distance of the nodes that it is between:
#: the integral's error is a part of it.
_AT_JUMP = 1e-6
_ZOOM_ROUNDS = 40
#: So many standard deviations around the mean are where the rule has nodes anyway.
BULK = 4.0


class AccuracyWarning(UserWarning):
    """The integral of a likelihood is not as accurate as others are."""


def smallest(like: Tensor) -> float:
    """Give a number that stands for 0, with room for its powers."""
    return float(np.finfo(like.dtype.as_numpy_dtype).tiny) ** 0.25


def bounded(log_prob: Function) -> Function:
    """Make a log density finite: where it is no number, the density is 0.

    It is no number either where the density is above the largest float. Far from
    everything that matters the terms of a log density are huge and cancel, so that
    their rounding may look like a peak.
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
    """Whether the rules of all and of half of the nodes agree, and some node had a
    density.
    """
    agree = tf.abs(value - by_half) <= tolerance * (1.0 + tf.abs(value))  # NaN is not
    return agree & ~_is_zero(value)


def _is_zero(log_prob: Tensor) -> Tensor:
    """Whether a density is 0, or as good as that; see :func:`bounded`."""
    return log_prob <= -0.5 / smallest(log_prob)


def _outermost(rule: _Rule, log_prob: Tensor, value: Tensor, alpha: Tensor) -> Tensor:
    """Compute what the outermost nodes add to an integral: nothing, unless much is
    further out.
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
    """Place nodes where the tilted density and the density itself have their peaks."""
    powers = power + tf.zeros_like(Fmu)
    mean = tf.stop_gradient(Fmu)
    deviation = tf.sqrt(tf.stop_gradient(Fvar))
    tilted = _peak(log_prob, mean, deviation, powers, Y)
    # Nodes also go where the density has its peak, under this Gaussian and one of ten
    # times its width.
    ones = tf.ones_like(Fmu)
    own_peaks = [
        _peak(log_prob, mean, width, ones, Y) for width in (deviation, 10.0 * deviation)
    ]
    shift = (tilted.centre - mean) / deviation
    # A peak within the Gaussian's bulk needs nodes, but no other Gaussian.
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
    """Integrate a likelihood with a latent function for each column by the values of
    its density.

    It warns where these do not resolve the integral. Where no node has a density, or at
    alpha 0 not all have one, it is NaN.
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

    # Without a jump the denser rule has three nodes and no weight: a conditional branch
    # would have no gradient where the sites' equations are differentiated.
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
    Whether a density jumps from each node to the next, bool [Q - 1, N, P]: its
    logarithm changes by much, and ten times as much as beside. Smooth densities of
    GPflow have no jump (tests/engine/factors/test_numeric.py).
    """
    change = tf.abs(log_prob[1:] - log_prob[:-1])
    ends = tf.concat([change[:1], change, change[-1:]], axis=0)
    return change > tf.maximum(10.0 * tf.minimum(ends[:-2], ends[2:]), _JUMP)


@constant
def _added_by_jumps(
    rule: _Rule, log_prob: Tensor, value: Tensor, alpha: Tensor
) -> Tensor:
    """Compute what a density adds to an integral where it jumps, [Q - 1, N,
    P]; else 0.
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
    """Halve the distances of the nodes f [Q, N, P] beside the four largest jumps of a
    row, if there are some.
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
    # Where there is no jump the structure is wide and empty, and moves no node.
    scale = tf.where(sizes > 0.0, _AT_JUMP * (high - low), tf.constant(np.inf, f.dtype))
    empty = tf.zeros_like(scale)
    return [
        Structure(*parts) for parts in zip(*map(tf.unstack, (places[0], scale, empty)))
    ]


@constant
def _peak(
    log_prob: Function, mean: Tensor, deviation: Tensor, alpha: Tensor, Y: Tensor
) -> Structure:
    """Zoom in on the peak of the Gaussian times the factor to the power, to within its
    width.
    """

    def exponent(x: Tensor) -> Tensor:
        return alpha * log_prob(mean + deviation * x) - 0.5 * x * x

    # What a factor gains far away may outweigh the Gaussian's loss: look there first.
    shifts = tf.constant(np.sinh(np.linspace(-6.0, 6.0, 33))[:, None, None], mean.dtype)
    heights = exponent(shifts)
    at_y = (Y[:, : mean.shape[1]] - mean) / deviation
    start = tf.gather(shifts[:, 0, 0], tf.argmax(heights, axis=0))
    # What all of these are far from may be at y.
    is_at_y = exponent(at_y[None])[0] > tf.reduce_max(heights, axis=0) + _JUMP
    start = tf.where(is_at_y, at_y, start)
    middle, width = zoom_in(exponent, start, 1.0 + tf.abs(start), _ZOOM_ROUNDS)
    width = deviation * width
    return Structure(mean + deviation * middle, width, PEAK_EXTENT * width)
