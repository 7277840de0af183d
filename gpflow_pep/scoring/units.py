"""The units in which a model has its targets, and the way back to the original ones."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .kernels import Array


class Units(NamedTuple):
    r"""
    A model of :math:`g = (y - b) / s`, or of :math:`(\log y - b) / s`.

    :param scale: s.
    :param offset: b.
    :param logarithm: Whether the logarithm is taken.
    """

    scale: float = 1.0
    offset: float = 0.0
    logarithm: bool = False

    @classmethod
    def of_columns(cls, scale: Any, offset: Any, logarithm: bool = False) -> "Units":
        """Give the units of columns, [P] each; of one column they are numbers."""
        if np.size(scale) == 1:
            scale, offset = float(np.ravel(scale)[0]), float(np.ravel(offset)[0])
        return cls(scale, offset, logarithm)

    @classmethod
    def of_scaler(cls, scaler: Mapping[str, Any]) -> "Units":
        """Give the units by the attributes of a ``StandardScaler``."""
        number = scaler["n_features_in_"]
        return cls.of_columns(
            scaler["scale_"] if scaler["with_std"] else np.ones(number),
            scaler["mean_"] if scaler["with_mean"] else np.zeros(number),
        )

    def transform(self, y: Array) -> Array:
        """Change targets, which are above 0 where the logarithm is taken, to the model's units."""
        return ((np.log(y) if self.logarithm else y) - self.offset) / self.scale

    def inverse_transform(self, values: Array, axis: int = -1) -> Array:
        """
        Change values of any shape to the original units.

        :param axis: That of the outputs, where there are several.
        """
        if np.ndim(self.scale):
            values = np.moveaxis(values, axis, -1)
        levels = self.scale * values + self.offset
        values = np.exp(levels) if self.logarithm else levels
        return np.moveaxis(values, -1, axis) if np.ndim(self.scale) else values

    def log_slope(self, y: Array) -> Array:
        r"""Compute :math:`\log \frac{dg}{dy}` at targets, for densities in original units."""
        slopes = np.full_like(y, -np.log(self.scale))
        return slopes - np.log(y) if self.logarithm else slopes

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Compute mean and variance of y from those of Gaussian g, or of any g without logarithm.

        With it they are :math:`e^{m + v / 2}` and :math:`(e^v - 1) e^{2 m + v}`.
        """
        mean, variance = self.scale * mean + self.offset, self.scale**2 * variance
        if not self.logarithm:
            return mean, variance
        expected = np.exp(mean + 0.5 * variance)
        return expected, np.expm1(variance) * expected**2
