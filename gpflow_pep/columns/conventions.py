"""Conventions in tables: numbers that stand for "missing", and words in several spellings."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

#: Numbers of nines, which stand for "missing" where no cell can be empty.
_NINES = np.array([-99.0, *(sign * (10.0**k - 1.0) for k in range(3, 10) for sign in (-1.0, 1.0))])
#: In at least so many cells of a column.
_LEAST_CELLS = 3
#: Such a number is clearly outside where it is so many times the range of the others away.
_LEAST_DISTANCE = 3.0
#: Words that are spelled in several ways have at least three letters, or are these.
_SHORT_WORDS = ("da", "ja", "no", "ok", "on", "si", "sí")


def find_sentinels(column: "pd.Series[Any]") -> tuple[float, ...]:
    """
    Find numbers that stand for "missing", such as -999: of nines alone, repeated, and outside.

    A negative one is outside where all other numbers are zero or positive. Any other has to be
    three times their range away, and the range must not come from few of them: 99999 may also be
    the limit of incomes, most of which are small. There are none where more than half of the cells
    are such numbers.

    :param column: Numbers; some may be missing.
    """
    values = column.dropna().to_numpy(dtype=np.float64)
    are_nines = np.isin(values, _NINES)
    others = values[~are_nines]
    if not are_nines.any() or len(others) < len(values) / 2 or np.ptp(others) == 0.0:
        return ()
    numbers, counts = np.unique(values[are_nines], return_counts=True)
    repeated = numbers[counts >= _LEAST_CELLS]
    return tuple(float(number) for number in repeated if _is_outside(number, others))


def _is_outside(number: float, others: npt.NDArray[np.float64]) -> bool:
    low, high = float(np.min(others)), float(np.max(others))
    width = high - low
    if number < 0.0 <= low and (number < -99.0 or width <= 99.0):
        return True
    is_even = np.subtract(*np.quantile(others, [0.75, 0.25])) >= width / 20.0
    distance = max(low - number, number - high)
    return bool(is_even) and len(np.unique(others)) >= 5 and distance > _LEAST_DISTANCE * width


def plain_spelling(word: str) -> str:
    """Write a word in small letters and with single spaces."""
    return " ".join(word.split()).lower()


def find_spellings(words: "pd.Series[Any]") -> tuple[str, ...]:
    """
    Find words that are spelled in several ways, such as Yes and YES; give the most frequent way.

    Capitals make no difference where each spelling is all small or capital letters, or has capitals
    at the beginning of words: AaB and aab may be two things. Nor do they in words of at least three
    letters: mW and MW differ. Spaces make no difference.

    :param words: Text without spaces around; some may be missing.
    """
    counts = words.value_counts()
    spellings: dict[str, list[str]] = {}
    for word in sorted(counts.index, key=lambda word: (-counts[word], len(word), word)):
        spellings.setdefault(plain_spelling(word), []).append(word)
    return tuple(
        variants[0]
        for variants in spellings.values()
        if len(variants) > 1 and _is_one_word(variants)
    )


def _is_one_word(variants: list[str]) -> bool:
    singles = {" ".join(word.split()) for word in variants}
    if len(singles) == 1:
        return True
    plain = plain_spelling(variants[0])
    if sum(map(str.isalpha, plain)) < 3 and plain not in _SHORT_WORDS:
        return False
    return all(w in (w.lower(), w.upper(), w.title(), w.capitalize()) for w in singles)


def join_spellings(words: "pd.Series[Any]", spellings: tuple[str, ...]) -> "pd.Series[Any]":
    """Write words in the spelling that :func:`find_spellings` gave; leave the others."""
    if not spellings:
        return words
    chosen = {plain_spelling(word): word for word in spellings}
    joined = words.map(lambda word: chosen.get(plain_spelling(word), word), na_action="ignore")
    return joined.astype(object)
