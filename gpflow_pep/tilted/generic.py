r"""The one rule for likelihoods whose rows have one latent function for each target."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.likelihoods import ScalarLikelihood

from ..ops.power import log_power_mean
from ..ops.quadrature import NUM_NODES, Core, Mode, search_mode, stretched_nodes
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

    mode: Callable[[tf.Tensor, tf.Tensor], Mode] | None = None
    """The tilted mode from mean and variance; None to search for it."""

    mean_prob: MeanAndVariance | None = None
    r""":math:`E[p]` in closed form, for p that is bounded away from 0 (and mode ``no_tilt``)."""

    weak: Callable[[tf.Tensor, tf.Tensor], Weak] | None = None
    r"""The limit :math:`\alpha \to 0` in closed form, for :math:`\log p` that grows fast."""

    num_nodes: int = NUM_NODES
    """Nodes of the rule."""


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
    nodes = stretched_nodes(mean, variance, alpha, factor.cores, mode, factor.num_nodes)
    log_prob = factor.log_prob(nodes.f)
    if factor.mean_prob is not None:
        # What the rule misses of E[p], in full at alpha = 1, where the closed form is what is left.
        by_rule = tf.reduce_sum(nodes.weights * tf.exp(log_prob), axis=0)
        missed = tf.math.log(factor.mean_prob(mean, variance)) - tf.math.log(by_rule)
        return log_power_mean(log_prob, nodes.weights, alpha) + alpha * missed
    slope = tf.stop_gradient(mode.slope)
    integral = 0.5 * (alpha * slope * variance) * slope + log_power_mean(
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
def scalar_log_power_expectation(
    likelihood: ScalarLikelihood,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
) -> tf.Tensor:
    """Sum what :func:`integrate` gives for the factor of the likelihood over columns."""
    make_factor = scalar_factor.dispatch_or_raise(type(likelihood))
    factor = make_factor(likelihood, X, Y, alpha[:, None])
    return tf.reduce_sum(integrate(factor, Fmu, Fvar, alpha[:, None]), axis=-1)
