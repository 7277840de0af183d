"""
A trained regression model together with the units of its data.
"""

from dataclasses import dataclass
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.posteriors import AbstractPosterior

from .datasets import Standardiser
from .models import PEPRegression

# Rows predicted at a time: enough for fast matrix products, few enough to need little memory.
PREDICTION_CHUNK = 10_000


@check_shapes("X: [N, D]", "Y: [N, 1]", "Z: [M, D]")
def build_model(X: TensorType, Y: TensorType, Z: AnyNDArray, alpha: TensorType) -> PEPRegression:
    """
    A :class:`~gpflow_pep.models.PEPRegression` for standardised data: zero mean, a squared
    exponential kernel with a lengthscale per input, and inducing points.

    It starts at unit signal variance, a tenth of it as noise, and lengthscales √D, because squared
    distances between standardised rows grow in proportion to D.

    :param X: standardised inputs.
    :param Y: standardised targets.
    :param Z: initial inducing points, in the units of `X`.
    :param alpha: the power, in [0, 1].
    """
    num_inputs = Z.shape[1]
    kernel = gpflow.kernels.SquaredExponential(
        lengthscales=np.full(num_inputs, np.sqrt(num_inputs))
    )
    return PEPRegression((X, Y), kernel, Z, alpha=alpha, noise_variance=0.1)


class Prediction(NamedTuple):
    """Mean and variance of y at new rows, noise included, in original units: [N, 1] each."""

    mean: TensorType
    variance: TensorType


@dataclass(frozen=True)
class FittedRegression:
    """
    A model trained on standardised data, which predicts in the original units.

    :param model: the trained model, in standard units.
    :param inputs: from original inputs to the model's.
    :param target: from the original target to the model's.
    :param feature_names: names of the D input columns, in their order.
    :param target_name: name of the target.
    """

    model: PEPRegression
    inputs: Standardiser
    target: Standardiser
    feature_names: tuple[str, ...]
    target_name: str

    def predict(self, X: AnyNDArray) -> Prediction:
        """
        Mean and variance of y, noise included.

        :param X: [N, D], new rows in original units; columns as `feature_names`.
        :raises ValueError: if `X` has another number of columns or values that are not finite.
        """
        standard, Fmu, Fvar = self._predict_f(X)
        mean, variance = self.model.likelihood.predict_mean_and_var(standard, Fmu, Fvar)
        return Prediction(
            self.target.inverse_mean(mean.numpy()), self.target.inverse_variance(variance.numpy())
        )

    def predict_log_density(self, X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
        """
        log p(yₙ | training data) of each row, [N], a density in the original units of Y.

        :param X: as :meth:`predict`.
        :param Y: [N, 1], targets in original units.
        :raises ValueError: as :meth:`predict`.
        """
        standard, Fmu, Fvar = self._predict_f(X)
        log_density = self.model.likelihood.predict_log_density(
            standard, Fmu, Fvar, self.target.transform(Y)
        )
        return self.target.inverse_log_density(log_density.numpy())

    def _predict_f(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
        """Standardised inputs, and mean and variance of f there in standard units."""
        X = np.asarray(X, dtype=np.float64)
        names = self.feature_names
        if X.ndim != 2 or X.shape[1] != len(names):
            raise ValueError(
                f"X has shape {X.shape}, expected [N, {len(names)}]: pass the columns"
                f" {', '.join(names)}, in this order."
            )
        if not np.all(np.isfinite(X)):
            raise ValueError(
                "X has values that are NaN or infinite, expected finite numbers: remove those rows"
                " or fill the values in."
            )
        standard = self.inputs.transform(X)
        posterior = self.model.posterior()
        chunks = [
            posterior.predict_f(standard[start : start + PREDICTION_CHUNK])
            for start in range(0, max(len(standard), 1), PREDICTION_CHUNK)
        ]
        Fmu, Fvar = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
        return standard, Fmu, Fvar


class SavedPrediction(tf.Module):
    """
    The predictions of a :class:`FittedRegression` as a TensorFlow function, for
    :func:`tf.saved_model.save`. It keeps q(u), not the training data.
    """

    def __init__(self, fitted: FittedRegression) -> None:
        super().__init__()
        self.posterior: AbstractPosterior = fitted.model.posterior()
        self.likelihood = fitted.model.likelihood
        inputs, target = fitted.inputs, fitted.target

        def predict_y(X: tf.Tensor) -> Prediction:
            standard = inputs.transform(X)
            Fmu, Fvar = self.posterior.predict_f(standard)
            mean, variance = self.likelihood.predict_mean_and_var(standard, Fmu, Fvar)
            return Prediction(target.inverse_mean(mean), target.inverse_variance(variance))

        signature = tf.TensorSpec([None, len(fitted.feature_names)], tf.float64, name="X")
        self.predict_y = tf.function(predict_y, input_signature=[signature])
