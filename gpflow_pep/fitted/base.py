"""
What fitted models have in common, whatever they predict.
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.posteriors import AbstractPosterior

from ..datasets import Dataset, Standardiser
from ..models.base import InternalDataModel

# Rows predicted at a time: enough for fast matrix products, few enough to need little memory.
PREDICTION_CHUNK = 10_000


def initial_kernel(num_inputs: int) -> gpflow.kernels.SquaredExponential:
    """
    A squared exponential kernel for standardised inputs, with a lengthscale for each.

    It starts at unit variance and lengthscales √D, because squared distances between standardised
    rows grow in proportion to D.

    :param num_inputs: D.
    """
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(num_inputs, np.sqrt(num_inputs)))


class Metric(NamedTuple):
    """
    A score of held-out rows.

    :param name: the key of its value.
    :param heading: its column in a table.
    :param form: how its value is printed there, a format specification.
    :param label: what it is, for a figure.
    :param nominal: the value that it should have, where that is known.
    """

    name: str
    heading: str
    form: str
    label: str
    nominal: float | None = None


@dataclass(frozen=True)
class FittedModel(abc.ABC):
    """
    A model trained on standardised inputs, which predicts from the original ones.

    :param model: the trained model.
    :param inputs: from original inputs to the model's.
    :param feature_names: names of the D input columns, in their order.
    :param target_name: name of the target.
    """

    model: InternalDataModel
    inputs: Standardiser
    feature_names: tuple[str, ...]
    target_name: str

    metrics: ClassVar[tuple[Metric, ...]]
    """What :meth:`scores` computes."""

    decisive: ClassVar[Metric]
    """The one of them by which models are compared; the lowest is the best."""

    likelihoods: ClassVar[tuple[type[gpflow.likelihoods.Likelihood], ...]]
    """What :meth:`start` gives its models."""

    @classmethod
    def start(
        cls,
        X: TensorType,
        Y: AnyNDArray,
        Z: AnyNDArray,
        alpha: TensorType,
        inputs: Standardiser,
        dataset: Dataset,
    ) -> "FittedModel":
        """
        A model that is yet to be trained.

        :param X: [N, D], standardised inputs of the training rows.
        :param Y: [N, 1], their targets in original units.
        :param Z: [M, D], initial inducing points, in the units of `X`.
        :param alpha: the power, in [0, 1].
        :param inputs: how `X` was standardised.
        :param dataset: where the rows are from.
        """
        arrays = {"X": X, **cls.targets(Y, dataset)}
        return cls.restore(arrays, Z, alpha, inputs, dataset.feature_names, dataset.target_name)

    @classmethod
    def restore(
        cls,
        arrays: Mapping[str, TensorType],
        Z: AnyNDArray,
        alpha: TensorType,
        inputs: Standardiser,
        feature_names: tuple[str, ...],
        target_name: str,
    ) -> "FittedModel":
        """
        A model of the same kind as one that was saved, whose parameters are yet to be assigned.

        :param arrays: X and Y of the model, and what :meth:`units` gave.
        :param Z: as :meth:`start`, and so are the others.
        """
        own = cls.read_units(arrays)
        model = cls.build(arrays["X"], arrays["Y"], Z, alpha, own)
        return cls(model, inputs, feature_names, target_name, own)  # type: ignore[call-arg]

    @staticmethod
    @abc.abstractmethod
    def targets(Y: AnyNDArray, dataset: Dataset) -> dict[str, AnyNDArray]:
        """
        Y as the model takes it, and what :meth:`units` will give.

        :param Y: [N, 1], targets of the training rows in original units.
        :param dataset: where they are from.
        """

    @staticmethod
    @abc.abstractmethod
    def read_units(arrays: Mapping[str, AnyNDArray]) -> Any:
        """The last field of this class, from what :meth:`units` gave."""

    @staticmethod
    @abc.abstractmethod
    def build(
        X: TensorType, Y: TensorType, Z: AnyNDArray, alpha: TensorType, units: Any
    ) -> InternalDataModel:
        """
        The model for standardised data.

        :param X: [N, D], standardised inputs.
        :param Y: [N, 1], targets as the model takes them.
        :param Z: [M, D], initial inducing points, in the units of `X`.
        :param alpha: the power, in [0, 1].
        :param units: what :meth:`read_units` gave.
        """

    @abc.abstractmethod
    def units(self) -> dict[str, AnyNDArray]:
        """What else is needed to predict in original units, as arrays."""

    @abc.abstractmethod
    def of_latents(self, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> Any:
        """
        What is predicted of y, a named tuple of tensors of N rows.

        :param X: [N, D], standardised inputs.
        :param Fmu: [N, L], the mean of the latent functions there.
        :param Fvar: [N, L], their variance.
        """

    @abc.abstractmethod
    def log_z(self) -> float:
        """log Z_PEP of the training targets, a density in their original units."""

    @abc.abstractmethod
    def scores(self, X: AnyNDArray, Y: AnyNDArray, Y_train: AnyNDArray) -> dict[str, float]:
        """
        The metrics of held-out rows.

        :param X: [N, D], inputs in original units.
        :param Y: [N, 1], targets, likewise.
        :param Y_train: [N_train, 1], those of the training rows.
        """

    @abc.abstractmethod
    def columns(self, X: AnyNDArray, Y: AnyNDArray) -> dict[str, AnyNDArray]:
        """
        Targets and predictions as columns of a table, [N] each.

        :param X: [N, D], inputs in original units.
        :param Y: [N, 1], targets, likewise.
        """

    def trouble(self) -> str:
        """What is wrong with the newest result of the model; empty if nothing is."""
        return ""

    def predict(self, X: AnyNDArray) -> Any:
        """
        What is predicted of y at new rows, a named tuple of arrays; see :meth:`of_latents`.

        :param X: [N, D], new rows in original units; columns as `feature_names`.
        :raises ValueError: if `X` has another number of columns or values that are not finite.
        """
        standard = self._standardise(X)
        posterior = self.model.posterior()
        chunks = [
            self.of_latents(rows, *posterior.predict_f(rows))
            for start in range(0, max(len(standard), 1), PREDICTION_CHUNK)
            for rows in [standard[start : start + PREDICTION_CHUNK]]
        ]
        return type(chunks[0])(*(np.concatenate(parts) for parts in zip(*chunks, strict=True)))

    def _standardise(self, X: AnyNDArray) -> AnyNDArray:
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
        standard: AnyNDArray = self.inputs.transform(X)
        return standard


class SavedPrediction(tf.Module):
    """
    The predictions of a :class:`FittedModel` as a TensorFlow function, for
    :func:`tf.saved_model.save`. It keeps q(u), not the training data.
    """

    def __init__(self, fitted: FittedModel) -> None:
        super().__init__()
        self.posterior: AbstractPosterior = fitted.model.posterior()
        self.likelihood = fitted.model.likelihood

        def predict_y(X: tf.Tensor) -> Any:
            standard = fitted.inputs.transform(X)
            return fitted.of_latents(standard, *self.posterior.predict_f(standard))

        signature = tf.TensorSpec([None, len(fitted.feature_names)], tf.float64, name="X")
        self.predict_y = tf.function(predict_y, input_signature=[signature])
