"""The forms in which units and currencies are written with numbers."""

import re

from .forms import Form

_CURRENCY = "€$£¥₹₽₩₺₪"
_CODES = "EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN"
#: The first sign of a unit; its other signs; and text that is not a unit: exponents,
#: halves of the day, and places in an order.
_SIGN = rf"(?:[^\W\d_]|[°%‰{_CURRENCY}])"
_SIGNS = rf"(?:{_SIGN}|[\d²³⁻¹/·*^.-])"
_NO_UNIT = r"(?![eE]\d|(?i:[ap]\.?m|st|nd|rd|th)\.?\)?$)"

#: The forms that are read. A unit of the first three forms is recognised even in a
#: column of few numbers, and currencies may stand before the number. Other units may be
#: names, as in 2 WD and 4 WD. The tests and the documentation also read this table.
FORMS = (
    Form("shares and degrees", "12 %", "%", "[%‰°]"),
    Form("currencies", "$3.50", "$", rf"(?:[A-Z]{{1,2}})?[{_CURRENCY}]"),
    Form("codes of currencies", "3.50 EUR", "EUR", f"(?:{_CODES})"),
    Form("units of a word", "71.3 m/s", "m/s", rf"{_NO_UNIT}{_SIGN}{_SIGNS}{{0,11}}"),
    Form(
        "units of two words",
        "5 sq ft",
        "sq ft",
        rf"{_NO_UNIT}{_SIGN}{_SIGNS}{{0,11}} {_SIGN}{{1,8}}",
    ),
)
_SHARE, _CURRENCIES, _CURRENCY_CODES, _WORD, _WORDS = (f.expression for f in FORMS)
#: Text that may stand before a number, and after a number.
MONEY = f"{_CURRENCIES}|{_CURRENCY_CODES}"
UNIT = f"{_WORDS}|{_WORD}"
#: The unit of times such as 36:15.
HOURS = ":"
_SURE = re.compile(f"{_SHARE}|{MONEY}|{HOURS}")


def is_sure(unit: str) -> bool:
    """Whether a unit is recognised even in a column of few numbers."""
    return bool(_SURE.fullmatch(unit))
