"""The encoding of each column of a table, and its conversion to numbers, with pandas
only.
"""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..engine.refusals import refusal, with_suggestion
from .formats import MAX_SIZE, Format, days, halves, in_marks_of, read_cells
from .notes import first_of

#: Lengths of cycles in days. A cycle is used if the dates cover it twice and have
#: different places in it. The week is used only if half of all dates follow another one
#: by half a week or less, which excludes dates of birth.
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}
#: The largest number of values of a text column that get their own column.
MAX_CATEGORIES = 20
#: The largest number of other values that are kept, to distinguish them from values
#: that are not in training rows.
_MAX_RARE = 1000
#: A number is unusual if it is outside the range of the training rows by more than this
#: share of the range.
MARGIN = 0.1


class Encoding(NamedTuple):
    """The encoding of a column, from the training rows.

    :param missing: Whether a value was missing, so that a column marks missing ones.
    :param median: The value that replaces a missing number or date.
    :param cycles: The :data:`CYCLES` of dates for which there are columns of sine and
        cosine.
    :param others: Whether there is a column for all other values.
    :param limits: The smallest and the largest number or date; empty if they are not
        known.
    :param rare: Values of text that share the column for others.
    :param spread: Mean, standard deviation and number of the numbers or dates; empty if
        they are not known.
    """

    missing: bool
    median: float = 0.0
    cycles: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    others: bool = False
    limits: tuple[float, ...] = ()
    rare: tuple[str, ...] = ()
    spread: tuple[float, ...] = ()


class Columns(dict[str, "pd.Series[Any]"]):
    """The columns of a table as they were read, by name: words or numbers (days for
    dates).
    """


def read_columns(X: Any, formats: Mapping[str, Format]) -> Columns:
    """
    Read the cells of a table that has exactly the columns of `formats`, in any order.
    If its ``attrs`` have decimal marks and separators of thousands, these replace the
    marks of the formats. Columns that were read already are returned unchanged, so that
    cells are read only once.

    :raises ValueError: If the table has other columns, or a cell cannot be read.
    """
    if isinstance(X, Columns):
        return X
    X = as_table(X, "X")
    columns = list(X.columns)
    homes = {
        name: name if name in columns else form.source or name
        for name, form in formats.items()
    }
    _check_columns(columns, list(dict.fromkeys(homes.values())))
    table = Columns()
    for name, form in formats.items():
        cells = X[homes[name]]
        cells = cells if homes[name] == name else halves(cells)[form.part].rename(name)
        column = read_cells(cells, in_marks_of(form, X.attrs))
        values = days(column) if form.kind == "date" else column
        table[name] = check_cells(name, values)
    return table


def _check_columns(columns: list[str], names: list[str]) -> None:
    """Refuse the columns of a table if they are not those of the model, once each.

    :param names: The names of the model's columns.
    """
    absent = [name for name in names if columns.count(name) != 1]
    foreign = [name for name in columns if name not in names]
    if absent:
        twice = [name for name in absent if name in columns]
        got = f"{'more than one' if twice else 'no'} column {listed(twice or absent)}"
        got += f" among {listed(columns)}"
        expected = f"the columns {listed(names)} once each"
        remedy = "Add or rename columns. Unknown values may be empty."
        if not twice:
            remedy = with_suggestion(remedy, absent, foreign)
        raise refusal("columns", got, expected, remedy)
    if foreign:
        expected = f"{listed(names)} and no others"
        remedy = "Select the columns: X[list(model.feature_names_in_)]."
        raise refusal("X", f"the columns {listed(foreign)}", expected, remedy)


def learn(
    column: "pd.Series[Any]",
    kind: str,
    max_categories: int = MAX_CATEGORIES,
    min_count: int = 2,
) -> Encoding:
    """Compute the encoding of a column.

    :param column: A column from :func:`read_columns`.
    :param kind: The kind in its :class:`~gpflow_pep.tables.Format`.
    :param max_categories: The largest number of values of text that get their own
        column.
    :param min_count: The smallest number of rows of a value with its own column.
    """
    missing = bool(column.isna().any())
    if kind == "text":
        counts = column.value_counts()
        frequent = counts[counts >= min_count].sort_index().nlargest(max_categories)
        categories = tuple(sorted(frequent.index))
        rare = tuple(counts.drop(frequent.index).index[:_MAX_RARE])
        return Encoding(missing, categories=categories, others=bool(rare), rare=rare)
    values = column.dropna().to_numpy()
    if not len(values):
        return Encoding(missing)
    limits = float(np.min(values)), float(np.max(values))
    spread = float(np.mean(values)), float(np.std(values)), float(len(values))
    cycles = _cycles(values) if kind == "date" else ()
    median = float(np.median(values))
    return Encoding(missing, median, cycles, limits=limits, spread=spread)


def encode(
    name: str, column: "pd.Series[Any]", kind: str, learnt: Encoding
) -> list[tuple[str, npt.NDArray[Any]]]:
    """Convert a column to columns of numbers, each with its name."""
    missing = column.isna().to_numpy()
    values = column.to_numpy()
    if kind == "text":
        columns = [
            (f"{name}={category}", values == category) for category in learnt.categories
        ]
        if learnt.others:
            unseen = ~missing & ~column.isin(learnt.categories).to_numpy()
            columns.append((f"{name}=(other)", unseen))
    else:
        values = np.where(missing, learnt.median, values)
        columns = [(name, values)]
        for cycle in learnt.cycles:
            angle = 2.0 * np.pi * values / CYCLES[cycle]
            columns.append((f"{name}: sine of {cycle}", np.sin(angle)))
            columns.append((f"{name}: cosine of {cycle}", np.cos(angle)))
    if learnt.missing:
        columns.append((f"{name} missing", missing))
    return columns


def encode_table(
    X: Any, formats: Mapping[str, Format], encodings: Mapping[str, Encoding]
) -> npt.NDArray[np.float64]:
    """Convert a table to numbers, [N, number of columns from :func:`encode`].

    If all cells of a row are missing, its numbers are NaN.
    """
    table = read_columns(X, formats)
    encoded = [
        values
        for name, form in formats.items()
        for _, values in encode(name, table[name], form.kind, encodings[name])
    ]
    num_rows = len(next(iter(table.values()), ()))
    numbers = np.array(encoded, dtype=np.float64).reshape(len(encoded), num_rows).T
    unknown = [column.isna().to_numpy() for column in table.values()]
    if not table:
        return numbers
    return np.where(np.all(unknown, axis=0)[:, None], np.nan, numbers)


def encoded_names(
    formats: Mapping[str, Format], encodings: Mapping[str, Encoding]
) -> list[str]:
    """Return the names of the columns of :func:`encode_table`."""
    empty = pd.Series([], dtype=np.float64)
    return [
        name
        for column, form in formats.items()
        for name, _ in encode(column, empty, form.kind, encodings[column])
    ]


def unusual_cells(
    X: Any, formats: Mapping[str, Format], encodings: Mapping[str, Encoding]
) -> list[str]:
    """List for each row its cells with values unlike the training rows, [N]; empty if
    there are none.

    These are words that are not in training rows, numbers and dates outside the range
    of the training rows by more than a tenth of it, and missing values in columns
    without missing values in training.
    """
    table = read_columns(X, formats)
    remarks: list[list[str]] = [[] for _ in range(len(next(iter(table.values()), ())))]
    for name, column in table.items():
        found = unusual_in(column, formats[name].kind, encodings[name])
        for row, remark in found.items():
            remarks[row].append(f"{name} {remark}")
    return ["; ".join(of_row) for of_row in remarks]


def unusual_in(column: "pd.Series[Any]", kind: str, learnt: Encoding) -> dict[int, str]:
    """Find the cells of a column that :func:`unusual_cells` lists, and what is unusual
    in each, by the number of its row.
    """
    missing = column.isna().to_numpy()
    values = column.to_numpy()
    remarks: dict[int, str] = {}
    if not learnt.missing:
        remarks |= dict.fromkeys(np.flatnonzero(missing).tolist(), "is missing")
    if kind == "text":
        known = {*learnt.categories, *learnt.rare}
        if len(learnt.rare) < _MAX_RARE and bool(learnt.rare) == learnt.others:
            for row in np.flatnonzero(~missing & ~column.isin(known).to_numpy()):
                remarks[int(row)] = f"{values[row]!r} is new"
    elif learnt.limits:
        low, high = learnt.limits
        margin = MARGIN * (high - low)
        outside = (values < low - margin) | (values > high + margin)
        for row in np.flatnonzero(outside):
            remarks[int(row)] = f"is {'below' if values[row] < low else 'above'} all"
    return remarks


def as_table(frame: Any, name: str) -> pd.DataFrame:
    """Convert a table of pandas or polars to pandas, with text as column names."""
    if hasattr(frame, "to_pandas"):
        try:
            frame = frame.to_pandas()
        except ImportError as error:
            expected = f"that pyarrow is installed ({error})"
            remedy = "Run: pip install 'gpflow-pep[parquet]'."
            raise refusal(name, "a table of polars", expected, remedy) from error
    if not isinstance(frame, pd.DataFrame):
        expected = "a table: a pandas or polars DataFrame"
        remedy = "Make a table: pandas.DataFrame(values, columns=names)."
        raise refusal(name, type(frame).__name__, expected, remedy)
    return frame.set_axis([str(column) for column in frame.columns], axis=1)


def check_cells(name: str, column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Refuse numbers that are infinite or whose squares are infinite."""
    if column.dtype == np.float64:
        large = np.abs(column.to_numpy()) > MAX_SIZE
        if large.any():
            row = int(np.argmax(large))
            got = (
                f"{column.iloc[row]} in row {row} (rows count from 0), and"
                f" {int(large.sum())} such value(s) in all"
            )
            expected = f"numbers below {MAX_SIZE:g} in size"
            remedy = "Correct the numbers, or leave the cells empty."
            raise refusal(f"column '{name}'", got, expected, remedy)
    return column


def _cycles(days: npt.NDArray[np.float64]) -> tuple[str, ...]:
    if not len(days):
        return ()
    apart = np.diff(np.unique(days))
    return tuple(
        name
        for name, period in CYCLES.items()
        if np.ptp(days) >= 2.0 * period and np.ptp(days % period) > 1e-6
        if name != "week" or np.median(apart) <= 0.5 * period
    )


def option(name: str, column: str) -> str:
    """Write an option of the command with the name of a column, for pasting into a
    shell.
    """
    cell = f'"{column}"' if "," in column else column
    return f"--{name} {shlex.quote(cell)}"


def check_names(
    argument: str, names: Iterable[Any], known: Iterable[Any], kind: str
) -> None:
    """Refuse names that do not exist.

    :param known: The names that exist.
    :param kind: The words for these.
    """
    known = list(known)
    unknown = [str(name) for name in names if str(name) not in known]
    if unknown:
        expected = f"{kind} among {listed(known)}"
        remedy = with_suggestion("Check the names.", unknown, known)
        raise refusal(argument, listed(unknown), expected, remedy)


def check_new_names(argument: str, names: Iterable[str], taken: Iterable[str]) -> None:
    """Refuse names of columns that a table has already."""
    taken = list(taken)
    both = [name for name in names if name in taken]
    if both:
        expected = f"names other than {listed(taken)}, the columns of the predictions"
        remedy = "Rename the columns in DATA, or leave them out."
        raise refusal(argument, listed(both), expected, remedy)


def listed(names: Any) -> str:
    """List names for a message: the first eight, and the number of others."""
    return first_of([repr(str(name)) for name in names])
