"""Noise of which the logarithm is linear in the inputs, in NumPy."""

import numpy as np

from .units import Array

#: Standardised inputs beyond which the noise stays as it is there.
FARTHEST_INPUT = 3.0
#: Keeps variances finite on the way to trained weights; priors on them keep exponents
#: far below.
LARGEST_EXPONENT = 10.0


def features_of_noise(X: Array) -> Array:
    """Compute what the exponent is linear in: standardised inputs [N, D] between -3 and
    3, with their mean in the place of NaN.
    """
    known = np.where(np.isnan(X), 0.0, X)
    return np.clip(known, -FARTHEST_INPUT, FARTHEST_INPUT)


def exponent_of_noise(features: Array, weights: Array) -> Array:
    r"""Compute :math:`\log(\sigma^2(x) / \sigma_0^2)`, [N] or [N, 1].

    :param features: By :func:`features_of_noise`, [N, D].
    :param weights: w, [D] or [D, 1].
    """
    return np.clip(features @ weights, -LARGEST_EXPONENT, LARGEST_EXPONENT)
