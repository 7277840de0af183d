"""The units in which the model of a regressor takes its targets, and the way back."""

from typing import NamedTuple

import gpflow
import numpy as np
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood
from sklearn.preprocessing import StandardScaler

from ..engine.factors import traits
from ..engine.factors.entries import check_entries
from ..engine.factors.targets import moments_of_exponential
from ..likelihoods import LogNormal, PerOutput
from ..models.base import finite
from ..scoring.units import Units
from ..training.choosing.ensemble_predictions import EnsemblePredictions
from .outputs import parts_of


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
        Choose the units by targets [N, P], which may lack some; other columns are not looked at.

        :param scaled: Whether the model takes those of each output standardised, [P].
        :param logarithm: Whether it takes their logarithms.
        :raises ValueError: If one has no logarithm.
        """
        scaler = StandardScaler(with_mean=bool(scaled.any()), with_std=bool(scaled.any()))
        units = cls(scaler, logarithm)
        scaler.fit(units._levels(Y[:, : len(scaled)]))
        if scaled.any():
            scaler.mean_, scaler.scale_ = scaler.mean_ * scaled, np.where(scaled, scaler.scale_, 1)
        return units

    def transform(self, Y: AnyNDArray) -> AnyNDArray:
        """Change targets [N, P], which may lack some, to the model's units; columns beside them,
        of what else a likelihood takes, stay."""
        P = self.scaler.n_features_in_
        return np.hstack([self.scaler.transform(self._levels(Y[:, :P])), Y[:, P:]])

    def likelihood_of(self, likelihood: Likelihood) -> Likelihood:
        """Change the likelihood of targets to that of targets in the model's units."""
        scaler = self.scaler
        if not scaler.with_mean:
            return likelihood
        P = scaler.n_features_in_
        parts = parts_of(likelihood, P)
        changed = list(parts)
        for p, part in enumerate(parts):

            def change(value: float, p: int = p) -> float:
                row: AnyNDArray = np.full([1, P], value, gpflow.default_float())
                return float(scaler.transform(row)[0, p])  # rounded as targets are

            in_units = traits(part).in_units
            if in_units is not None:
                changed[p] = in_units(change, float(scaler.scale_[p]))
        if all(new is old for new, old in zip(changed, parts, strict=True)):
            return likelihood
        return changed[0] if P == 1 else PerOutput(changed)

    def inverse_transform(self, values: AnyNDArray) -> AnyNDArray:
        """Change values of any shape to the original units; several outputs are their axis 1."""
        if self.scaler.n_features_in_ == 1:
            return self.numbers.inverse_transform(values)
        return np.moveaxis(self.numbers.inverse_transform(np.moveaxis(values, 1, -1)), -1, 1)

    def predict_y(self, posterior: EnsemblePredictions, X: TensorType) -> MeanAndVariance:
        """
        Predict mean and variance of y in original units, [N, P], at X as the model takes them.
        """
        scale, offset, _ = self.numbers
        if not self.logarithm:
            mean, variance = posterior.predict_y(X)
            return scale * mean + offset, scale**2 * variance
        moments = [
            moments_of_exponential(scale * mean + offset, scale**2 * variance)
            for mean, variance in posterior.components_of_y(X)
        ]
        return finite(posterior.mix_moments(moments))

    @property
    def numbers(self) -> Units:
        """
        The units without the scaler: scale 1 and offset 0 where targets are not standardised; of
        several outputs they are [P].
        """
        return Units.of_scaler(vars(self.scaler), self.logarithm)

    def _levels(self, Y: AnyNDArray) -> AnyNDArray:
        if not self.logarithm:
            return Y
        check_entries(LogNormal(), Y)
        return np.log(Y)
