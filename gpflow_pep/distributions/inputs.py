"""The conversion of inputs to the units of a model, and back."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import boxcox1p, inv_boxcox1p

from .units import Array

#: Transformed inputs are cut at this number of standard deviations of the training
#: rows.
FARTHEST = 8.0


class YeoJohnson(NamedTuple):
    r"""Standardised inputs :math:`z = (x - \mu) / \sigma`, bent by a power of each
    column and standardised again, between -8 and 8 (Yeo & Johnson 2000):

    .. math::

       \frac{(1 + z)^\lambda - 1}{\lambda} \text{ for } z \ge 0, \qquad
       -\frac{(1 - z)^{2 - \lambda} - 1}{2 - \lambda} \text{ for } z < 0,

    with the logarithm instead of a power of 0. :math:`\lambda = 1` is the identity. All
    fields have an entry for each column, [D].
    """

    mean: Array
    scale: Array
    powers: Array
    second_mean: Array
    second_scale: Array

    def bend(self, z: Array) -> Array:
        """Bend standardised inputs [N, D]."""
        power = np.where(z < 0.0, 2.0 - self.powers, self.powers)
        with np.errstate(over="ignore"):
            return np.asarray(np.sign(z) * boxcox1p(np.abs(z), power))

    def transform(self, X: Array) -> Array:
        """Convert inputs [N, D]; rows of NaN stay."""
        bent = self.bend((X - self.mean) / self.scale)
        standardised = (bent - self.second_mean) / self.second_scale
        return np.asarray(np.clip(standardised, -FARTHEST, FARTHEST), X.dtype)

    def are_cut(self, X: Array) -> npt.NDArray[np.bool_]:
        """Mark the rows of X [N, D] in which an input is cut at 8, [N]. A model cannot
        distinguish inputs beyond it.
        """
        return np.asarray(np.any(np.abs(self.transform(X)) >= FARTHEST, axis=1))

    def inverse_transform(self, X: Array) -> Array:
        """Convert inputs [N, D] back to original units. Inputs that were cut are not
        recovered.
        """
        bent = X * self.second_scale + self.second_mean
        power = np.where(bent < 0.0, 2.0 - self.powers, self.powers)
        z = np.sign(bent) * inv_boxcox1p(np.abs(bent), power)
        return np.asarray(z * self.scale + self.mean)
