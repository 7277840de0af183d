"""Several latent functions for one target, heteroscedastic noise above all."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import HeteroskedasticTFPConditional, MultiLatentLikelihood

from ..ops.power import per_power
from ..ops.quadrature import Core, Mode
from .dispatch import implementations
from .gaussian import gaussian_log_power_expectation
from .generic import Function, ScalarFactor, integrate

#: Nodes in each dimension, by the number of dimensions.
_NESTED_NODES = {1: 128, 2: 80, 3: 32}
#: The first look for a peak is at the hyperbolic sines of even steps up to this.
_LADDER, _RUNGS = 6.0, 33
_ZOOM_NODES = 9
_ZOOM_ROUNDS = 40
#: Below it the exponent is flat on the finest grid.
_LEAST_DROP = 1e-6
#: A peak ends so many of its widths away.
_PEAK_EXTENT = 6.0
#: So many standard deviations around the mean are where the rule has nodes anyway.
_BULK = 4.0


@implementations.register(MultiLatentLikelihood)
def _nested_rule(
    likelihood: MultiLatentLikelihood,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    if likelihood.latent_dim not in _NESTED_NODES:
        raise ValueError(
            f"likelihood: got {type(likelihood).__name__} with {likelihood.latent_dim} latent"
            f" functions, expected at most {max(_NESTED_NODES)} for nested quadrature. Register"
            " your own rule for it with gpflow_pep.tilted.implementations.register."
        )

    def log_prob(F: tf.Tensor) -> tf.Tensor:
        values = likelihood.log_prob(X, F, Y)
        lowest = -1.0 / _smallest(values)
        return tf.maximum(tf.where(tf.math.is_finite(values), values, lowest), lowest)

    return nested_log_power_expectation(
        log_prob, Fmu, Fvar, alpha, _NESTED_NODES[likelihood.latent_dim]
    )


def nested_log_power_expectation(
    log_prob: Function, mean: tf.Tensor, variance: tf.Tensor, alpha: tf.Tensor, num_nodes: int
) -> tf.Tensor:
    r"""
    Compute :math:`\frac{1}{\alpha} \log \int N(f; m, v) p(y | f)^\alpha df` in several dimensions.

    A power mean over two variables is the power mean over the second of the power means over the
    first. So one latent function after the other is integrated, the first one innermost, each by
    the rule for one, whose nodes are then where the factor is *given* the outer ones: a location
    whose scale is another latent function is found at every scale.

    :param log_prob: :math:`\log p` for F [K, N, L], [K, N].
    :param mean: m [N, L].
    :param variance: v [N, L], positive.
    :param alpha: The power [N].
    :param num_nodes: For each dimension.
    :return: [N]
    """
    num_rows = tf.shape(mean)[0]

    def given(outer: tf.Tensor, dimension: int) -> tf.Tensor:
        """Integrate all up to a dimension out, for outer [K, N, J]."""
        if dimension < 0:
            return log_prob(outer)
        count = tf.shape(outer)[0]

        def rows(values: tf.Tensor) -> tf.Tensor:
            return tf.tile(values[:, None], [count, 1])

        def factor(f: tf.Tensor) -> tf.Tensor:
            nodes = tf.shape(f)[0]
            own = tf.reshape(f, [nodes * count, num_rows, 1])
            F = tf.concat([own, tf.tile(outer, [nodes, 1, 1])], axis=2)
            return tf.reshape(given(F, dimension - 1), tf.shape(f))

        moments = rows(mean[:, dimension]), rows(variance[:, dimension])
        power = rows(alpha)
        scalar = _factor_with_peaks(factor, *moments, power, num_nodes)
        return tf.reshape(integrate(scalar, *moments, power), [count, num_rows])

    nothing = tf.zeros([1, num_rows, 0], mean.dtype)
    return given(nothing, int(mean.shape[1]) - 1)[0]


@implementations.register(HeteroskedasticTFPConditional)
def _heteroscedastic(
    likelihood: HeteroskedasticTFPConditional,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    kind = type(likelihood.conditional_distribution(Fmu))
    if kind is not tfp.distributions.Normal:
        return _nested_rule(likelihood, X, Fmu, Fvar, Y, alpha)
    # Gaussian noise: given the second latent function the integral over the first is in closed
    # form, and the power mean over both is the power mean over the second of its logarithm.
    mean, variance, power = Fmu[:, :1], Fvar[:, :1], alpha[:, None]

    def log_prob(f: tf.Tensor) -> tf.Tensor:
        noise: Any = likelihood.scale_transform(f) ** 2
        noise = tf.clip_by_value(noise, _smallest(f), 1.0 / _smallest(f))
        return gaussian_log_power_expectation(mean, variance, Y, noise, power)

    error = tf.stop_gradient(tf.abs(Y - mean) + tf.sqrt(variance) + _smallest(Y))
    ones = tf.ones_like(Y)
    # Where the error's square over the noise, times the power, is 1.
    place = tf.math.log(error) + 0.5 * tf.math.log(power + _smallest(Y))
    factor = ScalarFactor(log_prob, [Core(place, ones, 3.0 * ones)], num_nodes=128)
    return tf.squeeze(integrate(factor, Fmu[:, 1:], Fvar[:, 1:], power), axis=-1)


def _factor_with_peaks(
    log_prob: Function, mean: tf.Tensor, variance: tf.Tensor, alpha: tf.Tensor, num_nodes: int
) -> ScalarFactor:
    """Make a factor of which nothing is known: its structure is where it has its peak."""
    mean, deviation = tf.stop_gradient(mean), tf.sqrt(tf.stop_gradient(variance))
    tilted = _peak(log_prob, mean, deviation, alpha)
    untempered = _peak(log_prob, mean, deviation, tf.ones_like(alpha))
    shift = (tilted.centre - mean) / deviation
    # A peak within the Gaussian's bulk needs nodes, but no other Gaussian.
    shift = tf.where(tf.abs(shift) > _BULK, shift, tf.zeros_like(shift))
    mode = Mode(per_power(shift, alpha * deviation), None)
    return ScalarFactor(log_prob, [tilted, untempered], lambda *_: mode, num_nodes=num_nodes)


def _peak(log_prob: Function, mean: tf.Tensor, deviation: tf.Tensor, alpha: tf.Tensor) -> Core:
    """Zoom in on the peak of the Gaussian times the factor to the power, to within its width."""
    fraction = tf.reshape(tf.linspace(tf.zeros([], mean.dtype), 1.0, _ZOOM_NODES), [-1, 1, 1])

    def zoom(
        middle: tf.Tensor, reach: tf.Tensor, _: tf.Tensor, __: tf.Tensor
    ) -> "tuple[tf.Tensor, ...]":
        x = middle + reach * (2.0 * fraction - 1.0)
        values = alpha * log_prob(mean + deviation * x) - 0.5 * x * x
        best = tf.argmax(values, axis=0)
        hot = tf.one_hot(best, _ZOOM_NODES, axis=0, dtype=x.dtype)
        at_end = (best == 0) | (best == _ZOOM_NODES - 1)
        left, right = (tf.reduce_sum(tf.roll(hot, by, axis=0) * values, axis=0) for by in (-1, 1))
        drop = tf.reduce_max(values, axis=0) - tf.minimum(left, right)
        step = 2.0 * reach / (_ZOOM_NODES - 1.0)
        finer = at_end | (drop > 0.5) | (step > 1.0)
        width = step * tf.math.rsqrt(2.0 * tf.maximum(drop, _LEAST_DROP))
        centre = tf.reduce_sum(hot * x, axis=0)
        reach = tf.where(finer, tf.where(at_end, reach, step), reach)
        return tf.where(finer, centre, middle), reach, finer, tf.minimum(width, 1.0)

    # What a factor gains far away may outweigh the Gaussian's loss: look there first.
    ladder = tf.constant(np.sinh(np.linspace(-_LADDER, _LADDER, _RUNGS))[:, None, None], mean.dtype)
    heights = alpha * log_prob(mean + deviation * ladder) - 0.5 * ladder * ladder
    start = tf.gather(ladder[:, 0, 0], tf.argmax(heights, axis=0))
    ones = tf.ones_like(mean)
    middle, _, _, width = tf.while_loop(
        lambda middle, reach, finer, width: tf.reduce_any(finer),
        zoom,
        (start, 1.0 + tf.abs(start), tf.ones_like(mean, tf.bool), ones),
        maximum_iterations=_ZOOM_ROUNDS,
    )
    centre, width = (
        tf.stop_gradient(part) for part in (mean + deviation * middle, deviation * width)
    )
    return Core(centre, width, _PEAK_EXTENT * width)


def _smallest(like: tf.Tensor) -> float:
    return float(np.finfo(like.dtype.as_numpy_dtype).tiny) ** 0.25
