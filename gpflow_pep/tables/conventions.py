"""Conventions of a table: marks of decimals and of missing values, the order of dates,
spellings.

They are found once, from all cells of a table. If cells can be read in two ways,
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
from ..engine.refusals.numbers import check_choice
from .dates import ORDERS, find_period
from .numbers import GROUPS, OTHER, read_quantity

#: Words for a missing value if the other cells are numbers or dates: the words of
#: pandas, "?" of the UCI repository, and "." of SAS and Stata.
WORDS_OF_NOTHING = ("NA", "N/A", "n/a", "n.a.", "None", "NULL", "null", "-", "--", ".")
#: Marks of a missing value also among words, where the words above may be values.
MARKS_IN_WORDS = (
    *("", "?", "nan", "-nan", "NaN", "-NaN", "<NA>", "#NA", "#N/A", "#N/A N/A"),
    *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    *("#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"),
)
MARKS = (*MARKS_IN_WORDS, *WORDS_OF_NOTHING)
#: Whole numbers; numbers with each decimal mark; numbers whose point may separate
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
#: In fewer cells a mark, a unit or a date of eight digits may occur by chance. Two is
#: the smallest number of repetitions.
FEWEST = 3
#: With fewer rows, or fewer distinct values of a column, nothing is concluded.
MIN_ROWS = 10
#: The digits 1 to 9 do not matter for the way in which a number is written.
_ALIKE = str.maketrans("23456789", "11111111")
_DAY_AND_MONTH = re.compile(r"(?m)^(\d{1,2})([./-])(\d{1,2})\2(?:\d{4}|(\d\d))(?!\d)")


class Conventions(NamedTuple):
    """How the cells of a table are written, as far as this is known.

    :param decimal: The decimal mark, "." or ","; empty if all cells can be read with
        both.
    :param thousands: The separator of thousands; empty for any mark that is not the
        decimal mark.
    :param dates: The order of day, month and year, "dmy", "mdy" or "ymd"; empty if all
        dates can be read in several orders.
    :param missing: Words and numbers that mean a missing value.
    :param encoding: The encoding of the file.
    :param sheet: The sheet of an Excel file; empty for other files.
    """

    decimal: str = ""
    thousands: str = ""
    dates: str = ""
    missing: tuple[str, ...] = ()
    encoding: str = ""
    sheet: str = ""

    def marks(self, decimal: str) -> str:
        """Return the possible separators of thousands with this decimal mark."""
        return self.thousands or OTHER[decimal] + GROUPS

    @property
    def sentinels(self) -> tuple[float, ...]:
        """The numbers among `missing`."""
        return tuple(float(w) for w in self.missing if PLAIN["."].fullmatch(w))


def given_conventions(
    decimal: str | None = None,
    thousands: str | None = None,
    dates: str | None = None,
    missing: Iterable[Any] = (),
) -> Conventions:
    """Make conventions from a user's arguments; see :class:`Conventions`.

    :raises ValueError: If an argument is not a mark, or two marks are the same.
    """
    decimal = decimal or OTHER.get(thousands or "")
    remedy = "Leave it out if in doubt."
    if decimal:
        check_choice("decimal", decimal, OTHER, remedy)
    if dates is not None:
        check_choice("dates", dates, ORDERS, remedy)
    if thousands is not None and not _may_separate(thousands, decimal):
        expected = "one character, which is not the decimal mark"
        raise refusal("thousands", repr(thousands), expected, remedy)
    missing = [missing] if isinstance(missing, (str, int, float)) else missing
    words = tuple(
        f"{mark:.15g}" if isinstance(mark, float) else str(mark) for mark in missing
    )
    return Conventions(decimal or "", thousands or "", dates or "", words)


def _may_separate(thousands: str, decimal: str | None) -> bool:
    """Whether text may be a separator of thousands."""
    return len(thousands) == 1 and thousands != decimal and not thousands.isdigit()


def find_conventions(
    columns: list[list[str]], stated: Conventions, sep: str = ""
) -> Conventions:
    """Find the decimal mark and the order of dates. Cells that can be read in only one
    way decide by majority. If two ways are equally frequent, none is found.

    :param columns: The cells of each column of text.
    :param stated: The conventions that are already known.
    :param sep: The separator of cells in the file. If it is a comma, commas are not
        decimal marks unless a cell shows it; but then points are decimal points only if
        all numbers of a column have them.
    """
    points = Counter(dict.fromkeys(OTHER, 0))
    orders = Counter(dict.fromkeys(ORDERS, 0))
    fixed: list[bool] = []
    for cells in columns:
        if find_period(cells):
            continue  # 01.2023 does not show which mark is decimal
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
    """Return the order of each date that has only one possible order."""
    for match in _DAY_AND_MONTH.finditer("\n".join(cells)):
        leading = int(match[1])
        second = int(match[3])
        mark = match[2]
        short = match[4]
        # 21-01-05 may be in 2021.
        may_be_year = mark == "-" and short is not None and int(short) <= 31
        if second <= 12 and (mark == "." or (leading > 12 and not may_be_year)):
            yield "dmy"
        if leading <= 12 < second:
            yield "mdy"
        if short and leading > 31:
            yield "ymd"


def ways_of_writing(cells: Iterable[str]) -> list[str]:
    """Replace each digit except 0 by 1, because many different numbers are written in
    few ways.
    """
    return "\0".join(cells).translate(_ALIKE).split("\0")


def _proof(cell: str) -> str:
    """Return the decimal mark of a cell that is a number with only one of both marks;
    empty for other cells.
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
    """Return the key with the highest count; empty if there are several."""
    (commonest, most), (_, second) = counts.most_common(2)
    return commonest if most > second else ""


#: Numbers of nines, which mean "missing" in files that do not allow empty cells.
_NINES = np.array(
    [-99.0, *(sign * (10.0**k - 1.0) for k in range(3, 10) for sign in (-1.0, 1.0))]
)
#: Such a number is clearly outside if its distance is this multiple of the range of the
#: others.
_LEAST_DISTANCE = 3.0
#: Words in several spellings are joined if they have at least three letters, or are
#: among these.
_SHORT_WORDS = ("da", "ja", "no", "ok", "on", "si", "sí")
#: Single letters are joined if all single letters of the column are in one of these
#: sets: sexes, yes and no, true and false. Other letters may mean two things: alleles A
#: and a, units m and M.
_ANSWERS = ("mfx", "mfo", "mfu", "mfd", "mwd", "yn", "jn", "tf")


def find_sentinels(column: "pd.Series[Any]") -> tuple[float, ...]:
    """Find numbers that mean "missing", such as -999: they consist of nines, are
    repeated, and are outside of the others.

    A negative number is outside if all other numbers are zero or positive. Any other
    number has to be three times the range of the others away, and the range must not
    come from a few numbers, because 99999 may also be the limit of incomes, most of
    which are small. If more than half of the cells are such numbers, they are values.

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

    :param joined: The most frequent spelling of each word, with its other spellings.
    :param apart: The spellings of short words, which may be different words.
    """

    joined: dict[str, list[str]]
    apart: list[list[str]]


def find_spellings(words: "pd.Series[Any]") -> Spellings:
    """Find words that are spelled in several ways, such as Yes and YES.

    Spaces do not matter. Capitals do not matter if each spelling has only small
    letters, only capitals, or capitals at the beginning of words (AaB and aab may be
    two things), and if the word has at least three letters (mW and MW are different
    units). They do not matter for single letters either if all single letters of the
    column are answers such as m and f (the alleles A and a are different).

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
    """Return the spellings of each word, the most frequent first."""
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
