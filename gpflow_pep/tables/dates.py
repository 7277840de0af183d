"""The forms in which dates, months, quarters and weeks are written in cells of text."""

import datetime
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from .forms import Form
from .numbers import read_quantity
from .units import HOURS

ORDERS = ("dmy", "mdy", "ymd")
_MONTHS = {
    "january": 1,
    "february": 2,
    "march": 3,
    "april": 4,
    "may": 5,
    "june": 6,
    "july": 7,
    "august": 8,
    "september": 9,
    "october": 10,
    "november": 11,
    "december": 12,
}
#: English names of months, in full and abbreviated.
_NUMBER_OF_MONTH = {
    **_MONTHS,
    **{name[:3]: number for name, number in _MONTHS.items()},
    "sept": 9,
}
#: A number before or after a month is a year if it is in this range.
_FIRST_YEAR = 1900
_LAST_YEAR = 2099
#: Years of two digits may be up to this number of years after the current year.
#: Forecasts rarely go further.
_YEARS_AHEAD = 20
_NAME = r"(?P<name>[A-Za-z]{3,9})"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_TIME = r"(?:(?:T|,?\s+)(?P<time>\d.*))?"
_ZONE = re.compile(r"(.*?)\s*(Z|[+-]\d{2}:?\d{2})?")

#: Three short numbers without a clear year. They are a date if other dates of the
#: column have a clear year.
_VERSION = re.compile(r"\d{1,3}[./-]\d{1,2}[./-]\d(?!\d)")

#: The forms that are read. A column may have several forms of "dates", but only one
#: form of "months", "quarters" or "weeks". A cell means a day, or the first day of the
#: month, the quarter or the week. The groups of an expression are the parts of the
#: date: year, month (a number) or name (of the month), day, quarter, week, time; or
#: first, second and third for day, month and year in the order of the column; or iso
#: for a date in ISO 8601. The tests and the documentation also read this table.
FORMS = (
    Form(
        "dates",
        "2023-01-31",
        "2023-01-31",
        r"(?P<iso>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?)",
    ),
    Form(
        "dates",
        "31.01.2023",
        "2023-01-31",
        r"(?P<first>\d{1,4})(?P<mark>[./-])(?P<second>\d{1,2})(?P=mark)"
        rf"(?P<third>\d{{4}}|\d{{1,2}}){_TIME}",
    ),
    Form(
        "dates",
        "31 Jan 2023",
        "2023-01-31",
        rf"(?P<day>\d{{1,2}})[ .-]+{_NAME}[ .-]+(?P<year>\d{{4}}|\d{{2}}){_TIME}",
    ),
    Form(
        "dates",
        "January 31, 2023",
        "2023-01-31",
        rf"{_NAME}\.? (?P<day>\d{{1,2}}),? (?P<year>\d{{4}}){_TIME}",
    ),
    Form(
        "dates",
        "20230131",
        "2023-01-31",
        r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)",
    ),
    Form("dates", "2023-01", "2023-01-01", r"(?P<iso>\d{4}-\d\d.*)"),
    Form("months", "Jan 2023", "2023-01-01", rf"{_NAME}[.,]?[ /-]{_YEAR}"),
    Form("months", "Jan-23", "2023-01-01", rf"{_NAME}\.?(?:-| ?')(?P<year>\d\d)"),
    Form("months", "2023 Jan", "2023-01-01", rf"{_YEAR}[ /-]?{_NAME}\.?"),
    Form("months", "2023M01", "2023-01-01", rf"{_YEAR}[ -]?M(?P<month>\d{{1,2}})"),
    Form("months", "01/2023", "2023-01-01", rf"(?P<month>\d{{1,2}})[/-]{_YEAR}"),
    Form("months", "2023/01", "2023-01-01", rf"{_YEAR}/(?P<month>\d{{1,2}})"),
    Form("months", "01.2023", "2023-01-01", rf"(?P<month>\d\d)\.{_YEAR}"),
    Form("quarters", "Q1 2023", "2023-01-01", rf"Q(?P<quarter>[1-4])[ /-]?{_YEAR}"),
    Form("quarters", "2023-Q1", "2023-01-01", rf"{_YEAR}[ /-]?Q(?P<quarter>[1-4])"),
    Form("quarters", "1Q 2023", "2023-01-01", rf"(?P<quarter>[1-4])Q[ /-]?{_YEAR}"),
    Form("weeks", "2022-W52", "2022-12-26", rf"{_YEAR}[ /-]?W(?P<week>[0-5]?\d)"),
    Form("weeks", "W52 2022", "2022-12-26", rf"W(?P<week>[0-5]?\d)[ /-]?{_YEAR}"),
)
_OF_DATES = tuple(form for form in FORMS if form.of == "dates")
#: The forms of months, quarters and weeks, by their examples.
PERIODS = {form.example: form for form in FORMS if form.of != "dates"}
#: Also a number. A column of these has months if at least one begins with 0.
MONTH_WITH_POINT = "01.2023"


def find_period(cells: Iterable[str]) -> str:
    """Find the form in which a column has months, quarters or weeks.

    :param cells: Cells of text. Cells without digits, such as marks of missing values,
        do not count.
    :return: The example of the form, a key of :data:`PERIODS`, if all cells with digits
        have it; otherwise empty.
    """
    cells = iter(cells)
    sample = next(filter(_has_digit, cells), "")
    suitable = [form for form in PERIODS.values() if form.match(sample)]
    if not suitable:
        return ""
    samples = {sample, *filter(_has_digit, cells)}
    for form in suitable:
        if all(_date_of(word, form.example, _FIRST_YEAR) for word in samples):
            plain_number = form.example == MONTH_WITH_POINT and not any(
                word.startswith("0") for word in samples
            )
            return "" if plain_number else form.example
    return ""


def _has_digit(cell: str) -> bool:
    return any(map(str.isdigit, cell))


def may_be_months(numbers: npt.NDArray[np.float64]) -> bool:
    """Whether all numbers could be a month, a point and a year, such as 1.2023 for
    01.2023; 1.202 is 01.2020.
    """
    numbers = numbers[~np.isnan(numbers)]
    if np.isinf(numbers).any():
        return False
    months = np.floor(numbers)
    years = 1e4 * (numbers - months)
    return bool(
        len(numbers)
        and np.all((months >= 1) & (months <= 12))
        and np.all(np.abs(years - np.round(years)) < 1e-6)
        and np.all((years > _FIRST_YEAR - 0.5) & (years < _LAST_YEAR + 0.5))
    )


def as_month_with_point(value: float) -> str:
    """Write 1.202 as 01.2020."""
    return f"{value:07.4f}"


def read_dates(
    words: Iterable[str], pattern: str, first_year: int | None = None
) -> "pd.Series[Any]":
    """Read dates, without time zone (in UTC). A word that is not a date gives a missing
    date.

    :param pattern: The order of day, month and year, one of :data:`ORDERS`, for dates
        that may each have another form; or the example of a form of :data:`PERIODS`.
    :param first_year: The first of the hundred years for years of two digits; None does
        not read such years.
    """
    texts = [_date_of(word, pattern or "ymd", first_year) for word in words]
    dates = pd.Series(texts, dtype=object)
    times = pd.to_datetime(dates, format="ISO8601", utc=True, errors="coerce")
    return times.dt.tz_localize(None)


def first_year_of(pattern: str, words: Sequence[str]) -> int | None:
    """Find the first of the hundred years for years of two digits; None if there are no
    such years.

    The hundred years end with the current year, so that a birth in 45 is in 1945. If
    all dates would be later, they end some years after it, so that forecasts are in the
    future.
    """
    if not any(_has_short_year(word, pattern) for word in words):
        return None
    first_year = datetime.date.today().year - 99
    earliest = read_dates(words, pattern, first_year).min()
    if earliest.year >= first_year + _YEARS_AHEAD:
        first_year += _YEARS_AHEAD
    return first_year


def has_order(word: str) -> bool:
    """Whether a word begins like a date whose order has to be known."""
    return bool(re.match(r"\d{1,3}[./-]", word))


def _has_short_year(word: str, name: str) -> bool:
    """Whether a word is a date with a year of two digits."""
    if _VERSION.match(word) or _date_of(word, name, None):
        return False
    return _date_of(word, name, _FIRST_YEAR) is not None


def _date_of(word: str, name: str, first_year: int | None) -> str | None:
    """Write a date in ISO 8601, by the first form that matches; None if no form
    matches.

    :param name: The order of day, month and year, or the example of a form of
        :data:`PERIODS`.
    """
    for form in (PERIODS[name],) if name in PERIODS else _OF_DATES:
        match = form.match(word)
        if match is None:
            continue
        fields = {group: text for group, text in match.groupdict().items() if text}
        if "iso" in fields:
            return fields["iso"]
        if "first" in fields:
            fields |= _in_order(fields, name)
        return _as_iso(fields, first_year)
    return None


def _in_order(fields: dict[str, str], order: str) -> dict[str, str]:
    """Return the numbers by the names day, month and year; empty if the order does not
    fit.
    """
    numbers = fields["first"], fields["second"], fields["third"]
    if len(fields["first"]) == 4:
        order = "ymd"
    elif len(fields["third"]) == 4 and order == "ymd":
        return {}
    names = {"d": "day", "m": "month", "y": "year"}
    return {names[letter]: value for letter, value in zip(order, numbers)}


def _as_iso(fields: dict[str, str], first_year: int | None) -> str | None:
    year = fields.get("year", "")
    if len(year) == 2 and first_year is not None:
        year = str(first_year + (int(year) - first_year) % 100)
    if len(year) != 4:
        return None
    if "week" in fields:
        try:
            monday = datetime.date.fromisocalendar(int(year), int(fields["week"]), 1)
        except ValueError:  # week 0, or week 53 of a year with 52 weeks
            return None
        return monday.isoformat()
    month = int(fields.get("month", 0))
    if "quarter" in fields:
        month = 3 * int(fields["quarter"]) - 2
    if "name" in fields:
        month = _NUMBER_OF_MONTH.get(fields["name"].lower(), 0)
    if not 1 <= month <= 12:
        return None
    day = int(fields.get("day", 1))
    return f"{year}-{month:02}-{day:02}{_time(fields.get('time'))}"


# Columns with many days have few times of day.
@lru_cache(10000)
def _time(text: str | None) -> str:
    """Write a time of day in ISO 8601; text that is not a time stays the same."""
    match = _ZONE.fullmatch(text or "")
    if not text or match is None:
        return ""
    clock, zone = match.groups("")
    hours, unit = read_quantity(clock, ".", "")
    if unit != HOURS or hours >= 24.0:
        return f"T{text}"
    time = datetime.datetime.min + datetime.timedelta(hours=hours)
    return f"T{time:%H:%M:%S.%f}{zone}"
