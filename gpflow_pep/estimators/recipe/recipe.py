"""What all recipes share: candidates, a budget of seconds, a log, and how components
are trained and mixed.

A recipe may train scouts on some of the rows, which choose between candidates. It
trains the candidates, judges each by rows that were left out, and mixes them. Recipes
differ in their lists of candidates, and in the :class:`Rule` by which they are mixed.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from sklearn.exceptions import ConvergenceWarning

from ...distributions import Recalibration
from ...engine.refusals import counted
from ...training import ensemble_weights
from ...training.fitting.points import numbers_of_copies
from ..single.inputs import listed
from ..single.model import SingleModel
from ..single.parts import is_exact_kernel
from ..single.regression import GAUSSIAN
from ..single.settings import ModelSettings
from .mixture import Mixture

#: How rows are judged, for descriptions.
LEFT_OUT = (
    "Each row is predicted from the others. Mean log {} in nats, higher is better:"
)


#: The most steps of a candidate that has no limit of its own.
NO_LIMIT = sys.maxsize
#: Setting one of these to another value than the default selects a single model.
OF_ONE_MODEL = ("num_inducing", "alpha", "objective", "inducing", "batch_size")
#: If one of these has another value than the default, all mixed models use it.
OF_ALL_MODELS = (
    "kernel",
    "noise",
    "warp",
    "inputs",
    "likelihood",
    "ard",
    "standardize",
)


def settings_of_one_model(settings: ModelSettings) -> dict[str, Any]:
    """Give the settings of an estimator that select one model, in the place of several
    that are mixed.
    """
    names = [*OF_ONE_MODEL]
    if settings.kernel != "auto" and not is_exact_kernel(settings.kernel):
        names.append("kernel")
    if settings.num_classes is None and settings.likelihood not in GAUSSIAN:
        names.append("likelihood")
    if not settings.standardize and settings.kernel == "additive":
        names += ["kernel", "standardize"]
    if not settings.standardize and settings.time is not None:
        names += ["time", "standardize"]
    return settings.changes(names)


def settings_of_all_models(settings: ModelSettings) -> dict[str, Any]:
    """Give the settings that all mixed models use."""
    given = settings.changes(OF_ALL_MODELS)
    if not settings.standardize:
        given["inputs"] = "standard"
    if not settings.standardize and settings.num_classes is None:
        given["noise"], given["warp"] = "constant", False
    return given


def only_model(single: SingleModel, why: str) -> Mixture:
    """Make the mixture of one trained model.

    :param why: Why there is only one, for descriptions.
    """
    line = f"One model{why}: {single.describe()}"
    return Mixture((single,), single.settings, (line,), np.ones(1), np.ones(1), None)


def because_of(named: dict[str, Any]) -> str:
    """Word the settings that select one model."""
    return f", because of {listed(named)}" if named else ""


@dataclass(frozen=True)
class Judged:
    """A component, and what it predicts of rows that were left out."""

    name: str
    candidate: ModelSettings
    single: Any
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

    :param kind: The class of the single models.
    :param settings: The settings of the estimator.
    :param X: Inputs, [N, D].
    :param Y: Targets, [N, P].
    :param before: A model from which a warm start begins.
    """

    def __init__(
        self,
        kind: type[SingleModel],
        settings: ModelSettings,
        X: AnyNDArray,
        Y: AnyNDArray,
        before: SingleModel | None = None,
    ) -> None:
        self.kind = kind
        self.settings = settings
        self.X = X
        self.Y = Y
        self.before = before
        #: The settings that all candidates have.
        self.given = settings_of_all_models(settings)
        self.budget = Budget(settings.max_seconds)
        self.log = Log(settings.verbose)
        self.copies = numbers_of_copies(X, Y)

    @property
    def size(self) -> str:
        """How many rows and inputs there are."""
        return f"{counted(len(self.X), 'row')}, {counted(self.X.shape[1], 'input')}"

    @property
    def same(self) -> str:
        """The settings of all models; empty without any."""
        return f", all models with {listed(self.given)}" if self.given else ""

    def complete(self, candidate: ModelSettings) -> ModelSettings:
        """Give a candidate the settings that all models have, and at most as many steps
        as the user allows.
        """
        own = self.settings
        near_rows = candidate.near_rows
        return replace(
            candidate,
            **self.given,
            near_rows=own.near_rows if near_rows == "auto" else near_rows,
            num_latent=own.num_latent,
            time=own.time,
            max_iterations=min(candidate.max_iterations, own.max_iterations),
            verbose=candidate.verbose and own.verbose,
            seed=own.seed,
            num_classes=own.num_classes,
        )

    def train(
        self,
        candidate: ModelSettings,
        *,
        seconds: float | None = None,
        rows: Any = slice(None),
        before: SingleModel | None = None,
        **options: Any,
    ) -> Any:
        """Train a candidate, which is complete, on some rows or all.

        :param seconds: The most seconds; None: those that are left.
        :param before: A component from which it begins; None: the one of the recipe.
        :param options: What ``fit`` of the single model takes beside these.
        """
        seconds = self.budget.left if seconds is None else seconds
        single = self.kind(replace(candidate, max_seconds=limit_of(seconds)))
        before = self.before if before is None else before
        with self.allowing_few_steps(single):
            single.fit(self.X[rows], self.Y[rows], before=before, **options)
        return single

    @contextmanager
    def allowing_few_steps(self, single: SingleModel) -> Iterator[None]:
        """Let a component be trained for fewer steps than the user allows, without a
        warning.
        """
        steps = single.settings.max_iterations
        is_short = steps < self.settings.max_iterations
        with warnings.catch_warnings():
            if is_short:
                warnings.filterwarnings("ignore", ".*REACHED LIMIT", ConvergenceWarning)
            yield
        if is_short and single.record is not None and single.num_iterations == steps:
            done = f"This model has only {steps} steps."
            single.record = single.record._replace(converged=True, message=done)

    def mix(
        self,
        judged: Sequence[Judged],
        targets: AnyNDArray,
        rule: Rule,
        describe: Callable[[Mixture, Sequence[Any]], str],
    ) -> Mixture:
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
        singles = tuple(each.single for each in judged)
        recalibration = rule.recalibration(predictions, targets, weights)
        mixture = Mixture(
            singles, self.settings, (), weights, mean_weights, recalibration
        )
        self.log.note(describe(mixture, predictions))
        mixture.lines = tuple(self.log.lines)
        return mixture

    def alone(
        self, single: SingleModel, recalibration: Recalibration | None = None
    ) -> Mixture:
        """Make a mixture of one component; not recalibrated where no row was left out
        honestly.
        """
        one = np.ones(1)
        lines = tuple(self.log.lines)
        return Mixture((single,), self.settings, lines, one, one, recalibration)


def limit_of(seconds: float) -> float | None:
    """Give the limit of seconds that are left; None if they are infinite."""
    return seconds if np.isfinite(seconds) else None
