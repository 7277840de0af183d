"""Training of the default, single models and baselines, and their scores on the same
held-out rows.
"""

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

from ..engine.numerics.threads import one_blas_thread
from ..engine.refusals import refusal
from ..estimators.single.outputs import column_names
from ..tables.cleaning import Cleaned, clean
from ..tables.conventions import MIN_ROWS
from .candidates import (
    DEFAULT,
    LOGARITHMS,
    check_targets,
    is_choice,
    is_separate,
    label_of,
)
from .details import FRACTIONS, Details, errors_given_others, importance_of
from .fit_warnings import warnings_named
from .losses import Difference, Metric
from .partition import clean_for
from .schedule import LEAST_SECONDS, Progress, Reports, TimeBudget, run_trials
from .scores import difference_over_parts, difference_over_rows, metrics_for
from .settings import Settings
from .trials import NOT_BEGUN, Fit, Outcome, Trial, Trials

#: The name of the last step of a comparison, in the progress and the findings.
IMPORTANCE = "how much each input matters"
#: In three to five windows hardly any difference is clear. A model that is better in
#: each window is saved instead of the default if the mean difference is larger than its
#: standard error and than the first number, in nats per row; for errors it has to be
#: larger than the second number times the default's error.
GAIN_IN_WINDOWS = 0.05
SHARE_IN_WINDOWS = 0.1
#: With only two windows, one of two equal models is better in both windows half of the
#: time.
FEWEST_WINDOWS = 3


@dataclass(frozen=True)
class Comparison:
    """The result of :func:`compare`; :func:`~gpflow_pep.compare.findings.summarise`
    sums it up.

    :param data: The cleaned table.
    :param settings: The settings of the comparison.
    :param candidates: The power of each model, by the name of the model; NaN for the
        default and baselines.
    :param fits: A fit for each model and each part of the rows that was held out.
    :param held_out: The predictions of held-out rows, by the name of the model: the
        tables of :func:`~gpflow_pep.compare.scores.held_out` for all parts, with the
        number of the part in the column "part".
    :param best: The name of the saved model, see :func:`best_of`; None if all models
        failed.
    :param model: The saved model, retrained on all rows; None if that failed.
    :param final: The fit of the saved model on all rows.
    :param details: More about the saved model; None without ``details``.
    :param left_out: The steps that did not begin before the time ran out. If a fit is
        among them, ``fits`` has only the parts in which all models were trained. If
        there is no such part, it has the first part and the models that were trained
        there.
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
    left_out: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The scores of each fit; the first decides which model is saved."""
        return metrics_for(self.data, self.settings)

    @property
    def choices(self) -> list[str]:
        """The names of the models that may be saved: the default and single models, but
        not baselines.
        """
        return [name for name in self.candidates if is_choice(name)]

    @property
    def held_out_of_best(self) -> pd.DataFrame:
        """The predictions of held-out rows by the saved model."""
        return self.held_out[str(self.best)]

    @property
    def likelihood(self) -> str:
        """The likelihood of the saved model, by its name in the settings."""
        skewed = LOGARITHMS in label_of(self.best or "")
        return LOGARITHMS if skewed else self.settings.likelihood

    def fits_of(self, name: str) -> list[Fit]:
        """Return the fits of a model, by its name."""
        return [fit for fit in self.fits if fit.model == name]

    def num_failed(self, name: str) -> int:
        """Count the fits of a model that failed."""
        return sum(fit.failed for fit in self.fits_of(name))

    def hardly_began(self, name: str) -> bool:
        """Whether the time limit ended a fit of a model after a few steps."""
        return any(fit.hardly_began for fit in self.fits_of(name))

    @property
    def losses(self) -> dict[str, float]:
        """The mean decisive loss of each choice that did not fail in any part."""
        names = [name for name in self.choices if not self.num_failed(name)]
        losses = {name: self.losses_of(name).mean() for name in names}
        return {
            name: np.inf if np.isnan(loss) else loss for name, loss in losses.items()
        }

    def scores_of(self, name: str) -> pd.DataFrame:
        """Return the scores of a model, by its name, with a row for each part."""
        return pd.DataFrame([fit.scores for fit in self.fits_of(name)])

    def losses_of(self, name: str, metric: Metric | None = None) -> "pd.Series[float]":
        """Return the losses of a model in each part, by a metric; None selects the
        decisive one.
        """
        metric = metric or self.metrics[0]
        return metric.loss(self.scores_of(name)[metric.name])

    def difference(
        self, name: str, other: str, metric: Metric | None = None
    ) -> Difference:
        """Compare a score of two models on the same held-out rows; None selects the
        decisive score.
        """
        metric = metric or self.metrics[0]
        table, *_ = pair = [self.held_out[model] for model in (name, other)]
        if len(fits := self.fits_of(name)) == 1:
            return difference_over_rows(metric, *pair)
        losses, others = (
            self.losses_of(model, metric).to_numpy() for model in (name, other)
        )
        # Rows repeat with several targets.
        rows = pd.MultiIndex.from_arrays([table["part"], table.index])
        ratio = rows.nunique() / sum(fit.num_rows for fit in fits)
        return difference_over_parts(losses, others, ratio)


def compare(
    X: Any,
    y: Any,
    *,
    callback: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Comparison:
    """Train the default estimator, single sparse Gaussian processes and baselines, and
    score all of them on the same held-out rows::

        comparison = compare(table, "price", alphas=(0, 0.5, 1), folds=5)
        comparison = compare(X, y)
        comparison = compare(table, ["height", "weight"])
        print(summarise(comparison))
        mean = comparison.model.predict(new_table)

    The table is cleaned (:func:`~gpflow_pep.tables.cleaning.clean`). Each model is a
    pipeline of a preparation of columns
    (:func:`~gpflow_pep.tables.cleaning.make_preparation`) and an estimator. In each
    fold or split it is trained on the rows that are not held out. One model is then
    trained on all rows: the default, unless a single model is clearly better. If a fit
    fails for numerical reasons, its result has the message, and the other fits still
    run.

    The fits run one after another by default. ``joblib.parallel_config`` changes this:
    ``backend="loky", n_jobs=2`` runs them in two processes, ``backend="dask"`` on a
    cluster.

    :param X: A table that has the target among its columns, or the inputs, [N, D], as
        an array or a table.
    :param y: The name of the target, or its position counted from 0, or the targets,
        [N]. Several targets must be numbers: pass a list of their names, or an array
        [N, P] with NaN for missing targets. Models of all targets together are then
        compared with separate models of each target.
    :param callback: A function that is called before and after each fit, with a
        :class:`~gpflow_pep.compare.schedule.Progress`.
    :param options: The options of :class:`~gpflow_pep.compare.settings.Settings`, and
        the options of :func:`~gpflow_pep.tables.cleaning.clean` except ``limits``:
        ``task``, ``drop``, ``drop_missing``, ``as_written``, ``decimal``,
        ``thousands``, ``dates`` and ``missing``.
    :raises ValueError: If a setting is outside its range, or if the table cannot be
        used.
    """
    of_table = (options.keys() & signature(clean).parameters.keys()) - {"limits"}
    cleaning = {name: options.pop(name) for name in of_table}
    checked = Settings(**options)
    frame, target = table_of(X, y)
    return compare_table(
        clean_for(frame, target, checked, **cleaning), checked, callback
    )


def table_of(X: Any, y: Any) -> tuple[pd.DataFrame, str | int | list[str]]:
    """Put inputs and targets into one table, and return it with the name of each
    target.
    """
    frame = X.to_pandas() if hasattr(X, "to_pandas") else X
    if not isinstance(frame, pd.DataFrame):
        return _with_targets(_as_frame(X), y)
    if isinstance(y, str):
        return frame, y
    if isinstance(y, (int, np.integer)) and not isinstance(y, bool):
        return frame, int(y)
    are_words = isinstance(y, (list, tuple)) and {*map(type, y)} == {str}
    # As many words as rows are labels of the rows.
    if are_words and len(y) != len(frame):
        return frame, list(y)
    return _with_targets(frame, y)


def _as_frame(X: Any) -> pd.DataFrame:
    """Make a table of an array of inputs, with columns x0, x1, ..."""
    if np.ndim(X) != 2:
        remedy = "Reshape it to one row for each datum."
        raise refusal("X", f"shape {np.shape(X)}", "[N, D]", remedy)
    return pd.DataFrame(np.asarray(X)).add_prefix("x")


def _with_targets(frame: pd.DataFrame, y: Any) -> tuple[pd.DataFrame, str | list[str]]:
    """Add targets, [N] or [N, P], to inputs as columns, and return their names too."""
    targets = np.asarray(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim not in (1, 2) or len(targets) != len(frame):
        got = f"shape {targets.shape}" if targets.ndim else repr(y)
        expected = f"[{len(frame)}] for {len(frame)} rows of X"
        remedy = "Pass a target for each row, or a table that has this column as X."
        raise refusal("y", got, expected, remedy)
    if targets.ndim == 2:
        names = column_names(y) or [f"y{p}" for p in range(targets.shape[1])]
        Y = pd.DataFrame(targets, columns=names, index=frame.index)
        return pd.concat([frame, Y], axis=1), names
    target = str(getattr(y, "name", None) or "y")
    while target in frame.columns:
        target += "_"
    return frame.assign(**{target: targets}), target


def compare_table(
    data: Cleaned,
    settings: Settings,
    callback: Callable[[Progress], None] | None = None,
) -> Comparison:
    """Compare models on a table that was cleaned; see :func:`compare`.

    :param callback: A function that is called before and after each fit, by one thread
        at a time.
    :raises ValueError: If the settings do not fit the table.
    """
    settings.check_data(data.kind, len(data.targets))
    check_targets(data, settings)
    with one_blas_thread():
        return _compare(data, settings, callback or (lambda progress: None))


def _compare(
    data: Cleaned, settings: Settings, callback: Callable[[Progress], None]
) -> Comparison:
    trials = Trials(data, settings)
    fractions = _fractions(trials)
    total = len(trials.candidates) * len(trials.parts) + 1 + len(fractions)
    timed = total - len(trials.parts)  # the trivial model takes no time
    # The importance of inputs gets the same share of the time as a fit.
    share = 60.0 * settings.minutes / (timed + settings.details)
    budget = TimeBudget(share * timed, timed, joblib.effective_n_jobs(None))
    reports = Reports(callback, total + settings.details)
    run = partial(run_trials, trials, budget=budget, reports=reports)

    outcomes = run(trials.all())
    comparison = _compared(trials, outcomes)
    best = best_of(comparison)
    if best is None:
        return comparison
    left_out = comparison.left_out
    if left_out:
        budget.fits = 1  # no learning curve begins then
    (final,) = run([Trial(best, 0)]).values()
    comparison = replace(comparison, best=best, model=final.pipeline, final=final.fit)
    if not settings.details:
        return comparison
    curve = [Trial(best, 1, fraction) for fraction in fractions]
    # If a fit was left out, there is no time for a curve.
    waiting = [] if left_out else curve
    reports.done += len(curve) - len(waiting)
    more = run(waiting).values()
    points = [outcome for outcome in more if outcome.fit.message != NOT_BEGUN]
    if len(points) < len(curve):
        left_out += (f"{'the rest of ' if points else ''}the learning curve",)
    # On all rows of the first part, the model is trained already.
    learning = [*points, outcomes[Trial(best, 1)]]
    reports(IMPORTANCE, is_fit=False)
    deadline = max(budget.end + share, time.perf_counter() + LEAST_SECONDS)
    with warnings_named(f"{best}, {IMPORTANCE}"):
        details = _details(comparison, trials, outcomes, learning, deadline)
    if details.importance is None:
        left_out += (IMPORTANCE,)
    return replace(comparison, details=details, left_out=left_out)


def _fractions(trials: Trials) -> list[float]:
    """Return the fractions of the training rows of the first part on which the learning
    curve trains, without those that have fewer rows than a table needs.
    """
    if not trials.settings.details:
        return []
    needed = max(MIN_ROWS, 2 * trials.data.num_classes) / len(trials.parts[0][0])
    return [fraction for fraction in FRACTIONS if fraction >= needed]


def _compared(trials: Trials, outcomes: dict[Trial, Outcome]) -> Comparison:
    """Collect the outcomes of all parts, before a model is saved."""
    names, parts, left_out = _what_began(trials, outcomes)
    fits = [outcomes[Trial(name, part)].fit for part in parts for name in names]
    held_out = {}
    for name in names:
        tables = [outcomes[Trial(name, part)].table for part in parts]
        if any(map(len, tables)):
            held_out[name] = pd.concat(tables)
    powers = {name: trials.candidates[name][0] for name in names}
    return Comparison(
        trials.data, trials.settings, powers, fits, held_out, left_out=left_out
    )


def _what_began(
    trials: Trials, outcomes: dict[Trial, Outcome]
) -> tuple[list[str], list[int], tuple[str, ...]]:
    """Choose models and parts so that each model was trained in each part; list the
    rest.
    """
    parts = range(1, len(trials.parts) + 1)
    names = list(trials.candidates)
    began = {
        trial for trial, outcome in outcomes.items() if outcome.fit.message != NOT_BEGUN
    }
    whole = [
        part for part in parts if all(Trial(name, part) in began for name in names)
    ]
    missing = [name for name in names if not (whole or Trial(name, 1) in began)]
    kind, *_ = trials.settings.parts()
    late = [
        f"{kind} {part} of {len(parts)}" for part in parts if part not in (whole or [1])
    ]
    return (
        [name for name in names if name not in missing],
        whole or [1],
        (*missing, *late),
    )


def _details(
    comparison: Comparison,
    trials: Trials,
    outcomes: dict[Trial, Outcome],
    learning: Sequence[Outcome],
    deadline: float,
) -> Details:
    """Compute the details from the held-out rows of the first part.

    :param deadline: The time after which inputs are no longer permuted, by
        ``time.perf_counter``.
    """
    points = {
        outcome.fit.num_rows: outcome.table
        for outcome in learning
        if len(outcome.table)
    }
    unfinished = tuple(
        outcome.fit.num_rows for outcome in learning if not outcome.fit.converged
    )
    details = Details(None, dict(sorted(points.items())), unfinished)
    data, (_, test) = trials.data, trials.parts[0]
    X = data.X.iloc[test]
    y = data.outcomes.iloc[test]
    pipeline = outcomes[Trial(str(comparison.best), 1)].pipeline
    if pipeline is not None:
        metric = trials.metrics[0]
        is_of_classes = data.kind == "classes"
        importance = importance_of(pipeline, X, y, is_of_classes, metric, deadline)
        details = details._replace(importance=importance)
    losses = comparison.losses
    together = min(
        (n for n in losses if not is_separate(n)), key=losses.__getitem__, default=None
    )
    if together is not None and len(data.targets) > 1:
        mixture = outcomes[Trial(together, 1)].pipeline
        if mixture is not None and mixture[-1].mixes_outputs_:
            others = errors_given_others(mixture, X, y)
            details = details._replace(given_others=others)
    return details


def best_of(comparison: Comparison) -> str | None:
    """Find the model to save. It is the default, unless another model is better than
    the default by :func:`better_than_default`; then it is the one of the other models
    with the lowest mean loss. If the default hardly began, it is the model with the
    lowest mean loss, among the default and the models that had more time. Models that
    failed in a part are left out.

    The scores of a model that is chosen on these rows are slightly optimistic there.
    None if every model failed in a part.
    """
    losses = comparison.losses
    others = [name for name in losses if name != DEFAULT]
    if DEFAULT in losses and not better_than_default(comparison):
        if not comparison.hardly_began(DEFAULT):
            return DEFAULT
        began = [name for name in others if not comparison.hardly_began(name)]
        return min([DEFAULT, *began], key=losses.__getitem__)
    return min(others, key=losses.__getitem__, default=None)


def better_than_default(comparison: Comparison) -> list[str]:
    """List the models that may be saved and are clearly better than the default by the
    decisive score, or better in every window.

    A difference is clear if it is more standard errors than chance gives, see
    :class:`~gpflow_pep.compare.losses.Difference`; for windows see
    :func:`wins_each_window`.
    """
    names = [name for name in comparison.losses if name != DEFAULT]
    changes = {name: comparison.difference(name, DEFAULT) for name in names}
    return [
        name
        for name, change in changes.items()
        if (change.mean < 0.0 and change.clear) or wins_each_window(comparison, name)
    ]


def wins_each_window(comparison: Comparison, name: str) -> bool:
    """Return whether a model has a better decisive score than the default in each of
    three or more windows. The mean difference must also be larger than its standard
    error, and larger than :data:`GAIN_IN_WINDOWS`, or for errors
    :data:`SHARE_IN_WINDOWS`.
    """
    losses, default = (comparison.losses_of(model) for model in (name, DEFAULT))
    in_windows = comparison.settings.time_column is not None
    in_windows = in_windows and len(losses) >= FEWEST_WINDOWS
    if not in_windows or not (losses.to_numpy() < default.to_numpy()).all():
        return False
    metric = comparison.metrics[0]
    least = GAIN_IN_WINDOWS
    if metric.name != "nlpd":
        least = SHARE_IN_WINDOWS * float(default.mean() + metric.higher_is_better)
    change = comparison.difference(name, DEFAULT)
    return -change.mean > max(least, change.error)
