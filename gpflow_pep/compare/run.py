"""Train models at several powers, and baselines, and score each on the same held-out rows."""

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning as NotConverged
from sklearn.model_selection import (
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
)
from sklearn.pipeline import Pipeline

from ..models import PEP, ConvergenceWarning
from ..training.model_state import reason
from ..training.threads import one_blas_thread
from .candidates import make_candidates, name_of
from .cleaning import Cleaned, clean
from .held_out import METRICS, Metric, held_out, scores
from .preparation import make_preparation
from .settings import Settings

#: The least time for steps of a fit, where compiling has used up its share.
LEAST_SECONDS = 0.5


class Fit(NamedTuple):
    """
    A model trained on some rows and scored on others. Scores of a fit that failed are NaN.

    :param model: Its name, see :attr:`Comparison.candidates`.
    :param part: Which rows were held out: the number of the fold or split, from 1; 0 for none.
    :param scores: Of the held-out rows, by the names of :attr:`Comparison.metrics`.
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


class Progress(NamedTuple):
    """What a callback is told before each fit and, with the ``fit``, after it."""

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
    :param candidates: The power of each model by its name; NaN for baselines.
    :param fits: One for each model and part.
    :param held_out: By the name of the model: :func:`~gpflow_pep.compare.held_out.held_out` of the
        parts, one after another, with the number of the "part".
    :param best: The name of the power with the lowest mean of the first metric, or if so asked with
        the highest leave-one-out density; None if all failed.
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
    def parts(self) -> list[int]:
        """The numbers of folds or splits that were held out."""
        return sorted({fit.part for fit in self.fits})

    def fits_of(self, name: str) -> list[Fit]:
        """Find the fits of a model, by its name."""
        return [fit for fit in self.fits if fit.model == name]


def num_classes_of(data: Cleaned) -> int:
    """Count the classes of a target; 1 for numbers."""
    return int(data.y.nunique()) if data.kind == "classes" else 1


def _parts(data: Cleaned, settings: Settings) -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
    """Give rows to train on and rows held out, each in increasing order."""
    kind, count, fraction = settings.parts()
    classes = data.kind == "classes"
    if kind == "fold":
        splitter: Any = (StratifiedKFold if classes else KFold)(
            count, shuffle=True, random_state=settings.seed
        )
    else:
        splitter = (StratifiedShuffleSplit if classes else ShuffleSplit)(
            count, test_size=fraction, random_state=settings.seed
        )
    with warnings.catch_warnings():
        # That some class has fewer members than there are folds: then some hold out none of it.
        warnings.filterwarnings("ignore", message="The least populated class")
        for train, test in splitter.split(data.X, data.y):
            yield np.sort(train), np.sort(test)


class _Clock:
    """Shares of the time that is left, and what compiling took the last time."""

    def __init__(self, seconds: float, fits: int) -> None:
        self.end, self.fits = time.perf_counter() + seconds, fits
        self.overhead: dict[str, float] = {}

    def share(self, name: str) -> float:
        """Find the time for the steps of the next fit."""
        left = self.end - time.perf_counter()
        self.fits -= 1
        return max(left / (self.fits + 1) - self.overhead.get(name, 0.0), LEAST_SECONDS)


def _train(name: str, pipeline: Pipeline, X: pd.DataFrame, y: Any, clock: _Clock) -> dict[str, Any]:
    """Train in place within a share of the time; say how it went, as fields of a :class:`Fit`."""
    estimator = pipeline[-1]
    if "max_seconds" in estimator.get_params():
        estimator.set_params(max_seconds=clock.share(name))
    began = time.perf_counter()
    found: dict[str, Any] = {"iterations": 0, "converged": True, "message": "", "log_z": np.nan}
    try:
        with warnings.catch_warnings():
            for category in (ConvergenceWarning, NotConverged):  # the result says it
                warnings.simplefilter("ignore", category)
            pipeline.fit(X, y)
        record = getattr(estimator, "record_", None)
        found["iterations"] = getattr(estimator, "n_iter_", 0)
        if record is not None:
            found |= {"converged": record.converged, "message": record.message}
            found["log_z"] = record.objective if name.startswith("alpha") else np.nan
            trouble = _trouble_of_sites(estimator.model_)
            if trouble:
                found |= {"converged": False, "message": trouble}
            clock.overhead[name] = time.perf_counter() - began - record.seconds
    except (tf.errors.OpError, ValueError, ArithmeticError) as error:
        found |= {"converged": False, "message": reason(error) or type(error).__name__}
        found["failed"] = True
    return found | {"seconds": time.perf_counter() - began}


def _trouble_of_sites(model: Any) -> str:
    if not isinstance(model, PEP) or model.last_inference.converged:
        return ""
    info = model.last_inference
    return (
        f"the sites did not converge: residual {info.residual:.2g} after {info.num_sweeps} sweeps,"
        f" expected below {model.tolerance:g}"
    )


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
    what prepares columns (:func:`~gpflow_pep.compare.preparation.make_preparation`) and an
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
    """
    Put inputs and targets into one table.

    :param X: See :func:`compare`.
    :param y: See there.
    :return: The table, and the name of the target.
    :raises ValueError: If they do not fit together.
    """
    frame = X.to_pandas() if hasattr(X, "to_pandas") else X
    if isinstance(y, str):
        if not isinstance(frame, pd.DataFrame):
            raise ValueError(
                f"X: got {type(X).__name__} and the name {y!r} of the target, expected a table that"
                " has this column. Pass a DataFrame, or targets in the place of the name."
            )
        return frame, y
    if not isinstance(frame, pd.DataFrame):
        frame = np.asarray(frame)
        if frame.ndim != 2:
            raise ValueError(
                f"X: got shape {frame.shape}, expected [N, D]. Reshape it, a row for each datum."
            )
        frame = pd.DataFrame(frame, columns=[f"x{d}" for d in range(frame.shape[1])])
    targets = np.asarray(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.shape != (len(frame),):
        raise ValueError(
            f"y: got shape {targets.shape}, expected [{len(frame)}] for {len(frame)} rows of X."
            " Pass a target for each row."
        )
    target = str(getattr(y, "name", None) or "y")
    while target in frame.columns:
        target += "_"
    return frame.assign(**{target: targets}), target


def compare_table(
    data: Cleaned, settings: Settings, callback: Callable[[Progress], None] | None = None
) -> Comparison:
    """
    Compare on a table that was cleaned; see :func:`compare`.

    :param data: The table.
    :param settings: What to compare.
    :param callback: Called before and after each fit.
    :raises ValueError: If the settings do not fit the table.
    """
    settings.check_data(data.kind, len(data.X), num_classes_of(data))
    with one_blas_thread():
        return _compare(data, settings, callback)


def _compare(
    data: Cleaned, settings: Settings, callback: Callable[[Progress], None] | None
) -> Comparison:
    tell = callback or (lambda progress: None)
    candidates = make_candidates(data, settings)
    parts, (kind, *_) = list(_parts(data, settings)), settings.parts()
    total = len(parts) * len(candidates) + 1
    clock = _Clock(60.0 * settings.minutes, total - len(parts))  # the trivial one takes no time
    comparison = Comparison(
        data, settings, {name: power for name, (power, _) in candidates.items()}
    )
    tables: dict[str, list[pd.DataFrame]] = {name: [] for name in candidates}
    number = 0
    for part, (train, test) in enumerate(parts, start=1):
        for name, (_, estimator) in candidates.items():
            number += 1
            label = f"{name}, {kind} {part} of {len(parts)}"
            tell(Progress(number, total, label))
            pipeline = _pipeline(data, estimator)
            rows = data.X.iloc[train], data.y.iloc[train]
            found = _train(name, pipeline, *rows, clock)
            fit, table = _scored(comparison, pipeline, name, part, test, found)
            comparison.fits.append(fit)
            tables[name].append(table)
            tell(Progress(number, total, label, fit))
    held = {name: pd.concat(found) for name, found in tables.items() if any(map(len, found))}
    comparison.held_out.update(held)
    best = best_of(comparison)
    if best is None:
        return comparison
    tell(Progress(total, total, f"{best}, all rows"))
    estimator = clone(candidates[best][1])
    if settings.select == "loo":
        estimator.set_params(alpha=[candidates[name][0] for name in _mean_scores(comparison)])
    pipeline = _pipeline(data, estimator)
    found = _train(best, pipeline, data.X, data.y, clock)
    failed = found.pop("failed", False)
    if settings.select == "loo" and not failed:
        best = name_of(pipeline[-1].alpha_)
    final = Fit(model=best, part=0, scores={}, **found)
    tell(Progress(total, total, f"{best}, all rows", final))
    return Comparison(
        data, settings, comparison.candidates, comparison.fits, held, best,
        None if failed else pipeline, final,
    )  # fmt: skip


def _pipeline(data: Cleaned, estimator: Any) -> Pipeline:
    return Pipeline(
        [("prepare", make_preparation(data.X, data.formats)), ("model", clone(estimator))]
    )


def _scored(
    comparison: Comparison,
    pipeline: Pipeline,
    name: str,
    part: int,
    test: AnyNDArray,
    found: dict[str, Any],
) -> tuple[Fit, pd.DataFrame]:
    """Predict and score the held-out rows; a failure becomes a result that says so."""
    data = comparison.data
    table, values = pd.DataFrame(), {metric.name: np.nan for metric in comparison.metrics}
    if not found.pop("failed", False):
        try:
            X, y = data.X.iloc[test], data.y.iloc[test]
            table = held_out(pipeline, X, y, data.kind == "classes")
            values = scores(table)
            table.insert(0, "part", part)
        except (tf.errors.OpError, ValueError, ArithmeticError) as error:
            found |= {"converged": False, "message": reason(error) or type(error).__name__}
            table = pd.DataFrame()
    return Fit(model=name, part=part, scores=values, **found), table


def best_of(comparison: Comparison) -> str | None:
    """
    Find the power whose mean of the decisive score is lowest; None if every one failed in a part.

    It was chosen on these rows, so its scores there are slightly optimistic.

    :param comparison: Whose fits have ended.
    """
    means = _mean_scores(comparison)
    return min(means, key=lambda name: means[name], default=None)


def _mean_scores(comparison: Comparison) -> dict[str, float]:
    """Average the decisive score of each power that failed in no part."""
    decisive = comparison.metrics[0].name
    return {
        name: float(np.mean([fit.scores[decisive] for fit in comparison.fits_of(name)]))
        for name, power in comparison.candidates.items()
        if not np.isnan(power) and not any(fit.failed for fit in comparison.fits_of(name))
    }
