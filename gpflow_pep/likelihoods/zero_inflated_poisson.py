"""Counts with more zeros than Poisson's."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.utilities import to_default_float
from tensorflow import Tensor

from ..engine.checks import check_real
from ..engine.factors import ScalarFactor, Traits, scalar_factor, support, traits
from ..engine.factors.log_rate import bounded_exp, exponential_family_factor
from ..engine.factors.support import whole_numbers
from ..engine.factors.targets import moments_by_rate
from ..engine.numerics.quadrature import Mode, Structure
from .integrated import LikelihoodWithMoments

#: The zero probability stays so far from 0 and 1; a smaller one shows in a million rows only.
_MARGIN = 1e-6


class ZeroInflatedPoisson(LikelihoodWithMoments):
    r"""
    Counts of what often cannot occur at all: 0 with probability :math:`\pi`, otherwise Poisson's.

    .. math::

       p(0 | f) = \pi + (1 - \pi) e^{-\lambda}, \qquad
       p(y | f) = (1 - \pi) \frac{\lambda^y e^{-\lambda}}{y!} \quad (y > 0), \qquad
       \lambda = e^f

    (Lambert, *Zero-inflated Poisson regression*, Technometrics 34, 1992, with one :math:`\pi` for
    all rows).
    """

    def __init__(self, zero_probability: float = 0.2, **kwargs: Any) -> None:
        r"""
        :param zero_probability: :math:`\pi`, in (1e-6, 1 - 1e-6); a trainable parameter.
        :raises ValueError: If it is outside its range.
        """
        super().__init__(**kwargs)
        check_real(
            "zero_probability",
            float(zero_probability),
            f"({_MARGIN}, {1.0 - _MARGIN})",
            "Without zeros of its own use gpflow.likelihoods.Poisson.",
        )
        low, high = (to_default_float(end) for end in (_MARGIN, 1.0 - _MARGIN))
        transform = tfp.bijectors.Sigmoid(low, high)
        self.zero_probability = Parameter(zero_probability, transform=transform)

    def _moments(self, X: TensorType, mean: Tensor, variance: Tensor) -> MeanAndVariance:
        rest = 1.0 - self.zero_probability
        return moments_by_rate(mean, variance, rest, rest, rest * self.zero_probability)


@scalar_factor.register(ZeroInflatedPoisson)
def _factor(likelihood: ZeroInflatedPoisson, X: Tensor, Y: Tensor, alpha: Tensor) -> ScalarFactor:
    p = tf.cast(likelihood.zero_probability, Y.dtype)
    positive = Y > 0.0
    constant = tf.math.log1p(-p) - tf.math.lgamma(Y + 1.0)
    poisson = exponential_family_factor(tf.exp, Y, tf.ones_like(Y), constant, 1.0, alpha)
    assert poisson.mode is not None and poisson.exact is not None
    mode_of_poisson, limit_of_poisson = poisson.mode, poisson.exact

    def log_prob(f: Tensor) -> Tensor:
        zero = tf.math.log(p + (1.0 - p) * tf.exp(-bounded_exp(f)))
        return tf.where(positive, poisson.log_prob(f), zero)

    def mode(mean: Tensor, variance: Tensor) -> Mode:
        # The probability of 0 is bounded away from 0: there the Gaussian's own mode will do.
        slope, width = mode_of_poisson(mean, variance)
        return Mode(tf.where(positive, slope, 0.0), tf.where(positive, width, tf.sqrt(variance)))

    def exact(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        rows, limit = limit_of_poisson(mean, variance)
        return rows & positive, limit

    (wall,) = poisson.structures
    parts = (tf.where(positive, *pair) for pair in zip(wall, _structure_of_zero(p), strict=True))
    return ScalarFactor(log_prob, [Structure(*parts)], mode, exact=exact)


def _structure_of_zero(p: Tensor) -> Structure:
    r"""
    Find where :math:`\log(p + (1 - p) e^{-e^f})` varies.

    Its nearest complex singularities are at :math:`e^f = \log(1 / p - 1) \pm i \pi`.
    """
    level = tf.math.log1p(-p) - tf.math.log(p)
    centre = 0.5 * tf.math.log(tf.square(level) + np.pi**2)
    angle = tf.math.atan2(tf.constant(np.pi, p.dtype), level)
    return Structure(centre, angle, 1.5 * tf.ones_like(p))


support.register(ZeroInflatedPoisson)(lambda likelihood, Y: whole_numbers(Y, np.inf))


@traits.register(ZeroInflatedPoisson)
def _traits(likelihood: ZeroInflatedPoisson) -> Traits:
    def draw(X: AnyNDArray, f: AnyNDArray, random: np.random.Generator) -> AnyNDArray:
        present = random.random(f.shape) >= np.asarray(likelihood.zero_probability)
        return present * random.poisson(np.exp(f)).astype(np.float64)

    return Traits(starts_at_high_powers=True, draw=draw)
