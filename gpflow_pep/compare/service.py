"""A model in service: its scores on new rows beside the scores that its report
promised, and the columns of new rows that differ from the training rows. This module
does not load TensorFlow.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from ..engine.refusals import counted, refusal
from ..tables import Format, read_cells
from ..tables.conventions import MARKS_IN_WORDS, Conventions, plain_spelling
from ..tables.encodings import listed, unusual_in
from ..tables.formats import EPOCH
from ..tables.notes import first_of
from ..tables.numbers import LIMIT, is_limit
from .losses import (
    METRICS,
    AnyNDArray,
    Difference,
    Metric,
    by_target,
    in_full,
    mean_of,
    row_losses,
    with_error,
    without_limits,
)
from .predicting import Prepared, known_targets, predictions, prepared

AS_PROMISED = "as promised"
WORSE = "worse"
BETTER = "better"
#: A score differs from the promised score if chance alone gives so large a difference
#: with at most this probability. With four scores, at most one table in fifty that is
#: like the training rows is then called worse.
SIGNIFICANCE = 0.01
#: Scores that are shares of rows.
SHARES = ("coverage", "error")
#: A column moved if its mean is at least this many standard deviations away from the
#: training rows, which is a small effect by J. Cohen, *Statistical power analysis for
#: the behavioral sciences*, 1988, and more than SURE standard errors away.
LEAST_SHIFT = 0.2
SURE = 3.0
#: The largest number of unusual values of a column that are listed.
MOST_VALUES = 3


class Score(NamedTuple):
    """The mean of a score over rows, its standard error over rows, and their number."""

    value: float
    error: float
    rows: int


class Verdict(NamedTuple):
    """A score of new rows beside the promised score, and which is better."""

    metric: Metric
    found: Score
    promised: Score
    word: str  #: "as promised", "worse" or "better".

    def in_words(self, score: Score) -> str:
        """Write one of both scores and its standard error."""
        return with_error(self.metric, score.value, score.error)


class Moved(NamedTuple):
    """A column of new rows that differs from the training rows.

    :param mean: The mean of the numbers; of dates in days since 1970-01-01. NaN for
        words.
    :param shift: How far the mean is above the mean of training, in standard deviations
        of training; NaN if it is not known.
    :param unusual: What is unusual in cells, by the number of the row.
    """

    name: str
    kind: str
    mean_in_training: float
    mean: float
    shift: float
    unusual: dict[int, str]


def promised_scores(
    held_out: pd.DataFrame, targets: Sequence[str], time_column: str | None = None
) -> list[dict[str, Any]]:
    """Compute the scores that a model promises, in a form for JSON.

    :param held_out: The predictions of held-out rows, as
        :func:`~gpflow_pep.compare.scores.held_out` gives them, and their "part".
    :param targets: The names of the targets.
    :param time_column: The column by which the rows were later than training rows.
    :return: A dictionary for each target: "target" is its name, "scores" has the
        :class:`Score` of each metric that is a mean over rows, and "time_column" has
        the name of the time column, if there is one.
    """
    promised = []
    for name, rows in by_target(held_out, targets).items():
        scores = scores_of_rows(rows)
        known = {key: list(s) for key, s in scores.items() if np.isfinite(s).all()}
        entry = {"target": name, "scores": known}
        if time_column is not None:
            entry["time_column"] = time_column
        promised.append(entry)
    return promised


def scores_of_rows(table: pd.DataFrame) -> dict[str, Score]:
    """Compute each metric that is a mean over rows, or the root of one.

    If the rows are in several parts, the value is the mean over parts, as in the
    report; the error takes all rows as one part. Rows for which only a limit of the
    target is known are left out.

    :param table: The predictions of rows of one target: "true", "log_density" and the
        columns of :func:`~gpflow_pep.compare.predicting.predictions`.
    """
    table = without_limits(table)
    parts = [part for _, part in table.groupby("part")] if "part" in table else [table]
    scores = {}
    for metric in METRICS["numbers" if "mean" in table else "classes"]:
        losses = row_losses(metric, table)
        if losses is None:
            continue
        of_parts = [mean_of(metric, row_losses(metric, part)) for part in parts]
        error = _error_of(metric, losses)
        scores[metric.name] = Score(float(np.mean(of_parts)), error, len(losses))
    return scores


def _error_of(metric: Metric, losses: AnyNDArray) -> float:
    """Compute the standard error over rows of a metric from its values of rows, [N];
    NaN if it is not known.
    """
    count = len(losses)
    if count < 2 or not np.isfinite(losses).all():
        return np.nan
    if metric.name in SHARES:
        # Laplace's rule, because a share of 0 or 1 among few rows is not certain.
        share = (np.sum(losses) + 1.0) / (count + 2.0)
        return float(np.sqrt(share * (1.0 - share) / count))
    error = float(stats.sem(losses))
    root = mean_of(metric, losses)
    if metric.name == "rmse" and root > 0.0:
        return error / (2.0 * root)
    return error


def verdicts(
    kind: str, found: Mapping[str, Score], promised: Mapping[str, Score]
) -> list[Verdict]:
    """Compare the scores of new rows with promised scores, by Welch's t test.

    A score with a nominal value, such as the coverage, is worse if it is farther from
    this value.

    :param kind: "numbers" or "classes".
    """
    compared = []
    for metric in METRICS[kind]:
        if metric.name not in found or metric.name not in promised:
            continue
        new = found[metric.name]
        old = promised[metric.name]
        word = AS_PROMISED
        if _difference(new, old).clear:
            losses = [metric.loss(score.value) for score in (new, old)]
            if metric.nominal is not None:
                losses = [abs(score.value - metric.nominal) for score in (new, old)]
            word = WORSE if losses[0] > losses[1] else BETTER
        if np.isinf(new.value):  # if a row has density 0
            word = WORSE
        compared.append(Verdict(metric, new, old, word))
    return compared


def _difference(found: Score, promised: Score) -> Difference:
    """Subtract a promised score from a score of new rows. It is not clear if an error
    is not known.
    """
    squares = np.array([found.error, promised.error]) ** 2
    total = float(np.sum(squares))
    mean = found.value - promised.value
    if not np.isfinite(total):
        return Difference(mean, np.inf, 1.0)
    freedom = np.inf
    if total > 0.0:
        counts = np.array([found.rows, promised.rows])
        freedom = total**2 / np.sum(squares**2 / (counts - 1.0))
    limit = stats.t.ppf(1.0 - SIGNIFICANCE / 2.0, freedom)
    return Difference(mean, float(np.sqrt(total)), float(limit))


def sentence(compared: Sequence[Verdict]) -> str:
    """Sum up the verdicts on the scores of a target."""
    worse = [verdict for verdict in compared if verdict.word == WORSE]
    better = [verdict for verdict in compared if verdict.word == BETTER]
    if not any(np.isfinite(verdict.found.error) for verdict in compared):
        return "Too few rows to compare scores: at least 2 are needed."
    if worse:
        return f"Worse than promised by more than noise: {_listed(worse)}."
    if better:
        return f"Better than promised by more than noise: {_listed(better)}."
    return "As promised: no score differs from the promised score by more than noise."


def _listed(compared: Sequence[Verdict]) -> str:
    return "; ".join(
        f"{metric.heading} {in_full(found.value, metric.form)} instead of"
        f" {in_full(promised.value, metric.form)}"
        for metric, found, promised, _ in compared
    )


def scored_rows(model: Any, table: pd.DataFrame, targets: Sequence[str]) -> Any:
    """Predict the rows of a table whose targets are known.

    :param model: As in :func:`~gpflow_pep.compare.predicting.predict_table`.
    :param targets: The names of the model's targets.
    :return: The rows of each target that the table has, by the name of the target, in
        the form for :func:`scores_of_rows`.
    :raises ValueError: If a target cannot be read, or is a class that the model does
        not have.
    """
    conventions = prepared(model, table).encoder.conventions
    if hasattr(model, "classes_"):
        (name,) = targets
        labels = _known_labels(table, name, model.classes_, conventions)
        rows = labels >= 0
        if not rows.any():
            return {}
        return {name: _predicted_classes(prepared(model, table[rows]), labels[rows])}
    numbers = known_targets(_without_limits(table, targets), targets, conventions)
    rows = ~np.isnan(numbers).all(axis=1)
    if not rows.any():
        return {}
    ready = prepared(model, table[rows].reset_index(drop=True))
    return _predicted_numbers(ready, numbers[rows], targets)


def _known_labels(
    table: pd.DataFrame,
    name: str,
    classes: Sequence[Any],
    conventions: Conventions | None = None,
) -> npt.NDArray[np.int64]:
    """Find the number of the class of each row of a table, [N]; -1 if its cell is empty
    or the table does not have the column. Capitals and spaces may differ from the
    names of classes if only one class is meant.

    :raises ValueError: If a cell is not one of the classes.
    """
    if name not in table:
        return np.full(len(table), -1)
    places = {str(c): place for place, c in enumerate(classes)}
    plain = [plain_spelling(word) for word in places]
    spellings = {p: place for place, p in enumerate(plain) if plain.count(p) == 1}
    missing = conventions.missing if conventions else ()
    form = Format("text", missing=(*MARKS_IN_WORDS, *missing))
    cells = read_cells(table[name], form)

    def place_of(cell: str) -> int:
        return places.get(cell, spellings.get(plain_spelling(cell), -1))

    labels = np.array([-1 if pd.isna(cell) else place_of(cell) for cell in cells])
    foreign = cells[cells.notna() & (labels < 0)]
    if len(foreign):
        got = f"{listed(foreign.unique())} in {counted(len(foreign), 'row')}"
        remedy = "Correct or leave out these rows, or train again with them."
        raise refusal(f"column '{name}'", got, f"the classes {listed(places)}", remedy)
    return labels


def _without_limits(table: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """Empty the targets that are limits, such as <5.8."""

    def is_number(cell: Any) -> bool:
        return not (isinstance(cell, str) and is_limit(cell.strip()))

    known = [name for name in targets if name in table]
    columns = {name: table[name].where(table[name].map(is_number)) for name in known}
    return table.assign(**columns)


def _predicted_classes(ready: Prepared, labels: npt.NDArray[np.int64]) -> pd.DataFrame:
    columns = predictions(ready.predictor, ready.inputs, True)
    names = ready.predictor.classes_
    probability = np.stack([columns[f"p({name})"] for name in names], axis=1)
    densities = np.log(probability[np.arange(len(labels)), labels])
    return pd.DataFrame({"true": names[labels], **columns, "log_density": densities})


def _predicted_numbers(
    ready: Prepared, numbers: npt.NDArray[np.float64], targets: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Predict rows and the log densities of their targets, [N, P]."""
    predictor = ready.predictor
    inputs = ready.inputs
    outcomes: Any = numbers
    if LIMIT in (getattr(predictor, "target_names_", None) or ()):
        outcomes = np.column_stack([numbers, np.zeros(len(numbers))])
    elif len(targets) == 1:
        outcomes = numbers[:, 0]
    densities = predictor.log_densities(inputs, outcomes)
    columns = predictions(predictor, inputs, False)
    columns |= {"true": numbers, "log_density": densities}
    tables = {}
    for place, name in enumerate(targets):
        of_target = {
            key: np.reshape(values, numbers.shape)[:, place]
            for key, values in columns.items()
        }
        known = pd.DataFrame(of_target).dropna(subset="true")
        if len(known):
            tables[name] = known
    return tables


def moved_columns(ready: Prepared, time_column: str | None = None) -> list[Moved]:
    """Find the columns whose mean has moved, or that have unusual cells.

    :param ready: The rows, as :func:`~gpflow_pep.compare.predicting.prepared` reads
        them.
    :param time_column: The column of times of a forecast. It is left out, because the
        rows of a forecast are always later than training rows.
    """
    encoder = ready.encoder
    encodings = encoder.encodings_
    moved = []
    for name, column in ready.cells.items():
        if name == time_column:
            continue
        kind = encoder.formats[name].kind
        learnt = encodings[name]
        unusual = unusual_in(column, kind, learnt)
        mean_before = np.nan
        mean = np.nan
        shift = np.nan
        noise = np.inf
        if learnt.spread and column.notna().any():
            mean_before, deviation, count = learnt.spread
            mean = float(column.mean())
            if deviation > 0.0:
                shift = (mean - mean_before) / deviation
                noise = np.sqrt(1.0 / column.count() + 1.0 / count)
        is_shifted = abs(shift) >= max(LEAST_SHIFT, SURE * noise)
        if unusual or is_shifted:
            moved.append(Moved(name, kind, mean_before, mean, shift, unusual))
    return moved


def in_words(moved: Moved, num_rows: int) -> list[str]:
    """Write a column that moved as cells of a table: its name, its means, the shift,
    the share of unusual rows, and the most frequent unusual values.
    """
    means = [
        _as_cell(mean, moved.kind) for mean in (moved.mean_in_training, moved.mean)
    ]
    shift = "" if np.isnan(moved.shift) else f"{moved.shift:+.2f}"
    share = f"{len(moved.unusual) / num_rows:.1%}" if moved.unusual else ""
    counts = pd.Series(list(moved.unusual.values()), dtype=object).value_counts()
    values = [f"{remark} ({count})" for remark, count in counts.items()]
    return [moved.name, *means, shift, share, first_of(values, MOST_VALUES)]


def _as_cell(mean: float, kind: str) -> str:
    if np.isnan(mean):
        return ""
    if kind == "date":
        return f"{EPOCH + pd.Timedelta(days=mean):%Y-%m-%d}"
    return f"{mean:.4g}"
