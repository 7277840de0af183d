r"""The one rule for likelihoods whose rows have one latent function for each target."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import tensorflow as tf
from gpflow.likelihoods import ScalarLikelihood

from ..ops.power import expm1_ratio, log1p_ratio, log_power_mean
from ..ops.quadrature import Core, Mode, search_mode, stretched_nodes
from .dispatch import implementations, scalar_factor

Function = Callable[[tf.Tensor], tf.Tensor]
MeanAndVariance = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class Weak(NamedTuple):
    r"""What a factor is where its power hardly changes the Gaussian."""

    expectation: tf.Tensor
    r""":math:`E[\log p]`, [N, P]: the tilted integral's limit for :math:`\alpha \to 0`."""

    spread: tf.Tensor
    r"""A bound of :math:`\mathrm{Var}[\log p]`, [N, P]."""


class ScalarFactor(NamedTuple):
    r"""
    A factor :math:`p(y | f)` of each row and column, and what is known about it beforehand.

    Register a function ``(likelihood, X, Y, alpha [N, 1]) -> ScalarFactor`` with
    ``gpflow_pep.tilted.scalar_factor`` for a likelihood of your own.
    """

    log_prob: Function
    r""":math:`\log p(y | f)` for f [Q, N, P]: finite wherever f is."""

    cores: Sequence[Core]
    r"""Where :math:`\log p` (to the power :math:`\alpha`) has structure."""

    mode: Optional[Callable[[tf.Tensor, tf.Tensor], Mode]] = None
    """The tilted mode from mean and variance; None to search for it."""

    mean_prob: Optional[MeanAndVariance] = None
    r""":math:`E[p]` in closed form, for p that is bounded away from 0 (and mode ``no_tilt``)."""

    weak: Optional[Callable[[tf.Tensor, tf.Tensor], Weak]] = None
    r"""The limit :math:`\alpha \to 0` in closed form, for :math:`\log p` that grows fast."""


def integrate(
    factor: ScalarFactor, mean: tf.Tensor, variance: tf.Tensor, alpha: tf.Tensor
) -> tf.Tensor:
    r"""
    Compute :math:`\frac{1}{\alpha} \log \int N(f; m, v) p(y|f)^\alpha df`, [N, P].

    :param mean: m [N, P].
    :param variance: v [N, P].
    :param alpha: [N, 1].
    """
    if factor.mode is not None:
        mode = factor.mode(tf.stop_gradient(mean), tf.stop_gradient(variance))
    else:
        mode = search_mode(factor.log_prob, mean, variance, alpha, factor.cores)
    nodes = stretched_nodes(mean, variance, alpha, factor.cores, mode)
    log_prob = factor.log_prob(nodes.f)
    if factor.mean_prob is not None:
        # E[(p^alpha - 1) / alpha], of which the rule sees only what is not E[p] - 1: the result is
        # the closed form at alpha = 1.
        rest = expm1_ratio(log_prob, alpha) - tf.math.expm1(log_prob)
        excess = factor.mean_prob(mean, variance) - 1.0
        return log1p_ratio(excess + tf.reduce_sum(nodes.weights * rest, axis=0), alpha)
    slope = tf.stop_gradient(mode.slope)
    integral = 0.5 * alpha * slope**2 * variance + log_power_mean(
        log_prob - slope * nodes.offset, nodes.weights, alpha
    )
    if factor.weak is not None:
        weak = factor.weak(mean, variance)
        negligible = alpha * weak.spread <= _rounding(mean) * (1.0 + tf.abs(weak.expectation))
        return tf.where(negligible, weak.expectation, integral)
    return integral


def _rounding(like: tf.Tensor) -> Any:
    return tf.experimental.numpy.finfo(like.dtype.as_numpy_dtype).eps


@implementations.register(ScalarLikelihood)
def _scalar_log_power_expectation(
    likelihood: ScalarLikelihood,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    make_factor = scalar_factor.dispatch(type(likelihood))
    factor = make_factor(likelihood, X, Y, alpha[:, None])
    return tf.reduce_sum(integrate(factor, Fmu, Fvar, alpha[:, None]), axis=-1)
