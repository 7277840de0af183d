"""Units and currencies beside numbers: the forms in which they are written."""

import re

from .forms import Form

_CURRENCY = "€$£¥₹₽₩₺₪"
_CODES = "EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN"
#: What a unit begins with; its other signs; and what is none: exponents, halves of the
#: day, and places in an order.
_SIGN = rf"(?:[^\W\d_]|[°%‰{_CURRENCY}])"
_SIGNS = rf"(?:{_SIGN}|[\d²³⁻¹/·*^.-])"
_NO_UNIT = r"(?![eE]\d|(?i:[ap]\.?m|st|nd|rd|th)\.?\)?$)"

#: The forms that are read. A unit of the first three is one in a column of few numbers
#: too, and currencies may stand before the number. Others may be names, as in 2 WD and
#: 4 WD. The test and the page read this table too.
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
#: What may stand before a number, and behind one.
MONEY = f"{_CURRENCIES}|{_CURRENCY_CODES}"
UNIT = f"{_WORDS}|{_WORD}"
#: The unit of times, as of 36:15.
HOURS = ":"
_SURE = re.compile(f"{_SHARE}|{MONEY}|{HOURS}")


def is_sure(unit: str) -> bool:
    """Whether it is a unit in a column of few numbers too."""
    return bool(_SURE.fullmatch(unit))
