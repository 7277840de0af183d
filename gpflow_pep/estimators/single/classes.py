"""One model of classes, trained with given settings, and its probabilities."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ...engine.left_out_rows import LEAST_ROWS
from ...engine.refusals import refusal
from ...engine.refusals.arrays import AnyNDArray
from ...scoring.components import predict_probabilities
from .model import SingleModel
from .settings import wants_near_rows
from .when_used import (
    ensemble,
    factors,
    gpflow,
    left_out_labels,
    models,
    near,
    objectives,
    parts,
    posteriors,
    tf,
    trainer,
)

#: The share of ``max_seconds`` that is spent on training predictions from near rows.
SHARE_OF_NEAR_ROWS = 0.25


class SingleClassifier(SingleModel):
    """One model of classes that is trained with known settings.

    Targets are the numbers of classes from 0 to C - 1, and probabilities are in the
    order of these numbers, even if the model has its classes in another order.
    """

    def fit(
        self,
        X: AnyNDArray,
        Y: AnyNDArray,
        *,
        before: SingleModel | None = None,
        prepares: bool = True,
    ) -> SingleClassifier:
        """Train on rows X, with numbers of classes Y [N, 1].

        :param before: A model of the same kind from which a warm start begins.
        :param prepares: Whether what predicts is prepared now, or by the first
            prediction.
        """
        if self.settings.order is not None:
            Y = np.array(self.columns)[Y.astype(int)].astype(Y.dtype)
        self.train(self.scale_rows(X), Y, before)
        if prepares:
            self.mixture_in_numpy()
        return self

    def finish(self, model: gpflow.models.GPModel | ensemble.Ensemble) -> None:
        self.set_model(model)

    @property
    def num_classes(self) -> int:
        """The number of classes, C."""
        return int(self.settings.num_classes or 0)

    @property
    def columns(self) -> list[int]:
        """The columns of the model's probabilities in the order of the classes."""
        order = self.settings.order
        if order is None:
            return list(range(self.num_classes))
        columns: list[int] = np.argsort(order).tolist()
        return columns

    def make_likelihood(self) -> gpflow.likelihoods.Likelihood:
        num_classes = self.num_classes
        name = self.settings.likelihood
        if isinstance(name, str) and name == "auto":
            name = "bernoulli" if num_classes == 2 else "softmax"
        is_bernoulli = isinstance(name, str) and name == "bernoulli"
        arguments = () if is_bernoulli else (num_classes,)
        likelihood = parts.make_likelihood(name, parts.CLASSES, *arguments)
        number = factors.num_classes(likelihood)
        if number != num_classes:
            kind = name if isinstance(name, str) else type(name).__name__
            expected = f"a likelihood of as many classes as y has, and not of {number}"
            remedy = (
                "Use 'auto', 'softmax', 'multiclass' or 'ordinal', or correct its"
                " number of classes."
            )
            raise refusal(
                "likelihood", f"{kind!r} for {num_classes} classes", expected, remedy
            )
        return likelihood

    def make_model(
        self, data: tuple[AnyNDArray, AnyNDArray], *parts: Any, alpha: float
    ) -> gpflow.models.GPModel:
        kernel, likelihood, points = parts
        return models.PEPClassification(data, kernel, likelihood, points, alpha=alpha)

    def probabilities(self, rows: AnyNDArray) -> AnyNDArray:
        """Predict the probability of each class, [N, C]."""
        X = self.in_units(rows)
        components, weights = self.mixture_in_numpy()
        if components:
            return predict_probabilities(components, weights, X)[:, self.columns]
        (probability,) = self.predicted(X, self.posterior.predict_probabilities)
        # Integrals are rounded, so sums differ from 1 by about 1e-9.
        probability = probability / probability.sum(axis=1, keepdims=True)
        return np.asarray(probability[:, self.columns])

    def after_few_steps(
        self, lengthscale: float, variance: float, steps: int, end: float
    ) -> SingleClassifier:
        """Copy the trained model, and train the copy for a few steps, until
        ``time.perf_counter`` is past an end. Its kernel starts with the given
        lengthscale and variance. The copy is not prepared for predictions.
        """
        other = copy.copy(self)
        model = objectives.copy_of(self.main)
        other.set_model(model)
        other.num_iterations = 0
        kernel: Any = getattr(model.kernel, "kernels", [model.kernel])[0]
        kernel.lengthscales.assign(np.full(kernel.lengthscales.shape, lengthscale))
        kernel.variance.assign(variance)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            other.go_on(min(steps, self.settings.max_iterations), end)
        return other

    def go_on(self, steps: int, end: float) -> None:
        """Train the model further, for some steps at most, until ``time.perf_counter``
        is past an end.
        """
        training = replace(self.training(), max_iterations=steps)
        model = self.main
        record = trainer.Trainer(training, 1, end)(model, begin_with_some=False)
        self.num_iterations += record.iterations
        self.record = record._replace(iterations=self.num_iterations)
        self.set_model(model)

    def left_out(
        self, copies: AnyNDArray | None = None, moves_sites: bool = True
    ) -> AnyNDArray:
        """Compute the probabilities of the classes of each training row, given all
        other rows, [N, C].

        :param copies: The number of copies of each row, itself included, [N]. Copies
            have the same site, and all of them are removed.
        :param moves_sites: Whether the sites of the other rows change without the row,
            which takes longer.
        """
        model: Any = self.model
        rows = model.converged_rows()
        X = model.data[0]
        times = np.ones(len(X)) if copies is None else copies
        power = tf.convert_to_tensor(times[:, None], rows.m.dtype)
        m, s, _ = posteriors.cavity(
            posteriors.Marginals(rows.m, rows.s),
            posteriors.Sites(rows.nu, rows.tau),
            power,
        )
        if moves_sites and rows.m.shape[1] == 1:
            mean, variance = left_out_labels.moments_without_rows(model, rows, times)
            is_found = np.isfinite(mean)[:, None]
            m = np.where(is_found, mean[:, None], m)
            s = np.where(is_found, variance[:, None], s)
        moments = m + model.mean_function(X), s + rows.d
        p = np.asarray(
            factors.class_probabilities(model.likelihood, X, *moments, self.num_classes)
        )
        # If a site is too precise to be removed, all classes of the row get the same
        # probability.
        p = np.nan_to_num(p, nan=0.0) + np.finfo(p.dtype).eps
        return np.asarray(p / np.sum(p, axis=1, keepdims=True))[:, self.columns]

    def tries_near_labels(self, num_rows: int) -> bool:
        """Return whether a fit may train a model for predictions from near rows."""
        if not wants_near_rows(self.settings.near_rows) or num_rows < LEAST_ROWS:
            return False
        return near.takes_near_labels(self.settings.kernel, self.make_likelihood())

    def trying_near_labels(self, max_iterations: int) -> SingleClassifier:
        """Copy the trained model, and let predictions use near rows if they are then
        better.

        :param max_iterations: The largest number of steps of the training for near
            rows.
        """
        other = copy.copy(self)
        other.settings = replace(
            self.settings, near_rows="auto", max_iterations=max_iterations
        )
        other.set_model(other.with_near_labels(self.model, self.main.data))
        return other

    def seconds_of_points(self, num_rows: int) -> float:
        seconds = super().seconds_of_points(num_rows)
        if seconds == np.inf or not self.tries_near_labels(num_rows):
            return seconds
        return (1.0 - SHARE_OF_NEAR_ROWS) * seconds

    def with_near_labels(
        self,
        model: gpflow.models.GPModel | ensemble.Ensemble,
        data: gpflow.base.RegressionData,
    ) -> gpflow.models.GPModel | ensemble.Ensemble:
        settings = self.settings
        if not self.tries_near_labels(len(data[0])):
            return model
        seconds = settings.max_seconds
        if seconds is not None and self.record is not None:
            seconds = SHARE_OF_NEAR_ROWS * seconds
        mixed = near.ensemble_with_near_labels(
            model,
            data,
            num_steps=min(near.STEPS, settings.max_iterations),
            seed=settings.seed,
            progress=settings.verbose,
            seconds=seconds,
        )
        return mixed or model
