"""Several latent functions for one target, heteroscedastic noise above all."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.likelihoods import (
    HeteroskedasticTFPConditional,
    MultiLatentTFPConditional,
    QuadratureLikelihood,
)
from tensorflow import Tensor

from ..checks import refusal
from ..ops.quadrature import Structure
from .gaussian import gaussian_log_power_expectation
from .generic import ScalarFactor, integrate
from .moments import implementations
from .nested import PLACINGS, Placing, nested_log_power_expectation
from .numeric import bounded, is_resolved, smallest
from .support import Traits, any_number, support, traits


@implementations.register(QuadratureLikelihood)
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
        remedy = "Register your own rule for it with gpflow_pep.tilted.implementations.register."
        raise refusal("likelihood", got, expected, remedy)

    def integrate_rows(rows: Sequence[Tensor], placing: Placing) -> tuple[Tensor, Tensor]:
        """Integrate some rows, and say which ones are resolved."""
        X, mean, variance, Y, power = rows
        log_prob = bounded(lambda F: likelihood.log_prob(X, F, Y))
        value, low, high = nested_log_power_expectation(log_prob, mean, variance, power, placing)
        return value, is_resolved(value, value + (high - low), placing.tolerance)

    quick, careful = PLACINGS[num_latent]
    rows = X, Fmu, Fvar, Y, tf.broadcast_to(alpha, tf.shape(Fmu)[:1])
    value, is_enough = integrate_rows(rows, quick)
    index = tf.where(~is_enough)  # mostly none
    others, is_enough = integrate_rows([tf.gather(row, index[:, 0]) for row in rows], careful)
    others = tf.where(is_enough, others, tf.constant(np.nan, value.dtype))
    return tf.tensor_scatter_nd_update(value, index, others)


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
