"""Positive targets whose logarithm is f plus Gaussian noise."""

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.utilities import positive
from tensorflow import Tensor

from ..engine.checks import check_real
from ..engine.factors import Support, Traits, implementations, support, traits
from ..engine.factors.gaussian import gaussian_log_power_expectation
from ..engine.factors.generic import bounded_log
from ..engine.factors.targets import moments_of_exponential
from .integrated import LikelihoodWithMoments

#: As that of GPflow's Gaussian.
_SMALLEST_VARIANCE = 1e-6


class LogNormal(LikelihoodWithMoments):
    r"""
    Positive targets of which a change by a factor counts the same everywhere, such as prices.

    .. math::

       y = e^{f + \epsilon}, \quad \epsilon \sim N(0, \sigma^2), \qquad
       p(y | f) = \frac{1}{y} N(\log y; f, \sigma^2)

    The median of y is :math:`e^f` and its mean :math:`e^{f + \sigma^2 / 2}`. Every integral is that
    of Gaussian noise at :math:`\log y`, less :math:`\log y`. A model of :math:`\log y` with
    Gaussian noise has the same posterior, without an inner loop:
    ``PEPRegressor(likelihood="log_normal")`` takes that.
    """

    def __init__(self, variance: float = 1.0, **kwargs: Any) -> None:
        r"""
        :param variance: :math:`\sigma^2`, above 1e-6; a trainable parameter.
        :raises ValueError: If the variance is outside its range.
        """
        super().__init__(**kwargs)
        check_real(
            "variance",
            float(variance),
            f"({_SMALLEST_VARIANCE}, inf)",
            "It is that of log y: pass 0.1 times the variance of log y, for example.",
        )
        self.variance = Parameter(variance, transform=positive(lower=_SMALLEST_VARIANCE))

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> Tensor:
        log_y = tf.math.log(Y)
        return gpflow.logdensities.gaussian(log_y, F, self.variance) - log_y

    def _moments(self, X: TensorType, mean: Tensor, variance: Tensor) -> MeanAndVariance:
        return moments_of_exponential(mean, variance + self.variance)


@implementations.register(LogNormal)
def _log_normal(
    likelihood: LogNormal, X: Tensor, Fmu: Tensor, Fvar: Tensor, Y: Tensor, alpha: Tensor
) -> Tensor:
    log_y, noise = bounded_log(Y), tf.cast(likelihood.variance, Fmu.dtype)
    terms = gaussian_log_power_expectation(Fmu, Fvar, log_y, noise, alpha[:, None])
    # The Jacobian does not depend on f: its power comes out of the integral as it is.
    return tf.reduce_sum(terms - log_y, axis=-1)


@support.register(LogNormal)
def _above_zero(likelihood: LogNormal, Y: AnyNDArray) -> Support:
    return Support(np.isfinite(Y) & (Y > 0.0), "numbers above 0")


@traits.register(LogNormal)
def _traits(likelihood: LogNormal) -> Traits:
    def draw(X: AnyNDArray, f: AnyNDArray, random: np.random.Generator) -> AnyNDArray:
        deviation = np.sqrt(np.asarray(likelihood.variance))
        return np.asarray(np.exp(f + deviation * random.standard_normal(f.shape)))

    return Traits(draw=draw)
