"""Train models at several powers, and baselines, and score each on the same held-out rows."""

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from ..refusals import refusal
from ..training.threads import one_blas_thread
from .candidates import MIXTURE, TRIVIAL, is_choice, name_of
from .cleaning import Cleaned, clean
from .held_out import METRICS, Metric
from .settings import Settings
from .trials import Fit, Outcome, Trial, Trials, num_classes_of
from .workers import Worker, WorkerLost

#: The least time for steps of a fit, where compiling has used up its share.
LEAST_SECONDS = 0.5


class Progress(NamedTuple):
    """
    What a callback gets before each fit and, with the ``fit``, after it.

    :param number: How many fits have ended, this one counted.
    :param total: How many there are.
    :param label: Which one it is.
    :param fit: The fit, after it.
    """

    number: int
    total: int
    label: str
    fit: Fit | None = None


@dataclass(frozen=True)
class Comparison:
    """
    What :func:`compare` found; :func:`~gpflow_pep.compare.summary.summarise` sums it up.

    :param data: The table, cleaned.
    :param settings: What was asked for.
    :param candidates: The power of each model by its name; NaN for the mixture and baselines.
    :param fits: One for each model and part.
    :param held_out: By the name of the model: :func:`~gpflow_pep.compare.held_out.held_out` of the
        parts, one after another, with the number of the "part".
    :param best: The name of the power, or the mixture, with the lowest mean of the first metric;
        or if so asked of the power with the highest leave-one-out density; None if all failed.
    :param model: The best one, trained once more on all rows; None where that failed.
    :param final: That fit.
    """

    data: Cleaned
    settings: Settings
    candidates: dict[str, float]
    fits: list[Fit] = field(default_factory=list)
    held_out: dict[str, pd.DataFrame] = field(default_factory=dict)
    best: str | None = None
    model: Pipeline | None = None
    final: Fit | None = None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The scores of each fit; the first decides which model is the best."""
        return METRICS[self.data.kind]

    @property
    def choices(self) -> list[str]:
        """The names of what may be the best: all powers and their mixture, but no baselines."""
        return [name for name, alpha in self.candidates.items() if is_choice(name, alpha)]

    def fits_of(self, name: str) -> list[Fit]:
        """Find the fits of a model, by its name."""
        return [fit for fit in self.fits if fit.model == name]


class _TimeBudget:
    """Shares of the time that is left, and what compiling took the last time."""

    def __init__(self, seconds: float, fits: int, at_once: int = 1) -> None:
        self.end, self.fits, self.at_once = time.perf_counter() + seconds, fits, at_once
        self.overhead: dict[str, float] = {}

    def share(self, name: str) -> float:
        """Find the time for the steps of the next fit, a model of this name."""
        left = self.end - time.perf_counter()
        at_once = min(self.at_once, self.fits)
        self.fits -= 1
        return max(at_once * left / (self.fits + 1) - self.overhead.get(name, 0.0), LEAST_SECONDS)


class _Queue:
    """Trials that wait, and outcomes of the others; each process takes from it in a thread."""

    def __init__(
        self, trials: Trials, budget: _TimeBudget, report: Callable[[Progress], None]
    ) -> None:
        self._trials, self._budget, self._report = trials, budget, report
        self._waiting, self._lock = trials.all(), threading.Lock()
        self._total = len(self._waiting) + 1
        self._stopped = False
        self.outcomes: dict[Trial, Outcome] = {}

    def finish(self, workers: Sequence[Worker]) -> None:
        """Run all trials, here and by workers; what a callback raises is raised."""
        if workers:  # they take powers, which share what is compiled, and no baselines if possible
            candidates = self._trials.candidates
            self._waiting.sort(key=lambda trial: is_choice(trial.model, candidates[trial.model][0]))
        threads = ThreadPoolExecutor(1 + len(workers))
        try:
            helpers = [threads.submit(self._run_all, worker.run, -1) for worker in workers]
            self._run_all(self._trials.run, 0)
            for helper in helpers:
                helper.result()
        finally:
            threads.shutdown(wait=False)
        self._run_all(self._trials.run, 0)  # what lost workers have left

    def _run_all(self, run: Callable[[Trial, float], Outcome], place: int) -> None:
        """Run trials as long as there are any: the first (0) or the last (-1) that waits."""
        try:
            while task := self._next(place):
                trial, seconds = task
                try:
                    self._end(trial, run(trial, seconds))
                except WorkerLost as error:
                    self._put_back(trial, error)
                    return
        except BaseException:
            with self._lock:
                self._stopped = True
                self._waiting.clear()
            raise

    def _next(self, place: int) -> tuple[Trial, float] | None:
        with self._lock:
            if not self._waiting:
                return None
            trial = self._waiting.pop(place)
            trivial = trial.model == TRIVIAL[self._trials.data.kind]
            seconds = 0.0 if trivial else self._budget.share(trial.model)
            number = len(self.outcomes) + 1
            self._report(Progress(number, self._total, self._trials.label(trial)))
            return trial, seconds

    def _end(self, trial: Trial, outcome: Outcome) -> None:
        with self._lock:
            self.outcomes[trial] = outcome
            if outcome.overhead:
                self._budget.overhead[trial.model] = outcome.overhead
            label, number = self._trials.label(trial), len(self.outcomes)
            self._report(Progress(number, self._total, label, outcome.fit))

    def _put_back(self, trial: Trial, error: WorkerLost) -> None:
        with self._lock:
            if not self._stopped:
                self._waiting.append(trial)
                self._budget.fits += 1
                warnings.warn(str(error), stacklevel=1)


def compare(
    X: Any,
    y: Any,
    *,
    task: str | None = None,
    drop: tuple[str, ...] = (),
    drop_missing: bool = False,
    callback: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Comparison:
    """
    Train sparse Gaussian processes at several powers and score them on the same held-out rows::

        comparison = compare(table, "price", alphas=(0, 0.5, 1), folds=5)
        comparison = compare(X, y)
        print(summarise(comparison))
        mean = comparison.model.predict(new_table)

    The table is cleaned (:func:`~gpflow_pep.compare.cleaning.clean`); each model is a pipeline of
    what prepares columns (:func:`~gpflow_pep.compare.cleaning.make_preparation`) and an
    estimator, trained anew for each fold or split on the rows that it leaves; and the best power is
    trained once more on all rows. Every power starts from the same parameters and inducing points.
    A fit that fails for numerical reasons says so in its result, and the others still run.

    :param X: A table that has the target among its columns; or inputs, [N, D], an array or a table.
    :param y: The name of the target; or targets, [N].
    :param task: "regression" or "classification"; None: as the target looks.
    :param drop: Columns to leave out.
    :param drop_missing: Whether to leave out rows with missing values, rather than to fill in.
    :param callback: Called before and after each fit.
    :param settings: Those of :class:`~gpflow_pep.compare.settings.Settings`.
    :raises ValueError: If a setting is outside its range, or the table cannot be used.
    """
    checked = Settings(**settings)
    frame, target = table_of(X, y)
    data = clean(frame, target, drop=drop, drop_missing=drop_missing, task=task)
    return compare_table(data, checked, callback)


def table_of(X: Any, y: Any) -> tuple[pd.DataFrame, str]:
    """Put inputs and targets into one table, and name its target."""
    frame = X.to_pandas() if hasattr(X, "to_pandas") else X
    if isinstance(y, str):
        if not isinstance(frame, pd.DataFrame):
            got = f"{type(X).__name__} and the name {y!r} of the target"
            remedy = "Pass a DataFrame, or targets in the place of the name."
            raise refusal("X", got, "a table that has this column", remedy)
        return frame, y
    if not isinstance(frame, pd.DataFrame):
        frame = np.asarray(frame)
        if frame.ndim != 2:
            raise refusal(
                "X", f"shape {frame.shape}", "[N, D]", "Reshape it, a row for each datum."
            )
        frame = pd.DataFrame(frame, columns=[f"x{d}" for d in range(frame.shape[1])])
    targets = np.asarray(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.shape != (len(frame),):
        expected = f"[{len(frame)}] for {len(frame)} rows of X"
        raise refusal("y", f"shape {targets.shape}", expected, "Pass a target for each row.")
    target = str(getattr(y, "name", None) or "y")
    while target in frame.columns:
        target += "_"
    return frame.assign(**{target: targets}), target


def compare_table(
    data: Cleaned,
    settings: Settings,
    callback: Callable[[Progress], None] | None = None,
    workers: Sequence[Worker] = (),
) -> Comparison:
    """
    Compare on a table that was cleaned; see :func:`compare`.

    :param callback: Called before and after each fit, by one thread at a time.
    :param workers: Processes that train beside this one.
    :raises ValueError: If the settings do not fit the table.
    """
    settings.check_data(data.kind, len(data.X), num_classes_of(data))
    with one_blas_thread():
        return _compare(Trials(data, settings), callback or (lambda progress: None), workers)


def _compare(
    trials: Trials, report: Callable[[Progress], None], workers: Sequence[Worker]
) -> Comparison:
    data, settings, every = trials.data, trials.settings, trials.all()
    total = len(every) + 1
    # The trivial model takes no time.
    budget = _TimeBudget(60.0 * settings.minutes, total - len(trials.parts), 1 + len(workers))
    for worker in workers:
        worker.prepare(data, settings)
    queue = _Queue(trials, budget, report)
    queue.finish(workers)
    outcomes = [queue.outcomes[trial] for trial in every]
    powers = {name: power for name, (power, _) in trials.candidates.items()}
    tables = {
        name: [outcome.table for outcome in outcomes if outcome.fit.model == name]
        for name in powers
    }
    held_out = {name: pd.concat(parts) for name, parts in tables.items() if any(map(len, parts))}
    fits = [outcome.fit for outcome in outcomes]
    comparison = Comparison(data, settings, powers, fits, held_out)
    best = best_of(comparison)
    if best is None:
        return comparison
    label = f"{best}, all rows"
    report(Progress(total, total, label))
    pipeline = trials.pipeline(trials.candidates[best][1])
    if settings.select == "loo":
        scored = [powers[name] for name in _mean_scores(comparison) if name != MIXTURE]
        pipeline[-1].set_params(alpha=scored)
    final, failed, _ = trials.train(Trial(best, 0), pipeline, slice(None), budget.share(best))
    if settings.select == "loo" and not failed:
        best = name_of(pipeline[-1].alpha_)
        final = final._replace(model=best)
    report(Progress(total, total, label, final))
    model = None if failed else pipeline
    return replace(comparison, best=best, model=model, final=final)


def best_of(comparison: Comparison) -> str | None:
    """
    Find the power, or the mixture, whose mean of the decisive score is lowest; None if each failed
    in a part.

    It was chosen on these rows, so its scores there are slightly optimistic.
    """
    means = _mean_scores(comparison)
    return min(means, key=lambda name: means[name], default=None)


def _mean_scores(comparison: Comparison) -> dict[str, float]:
    """Average the decisive score of each power and mixture that failed in no part."""
    decisive = comparison.metrics[0].name
    return {
        name: float(np.mean([fit.scores[decisive] for fit in comparison.fits_of(name)]))
        for name in comparison.choices
        if not any(fit.failed for fit in comparison.fits_of(name))
    }
