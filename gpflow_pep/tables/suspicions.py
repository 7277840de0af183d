"""What in a table makes scores look better or worse than they are: warnings, nothing is changed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from .encodings import listed

#: A column of so many values at least, with so high a rank correlation, is a function of the
#: target.
_LEAST_VALUES = 10
_CORRELATION = 0.999
#: Robust standard deviations from the median: of a target, and of its logarithm.
_WILD, _WILD_LOG = 20.0, 6.0
#: More wild targets than this many, or this share, are how the target is distributed.
_MAX_WILD, _MAX_WILD_SHARE = 3, 0.01
#: A number that is in so many rows, and outside all others by this share of their range, may stand
#: for a missing value; a negative one beside others that are not need not be that far away.
_LEAST_MARKS, _MARK_GAP = 3, 0.5
#: A class of fewer rows than this share is rare.
_RARE = 0.05


def suspicions(X: pd.DataFrame, y: "pd.Series[Any]", classes: bool) -> list[str]:
    """
    Describe what is suspicious: columns that are the target, numbers that may stand for no value,
    wild numbers, and rare classes.

    :param X: Inputs: numbers, dates and text; values may be missing.
    :param y: The target, with no value missing.
    :param classes: Whether the target is a class.
    """
    disguised = [text for name in X for text in _disguises(X[name], y, classes)]
    columns = [X[name] for name in X if X[name].dtype == np.float64]
    columns += [] if classes else [y]
    strange = [
        text for column in columns for text in (*_marks(column), *_wild(column, column is y))
    ]
    return [*disguised, *strange, *(_rare_classes(y) if classes else ())]


def _disguises(column: "pd.Series[Any]", y: "pd.Series[Any]", classes: bool) -> Iterator[str]:
    """State that a column is the target, if it is."""
    there = column.notna().to_numpy()
    remedy = (
        "If it is computed from the target, or is not known when a row is predicted, the scores do"
        f" not hold for new rows: leave it out (--drop {column.name})."
    )
    if 2 * there.sum() >= len(y):
        values, target = column[there], y[there]
        if _are_one_to_one(values, target):
            yield (
                f"Column '{column.name}' has another value for each value of the target"
                f" '{y.name}', and no other. {remedy}"
            )
            return
        correlation = np.nan if classes else _rank_correlation(values, target)
        if abs(correlation) > _CORRELATION:
            way = "the same" if correlation > 0.0 else "the opposite"
            yield (
                f"Column '{column.name}' puts the rows in {way} order as the target '{y.name}'"
                f" (rank correlation {correlation:.4f}). {remedy}"
            )
            return
    for name in y.unique() if classes and not there.all() else ():
        is_class = (y == name).to_numpy()
        if np.array_equal(there, is_class) or np.array_equal(there, ~is_class):
            state = "has values" if np.array_equal(there, is_class) else "is empty"
            yield (
                f"Column '{column.name}' {state} in all rows of the class '{name}' of"
                f" '{y.name}', and in no others. {remedy}"
            )
            return


def _are_one_to_one(values: "pd.Series[Any]", target: "pd.Series[Any]") -> bool:
    """Whether each of few values is that of one target, and the other way round."""
    number = target.nunique()
    if not 2 <= number <= len(target) // 3 or values.nunique() != number:
        return False
    pairs = pd.DataFrame({"value": values.to_numpy(), "target": target.to_numpy()})
    return len(pairs.drop_duplicates()) == number


def _rank_correlation(values: "pd.Series[Any]", target: "pd.Series[Any]") -> float:
    """Compute Spearman's correlation; NaN for text, and for few different values."""
    if values.dtype == object or pd.api.types.is_string_dtype(values):
        return np.nan
    if min(values.nunique(), target.nunique()) < _LEAST_VALUES:
        return np.nan
    return float(values.rank().corr(target.rank()))


def _distances(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """
    Measure distances from the median in robust standard deviations: where half of the values are
    one number, in those of the others; if these are zero too, as of 0 and 1, in the least distance.
    """
    distance = np.abs(values - np.median(values))
    parts = [part for part in (values, values[distance > 0.0]) if len(part)]
    scales = [stats.median_abs_deviation(part, scale="normal") for part in parts]
    least = np.min(distance[distance > 0.0], initial=np.inf)
    return distance / next(filter(None, (*scales, least)))


def _marks(column: "pd.Series[Any]") -> Iterator[str]:
    """Name a number that is repeated outside all others: it may stand for no value."""
    values = column.dropna().to_numpy()
    for mark in dict.fromkeys((np.min(values), np.max(values))) if len(values) else ():
        others = values[values != mark]
        count = len(values) - len(others)
        if (
            count < _LEAST_MARKS
            or len(np.unique(others)) < _LEAST_VALUES
            or 2 * count > len(values)
        ):
            continue
        distance = np.min(np.abs(others - mark))
        if distance > _MARK_GAP * np.ptp(others) or mark < 0.0 <= np.min(others):
            yield (
                f"Column '{column.name}' is {mark:g} in {count} of {len(values)} rows, outside of"
                f" all others, which are between {np.min(others):g} and {np.max(others):g}. If it"
                f" stands for a missing value, pass --missing={mark:g} (in Python missing=)."
            )


def _wild(column: "pd.Series[Any]", is_target: bool) -> Iterator[str]:
    """Name one or few numbers far from all others."""
    column = column.dropna()
    values = column.to_numpy(dtype=np.float64)
    if not len(values):
        return
    distances = _distances(values)
    wild = distances > _WILD
    positive = values > 0.0
    if np.min(values) >= 0.0 and len(np.unique(values[positive])) > 2:
        # Maybe skewed: far among the logarithms too.
        wild[positive] &= _distances(np.log(values[positive])) > _WILD_LOG
    rows = np.flatnonzero(wild)
    if 0 < len(rows) <= max(_MAX_WILD, int(_MAX_WILD_SHARE * len(column))):
        shown = ", ".join(f"{values[row]:g} in row {column.index[row]}" for row in rows[:_MAX_WILD])
        more = f" and {len(rows) - _MAX_WILD} more" if len(rows) > _MAX_WILD else ""
        robust = "; if they are right, try --likelihood student_t" if is_target else ""
        yield (
            f"{'The target' if is_target else 'Column'} '{column.name}' is {shown}{more} (rows"
            f" count from 0), which is {'at least ' * (len(rows) > 1)}"
            f"{np.min(distances[rows]):.0f} robust standard deviations from its median"
            f" {np.median(values):g}. RMSE and NLPD can depend on such rows more than on all"
            " others, and so can what is trained on them. Check them: correct them, or leave them"
            f" out{robust}."
        )


def _rare_classes(y: "pd.Series[Any]") -> Iterator[str]:
    """Name which classes are rare, and what to look at then."""
    shares = y.value_counts(normalize=True)
    rare = shares[shares < _RARE]
    if not len(rare):
        return
    rarest = f"{int((y == rare.index[-1]).sum())} of {len(y)}"
    begins = f"Class {listed(rare.index)} of '{y.name}' has {rarest} rows ({rare.iloc[-1]:.1%})"
    if len(rare) > 1:
        begins = (
            f"Classes {listed(rare.index)} of '{y.name}' have fewer than {_RARE:.0%} of the rows"
            f" each, the rarest {rarest} ({rare.iloc[-1]:.1%})"
        )
    yield (
        f"{begins}. Never predicting it adds only {rare.iloc[-1]:.1%} to the error, which therefore"
        " means little. Look at the recall of each class (classes.png), and at the"
        " probabilities (predictions.csv)."
    )
