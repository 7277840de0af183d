"""Dates in cells of text, by the order of day, month and year."""

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

ORDERS = ("dmy", "mdy", "ymd")
_MONTHS = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_FULL = (
    *(
        "january",
        "february",
        "march",
        "april",
        "june",
        "july",
        "august",
        "september",
        "sept",
    ),
    *("october", "november", "december"),
)
_TIME = r"(?:(?:T|,?\s+)(?P<time>\d.*))?"
_DIGITS = re.compile(rf"(\d{{1,4}})([./-])(\d{{1,2}})\2(\d{{4}}|\d{{1,2}}){_TIME}")
_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?")
_DAY_FIRST = re.compile(
    rf"(\d{{1,2}})[ .-]+([A-Za-z]{{3,9}})[ .-]+(\d{{4}}|\d{{2}}){_TIME}"
)
_MONTH_FIRST = re.compile(rf"([A-Za-z]{{3,9}})\.? (\d{{1,2}}),? (\d{{4}}){_TIME}")
_CLOCK = re.compile(
    r"(\d{1,2})(?::(\d{2})(?::(\d{2}(?:\.\d+)?))?)?\s*(?:([ap])\.?\s?m\.?)?\s*(Z|[+-]\d{2}:?\d{2})?",
    re.IGNORECASE,
)


def read_dates(
    words: Iterable[str], order: str, first_year: int | None
) -> "pd.Series[Any]":
    """Read dates, each in its own way of writing; no date where a word is none.

    :param order: Of day, month and year, one of :data:`ORDERS`; a year of four digits
        that is first and names of months need none.
    :param first_year: The first of the hundred years that years of two digits are in;
        None: there are no such years.
    """
    texts = [_iso(word, order, first_year) for word in words]
    texts = pd.Series(texts, dtype=object)
    return pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")


def has_order(word: str) -> bool:
    """Whether it begins as a date does of which the order has to be known."""
    return bool(re.match(r"\d{1,3}[./-]", word))


def has_short_year(word: str) -> bool:
    """Whether the year of a date has two digits."""
    match = _DIGITS.fullmatch(word)
    if match:
        return len(match[1]) < 4 and len(match[4]) == 2
    match = _DAY_FIRST.fullmatch(word)
    return match is not None and len(match[3]) == 2


def _iso(word: str, order: str, first_year: int | None) -> str | None:
    """Write a date as ISO 8601 does; None where it is none."""
    if _ISO.fullmatch(word):
        return word
    match = _DIGITS.fullmatch(word)
    if match:
        parts = (match[1], match[3], match[4])
        if len(match[1]) == 4:
            order = "ymd"
        elif len(match[4]) == 4 and order == "ymd":
            return None
        year, month, day = (parts[order.index(part)] for part in "ymd")
    elif match := _DAY_FIRST.fullmatch(word):
        day, month, year = match[1], _month(match[2]), match[3]
    elif match := _MONTH_FIRST.fullmatch(word):
        month, day, year = _month(match[1]), match[2], match[3]
    elif re.fullmatch(r"\d{8}", word):
        return f"{word[:4]}-{word[4:6]}-{word[6:]}"
    else:
        return word if re.match(r"\d{4}-\d\d", word) else None
    if len(year) == 2 and first_year is not None:
        year = str(first_year + (int(year) - first_year) % 100)
    if len(year) != 4 or not month:
        return None
    return f"{year}-{int(month):02}-{int(day):02}{_time(match['time'])}"


def _month(name: str) -> str:
    name = name.lower()
    known = name in _MONTHS or name in _FULL
    return str(_MONTHS.index(name[:3]) + 1) if known else ""


def _time(text: str | None) -> str:
    """Write a time of the day as ISO 8601 does, or as it was where it is none."""
    match = _CLOCK.fullmatch(text.strip()) if text else None
    if match is None or not (match[2] or match[4]):
        return f"T{text}" if text else ""
    hour, half = int(match[1]), (match[4] or "").lower()
    if half:
        hour = hour % 12 + 12 * (half == "p") if 1 <= hour <= 12 else 99
    return f"T{hour:02}:{match[2] or '00'}:{match[3] or '00'}{match[5] or ''}"
