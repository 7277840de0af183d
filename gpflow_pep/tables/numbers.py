"""The forms in which numbers are written in cells of text."""

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .forms import Form
from .units import HOURS, MONEY, UNIT

_SPELLED = str.maketrans("\u00a0\u2009\u202f\u2019\u2032\u2033\u2212", "   ''\"-")
#: The name of the column with the limits of rows, which follows the column of the
#: target.
LIMIT = "limit (-1: at most, 1: at least)"
#: The other decimal mark, and the separators of thousands that cannot be decimal marks.
OTHER = {".": ",", ",": "."}
GROUPS = " '"


class Quantity(NamedTuple):
    """The meaning of a cell.

    :param value: The number; NaN if the cell is not a number.
    :param unit: The unit of the number: empty, a unit, or ":" for hours as in 36:15.
    """

    value: float
    unit: str = ""


NO_NUMBER = Quantity(np.nan)
#: A placeholder for digits with the marks of decimals and thousands of a table.
_DIGITS = "DIGITS"
_MONEY = rf"(?:(?P<money>{MONEY})\s*)?"
_UNIT = rf"(?:(?P<space>\s*)(?P<unit>{UNIT}))?"
_SIGN = r"(?P<sign>[+-]?)\s*"
_NUMBER = rf"{_MONEY}(?P<number>{_DIGITS})"
_MINUTES = r":(?P<minutes>[0-5]\d)(?::(?P<seconds>[0-5]\d(?:[.,]\d+)?))?"

#: The forms of numbers, as a person reads them. The first form that matches a cell is
#: used. Forms without a number are read as words, with a note. The groups of an
#: expression are the parts of the number: sign, money (a currency before the number),
#: number, space, unit; hours, minutes, seconds, half (of the day); or number_beyond,
#: another number. The tests and the documentation also read this table.
FORMS = (
    Form(
        "degrees and minutes, or a side of the globe",
        "52°31'",
        NO_NUMBER,
        r"[+-]?\d{1,3}(?:[.,]\d+)?\s*°\s*(?:\d.*|[NSEW])",
    ),
    Form(
        "digits in groups of two",
        "1,10,000",
        NO_NUMBER,
        r"[+-]?[1-9]\d?(?:,\d\d)+,\d{3}(?:\.\d*)?",
    ),
    Form("numbers", "-1,234.5", Quantity(-1234.5), _SIGN + _NUMBER + _UNIT),
    Form(
        "a sign behind the currency",
        "$-4",
        Quantity(-4.0, "$"),
        rf"(?P<money>{MONEY})\s*(?P<sign>[+-])(?P<number>{_DIGITS}){_UNIT}",
    ),
    Form(
        "a sign at the end", "120-", Quantity(-120.0), rf"{_NUMBER}{_UNIT}(?P<sign>-)"
    ),
    Form(
        "brackets, which are a sign",
        "(120)",
        Quantity(-120.0),
        rf"(?P<sign>\()\s*{_NUMBER}{_UNIT}\)",
    ),
    Form(
        "numbers with an error",
        "5.1 ± 0.1",
        Quantity(5.1),
        rf"{_SIGN}{_NUMBER}\s*(?:±|\+/-|\+-)\s*{_DIGITS}{_UNIT}",
    ),
    Form("hours", "36:15", Quantity(36.25, HOURS), rf"(?P<hours>\d{{1,4}}){_MINUTES}"),
    Form(
        "times of the day",
        "12:30 p.m.",
        Quantity(12.5, HOURS),
        rf"(?P<hours>0?[1-9]|1[0-2])(?:{_MINUTES})?\s*(?P<half>[apAP])\.?\s?[mM]\.?",
    ),
    Form(
        "limits",
        "<0.5",
        Quantity(0.5),
        rf"[<>≤≥]=?\s*(?P<number_beyond>(?:{MONEY})?\s*[-+.,]*\d.*)",
    ),
)
_UNREAD = [form for form in FORMS if form.meaning is NO_NUMBER]
_LIMIT = re.compile(FORMS[-1].expression)


@lru_cache
def _expressions(decimal: str, thousands: str) -> list[re.Pattern[str]]:
    """Return the expressions of all forms, with the marks of a table."""
    point = re.escape(decimal)
    grouped = [
        rf"[1-9][0-9]{{0,2}}(?:{re.escape(mark)}[0-9]{{3}})+" for mark in thousands
    ]
    integer = "|".join([*grouped, "[0-9]+"])
    digits = rf"(?:(?:{integer})(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    return [re.compile(form.expression.replace(_DIGITS, digits)) for form in FORMS]


def read_quantity(cell: str, decimal: str, thousands: str) -> Quantity:
    """Read a number, or the number of a limit, in any of the forms.

    :param decimal: The decimal mark.
    :param thousands: The possible separators of thousands. Each number has only one of
        them.
    """
    cell = cell.translate(_SPELLED).strip()
    matches = (known.fullmatch(cell) for known in _expressions(decimal, thousands))
    match = next(filter(None, matches), None)
    fields = match.groupdict("") if match else {}
    if "number_beyond" in fields:
        return read_quantity(fields["number_beyond"], decimal, thousands)
    if "hours" in fields:
        return Quantity(_hours(fields), HOURS)
    if "number" not in fields:
        return NO_NUMBER
    unit = fields["unit"]
    if len(unit) == 1 and unit.isupper() and not fields["space"]:
        return NO_NUMBER  # 1A, 2A: names
    digits = fields["number"].translate(str.maketrans("", "", thousands))
    value = float(digits.replace(decimal, "."))
    if fields["sign"] in ("-", "("):
        value = -value
    money = fields["money"]
    return Quantity(value, f"{money} {unit}".strip())


def _hours(fields: dict[str, str]) -> float:
    """Compute the hours since midnight, or the hours of a duration."""
    hours = int(fields["hours"])
    half = fields.get("half", "").lower()
    if half:
        hours %= 12
    if half == "p":
        hours += 12
    minutes = float(fields["minutes"] or 0)
    seconds = float((fields["seconds"] or "0").replace(",", "."))
    return hours + minutes / 60.0 + seconds / 3600.0


def unread_form(cell: str) -> str:
    """Describe the form of a cell that people read as a number, but that is not read as
    one: 52°31' or 1,10,000. Empty for other cells.
    """
    cell = cell.translate(_SPELLED).strip()
    return next((form.of for form in _UNREAD if form.match(cell)), "")


def is_limit(cell: str) -> bool:
    """Whether a cell is a limit, such as <0.5."""
    return bool(_LIMIT.fullmatch(cell))
