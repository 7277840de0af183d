"""Two classes by other links than GPflow's probit: the logit, a step, any other."""

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Bernoulli, Likelihood

from ..ops.power import expm1_over_power, fast_log1p_over_power
from ..ops.quadrature import Structure
from .dispatch import scalar_factor
from .generic import ScalarFactor
from .probit import normal_cdf, signs
from .support import Support, support
from .traits import Traits, traits

#: Stands for a variance of 0.
_SMALLEST_VARIANCE = 1e-30
_LOGITS = (tf.sigmoid, tf.math.sigmoid, tf.nn.sigmoid)


def step_log_power_expectation(
    mean: tf.Tensor, variance: tf.Tensor, Y: tf.Tensor, epsilon: tf.Tensor, alpha: tf.Tensor
) -> tf.Tensor:
    r"""
    Compute the tilted integral of :math:`p = 1 - \epsilon` where f has the label's sign, else
    :math:`\epsilon`: it is
    :math:`\frac{1}{\alpha} \log[P (1 - \epsilon)^\alpha + (1 - P) \epsilon^\alpha]` with
    :math:`P = \Phi(\pm m / \sqrt{v})`.
    """
    margin = signs(Y) * margin_of_step(mean, variance)
    return two_valued(normal_cdf(margin), normal_cdf(-margin), 1.0 - epsilon, epsilon, alpha)


def margin_of_step(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    r"""Compute :math:`m / \sqrt{v}`, also at variance 0."""
    return mean / tf.sqrt(tf.maximum(variance, _SMALLEST_VARIANCE))


def two_valued(
    prob_high: tf.Tensor, prob_low: tf.Tensor, high: tf.Tensor, low: tf.Tensor, alpha: tf.Tensor
) -> tf.Tensor:
    r"""
    Compute :math:`\frac{1}{\alpha} \log[P h^\alpha + (1 - P) l^\alpha]`.

    :param prob_low: 1 - P, to all its digits.
    """
    # Relative to the more probable value, so that nothing cancels.
    high_first = prob_high > prob_low
    log_high, log_low = tf.math.log(high), tf.math.log(low)
    origin = tf.where(high_first, log_high, log_low)
    other = tf.where(
        high_first,
        prob_low * expm1_over_power(log_low - log_high, alpha),
        prob_high * expm1_over_power(log_high - log_low, alpha),
    )
    return origin + fast_log1p_over_power(other, alpha)


def _stable_log(p: tf.Tensor) -> tf.Tensor:
    return tf.math.log(tf.maximum(p, np.finfo(p.dtype.as_numpy_dtype).tiny))


@scalar_factor.register(Bernoulli)
def _bernoulli_link(
    likelihood: Bernoulli, X: tf.Tensor, Y: tf.Tensor, alpha: tf.Tensor
) -> ScalarFactor:
    step = Structure(tf.zeros_like(Y), tf.ones_like(Y), 2.0 * tf.ones_like(Y))
    if any(likelihood.invlink is link for link in _LOGITS):
        sign = signs(Y)
        return ScalarFactor(lambda f: tf.math.log_sigmoid(sign * f), [step])

    def log_prob(f: tf.Tensor) -> tf.Tensor:
        p = likelihood.invlink(f)
        return _stable_log(tf.where(tf.equal(Y, 1.0), p, 1.0 - p))

    return ScalarFactor(log_prob, [step])


@support.register(Bernoulli)
def two_labels(likelihood: Likelihood, Y: AnyNDArray) -> Support:
    """Find the support of likelihoods of two classes."""
    return Support((Y == 0) | (Y == 1), "0 or 1")


@traits.register(Bernoulli)
def two_classes(likelihood: Likelihood) -> Traits:
    """Find the traits of likelihoods of two classes."""
    return Traits(num_classes=2)
