r"""The one rule for likelihoods whose rows have one latent function for each target."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from ..numerics.power import log_power_mean
from ..numerics.quadrature import NUM_NODES, Mode, Nodes, Structure, search_mode, stretched_nodes

Function = Callable[[Tensor], Tensor]
MeanAndVariance = Callable[[Tensor, Tensor], Tensor]


class ScalarFactor(NamedTuple):
    r"""
    A factor :math:`p(y | f)` of each row and column, and what is known about it beforehand.

    Register a function ``(likelihood, X, Y, alpha [N, 1]) -> ScalarFactor`` with
    ``gpflow_pep.likelihoods.scalar_factor`` for a likelihood of your own.
    """

    log_prob: Function
    r""":math:`\log p(y | f)` for f [Q, N, P]: finite wherever f is."""

    structures: Sequence[Structure]
    r"""Where :math:`\log p`, to the power :math:`\alpha`, varies fast."""

    mode: Callable[[Tensor, Tensor], Mode] | None = None
    """The tilted mode from mean and variance; None to search for it."""

    mean_prob: MeanAndVariance | None = None
    r""":math:`E[p]` in closed form, for p that is bounded away from 0 (and mode ``no_tilt``)."""

    exact: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    r"""Where the integral has a closed form, bool [N, P], and what it is there; from mean and
    variance."""

    num_nodes: int = NUM_NODES
    """Nodes of the rule."""


class Rule(NamedTuple):
    r"""Nodes for the tilted integral of one factor."""

    nodes: Nodes

    slope: Tensor
    """[N, P], of the mode, see :class:`~gpflow_pep.engine.numerics.quadrature.Mode`."""

    offset: Tensor
    """[N, P], what is added to the power mean over the nodes, because these are moved."""

    def mean(self, log_prob: Tensor, alpha: Tensor, stride: int = 1) -> Tensor:
        r"""
        Compute the integral, [N, P].

        :param stride: 2 for every second node, which is the rule of half as many.
        """
        weights = self.nodes.weights[::stride]
        if stride > 1:
            weights /= tf.reduce_sum(weights, axis=0)
        values = (log_prob - self.slope * self.nodes.offset)[::stride]
        return self.offset + log_power_mean(values, weights, alpha)


def place(factor: ScalarFactor, mean: Tensor, variance: Tensor, alpha: Tensor) -> Rule:
    """Place the nodes for a factor."""
    if factor.mode is not None:
        mode = factor.mode(tf.stop_gradient(mean), tf.stop_gradient(variance))
    else:
        mode = search_mode(factor.log_prob, mean, variance, alpha, factor.structures)
    nodes = stretched_nodes(mean, variance, alpha, factor.structures, mode, factor.num_nodes)
    slope = tf.stop_gradient(mode.slope)
    return Rule(nodes, slope, 0.5 * (alpha * slope * variance) * slope)


class Narrow(NamedTuple):
    r"""
    Rows whose Gaussian is so narrow beside :math:`\log p` that rounding outweighs its variance.

    There the integral is linear in the variance, from the density itself at 0 to where nodes can
    tell values apart:
    :math:`\ell = \log p(m) + \tfrac{v}{2} (\log p'' + \alpha (\log p')^2) + O(v^2)`.
    """

    rows: Tensor
    """[N, P], which they are."""

    variance: Tensor
    """[N, P], theirs, and 0 for others."""

    wider: Tensor
    """[N, P], a variance that nodes can tell from 0, and that of the other rows."""

    def between(self, log_prob: Tensor, integral: Tensor) -> Tensor:
        """Go from the density at the mean to the integral over the wider Gaussian."""
        part = self.variance / self.wider
        return tf.where(self.rows, log_prob + part * (integral - log_prob), integral)


def find_narrow(variance: Tensor, scale: Tensor | float = 1.0) -> Narrow:
    r"""
    Find the rows of which a rule for the Gaussian would give rounding errors or, at 0, nothing.

    :param scale: Over which :math:`\log p` varies.
    """
    rounding = rounding_of(variance)
    square = tf.stop_gradient(tf.square(tf.convert_to_tensor(scale, variance.dtype)))
    rows = variance < rounding * square
    wider = tf.where(rows, rounding**0.5 * square, variance)
    return Narrow(rows, tf.where(rows, variance, 0.0), wider)


def integrate(factor: ScalarFactor, mean: Tensor, variance: Tensor, alpha: Tensor) -> Tensor:
    r"""Compute :math:`\frac{1}{\alpha} \log \int N(f; m, v) p(y|f)^\alpha df`, [N, P]."""
    scales = [structure.resolution + tf.zeros_like(mean) for structure in factor.structures]
    rows = find_narrow(variance, tf.reduce_min(scales, axis=0) if scales else 1.0)
    integral = _by_rule(factor, mean, rows.wider, alpha)
    integral = rows.between(factor.log_prob(mean[None])[0], integral)
    return integral if factor.exact is None else tf.where(*factor.exact(mean, variance), integral)


def _by_rule(factor: ScalarFactor, mean: Tensor, variance: Tensor, alpha: Tensor) -> Tensor:
    rule = place(factor, mean, variance, alpha)
    nodes, log_prob = rule.nodes, factor.log_prob(rule.nodes.f)
    if factor.mean_prob is not None:
        # What the rule misses of E[p], in full at alpha = 1, where the closed form is what is left.
        by_rule = tf.reduce_sum(nodes.weights * tf.exp(log_prob), axis=0)
        missed = tf.math.log(factor.mean_prob(mean, variance)) - tf.math.log(by_rule)
        return log_power_mean(log_prob, nodes.weights, alpha) + alpha * missed
    return rule.mean(log_prob, alpha)


def rounding_of(like: Tensor) -> Any:
    """Give the epsilon of a tensor's float."""
    return np.finfo(like.dtype.as_numpy_dtype).eps


def bounded_log(x: Tensor) -> Tensor:
    """Compute the logarithm, but finite at 0."""
    return tf.math.log(tf.maximum(x, np.finfo(x.dtype.as_numpy_dtype).tiny))
