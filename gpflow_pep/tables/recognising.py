"""Recognition of how the cells of a column are read: forms are tried one after the
other.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..engine.refusals import refusal
from .conventions import FEWEST, MARKS, WHOLE
from .dates import ORDERS, find_period, first_year_of, has_order, read_dates
from .formats import EPOCH, Column, Format, days, numbers_of_type, read_words
from .numbers import OTHER, is_limit, read_quantity, unread_form
from .units import is_sure

#: A column has numbers, or dates, if at least this share of its cells, or of its
#: distinct cells, can be read as such ...
LEAST_SHARE = 0.9
#: ... and the other cells have at most this number of distinct words, such as "n.d.".
_MAX_WORDS = 5
#: One word, such as T for traces of rain, may be in this share of the cells if the
#: numbers have decimals. Whole numbers among so many words may be codes.
_MOST_OF_ONE_WORD = 0.15
#: Whole numbers above this may be equal in floating point although they differ; numbers
#: with fewer or more digits than these are not checked.
_EXACT = 2**53
_FEWEST_DIGITS = 16
_MOST_DIGITS = 100
#: The number of words from which the unit is found, and which decide whether a form is
#: tried on the other words.
_SAMPLE = 50
#: Whole numbers of eight digits are dates if all of them are dates between these.
_DAYS = (19000101, 21001231)


class _Attempt(NamedTuple):
    """A form in which enough words of a column can be read: the share of cells, or of
    distinct words, that is read, and the value of each distinct word.
    """

    share: float
    form: Format
    values: npt.NDArray[np.float64]


def find_format(column: Column) -> Format:
    """Find the kind of a column, and how its numbers and dates are written.

    :raises ValueError: If the cells can be read in two ways.
    """
    if column.kind == "number":
        return _format_of_numbers(column)
    if column.kind:
        return Format(column.kind)
    words = column.counts_of_values.index
    if words.empty:
        return Format("text" if column.counts else "number")
    if merge_in_floats(words):
        return Format("text")
    return (
        _format_of_periods(column)
        or _format_of_quantities(column)
        or _format_of_dates(column)
        or Format("text")
    )


def _format_of_numbers(column: Column) -> Format:
    """Find the format of a column with a number type, for reading tables in which it is
    text.
    """
    decimal = column.known.decimal
    if _has_large_labels(column):
        return Format("text")
    if not column.literal and _are_dates(numbers_of_type(column.cells).to_numpy()):
        return Format("date", pattern="ymd")
    if decimal:
        return Format("number", decimal, column.known.marks(decimal))
    return Format("number")


def _format_of_periods(column: Column) -> Format | None:
    """Find months, quarters or weeks."""
    period = "" if column.literal else find_period(column.counts_of_values.index)
    attempt = _attempt(column, Format("date", pattern=period)) if period else None
    return attempt.form if attempt else None


def _format_of_quantities(column: Column) -> Format | None:
    """Find numbers, or dates of eight digits."""
    known = column.known
    marks = sorted(OTHER, key=lambda mark: mark != known.decimal)
    forms = [Format("number", mark, known.marks(mark)) for mark in marks]
    best = _best(column, forms, known.decimal, "decimal . or ,")
    if best is None:
        return None
    if column.literal:
        return Format("text") if _are_codes(column, best.form.unit) else best.form
    return Format("date", pattern="ymd") if _are_dates(best.values) else best.form


def _are_codes(column: Column, unit: str) -> bool:
    """Whether numbers are text if cells are read exactly as written."""
    counts = column.counts_of_values
    marks = {*MARKS} - {*column.known.missing}
    has_marks = any(word in marks for word in column.counts)
    if unit or (has_marks and _are_few(counts.sum(), len(counts))):
        return True
    return any(is_code(word) or is_limit(word) for word in counts.index)


def may_be_classes(marks: Iterable[Any], numbers: list[Any]) -> bool:
    """Whether marks such as "-" among numbers may be a class."""
    return any(marks) and _are_few(len(numbers), len({*numbers}))


def _are_few(num_cells: int, num_different: int) -> bool:
    """Whether each number is in at least two cells on average, the smallest number of
    rows of a class.
    """
    return 2 * num_different <= num_cells


def _format_of_dates(column: Column) -> Format | None:
    """Find dates, with the order of day, month and year."""
    stated = column.known.dates
    orders = sorted(ORDERS, key=lambda order: order != (stated or "ymd"))
    if not any(map(has_order, column.counts_of_values.index)):
        orders = orders[:1]
    forms = [Format("date", pattern=order) for order in orders]
    best = _best(column, forms, stated, "dates dmy, mdy or ymd")
    return best.form if best else None


def is_code(word: str) -> bool:
    """Whether a number looks like a code: 01000, 1E0."""
    return bool(re.fullmatch(r"0\d+|\d+[eE]\d+", word))


def _best(
    column: Column, forms: list[Format], chosen: str, option: str
) -> _Attempt | None:
    """Find the form in which most cells can be read; the first one if several are
    equal.

    :param chosen: The table's convention. If it is empty, equal forms must give the
        same values.
    """
    attempts = (_attempt(column, form) for form in forms)
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


def _attempt(column: Column, form: Format) -> _Attempt | None:
    """Read the distinct words of a column in a form. Words that cannot be read become
    its `missing` values. None if there are too many of them, or if all cells may be
    words.
    """
    counts = column.counts_of_values
    words = counts.index
    sample = _completed(form, counts[:_SAMPLE])
    if 2 * np.isnan(_values(words[:_SAMPLE], sample)).sum() > min(_SAMPLE, len(words)):
        return None
    form = _completed(form, counts) if form.kind == "date" else sample
    values = _values(words, form)
    unread = np.isnan(values)
    of_cells = counts.to_numpy()[~unread].sum() / counts.sum()
    share = float(max(of_cells, 1.0 - unread.mean()))
    form = form._replace(missing=tuple(words[unread][: _MAX_WORDS + 1]))
    enough = share >= LEAST_SHARE and len(form.missing) <= _MAX_WORDS
    if form.kind == "number" and len(form.missing) == 1 and form.missing[0].isalpha():
        has_decimals = bool(np.any(values[~unread] % 1.0))
        enough |= has_decimals and of_cells >= 1.0 - _MOST_OF_ONE_WORD
    if not enough or (form.kind == "number" and _may_be_words(words, form)):
        return None
    return _Attempt(share, form, values)


def _completed(form: Format, counts: "pd.Series[int]") -> Format:
    """Add the most frequent unit of some words, or the hundred years of their dates."""
    if form.kind == "date":
        return form._replace(first_year=first_year_of(form.pattern, counts.index))
    units: Counter[str] = Counter()
    for word, count in counts.items():
        quantity = read_quantity(word, form.decimal, form.thousands)
        if not np.isnan(quantity.value):
            units[quantity.unit] += count
    return form._replace(unit=max(units, key=units.__getitem__, default=""))


def _values(words: Any, form: Format) -> npt.NDArray[np.float64]:
    """Read words as numbers, and dates as days."""
    values = pd.Series(read_words(words, form))
    return (days(values) if form.kind == "date" else values).to_numpy()


def _may_be_words(words: "pd.Index[str]", form: Format) -> bool:
    """Whether cells may be words though they can be read as numbers."""
    num_limits = sum(map(is_limit, words))
    if num_limits and len(words) - num_limits < FEWEST:
        return True  # only "<5" and ">5"
    if any(map(unread_form, form.missing)):
        return True
    if not form.unit:
        return False
    is_rare = len(words) - len(form.missing) < FEWEST
    if is_rare and not is_sure(form.unit):
        return True
    return any(re.search(r"\d", word) for word in form.missing)


def is_large_label(word: str) -> bool:
    """Whether a word is a whole number that floating point changes."""
    return _is_large_number(word) and int(word) != int(float(word))


def merge_in_floats(words: Iterable[str]) -> bool:
    """Whether distinct whole numbers are equal in floating point."""
    large = {int(word) for word in words if _is_large_number(word)}
    return len({*map(float, large)}) < len(large)


def _is_large_number(word: str) -> bool:
    digits = len(word)
    return _FEWEST_DIGITS <= digits <= _MOST_DIGITS and bool(WHOLE.fullmatch(word))


def _has_large_labels(column: Column) -> bool:
    """Whether a column with a number type has whole numbers that floating point
    merges.
    """
    is_integer = pd.api.types.is_integer_dtype(column.cells)
    if is_integer and column.cells.abs().max() <= _EXACT:
        return False
    return (is_integer or column.cells.dtype == object) and merge_in_floats(
        column.counts
    )


def _are_dates(values: npt.NDArray[np.float64]) -> bool:
    """Whether values are whole numbers of year, month and day, such as 20200131."""
    values = np.unique(values[~np.isnan(values)])
    inside = (values >= _DAYS[0]) & (values <= _DAYS[1])
    if len(values) < FEWEST or not inside.all() or np.any(values % 1.0):
        return False
    words = [f"{value:.0f}" for value in values]
    return bool(read_dates(words, "ymd").notna().all())
