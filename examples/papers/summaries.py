"""What summaries of experiments share: how sure a count or a mean is, names, files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from scipy.stats import norm, t

from gpflow_pep.plotting import available

#: What makes runs comparable: they differ in method and power alone.
RUN = ["data", "split", "M"]


class Interval(NamedTuple):
    """An estimate, and the ends of its interval."""

    value: float
    low: float
    high: float

    def __format__(self, numbers: str) -> str:
        """The estimate and its interval in brackets, each number in that format."""
        return f"{self.value:{numbers}} [{self.low:{numbers}}, {self.high:{numbers}}]"


def mean_interval(values: Sequence[float] | AnyNDArray) -> Interval:
    """A mean and Student's 95% interval of it; infinite for a single value."""
    count = len(values)
    mean = float(np.mean(values))
    if count < 2:
        return Interval(mean, -np.inf, np.inf)
    half = float(t.ppf(0.975, count - 1) * np.std(values, ddof=1) / np.sqrt(count))
    return Interval(mean, mean - half, mean + half)


def mean_and_error(values: Sequence[float] | AnyNDArray) -> str:
    """A mean and its standard error; of a single value that value, of none a dash."""
    if len(values) < 2:
        return f"{np.mean(values):.3f}" if len(values) else "-"
    return (
        f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"
    )


def label(method: str, alpha: float) -> str:
    """A method with its power, if it has one."""
    return method if np.isnan(alpha) else f"{method} {alpha:g}"


def labelled(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a column ``label``: the method of each row, with its power."""
    names = [
        label(*pair) for pair in zip(table["method"], table["alpha"].astype(float))
    ]
    return table.assign(label=names)


def of_runs(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A row for each run, a column for each method, with gaps."""
    return labelled(table).pivot_table(index=RUN, columns="label", values=metric)


def side_by_side(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A row for each run that all methods have ended, a column for each method."""
    return of_runs(table, metric).dropna()


class Wins(NamedTuple):
    """How often a method is better than another; a tie is half a win for each."""

    wins: float
    total: int
    ties: int
    share: Interval


def wins(wide: pd.DataFrame, better: str, worse: str) -> Wins:
    """
    Count runs in which a method has the lower value.

    :param wide: Of :func:`side_by_side`.
    :param better: The method whose wins are counted.
    :param worse: The other.
    """
    ties = int(np.sum(wide[better] == wide[worse]))
    won = float(np.sum(wide[better] < wide[worse])) + 0.5 * ties
    # Wilson's interval, of halves too.
    share = won / len(wide)
    n = len(wide)
    square = float(norm.ppf(0.975) ** 2)
    middle = share + square / (2.0 * n)
    scale = 1.0 + square / n
    width = np.sqrt(square * (share * (1.0 - share) / n + square / (4.0 * n**2)))
    low = max((middle - width) / scale, 0.0)
    high = min((middle + width) / scale, 1.0)
    return Wins(won, n, ties, Interval(share, low, high))


def mean_intervals(columns: pd.DataFrame) -> pd.DataFrame:
    """A row for each column: the mean of its numbers and Student's interval, gaps left
    out.
    """
    intervals = {
        name: mean_interval(column.dropna()) for name, column in columns.items()
    }
    return pd.DataFrame(intervals, index=list(Interval._fields)).T


def mean_ranks(wide: pd.DataFrame) -> pd.DataFrame:
    """The mean rank of each method, 1 is best, with Student's interval over the runs."""
    return mean_intervals(wide.rank(axis=1))


def over_sets(wide: pd.DataFrame, one: str, other: str) -> tuple[Interval, int, int]:
    """
    The mean difference of two methods over data sets, each the mean over its runs: in
    how many of how many sets it is negative, too.
    """
    differences = (wide[one] - wide[other]).groupby(level="data").mean()
    return (
        mean_interval(differences.to_numpy()),
        int(np.sum(differences < 0)),
        len(differences),
    )


def write(path: Path, make: Callable[[pd.DataFrame], Any], rows: pd.DataFrame) -> None:
    """Write a text, or draw a figure where matplotlib is installed."""
    if path.suffix == ".txt":
        path.write_text(make(rows) + "\n", encoding="utf-8")
    elif available():
        make(rows).savefig(path, dpi=90)
