"""
Trained models of a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import gpflow
import numpy as np
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType

from .. import metrics
from ..datasets import Dataset, Standardiser
from ..models import PEPRegression
from .base import FittedModel, Metric, initial_kernel


@check_shapes("X: [N, D]", "Y: [N, 1]", "Z: [M, D]")
def build_regression(
    X: TensorType, Y: TensorType, Z: AnyNDArray, alpha: TensorType
) -> PEPRegression:
    """
    A :class:`~gpflow_pep.models.PEPRegression` for standardised data: zero mean,
    :func:`~gpflow_pep.fitted.base.initial_kernel`, a tenth of its variance as noise.

    :param X: standardised inputs.
    :param Y: standardised targets.
    :param Z: initial inducing points, in the units of `X`.
    :param alpha: the power, in [0, 1].
    """
    return PEPRegression((X, Y), initial_kernel(Z.shape[1]), Z, alpha=alpha, noise_variance=0.1)


class Prediction(NamedTuple):
    """Mean and variance of y at new rows, noise included, in original units: [N, 1] each."""

    mean: TensorType
    variance: TensorType


@dataclass(frozen=True)
class FittedRegression(FittedModel):
    """
    A :class:`FittedModel` of a number.

    :param target: from the original target to the model's.
    """

    target: Standardiser

    metrics: ClassVar = (
        Metric("smse", "SMSE", ".4f", "SMSE (lower is better)"),
        Metric("smll", "SMLL", ".4f", "SMLL (nats, lower is better)"),
        Metric("coverage", "90% coverage", ".1%", "coverage of the 90% interval", nominal=0.9),
    )
    decisive: ClassVar = metrics[1]
    likelihoods: ClassVar = (gpflow.likelihoods.Gaussian,)

    @staticmethod
    def targets(Y: AnyNDArray, dataset: Dataset) -> dict[str, AnyNDArray]:
        """See :meth:`FittedModel.targets`; the target is standardised by these rows."""
        target = Standardiser.fit(Y)
        return {"Y": target.transform(Y), **_arrays(target)}

    @staticmethod
    def read_units(arrays: Mapping[str, AnyNDArray]) -> Standardiser:
        """See :meth:`FittedModel.read_units`."""
        return Standardiser(arrays["target_mean"], arrays["target_scale"])

    @staticmethod
    def build(
        X: TensorType, Y: TensorType, Z: AnyNDArray, alpha: TensorType, units: Standardiser
    ) -> PEPRegression:
        """See :func:`build_regression`."""
        return build_regression(X, Y, Z, alpha)

    def units(self) -> dict[str, AnyNDArray]:
        """See :meth:`FittedModel.units`."""
        return _arrays(self.target)

    def of_latents(self, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> Prediction:
        """Mean and variance of y, noise included, in original units."""
        mean, variance = self.model.likelihood.predict_mean_and_var(X, Fmu, Fvar)
        return Prediction(self.target.inverse_mean(mean), self.target.inverse_variance(variance))

    def predict_log_density(self, X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
        """
        log p(yₙ | training data) of each row, [N], a density in the original units of Y.

        :param X: as :meth:`predict`.
        :param Y: [N, 1], targets in original units.
        :raises ValueError: as :meth:`predict`.
        """
        return _log_density(self.predict(X), Y)

    def log_z(self) -> float:
        """See :meth:`FittedModel.log_z`."""
        log_z = self.model.pep_log_marginal_likelihood().numpy()
        num_rows = len(self.model.data[1])
        return float(log_z - num_rows * np.sum(np.log(self.target.scale)))

    def scores(self, X: AnyNDArray, Y: AnyNDArray, Y_train: AnyNDArray) -> dict[str, float]:
        """SMSE, SMLL and the coverage of the central 90% interval."""
        prediction = self.predict(X)
        return {
            "smse": metrics.smse(Y, prediction.mean),
            "smll": metrics.smll(Y[:, 0], _log_density(prediction, Y), Y_train),
            "coverage": metrics.coverage(Y, *prediction),
        }

    def columns(self, X: AnyNDArray, Y: AnyNDArray) -> dict[str, AnyNDArray]:
        """The target, and mean, standard deviation and central 90% interval of y."""
        mean, variance = self.predict(X)
        lower, upper = metrics.central_interval(mean, variance)
        columns = {
            "true": Y,
            "mean": mean,
            "sd": np.sqrt(variance),
            "lower_90": lower,
            "upper_90": upper,
        }
        return {name: column[:, 0] for name, column in columns.items()}


def _arrays(target: Standardiser) -> dict[str, AnyNDArray]:
    return {"target_mean": target.mean, "target_scale": target.scale}


def _log_density(prediction: Prediction, Y: AnyNDArray) -> AnyNDArray:
    """Of a Gaussian y."""
    mean, variance = prediction
    squared = np.square(Y - mean) / variance
    log_density: AnyNDArray = -0.5 * (np.log(2.0 * np.pi * variance) + squared)[:, 0]
    return log_density
