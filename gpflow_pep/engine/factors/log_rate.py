r"""Poisson, Exponential and Gamma, with a log rate or log scale that is linear in f,
and with other links.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.likelihoods import Exponential, Gamma, Poisson
from tensorflow import Tensor

from ..numerics.quadrature import Mode, Structure
from .generic import ScalarFactor, bounded_log, rounding_of
from .moments import Support, Traits, scalar_factor, support, traits, whole_numbers
from .targets import moments_by_rate

Link = Callable[[Tensor], Tensor]


def bounded_exp(x: Tensor) -> Tensor:
    """Compute an exponential that stays finite. Beyond a value that leaves room for
    squares and sums it continues linearly for a while, so that its derivatives stay
    large.
    """
    largest = 0.45 * np.log(np.finfo(x.dtype.as_numpy_dtype).max)
    # The linear part continues up to 1e4 beyond the largest exponential. Its values
    # leave room in single precision too.
    rest = tf.clip_by_value(x - largest, 0.0, 1e4)
    return tf.exp(tf.minimum(x, largest)) * (1.0 + rest)


def exponential_family_factor(
    invlink: Link, a: Tensor, b: Tensor, constant: Tensor, sign: float, alpha: Tensor
) -> ScalarFactor:
    r"""
    Make the factor :math:`\log p = a u - b e^u + c`; :math:`e^{\pm u}` is the inverse
    link of f.

    If the link is the exponential function, the factor is a slope and then a wall.
    """
    if invlink is not tf.exp:
        return _by_link(invlink, a, b, constant, sign)
    A = alpha * a
    B = alpha * b
    log_b = bounded_log(b)
    log_B = bounded_log(B)
    present = tf.cast(b > 0.0, b.dtype)
    width = 1.0 / tf.sqrt(1.0 + A)

    def log_prob(f: Tensor) -> Tensor:
        return a * (sign * f) - present * bounded_exp(sign * f + log_b) + constant

    def mode(mean: Tensor, variance: Tensor) -> Mode:
        # u = m + A v - w, where w = B v exp(u) solves w + log(w) = log(B v) + m + A v.
        log_Bv = log_B + tf.math.log(variance)
        target = log_Bv + sign * mean + A * variance
        log_w = tf.where(target < 1.0, target, tf.math.log(tf.maximum(target, 1.0)))
        for _ in range(8):
            w = tf.exp(log_w)
            log_w = log_w - (w + log_w - target) / (w + 1.0)
        slope = sign * (a - present * bounded_exp(log_w - log_Bv + log_b))
        return Mode(slope, tf.sqrt(variance / (1.0 + tf.exp(log_w))))

    def exact(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        # The limit of small powers, E[log p], is used if a bound of alpha Var[log p] is
        # a rounding error.
        rate = present * bounded_exp(sign * mean + 0.5 * variance + log_b)
        square = present * bounded_exp(2.0 * (sign * mean + variance + log_b))
        limit = a * (sign * mean) - rate + constant
        spread = 2.0 * (a**2 * variance + square)
        # Without the term of first order in alpha, the derivative in a small variance
        # would be wrong.
        at_mean = present * bounded_exp(sign * mean + log_b)
        first = 0.5 * alpha * variance * tf.square(a - at_mean)
        return (
            alpha * spread <= rounding_of(mean) * (1.0 + tf.abs(limit)),
            limit + first,
        )

    edge = tf.math.log1p(A) - log_B
    wall = Structure(sign * (edge + 1.5 * width), width, 2.5 * width)
    return ScalarFactor(log_prob, [wall], mode, exact=exact)


def log_of_link(invlink: Link, f: Tensor) -> Tensor:
    """Compute a finite log(invlink(f)), for softplus also if its value rounds to 0."""
    value = bounded_log(invlink(f))
    if any(invlink is softplus for softplus in (tf.nn.softplus, tf.math.softplus)):
        # Below this, softplus(f) equals exp(f) to all digits.
        return tf.where(f < -40.0, f, value)
    return value


def _by_link(
    invlink: Link, a: Tensor, b: Tensor, constant: Tensor, sign: float
) -> ScalarFactor:
    def log_prob(f: Tensor) -> Tensor:
        log_link = log_of_link(invlink, f)
        rate = invlink(f) if sign > 0.0 else bounded_exp(-log_link)
        return sign * a * log_link - b * rate + constant

    ones = tf.ones_like(a)
    return ScalarFactor(log_prob, [Structure(tf.zeros_like(a), ones, 3.0 * ones)])


@scalar_factor.register(Poisson)
def _poisson(likelihood: Poisson, X: Tensor, Y: Tensor, alpha: Tensor) -> ScalarFactor:
    binsize = tf.cast(likelihood.binsize, Y.dtype)
    constant = -tf.math.lgamma(Y + 1.0) + Y * tf.math.log(binsize)
    bins = binsize * tf.ones_like(Y)
    return exponential_family_factor(likelihood.invlink, Y, bins, constant, 1.0, alpha)


@scalar_factor.register(Exponential)
def _exponential(
    likelihood: Exponential, X: Tensor, Y: Tensor, alpha: Tensor
) -> ScalarFactor:
    ones = tf.ones_like(Y)
    zeros = tf.zeros_like(Y)
    return exponential_family_factor(likelihood.invlink, ones, Y, zeros, -1.0, alpha)


@scalar_factor.register(Gamma)
def _gamma(likelihood: Gamma, X: Tensor, Y: Tensor, alpha: Tensor) -> ScalarFactor:
    shape = likelihood._shape(X) * tf.ones_like(Y)
    # xlogy is not used, because its derivative in the first argument is 0 if this
    # argument is 0.
    constant = (shape - 1.0) * bounded_log(Y) - tf.math.lgamma(shape)
    return exponential_family_factor(
        likelihood.invlink, shape, Y, constant, -1.0, alpha
    )


support.register(Poisson)(lambda likelihood, Y: whole_numbers(Y, np.inf))


@support.register(Exponential)
def _not_negative(likelihood: Exponential | Gamma, Y: AnyNDArray) -> Support:
    return Support(np.isfinite(Y) & (Y >= 0), "numbers from 0")


@support.register(Gamma)
def _positive(likelihood: Gamma, Y: AnyNDArray) -> Support:
    # At 0 the density is 0 or infinite for every shape except 1, and a trained shape
    # changes.
    shape = likelihood.shape
    if not getattr(shape, "trainable", True) and bool(np.all(np.asarray(shape) == 1.0)):
        return _not_negative(likelihood, Y)
    inside = np.isfinite(Y) & (Y > 0)
    return Support(inside, "numbers above 0, or from 0 if shape is fixed at 1,")


@traits.register(Poisson)
def _poisson_traits(likelihood: Poisson) -> Traits:
    def draw(X: AnyNDArray, f: AnyNDArray, random: np.random.Generator) -> AnyNDArray:
        rate = np.asarray(likelihood.invlink(f)) * np.asarray(likelihood.binsize)
        return random.poisson(rate).astype(np.float64)

    return _rate_traits(
        likelihood, lambda X: (likelihood.binsize, likelihood.binsize, 0.0), draw
    )


def _rate_traits(
    likelihood: Any, coefficients: Callable[[TensorType], Any], draw: Any = None
) -> Traits:
    def predict(X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
        return moments_by_rate(Fmu, Fvar, *coefficients(X))

    return Traits(
        starts_at_high_powers=True,
        follows_wider_priors=True,
        draw=draw,
        predict=predict if likelihood.invlink is tf.exp else None,
    )


traits.register(Exponential)(lambda rate: _rate_traits(rate, lambda X: (1.0, 0.0, 1.0)))
traits.register(Gamma)(
    lambda g: _rate_traits(g, lambda X: (g._shape(X), 0.0, g._shape(X)))
)
