"""How the cells of a column are read: as numbers, dates or text."""

import datetime
import decimal
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..engine.refusals import refusal
from .conventions import MARKS, MARKS_IN_WORDS, Conventions, plain_spelling
from .dates import as_month_with_point, is_month_with_point, read_dates
from .numbers import read_quantity_or_limit

#: Two numbers in a cell, and their unit.
PAIR = re.compile(r"([+-]?\d[\d.,]*)\s*/\s*([+-]?\d[\d.,]*(?:\s*[^\W\d_]\D*)?)")
EPOCH = pd.Timestamp(0)
#: Types of a column, tested in turn, and the kind of their cells; empty for words.
_KINDS_OF_COLUMNS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (lambda dtype: isinstance(dtype, (pd.CategoricalDtype, pd.StringDtype)), ""),
    (lambda dtype: isinstance(dtype, (pd.PeriodDtype, pd.SparseDtype)), "other"),
    (pd.api.types.is_complex_dtype, "other"),
    (pd.api.types.is_numeric_dtype, "number"),
    (pd.api.types.is_timedelta64_dtype, "number"),
    (pd.api.types.is_datetime64_any_dtype, "date"),
)
#: Types that all objects of a column have, tested in turn, and their kind.
_KINDS_OF_OBJECTS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bool, int, float, np.number, decimal.Decimal), "number"),
    ((datetime.date, np.datetime64), "date"),
    ((str, bool, int, float, np.number), ""),
)


class Format(NamedTuple):
    """How the cells of a column are read.

    :param kind: "number", "date", "text", or "other": what nothing is known of, such as
        lists.
    :param decimal: The decimal mark of numbers that are written as text.
    :param thousands: Marks that their thousands may be separated by, if any.
    :param pattern: The order of dates, "dmy", "mdy" or "ymd", or the form of months,
        quarters or weeks, such as "Jan 2023"; and the first of the hundred years that
        years of two digits are in, if there are such years.
    :param missing: Words that stand for no value. Empty in a column of text: the usual
        ones.
    :param unit: What is written beside each number: a unit, a currency; ":" of hours,
        as in 36:15.
    :param sentinels: Numbers that stand for no value, such as -999.
    :param spellings: Words that are also written in other ways, such as yes for Yes.
    :param source: The column of the table that has the numbers, two in each cell, as in
        120/80; or empty.
    :param part: Which of the two, 0 or 1.
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


class Column:
    """The cells of a column, of which text is made once.

    :param cells: Values of any type, some may be missing.
    """

    def __init__(self, cells: "pd.Series[Any]") -> None:
        self.cells = cells

    @cached_property
    def kind(self) -> str:
        """The kind by the type of the column or of its objects; empty for words."""
        return kind_of_type(self.cells)

    @cached_property
    def texts(self) -> list[str]:
        """The cells of text, without spaces around, in their order."""
        return [cell.strip() for cell in self.cells.tolist() if isinstance(cell, str)]

    @cached_property
    def words(self) -> list[str | None]:
        """All cells as text without spaces around; whole numbers without point; None
        for none.
        """
        # In lists: a row of a table is read in a third of the time that pandas takes.
        cells, missing = self.cells.tolist(), self.cells.isna().tolist()
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
        """How often each word is there, in the order in which they come."""
        return Counter(filter(None, self.words))


def in_marks_of(form: Format, attrs: Mapping[Any, Any]) -> Format:
    """Take decimal mark and thousands of another table, where :func:`read_table` has
    found any.
    """
    known = Conventions(attrs.get("decimal", form.decimal), attrs.get("thousands", ""))
    if form.kind != "number" or (known.decimal == form.decimal and not known.thousands):
        return form
    return form._replace(decimal=known.decimal, thousands=known.marks(known.decimal))


def halves(column: "pd.Series[Any]") -> "tuple[pd.Series[Any], pd.Series[Any]]":
    """Cut cells such as 120/80; of others the first part is the cell, and the second is
    missing.
    """
    cells = column.astype(object).tolist()
    matches = [
        PAIR.fullmatch(cell.strip()) if isinstance(cell, str) else None
        for cell in cells
    ]
    parts = [
        match.groups() if match else (cell, None) for match, cell in zip(matches, cells)
    ]
    first, second = (pd.Series(part, column.index, object) for part in zip(*parts))
    return first, second


def read_cells(column: "pd.Series[Any]", form: Format) -> "pd.Series[Any]":
    """Read the cells: numbers as float64, dates without zone (UTC), words without
    spaces around.

    A number such as <0.5 is read as its limit.

    :param column: Values; missing ones are so in the result.
    :param form: How they are read; of typed columns only the kind is used.
    :raises ValueError: If a cell cannot be read so; it names the column and the row.
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
    if column.kind == "number" and is_month_with_point(form.pattern):
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
    """Read numbers of the unit of the column, or dates; none where a word is none."""
    if form.kind == "date":
        return parse_dates(words, form.pattern).to_numpy()
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
    """Read a number of the unit of the column, or its limit."""
    quantity = read_quantity_or_limit(word, form.decimal, form.thousands)
    return quantity.value if quantity.unit == form.unit else np.nan


def parse_dates(words: Any, pattern: str) -> "pd.Series[Any]":
    """Read dates, without zone (UTC); no date where a word is none."""
    return _dates(read_dates(words, pattern))


def days(dates: "pd.Series[Any]") -> "pd.Series[Any]":
    """Count the days since 1970-01-01; NaN for no date."""
    numbers = (dates.to_numpy() - EPOCH.to_datetime64()) / np.timedelta64(1, "D")
    return pd.Series(numbers, dates.index, name=dates.name)


def without(values: "pd.Series[Any]", sentinels: tuple[float, ...]) -> "pd.Series[Any]":
    return values.where(~values.isin(sentinels)) if sentinels else values


def kind_of_type(column: "pd.Series[Any]") -> str:
    """Find the kind by the type of the column or of its objects; empty for words."""
    dtype = column.dtype
    # By itself: the others take longer.
    if isinstance(dtype, np.dtype) and dtype.kind in "biufM":
        return "date" if dtype.kind == "M" else "number"
    for is_one, kind in _KINDS_OF_COLUMNS:
        if is_one(dtype):
            return kind
    values = column.dropna()
    if pd.api.types.is_string_dtype(values) or values.empty:
        return ""
    found = {type(value) for value in values}
    for types, kind in _KINDS_OF_OBJECTS:
        if all(issubclass(one, types) for one in found):
            return kind
    return "other"


def numbers_of_type(column: "pd.Series[Any]") -> "pd.Series[Any]":
    if pd.api.types.is_timedelta64_dtype(column):
        return column / pd.Timedelta(days=1)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return column.astype(np.float64)
    values = column.astype(object) if column.dtype == object else column
    return pd.to_numeric(values.where(values.notna(), np.nan)).astype(np.float64)


def _dates(column: "pd.Series[Any]") -> "pd.Series[Any]":
    return pd.to_datetime(column, utc=True, errors="coerce").dt.tz_localize(None)
