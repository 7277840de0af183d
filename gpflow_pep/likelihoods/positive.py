"""Likelihoods of positive targets: counts that vary more than Poisson's, and prices."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from tensorflow import Tensor

from ..engine.factors import ScalarFactor, Support, Traits
from ..engine.factors.gaussian import gaussian_log_power_expectation
from ..engine.factors.generic import bounded_log
from ..engine.factors.log_rate import (
    log_of_link,
)
from ..engine.factors.moments import whole_numbers
from ..engine.factors.targets import (
    integrated_moments,
    moments_by_rate,
    moments_of_exponential,
)
from ..engine.numerics.quadrature import Mode, Structure
from .integrated import LikelihoodWithMoments, parameter_between


class NegativeBinomial(LikelihoodWithMoments):
    r"""Counts whose variance is larger than their mean.

    .. math::

       p(y | f) = \frac{\Gamma(y + 1 / \phi)}{y! \, \Gamma(1 / \phi)}
                  \frac{(\phi \mu)^y}{(1 + \phi \mu)^{y + 1 / \phi}}, \qquad \mu = g(f)

    with mean :math:`\mu` and variance :math:`\mu + \phi \mu^2`: a Poisson distribution
    whose rate has a gamma distribution around :math:`\mu`. As the dispersion
    :math:`\phi` tends to 0 it becomes Poisson's.
    """

    def __init__(
        self,
        dispersion: float = 1.0,
        invlink: Callable[[Tensor], Tensor] = tf.exp,
        **kwargs: Any,
    ) -> None:
        r""":param dispersion: The dispersion :math:`\phi`, above 1e-6; a trainable
        parameter.
        :param invlink: The inverse link g; integrals are fastest with ``tf.exp``.
        :raises ValueError: If the dispersion is outside its range.
        """
        super().__init__(**kwargs)
        remedy = (
            "For counts whose variance is their mean use gpflow.likelihoods.Poisson."
        )
        self.dispersion = parameter_between(
            1e-6, "dispersion", dispersion, np.inf, remedy
        )
        self.invlink = invlink

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> Tensor:
        return self.invlink(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> Tensor:
        mean = self.invlink(F)
        return mean + self.dispersion * tf.square(mean)

    def _moments(
        self, X: TensorType, mean: Tensor, variance: Tensor
    ) -> MeanAndVariance:
        if self.invlink is not tf.exp:
            return integrated_moments(self, X, mean, variance)
        return moments_by_rate(mean, variance, 1.0, 1.0, self.dispersion)

    def _factor(self, X: Tensor, Y: Tensor, alpha: Tensor) -> ScalarFactor:
        dispersion = tf.cast(self.dispersion, Y.dtype)
        origin = -tf.math.log(dispersion)
        shape = 1.0 / dispersion
        constant = -tfp.math.log_gamma_difference(Y, shape) - tf.math.lgamma(Y + 1.0)

        def log_prob(f: Tensor) -> Tensor:
            log_mean = f if self.invlink is tf.exp else log_of_link(self.invlink, f)
            u = log_mean - origin
            return constant - Y * tf.math.softplus(-u) - shape * tf.math.softplus(u)

        if self.invlink is not tf.exp:
            ones = tf.ones_like(Y)
            return ScalarFactor(
                log_prob, [Structure(tf.zeros_like(Y), ones, 3.0 * ones)]
            )
        rise = alpha * Y
        fall = alpha * shape
        return ScalarFactor(
            log_prob,
            [_wall(rise, fall, origin, 1.0), _wall(fall, rise, origin, -1.0)],
            _mode_rule(Y, shape, origin, alpha),
        )

    def _support(self, Y: AnyNDArray) -> Support:
        return whole_numbers(Y, np.inf)

    def _draw(
        self, X: AnyNDArray, f: AnyNDArray, random: np.random.Generator
    ) -> AnyNDArray:
        dispersion = np.asarray(self.dispersion)
        mean = np.asarray(self.invlink(f))
        return random.poisson(random.gamma(1.0 / dispersion, dispersion * mean)).astype(
            np.float64
        )

    def _traits(self) -> Traits:
        return Traits(starts_at_high_powers=True, draw=self._draw)


def _wall(rise: Tensor, fall: Tensor, origin: Tensor, sign: float) -> Structure:
    r"""
    Find the point at which the logarithm of the density to the power, which rises at
    first, has the slope -1.

    With :math:`u = \pm (f - o)` it is :math:`A u - (A + B) \log(1 + e^u)`, whose slope
    goes from A (``rise``) to -B (``fall``). If B is below 1, the point is the bend at
    0.
    """
    left = rise + tf.minimum(0.5 * fall, 1.0)
    right = tf.maximum(fall - 1.0, 0.5 * fall)
    steep = fall > 1.0
    place = tf.where(steep, tf.math.log(left / tf.where(steep, right, 1.0)), 0.0)
    slope = tf.sigmoid(place)
    width = tf.math.rsqrt(tf.maximum((rise + fall) * slope * (1.0 - slope), 1.0))
    return Structure(origin + sign * (place + 1.5 * width), width, 2.5 * width)


def _mode_rule(
    Y: Tensor, shape: Tensor, origin: Tensor, alpha: Tensor
) -> Callable[[Tensor, Tensor], Mode]:
    """Make the rule that finds the tilted mode, by Newton's method."""

    def mode(mean: Tensor, variance: Tensor) -> Mode:
        # u = f - o solves u + B sigmoid(u) = c. The mirror image -u solves the same
        # with B - c: the one of both that is below 0 is computed, as log w = log(B
        # sigmoid(u)), from above.
        steepness = alpha * (Y + shape)
        B = steepness * variance
        log_B = bounded_log(steepness) + tf.math.log(variance)
        c = mean - origin + alpha * Y * variance
        mirrored = c > 0.5 * B
        target = tf.where(mirrored, B - c, c) + log_B
        log_w = tf.where(target < 1.0, target, tf.math.log(tf.maximum(target, 1.0)))
        log_w = tf.minimum(log_w, log_B - np.log(2.0))
        for _ in range(8):
            w = tf.exp(log_w)
            ratio = tf.exp(log_w - log_B)
            excess = log_w - tf.math.log1p(-ratio) + w - target
            log_w -= excess / (1.0 + w + ratio / (1.0 - ratio))
        ratio = tf.exp(tf.minimum(log_w - log_B, -np.log(2.0)))
        sigmoid = tf.where(mirrored, 1.0 - ratio, ratio)
        slope = Y - (Y + shape) * sigmoid
        return Mode(slope, tf.sqrt(variance / (1.0 + B * ratio * (1.0 - ratio))))

    return mode


class LogNormal(LikelihoodWithMoments):
    r"""Positive targets that change by factors, such as prices.

    .. math::

       y = e^{f + \epsilon}, \quad \epsilon \sim N(0, \sigma^2), \qquad
       p(y | f) = \frac{1}{y} N(\log y; f, \sigma^2)

    The median of y is :math:`e^f` and its mean :math:`e^{f + \sigma^2 / 2}`. Every
    integral equals the integral of Gaussian noise at :math:`\log y`, minus
    :math:`\log y`. A model of :math:`\log y` with Gaussian noise has the same
    posterior, without an inner loop: ``PEPRegressor(likelihood="log_normal")`` uses
    this model.
    """

    def __init__(self, variance: float = 1.0, **kwargs: Any) -> None:
        r""":param variance: The variance :math:`\sigma^2`, above 1e-6; a trainable
        parameter.
        :raises ValueError: If the variance is outside its range.
        """
        super().__init__(**kwargs)
        remedy = (
            "It is the variance of log y: pass 0.1 times the variance of log y in the"
            " data, for example."
        )
        self.variance = parameter_between(1e-6, "variance", variance, np.inf, remedy)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> Tensor:
        log_y = tf.math.log(Y)
        return gpflow.logdensities.gaussian(log_y, F, self.variance) - log_y

    def _moments(
        self, X: TensorType, mean: Tensor, variance: Tensor
    ) -> MeanAndVariance:
        return moments_of_exponential(mean, variance + self.variance)

    def _integral(
        self, X: Tensor, Fmu: Tensor, Fvar: Tensor, Y: Tensor, alpha: Tensor
    ) -> Tensor:
        log_y = bounded_log(Y)
        noise = tf.cast(self.variance, Fmu.dtype)
        terms = gaussian_log_power_expectation(Fmu, Fvar, log_y, noise, alpha[:, None])
        # The Jacobian does not depend on f, so its power is a factor of the integral.
        return tf.reduce_sum(terms - log_y, axis=-1)

    def _support(self, Y: AnyNDArray) -> Support:
        return Support(np.isfinite(Y) & (Y > 0.0), "numbers above 0")

    def _draw(
        self, X: AnyNDArray, f: AnyNDArray, random: np.random.Generator
    ) -> AnyNDArray:
        deviation = np.sqrt(np.asarray(self.variance))
        return np.asarray(np.exp(f + deviation * random.standard_normal(f.shape)))

    def _traits(self) -> Traits:
        return Traits(draw=self._draw)
