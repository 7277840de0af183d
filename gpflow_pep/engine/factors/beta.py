"""Beta: a fraction whose mean is a squashed function of f."""

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Beta
from gpflow.likelihoods.utils import inv_probit
from tensorflow import Tensor

from ..numerics.quadrature import Structure
from .generic import ScalarFactor
from .moments import Support, scalar_factor, support

#: GPflow clips targets at this distance from 0 and 1. The constant does not have a name
#: in GPflow.
_CLIP = 1e-6


def _peak(likelihood: Beta, Y: Tensor, scale: Tensor, alpha: Tensor) -> Structure:
    """Return where the mean equals the target, and the width of the peak there, which
    is narrow for a large scale.
    """
    y = tf.clip_by_value(Y, 2e-3, 1.0 - 2e-3)
    if likelihood.invlink is inv_probit:
        place = tf.math.ndtri(y)
        slope = tf.exp(-0.5 * place**2) / np.sqrt(2.0 * np.pi)
    else:
        # The logit, which is near enough for other links between 0 and 1.
        place = tf.math.log(y) - tf.math.log1p(-y)
        slope = y * (1.0 - y)
    width = 1.0 / tf.sqrt(1.0 + alpha * scale * slope**2 / (y * (1.0 - y)))
    return Structure(place, width, 4.0 * width)


@scalar_factor.register(Beta)
def _beta(likelihood: Beta, X: Tensor, Y: Tensor, alpha: Tensor) -> ScalarFactor:
    scale = likelihood._scale(X) * tf.ones_like(Y)
    y = tf.clip_by_value(Y, _CLIP, 1.0 - _CLIP)
    log_y = tf.math.log(y)
    log_rest = tf.math.log1p(-y)
    tiny = np.finfo(Y.dtype.as_numpy_dtype).tiny
    log_normaliser = tf.math.lgamma(scale)

    def log_prob(f: Tensor) -> Tensor:
        mean = likelihood.invlink(f)
        a = tf.maximum(mean * scale, tiny)
        b = tf.maximum((1.0 - mean) * scale, tiny)
        return (
            (a - 1.0) * log_y
            + (b - 1.0) * log_rest
            + log_normaliser
            - tf.math.lgamma(a)
            - tf.math.lgamma(b)
        )

    link = Structure(tf.zeros_like(Y), 0.6 * tf.ones_like(Y), 4.0 * tf.ones_like(Y))
    return ScalarFactor(
        log_prob, [link, _peak(likelihood, Y, scale, alpha)], num_nodes=144
    )


support.register(Beta)(
    lambda likelihood, Y: Support((Y >= 0) & (Y <= 1), "numbers from 0 to 1")
)
