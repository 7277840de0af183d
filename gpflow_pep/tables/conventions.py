"""Conventions of a table: marks of decimals and of missing values, the order of dates,
spellings.

They are found once, from all cells of a table; where its cells can be read in two ways,
nothing is guessed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..engine.refusals import refusal
from .dates import ORDERS, find_period
from .numbers import GROUPS, OTHER, read_quantity

#: Words for a missing value, wherever the other cells are numbers or dates: those of
#: pandas; "?" is used by the UCI repository, "." by SAS and Stata.
WORDS_OF_NOTHING = ("NA", "N/A", "n/a", "n.a.", "None", "NULL", "null", "-", "--", ".")
#: Marks of a missing value among words too. Those above may be words there.
MARKS_IN_WORDS = (
    *("", "?", "nan", "-nan", "NaN", "-NaN", "<NA>", "#NA", "#N/A", "#N/A N/A"),
    *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    *("#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"),
)
MARKS = (*MARKS_IN_WORDS, *WORDS_OF_NOTHING)
#: Whole numbers; numbers with each decimal mark; numbers whose point may be of
#: thousands.
WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
PLAIN = {
    mark: re.compile(
        r"[+-]?(?:0|[1-9][0-9]*)?"
        rf"(?:(?<=[0-9])|(?=[{mark}][0-9]))"
        rf"(?:[{mark}][0-9]*(?:[eE][+-]?[0-9]+)?|[eE][+-][0-9]+)?"
    )
    for mark in OTHER
}
_EITHER = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}")
#: In fewer cells a mark, a unit or a date of eight digits may be there by chance: two
#: is the least that repeats.
FEWEST = 3
#: Fewer rows, or different values of a column, show nothing.
MIN_ROWS = 10
#: Digits but 0 are alike in how a number is written.
_ALIKE = str.maketrans("23456789", "11111111")
_DAY_AND_MONTH = re.compile(r"(?m)^(\d{1,2})([./-])(\d{1,2})\2(?:\d{4}|(\d\d))(?!\d)")


class Conventions(NamedTuple):
    """How the cells of a table are written, as far as it is known.

    :param decimal: The decimal mark, "." or ","; empty where both suit all cells.
    :param thousands: What separates thousands; empty: what is no decimal mark.
    :param dates: The order of day, month and year, "dmy", "mdy" or "ymd"; empty where
        several suit.
    :param missing: Words and numbers that stand for no value.
    :param encoding: That of the file.
    :param sheet: The sheet of an Excel file; empty for other files.
    """

    decimal: str = ""
    thousands: str = ""
    dates: str = ""
    missing: tuple[str, ...] = ()
    encoding: str = ""
    sheet: str = ""

    def marks(self, decimal: str) -> str:
        """Give the marks that thousands may have where this is the decimal mark."""
        return self.thousands or OTHER[decimal] + GROUPS

    @property
    def sentinels(self) -> tuple[float, ...]:
        """Those of `missing` that are numbers."""
        return tuple(float(w) for w in self.missing if PLAIN["."].fullmatch(w))


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
    one_mark = thousands is None or len(thousands) == 1
    separates = one_mark and (thousands or " ") not in f"{decimal}0123456789"
    orders = f"one of {', '.join(ORDERS)}, the order of day, month and year"
    for name, value, is_known, expected in (
        ("decimal", decimal, decimal in (None, *OTHER), "'.' or ','"),
        (
            "thousands",
            thousands,
            separates,
            "one character, which is not the decimal mark",
        ),
        ("dates", dates, dates in (None, *ORDERS), orders),
    ):
        if not is_known:
            raise refusal(name, repr(value), expected, "Leave it out if in doubt.")
    missing = [missing] if isinstance(missing, (str, int, float)) else missing
    words = tuple(
        f"{mark:.15g}" if isinstance(mark, float) else str(mark) for mark in missing
    )
    return Conventions(decimal or "", thousands or "", dates or "", words)


def find_conventions(
    columns: list[list[str]], stated: Conventions, sep: str = ""
) -> Conventions:
    """Find the decimal mark and the order of dates: of each the one in which most cells
    are written that can be read in one way alone. None is found where as many are of
    one kind as of the other.

    :param columns: The cells of each column of text.
    :param stated: What is known of them.
    :param sep: What separates cells in the file. A comma that does is no decimal mark
        where no cell shows otherwise; but points need to be in all numbers of a column
        to be decimal ones.
    """
    points = Counter(dict.fromkeys(OTHER, 0))
    orders = Counter(dict.fromkeys(ORDERS, 0))
    fixed: list[bool] = []
    for cells in columns:
        if find_period(cells):
            continue  # 01.2023 shows nothing of decimal marks
        ways = Counter(ways_of_writing(cells))
        if any(map(_DAY_AND_MONTH.match, ways)):
            orders.update(_orders_of(cells))
        if stated.decimal:
            continue
        for way, count in ways.items():
            points[_proof(way)] += count
        if any(map(_EITHER.fullmatch, ways)):
            fixed.append(not any(map(WHOLE.fullmatch, ways)))
    del points[""]
    if sep == "," and all(fixed) and not any(points.values()):
        points["."] = 1
    decimal = stated.decimal or _most(points)
    return stated._replace(decimal=decimal, dates=stated.dates or _most(orders))


def _orders_of(cells: Iterable[str]) -> Iterator[str]:
    """Give the order of each date of which one alone is possible."""
    for match in _DAY_AND_MONTH.finditer("\n".join(cells)):
        leading = int(match[1])
        second = int(match[3])
        mark = match[2]
        short = match[4]
        # 21-01-05 may be of 2021.
        may_be_year = mark == "-" and short is not None and int(short) <= 31
        if second <= 12 and (mark == "." or (leading > 12 and not may_be_year)):
            yield "dmy"
        if leading <= 12 < second:
            yield "mdy"
        if short and leading > 31:
            yield "ymd"


def ways_of_writing(cells: Iterable[str]) -> list[str]:
    """Write 1 in the place of each digit but 0: numbers of many values are written in
    few ways.
    """
    return "\0".join(cells).translate(_ALIKE).split("\0")


def _proof(cell: str) -> str:
    """Give the decimal mark of a cell that is a number with this one alone; empty for
    others.
    """
    if "." not in cell and "," not in cell:
        return ""
    read = [
        mark
        for mark, other in OTHER.items()
        if not np.isnan(read_quantity(cell, mark, other + GROUPS).value)
    ]
    return read[0] if len(read) == 1 else ""


def _most(counts: "Counter[str]") -> str:
    """Give the one with the highest count; empty where there are several."""
    (commonest, most), (_, second) = counts.most_common(2)
    return commonest if most > second else ""


#: Numbers of nines, which stand for "missing" where no cell can be empty.
_NINES = np.array(
    [-99.0, *(sign * (10.0**k - 1.0) for k in range(3, 10) for sign in (-1.0, 1.0))]
)
#: Such a number is clearly outside where it is so many times the range of the others
#: away.
_LEAST_DISTANCE = 3.0
#: Words that are spelled in several ways have at least three letters, or are these.
_SHORT_WORDS = ("da", "ja", "no", "ok", "on", "si", "sí")
#: Or single letters, if all single letters of the column are in one of these: sexes,
#: yes and no, true and false. Others may be two things: alleles A and a, units m and M.
_ANSWERS = ("mfx", "mfo", "mfu", "mfd", "mwd", "yn", "jn", "tf")


def find_sentinels(column: "pd.Series[Any]") -> tuple[float, ...]:
    """Find numbers that stand for "missing", such as -999: of nines alone, repeated,
    and outside.

    A negative one is outside where all other numbers are zero or positive. Any other
    has to be three times their range away, and the range must not come from few of
    them: 99999 may also be the limit of incomes, most of which are small. There are
    none where more than half of the cells are such numbers.

    :param column: Numbers; some may be missing.
    """
    values = column.dropna().to_numpy(dtype=np.float64)
    are_nines = np.isin(values, _NINES)
    plain = values[~are_nines]
    if not are_nines.any() or len(plain) < len(values) / 2 or np.ptp(plain) == 0.0:
        return ()
    numbers, counts = np.unique(values[are_nines], return_counts=True)
    repeated = numbers[counts >= FEWEST]
    return tuple(float(value) for value in repeated if _is_outside(value, plain))


def _is_outside(value: float, plain: npt.NDArray[np.float64]) -> bool:
    low = float(np.min(plain))
    high = float(np.max(plain))
    width = high - low
    if value < 0.0 <= low and (value < -99.0 or width <= 99.0):
        return True
    is_even = np.subtract(*np.quantile(plain, [0.75, 0.25])) >= width / 20.0
    distance = max(low - value, value - high)
    return (
        bool(is_even)
        and len(np.unique(plain)) >= 5
        and distance > _LEAST_DISTANCE * width
    )


def plain_spelling(word: str) -> str:
    """Write a word in small letters and with single spaces."""
    return " ".join(word.split()).lower()


class Spellings(NamedTuple):
    """Words of a column that are spelled in several ways.

    :param joined: The most frequent way of each word, and its others.
    :param apart: The ways of short words, which may be different words.
    """

    joined: dict[str, list[str]]
    apart: list[list[str]]


def find_spellings(words: "pd.Series[Any]") -> Spellings:
    """Find words that are spelled in several ways, such as Yes and YES.

    Capitals make no difference where each spelling is all small or capital letters, or
    has capitals at the beginning of words: AaB and aab may be two things. Nor do they
    in words of at least three letters, and in single letters if those of the column are
    answers, such as m and f: mW and MW differ, and so do the alleles A and a. Spaces
    make no difference.

    :param words: Text without spaces around; some may be missing.
    """
    spellings = _by_spelling(words)
    letters = {plain for plain in spellings if len(plain) == 1 and plain.isalpha()}
    are_answers = len(letters) > 1 and any(letters <= set(known) for known in _ANSWERS)
    found = Spellings({}, [])
    for plain, ways in spellings.items():
        if len(ways) == 1:
            continue
        if (are_answers and plain in letters) or _is_one_word(ways):
            found.joined[ways[0]] = ways[1:]
        elif _is_short(plain):
            found.apart.append(ways)
    return found


def _by_spelling(words: "pd.Series[Any]") -> dict[str, list[str]]:
    """Give the ways in which each word is spelled, the most frequent first."""
    counts = words.value_counts()
    spellings: dict[str, list[str]] = {}
    for word in sorted(counts.index, key=lambda word: (-counts[word], len(word), word)):
        spellings.setdefault(plain_spelling(word), []).append(word)
    return spellings


def _is_short(plain: str) -> bool:
    return sum(map(str.isalpha, plain)) < 3 and plain not in _SHORT_WORDS


def _is_one_word(variants: list[str]) -> bool:
    singles = {" ".join(word.split()) for word in variants}
    if len(singles) == 1:
        return True
    if _is_short(plain_spelling(variants[0])):
        return False
    return all(w in (w.lower(), w.upper(), w.title(), w.capitalize()) for w in singles)
