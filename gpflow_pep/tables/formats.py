"""How the cells of a column are read: as numbers, dates or text."""

import datetime
import decimal
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..engine.refusals import refusal
from .conventions import (
    FEWEST,
    MARKS,
    MARKS_IN_WORDS,
    PLAIN,
    WHOLE,
    Conventions,
    find_conventions,
    find_sentinels,
    find_spellings,
    plain_spelling,
    ways_of_writing,
)
from .dates import (
    ORDERS,
    as_month_with_point,
    find_period,
    has_order,
    is_month_with_point,
    pattern_of,
    read_dates,
)
from .numbers import (
    OTHER,
    SURE_UNIT,
    is_limit,
    read_quantity,
    read_quantity_or_limit,
    unread_form,
)

#: A column is of numbers, or dates, where at least this share of its cells is, or of
#: cells that differ...
LEAST_SHARE = 0.9
#: ... and the others are no more different words than this, such as "n.d.".
_MAX_WORDS = 5
#: One word, such as T for traces of rain, may be in this share of the cells, if the
#: numbers have decimals: whole numbers beside so many words may be codes.
_MOST_OF_ONE_WORD = 0.15
#: Whole numbers above it may be equal in floating point though they differ; with so
#: few or many digits none are looked at.
_EXACT = 2**53
_FEWEST_DIGITS, _MOST_DIGITS = 16, 100
#: Two numbers in a cell, and their unit.
PAIR = re.compile(r"([+-]?\d[\d.,]*)\s*/\s*([+-]?\d[\d.,]*(?:\s*[^\W\d_]\D*)?)")
#: Whole numbers of eight digits are dates where all are, between these.
_DAYS = (19000101, 21001231)
EPOCH = pd.Timestamp(0)
_TRUTH = {
    "True": True,
    "TRUE": True,
    "true": True,
    "False": False,
    "FALSE": False,
    "false": False,
    "": None,
}
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


class _Reading(NamedTuple):
    """One way to read the different words of a column: whether it reads enough of them,
    the share that is read, and the values.
    """

    enough: bool
    share: float
    form: Format
    values: npt.NDArray[np.float64]


def given_conventions(
    decimal: str | None = None,
    thousands: str | None = None,
    dates: str | None = None,
    missing: Iterable[Any] = (),
) -> Conventions:
    """Make conventions of a user's arguments; see :class:`Conventions`.

    :raises ValueError: If a mark is none, or two are the same.
    """
    decimal = decimal or OTHER.get(thousands or "")
    if decimal not in (None, *OTHER):
        raise refusal(
            "decimal", repr(decimal), "'.' or ','", "Leave it out if in doubt."
        )
    if thousands is not None and (
        len(thousands) != 1 or thousands in f"{decimal}0123456789"
    ):
        expected = "one character, which is not the decimal mark"
        raise refusal(
            "thousands", repr(thousands), expected, "Leave it out if in doubt."
        )
    if dates not in (None, *ORDERS):
        expected = f"one of {', '.join(ORDERS)}, the order of day, month and year"
        raise refusal("dates", repr(dates), expected, "Leave it out if in doubt.")
    missing = [missing] if isinstance(missing, (str, int, float)) else missing
    words = tuple(
        f"{mark:.15g}" if isinstance(mark, float) else str(mark) for mark in missing
    )
    return Conventions(decimal or "", thousands or "", dates or "", words)


def conventions_of(
    table: pd.DataFrame, stated: Conventions | None = None, sep: str = ""
) -> Conventions:
    """Find the conventions of a table from all of its cells; see
    :func:`find_conventions`.
    """
    columns = [
        stripped(column) for _, column in table.items() if not _kind_of_type(column)
    ]
    return find_conventions(columns, stated or Conventions(), sep)


def stripped(column: "pd.Series[Any]") -> list[str]:
    """Give the cells of text without spaces around, in their order."""
    return [cell.strip() for cell in column.tolist() if isinstance(cell, str)]


def in_marks_of(form: Format, attrs: Mapping[Any, Any]) -> Format:
    """Take decimal mark and thousands of another table, where :func:`read_table` has
    found any.
    """
    known = Conventions(attrs.get("decimal", form.decimal), attrs.get("thousands", ""))
    if form.kind != "number" or (known.decimal == form.decimal and not known.thousands):
        return form
    return form._replace(decimal=known.decimal, thousands=known.marks(known.decimal))


def typed(column: "pd.Series[Any]", decimal: str) -> "pd.Series[Any]":
    """Turn text into numbers or truth values where all cells are plain ones, or marks
    of none.

    :param column: Text, empty where a cell is.
    :param decimal: The decimal mark; empty where it is not known.
    """
    cells = stripped(column)
    marks = {*MARKS}.intersection(cells)
    values = [cell for cell in cells if cell not in marks]
    ways = {*ways_of_writing(values)} - {""}
    if ways and ways | marks <= {*_TRUTH}:
        return pd.Series([_TRUTH[cell] for cell in cells], column.index)
    text = column.where(column != "", None)
    whole = all(map(WHOLE.fullmatch, ways))
    are_numbers = whole or _are_plain(ways, decimal)
    if not are_numbers or may_be_classes(marks, values):
        return text
    if whole and not marks:
        try:
            return pd.Series(list(map(int, cells)), column.index, dtype=np.int64)
        except OverflowError:
            pass  # numbers of floating point hold more
    if whole and any(map(is_large_label, values)):
        return text
    return pd.Series(_floats(cells, marks, decimal or "."), column.index)


def _floats(cells: Iterable[str], marks: set[str], decimal: str) -> list[float]:
    return [
        np.nan if cell in marks else float(cell.replace(decimal, ".")) for cell in cells
    ]


def _are_plain(numbers: Iterable[str], decimal: str) -> bool:
    """Whether all are plain numbers with the decimal mark; if it is not known, they
    have none, as 1e-05.
    """
    if not decimal and any("." in number for number in numbers):
        return False
    return all(map(PLAIN[decimal or "."].fullmatch, numbers))


def may_be_classes(marks: Iterable[Any], numbers: list[Any]) -> bool:
    """
    Whether marks such as "-" beside numbers may be a class: each number is in two cells
    on average, the fewest rows that a class has.
    """
    num_different = len({*numbers})
    return any(marks) and 2 * num_different <= len(numbers)


def recognise(
    column: "pd.Series[Any]",
    *,
    as_written: bool = False,
    conventions: Conventions | None = None,
) -> Format:
    """Find out how the cells of a column are read.

    :param column: Values of any type, some may be missing.
    :param as_written: Whether all numbers and words are values as they are written:
        numbers with a unit or zeros before them are text, -999 is a number, and Yes and
        yes are two words.
    :param conventions: Those of its table; None: of this column alone.
    :raises ValueError: If its cells can be read in two ways.
    """
    if conventions is None:
        conventions = conventions_of(column.to_frame())
    form = _recognise(column, conventions, as_written)
    if form.kind == "text":
        if as_written:
            return form._replace(missing=("", *conventions.missing))
        marks = (*MARKS_IN_WORDS, *conventions.missing) if conventions.missing else ()
        form = form._replace(missing=marks)
        return form._replace(spellings=find_spellings(read_cells(column, form)))
    if form.kind in ("number", "date"):
        form = form._replace(missing=(*form.missing, *conventions.missing))
    if form.kind == "number" and not as_written:
        named = conventions.sentinels
        form = form._replace(sentinels=named)
        found = find_sentinels(read_cells(column, form))
        form = form._replace(sentinels=(*named, *found))
    return form


class _Words(NamedTuple):
    """The words of a column that are not of a type, and how the table is written."""

    name: Any
    cells: list[str]  #: In their order, without missing ones.
    values: list[str]  #: Those that are no marks of a missing value.
    counts: "pd.Series[Any]"  #: How often each value is there, the most frequent first.
    known: Conventions
    as_written: bool


def _recognise(
    column: "pd.Series[Any]", known: Conventions, as_written: bool
) -> Format:
    """Find the kind, and how numbers and dates are written."""
    kind = _kind_of_type(column)
    if kind == "number":
        return _format_of_numbers(column, known, as_written)
    if kind:
        return Format(kind)
    cells = [word for word in _words(column) if word is not None]
    marks = {*MARKS, *known.missing}
    values = [word for word in cells if word not in marks]
    if not values:
        return Format("text" if cells else "number")
    counts = pd.Series(dict(Counter(values).most_common()))
    words = _Words(column.name, cells, values, counts, known, as_written)
    forms = (find(words) for find in _FORMATS_OF_WORDS)
    return next(filter(None, forms), Format("text"))


def _format_of_numbers(
    column: "pd.Series[Any]", known: Conventions, as_written: bool
) -> Format:
    """Find the format of a column of type number, for tables in which it is text."""
    if _has_large_labels(column):
        return Format("text")
    if not as_written and _are_dates(_numbers(column).to_numpy()):
        return Format("date", pattern="ymd")
    if known.decimal:
        return Format("number", known.decimal, known.marks(known.decimal))
    return Format("number")


def _large_labels(words: _Words) -> Format | None:
    return Format("text") if merge_in_floats(words.counts.index) else None


def _format_of_periods(words: _Words) -> Format | None:
    """Find months, quarters or weeks."""
    period = "" if words.as_written else find_period(words.counts.index)
    if not period:
        return None
    reading = _as_dates(words.counts, period)
    return reading.form if reading.enough else None


def _format_of_quantities(words: _Words) -> Format | None:
    """Find numbers, or dates of eight digits."""
    known = words.known
    marks = sorted(OTHER, key=lambda mark: mark != known.decimal)
    readings = [_as_numbers(words.counts, mark, known.marks(mark)) for mark in marks]
    best = _best(words, readings, known.decimal, "decimal . or ,")
    if best is None:
        return None
    if words.as_written:
        return Format("text") if _are_codes(words, best.form.unit) else best.form
    return Format("date", pattern="ymd") if _are_dates(best.values) else best.form


def _are_codes(words: _Words, unit: str) -> bool:
    """Whether numbers that are values as they are written are text."""
    marks = {*MARKS} - {*words.known.missing}
    others = [word for word in words.cells if word in marks]
    if unit or may_be_classes(others, words.values):
        return True
    return any(is_code(word) or is_limit(word) for word in words.counts.index)


def _format_of_dates(words: _Words) -> Format | None:
    """Find dates by the order of day, month and year."""
    stated = words.known.dates
    orders = sorted(ORDERS, key=lambda order: order != (stated or "ymd"))
    if not any(map(has_order, words.counts.index)):
        orders = orders[:1]
    readings = [_as_dates(words.counts, order) for order in orders]
    best = _best(words, readings, stated, "dates dmy, mdy or ymd")
    return best.form if best else None


#: The formats that words may have, tried in turn.
_FORMATS_OF_WORDS = (
    _large_labels,
    _format_of_periods,
    _format_of_quantities,
    _format_of_dates,
)


def several_units(column: "pd.Series[Any]", known: Conventions) -> dict[str, str]:
    """Find cells of different units in a column of numbers, by unit; empty where there
    is one.
    """
    words = dict.fromkeys(filter(None, _words(column)))
    mark = known.decimal or "."
    count = 0
    units: dict[str, str] = {}
    for word in words:
        quantity = read_quantity(word, mark, known.marks(mark))
        if not np.isnan(quantity.value):
            count += 1
            units.setdefault(quantity.unit, word)
    enough = count >= LEAST_SHARE * len(words) and count >= FEWEST
    return units if enough and len(units) > 1 else {}


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


def is_code(word: str) -> bool:
    """Whether a number looks like a code: 01000, 1E0."""
    return bool(re.fullmatch(r"0\d+|\d+[eE]\d+", word))


def _best(
    words: _Words, readings: list[_Reading], chosen: str, option: str
) -> _Reading | None:
    """Find the reading of most cells, if it is one of nearly all; of equal ones the
    first.

    :param chosen: The table's convention; where it is empty, equal readings have to be
        the same.
    """
    # Nearly all cells can be read so, and the others are few words.
    enough = [reading for reading in readings if reading.enough]
    best = max(enough, key=lambda reading: reading.share, default=None)
    if best is None or chosen:
        return best
    for other in enough:
        same = np.isclose(
            best.values, other.values, rtol=1e-12, atol=0.0, equal_nan=True
        )
        if other.share < best.share or same.all():
            continue
        place = int(np.argmin(same))
        ways = " or ".join(_shown(way, place) for way in (best, other))
        raise refusal(
            f"column '{words.name}'",
            f"{words.counts.index[place]!r}, which is {ways}; all cells of the table"
            " can be read in both ways",
            "cells that can be read in only one way",
            f"Choose a way: --{option} (in Python {option.split()[0]}=).",
        )
    return best


def _shown(reading: _Reading, place: int) -> str:
    value = reading.values[place]
    if reading.form.kind == "date":
        return f"{EPOCH + pd.Timedelta(days=value):%Y-%m-%d}"
    return f"{value:g}"


def _as_numbers(counts: "pd.Series[Any]", mark: str, marks: str) -> _Reading:
    """Read numbers of the most frequent unit."""
    form = Format("number", mark, marks)
    words = counts.index
    quantities = [read_quantity_or_limit(word, mark, marks) for word in words[:50]]
    limits = np.array([is_limit(word) for word in words])
    few = 2 * sum(np.isnan(quantity.value) for quantity in quantities) > len(quantities)
    if few or (
        limits.any() and np.sum(~limits) < FEWEST
    ):  # "<5" and ">5" alone are words
        return _Reading(False, 0.0, form, np.full(len(words), np.nan))
    quantities += [read_quantity_or_limit(word, mark, marks) for word in words[50:]]
    values, units = (np.array(part) for part in zip(*quantities, strict=True))
    there = ~np.isnan(values)
    unit = str(counts[there].groupby(units[there]).sum().idxmax())
    reading = _reading(
        counts, form._replace(unit=unit), np.where(units == unit, values, np.nan)
    )
    if unit:
        few = not SURE_UNIT.fullmatch(unit) and (there & (units == unit)).sum() < FEWEST
        if few or any(re.search(r"\d", word) for word in reading.form.missing):
            return reading._replace(enough=False, share=0.0)
    if any(map(unread_form, reading.form.missing)):
        return reading._replace(enough=False, share=0.0)
    return reading


def _as_dates(counts: "pd.Series[Any]", name: str) -> _Reading:
    """Read dates in an order of day, month and year, or months, quarters or weeks of a
    form.
    """
    words = counts.index
    form = Format("date", pattern=pattern_of(name, words[:50]))
    if 2 * _parse_dates(words[:50], form).isna().sum() > len(words[:50]):
        return _Reading(False, 0.0, form, np.full(len(counts), np.nan))
    form = form._replace(pattern=pattern_of(name, words))
    return _reading(counts, form, days(_parse_dates(words, form)).to_numpy())


def _reading(
    counts: "pd.Series[Any]", form: Format, values: npt.NDArray[np.float64]
) -> _Reading:
    """Find the share of cells, or of different ones, that are read; `missing`: the
    others.
    """
    wrong = np.isnan(values)
    of_cells = counts.to_numpy()[~wrong].sum() / counts.sum()
    share = float(max(of_cells, 1.0 - wrong.mean()))
    others = tuple(counts.index[wrong][: _MAX_WORDS + 1])
    enough = share >= LEAST_SHARE and len(others) <= _MAX_WORDS
    if form.kind == "number" and len(others) == 1 and others[0].isalpha():
        has_decimals = bool(np.any(values[~wrong] % 1.0))
        enough |= has_decimals and of_cells >= 1.0 - _MOST_OF_ONE_WORD
    return _Reading(enough, share, form._replace(missing=others), values)


def word_among_numbers(column: "pd.Series[Any]", known: Conventions) -> str:
    """Find the word in a column whose other cells are numbers; empty if there is none,
    or several.
    """
    words = {*filter(None, _words(column))} - {*MARKS, *known.missing}
    mark = known.decimal or "."
    others = [
        word
        for word in words
        if np.isnan(read_quantity(word, mark, known.marks(mark)).value)
    ]
    found = len(others) == 1 and others[0].isalpha() and len(words) > 2
    return others[0] if found else ""


def is_large_label(word: str) -> bool:
    """Whether it is a whole number that is another one in floating point."""
    return _is_large_number(word) and int(word) != int(float(word))


def merge_in_floats(words: Iterable[str]) -> bool:
    """Whether whole numbers that differ are equal in floating point."""
    large = {int(word) for word in words if _is_large_number(word)}
    return len({*map(float, large)}) < len(large)


def _is_large_number(word: str) -> bool:
    digits = len(word)
    return _FEWEST_DIGITS <= digits <= _MOST_DIGITS and bool(WHOLE.fullmatch(word))


def _has_large_labels(column: "pd.Series[Any]") -> bool:
    """Whether a column of type number has whole numbers that floating point merges."""
    types = pd.api.types
    if not (types.is_integer_dtype(column) or types.is_object_dtype(column)):
        return False
    if types.is_integer_dtype(column) and column.abs().max() <= _EXACT:
        return False
    return merge_in_floats({str(cell) for cell in column if isinstance(cell, int)})


def _are_dates(values: npt.NDArray[np.float64]) -> bool:
    """Whether they are whole numbers of year, month and day, such as 20200131."""
    values = np.unique(values[~np.isnan(values)])
    inside = (values >= _DAYS[0]) & (values <= _DAYS[1])
    if len(values) < FEWEST or not inside.all() or np.any(values % 1.0):
        return False
    words = [f"{value:.0f}" for value in values]
    return bool(read_dates(words, "ymd").notna().all())


def read_cells(column: "pd.Series[Any]", form: Format) -> "pd.Series[Any]":
    """Read the cells: numbers as float64, dates without zone (UTC), words without
    spaces around.

    A number such as <0.5 is read as its limit.

    :param column: Values; missing ones are so in the result.
    :param form: How they are read; of typed columns only the kind is used.
    :raises ValueError: If a cell cannot be read so; it names the column and the row.
    """
    if form.kind == "text":
        return _read_text(column, form)
    kind = _kind_of_type(column)
    if kind == form.kind == "number":
        return _without(_numbers(column), form.sentinels)
    if kind == form.kind == "date":
        return _dates(column)
    words = _words(column)
    if kind == "number" and is_month_with_point(form.pattern):
        words = [word and as_month_with_point(float(word)) for word in words]
    places, different = pd.factorize(np.array(words, dtype=object))
    if form.kind == "date":
        read = _parse_dates(different, form).to_numpy()
    else:
        read = np.array([_number(word, form) for word in different], dtype=np.float64)
    wrong = set(different[np.isnan(read)]) - {*MARKS, *form.missing}
    if wrong:
        place = next(row for row, word in enumerate(words) if word in wrong)
        raise _unread_cell(column.name, words[place], place, form)
    values = pd.api.extensions.take(read, places, allow_fill=True)
    return _without(pd.Series(values, column.index, name=column.name), form.sentinels)


def _read_text(column: "pd.Series[Any]", form: Format) -> "pd.Series[Any]":
    """Read words, each in its most frequent spelling."""
    words = _words(column)
    chosen = {plain_spelling(word): word for word in form.spellings}
    values: dict[Any, Any] = {
        word: chosen.get(plain_spelling(word), word) for word in filter(None, words)
    }
    values |= dict.fromkeys((None, *(form.missing or MARKS_IN_WORDS)), np.nan)
    cells = [values[word] for word in words]
    return pd.Series(cells, column.index, object, column.name)


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


def _parse_dates(words: Iterable[str], form: Format) -> "pd.Series[Any]":
    """Read dates; no date where a word is none."""
    return _dates(read_dates(words, form.pattern))


def days(dates: "pd.Series[Any]") -> "pd.Series[Any]":
    """Count the days since 1970-01-01; NaN for no date."""
    numbers = (dates.to_numpy() - EPOCH.to_datetime64()) / np.timedelta64(1, "D")
    return pd.Series(numbers, dates.index, name=dates.name)


def _without(
    values: "pd.Series[Any]", sentinels: tuple[float, ...]
) -> "pd.Series[Any]":
    return values.where(~values.isin(sentinels)) if sentinels else values


def _kind_of_type(column: "pd.Series[Any]") -> str:
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


def _numbers(column: "pd.Series[Any]") -> "pd.Series[Any]":
    if pd.api.types.is_timedelta64_dtype(column):
        return column / pd.Timedelta(days=1)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return column.astype(np.float64)
    values = column.astype(object) if column.dtype == object else column
    return pd.to_numeric(values.where(values.notna(), np.nan)).astype(np.float64)


def _dates(column: "pd.Series[Any]") -> "pd.Series[Any]":
    return pd.to_datetime(column, utc=True, errors="coerce").dt.tz_localize(None)


def _words(column: "pd.Series[Any]") -> list[str | None]:
    """Cells as text without spaces around; whole numbers without point; None
    for none.
    """
    # In lists: a row of a table is read in a third of the time that pandas takes.
    cells, missing = column.tolist(), column.isna().tolist()
    if pd.api.types.is_float_dtype(column):
        cells = [
            int(v) if not none and v.is_integer() else v
            for v, none in zip(cells, missing)
        ]
    return [
        None if none else str(cell).strip() or None
        for cell, none in zip(cells, missing)
    ]
