"""A trained model together with the units of its data: what compare trains, and saving keeps."""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import gpflow
import numpy as np
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from scipy.stats import norm
from sklearn.preprocessing import StandardScaler

from .. import metrics
from ..estimators.base import PREDICTION_CHUNK
from ..estimators.parts import make_kernel
from ..models import PEPClassification, PEPRegression
from ..models.base import InternalDataModel
from ..tilted import class_probabilities
from .datasets import Dataset, check_finite

# Of the sites: a ten-thousandth of a standard deviation of each latent value, in about half the
# sweeps of the model's own. log Z is stationary in the sites, and far more accurate.
TOLERANCE = 1e-4


@check_shapes("X: [N, D]", "Y: [N, 1]", "Z: [M, D]")
def build_regression(
    X: TensorType, Y: TensorType, Z: AnyNDArray, alpha: TensorType, **options: Any
) -> PEPRegression:
    """
    Build the model of a number; a tenth of :func:`make_kernel`'s variance as noise.

    :param X: Standardised inputs.
    :param Y: Standardised targets.
    :param Z: Initial inducing points, in the units of `X`.
    :param alpha: The power, in [0, 1].
    :param options: All other arguments of :class:`~gpflow_pep.models.PEPRegression`.
    """
    kernel = make_kernel("rbf", Z.shape[1])
    return PEPRegression((X, Y), kernel, Z, alpha=alpha, noise_variance=0.1, **options)


@check_shapes("X: [N, D]", "Y: [N, 1]", "Z: [M, D]")
def build_classifier(
    X: TensorType,
    Y: TensorType,
    Z: AnyNDArray,
    alpha: TensorType,
    num_classes: int,
    conditional: str = "prior",
) -> PEPClassification:
    """
    Build the model of a class; all latent functions share :func:`make_kernel` and Z.

    Those of their own would take as many times the work, and be learnt from fewer rows.

    :param X: Standardised inputs.
    :param Y: Numbers of the classes, 0 to C - 1.
    :param Z: Initial inducing points, in the units of `X`.
    :param alpha: The power, in [0, 1].
    :param num_classes: C, at least 2.
    :param conditional: What f is given u, see :class:`~gpflow_pep.models.PEP`.
    """
    two, several = gpflow.likelihoods.Bernoulli, gpflow.likelihoods.MultiClass
    likelihood = two() if num_classes == 2 else several(num_classes)
    kernel = make_kernel("rbf", Z.shape[1])
    options = {"alpha": alpha, "tolerance": TOLERANCE, "conditional": conditional}
    return PEPClassification((X, Y), kernel, likelihood, Z, **options)


class Metric(NamedTuple):
    """
    A score of held-out rows.

    :param name: The key of its value.
    :param heading: Its column in a table.
    :param form: How its value is printed there, a format specification.
    :param label: What it is, for a figure.
    :param nominal: The value that it should have, where that is known.
    """

    name: str
    heading: str
    form: str
    label: str
    nominal: float | None = None


class Prediction(NamedTuple):
    """Mean and variance of y at new rows, noise included, in original units: [N, 1] each."""

    mean: TensorType
    variance: TensorType


class ClassProbabilities(NamedTuple):
    """The probability of each class at new rows, [N, C]."""

    probability: TensorType


@dataclass(frozen=True)
class FittedModel(abc.ABC):
    """
    A model trained on standardised inputs, which predicts from the original ones.

    :param model: The trained model.
    :param inputs: From original inputs to the model's.
    :param feature_names: Names of the D input columns, in their order.
    :param target_name: The name of the target.
    """

    model: InternalDataModel
    inputs: StandardScaler
    feature_names: tuple[str, ...]
    target_name: str

    metrics: ClassVar[tuple[Metric, ...]]
    """What :meth:`scores` computes. The second decides which model is the best: the lowest."""

    @abc.abstractmethod
    def of_latents(self, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> Any:
        """Predict y, a named tuple of tensors, from mean and variance of f at standardised X."""

    @abc.abstractmethod
    def scores(self, X: AnyNDArray, Y: AnyNDArray, Y_train: AnyNDArray) -> dict[str, float]:
        """Compute the metrics of held-out rows, all in original units."""

    @abc.abstractmethod
    def columns(self, X: AnyNDArray, Y: AnyNDArray) -> dict[str, AnyNDArray]:
        """Give targets and predictions in original units as columns of a table, [N] each."""

    def log_z(self) -> float:
        """Compute log Z_PEP of the training targets, a density in their original units."""
        return float(self.model.pep_log_marginal_likelihood())

    def trouble(self) -> str:
        """Say what is wrong with the newest result of the model; empty if nothing is."""
        return ""

    def standardise(self, X: TensorType) -> TensorType:
        """Change inputs [N, D], an array or a tensor, from original units to the model's."""
        return (X - self.inputs.mean_) / self.inputs.scale_

    def predict(self, X: AnyNDArray) -> Any:
        """
        Predict y at new rows, as a named tuple of arrays; see :meth:`of_latents`.

        :param X: [N, D], new rows in original units; columns as `feature_names`.
        :raises ValueError: If `X` has another number of columns or values that are not finite.
        """
        X, names = np.asarray(X, dtype=np.float64), self.feature_names
        if X.ndim != 2 or X.shape[1] != len(names):
            raise ValueError(
                f"X has shape {X.shape}, expected [N, {len(names)}]: pass the columns"
                f" {', '.join(names)}, in this order."
            )
        check_finite("X", X)
        posterior = self.model.posterior()
        chunks = [
            self.of_latents(rows, *posterior.predict_f(rows))
            for start in range(0, max(len(X), 1), PREDICTION_CHUNK)
            for rows in [self.standardise(X[start : start + PREDICTION_CHUNK])]
        ]
        return type(chunks[0])(*(np.concatenate(parts) for parts in zip(*chunks, strict=True)))


@dataclass(frozen=True)
class FittedRegression(FittedModel):
    """
    A :class:`FittedModel` of a number.

    :param target: From the original target to the model's.
    """

    model: PEPRegression
    target: StandardScaler

    metrics: ClassVar = (
        Metric("smse", "SMSE", ".4f", "SMSE (lower is better)"),
        Metric("smll", "SMLL", ".4f", "SMLL (nats, lower is better)"),
        Metric("coverage", "90% coverage", ".1%", "coverage of the 90% interval", nominal=0.9),
    )

    def of_latents(self, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> Prediction:
        """Compute mean and variance of y, noise included, in original units."""
        mean, variance = self.model.likelihood.predict_mean_and_var(X, Fmu, Fvar)
        scale = self.target.scale_
        return Prediction(mean * scale + self.target.mean_, variance * scale**2)

    def log_z(self) -> float:
        """See :meth:`FittedModel.log_z`."""
        log_scale = float(np.sum(np.log(self.target.scale_)))
        return super().log_z() - len(self.model.data[1]) * log_scale

    def predict_log_density(self, X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
        """
        Compute log p(yₙ | training data) of each row, [N], a density in the original units of Y.

        :param X: See :meth:`predict`.
        :param Y: [N, 1], targets in original units.
        :raises ValueError: See :meth:`predict`.
        """
        return _log_density(self.predict(X), Y)

    def scores(self, X: AnyNDArray, Y: AnyNDArray, Y_train: AnyNDArray) -> dict[str, float]:
        """Compute SMSE, SMLL and the coverage of the central 90% interval."""
        prediction = self.predict(X)
        return {
            "smse": metrics.smse(Y, prediction.mean),
            "smll": metrics.smll(Y, _log_density(prediction, Y), Y_train),
            "coverage": metrics.coverage(Y, *prediction),
        }

    def columns(self, X: AnyNDArray, Y: AnyNDArray) -> dict[str, AnyNDArray]:
        """Give the target, and mean, standard deviation and central 90% interval of y."""
        mean, variance = self.predict(X)
        columns = (Y, mean, np.sqrt(variance), *metrics.central_interval(mean, variance))
        names = ("true", "mean", "sd", "lower_90", "upper_90")
        return {name: column[:, 0] for name, column in zip(names, columns, strict=True)}


@dataclass(frozen=True)
class FittedClassifier(FittedModel):
    """
    A :class:`FittedModel` of a class.

    :param classes: The name of each class.
    """

    model: PEPClassification
    classes: tuple[str, ...]

    metrics: ClassVar = (
        Metric("error_rate", "error", ".2%", "error rate (lower is better)"),
        Metric("nlpd", "NLPD", ".4f", "mean negative log density (nats, lower is better)"),
        Metric("ece", "ECE", ".4f", "expected calibration error (lower is better)"),
    )

    def of_latents(self, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> ClassProbabilities:
        """See :func:`class_probabilities`."""
        likelihood, num_classes = self.model.likelihood, len(self.classes)
        return ClassProbabilities(class_probabilities(likelihood, X, Fmu, Fvar, num_classes))

    def trouble(self) -> str:
        """See :meth:`FittedModel.trouble`."""
        info = self.model.last_inference
        if info.converged:
            return ""
        return (
            f"the sites did not converge: residual {info.residual:.2g} after {info.num_sweeps}"
            f" sweeps, expected below {self.model.tolerance:g}"
        )

    def scores(self, X: AnyNDArray, Y: AnyNDArray, Y_train: AnyNDArray) -> dict[str, float]:
        """Compute error rate, mean negative log density and expected calibration error."""
        probability, labels = self.predict(X).probability, Y[:, 0].astype(int)
        own = np.take_along_axis(probability, labels[:, None], axis=1)
        return {
            "error_rate": metrics.error_rate(labels, np.argmax(probability, axis=1)),
            "nlpd": metrics.mean_nlpd(np.log(own)),
            "ece": metrics.calibration(labels, probability).error,
        }

    def columns(self, X: AnyNDArray, Y: AnyNDArray) -> dict[str, AnyNDArray]:
        """Give the class, the most probable one, and the probability of each."""
        probability, names = self.predict(X).probability, np.array(self.classes)
        return {
            "true": names[Y[:, 0].astype(int)],
            "predicted": names[np.argmax(probability, axis=1)],
            **{f"p({name})": probability[:, c] for c, name in enumerate(self.classes)},
        }


@check_shapes("X: [N, D]", "Y: [N, 1]", "Z: [M, D]")
def start(
    dataset: Dataset,
    inputs: StandardScaler,
    X: TensorType,
    Y: AnyNDArray,
    Z: AnyNDArray,
    alpha: TensorType,
    neighbours: int = 0,
) -> FittedModel:
    """
    Build a model that is yet to be trained.

    :param dataset: Where the rows are from; its target is a number or a class.
    :param inputs: How `X` was standardised.
    :param X: Standardised inputs of the training rows.
    :param Y: Their targets in original units.
    :param Z: Initial inducing points, in the units of `X`.
    :param alpha: The power, in [0, 1].
    :param neighbours: How many near rows the conditional of each knows, where the target is a
        number.
    """
    units = inputs, dataset.feature_names, dataset.target_name
    if dataset.classes:
        classifier = build_classifier(X, Y, Z, alpha, len(dataset.classes))
        return FittedClassifier(classifier, *units, dataset.classes)
    target = StandardScaler().fit(Y)
    model = build_regression(X, target.transform(Y), Z, alpha, neighbours=neighbours)
    return FittedRegression(model, *units, target)


def _log_density(prediction: Prediction, Y: AnyNDArray) -> AnyNDArray:
    log_density: AnyNDArray = norm.logpdf(Y, prediction.mean, np.sqrt(prediction.variance))
    return log_density[:, 0]
