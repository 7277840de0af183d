"""Warnings of things in a table that make scores look better or worse than they are.
Nothing is changed.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats
from sklearn.linear_model import orthogonal_mp

from .conventions import FEWEST, MIN_ROWS
from .encodings import option
from .notes import Note, first_of

#: A column with at least this rank correlation is a function of the target.
_CORRELATION = 0.999
#: The target is a formula of columns if it leaves at most this fraction of the
#: variance. Each column must have a value (for a product a positive one) in more than
#: this fraction of the rows.
_LEFT = 0.001
_THERE = 0.9
#: Limits for wild targets in robust standard deviations from the median, for a target
#: and for its logarithm. If more than this share of the targets is beyond them, this is
#: the distribution of the target.
_WILD = 20.0
_WILD_LOG = 6.0
_WILD_SHARE = 0.01
#: A repeated number that is outside all others by this share of their range may mean a
#: missing value. A negative number among positive ones may be nearer.
_MARK_GAP = 0.5
#: Codes for "does not know", "refused" and the like in surveys; and the largest number
#: of values in a scale, such as 0 to 10, for which codes are reported.
_CODES = (
    *(-9, -8, -7, -77, -88, -98, -99, -777, -888, -998, -999),
    *(66, 77, 88, 96, 97, 98, 99, 777, 888, 997, 998, 999),
)
_LONGEST_SCALE = 12
#: Equal numbers in consecutive rows are reported if a run of this length has a lower
#: probability than this. The probability comes from the share of equal neighbours in
#: the other rows, or next to this number in other rows (such as 0 if it rarely rains),
#: times four, because similar rows stand together. In 20 tables of papers nothing is
#: reported.
_CHANCE = 0.001
_ALIKE = 4.0
#: A class with less than this share of the rows is rare.
_RARE = 0.05


def suspicions(X: pd.DataFrame, y: "pd.Series[Any]", classes: bool) -> list[str | Note]:
    """
    Describe what is suspicious: columns that repeat the target, numbers that may mean a
    missing value, wild numbers, and rare classes.

    :param X: Inputs: numbers, dates and text; values may be missing.
    :param y: The target, without missing values.
    :param classes: Whether the target is a class.
    """
    disguises = {name: _disguise(X[name], y, classes) for name in X}
    texts: list[str | Note] = [
        f"Column '{name}' {way}. If it is computed from the target, or is not known"
        " when a row is predicted, the scores are not valid for new rows: leave it"
        f" out ({option('drop', name)})."
        for name, way in disguises.items()
        if way
    ]
    columns = [X[name] for name in X if X[name].dtype == np.float64]
    if not classes:
        columns.append(y)
    for column in columns:
        codes = [*_codes(column)]
        texts += codes or [*_marks(column), *_wild(column, column is y)]
    if classes:
        texts += _codes(pd.to_numeric(y, errors="coerce"))
        texts += _rare_classes(y)
    return texts


def formula(X: pd.DataFrame, y: "pd.Series[Any]") -> list[str]:
    """Find two or three columns from which the target, a number, is computed: as a
    weighted sum, such as revenue minus cost, or a product of powers, such as units
    times price. Empty if there are no such columns.
    """
    numbers = pd.concat([X.select_dtypes(np.float64), y], axis=1)
    for table in (numbers, np.log(numbers.where(numbers > 0.0))):
        rows = table.loc[:, table.notna().mean() > _THERE].dropna()
        rows = rows - rows.mean()
        rows = rows.loc[:, rows.std() > 0.0] / np.sqrt((rows**2).sum())
        inputs = rows.drop(columns=y.name, errors="ignore")
        enough = y.name in rows and len(rows) >= 2 * MIN_ROWS
        if not enough:
            continue
        terms = inputs.to_numpy()
        target = rows[y.name].to_numpy()
        for size in range(2, min(inputs.shape[1], 3) + 1):
            with warnings.catch_warnings():
                # This warns if fewer columns are enough, or if columns repeat others.
                warnings.filterwarnings("ignore", "Orthogonal matching pursuit ended")
                weights = orthogonal_mp(terms, target, n_nonzero_coefs=size)
            if np.sum((target - terms @ weights) ** 2) < _LEFT:
                return [str(name) for name in inputs.columns[np.abs(weights) > 0.01]]
    return []


def _disguise(column: "pd.Series[Any]", y: "pd.Series[Any]", classes: bool) -> str:
    """Describe how a column repeats the target; empty if it does not."""
    there = column.notna().to_numpy()
    if 2 * there.sum() >= len(y):
        values = column[there]
        target = y[there]
        levels = target.nunique()
        pairs = pd.DataFrame({"value": values, "target": target}).drop_duplicates()
        if 2 <= levels <= len(target) // 3 and values.nunique() == levels == len(pairs):
            return (
                f"has another value for each value of the target '{y.name}', and no"
                " other"
            )
        correlation = np.nan if classes else _rank_correlation(values, target)
        if abs(correlation) > _CORRELATION:
            way = (
                f"{'the same' if correlation > 0.0 else 'the opposite'} order as the"
                " target"
            )
            return (
                f"puts the rows in {way} '{y.name}' (rank correlation"
                f" {correlation:.4f})"
            )
    for name in y.unique() if classes and not there.all() else ():
        for state, rows in (("has values", there), ("is empty", ~there)):
            if np.array_equal(rows, y == name):
                return (
                    f"{state} in all rows of the class '{name}' of '{y.name}', and in"
                    " no others"
                )
    return ""


def _rank_correlation(values: "pd.Series[Any]", target: "pd.Series[Any]") -> float:
    """Compute Spearman's correlation; NaN for text, and for few different values."""
    if values.dtype == object or pd.api.types.is_string_dtype(values):
        return np.nan
    if min(values.nunique(), target.nunique()) < MIN_ROWS:
        return np.nan
    return float(values.rank().corr(target.rank()))


def _distances(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Measure distances from the median in robust standard deviations: if half of the
    values are one number, in robust standard deviations of the others; and if these are
    zero too, as for values 0 and 1, in units of the smallest distance.
    """
    distance = np.abs(values - np.median(values))
    groups = [group for group in (values, values[distance > 0.0]) if len(group)]
    scales = [stats.median_abs_deviation(group, scale="normal") for group in groups]
    least = np.min(distance[distance > 0.0], initial=np.inf)
    return distance / next(filter(None, (*scales, least)))


def _codes(column: "pd.Series[Any]") -> Iterator[Note]:
    """Report codes such as 99 among a scale of few whole numbers, because they may mean
    a missing value.
    """
    values = column.dropna().to_numpy(dtype=np.float64)
    are_codes = np.isin(values, _CODES)
    scale = np.unique(values[~are_codes])
    if not 2 <= len(scale) <= _LONGEST_SCALE or np.any(scale % 1.0):
        return
    codes, counts = np.unique(values[are_codes], return_counts=True)
    above = codes - scale[-1] > scale[-1] - scale[0]
    below = (codes < 0.0) & (scale[0] >= 0.0)
    outside = above | below
    if np.sum(counts[outside]) < FEWEST:
        return
    listed_codes = ",".join(f"{code:g}" for code in codes[outside])
    rows = ", ".join(
        f"{code:g} in {count}" for code, count in zip(codes[outside], counts[outside])
    )
    yield Note(
        str(column.name),
        f"Column '{column.name}' is {rows} of {len(values)} rows, among whole numbers"
        f" from {scale[0]:g} to {scale[-1]:g}. If this is a code for a missing value,"
        f" pass --missing={listed_codes} (in Python missing=), which applies to all"
        " columns.",
        "{} have numbers that may be codes for a missing value, among few whole"
        f" numbers; --missing={listed_codes} (in Python missing=) reads them as"
        " missing in all columns",
        rows,
    )


def _marks(column: "pd.Series[Any]") -> Iterator[str]:
    """Report a number that is repeated outside all others, because it may mean a
    missing value.
    """
    values = column.dropna().to_numpy()
    for mark in dict.fromkeys((np.min(values), np.max(values))) if len(values) else ():
        unmarked = values[values != mark]
        count = len(values) - len(unmarked)
        if (
            not FEWEST <= count <= len(values) / 2
            or len(np.unique(unmarked)) < MIN_ROWS
        ):
            continue
        distance = np.min(np.abs(unmarked - mark))
        if distance > _MARK_GAP * np.ptp(unmarked) or mark < 0.0 <= np.min(unmarked):
            yield (
                f"Column '{column.name}' is {mark:g} in {count} of {len(values)} rows,"
                " outside the range of all others, which are between"
                f" {np.min(unmarked):g} and {np.max(unmarked):g}. If it means a missing"
                f" value, pass --missing={mark:g} (in Python missing=)."
            )


def stuck(column: "pd.Series[Any]") -> Iterator[str]:
    """Report a number that stays the same in consecutive rows, although it changes
    between other rows.
    """
    column = column.dropna()
    if column.dtype != np.float64 or any(
        part.is_monotonic_increasing for part in (column, -column)
    ):
        return
    values = column.to_numpy()
    starts = np.flatnonzero(np.diff(values, prepend=np.nan) != 0.0)
    lengths = np.diff(starts, append=len(values))
    numbers = values[starts]
    long = lengths >= MIN_ROWS
    if long.sum() > FEWEST or len(np.unique(numbers[~long])) < MIN_ROWS:
        return
    for run in np.flatnonzero(long):
        begin = starts[run]
        length = lengths[run]
        others = (
            part for part in (~long, ~long & (numbers == numbers[run])) if part.any()
        )
        equal = max(1.0 - np.sum(part) / lengths[part].sum() for part in others)
        if len(values) * (_ALIKE * equal) ** (length - 1) < _CHANCE:
            rows = f"{column.index[begin]} to {column.index[begin + length - 1]}"
            yield (
                f"Column '{column.name}' is {numbers[run]:g} in {length} rows one"
                f" after another, {rows} (rows count from 0), and changes between"
                " other rows. If a sensor was stuck there, these are not"
                " measurements: leave the cells empty."
            )


def _wild(column: "pd.Series[Any]", is_target: bool) -> Iterator[str]:
    """Report one or a few numbers that are far from all others."""
    column = column.dropna()
    values = column.to_numpy(dtype=np.float64)
    if not len(values):
        return
    distances = _distances(values)
    wild = distances > _WILD
    positive = values > 0.0
    if np.min(values) >= 0.0 and len(np.unique(values[positive])) > 2:
        # If the numbers may be skewed, the logarithm must also be far from the others.
        wild[positive] &= _distances(np.log(values[positive])) > _WILD_LOG
    rows = np.flatnonzero(wild)
    if 0 < len(rows) <= max(FEWEST, int(_WILD_SHARE * len(column))):
        wild_rows = [f"{values[row]:g} in row {column.index[row]}" for row in rows]
        shown = first_of(wild_rows, FEWEST)
        at_least = "at least " if len(rows) > 1 else ""
        what = "Column"
        robust = ""
        if is_target:
            what = "The target"
            robust = "; if they are correct, try --likelihood student_t"
        yield (
            f"{what} '{column.name}' is {shown} (rows count from 0), which is"
            f" {at_least}{np.min(distances[rows]):.0f} robust standard deviations from"
            f" its median {np.median(values):g}. RMSE and NLPD, and the trained"
            " models, can depend on such rows more than on all others. Check these"
            f" values, and correct them or leave them out{robust}."
        )


def _rare_classes(y: "pd.Series[Any]") -> Iterator[str]:
    """Report which classes are rare, and what to look at in this case."""
    counts = y.value_counts()
    rare = counts[counts < _RARE * len(y)]
    if not len(rare):
        return
    parts = [
        f"'{name}' ({n} of {len(y)} rows, {n / len(y):.1%})" for name, n in rare.items()
    ]
    yield (
        f"Rare classes of '{y.name}': {first_of(parts)}. Never predicting them"
        " adds little to the error, which therefore means little. Look at the recall"
        " of each class (confusion.png), and at the probabilities (predictions.csv)."
    )
