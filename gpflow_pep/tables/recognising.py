"""Finding out how the cells of a column are read: forms are tried in turn."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..engine.refusals import refusal
from .conventions import FEWEST, MARKS, WHOLE
from .dates import ORDERS, find_period, has_order, pattern_of, read_dates
from .formats import EPOCH, Column, Format, days, numbers_of_type
from .numbers import OTHER, is_limit, read_quantity, unread_form
from .units import is_sure

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
#: Whole numbers of eight digits are dates where all are, between these.
_DAYS = (19000101, 21001231)


class _Attempt(NamedTuple):
    """A form in which enough of the different words of a column can be read: the share
    that is read, and the values.
    """

    share: float
    form: Format
    values: npt.NDArray[np.float64]


def find_format(column: Column) -> Format:
    """Find the kind, and how numbers and dates are written.

    :raises ValueError: If its cells can be read in two ways.
    """
    if column.kind == "number":
        return _format_of_numbers(column)
    if column.kind:
        return Format(column.kind)
    if column.counts_of_values.empty:
        return Format("text" if column.counts else "number")
    forms = (find(column) for find in _FORMATS_OF_WORDS)
    return next(filter(None, forms), Format("text"))


def _format_of_numbers(column: Column) -> Format:
    """Find the format of a column of type number, for tables in which it is text."""
    decimal = column.known.decimal
    if _has_large_labels(column):
        return Format("text")
    if not column.literal and _are_dates(numbers_of_type(column.cells).to_numpy()):
        return Format("date", pattern="ymd")
    if decimal:
        return Format("number", decimal, column.known.marks(decimal))
    return Format("number")


def _large_labels(column: Column) -> Format | None:
    return Format("text") if merge_in_floats(column.counts_of_values.index) else None


def _format_of_periods(column: Column) -> Format | None:
    """Find months, quarters or weeks."""
    counts = column.counts_of_values
    period = "" if column.literal else find_period(counts.index)
    attempt = _as_dates(counts, period) if period else None
    return attempt.form if attempt else None


def _format_of_quantities(column: Column) -> Format | None:
    """Find numbers, or dates of eight digits."""
    known, counts = column.known, column.counts_of_values
    marks = sorted(OTHER, key=lambda mark: mark != known.decimal)
    attempts = [_as_numbers(counts, mark, known.marks(mark)) for mark in marks]
    best = _best(column, attempts, known.decimal, "decimal . or ,")
    if best is None:
        return None
    if column.literal:
        return Format("text") if _are_codes(column, best.form.unit) else best.form
    return Format("date", pattern="ymd") if _are_dates(best.values) else best.form


def _are_codes(column: Column, unit: str) -> bool:
    """Whether numbers that are values as they are written are text."""
    counts = column.counts_of_values
    marks = {*MARKS} - {*column.known.missing}
    has_marks = any(word in marks for word in column.counts)
    if unit or (has_marks and are_few(counts.sum(), len(counts))):
        return True
    return any(is_code(word) or is_limit(word) for word in counts.index)


def may_be_classes(marks: Iterable[Any], numbers: list[Any]) -> bool:
    """Whether marks such as "-" beside numbers may be a class."""
    return any(marks) and are_few(len(numbers), len({*numbers}))


def are_few(num_cells: int, num_different: int) -> bool:
    """Whether each number is in two cells on average, the fewest rows that a class
    has.
    """
    return 2 * num_different <= num_cells


def _format_of_dates(column: Column) -> Format | None:
    """Find dates by the order of day, month and year."""
    stated, counts = column.known.dates, column.counts_of_values
    orders = sorted(ORDERS, key=lambda order: order != (stated or "ymd"))
    if not any(map(has_order, counts.index)):
        orders = orders[:1]
    attempts = [_as_dates(counts, order) for order in orders]
    best = _best(column, attempts, stated, "dates dmy, mdy or ymd")
    return best.form if best else None


#: The formats that words may have, tried in turn.
_FORMATS_OF_WORDS = (
    _large_labels,
    _format_of_periods,
    _format_of_quantities,
    _format_of_dates,
)


def is_code(word: str) -> bool:
    """Whether a number looks like a code: 01000, 1E0."""
    return bool(re.fullmatch(r"0\d+|\d+[eE]\d+", word))


def _best(
    column: Column, attempts: list[_Attempt | None], chosen: str, option: str
) -> _Attempt | None:
    """Find the form of most cells; of equal ones the first.

    :param chosen: The table's convention; where it is empty, the values of equal forms
        have to be the same.
    """
    enough = [attempt for attempt in attempts if attempt]
    best = max(enough, key=lambda attempt: attempt.share, default=None)
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
            f"column '{column.name}'",
            f"{column.counts_of_values.index[place]!r}, which is {ways}; all cells of"
            " the table can be read in both ways",
            "cells that can be read in only one way",
            f"Choose a way: --{option} (in Python {option.split()[0]}=).",
        )
    return best


def _shown(attempt: _Attempt, place: int) -> str:
    value = attempt.values[place]
    if attempt.form.kind == "date":
        return f"{EPOCH + pd.Timedelta(days=value):%Y-%m-%d}"
    return f"{value:g}"


def _as_numbers(counts: "pd.Series[Any]", mark: str, marks: str) -> _Attempt | None:
    """Read numbers of the most frequent unit."""
    words = counts.index
    quantities = [read_quantity(word, mark, marks) for word in words[:50]]
    if 2 * sum(np.isnan(quantity.value) for quantity in quantities) > len(quantities):
        return None
    num_limits = sum(map(is_limit, words))
    if num_limits and len(words) - num_limits < FEWEST:
        return None  # "<5" and ">5" alone are words
    quantities += [read_quantity(word, mark, marks) for word in words[50:]]
    values, units = (np.array(field) for field in zip(*quantities, strict=True))
    are_numbers = ~np.isnan(values)
    unit = str(counts[are_numbers].groupby(units[are_numbers]).sum().idxmax())
    of_unit = np.where(units == unit, values, np.nan)
    attempt = _attempt(counts, Format("number", mark, marks, unit=unit), of_unit)
    if attempt is None or any(map(unread_form, attempt.form.missing)):
        return None
    if not unit:
        return attempt
    may_be_name = not is_sure(unit) and np.sum(~np.isnan(of_unit)) < FEWEST
    has_digits = any(re.search(r"\d", word) for word in attempt.form.missing)
    return None if may_be_name or has_digits else attempt


def _as_dates(counts: "pd.Series[Any]", name: str) -> _Attempt | None:
    """Read dates in an order of day, month and year, or months, quarters or weeks of a
    form.
    """
    words = counts.index
    start = read_dates(words[:50], pattern_of(name, words[:50]))
    if 2 * start.isna().sum() > len(start):
        return None
    pattern = pattern_of(name, words)
    values = days(read_dates(words, pattern)).to_numpy()
    return _attempt(counts, Format("date", pattern=pattern), values)


def _attempt(
    counts: "pd.Series[Any]", form: Format, values: npt.NDArray[np.float64]
) -> _Attempt | None:
    """Find the share of cells, or of different ones, that are read, and the words that
    are not, which are `missing` values; None if they are too many.
    """
    unread = np.isnan(values)
    of_cells = counts.to_numpy()[~unread].sum() / counts.sum()
    share = float(max(of_cells, 1.0 - unread.mean()))
    words = tuple(counts.index[unread][: _MAX_WORDS + 1])
    enough = share >= LEAST_SHARE and len(words) <= _MAX_WORDS
    if form.kind == "number" and len(words) == 1 and words[0].isalpha():
        has_decimals = bool(np.any(values[~unread] % 1.0))
        enough |= has_decimals and of_cells >= 1.0 - _MOST_OF_ONE_WORD
    return _Attempt(share, form._replace(missing=words), values) if enough else None


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


def _has_large_labels(column: Column) -> bool:
    """Whether a column of type number has whole numbers that floating point merges."""
    is_integer = pd.api.types.is_integer_dtype(column.cells)
    if is_integer and column.cells.abs().max() <= _EXACT:
        return False
    return (is_integer or column.cells.dtype == object) and merge_in_floats(
        column.counts
    )


def _are_dates(values: npt.NDArray[np.float64]) -> bool:
    """Whether they are whole numbers of year, month and day, such as 20200131."""
    values = np.unique(values[~np.isnan(values)])
    inside = (values >= _DAYS[0]) & (values <= _DAYS[1])
    if len(values) < FEWEST or not inside.all() or np.any(values % 1.0):
        return False
    words = [f"{value:.0f}" for value in values]
    return bool(read_dates(words, "ymd").notna().all())
