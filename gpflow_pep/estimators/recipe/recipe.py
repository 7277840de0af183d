"""What all recipes share: candidates, a budget of seconds, a log, and how components
are trained and mixed.

A recipe may train scouts on some of the rows, which choose between candidates. It
trains the candidates, judges each by rows that were left out, and mixes them. Recipes
differ in their lists of candidates, and in the :class:`Rule` by which they are mixed.
"""

import copy
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from sklearn.exceptions import ConvergenceWarning

from ...distributions import Recalibration
from ...engine.refusals import counted
from ...training import ensemble_weights
from ...training.fitting.points import numbers_of_copies
from ..single.exact import Hyperparameters
from ..single.inputs import listed
from .stack import Stack

#: How rows are judged, for descriptions.
LEFT_OUT = (
    "Each row is predicted from the others. Mean log {} in nats, higher is better:"
)


@dataclass(frozen=True)
class Candidate:
    """The settings of a model that a recipe may train; those that are None are the
    estimator's.
    """

    kernel: str | None = None
    inputs: str | None = None
    noise: str | None = None
    warp: bool | None = None
    inducing: str | None = None
    num_inducing: int | None = None
    alpha: float | None = None
    ard: bool | float | None = None
    standardize: bool | None = None
    likelihood: Any = None
    near_rows: int | None = None
    warm_start: bool | None = None
    verbose: bool | None = None
    max_iterations: int = sys.maxsize  #: The most steps.

    def settings(self) -> dict[str, Any]:
        """Give the parameters of an estimator that it sets."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in every.items() if value is not None}

    def is_like(self, other: "Candidate") -> bool:
        """Whether it is the same model as another, trained for as long or not."""
        return replace(self, max_iterations=other.max_iterations) == other


@dataclass(frozen=True)
class Judged:
    """A component, and what it predicts of rows that were left out."""

    name: str
    candidate: Candidate
    part: Any
    prediction: Any  #: A distribution of targets, or probabilities of classes, [N, C].
    log_densities: AnyNDArray  #: Of the targets of these rows, [N].

    @property
    def score(self) -> float:
        """The mean log density."""
        return float(np.mean(self.log_densities))


@dataclass(frozen=True)
class Rule:
    """How components are mixed by their predictions of rows that were left out."""

    #: c of the prior of the weights, by the number of rows.
    prior_weight: Callable[[int], float]
    #: The weights of the means, [K], by predictions, targets and the weights.
    mean_weights: Callable[[Sequence[Any], AnyNDArray, AnyNDArray], AnyNDArray]
    #: What makes the mixture right, by predictions, targets and the weights.
    recalibration: Callable[[Sequence[Any], AnyNDArray, AnyNDArray], Recalibration]
    #: The line on a component, of its name, mean log density and two weights.
    line: str


class Budget:
    """The seconds that a recipe may take, from now on.

    :param seconds: How many; None: any number.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = np.inf if seconds is None else seconds
        self._began = time.perf_counter()

    @property
    def passed(self) -> float:
        """How many have passed."""
        return time.perf_counter() - self._began

    @property
    def left(self) -> float:
        """How many are left; below 0 if the time is over."""
        return self.seconds - self.passed


class Log:
    """Lines on what was tried and kept, and why.

    :param is_shown: Whether they are written to stderr too.
    """

    def __init__(self, is_shown: bool) -> None:
        self._is_shown = is_shown
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        """Add a line."""
        self.lines.append(line)
        if self._is_shown:
            print(line, file=sys.stderr)


class Recipe:
    """What a recipe has while it trains models of rows.

    :param estimator: Whose other settings are those of all candidates.
    :param X: Inputs, [N, D].
    :param Y: Targets, [N, P].
    :param seconds: The most seconds; None: any number.
    """

    def __init__(
        self, estimator: Any, X: AnyNDArray, Y: AnyNDArray, seconds: float | None
    ) -> None:
        self.estimator, self.X, self.Y = estimator, X, Y
        self.budget, self.log = Budget(seconds), Log(estimator.verbose)
        self.copies = numbers_of_copies(X, Y)
        self.given: dict[str, Any] = estimator._settings_of_all_models()

    @property
    def size(self) -> str:
        """How many rows and inputs there are."""
        return f"{counted(len(self.X), 'row')}, {counted(self.X.shape[1], 'input')}"

    @property
    def same(self) -> str:
        """The settings of all models; empty without any."""
        return f", all models with {listed(self.given)}" if self.given else ""

    def complete(self, candidate: Candidate) -> Candidate:
        """Give a candidate the settings that all models have, and at most as many steps
        as the user allows.
        """
        most = min(candidate.max_iterations, self.estimator.max_iterations)
        return replace(candidate, **self.given, max_iterations=most)

    def train(
        self,
        candidate: Candidate,
        *,
        seconds: float | None = None,
        rows: Any = slice(None),
        start: Hyperparameters | None = None,
        before: Any = None,
        warps: AnyNDArray | None = None,
    ) -> Any:
        """Train a candidate, which is complete, on some rows or all.

        :param seconds: The most seconds; None: those that are left.
        :param start: Where an exact model starts, or the warp of another one.
        :param before: A component from which a warm start begins.
        :param warps: Skew and tails of each of several columns, [P, 2], if known.
        """
        seconds = self.budget.left if seconds is None else seconds
        steps = candidate.max_iterations
        is_short = steps < self.estimator.max_iterations
        part = copy.copy(self.estimator if before is None else before)
        part.__dict__.pop("feature_names_in_", None)  # it gets arrays
        limit = seconds if np.isfinite(seconds) else None
        part.set_params(**candidate.settings(), max_seconds=limit)
        options = {} if warps is None else {"warps": warps}
        with warnings.catch_warnings():
            if is_short:
                warnings.filterwarnings("ignore", ".*REACHED LIMIT", ConvergenceWarning)
            part._fit_one(self.X[rows], self.Y[rows], start, **options)
        if is_short and part.n_iter_ == steps:
            done = f"This model has only {steps} steps."
            part.record_ = part.record_._replace(converged=True, message=done)
        return part

    def mix(
        self,
        judged: Sequence[Judged],
        targets: AnyNDArray,
        rule: Rule,
        describe: Callable[[Stack, Sequence[Any]], str],
    ) -> Stack:
        """Mix components by rows that were left out, which recalibrate the mixture.

        :param targets: Of these rows, [N].
        :param describe: Makes the last line, of the mixture and the predictions.
        """
        densities = np.stack([each.log_densities for each in judged])
        predictions = [each.prediction for each in judged]
        prior_weight = rule.prior_weight(len(targets))
        weights = ensemble_weights(densities, prior_weight=prior_weight)
        mean_weights = rule.mean_weights(predictions, targets, weights)
        for each, *values in zip(judged, weights, mean_weights):
            self.log.note(rule.line.format(each.name, each.score, *values))
        parts = tuple(each.part for each in judged)
        recalibration = rule.recalibration(predictions, targets, weights)
        stack = Stack(parts, weights, mean_weights, recalibration, ())
        self.log.note(describe(stack, predictions))
        return stack._replace(lines=tuple(self.log.lines))

    def alone(self, part: Any, recalibration: Recalibration | None = None) -> Stack:
        """Make a stack of one component; not recalibrated where no row was left out
        honestly.
        """
        lines = tuple(self.log.lines)
        return Stack((part,), np.ones(1), np.ones(1), recalibration, lines)
