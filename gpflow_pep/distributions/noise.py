"""Noise whose logarithm is linear in the inputs, in NumPy."""

import numpy as np

from .units import Array

#: The size of standardised inputs beyond which the noise is constant.
FARTHEST_INPUT = 3.0
#: A bound that keeps variances finite during training. Priors keep the exponents of
#: trained weights far below it.
LARGEST_EXPONENT = 10.0


def features_of_noise(X: Array) -> Array:
    """Compute the features in which the exponent is linear: standardised inputs [N, D]
    cut at -3 and 3, with NaN replaced by their mean.
    """
    known = np.where(np.isnan(X), 0.0, X)
    return np.clip(known, -FARTHEST_INPUT, FARTHEST_INPUT)


def exponent_of_noise(features: Array, weights: Array) -> Array:
    r"""Compute :math:`\log(\sigma^2(x) / \sigma_0^2)`, [N] or [N, 1].

    :param features: The result of :func:`features_of_noise`, [N, D].
    :param weights: The weights w, [D] or [D, 1].
    """
    return np.clip(features @ weights, -LARGEST_EXPONENT, LARGEST_EXPONENT)
