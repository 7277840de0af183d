"""
Trained models of a class.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType

from .. import metrics
from ..datasets import Dataset
from ..models import PEPClassification
from ..tilted import log_power_expectation
from .base import FittedModel, Metric, initial_kernel

# Of the sites: a ten-thousandth of a standard deviation of each latent value, in about half the
# sweeps of the model's own. log Z is stationary in the sites, and far more accurate.
TOLERANCE = 1e-4


@check_shapes("X: [N, D]", "Y: [N, 1]", "Z: [M, D]")
def build_classifier(
    X: TensorType, Y: TensorType, Z: AnyNDArray, alpha: TensorType, num_classes: int
) -> PEPClassification:
    """
    A :class:`~gpflow_pep.models.PEPClassification` for standardised inputs: zero mean, and one
    :func:`~gpflow_pep.fitted.base.initial_kernel` and one set of inducing points.

    With several classes, all latent functions share them: kernels of their own would take as many
    times the work, and the parameters of each would be learnt from fewer rows.

    :param X: standardised inputs.
    :param Y: numbers of the classes, 0 to C - 1.
    :param Z: initial inducing points, in the units of `X`.
    :param alpha: the power, in [0, 1].
    :param num_classes: C, at least 2.
    """
    likelihood = (
        gpflow.likelihoods.Bernoulli()
        if num_classes == 2
        else gpflow.likelihoods.MultiClass(num_classes)
    )
    kernel = initial_kernel(Z.shape[1])
    return PEPClassification((X, Y), kernel, likelihood, Z, alpha=alpha, tolerance=TOLERANCE)


@check_shapes("X: [N, D]", "Fmu: [N, L]", "Fvar: [N, L]", "return: [N, C]")
def class_probabilities(
    likelihood: gpflow.likelihoods.Likelihood,
    X: TensorType,
    Fmu: TensorType,
    Fvar: TensorType,
    num_classes: int,
) -> tf.Tensor:
    """
    The probability of each class: its tilted integral at power 1.

    :param likelihood: of classes 0 to C - 1.
    :param X: inputs, as the model takes them.
    :param Fmu: the mean of the latent functions there.
    :param Fvar: their variance.
    :param num_classes: C.
    """
    like_one_column = tf.ones_like(Fmu[:, :1])
    columns = [
        log_power_expectation(
            likelihood, X, Fmu, Fvar, label * like_one_column, like_one_column[:, 0]
        )
        for label in range(num_classes)
    ]
    return tf.exp(tf.stack(columns, axis=1))


class ClassProbabilities(NamedTuple):
    """The probability of each class at new rows, [N, C]."""

    probability: TensorType


@dataclass(frozen=True)
class FittedClassifier(FittedModel):
    """
    A :class:`FittedModel` of a class.

    :param classes: the name of each class.
    """

    model: PEPClassification
    classes: tuple[str, ...]

    metrics: ClassVar = (
        Metric("error_rate", "error", ".2%", "error rate (lower is better)"),
        Metric("nlpd", "NLPD", ".4f", "mean negative log density (nats, lower is better)"),
        Metric("ece", "ECE", ".4f", "expected calibration error (lower is better)"),
    )
    decisive: ClassVar = metrics[1]
    likelihoods: ClassVar = (gpflow.likelihoods.Bernoulli, gpflow.likelihoods.MultiClass)

    @staticmethod
    def targets(Y: AnyNDArray, dataset: Dataset) -> dict[str, AnyNDArray]:
        """See :meth:`FittedModel.targets`."""
        return {"Y": Y, "classes": np.array(dataset.classes)}

    @staticmethod
    def read_units(arrays: Mapping[str, AnyNDArray]) -> tuple[str, ...]:
        """See :meth:`FittedModel.read_units`."""
        return tuple(arrays["classes"].tolist())

    @staticmethod
    def build(
        X: TensorType, Y: TensorType, Z: AnyNDArray, alpha: TensorType, units: tuple[str, ...]
    ) -> PEPClassification:
        """See :func:`build_classifier`."""
        return build_classifier(X, Y, Z, alpha, len(units))

    def units(self) -> dict[str, AnyNDArray]:
        """See :meth:`FittedModel.units`."""
        return {"classes": np.array(self.classes)}

    def of_latents(self, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> ClassProbabilities:
        """See :func:`class_probabilities`."""
        likelihood, num_classes = self.model.likelihood, len(self.classes)
        return ClassProbabilities(class_probabilities(likelihood, X, Fmu, Fvar, num_classes))

    def trouble(self) -> str:
        """What is wrong with the newest result of the model; empty if nothing is."""
        info = self.model.last_inference
        if info.converged:
            return ""
        return (
            f"the sites did not converge: residual {info.residual:.2g} after {info.num_sweeps}"
            f" sweeps, expected below {self.model.tolerance:g}"
        )

    def log_z(self) -> float:
        """See :meth:`FittedModel.log_z`."""
        return float(self.model.pep_log_marginal_likelihood())

    def scores(self, X: AnyNDArray, Y: AnyNDArray, Y_train: AnyNDArray) -> dict[str, float]:
        """Error rate, mean negative log predictive density and expected calibration error."""
        probability, labels = self.predict(X).probability, Y[:, 0].astype(int)
        own = np.take_along_axis(probability, labels[:, None], axis=1)
        return {
            "error_rate": metrics.error_rate(labels, np.argmax(probability, axis=1)),
            "nlpd": metrics.mean_nlpd(np.log(own)),
            "ece": metrics.calibration(labels, probability).error,
        }

    def columns(self, X: AnyNDArray, Y: AnyNDArray) -> dict[str, AnyNDArray]:
        """The class, the most probable one, and the probability of each."""
        probability = self.predict(X).probability
        names = np.array(self.classes)
        return {
            "true": names[Y[:, 0].astype(int)],
            "predicted": names[np.argmax(probability, axis=1)],
            **{f"p({name})": probability[:, c] for c, name in enumerate(self.classes)},
        }
