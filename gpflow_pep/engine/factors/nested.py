r"""Integrals over several latent functions, for densities of which only the values are
known.

Each rule is a grid of nodes. Most rows are integrated by the first and simplest rule,
even nodes for the Gaussian itself: if there are many rows, the Gaussian is narrow, and
a density varies little over its width. The rules with every second node show whether
the nodes resolve an integral. In all other rows, nodes are placed for one latent
function after the other, where the factor is large *given* the outer latent functions;
the first latent function is the innermost. The place is searched for at every node of
the outer functions, so the search has to be cheap: it zooms in on a peak, and
integrates over the inner functions by Laplace's method. Rows that are still not
resolved get more nodes, and a search that also looks far away.

Nodes are constants for differentiation, so searches are not differentiated.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.likelihoods import (
    HeteroskedasticTFPConditional,
    MultiLatentTFPConditional,
    QuadratureLikelihood,
)
from tensorflow import Tensor

from ..checks import refusal
from ..numerics.power import divide_by_power, expm1_over_power, log_power_mean
from ..numerics.quadrature import REACH, Mode, Structure
from ..prior.evaluate import convert_user_code
from .gaussian import gaussian_log_power_expectation
from .generic import (
    BULK,
    RESOLVED,
    Function,
    Narrow,
    ScalarFactor,
    bounded,
    find_narrow,
    integrate,
    is_resolved,
    place,
    smallest,
)
from .moments import Traits, any_number, implementations, support, traits
from .targets import expected_moments, integrated_moments


class _Placing(NamedTuple):
    """Settings for the nodes of each latent function: numbers, or tensors."""

    num_nodes: Any
    tolerance: Any
    """The largest difference between the rules with all nodes and with half of them,
    relative to 1 + abs(ell).
    """
    search_reach: Any = REACH
    """The largest distance at which a search begins, in standard deviations. It begins
    at the best of ``num_starts`` points, hyperbolic sines of even steps up to this
    distance, and zooms in at most ``num_zooms`` times.
    """
    num_starts: Any = 9
    num_zooms: Any = 3
    #: The distance up to which the nodes of a peak are even, in widths of the peak.
    structure_extent: Any = 1.5
    num_powers: Any = 1
    """1 to search for the peak of the density only; 2 to search also for the peak of
    the density to the power, and to move nodes to it if it is far away.
    """

    def tensors(self, dtype: tf.DType) -> "_Placing":
        """Make tensors, with which one graph is enough for all placings."""
        kinds = (tf.int32 if isinstance(number, int) else dtype for number in self)
        return _Placing(*map(tf.constant, self, kinds))


#: The numbers of nodes for each latent function, by the number of latent functions. The
#: first number is for even nodes; it is odd, and so is the number of every second node,
#: so that the mean is a node. The second number is for rows that even nodes do not
#: resolve, and the third for all other rows, after a careful search.
_NUM_NODES = {1: (49, 48, 128), 2: (25, 44, 80), 3: (21, 20, 32)}
#: A search ends when the exponent falls by less than this in a step.
_SMALL_DROP = 0.7


class _Peak(NamedTuple):
    """A peak in units of the Gaussian's standard deviation, [K, N] each; constants."""

    x: Tensor
    width: Tensor
    height: Tensor


class _Axis(NamedTuple):
    """The nodes of one latent function in a grid [Q1, ..., QL, N]; constants of this
    rank.

    The nodes of the first latent function depend on all other latent functions, and the
    nodes of the last one on none.
    """

    offset: Tensor  #: f - m.
    weights: Tensor  #: Weights whose sum is 1.
    slope: Tensor | None = None
    """The slope by which the Gaussian is moved, see
    :class:`~gpflow_pep.engine.numerics.quadrature.Mode`; None for 0.
    """
    at_mean: Tensor | None = None
    """1 for the node at the mean, 0 for others; None if there may be no such node."""


class _GridIntegral(NamedTuple):
    """An integral, and the difference to the rules with half of the nodes."""

    value: Tensor  #: [N].
    error: Tensor
    """[N], the sum of the absolute differences of rules, a constant for
    differentiation. See :mod:`gpflow_pep.engine.factors.generic`.
    """


def _narrow_rows(variance: Tensor) -> Narrow:
    """Find narrow Gaussians. Here the power mean is linear in the variance, and its
    logarithm is not.
    """
    narrow = find_narrow(variance)
    return narrow._replace(
        wider=tf.where(narrow.rows, narrow.wider / 16.0, narrow.wider)
    )


def _even_axes(variance: Tensor) -> list[_Axis]:
    """Place even nodes in the bulk of the Gaussian."""
    num_latent = int(variance.shape[1])
    x = np.linspace(-6.5, 6.5, _NUM_NODES[num_latent][0])
    weights = np.exp(-0.5 * x * x) / np.sum(np.exp(-0.5 * x * x))
    x /= np.sqrt(np.sum(weights * x * x))  # as in gpflow_pep.engine.numerics.quadrature
    columns = x, weights, np.arange(len(x)) == len(x) // 2
    deviation = tf.sqrt(tf.stop_gradient(_narrow_rows(variance).wider))
    axes = []
    for k in range(num_latent):
        column = [-1 if axis == k else 1 for axis in range(num_latent + 1)]
        x_of_axis, weights_of_axis, at_mean = (
            tf.constant(np.reshape(part, column), variance.dtype) for part in columns
        )
        axes.append(_Axis(x_of_axis * deviation[:, k], weights_of_axis, None, at_mean))
    return axes


def _integrate_on_grid(
    axes: Sequence[_Axis],
    log_prob: Function,
    mean: Tensor,
    variance: Tensor,
    alpha: Tensor,
    *,
    with_ends: bool,
) -> _GridIntegral:
    r"""
    Compute :math:`\frac{1}{\alpha} \log \int N(f; m, v) p(y | f)^\alpha df` in several
    dimensions.

    :param log_prob: :math:`\log p` for F [K, N, L], [K, N].
    :param alpha: [N].
    :param with_ends: Whether the contribution of the outermost nodes counts as an
        error.
    """
    num_latent = len(axes)
    narrow = _narrow_rows(variance)
    centre = tf.stop_gradient(mean)
    columns = [axis.offset + centre[:, k] for k, axis in enumerate(axes)]
    shape = tf.shape(sum(columns))
    F = tf.stack([tf.broadcast_to(column, shape) for column in columns], axis=-1)
    values = log_prob(tf.reshape(F, [-1, shape[-1], num_latent]))
    values = tf.reshape(values, shape)
    all_weights = []
    for k, axis in enumerate(axes):
        v = narrow.wider[:, k]
        offset = axis.offset + (centre[:, k] - mean[:, k])
        if axis.at_mean is None:
            v += narrow.variance[:, k]  # only its derivative matters
        from_centre = offset
        if axis.slope is not None:
            drift = alpha * axis.slope * v
            values += axis.slope * (0.5 * drift - offset)
            from_centre = offset - drift
        # This factor has the derivatives of the Gaussian at constant f, to any order.
        log_density = -0.5 * (tf.square(from_centre) / v + tf.math.log(v))
        change = tf.exp(log_density - tf.stop_gradient(log_density))
        weights = axis.weights * change
        if axis.at_mean is not None:
            # If the Gaussian is narrow, the integral is linear in its variance, and so
            # are the weights of all nodes but the one at the mean. A weight of 0 would
            # have no derivative.
            ratio = narrow.variance[:, k] / v + 1e-8
            part = tf.where(narrow.rows[:, k], ratio, tf.ones_like(ratio))
            weights = (
                axis.weights * (part + (change - 1.0)) + (1.0 - part) * axis.at_mean
            )
        all_weights.append(weights)
    joint = all_weights[0]
    for weights in all_weights[1:]:
        joint *= weights
    flat = [-1, shape[-1]]
    joint = tf.broadcast_to(joint, shape)
    value = log_power_mean(tf.reshape(values, flat), tf.reshape(joint, flat), alpha)
    constants = (
        tf.stop_gradient(value),
        tf.stop_gradient(values),
        tf.stop_gradient(alpha),
    )
    error = _difference_of_half_rules(
        list(map(tf.stop_gradient, all_weights)), *constants, with_ends
    )
    if with_ends:
        # If the outermost nodes have most of the integral, the part outside may be even
        # larger.
        share = _share_of_ends(tf.stop_gradient(joint), *constants[1:])
        # In a resolved integral the outermost nodes have at most half.
        error = tf.where(share <= 0.5, error, tf.constant(np.inf, error.dtype))
    return _GridIntegral(value, error)


def _difference_of_half_rules(
    all_weights: Sequence[Tensor],
    value: Tensor,
    values: Tensor,
    alpha: Tensor,
    with_ends: bool,
) -> Tensor:
    """Sum the absolute changes of the integral if every second node of one latent
    function is left out.
    """
    u = expm1_over_power(values - value, alpha)
    error = tf.zeros_like(u)
    for k, weights in enumerate(all_weights):
        weights = tf.reshape(weights, tf.shape(weights)[k:])
        half = weights[::2] / tf.reduce_sum(weights[::2], axis=0)
        mean = tf.reduce_sum(weights * u, axis=0)
        error = tf.reduce_sum(weights * error, axis=0)
        error += tf.abs(tf.reduce_sum(half * u[::2], axis=0) - mean)
        if with_ends:
            error += weights[0] * tf.abs(u[0] - mean) + weights[-1] * tf.abs(
                u[-1] - mean
            )
        u = mean
    return error


def _share_of_ends(joint: Tensor, values: Tensor, alpha: Tensor) -> Tensor:
    """Compute the fraction of the integral of the density to the power that comes from
    the outermost nodes.
    """
    nodes = list(range(len(joint.shape) - 1))
    p = joint * tf.exp(alpha * (values - tf.reduce_max(values, axis=nodes)))
    ends = tf.zeros_like(alpha)
    for k in nodes:
        other_axes = [axis for axis in nodes if axis != k]
        of_axis = tf.reduce_sum(p, axis=other_axes)
        ends += of_axis[0] + of_axis[-1]
    return ends / tf.reduce_sum(p, axis=nodes)


def _placed_axes(
    log_prob: Function, mean: Tensor, variance: Tensor, alpha: Tensor, placing: _Placing
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Place nodes where the factor is large, one latent function after the other, the
    last one first.

    :return: The first three fields of each :class:`_Axis`.
    """
    search = _Search(log_prob, mean, variance, placing)
    num_rows = tf.shape(mean)[0]
    num_latent = int(mean.shape[1])
    axes: list[tuple[Tensor, Tensor, Tensor]] = []
    outer = tf.zeros([1, num_rows, 0], mean.dtype)
    for dimension in reversed(range(num_latent)):
        m, v = search.moments(outer, dimension)
        power = tf.tile(alpha[:, None], [tf.shape(outer)[0], 1])
        rule = place(search.factor(outer, power, dimension), m, v, power)
        grid = [placing.num_nodes] * (num_latent - 1 - dimension) + [num_rows]
        columns = rule.nodes.offset, rule.nodes.weights, rule.slope[None]
        sizes = placing.num_nodes, placing.num_nodes, 1
        offset, weights, slope = (
            tf.reshape(column, [1] * dimension + [size, *grid])
            for column, size in zip(columns, sizes)
        )
        axes.insert(0, (offset, weights, slope))
        outer = search.append(outer, rule.nodes.f)
    return axes


class _Search(NamedTuple):
    """A search for the place in one latent function where the factor is large, given
    the outer latent functions [K, N, J].

    The inner latent functions are integrated out by Laplace's method, each at its peak.
    """

    log_prob: Function
    mean: Tensor
    variance: Tensor
    placing: _Placing

    def append(self, outer: Tensor, f: Tensor) -> Tensor:
        """Append values f [Q, K N, 1] of the next latent function to the outer ones."""
        nodes = tf.shape(f)[0]
        count = tf.shape(outer)[0]
        num_rows = tf.shape(self.mean)[0]
        f_of_rows = tf.reshape(f, [nodes * count, num_rows, 1])
        return tf.concat([f_of_rows, tf.tile(outer, [nodes, 1, 1])], axis=2)

    def moments(self, outer: Tensor, dimension: int) -> tuple[Tensor, Tensor]:
        """Repeat mean and variance of every row for each of the outer values, [K N,
        1].
        """
        moments = (moment[:, dimension, None] for moment in (self.mean, self.variance))
        m, v = (tf.tile(moment, [tf.shape(outer)[0], 1]) for moment in moments)
        return m, _narrow_rows(v).wider

    def log_integral(self, outer: Tensor, power: Tensor, dimension: int) -> Tensor:
        """Approximate the integral over all dimensions up to this one, for the factor
        to a power [N K, 1].
        """
        if dimension < 0:
            return tf.reshape(power, tf.shape(outer)[:2]) * self.log_prob(outer)
        peak = self.peak(outer, power, dimension)
        return tf.reshape(peak.height + tf.math.log(peak.width), tf.shape(outer)[:2])

    def peak(self, outer: Tensor, power: Tensor, dimension: int) -> _Peak:
        """Find the peak of the Gaussian times the factor to a power in one latent
        function.
        """
        m, v = self.moments(outer, dimension)

        def exponent(x: Tensor) -> Tensor:
            powers = tf.tile(power, [tf.shape(x)[0], 1])
            F = self.append(outer, m + tf.sqrt(v) * x)
            inner = self.log_integral(F, powers, dimension - 1)
            return tf.reshape(inner, tf.shape(x)) - 0.5 * x * x

        return _find_peak(exponent, m, self.placing)

    def factor(self, outer: Tensor, power: Tensor, dimension: int) -> ScalarFactor:
        """Find the structures in one latent function."""
        placing = self.placing
        is_careful = self.placing.num_powers > 1
        m, v = self.moments(outer, dimension)
        deviation = tf.sqrt(v)
        repeats = placing.num_powers
        powers = tf.concat([power, tf.ones_like(power)], axis=0)[
            (2 - repeats) * tf.shape(m)[0] :
        ]
        peak = self.peak(tf.tile(outer, [repeats, 1, 1]), powers, dimension)
        places = [tf.reshape(place, [repeats, -1, 1]) for place in peak]
        # With one power there is one structure: the other one, wide and empty, moves no
        # node. Stands for the width of no structure, in standard deviations.
        wide = tf.where(is_careful, places[1][-1], 100.0)
        extent = tf.where(is_careful, placing.structure_extent * places[1][-1], 0.0)
        structures = [
            Structure(m + deviation * x, deviation * width, deviation * extent)
            for x, width, extent in (
                (places[0][0], places[1][0], placing.structure_extent * places[1][0]),
                (places[0][-1], wide, extent),
            )
        ]
        # A peak within the Gaussian's bulk needs nodes, but no other Gaussian.
        x = places[0][0]
        is_far = is_careful & (tf.abs(x) > BULK)
        slope = divide_by_power(
            tf.where(is_far, x, tf.zeros_like(x)), power * deviation
        )
        mode = Mode(slope, None)
        return ScalarFactor(
            self.log_prob, structures, lambda *_: mode, num_nodes=placing.num_nodes
        )


def _find_peak(
    exponent: Callable[[Tensor], Tensor], like: Tensor, placing: _Placing
) -> _Peak:
    """Zoom in on a peak, to within its width, from the best of a few places.

    :param exponent: The logarithm of the function, whose argument x [Q, ...] is in
        standard deviations.
    :param like: A tensor of the peak's shape, [K N, 1].
    """

    def is_coarse(three: Tensor) -> Tensor:
        left, middle, right = tf.unstack(three)
        low = tf.minimum(left, right)
        high = tf.maximum(left, right)
        return (middle - low > _SMALL_DROP) | (middle < high)

    def zoom(
        count: Tensor,
        zooms: Tensor,
        coarse: Tensor,
        t: Tensor,
        reach: Tensor,
        three: Tensor,
    ) -> tuple[Tensor, ...]:
        fraction = tf.linspace(-tf.ones([], t.dtype), 1.0, count)[:, None, None]
        values = exponent(tf.sinh(t + reach * fraction))
        best = tf.clip_by_value(
            tf.argmax(values, axis=0, output_type=tf.int32), 1, count - 2
        )
        hot = tf.one_hot(best, count, axis=0, dtype=t.dtype)
        finer = tf.stack(
            [
                tf.reduce_sum(tf.roll(hot, k, axis=0) * values, axis=0)
                for k in (-1, 0, 1)
            ]
        )
        step = 2.0 * reach / tf.cast(count - 1, t.dtype)
        t = tf.where(coarse, t + tf.reduce_sum(hot * fraction, axis=0) * reach, t)
        three = tf.where(coarse, finer, three)
        reach = tf.where(coarse, step, reach)
        # Places at which it looks when it zooms in.
        return tf.constant(9), zooms + 1, is_coarse(three), t, reach, three

    zeros = tf.zeros_like(like)
    *_, t, step, three = tf.while_loop(
        lambda count, zooms, coarse, *_: (
            (zooms <= placing.num_zooms) & tf.reduce_any(coarse)
        ),
        zoom,
        (
            placing.num_starts,
            tf.constant(0),
            tf.ones_like(like, tf.bool),
            zeros,
            zeros + tf.asinh(placing.search_reach),
            tf.stack([zeros] * 3),
        ),
    )
    left, height, right = tf.unstack(three)
    drop = tf.maximum(height - tf.minimum(left, right), _SMALL_DROP / 8.0)
    width = tf.minimum(step * tf.cosh(t) * tf.math.rsqrt(2.0 * drop), 1.0)
    return _Peak(tf.sinh(t), width, height)


@convert_user_code
def _log_prob(
    likelihood: QuadratureLikelihood, X: Tensor, F: Tensor, Y: Tensor
) -> Tensor:
    return likelihood.log_prob(X, F, Y)


@implementations.register(QuadratureLikelihood)
@tf.autograph.experimental.do_not_convert
def _nested_rule(
    likelihood: QuadratureLikelihood,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
) -> Tensor:
    num_latent = int(Fmu.shape[1])
    if num_latent not in _NUM_NODES:
        got = f"{type(likelihood).__name__} with {num_latent} latent functions"
        expected = f"at most {max(_NUM_NODES)} for nested quadrature"
        remedy = (
            "Register your own rule for it with"
            " gpflow_pep.likelihoods.implementations.register."
        )
        raise refusal("likelihood", got, expected, remedy)

    def log_prob_of(X: Tensor, Y: Tensor) -> Function:
        return bounded(lambda F: _log_prob(likelihood, X, F, Y))

    def integrate_rows(
        rows: Sequence[Tensor], axes: Sequence[_Axis], tolerance: float, with_ends: bool
    ) -> tuple[Tensor, Tensor]:
        """Integrate some rows, and find which ones are resolved."""
        X, mean, variance, Y, power = rows
        value, error = _integrate_on_grid(
            axes, log_prob_of(X, Y), mean, variance, power, with_ends=with_ends
        )
        return value, is_resolved(value, value + error, tolerance)

    def place(rows: Sequence[Tensor], placing: _Placing) -> list[tuple[Tensor, ...]]:
        X, mean, variance, Y, power = rows
        return _placed_axes(log_prob_of(X, Y), mean, variance, power, placing)

    if not tf.executing_eagerly():
        place = tf.function(place, autograph=False)  # traced once for all placings
    rows = X, Fmu, Fvar, Y, tf.broadcast_to(alpha, tf.shape(Fmu)[:1])
    value, is_enough = integrate_rows(rows, _even_axes(Fvar), 1e-5, True)
    index = tf.where(~is_enough)  # mostly none
    _, quick, careful = _NUM_NODES[num_latent]
    carefully = _Placing(careful, RESOLVED, 2000.0, 41, 15, 6.0, 2)
    for placing in (_Placing(quick, 1e-5), carefully):
        gathered = [tf.gather(row, index[:, 0]) for row in rows]
        placed = place(
            list(map(tf.stop_gradient, gathered)), placing.tensors(value.dtype)
        )
        axes = [_Axis(*map(tf.stop_gradient, axis)) for axis in placed]
        # A careful search has looked further out than its nodes are.
        with_ends = placing.num_powers == 1
        of_others, is_enough = integrate_rows(
            gathered, axes, placing.tolerance, with_ends
        )
        value = tf.tensor_scatter_nd_update(value, index, of_others)
        index = tf.boolean_mask(index, ~is_enough)
    nan = tf.fill(tf.shape(index)[:1], tf.constant(np.nan, value.dtype))
    return tf.tensor_scatter_nd_update(value, index, nan)


@implementations.register(HeteroskedasticTFPConditional)
def _heteroscedastic(
    likelihood: HeteroskedasticTFPConditional,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
) -> Tensor:
    kind = type(likelihood.conditional_distribution(Fmu))
    if kind is not tfp.distributions.Normal:
        return _nested_rule(likelihood, X, Fmu, Fvar, Y, alpha)
    # Gaussian noise: given the second latent function the integral over the first is in
    # closed form, and the power mean over both is the power mean over the second of its
    # logarithm.
    mean = Fmu[:, :1]
    variance = Fvar[:, :1]
    power = alpha[:, None]

    def log_prob(f: Tensor) -> Tensor:
        noise: Any = likelihood.scale_transform(f) ** 2
        noise = tf.clip_by_value(noise, smallest(f), 1.0 / smallest(f))
        return gaussian_log_power_expectation(mean, variance, Y, noise, power)

    error = tf.stop_gradient(tf.abs(Y - mean) + tf.sqrt(variance) + smallest(Y))
    ones = tf.ones_like(Y)
    # At this place the squared error over the noise, times the power, is 1.
    centre = tf.math.log(error) + 0.5 * tf.math.log(power + smallest(Y))
    factor = ScalarFactor(
        log_prob, [Structure(centre, ones, 3.0 * ones)], num_nodes=128
    )
    return tf.squeeze(integrate(factor, Fmu[:, 1:], Fvar[:, 1:], power), axis=-1)


# A distribution of TensorFlow Probability may have another support, which is not used.
for _kind in (MultiLatentTFPConditional, HeteroskedasticTFPConditional):
    support.register(_kind)(any_number)


@traits.register(MultiLatentTFPConditional)
def _traits(likelihood: MultiLatentTFPConditional) -> Traits:
    def draw(X: AnyNDArray, f: AnyNDArray, random: np.random.Generator) -> AnyNDArray:
        seed = random.integers(2**31, size=2).astype(np.int32)
        return np.asarray(likelihood.conditional_distribution(f).sample(seed=seed))[
            ..., 0
        ]

    return Traits(draw=draw)


@traits.register(HeteroskedasticTFPConditional)
def _location_and_scale(likelihood: HeteroskedasticTFPConditional) -> Traits:
    def predict(X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
        if (
            type(likelihood.conditional_distribution(Fmu))
            is not tfp.distributions.Normal
        ):
            return integrated_moments(likelihood, X, Fmu, Fvar)

        def given_f(_: Tensor, f: Tensor) -> MeanAndVariance:
            return tf.zeros_like(f), tf.square(likelihood.scale_transform(f))

        _, noise = expected_moments(given_f, X, [Fmu[:, 1:]], [Fvar[:, 1:]])
        return Fmu[:, :1], Fvar[:, :1] + noise

    return _traits(likelihood)._replace(
        predict=predict, in_units=lambda change, scale: likelihood
    )
