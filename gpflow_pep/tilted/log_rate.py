r"""Poisson, Exponential and Gamma: a log rate or log scale that is linear in f, and other links."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Exponential, Gamma, Poisson
from tensorflow import Tensor

from ..ops.quadrature import Mode, Structure
from .generic import ScalarFactor, SmallPower
from .moments import scalar_factor
from .support import Support, support, whole_numbers
from .traits import Traits, traits

_NEWTON_STEPS = 8
#: Left of it softplus(f) is exp(f) to all digits.
_SOFTPLUS_IS_EXP = -40.0

Link = Callable[[Tensor], Tensor]


def _bounded_exp(x: Tensor) -> Tensor:
    """exp, but finite: its largest value leaves room for sums and factors."""
    largest = np.log(np.finfo(x.dtype.as_numpy_dtype).max)
    return tf.exp(tf.minimum(x, 0.85 * largest))


def _bounded_log(x: Tensor) -> Tensor:
    """log, but finite at 0."""
    return tf.math.log(tf.maximum(x, np.finfo(x.dtype.as_numpy_dtype).tiny))


def exponential_family_factor(
    a: Tensor, b: Tensor, constant: Tensor, sign: float, alpha: Tensor
) -> ScalarFactor:
    r"""
    Make the factor :math:`\log p = a u - b e^u + c` with :math:`u = \pm f`: a slope, then a wall.
    """
    A, B = alpha * a, alpha * b
    log_b, log_B = _bounded_log(b), _bounded_log(B)
    present = tf.cast(b > 0.0, b.dtype)
    width = 1.0 / tf.sqrt(1.0 + A)

    def log_prob(f: Tensor) -> Tensor:
        return a * (sign * f) - present * _bounded_exp(sign * f + log_b) + constant

    def mode(mean: Tensor, variance: Tensor) -> Mode:
        # u = m + A v - w, where w = B v exp(u) solves w + log(w) = log(B v) + m + A v.
        log_Bv = log_B + tf.math.log(variance)
        target = log_Bv + sign * mean + A * variance
        log_w = tf.where(target < 1.0, target, tf.math.log(tf.maximum(target, 1.0)))
        for _ in range(_NEWTON_STEPS):
            w = tf.exp(log_w)
            log_w = log_w - (w + log_w - target) / (w + 1.0)
        slope = sign * (a - present * _bounded_exp(log_w - log_Bv + log_b))
        return Mode(slope, tf.sqrt(variance / (1.0 + tf.exp(log_w))))

    def small_power(mean: Tensor, variance: Tensor) -> SmallPower:
        rate = present * _bounded_exp(sign * mean + 0.5 * variance + log_b)
        square = present * _bounded_exp(2.0 * (sign * mean + variance + log_b))
        return SmallPower(a * (sign * mean) - rate + constant, 2.0 * (a**2 * variance + square))

    edge = tf.math.log1p(A) - log_B
    wall = Structure(sign * (edge + 1.5 * width), width, 2.5 * width)
    return ScalarFactor(log_prob, [wall], mode, small_power=small_power)


def _log_of_link(invlink: Link, f: Tensor) -> Tensor:
    """log(invlink(f)), finite; for softplus also where its value rounds to 0."""
    value = _bounded_log(invlink(f))
    if any(invlink is softplus for softplus in (tf.nn.softplus, tf.math.softplus)):
        return tf.where(f < _SOFTPLUS_IS_EXP, f, value)
    return value


def _unknown_link_structure(Y: Tensor) -> Structure:
    return Structure(tf.zeros_like(Y), tf.ones_like(Y), 3.0 * tf.ones_like(Y))


@scalar_factor.register(Poisson)
def _poisson(likelihood: Poisson, X: Tensor, Y: Tensor, alpha: Tensor) -> ScalarFactor:
    binsize = tf.cast(likelihood.binsize, Y.dtype)
    constant = -tf.math.lgamma(Y + 1.0)
    if likelihood.invlink is tf.exp:
        constant = constant + Y * tf.math.log(binsize)
        return exponential_family_factor(Y, binsize * tf.ones_like(Y), constant, 1.0, alpha)

    def log_prob(f: Tensor) -> Tensor:
        log_rate = _log_of_link(likelihood.invlink, f) + tf.math.log(binsize)
        return Y * log_rate - likelihood.invlink(f) * binsize + constant

    return ScalarFactor(log_prob, [_unknown_link_structure(Y)])


@scalar_factor.register(Exponential)
def _exponential(likelihood: Exponential, X: Tensor, Y: Tensor, alpha: Tensor) -> ScalarFactor:
    return _scaled_gamma(likelihood.invlink, tf.ones_like(Y), tf.zeros_like(Y), Y, alpha)


@scalar_factor.register(Gamma)
def _gamma(likelihood: Gamma, X: Tensor, Y: Tensor, alpha: Tensor) -> ScalarFactor:
    shape = likelihood._shape(X) * tf.ones_like(Y)
    # Not xlogy, whose derivative in its first argument is 0 where that is 0.
    constant = (shape - 1.0) * _bounded_log(Y) - tf.math.lgamma(shape)
    return _scaled_gamma(likelihood.invlink, shape, constant, Y, alpha)


def _scaled_gamma(
    invlink: Link, shape: Tensor, constant: Tensor, Y: Tensor, alpha: Tensor
) -> ScalarFactor:
    if invlink is tf.exp:
        return exponential_family_factor(shape, Y, constant, -1.0, alpha)

    def log_prob(f: Tensor) -> Tensor:
        log_scale = _log_of_link(invlink, f)
        return constant - shape * log_scale - Y * _bounded_exp(-log_scale)

    return ScalarFactor(log_prob, [_unknown_link_structure(Y)])


@support.register(Poisson)
def _counts(likelihood: Poisson, Y: AnyNDArray) -> Support:
    return whole_numbers(Y, np.inf)


@support.register(Exponential)
def _not_negative(likelihood: Exponential, Y: AnyNDArray) -> Support:
    return Support(np.isfinite(Y) & (Y >= 0), "numbers from 0")


@support.register(Gamma)
def _positive(likelihood: Gamma, Y: AnyNDArray) -> Support:
    # At 0 the density is 0 or infinite for every shape but 1; a shape that is trained moves.
    shape = likelihood.shape
    if not getattr(shape, "trainable", True) and bool(np.all(np.asarray(shape) == 1.0)):
        return Support(np.isfinite(Y) & (Y >= 0), "numbers from 0")
    inside = np.isfinite(Y) & (Y > 0)
    return Support(inside, "numbers above 0, or from 0 if shape is fixed at 1,")


@traits.register(Poisson)
def _poisson_traits(likelihood: Poisson) -> Traits:
    def draw(X: AnyNDArray, f: AnyNDArray, random: np.random.Generator) -> AnyNDArray:
        rate = np.asarray(likelihood.invlink(f)) * np.asarray(likelihood.binsize)
        return random.poisson(rate).astype(np.float64)

    return Traits(starts_at_high_powers=True, draw=draw)


@traits.register(Exponential)
@traits.register(Gamma)
def _waiting_time_traits(likelihood: Exponential | Gamma) -> Traits:
    return Traits(starts_at_high_powers=True)
