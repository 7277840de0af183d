"""How the cells of a column are read: as numbers, dates or text."""

import datetime
import decimal
import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..refusals import refusal
from .conventions import find_sentinels, find_spellings, join_spellings

#: A column is of numbers, or dates, where at least this share of its cells is, or of those that
#: differ...
_LEAST_SHARE = 0.9
#: ... and the others are no more different words than this, such as "n.d.".
_MAX_WORDS = 5
#: Pairs of decimal and thousands separator. Of those that suit most cells the first is taken, so
#: that 1,234 is a thousand and more where no cell says otherwise.
_STYLES = (
    *((".", ""), (".", ","), (",", ""), (",", ".")),
    *((".", " "), (",", " "), (".", "'"), (",", "'")),
)
_GAPS = str.maketrans("\u00a0\u2009\u202f\u2019\u2212", "   '-")
_AFFIX = r"%|‰|€|\$|£|¥|EUR|USD|GBP|CHF"
#: In this order: where several suit, days come before months but between slashes.
_DAYS = (
    "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d.%m.%Y", "%d-%m-%Y", "%d %b %Y", "%d-%b-%Y", "%d %B %Y",
    "%b %d, %Y", "%B %d, %Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y",
)  # fmt: skip
_DATES = (
    "ISO8601",
    *(day + time for day in _DAYS for time in ("", " %H:%M", " %H:%M:%S")),
    "%H:%M",
    "%H:%M:%S",
)
_HALVES = ("%I:%M %p", "%I:%M:%S %p", "%I %p")
_DATES_OF_HALVES = (
    *(f"{day} {time}" for day in ("%Y-%m-%d", *_DAYS) for time in _HALVES),
    *_HALVES,
)
#: The half of the day, as in 1:30PM and 1:30 p.m.
_HALF = r"(?i)(?<=\d)\s*([ap])\.?\s?m\.?$"
_SIGN = r"[^\W\d_]|[°%‰€$£¥]"
#: A number in any style, and its unit: up to two words.
_WITH_UNIT = re.compile(
    r"[+-]?\d[\d.,' ]*(?:[eE][+-]?\d+)?(?<! )"
    rf"(?P<space>\s*)(?P<unit>(?:{_SIGN})(?:{_SIGN}|[\d²³⁻¹/·*^.-]){{0,11}}"
    rf"(?: (?:{_SIGN}){{1,8}})?)"
)
#: What may follow a number and is no unit: halves of the day, and places in an order.
_NO_UNITS = ("am", "pm", "st", "nd", "rd", "th")
#: Fewer different numbers with a unit are words, such as 2 WD and 4 WD.
_LEAST_NUMBERS = 3


class Format(NamedTuple):
    """
    How the cells of a column are read.

    :param kind: "number", "date", "text", or "other": what nothing is known of, such as lists.
    :param decimal: The decimal point of numbers that are written as text.
    :param thousands: What separates their thousands, if anything.
    :param pattern: How dates are written, for :meth:`datetime.datetime.strptime`; "ISO8601".
    :param missing: Words that stand for no value.
    :param unit: What is written after each number.
    :param sentinels: Numbers that stand for no value, such as -999.
    :param spellings: Words that are also written in other ways, such as yes for Yes.
    """

    kind: str
    decimal: str = "."
    thousands: str = ""
    pattern: str = ""
    missing: tuple[str, ...] = ()
    unit: str = ""
    sentinels: tuple[float, ...] = ()
    spellings: tuple[str, ...] = ()


def recognise(column: "pd.Series[Any]", *, as_written: bool = False) -> Format:
    """
    Find out how the cells of a column are read.

    :param column: Values of any type, some may be missing.
    :param as_written: Whether all numbers and words are values as they are written: numbers with a
        unit are text, -999 is a number, and Yes and yes are two words.
    """
    form = _recognise(column, with_units=not as_written)
    if as_written:
        return form
    if form.kind == "number":
        return form._replace(sentinels=find_sentinels(read_cells(column, form)))
    if form.kind == "text":
        return form._replace(spellings=find_spellings(_words(column)))
    return form


def _recognise(column: "pd.Series[Any]", with_units: bool) -> Format:
    """Find the kind, and how numbers and dates are written."""
    kind = _kind_of_type(column)
    if kind:
        return Format(kind)
    words = _words(column)
    counts = words.value_counts()
    if counts.empty:
        return Format("number")
    share, form = _best_style(counts)
    if _is_enough(share, form):
        return form
    have_halves = sum(bool(re.search(_HALF, word)) for word in counts.index[:50])
    for pattern in _DATES_OF_HALVES if 2 * have_halves > min(len(counts), 50) else _DATES:
        share, form = _try(counts, Format("date", pattern=pattern))
        if _is_enough(share, form):
            return form
    unit = _unit(counts.index) if with_units else ""
    if unit:
        share, form = _best_style(counts, unit)
        others = any(re.search(r"\d", word) for word in form.missing)
        if _is_enough(share, form) and not others:
            return form
    return Format("text")


def _best_style(counts: "pd.Series[Any]", unit: str = "") -> tuple[float, Format]:
    """Find the style that most words are numbers in; see :func:`_try`."""
    numbers = [_try(counts, Format("number", *style, unit=unit)) for style in _STYLES]
    return max(numbers, key=lambda attempt: attempt[0])


def _unit(words: "pd.Index[Any]") -> str:
    """Give the unit of the first number with one; empty where numbers have none, or are few."""
    matches = [_WITH_UNIT.fullmatch(word.translate(_GAPS)) for word in words[:50]]
    match = next(filter(None, matches), None)
    if match is None or sum(map(bool, matches)) < _LEAST_NUMBERS:
        return ""
    unit = match["unit"]
    if unit.lower().replace(".", "") in _NO_UNITS or (
        not match["space"] and len(unit) == 1 and unit.isupper()  # 1A, 2A: names
    ):
        return ""
    return unit


def read_cells(column: "pd.Series[Any]", form: Format) -> "pd.Series[Any]":
    """
    Read the cells: numbers as float64, dates without zone (UTC), words without spaces around.

    :param column: Values; missing ones are so in the result.
    :param form: How they are read; of types that say it themselves only the kind is used.
    :raises ValueError: If a cell cannot be read so; it names the column and the row.
    """
    column_kind = _kind_of_type(column)
    if form.kind == "text":
        return join_spellings(_words(column), form.spellings)
    if column_kind == form.kind == "number":
        return _without(_numbers(column), form.sentinels)
    if column_kind == form.kind == "date":
        return _dates(column)
    words = _words(column)
    words = words.where(~words.isin(form.missing))
    cells = words.dropna()
    values = _parse(cells, form)
    if form.kind == "date":
        values = _dates(values)
    wrong = values.isna()
    if wrong.any():
        place = int(np.flatnonzero(words.notna())[np.argmax(wrong)])
        like = f"as {form.pattern}" if form.pattern else f"with '{form.decimal}' as decimal point"
        like += f" and the unit '{form.unit}'" if form.unit else ""
        got = f"{words.iloc[place]!r} in row {place} (rows count from 0)"
        expected, remedy = f"a {form.kind} written {like}", "Correct it, or leave the cell empty."
        raise refusal(f"column '{column.name}'", got, expected, remedy)
    values.index = pd.Index(np.flatnonzero(words.notna()))  # labels of rows may repeat
    values = values.reindex(range(len(words))).set_axis(column.index)
    return _without(values, form.sentinels)


def _without(values: "pd.Series[Any]", sentinels: tuple[float, ...]) -> "pd.Series[Any]":
    return values.where(~values.isin(sentinels)) if sentinels else values


def _kind_of_type(column: "pd.Series[Any]") -> str:
    """Find the kind by the type of the column or of its objects; empty for words."""
    types = pd.api.types
    if types.is_complex_dtype(column) or isinstance(column.dtype, (pd.PeriodDtype, pd.SparseDtype)):
        return "other"
    if types.is_numeric_dtype(column) or types.is_timedelta64_dtype(column):
        return "number"
    if types.is_datetime64_any_dtype(column):
        return "date"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return ""
    values = column.dropna()
    if types.is_string_dtype(values) or values.empty:
        return ""
    kinds = {type(value) for value in values}
    if all(issubclass(kind, (bool, int, float, np.number, decimal.Decimal)) for kind in kinds):
        return "number"
    if all(issubclass(kind, (datetime.date, np.datetime64)) for kind in kinds):
        return "date"
    plain = (str, bool, int, float, np.number)
    return "" if all(issubclass(kind, plain) for kind in kinds) else "other"


def _numbers(column: "pd.Series[Any]") -> "pd.Series[Any]":
    if pd.api.types.is_timedelta64_dtype(column):
        return column / pd.Timedelta(days=1)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return column.astype(np.float64)
    values = column.astype(object) if column.dtype == object else column
    return pd.to_numeric(values.where(values.notna(), np.nan)).astype(np.float64)


def _dates(column: "pd.Series[Any]") -> "pd.Series[Any]":
    return pd.to_datetime(column, utc=True, errors="coerce").dt.tz_localize(None)


def _words(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Cells as text without spaces around; whole numbers without point; NaN for none."""
    if pd.api.types.is_float_dtype(column):
        values = column.map(lambda v: str(int(v)) if float(v).is_integer() else str(v), "ignore")
    else:
        values = column.astype(object).map(lambda value: str(value).strip(), na_action="ignore")
    values = values.astype(object)
    return values.where(values.notna() & (values != ""), np.nan)


def _parse(words: "pd.Series[Any]", form: Format) -> "pd.Series[Any]":
    """Read numbers or dates; no value where a word is none."""
    if form.kind == "number":
        return _parse_numbers(words, form.decimal, form.thousands, form.unit)
    pattern = form.pattern or _DATES[0]
    if pattern.endswith("%p"):
        words = words.astype(str).str.replace(_HALF, r" \1m", regex=True)
    return pd.to_datetime(words.astype(object), format=pattern, utc=True, errors="coerce")


def _parse_numbers(
    words: "pd.Series[Any]", point: str, thousands: str, unit: str
) -> "pd.Series[Any]":
    """Read numbers; NaN where a word is none, or lacks the unit."""
    text = words.astype(str).str.translate(_GAPS).str.strip()
    if unit:
        text = text.where(text.str.endswith(unit), "").str.removesuffix(unit).str.strip()
    text = text.str.replace(rf"^([+-]?)\s*(?:{_AFFIX})\s*", r"\1", regex=True)
    text = text.str.replace(rf"\s*(?:{_AFFIX})$", "", regex=True)
    whole = r"\d+" if not thousands else rf"(?:\d+|\d{{1,3}}(?:{re.escape(thousands)}\d{{3}})+)"
    p = re.escape(point)
    form = rf"[+-]?(?:{whole}(?:{p}\d*)?|{p}\d+)(?:[eE][+-]?\d+)?"
    good = text.str.fullmatch(form, flags=re.ASCII).astype(bool)
    plain = text.str.replace(thousands, "", regex=False) if thousands else text
    plain = plain.str.replace(point, ".", regex=False)
    return pd.to_numeric(plain.where(good), errors="coerce").astype(np.float64)


def _try(counts: "pd.Series[Any]", form: Format) -> tuple[float, Format]:
    """Give the share of cells, or of different ones, that can be read so; `missing`: the others."""
    words = pd.Series(counts.index, dtype=object)
    if _parse(words.head(50), form).isna().mean() > 0.5:
        return 0.0, form
    wrong = _parse(words, form).isna().to_numpy()
    share = max(counts.to_numpy()[~wrong].sum() / counts.sum(), 1.0 - wrong.mean())
    return float(share), form._replace(missing=tuple(words[wrong].head(_MAX_WORDS + 1)))


def _is_enough(share: float, form: Format) -> bool:
    """Whether nearly all cells can be read so, and the others are few words."""
    return share >= _LEAST_SHARE and len(form.missing) <= _MAX_WORDS
