"""Inputs from their original units to those of a model."""

from typing import NamedTuple

import numpy as np

from .kernels import Array

#: Transformed inputs are cut here, in standard deviations of those of training.
FARTHEST = 8.0
#: Powers nearer to 0 are the logarithm.
LEAST_POWER = 1e-8


class YeoJohnson(NamedTuple):
    r"""
    Standardised inputs :math:`z = (x - \mu) / \sigma`, bent by a power of each column and
    standardised again, between -8 and 8 (Yeo & Johnson 2000):

    .. math::

       \frac{(1 + z)^\lambda - 1}{\lambda} \text{ for } z \ge 0, \qquad
       -\frac{(1 - z)^{2 - \lambda} - 1}{2 - \lambda} \text{ for } z < 0,

    with the logarithm in the place of a power of 0. :math:`\lambda = 1` is the identity.
    """

    mean: Array
    """[D]."""

    scale: Array
    """[D]."""

    powers: Array
    r""":math:`\lambda`, [D]."""

    second_mean: Array
    """Of the bent columns, [D]."""

    second_scale: Array
    """[D]."""

    def transform(self, X: Array) -> Array:
        """Change inputs [N, D]; rows of NaN stay."""
        z = (X - self.mean) / self.scale
        power, logs = np.where(z < 0.0, 2.0 - self.powers, self.powers), np.log1p(np.abs(z))
        is_log = np.abs(power) < LEAST_POWER
        with np.errstate(over="ignore"):
            curved = np.expm1(power * logs) / np.where(is_log, 1.0, power)
        bent = np.sign(z) * np.where(is_log, logs, curved)
        standardised = (bent - self.second_mean) / self.second_scale
        return np.asarray(np.clip(standardised, -FARTHEST, FARTHEST), X.dtype)

    def inverse_transform(self, X: Array) -> Array:
        """Change inputs [N, D] back; what was cut is not known."""
        bent = X * self.second_scale + self.second_mean
        power, size = np.where(bent < 0.0, 2.0 - self.powers, self.powers), np.abs(bent)
        is_log = np.abs(power) < LEAST_POWER
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log1p(power * size) / np.where(is_log, 1.0, power)
        z = np.sign(bent) * np.expm1(np.where(is_log, size, logs))
        return np.asarray(z * self.scale + self.mean)
