"""Numbers in cells of text: decimal mark, thousands, sign, unit."""

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np

_GAPS = str.maketrans("\u00a0\u2009\u202f\u2019\u2032\u2033\u2212", "   ''\"-")
_CURRENCY = "€$£¥₹₽₩₺₪"
_CODES = "EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN"
_MONEY = rf"(?:[A-Z]{{1,2}})?[{_CURRENCY}]|(?:{_CODES})"
_SIGN = rf"[^\W\d_]|[°%‰{_CURRENCY}]"
#: A unit after a number: up to two words.
_UNIT = rf"(?:{_SIGN})(?:{_SIGN}|[\d²³⁻¹/·*^.-]){{0,11}}(?: (?:{_SIGN}){{1,8}})?"
#: What may follow a number and is no unit: halves of the day, and places in an order.
_NO_UNITS = ("am", "pm", "st", "nd", "rd", "th")
#: Units that are so in a column of few numbers too; others may be names, such as 2 WD
#: and 4 WD.
SURE_UNIT = re.compile(rf"[%‰°:]|{_MONEY}")
#: The column of the limits of rows, beside the column of the target.
LIMIT = "limit (-1: at most, 1: at least)"
_LIMIT = re.compile(r"[<>≤≥]=?\s*")
_CLOCK = re.compile(
    r"(?P<h>\d{1,4})(?::(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d(?:[.,]\d+)?))?)?"
    r"(?:\s*(?P<half>[apAP])\.?\s?[mM]\.?)?"
)
#: Cells that are numbers to a person and are not read: they are words, with a note.
_UNREAD = {
    "degrees and minutes, or a side of the globe": re.compile(
        r"[+-]?\d{1,3}(?:[.,]\d+)?\s*°\s*(?:\d.*|[NSEW])"
    ),
    "digits in groups of two": re.compile(r"[+-]?[1-9]\d?(?:,\d\d)+,\d{3}(?:\.\d*)?"),
}
#: The other mark, and the marks of thousands that need no decision: no decimal mark.
OTHER = {".": ",", ",": "."}
GROUPS = " '"


class Quantity(NamedTuple):
    """What a cell means.

    :param value: NaN where it is no number.
    :param unit: What is written beside the number: empty, a unit, ":" of hours as in
        36:15.
    """

    value: float
    unit: str = ""


NO_NUMBER = Quantity(np.nan)


@lru_cache
def _number(decimal: str, thousands: str) -> re.Pattern[str]:
    point = re.escape(decimal)
    grouped = [rf"[1-9]\d{{0,2}}(?:{re.escape(mark)}\d{{3}})+" for mark in thousands]
    whole = "|".join([*grouped, r"[0-9]+"])
    number = rf"(?:(?:{whole})(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?"
    return re.compile(
        rf"(?P<open>\()?(?P<sign>[+-]?)\s*(?:(?P<money>{_MONEY})\s*)?(?P<minus>[+-]?)"
        rf"(?P<number>{number})(?P<error>\s*(?:±|\+/-|\+-)\s*{number})?"
        rf"(?:(?P<space>\s*)(?P<unit>{_UNIT}))?(?P<last>-)?(?(open)\))"
    )


def read_quantity(cell: str, decimal: str, thousands: str) -> Quantity:
    """
    Read a number as a person does: (120) and 120- are below zero, 5.1 ± 0.1 is 5.1,
    36:15 are hours. Cells of :func:`unread_form` are none.

    :param decimal: The decimal mark.
    :param thousands: Marks that thousands may be separated by, one in each number.
    """
    cell = cell.translate(_GAPS).strip()
    match = _number(decimal, thousands).fullmatch(cell)
    if match is None or not match["number"].isascii():
        return _read_hours(cell)
    found = match.groupdict("")
    money, unit = found["money"], found["unit"]
    if unit.lower().replace(".", "") in _NO_UNITS:
        return _read_hours(cell)
    if unit.startswith("°") and unread_form(cell):
        return NO_NUMBER
    if len(unit) == 1 and unit.isupper() and not found["space"]:
        return NO_NUMBER  # 1A, 2A: names
    signs = found["sign"] + found["minus"] + found["last"]
    if found["open"]:
        signs += "-"
    if len(signs) > 1 or (found["open"] and found["error"]):
        return NO_NUMBER
    digits = found["number"].translate(str.maketrans("", "", thousands))
    value = float(digits.replace(decimal, "."))
    return Quantity(-value if signs == "-" else value, f"{money} {unit}".strip())


def unread_form(cell: str) -> str:
    """Name the form of a cell that is a number to a person and is not read: 52°31' or
    1,10,000; empty for others.
    """
    cell = cell.translate(_GAPS).strip()
    forms = (form for form, pattern in _UNREAD.items() if pattern.fullmatch(cell))
    return next(forms, "")


def _read_hours(cell: str) -> Quantity:
    """Read hours and minutes, also with AM and PM."""
    match = _CLOCK.fullmatch(cell)
    if match is None or not (match["m"] or match["half"]):
        return NO_NUMBER
    hours, half = int(match["h"]), (match["half"] or "").lower()
    if half and not 1 <= hours <= 12:
        return NO_NUMBER
    if half:
        hours = hours % 12 + 12 * (half == "p")
    minutes = float(match["m"] or 0)
    seconds = float((match["s"] or "0").replace(",", "."))
    return Quantity(hours + minutes / 60.0 + seconds / 3600.0, ":")


def is_limit(cell: str) -> bool:
    """Whether a cell has a limit of a number, such as <0.5."""
    return bool(re.match(rf"{_LIMIT.pattern}[-+.,]*\d", cell))


def read_quantity_or_limit(cell: str, decimal: str, thousands: str) -> Quantity:
    """Read a number, as :func:`read_quantity` does, or the limit in a cell such as
    <0.5.
    """
    match = _LIMIT.match(cell)
    return read_quantity(cell[match.end() :] if match else cell, decimal, thousands)
