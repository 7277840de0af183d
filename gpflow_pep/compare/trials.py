"""The fits of a comparison: each candidate on each part, the same in whichever process."""

import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning as NotConverged
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from ..checks import reason
from ..models import PEP, ConvergenceWarning
from .candidates import make_candidates
from .cleaning import Cleaned, make_preparation
from .held_out import METRICS, held_out, scores
from .settings import Settings

#: What may come of numbers for which a fit fails; the others of the comparison still run.
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
    """

    model: str
    part: int
    scores: dict[str, float]
    log_z: float
    seconds: float
    iterations: int
    converged: bool
    message: str

    @property
    def failed(self) -> bool:
        """Whether there is no usable model."""
        return bool(self.scores) and not np.all(np.isfinite(list(self.scores.values())))


class Trial(NamedTuple):
    """A fit that is to be run: of a candidate, by its name, and a part as in :class:`Fit`."""

    model: str
    part: int


class Outcome(NamedTuple):
    """What came of a trial."""

    fit: Fit
    table: pd.DataFrame
    """See :func:`~gpflow_pep.compare.held_out.held_out`; empty where the fit failed."""
    overhead: float
    """Seconds that were not steps, most of which are compiling."""


class Trials:
    """All trials of a comparison, and how they are run, in whichever process."""

    def __init__(self, data: Cleaned, settings: Settings) -> None:
        self.data, self.settings = data, settings
        self.candidates = make_candidates(data, settings)
        self.parts = list(_parts(data, settings))

    def all(self) -> list[Trial]:
        """List them, part by part."""
        numbers = range(1, len(self.parts) + 1)
        return [Trial(name, part) for part in numbers for name in self.candidates]

    def label(self, trial: Trial) -> str:
        """Describe a trial for the progress bar."""
        kind, *_ = self.settings.parts()
        return f"{trial.model}, {kind} {trial.part} of {len(self.parts)}"

    def run(self, trial: Trial, seconds: float) -> Outcome:
        """Train on the rows that a part leaves, for so many seconds, and score the part's rows."""
        train, test = self.parts[trial.part - 1]
        pipeline = self.pipeline(self.candidates[trial.model][1])
        with threadpool_limits(1, user_api="openmp"):  # of trees: threads wait for each other
            fit, failed, overhead = self.train(trial, pipeline, train, seconds)
        table, values = pd.DataFrame(), {metric.name: np.nan for metric in METRICS[self.data.kind]}
        if not failed:
            try:
                X, y = self.data.X.iloc[test], self.data.y.iloc[test]
                table = held_out(pipeline, X, y, self.data.kind == "classes")
                values = scores(table)
                table.insert(0, "part", trial.part)
            except _FAILURES as error:
                fit, table = _failed(fit, error), pd.DataFrame()
        return Outcome(fit._replace(scores=values), table, overhead)

    def pipeline(self, estimator: Any) -> Pipeline:
        """Put what prepares the columns before a copy of an estimator, untrained."""
        prepare = make_preparation(self.data.X, self.data.formats)
        return Pipeline([("prepare", prepare), ("model", clone(estimator))])

    def train(
        self, trial: Trial, pipeline: Pipeline, rows: AnyNDArray | slice, seconds: float
    ) -> tuple[Fit, bool, float]:
        """Train a pipeline in place; give the fit, whether it failed, and the overhead."""
        X, y, estimator = self.data.X.iloc[rows], self.data.y.iloc[rows], pipeline[-1]
        if "max_seconds" in estimator.get_params():
            estimator.set_params(max_seconds=seconds)
        began, overhead = time.perf_counter(), 0.0
        fit, failed = Fit(*trial, {}, np.nan, 0.0, 0, True, ""), False
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
                    log_z=record.objective if trial.model.startswith("alpha") else np.nan,
                    converged=record.converged and not message,
                    message=message or record.message,
                )
                overhead = time.perf_counter() - began - record.seconds
        except _FAILURES as error:
            fit, failed = _failed(fit, error), True
        return fit._replace(seconds=time.perf_counter() - began), failed, overhead


def _failed(fit: Fit, error: Exception) -> Fit:
    return fit._replace(converged=False, message=reason(error) or type(error).__name__)


def num_classes_of(data: Cleaned) -> int:
    """Count the classes of a target; 1 for numbers."""
    return int(data.y.nunique()) if data.kind == "classes" else 1


def _parts(data: Cleaned, settings: Settings) -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
    """Give rows to train on and rows held out, each in increasing order."""
    kind, count, fraction = settings.parts()
    classes = data.kind == "classes"
    if kind == "fold":
        splitter: Any = partial(StratifiedKFold if classes else KFold, shuffle=True)
    else:
        splitter = StratifiedShuffleSplit if classes else ShuffleSplit
        splitter = partial(splitter, test_size=fraction)
    with warnings.catch_warnings():
        # That some class has fewer members than there are folds: then some hold out none of it.
        warnings.filterwarnings("ignore", message="The least populated class")
        for train, test in splitter(count, random_state=settings.seed).split(data.X, data.y):
            yield np.sort(train), np.sort(test)


def _sites_message(model: Any) -> str:
    """Describe sites that did not converge; empty if they did, or there are none."""
    if not isinstance(model, PEP) or model.last_inference.converged:
        return ""
    info = model.last_inference
    return (
        f"the sites did not converge: residual {info.residual:.2g} after {info.num_sweeps} sweeps,"
        f" expected below {model.tolerance:g}"
    )
