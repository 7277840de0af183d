"""Train models at several powers, and baselines, and score each on the same held-out rows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import Any

import joblib
import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from ..engine.refusals import refusal
from ..estimators.outputs import column_names
from ..tables.cleaning import Cleaned, clean
from ..training.fitting.full_batch import one_blas_thread
from .candidates import ENSEMBLE, check_targets, is_choice, is_separate, label_of, name_of
from .details import (
    FEWEST_ROWS,
    FRACTIONS,
    Details,
    LearningPoint,
    errors_given_others,
    importance_of,
)
from .partition import note_equal_inputs
from .schedule import LEAST_SECONDS, Progress, Reports, TimeBudget, run_trials
from .scores import Metric, mean_and_error, metrics_of
from .screening import (
    Screening,
    best_scale,
    finalists,
    is_skewed,
    screening_of,
    trials_of_scales,
    trials_of_screening,
)
from .settings import Settings
from .trials import NOT_BEGUN, Fit, Outcome, Trial, Trials


@dataclass(frozen=True)
class Comparison:
    """
    What :func:`compare` found; :func:`~gpflow_pep.compare.findings.summarise` sums it up.

    :param data: The table, cleaned.
    :param settings: Those of the comparison.
    :param candidates: The power of each model by its name; NaN for the ensemble and baselines.
    :param fits: One for each model and part.
    :param held_out: By the name of the model: :func:`~gpflow_pep.compare.scores.held_out` of the
        parts, one after another, with the number of the "part".
    :param best: The name of the power, or the ensemble, with the best mean of the first metric;
        or, with ``select="loo"``, the highest leave-one-out density; None if all failed.
    :param model: The best one, trained once more on all rows; None where that failed.
    :param final: That fit.
    :param details: More about the best one; None without ``details``.
    :param screening: How the configurations that were compared were chosen; None: they are all.
    :param scales: The NLPD of skewed targets and of their logarithms in a trial, by the likelihood;
        empty where there was none. The likelihood of the settings is the better one.
    :param left_out: What did not begin before the time was over. Where that is a fit, there are the
        parts alone in which all models were trained; or, where there are none, the first part and
        the models that were trained there.
    """

    data: Cleaned
    settings: Settings
    candidates: dict[str, float]
    fits: list[Fit] = field(default_factory=list)
    held_out: dict[str, pd.DataFrame] = field(default_factory=dict)
    best: str | None = None
    model: Pipeline | None = None
    final: Fit | None = None
    details: Details | None = None
    screening: Screening | None = None
    scales: dict[str, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The scores of each fit; the first decides which model is the best."""
        return metrics_of(self.data.kind, self.settings.metric)

    @property
    def choices(self) -> list[str]:
        """The names of what may be the best: all powers and their ensemble, but no baselines."""
        return [name for name, alpha in self.candidates.items() if is_choice(name, alpha)]

    def fits_of(self, name: str) -> list[Fit]:
        """Find the fits of a model, by its name."""
        return [fit for fit in self.fits if fit.model == name]

    def num_failed(self, name: str) -> int:
        """Count the fits of a model that failed."""
        return sum(fit.failed for fit in self.fits_of(name))

    @property
    def losses(self) -> dict[str, float]:
        """The mean decisive loss of each choice that failed in no part."""
        decisive = self.metrics[0]
        means = {}
        for name in self.choices:
            if not self.num_failed(name):
                mean, _ = mean_and_error([fit.scores[decisive.name] for fit in self.fits_of(name)])
                means[name] = np.inf if np.isnan(mean) else decisive.loss(mean)
        return means


def compare(
    X: Any,
    y: Any,
    *,
    callback: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Comparison:
    """
    Train sparse Gaussian processes at several powers and score them on the same held-out rows::

        comparison = compare(table, "price", alphas=(0, 0.5, 1), folds=5)
        comparison = compare(X, y)
        comparison = compare(table, ["height", "weight"])
        print(summarise(comparison))
        mean = comparison.model.predict(new_table)

    The table is cleaned (:func:`~gpflow_pep.tables.cleaning.clean`); each model is a pipeline of
    what prepares columns (:func:`~gpflow_pep.tables.cleaning.make_preparation`) and an
    estimator, trained anew for each fold or split on the rows that it leaves; and the best power is
    trained once more on all rows. Every power starts from the same parameters and inducing points.
    The result of a fit that fails for numerical reasons has the message, and the others still run.

    The fits run one after another, or as ``joblib.parallel_config`` sets: with
    ``backend="loky", n_jobs=2`` in two processes, with ``backend="dask"`` on a cluster.

    :param X: A table that has the target among its columns; or inputs, [N, D], an array or a table.
    :param y: The name of the target; or targets, [N]. Several targets are numbers: a list of their
        names, or [N, P], with NaN where one is missing. Models of all together are then compared
        with models of each by itself.
    :param callback: Called before each fit, or the powers of an ensemble together, and after each.
    :param options: Those of :class:`~gpflow_pep.compare.settings.Settings`, and of
        :func:`~gpflow_pep.tables.cleaning.clean` but ``limits``: ``task``, ``drop``,
        ``drop_missing``, ``as_written``, ``decimal``, ``thousands``, ``dates`` and ``missing``.
    :raises ValueError: If a setting is outside its range, or the table cannot be used.
    """
    of_table = (options.keys() & signature(clean).parameters.keys()) - {"limits"}
    cleaning = {name: options.pop(name) for name in of_table}
    checked = Settings(**options)
    frame, target = table_of(X, y)
    data = clean(frame, target, **cleaning, limits=checked.likelihood == "tobit")
    return compare_table(note_equal_inputs(data, checked), checked, callback)


def table_of(X: Any, y: Any) -> tuple[pd.DataFrame, str | list[str]]:
    """Put inputs and targets into one table, and name its target or targets."""
    frame = X.to_pandas() if hasattr(X, "to_pandas") else X
    if isinstance(y, str):
        if not isinstance(frame, pd.DataFrame):
            got = f"{type(X).__name__} and the name {y!r} of the target"
            remedy = "Pass a DataFrame, or targets in the place of the name."
            raise refusal("X", got, "a table that has this column", remedy)
        return frame, y
    if _are_names(y, frame):
        return frame, list(y)
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
    if targets.ndim == 2 and len(targets) == len(frame):
        names = column_names(y) or [f"y{p}" for p in range(targets.shape[1])]
        Y = pd.DataFrame(targets, columns=names, index=frame.index)
        return pd.concat([frame, Y], axis=1), names
    if targets.shape != (len(frame),):
        expected = f"[{len(frame)}] for {len(frame)} rows of X"
        raise refusal("y", f"shape {targets.shape}", expected, "Pass a target for each row.")
    target = str(getattr(y, "name", None) or "y")
    while target in frame.columns:
        target += "_"
    return frame.assign(**{target: targets}), target


def _are_names(y: Any, frame: Any) -> bool:
    """Whether they are names of several columns, and no labels of the rows."""
    if not isinstance(frame, pd.DataFrame) or not isinstance(y, (list, tuple)):
        return False
    return len(y) != len(frame) and all(isinstance(name, str) for name in y)


def compare_table(
    data: Cleaned,
    settings: Settings,
    callback: Callable[[Progress], None] | None = None,
) -> Comparison:
    """
    Compare on a table that was cleaned; see :func:`compare`.

    :param callback: Called before and after each fit, by one thread at a time.
    :raises ValueError: If the settings do not fit the table.
    """
    settings.check_data(data.kind, len(data.X), data.num_classes, len(data.targets))
    check_targets(data, settings)
    with one_blas_thread():
        return _compare(data, settings, callback or (lambda progress: None))


def _compare(data: Cleaned, settings: Settings, callback: Callable[[Progress], None]) -> Comparison:
    scales = trials_of_scales(data, settings) if is_skewed(data, settings) else []
    screened, waiting = trials_of_screening(data, settings) or (None, [])
    trials = Trials(data, settings, finalists(settings))
    fractions = _fractions(trials) if settings.details else []
    num_fits = len(trials.candidates) * len(trials.parts)
    total = num_fits + 1 + len(fractions) + len(waiting) + len(scales)
    timed = total - len(trials.parts)  # the trivial model takes no time
    budget = TimeBudget(60.0 * settings.minutes, timed, joblib.effective_n_jobs(None))
    reports = Reports(callback, total + settings.details)
    run = partial(run_trials, budget=budget, reports=reports)

    densities = {}
    for scale_trials, alone in scales:
        ((outcome,),) = run(scale_trials, alone).values()
        densities[scale_trials.settings.likelihood] = outcome.fit.scores["nlpd"]
    if densities:
        settings = replace(settings, likelihood=best_scale(densities))
        screened, waiting = trials_of_screening(data, settings) or (None, [])
        trials = Trials(data, settings, finalists(settings))
    screening = None
    if screened:
        tried = [outcome.fit for done in run(screened, waiting).values() for outcome in done]
        screening = screening_of(tried, screened)
        trials = Trials(data, settings, screening.chosen)
    done = run(trials, trials.all())
    outcomes = {
        (outcome.fit.model, trial.part): outcome
        for trial in trials.all()
        for outcome in done[trial]
    }
    names, parts, left_out = _what_began(trials, outcomes)
    powers = {name: trials.candidates[name][0] for name in names}
    tables = {name: [outcomes[name, part].table for part in parts] for name in powers}
    held_out = {name: pd.concat(parts) for name, parts in tables.items() if any(map(len, parts))}
    fits = [outcomes[name, part].fit for part in parts for name in powers]
    comparison = Comparison(
        data, settings, powers, fits, held_out, screening=screening, scales=densities,
        left_out=left_out,
    )  # fmt: skip
    best = best_of(comparison)
    if best is None:
        return comparison
    powers_left = (powers[name] for name in comparison.losses if name != ENSEMBLE)
    by_all_rows = tuple(powers_left) if settings.select == "loo" else ()
    budget.fits = 1 if left_out else budget.fits  # no learning curve begins then
    ((final,),) = run(trials, [Trial((best,), 0, alphas=by_all_rows)]).values()
    if by_all_rows and final.pipeline is not None:
        best = name_of(final.pipeline[-1].alpha_)
    fit = final.fit._replace(model=best)
    comparison = replace(comparison, best=best, model=final.pipeline, final=fit)
    if not settings.details:
        return comparison
    curve = name_of(0.5, label_of(best)) if best.startswith(ENSEMBLE) else best
    curve = curve if curve in powers else best
    if is_over := budget.is_over():  # the curve has its last point, of all rows
        left_out += ("the learning curve",) * bool(fractions)
        left_out += ("how much each input matters",)
        reports.done, fractions = reports.done + len(fractions), []
    more = run(trials, [Trial((curve,), 1, fraction) for fraction in fractions])
    learning = [*(outcome for (outcome,) in more.values()), outcomes[curve, 1]]
    reports.step("how much each input matters")
    comparison = replace(comparison, left_out=left_out)
    deadline = -np.inf if is_over else max(budget.end, time.perf_counter() + LEAST_SECONDS)
    return replace(comparison, details=_details(comparison, trials, outcomes, learning, deadline))


def _what_began(
    trials: Trials, outcomes: dict[tuple[str, int], Outcome]
) -> tuple[list[str], list[int], tuple[str, ...]]:
    """Choose models and parts so that each was trained in each; and note what is left out."""
    parts, names = range(1, len(trials.parts) + 1), list(trials.candidates)
    began = {key for key, outcome in outcomes.items() if outcome.fit.message != NOT_BEGUN}
    whole = [part for part in parts if all((name, part) in began for name in names)]
    missing = [name for name in names if not (whole or (name, 1) in began)]
    kind, *_ = trials.settings.parts()
    late = [f"{kind} {part} of {len(parts)}" for part in parts if part not in (whole or [1])]
    return [name for name in names if name not in missing], whole or [1], (*missing, *late)


def _fractions(trials: Trials) -> list[float]:
    """Give the fractions of the training rows of the first part that are enough to train on."""
    train, _ = trials.parts[0]
    fewest = max(FEWEST_ROWS, 2 * trials.data.num_classes)
    return [fraction for fraction in FRACTIONS if fraction * len(train) >= fewest]


def _details(
    comparison: Comparison,
    trials: Trials,
    outcomes: dict[tuple[str, int], Outcome],
    learning: Sequence[Outcome],
    deadline: float,
) -> Details:
    """
    Compute what is learnt from the held-out rows of the first part.

    :param deadline: When inputs are no longer permuted, by ``time.perf_counter``.
    """
    points = [
        LearningPoint(outcome.fit.num_rows, outcome.table)
        for outcome in learning
        if len(outcome.table)
    ]
    details = Details(None, sorted(points, key=lambda point: point.num_rows))
    data, (_, test) = trials.data, trials.parts[0]
    X, y = data.X.iloc[test], data.outcomes.iloc[test]
    pipeline = outcomes[str(comparison.best), 1].pipeline
    is_over = time.perf_counter() > deadline
    if pipeline is not None and not is_over:
        metric, is_of_classes = trials.metrics[0], data.kind == "classes"
        importance = importance_of(pipeline, X, y, is_of_classes, metric, deadline)
        details = details._replace(importance=importance)
    losses = comparison.losses
    together = min((n for n in losses if not is_separate(n)), key=losses.__getitem__, default=None)
    if together is not None and len(data.targets) > 1 and not is_over:
        others = errors_given_others(outcomes[together, 1].pipeline, X, y)
        details = details._replace(given_others=others)
    return details


def best_of(comparison: Comparison) -> str | None:
    """
    Find the power, or the ensemble, whose mean of the decisive score is best; None if each failed
    in a part.

    It was chosen on these rows, so its scores there are slightly optimistic.
    """
    losses = comparison.losses
    return min(losses, key=losses.__getitem__, default=None)
