"""The common part of all recipes: candidates, a time budget, a log, and how components
are trained and mixed.

A recipe may train scouts on some of the rows, which choose between candidates. It
trains the candidates, scores each on left-out rows, and mixes them. Recipes differ in
their lists of candidates, and in the :class:`Rule` by which they are mixed.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ...distributions import Recalibration
from ...engine.left_out_rows import ensemble_weights, numbers_of_copies
from ...engine.refusals import counted
from ...engine.refusals.arrays import AnyNDArray
from ..single.exact import is_exact_kernel
from ..single.inputs import listed
from ..single.model import SingleModel
from ..single.regression import GAUSSIAN
from ..single.settings import ModelSettings
from .mixture import Mixture

#: How rows are left out, for descriptions.
LEFT_OUT = (
    "Each row is predicted from the others. Mean log {} in nats, higher is better:"
)


#: The number of steps of a candidate without its own limit.
NO_LIMIT = sys.maxsize
#: If one of these has another value than the default, the estimator trains a single
#: model.
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
    """Return the settings of an estimator that select a single model instead of a
    mixture.
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
    """Return the settings that all mixed models use."""
    given = settings.changes(OF_ALL_MODELS)
    if not settings.standardize:
        given["inputs"] = "standard"
    if not settings.standardize and settings.num_classes is None:
        given["noise"], given["warp"] = "constant", False
    return given


def only_model(single: SingleModel, why: str) -> Mixture:
    """Make the mixture of one trained model.

    :param why: Why there is only one model, for descriptions.
    """
    line = f"One model{why}: {single.describe()}"
    return Mixture((single,), single.settings, (line,), np.ones(1), np.ones(1), None)


def because_of(named: dict[str, Any]) -> str:
    """List the settings that select a single model, in words."""
    if not named:
        return ""
    verb = "is" if len(named) == 1 else "are"
    return f", because {listed(named)} {verb} set"


@dataclass(frozen=True)
class Judged:
    """A component, and its predictions of left-out rows."""

    name: str
    candidate: ModelSettings
    single: Any
    prediction: Any  #: A distribution of targets, or probabilities of classes, [N, C].
    log_densities: AnyNDArray  #: The log densities of the targets of these rows, [N].

    @property
    def score(self) -> float:
        """The mean log density."""
        return float(np.mean(self.log_densities))


@dataclass(frozen=True)
class Rule:
    """How components are mixed, according to their predictions of left-out rows."""

    #: Computes the constant c in the prior of the weights from the number of rows.
    prior_weight: Callable[[int], float]
    #: Computes the weights of the means, [K], from predictions, targets and the
    #: weights.
    mean_weights: Callable[[Sequence[Any], AnyNDArray, AnyNDArray], AnyNDArray]
    #: Computes the recalibration from predictions, targets and the weights.
    recalibration: Callable[[Sequence[Any], AnyNDArray, AnyNDArray], Recalibration]
    #: The line about a component: a format for its name, mean log density and two
    #: weights.
    line: str


class Budget:
    """The time that a recipe may take, in seconds from now on.

    :param seconds: The number of seconds; None sets no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = np.inf if seconds is None else seconds
        self._began = time.perf_counter()

    @property
    def passed(self) -> float:
        """The number of seconds that have passed."""
        return time.perf_counter() - self._began

    @property
    def left(self) -> float:
        """The number of seconds that are left; negative if the time is over."""
        return self.seconds - self.passed


class Log:
    """Lines on what was tried and kept, and why.

    :param is_shown: Whether lines are also written to stderr.
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
    """The state of a recipe while it trains models.

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
        """The number of rows and of inputs, in words."""
        return f"{counted(len(self.X), 'row')}, {counted(self.X.shape[1], 'input')}"

    @property
    def same(self) -> str:
        """The settings that all models use, in words; empty if there are none."""
        return f", all models with {listed(self.given)}" if self.given else ""

    def complete(self, candidate: ModelSettings) -> ModelSettings:
        """Give a candidate the settings that all models use, and at most as many steps
        as the user allows.
        """
        own = self.settings
        near_rows = candidate.near_rows
        order = candidate.order
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
            order=own.order if order is None else order,
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
        """Train a complete candidate on some or all rows.

        :param seconds: The time limit; None uses the time that is left.
        :param before: A component where training starts; None selects the one of the
            recipe.
        :param options: Other arguments of ``fit`` of the single model.
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
        """Mix components with weights from left-out rows, and recalibrate the mixture
        on these rows.

        :param targets: The targets of the left-out rows, [N].
        :param describe: A function that writes the last line from the mixture and the
            predictions.
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
        """Make a mixture of one component. It is not recalibrated if no rows were left
        out of training.
        """
        one = np.ones(1)
        lines = tuple(self.log.lines)
        return Mixture((single,), self.settings, lines, one, one, recalibration)


def limit_of(seconds: float) -> float | None:
    """Return the time that is left as a limit; None if it is infinite."""
    return seconds if np.isfinite(seconds) else None
