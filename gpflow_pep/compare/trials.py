"""The fits of a comparison: each candidate on each part, with the same result in any
process.
"""

import pickle
import time
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning as NotConverged
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from ..engine.checks import reason
from ..engine.records import OVER
from ..engine.refusals import counted
from ..estimators import DrawingPipeline
from ..models import PEP, ConvergenceWarning
from ..tables.cleaning import Cleaned, make_preparation
from .candidates import DEFAULT, SINGLE, holds_rows_out, make_candidates
from .fit_warnings import plain
from .partition import parts_of
from .predicting import BANDS, QUANTILES
from .process import unpickled
from .scores import held_out, metrics_for, scores
from .series import LAST_VALUE, SAME_SEASON, RowsInTime, rows_in_time
from .settings import Settings
from .trees import TREES, TreeColumns

#: The message of a fit that did not begin.
NOT_BEGUN = "The time ran out before it began."
#: A fit that the time limit ended after fewer steps has hardly begun: L-BFGS computes
#: its directions from the last ten steps.
FEWEST_STEPS = 10
#: Errors that make a fit count as failed; the other fits of the comparison still run.
_FAILURES = (tf.errors.OpError, ValueError, ArithmeticError)


class Fit(NamedTuple):
    """A model that was trained on some rows and scored on others. The scores of a
    failed fit are NaN.

    :param model: The name of the model, see
        :attr:`~gpflow_pep.compare.run.Comparison.candidates`.
    :param part: The number of the fold or split that was held out, from 1; 0 if no rows
        were held out.
    :param scores: The scores of the held-out rows, by the names of
        :attr:`~gpflow_pep.compare.run.Comparison.metrics`.
    :param log_z: log Z_PEP of the training targets in the units of the model; NaN for
        other models.
    :param seconds: The total time to prepare the rows and to train, including
        compilation.
    :param iterations: The number of steps of L-BFGS.
    :param converged: Whether the optimiser, and the sites if there are any, met their
        tolerance.
    :param message: How the optimiser ended, or why the fit failed or did not converge.
    :param num_rows: The number of training rows.
    :param warnings: Other warnings of training or predictions, in words for users of
        the table.
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
    warnings: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether there is no usable model: its densities of held-out rows are not
        finite.
        """
        return bool(self.scores) and not np.isfinite(self.scores["nlpd"])

    @property
    def hardly_began(self) -> bool:
        """Whether the time limit ended the training before :data:`FEWEST_STEPS`."""
        return self.message.startswith(OVER) and self.iterations < FEWEST_STEPS


class Trial(NamedTuple):
    """A fit that is to be run.

    :param model: The name of a candidate.
    :param part: As in :class:`Fit`. With 0 the model is trained on all rows and not
        scored.
    :param fraction: The fraction of the training rows of the part that is used.
    """

    model: str
    part: int
    fraction: float = 1.0

    @property
    def is_optional(self) -> bool:
        """Whether the trial is a point of the learning curve, which comes after the
        model of all rows and does not begin when the time is over.
        """
        return self.fraction < 1.0


class Outcome(NamedTuple):
    """The outcome of the fit of one model."""

    fit: Fit
    pipeline: Pipeline | None
    """The trained pipeline; None if the fit failed. Pipelines of parts other than the
    first are not kept.
    """
    #: The seconds that are not within the time limit of the fit, mostly for compiling.
    overhead: float = 0.0
    table: pd.DataFrame = pd.DataFrame()
    """See :func:`~gpflow_pep.compare.scores.held_out`; empty if the fit failed."""


class Trials:
    """All trials of a comparison, and how any process runs them."""

    def __init__(self, data: Cleaned, settings: Settings) -> None:
        self.data = data
        self.settings = settings
        self.candidates = make_candidates(data, settings)
        self.parts = list(parts_of(data, settings))
        self.metrics = metrics_for(data, settings)
        is_in_time = settings.time_column is not None
        self.rows_in_time = rows_in_time(data) if is_in_time else None

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickled, (pickle.dumps((Trials, self.__dict__)),)

    def all(self) -> list[Trial]:
        """List the trials, part by part."""
        parts = range(1, len(self.parts) + 1)
        return [Trial(name, part) for part in parts for name in self.candidates]

    def label(self, trial: Trial) -> str:
        """Describe a fit for the progress bar."""
        kind, *_ = self.settings.parts()
        rows = f", {trial.fraction:.0%} of its rows" if trial.fraction < 1.0 else ""
        if trial.part == 0:
            return f"{trial.model}, all rows"
        return f"{trial.model}, {kind} {trial.part} of {len(self.parts)}{rows}"

    def not_begun(self, trial: Trial) -> Outcome:
        """Return the outcome of a fit for which there was no time."""
        scores = {metric.name: np.nan for metric in self.metrics}
        return Outcome(
            Fit(trial.model, trial.part, scores, np.nan, 0.0, 0, False, NOT_BEGUN), None
        )

    def run(self, trial: Trial, seconds: float) -> Outcome:
        """Train on the training rows of a part, for at most these seconds, and score
        its held-out rows.
        """
        if trial.part == 0:
            return self.train(trial, slice(None), seconds)
        train, test = self.parts[trial.part - 1]
        train = np.random.default_rng(self.settings.seed).permutation(train)
        # The latest rows, or whole groups, come first.
        if self.data.blocks is not None:
            ranks = self.data.blocks.iloc[train].rank(method="dense", ascending=False)
            train = train[np.argsort(ranks.to_numpy(), kind="stable")]
        # The same fraction of each class, and at least one row.
        if self.data.kind == "classes":
            labels = self.data.y.iloc[train].groupby(self.data.y.iloc[train])
            place = labels.cumcount() / labels.transform("size")
            train = train[np.argsort(place.to_numpy(), kind="stable")]
        train = np.sort(train[: int(trial.fraction * len(train))])
        outcome = self._scored(self.train(trial, train, seconds), test)
        with_details = (
            self.settings.details and trial.part == 1 and trial.fraction == 1.0
        )
        return outcome if with_details else outcome._replace(pipeline=None)

    def _scored(self, outcome: Outcome, test: AnyNDArray) -> Outcome:
        """Score the rows of a part with a model that was trained on other rows."""
        fit = outcome.fit
        pipeline = outcome.pipeline
        fit = fit._replace(scores={metric.name: np.nan for metric in self.metrics})
        if pipeline is None:
            return outcome._replace(fit=fit)
        try:
            table = held_out(
                pipeline,
                *self._rows(test),
                self.data.kind == "classes",
                QUANTILES if self.rows_in_time is None else BANDS,
            )
            values = scores(table)
            of_metrics = {metric.name: values[metric.name] for metric in self.metrics}
            fit = fit._replace(scores=of_metrics)
        except _FAILURES as error:
            return outcome._replace(fit=_failed(fit, error), pipeline=None)
        table.insert(0, "part", fit.part)
        return outcome._replace(fit=fit, table=table)

    def _rows(self, rows: AnyNDArray | slice) -> tuple[pd.DataFrame, "pd.Series[Any]"]:
        return self.data.X.iloc[rows], self.data.outcomes.iloc[rows]

    def _held_out_in(self, rows: AnyNDArray | slice) -> AnyNDArray:
        """Choose which training rows, [N], a baseline holds out: a fifth of them, as
        rows of the table are held out. That means whole groups, or the latest rows.
        """
        data = self.data
        settings = self.settings
        X = data.X.iloc[rows]
        y = data.y.iloc[rows]
        blocks = data.blocks
        if blocks is not None:
            blocks = blocks.iloc[rows]
        usual: dict[str, Any] = {
            "folds": 5,
            "splits": None,
            "test_fraction": None,
            "horizon": None,
        }
        if settings.time_column is not None:
            usual |= {"folds": None, "test_fraction": 0.2}
        elif blocks is not None:
            usual["folds"] = min(5, max(2, blocks.nunique()))
        held_out = np.zeros(len(X), dtype=bool)
        try:
            parts = parts_of(
                data._replace(X=X, y=y, blocks=blocks), replace(settings, **usual)
            )
            held_out[next(parts)[1]] = True
        except ValueError:  # there are too few groups, or too few rows of a class
            order = np.random.default_rng(settings.seed).permutation(len(X))
            held_out[order[: max(1, len(X) // 5)]] = True
        return held_out

    def _set_time(
        self, name: str, estimator: Any, prepare: Any, X: pd.DataFrame
    ) -> None:
        """Set the position of the time column among the inputs of the default."""
        times = self.settings.time_column
        if times not in self.data.X or name.partition(" (")[0] != DEFAULT:
            return
        numbers = clone(prepare).fit(X).get_feature_names_out()
        place = list(numbers).index(times)
        if "time" in estimator.get_params():
            estimator.set_params(time=place)

    def train(self, trial: Trial, rows: AnyNDArray | slice, seconds: float) -> Outcome:
        """Train a copy of an estimator, after the preparation of the columns."""
        X, y = self._rows(rows)
        name = trial.model
        estimator = clone(self.candidates[trial.model][1])
        prepare: Any = make_preparation(self.data.X, self.data.formats)
        if name == TREES:
            prepare = TreeColumns(prepare.formats)
        if name in (LAST_VALUE, SAME_SEASON):
            prepare = RowsInTime(self.rows_in_time)
        options: dict[str, Any] = {}
        if holds_rows_out(name, estimator):
            options["model__held_out"] = self._held_out_in(rows)
        self._set_time(name, estimator, prepare, X)
        if "max_seconds" in estimator.get_params():
            estimator.set_params(max_seconds=seconds)
        pipeline = DrawingPipeline([("prepare", prepare), ("model", estimator)])
        trained = None
        began = time.perf_counter()
        overhead = 0.0
        fit = Fit(name, trial.part, {}, np.nan, 0.0, 0, True, "", len(X))
        try:
            # With several threads, boosted trees wait for each other.
            with warnings.catch_warnings(), threadpool_limits(1, user_api="openmp"):
                # Their messages are in the record of the fit.
                if "max_seconds" in estimator.get_params():
                    for category in (ConvergenceWarning, NotConverged):
                        warnings.simplefilter("ignore", category)
                # The cleaning of the table already warns of these, with the row numbers
                # of the table.
                warnings.filterwarnings(
                    "ignore", ".* (so far from the|are copies of) others"
                )
                trained = pipeline.fit(X, y, **options)
            record = getattr(estimator, "record_", None)
            if record is not None:
                message = _sites_message(estimator)
                fit = fit._replace(
                    iterations=estimator.n_iter_,
                    log_z=record.objective if name.startswith(SINGLE) else np.nan,
                    converged=record.converged and not message,
                    message=plain(message or record.message),
                )
                # The time limit of the default contains the compilation of all its
                # models; the record is that of one of them.
                if name.partition(" (")[0] != DEFAULT:
                    overhead = time.perf_counter() - began - record.seconds
        except _FAILURES as error:
            fit = _failed(fit, error)
            trained = None
        return Outcome(
            fit._replace(seconds=time.perf_counter() - began), trained, overhead
        )


def _failed(fit: Fit, error: Exception) -> Fit:
    message = plain(reason(error)) or type(error).__name__
    return fit._replace(converged=False, message=message)


def _sites_message(estimator: Any) -> str:
    """Describe sites that did not converge; empty if they did, or there are none."""
    mixture = getattr(estimator, "mixture_", None)
    # Gaussian noise needs no sites, and the GPflow model of an exact component would be
    # made only to see that.
    if mixture is not None and mixture.heaviest.has_gaussian_noise:
        return ""
    model = estimator.model_
    if not isinstance(model, PEP) or model.last_inference.converged:
        return ""
    info = model.last_inference
    text = f"residual {info.residual:.2g} after {counted(info.num_sweeps, 'sweep')}"
    return f"the sites did not converge: {text}, expected below {model.tolerance:g}"
