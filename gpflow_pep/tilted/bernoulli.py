"""Two classes: GPflow's probit with its squeeze, the logit, other links, noisy labels."""

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Bernoulli
from gpflow.likelihoods.utils import inv_probit

from ..ops.gaussian import normal_cdf
from ..ops.power import expm1_ratio, log1p_ratio
from ..ops.quadrature import Core, no_tilt
from .dispatch import scalar_factor
from .generic import ScalarFactor

#: Fewer than usual: smooth and bounded.
_PROBIT_NODES = 72
#: GPflow's probit link is ``_SQUEEZE + (1 - 2 _SQUEEZE) Phi(f)``; it has no name there.
_SQUEEZE = 1e-3
_LOGITS = (tf.sigmoid, tf.math.sigmoid, tf.nn.sigmoid)


def signs(Y: tf.Tensor) -> tf.Tensor:
    """+1 where the label is 1, else -1, as GPflow reads labels."""
    return tf.where(tf.equal(Y, 1.0), tf.ones_like(Y), -tf.ones_like(Y))


def squeezed_probit_core(edge: tf.Tensor, width: tf.Tensor, floor: tf.Tensor) -> Core:
    r"""
    The core of :math:`\log(\epsilon + \Phi((f - a) / w))`.

    It ends where :math:`\Phi` meets the floor :math:`\epsilon`; near there the logarithm has
    complex singularities whose distance shrinks slowly with the floor.

    :param edge: a.
    :param width: w, negative where p decreases in f.
    :param floor: :math:`\epsilon`.
    """
    meeting = tf.math.ndtri(floor)
    return Core(
        centre=edge + 0.5 * width * meeting,
        resolution=tf.abs(width) * 0.6,
        extent=tf.abs(width) * (1.0 - 0.5 * meeting),
    )


def squeezed_probit(Y: tf.Tensor, epsilon: tf.Tensor) -> ScalarFactor:
    r"""
    The factor :math:`p = \epsilon + (1 - 2\epsilon) \Phi(\pm f)`.

    At :math:`\alpha = 1` the result is
    :math:`\log[\epsilon + (1 - 2\epsilon) \Phi(\pm m / \sqrt{1 + v})]`.
    """
    sign = signs(Y)

    def probability(f: tf.Tensor) -> tf.Tensor:
        return epsilon + (1.0 - 2.0 * epsilon) * normal_cdf(sign * f)

    return ScalarFactor(
        log_prob=lambda f: tf.math.log(probability(f)),
        cores=[squeezed_probit_core(tf.zeros_like(Y), sign, epsilon)],
        mode=no_tilt,
        mean_prob=lambda mean, variance: probability(mean / tf.sqrt(1.0 + variance)),
        num_nodes=_PROBIT_NODES,
    )


def step_log_power_expectation(
    mean: tf.Tensor, variance: tf.Tensor, Y: tf.Tensor, epsilon: tf.Tensor, alpha: tf.Tensor
) -> tf.Tensor:
    r"""
    Compute the tilted integral of :math:`p = 1 - \epsilon` where f has the label's sign, else
    :math:`\epsilon`: it is
    :math:`\frac{1}{\alpha} \log[P (1 - \epsilon)^\alpha + (1 - P) \epsilon^\alpha]` with
    :math:`P = \Phi(\pm m / \sqrt{v})`.
    """
    margin = signs(Y) * mean / tf.sqrt(variance)
    return two_valued(normal_cdf(margin), normal_cdf(-margin), 1.0 - epsilon, epsilon, alpha)


def two_valued(
    prob_high: tf.Tensor, prob_low: tf.Tensor, high: tf.Tensor, low: tf.Tensor, alpha: tf.Tensor
) -> tf.Tensor:
    r"""
    Compute :math:`\frac{1}{\alpha} \log[P h^\alpha + (1 - P) l^\alpha]`.

    :param prob_high: P.
    :param prob_low: 1 - P, to all its digits.
    :param high: h.
    :param low: l > 0.
    :param alpha: The power.
    """
    # Relative to the more probable value, so that nothing cancels.
    high_first = prob_high > prob_low
    log_ratio = tf.math.log(high) - tf.math.log(low)
    origin = tf.where(high_first, tf.math.log(high), tf.math.log(low))
    other = tf.where(
        high_first,
        prob_low * expm1_ratio(-log_ratio, alpha),
        prob_high * expm1_ratio(log_ratio, alpha),
    )
    return origin + log1p_ratio(other, alpha)


def _stable_log(p: tf.Tensor) -> tf.Tensor:
    return tf.math.log(tf.maximum(p, np.finfo(p.dtype.as_numpy_dtype).tiny))


@scalar_factor.register(Bernoulli)
def _bernoulli(likelihood: Bernoulli, X: tf.Tensor, Y: tf.Tensor, alpha: tf.Tensor) -> ScalarFactor:
    if likelihood.invlink is inv_probit:
        return squeezed_probit(Y, tf.constant(_SQUEEZE, Y.dtype))
    core = Core(tf.zeros_like(Y), tf.ones_like(Y), 2.0 * tf.ones_like(Y))
    if any(likelihood.invlink is link for link in _LOGITS):
        sign = signs(Y)
        return ScalarFactor(lambda f: tf.math.log_sigmoid(sign * f), [core])

    def log_prob(f: tf.Tensor) -> tf.Tensor:
        p = likelihood.invlink(f)
        return _stable_log(tf.where(tf.equal(Y, 1.0), p, 1.0 - p))

    return ScalarFactor(log_prob, [core])
