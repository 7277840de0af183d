"""Several latent functions for one target, heteroscedastic noise above all."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.likelihoods import (
    HeteroskedasticTFPConditional,
    MultiLatentLikelihood,
    MultiLatentTFPConditional,
)
from tensorflow import Tensor

from ..checks import refusal
from ..ops.quadrature import Structure
from .gaussian import gaussian_log_power_expectation
from .generic import Function, ScalarFactor, find_narrow, integrate, place
from .moments import implementations
from .numeric import bounded, factor_with_peaks, is_resolved, smallest
from .support import Traits, any_number, support, traits

#: Nodes in each dimension, by the number of dimensions.
_NESTED_NODES = {1: 128, 2: 80, 3: 32}


@implementations.register(MultiLatentLikelihood)
def _nested_rule(
    likelihood: MultiLatentLikelihood,
    X: Tensor,
    Fmu: Tensor,
    Fvar: Tensor,
    Y: Tensor,
    alpha: Tensor,
) -> Tensor:
    if likelihood.latent_dim not in _NESTED_NODES:
        got = f"{type(likelihood).__name__} with {likelihood.latent_dim} latent functions"
        expected = f"at most {max(_NESTED_NODES)} for nested quadrature"
        remedy = "Register your own rule for it with gpflow_pep.tilted.implementations.register."
        raise refusal("likelihood", got, expected, remedy)

    log_prob = bounded(lambda F: likelihood.log_prob(X, F, Y))
    value, by_half = nested_log_power_expectation(
        log_prob, Fmu, Fvar, alpha, _NESTED_NODES[likelihood.latent_dim]
    )
    return tf.where(is_resolved(value, by_half), value, tf.constant(np.nan, value.dtype))


class NestedIntegral(NamedTuple):
    """An integral by two rules."""

    value: Tensor
    """[N], by all nodes."""

    by_half: Tensor
    """[N], by every second node in each dimension, and a constant for differentiation; see
    :mod:`gpflow_pep.tilted.numeric`."""


def nested_log_power_expectation(
    log_prob: Function, mean: Tensor, variance: Tensor, alpha: Tensor, num_nodes: int
) -> NestedIntegral:
    r"""
    Compute :math:`\frac{1}{\alpha} \log \int N(f; m, v) p(y | f)^\alpha df` in several dimensions.

    A power mean over two variables is the power mean over the second of the power means over the
    first. So one latent function after the other is integrated, the first one innermost, each by
    the rule for one, whose nodes are then where the factor is *given* the outer ones: a location
    whose scale is another latent function is found at every scale.

    :param log_prob: :math:`\log p` for F [K, N, L], [K, N].
    """
    num_rows = tf.shape(mean)[0]
    alpha = tf.broadcast_to(alpha, [num_rows])

    def integrate_inner(outer: Tensor, dimension: int) -> NestedIntegral:
        """Integrate all up to a dimension out, for outer [K, N, J]."""
        if dimension < 0:
            values = log_prob(outer)
            return NestedIntegral(values, values)
        count = tf.shape(outer)[0]

        def rows(values: Tensor) -> Tensor:
            return tf.tile(values[:, None], [count, 1])

        def factor(f: Tensor) -> NestedIntegral:
            nodes = tf.shape(f)[0]
            f_of_rows = tf.reshape(f, [nodes * count, num_rows, 1])
            F = tf.concat([f_of_rows, tf.tile(outer, [nodes, 1, 1])], axis=2)
            inner = integrate_inner(F, dimension - 1)
            return NestedIntegral(*(tf.reshape(part, tf.shape(f)) for part in inner))

        narrow_rows = find_narrow(rows(variance[:, dimension]))
        moments, power = (rows(mean[:, dimension]), narrow_rows.wider), rows(alpha)
        scalar = factor_with_peaks(lambda f: factor(f).value, *moments, power, num_nodes)
        rule = place(scalar, *moments, power)
        inner = factor(rule.nodes.f)
        value = rule.mean(inner.value, power)
        by_half = rule.mean(inner.by_half, power, stride=2)
        density = factor(moments[0][None])
        value = narrow_rows.between(density.value[0], value)
        by_half = tf.stop_gradient(narrow_rows.between(density.by_half[0], by_half))
        return NestedIntegral(*(tf.reshape(part, [count, num_rows]) for part in (value, by_half)))

    no_values = tf.zeros([1, num_rows, 0], mean.dtype)
    value, by_half = integrate_inner(no_values, int(mean.shape[1]) - 1)
    return NestedIntegral(value[0], by_half[0])


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
