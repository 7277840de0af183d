"""Several latent functions for one target, heteroscedastic noise above all."""

import itertools
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import HeteroskedasticTFPConditional, MultiLatentLikelihood

from ..ops.power import log_power_mean
from ..ops.quadrature import REACH, Core
from .dispatch import implementations
from .gaussian import gaussian_log_power_expectation
from .generic import ScalarFactor, integrate

#: Nodes in each dimension of a product rule, by the number of dimensions.
_PRODUCT_NODES = {1: 129, 2: 65, 3: 27}


@implementations.register(MultiLatentLikelihood)
def _product_rule(
    likelihood: MultiLatentLikelihood,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    if likelihood.latent_dim not in _PRODUCT_NODES:
        raise ValueError(
            f"likelihood: got {type(likelihood).__name__} with {likelihood.latent_dim} latent"
            f" functions, expected at most {max(_PRODUCT_NODES)} for the product rule. Register"
            " your own rule for it with gpflow_pep.tilted.implementations.register."
        )
    grid = np.linspace(-REACH, REACH, _PRODUCT_NODES[likelihood.latent_dim])
    z = np.array(list(itertools.product(grid, repeat=likelihood.latent_dim)))
    weights = np.exp(-0.5 * np.sum(z**2, axis=1))
    weights = tf.constant(weights / np.sum(weights), Fmu.dtype)
    F = Fmu + tf.sqrt(Fvar) * tf.constant(z[:, None, :], Fmu.dtype)
    log_prob = likelihood.log_prob(X, F, Y)
    return log_power_mean(log_prob, tf.broadcast_to(weights[:, None], tf.shape(log_prob)), alpha)


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
        return _product_rule(likelihood, X, Fmu, Fvar, Y, alpha)
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


def _smallest(like: tf.Tensor) -> float:
    return float(np.finfo(like.dtype.as_numpy_dtype).tiny) ** 0.25
