"""The fits of a comparison: each candidate on each part, the same in whichever process."""

import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning as NotConverged
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from ..checks import reason
from ..estimators.separate import mix_fitted
from ..models import PEP, ConvergenceWarning
from .candidates import groups_of, make_candidates
from .cleaning import Cleaned, make_preparation
from .held_out import held_out
from .partition import parts_of
from .scores import metrics_of, scores
from .settings import Configuration, Settings

#: Errors that make a fit count as failed; the other fits of the comparison still run.
_FAILURES = (tf.errors.OpError, ValueError, ArithmeticError)


class Fit(NamedTuple):
    """
    A model trained on some rows and scored on others. Scores of a fit that failed are NaN.

    :param model: Its name, see
        :attr:`~gpflow_pep.compare.run.Comparison.candidates`.
    :param part: Which rows were held out: the number of the fold or split, from 1; 0 for none.
    :param scores: Of the held-out rows, by the names of
        :attr:`~gpflow_pep.compare.run.Comparison.metrics`.
    :param log_z: log Z_PEP of the training targets in the units in which the model takes them; NaN
        for other models.
    :param seconds: The whole time to prepare the rows and to train, compilation included.
    :param iterations: Steps of L-BFGS.
    :param converged: Whether the optimiser, and the sites where there are any, met their tolerance.
    :param message: How the optimiser ended, or why the fit failed or did not converge.
    :param num_rows: Those that it was trained on.
    """

    model: str
    part: int
    scores: dict[str, float]
    log_z: float
    seconds: float
    iterations: int
    converged: bool
    message: str
    num_rows: int = 0

    @property
    def failed(self) -> bool:
        """Whether there is no usable model: its densities of held-out rows are not finite."""
        return bool(self.scores) and not np.isfinite(self.scores["nlpd"])


class Trial(NamedTuple):
    """
    A fit that is to be run, or several that are run together.

    :param models: The names of candidates; where there are several, the last is the mixture of the
        others.
    :param part: As in :class:`Fit`; 0: trained on all rows and not scored.
    :param fraction: Of the rows that the part leaves, those to train on.
    """

    models: tuple[str, ...]
    part: int
    fraction: float = 1.0


class Outcome(NamedTuple):
    """The outcome of the fit of one model."""

    fit: Fit
    table: pd.DataFrame
    """See :func:`~gpflow_pep.compare.held_out.held_out`; empty where the fit failed."""
    overhead: float
    """Seconds that were not steps, most of which are compiling."""
    pipeline: Pipeline | None = None
    """What was trained, of the first part and if details are asked for."""


class Trials:
    """All trials of a comparison, and how they are run, in whichever process."""

    def __init__(
        self, data: Cleaned, settings: Settings, configurations: Sequence[Configuration] = ()
    ) -> None:
        self.data, self.settings = data, settings
        self.configurations = list(configurations or settings.configurations)
        self.candidates = make_candidates(data, settings, self.configurations)
        self.parts = list(parts_of(data, settings))
        self.metrics = metrics_of(data.kind, settings.metric)

    def all(self) -> list[Trial]:
        """List them, part by part."""
        numbers = range(1, len(self.parts) + 1)
        groups = groups_of(self.candidates)
        return [Trial(group, part) for part in numbers for group in groups]

    def label(self, trial: Trial, model: str) -> str:
        """Describe the fit of a model for the progress bar."""
        kind, *_ = self.settings.parts()
        rows = f", {trial.fraction:.0%} of its rows" if trial.fraction < 1.0 else ""
        if trial.part == 0:
            return f"{model}, all rows"
        return f"{model}, {kind} {trial.part} of {len(self.parts)}{rows}"

    def run(self, trial: Trial, seconds: float) -> list[Outcome]:
        """Train on the rows that a part leaves, each for so many seconds, and score the part's."""
        train, test = self.parts[trial.part - 1]
        train = train[shuffled(len(train), self.settings.seed)[: int(trial.fraction * len(train))]]
        fitted: list[Pipeline] = []
        outcomes: list[Outcome] = []
        for name in trial.models:
            with threadpool_limits(1, user_api="openmp"):  # of trees: threads wait for each other
                if len(trial.models) > 1 and name == trial.models[-1]:
                    done = [outcome.fit for outcome in outcomes]
                    pipeline, fit, failed, overhead = _mixture(name, fitted, done)
                else:
                    pipeline = self.pipeline(self.candidates[name][1])
                    fit, failed, overhead = self.train(
                        name, trial.part, pipeline, np.sort(train), seconds
                    )
            if not failed:
                fitted.append(pipeline)
            outcomes.append(self._scored(trial, pipeline, fit, failed, overhead, test))
        return outcomes

    def _scored(
        self,
        trial: Trial,
        pipeline: Pipeline,
        fit: Fit,
        failed: bool,
        overhead: float,
        test: AnyNDArray,
    ) -> Outcome:
        """Score the rows of a part by what was trained on others."""
        table, values = pd.DataFrame(), {metric.name: np.nan for metric in self.metrics}
        if not failed:
            try:
                X, y, classes = *self._rows(test), self.data.kind == "classes"
                table = held_out(pipeline, X, y, classes)
                values = scores(table)
                table.insert(0, "part", trial.part)
            except _FAILURES as error:
                fit, table = _failed(fit, error), pd.DataFrame()
        first = self.settings.details and trial.part == 1 and trial.fraction == 1.0
        return Outcome(
            fit._replace(scores=values), table, overhead, pipeline if first and len(table) else None
        )

    def _rows(self, rows: AnyNDArray | slice) -> tuple[pd.DataFrame, "pd.Series[Any]"]:
        return self.data.X.iloc[rows], self.data.y.iloc[rows]

    def pipeline(self, estimator: Any) -> Pipeline:
        """Put what prepares the columns before a copy of an estimator, untrained."""
        prepare = make_preparation(self.data.X, self.data.formats)
        return Pipeline([("prepare", prepare), ("model", clone(estimator))])

    def train(
        self,
        name: str,
        part: int,
        pipeline: Pipeline,
        rows: AnyNDArray | slice,
        seconds: float,
    ) -> tuple[Fit, bool, float]:
        """Train a pipeline in place; give the fit, whether it failed, and the overhead."""
        X, y = self._rows(rows)
        estimator = pipeline[-1]
        if "max_seconds" in estimator.get_params():
            estimator.set_params(max_seconds=seconds)
        began, overhead = time.perf_counter(), 0.0
        fit, failed = Fit(name, part, {}, np.nan, 0.0, 0, True, "", len(X)), False
        try:
            with warnings.catch_warnings():
                for category in (ConvergenceWarning, NotConverged):  # the fit has the message
                    warnings.simplefilter("ignore", category)
                pipeline.fit(X, y)
            record = getattr(estimator, "record_", None)
            if record is not None:
                message = _sites_message(estimator.model_)
                fit = fit._replace(
                    iterations=estimator.n_iter_,
                    log_z=record.objective if name.startswith("alpha") else np.nan,
                    converged=record.converged and not message,
                    message=message or record.message,
                )
                overhead = time.perf_counter() - began - record.seconds
        except _FAILURES as error:
            fit, failed = _failed(fit, error), True
        return fit._replace(seconds=time.perf_counter() - began), failed, overhead


def _mixture(
    name: str, fitted: Sequence[Pipeline], fits: Sequence[Fit]
) -> tuple[Pipeline, Fit, bool, float]:
    """Mix what was trained at several powers; the seconds and the steps are those of all."""
    began = time.perf_counter()
    seconds, iterations = sum(f.seconds for f in fits), sum(f.iterations for f in fits)
    open_ended = [fit for fit in fits if not fit.converged]
    message = open_ended[0].message if open_ended else fits[-1].message
    part, converged = fits[0].part, not open_ended
    num_rows = fits[0].num_rows
    fit = Fit(name, part, {}, np.nan, seconds, iterations, converged, message, num_rows)
    if not fitted:
        return Pipeline([]), fit, True, 0.0
    try:
        mixed = mix_fitted([pipeline[-1] for pipeline in fitted])
    except _FAILURES as error:
        return fitted[0], _failed(fit, error), True, 0.0
    pipeline = Pipeline([fitted[0].steps[0], ("model", mixed)])
    return pipeline, fit._replace(seconds=seconds + time.perf_counter() - began), False, 0.0


def shuffled(number: int, seed: int) -> AnyNDArray:
    """Give the numbers of rows in a random order."""
    return np.random.default_rng(seed).permutation(number)


def _failed(fit: Fit, error: Exception) -> Fit:
    return fit._replace(converged=False, message=reason(error) or type(error).__name__)


def num_classes_of(data: Cleaned) -> int:
    """Count the classes of a target; 1 for numbers."""
    return int(data.y.nunique()) if data.kind == "classes" else 1


def _sites_message(model: Any) -> str:
    """Describe sites that did not converge; empty if they did, or there are none."""
    if not isinstance(model, PEP) or model.last_inference.converged:
        return ""
    info = model.last_inference
    return (
        f"the sites did not converge: residual {info.residual:.2g} after {info.num_sweeps} sweeps,"
        f" expected below {model.tolerance:g}"
    )
