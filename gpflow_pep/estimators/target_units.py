"""The units in which the model of a regressor takes its targets, and the way back."""

from typing import Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from sklearn.preprocessing import StandardScaler

from ..likelihoods import LogNormal
from ..likelihoods.integrated import moments_of_exponential
from ..scoring.units import Units
from ..tilted.entries import check_entries
from ..training.mixture import Mixture


class TargetUnits(NamedTuple):
    r"""
    What changes targets y, or their logarithms, to the :math:`g = (y - b) / s` of a model.

    It is increasing, so that quantiles of y are those of g, changed back, and densities differ by
    :math:`\frac{dg}{dy}`, which is :math:`1 / s`, or :math:`1 / (s y)` with the logarithm.
    """

    scaler: StandardScaler
    logarithm: bool = False

    @classmethod
    def fit(cls, Y: AnyNDArray, *, scaled: AnyNDArray, logarithm: bool) -> "TargetUnits":
        """
        Choose the units by targets [N, P], which may lack some.

        :param scaled: Whether the model takes those of each output standardised, [P].
        :param logarithm: Whether it takes their logarithms.
        :raises ValueError: If one has no logarithm.
        """
        scaler = StandardScaler(with_mean=bool(scaled.any()), with_std=bool(scaled.any()))
        units = cls(scaler, logarithm)
        scaler.fit(units._levels(Y))
        if scaled.any():
            scaler.mean_, scaler.scale_ = scaler.mean_ * scaled, np.where(scaled, scaler.scale_, 1)
        return units

    def transform(self, Y: AnyNDArray) -> AnyNDArray:
        """Change targets [N, P], which may lack some, to the model's units."""
        return self.scaler.transform(self._levels(Y))

    def inverse_transform(self, values: AnyNDArray) -> AnyNDArray:
        """Change values of any shape to the original units; several outputs are their axis 1."""
        if self.scaler.n_features_in_ == 1:
            return self.numbers.inverse_transform(values)
        return np.moveaxis(self.numbers.inverse_transform(np.moveaxis(values, 1, -1)), -1, 1)

    def predict_y(self, posterior: Mixture, X: TensorType) -> MeanAndVariance:
        """
        Predict mean and variance of y in original units, [N, P], at X as the model takes them.
        """
        scale, offset, _ = self.numbers
        if not self.logarithm:
            mean, variance = posterior.predict_y(X)
            return scale * mean + offset, scale**2 * variance
        return posterior.mix_moments(
            [
                moments_of_exponential(scale * mean + offset, scale**2 * variance)
                for mean, variance in posterior.components_of_y(X)
            ]
        )

    @property
    def numbers(self) -> Units:
        """
        The units without the scaler: scale 1 and offset 0 where targets are not standardised; of
        several outputs they are [P].
        """
        scaler = self.scaler
        scale: Any = scaler.scale_ if scaler.with_std else np.ones(1)
        offset: Any = scaler.mean_ if scaler.with_mean else np.zeros(1)
        if scaler.n_features_in_ == 1:
            scale, offset = float(scale[0]), float(offset[0])
        return Units(scale, offset, self.logarithm)

    def _levels(self, Y: AnyNDArray) -> AnyNDArray:
        if not self.logarithm:
            return Y
        check_entries(LogNormal(), Y)
        return np.log(Y)
