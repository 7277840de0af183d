"""Several latent functions for one target, heteroscedastic noise above all."""

from collections.abc import Sequence
from typing import Any

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
from ..numerics.quadrature import Structure
from ..prior.evaluate import convert_user_code
from .gaussian import gaussian_log_power_expectation
from .generic import Function, ScalarFactor, integrate
from .moments import implementations
from .nested import (
    EVEN_TOLERANCE,
    PLACINGS,
    Axis,
    Placing,
    even_axes,
    integrate_on_grid,
    placed_axes,
)
from .numeric import bounded, is_resolved, smallest
from .support import Traits, any_number, support, traits
from .targets import expected_moments, integrated_moments


@convert_user_code
def _log_prob(likelihood: QuadratureLikelihood, X: Tensor, F: Tensor, Y: Tensor) -> Tensor:
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
    if num_latent not in PLACINGS:
        got = f"{type(likelihood).__name__} with {num_latent} latent functions"
        expected = f"at most {max(PLACINGS)} for nested quadrature"
        remedy = (
            "Register your own rule for it with gpflow_pep.likelihoods.implementations.register."
        )
        raise refusal("likelihood", got, expected, remedy)

    def log_prob_of(X: Tensor, Y: Tensor) -> Function:
        return bounded(lambda F: _log_prob(likelihood, X, F, Y))

    def integrate_rows(
        rows: Sequence[Tensor], axes: Sequence[Axis], tolerance: float, with_ends: bool
    ) -> tuple[Tensor, Tensor]:
        """Integrate some rows, and say which ones are resolved."""
        X, mean, variance, Y, power = rows
        value, error = integrate_on_grid(
            axes, log_prob_of(X, Y), mean, variance, power, with_ends=with_ends
        )
        return value, is_resolved(value, value + error, tolerance)

    def place(rows: Sequence[Tensor], placing: Placing) -> list[tuple[Tensor, ...]]:
        X, mean, variance, Y, power = rows
        return placed_axes(log_prob_of(X, Y), mean, variance, power, placing)

    if not tf.executing_eagerly():
        place = tf.function(place, autograph=False)  # traced once for all placings
    rows = X, Fmu, Fvar, Y, tf.broadcast_to(alpha, tf.shape(Fmu)[:1])
    value, is_enough = integrate_rows(rows, even_axes(Fvar), EVEN_TOLERANCE, True)
    index = tf.where(~is_enough)  # mostly none
    for placing in PLACINGS[num_latent]:
        others = [tf.gather(row, index[:, 0]) for row in rows]
        placed = place(list(map(tf.stop_gradient, others)), placing.tensors(value.dtype))
        axes = [Axis(*map(tf.stop_gradient, axis)) for axis in placed]
        # A careful search has looked further out than its nodes are.
        with_ends = placing.num_powers == 1
        of_others, is_enough = integrate_rows(others, axes, placing.tolerance, with_ends)
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
    # Gaussian noise: given the second latent function the integral over the first is in closed
    # form, and the power mean over both is the power mean over the second of its logarithm.
    mean, variance, power = Fmu[:, :1], Fvar[:, :1], alpha[:, None]

    def log_prob(f: Tensor) -> Tensor:
        noise: Any = likelihood.scale_transform(f) ** 2
        noise = tf.clip_by_value(noise, smallest(f), 1.0 / smallest(f))
        return gaussian_log_power_expectation(mean, variance, Y, noise, power)

    error = tf.stop_gradient(tf.abs(Y - mean) + tf.sqrt(variance) + smallest(Y))
    ones = tf.ones_like(Y)
    # Where the error's square over the noise, times the power, is 1.
    centre = tf.math.log(error) + 0.5 * tf.math.log(power + smallest(Y))
    factor = ScalarFactor(log_prob, [Structure(centre, ones, 3.0 * ones)], num_nodes=128)
    return tf.squeeze(integrate(factor, Fmu[:, 1:], Fvar[:, 1:], power), axis=-1)


# A distribution of TensorFlow Probability may know better; it is not asked.
for _kind in (MultiLatentTFPConditional, HeteroskedasticTFPConditional):
    support.register(_kind)(any_number)


@traits.register(MultiLatentTFPConditional)
def _traits(likelihood: MultiLatentTFPConditional) -> Traits:
    def draw(X: AnyNDArray, f: AnyNDArray, random: np.random.Generator) -> AnyNDArray:
        seed = random.integers(2**31, size=2).astype(np.int32)
        return np.asarray(likelihood.conditional_distribution(f).sample(seed=seed))[..., 0]

    return Traits(draw=draw)


@traits.register(HeteroskedasticTFPConditional)
def _location_and_scale(likelihood: HeteroskedasticTFPConditional) -> Traits:
    def predict(X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
        if type(likelihood.conditional_distribution(Fmu)) is not tfp.distributions.Normal:
            return integrated_moments(likelihood, X, Fmu, Fvar)

        def given_f(_: Tensor, f: Tensor) -> MeanAndVariance:
            return tf.zeros_like(f), tf.square(likelihood.scale_transform(f))

        _, noise = expected_moments(given_f, X, [Fmu[:, 1:]], [Fvar[:, 1:]])
        return Fmu[:, :1], Fvar[:, :1] + noise

    return _traits(likelihood)._replace(predict=predict, in_units=lambda change, scale: likelihood)
