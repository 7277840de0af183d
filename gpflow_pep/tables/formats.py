"""How the cells of a column are read: as numbers, dates or text."""

import decimal
import re
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..engine.refusals import refusal
from .conventions import MARKS, MARKS_IN_WORDS, Conventions, plain_spelling
from .dates import MONTH_WITH_POINT, as_month_with_point, read_dates
from .numbers import read_quantity

#: Two numbers in a cell, and their unit.
PAIR = re.compile(r"([+-]?\d[\d.,]*)\s*/\s*([+-]?\d[\d.,]*(?:\s*[^\W\d_]\D*)?)")
EPOCH = pd.Timestamp(0)
#: Numbers may have this size, so that their squares are finite.
MAX_SIZE = 1e100
#: The kinds of cells by the names of types in pandas; words are not among them.
_KINDS = {
    **dict.fromkeys(("boolean", "integer", "floating", "decimal"), "number"),
    **dict.fromkeys(("mixed-integer-float", "timedelta64"), "number"),
    **dict.fromkeys(("datetime64", "datetime", "date"), "date"),
    **dict.fromkeys(("string", "categorical", "empty"), ""),
}
#: The types that may be mixed in a column.
_NUMBERS = (bool, int, float, np.number)


class Format(NamedTuple):
    """How the cells of a column are read.

    :param kind: "number", "date", "text", or "other" for unknown things such as lists.
    :param decimal: The decimal mark of numbers that are written as text.
    :param thousands: The possible separators of thousands, if any.
    :param pattern: The order of dates, "dmy", "mdy" or "ymd", or the form of months,
        quarters or weeks, such as "Jan 2023".
    :param missing: Words that mean a missing value; if it is empty in a column of text,
        the usual words.
    :param unit: The unit or currency that is written with each number; ":" for hours,
        as in 36:15.
    :param sentinels: Numbers that mean a missing value, such as -999.
    :param spellings: Words that are also written in other ways, such as yes for Yes.
    :param source: The column of the table with two numbers in each cell, such as
        120/80; empty for other columns.
    :param part: Which of the two numbers is read, 0 or 1.
    :param first_year: The first of the hundred years for years of two digits; None if
        the dates have no such years.
    """

    kind: str
    decimal: str = "."
    thousands: str = ""
    pattern: str = ""
    missing: tuple[str, ...] = ()
    unit: str = ""
    sentinels: tuple[float, ...] = ()
    spellings: tuple[str, ...] = ()
    source: str = ""
    part: int = 0
    first_year: int | None = None


class Column:
    """The cells of a column. They are converted to text once.

    :param cells: Values of any type; some may be missing.
    :param known: The conventions of the table.
    :param literal: Whether cells are read exactly as written: numbers with a unit or
        leading zeros are text, -999 is a number, and Yes and yes are two words.
    """

    def __init__(
        self,
        cells: "pd.Series[Any]",
        known: Conventions | None = None,
        literal: bool = False,
    ) -> None:
        self.cells = cells
        self.name = str(cells.name)
        self.known = known or Conventions()
        self.literal = literal

    @cached_property
    def kind(self) -> str:
        """The kind from the type of the column or of its objects; empty for words."""
        return kind_of_type(self.cells)

    @cached_property
    def texts(self) -> list[str]:
        """The cells of text, without spaces around, in their order."""
        return [cell.strip() for cell in self.cells.tolist() if isinstance(cell, str)]

    @cached_property
    def words(self) -> list[str | None]:
        """All cells as text without spaces around; whole numbers have no point, and
        missing cells are None.
        """
        # With lists a row of a table is read in a third of the time of pandas.
        cells = self.cells.tolist()
        missing = self.cells.isna().tolist()
        if pd.api.types.is_float_dtype(self.cells):
            cells = [
                int(v) if not none and v.is_integer() else v
                for v, none in zip(cells, missing)
            ]
        return [
            None if none else str(cell).strip() or None
            for cell, none in zip(cells, missing)
        ]

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of cells with each word, in the order of the cells."""
        return Counter(filter(None, self.words))

    @cached_property
    def counts_of_values(self) -> "pd.Series[int]":
        """The number of cells with each word that is not a mark of a missing value, the
        most frequent first.
        """
        marks = {*MARKS, *self.known.missing}
        counts = {word: n for word, n in self.counts.items() if word not in marks}
        # Words with equal counts stay in the order of the cells.
        series = pd.Series(counts, dtype=int)
        return series.sort_values(ascending=False, kind="stable")


def in_marks_of(form: Format, attrs: Mapping[Any, Any]) -> Format:
    """Replace the decimal mark and the separator of thousands by the marks of another
    table, if :func:`read_table` has found them.
    """
    known = Conventions(attrs.get("decimal", form.decimal), attrs.get("thousands", ""))
    if form.kind != "number" or (known.decimal == form.decimal and not known.thousands):
        return form
    return form._replace(decimal=known.decimal, thousands=known.marks(known.decimal))


def halves(column: "pd.Series[Any]") -> "tuple[pd.Series[Any], pd.Series[Any]]":
    """Split cells such as 120/80. For other cells the first part is the cell, and the
    second part is missing.
    """
    cells = column.astype(object).tolist()
    matches = [PAIR.fullmatch(str(cell).strip()) for cell in cells]
    parts = [
        match.groups() if match else (cell, None) for match, cell in zip(matches, cells)
    ]
    first, second = (pd.Series(part, column.index, object) for part in zip(*parts))
    return first, second


def read_cells(column: "pd.Series[Any]", form: Format) -> "pd.Series[Any]":
    """Read the cells: numbers as float64, dates without zone (UTC), words without
    spaces around.

    A cell such as <0.5 is read as the number of the limit.

    :param column: Values. Missing values stay missing.
    :param form: How the cells are read. If the column has a type, only the kind is
        used.
    :raises ValueError: If a cell cannot be read in this way. The message has the column
        and the row.
    """
    return read_column_as(Column(column), form)


def read_column_as(column: Column, form: Format) -> "pd.Series[Any]":
    """Read the cells of a column; see :func:`read_cells`."""
    if form.kind == "text":
        return _read_text(column, form)
    if column.kind == form.kind == "number":
        return without(numbers_of_type(column.cells), form.sentinels)
    if column.kind == form.kind == "date":
        return _dates(column.cells)
    words = column.words
    if column.kind == "number" and form.pattern == MONTH_WITH_POINT:
        words = [word and as_month_with_point(float(word)) for word in words]
    places, different = pd.factorize(np.array(words, dtype=object))
    read = read_words(different, form)
    wrong = set(different[np.isnan(read)]) - {*MARKS, *form.missing}
    cells = column.cells
    if wrong:
        place = next(row for row, word in enumerate(words) if word in wrong)
        raise _unread_cell(cells.name, words[place], place, form)
    values = pd.api.extensions.take(read, places, allow_fill=True)
    series = pd.Series(values, cells.index, name=cells.name)
    return without(series, form.sentinels)


def read_words(words: Any, form: Format) -> npt.NDArray[Any]:
    """Read numbers in the unit of the column, or dates; missing if a word is
    neither.
    """
    if form.kind == "date":
        return read_dates(words, form.pattern, form.first_year).to_numpy()
    return np.array([_number(word, form) for word in words], dtype=np.float64)


def _read_text(column: Column, form: Format) -> "pd.Series[Any]":
    """Read words, each in its most frequent spelling."""
    words = column.words
    chosen = {plain_spelling(word): word for word in form.spellings}
    values: dict[Any, Any] = {
        word: chosen.get(plain_spelling(word), word) for word in filter(None, words)
    }
    values |= dict.fromkeys((None, *(form.missing or MARKS_IN_WORDS)), np.nan)
    cells = [values[word] for word in words]
    return pd.Series(cells, column.cells.index, object, column.cells.name)


def _unread_cell(column: Any, word: str | None, row: int, form: Format) -> ValueError:
    got = f"{word!r} in row {row} (rows count from 0)"
    like = f"with '{form.decimal}' as decimal point"
    if form.pattern:
        like = f"as {form.pattern}"
    if form.unit:
        like += f" and the unit '{form.unit}'"
    expected = f"a {form.kind} written {like}"
    if form.source:
        expected = "two numbers, such as 120/80"
    remedy = "Correct the cell, or leave it empty."
    return refusal(f"column '{form.source or column}'", got, expected, remedy)


def _number(word: str, form: Format) -> float:
    """Read a number in the unit of the column, or the number of a limit."""
    quantity = read_quantity(word, form.decimal, form.thousands)
    return quantity.value if quantity.unit == form.unit else np.nan


def days(dates: "pd.Series[Any]") -> "pd.Series[Any]":
    """Count the days since 1970-01-01; NaN for a missing date."""
    numbers = (dates.to_numpy() - EPOCH.to_datetime64()) / np.timedelta64(1, "D")
    return pd.Series(numbers, dates.index, name=dates.name)


def without(values: "pd.Series[Any]", sentinels: tuple[float, ...]) -> "pd.Series[Any]":
    return values.where(~values.isin(sentinels)) if sentinels else values


def kind_of_type(column: "pd.Series[Any]") -> str:
    """Find the kind from the type of the column or of its objects; empty for words."""
    if isinstance(column.dtype, pd.SparseDtype):
        return "other"
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    if not inferred.startswith("mixed") or inferred in _KINDS:
        return _KINDS.get(inferred, "other")
    found = {type(value) for value in column.dropna()}
    if all(issubclass(one, (*_NUMBERS, decimal.Decimal)) for one in found):
        return "number"
    are_words = all(issubclass(one, (*_NUMBERS, str)) for one in found)
    return "" if are_words else "other"


def numbers_of_type(column: "pd.Series[Any]") -> "pd.Series[Any]":
    if pd.api.types.is_timedelta64_dtype(column):
        return column / pd.Timedelta(days=1)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return column.astype(np.float64)
    numbers = column.where(column.notna(), np.nan)
    try:
        return pd.to_numeric(numbers).astype(np.float64)
    except OverflowError as error:  # a whole number of hundreds of digits
        expected = f"numbers below {MAX_SIZE:g} in size"
        where = f"column '{column.name}'"
        raise refusal(where, "a larger number", expected, "Correct it.") from error


def _dates(column: "pd.Series[Any]") -> "pd.Series[Any]":
    return pd.to_datetime(column, utc=True, errors="coerce").dt.tz_localize(None)
