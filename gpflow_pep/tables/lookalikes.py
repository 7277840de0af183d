"""Columns of text whose cells look like numbers or dates, and the reason why they are
text.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..engine.refusals import counted
from .conventions import FEWEST, MIN_ROWS, Conventions
from .dates import has_order, read_dates
from .encodings import listed
from .formats import PAIR, Column
from .numbers import read_quantity, unread_form
from .recognising import LEAST_SHARE, merge_in_floats
from .units import is_sure


class Lookalike(NamedTuple):
    """What the cells of a column of text look like.

    :param of: "pairs" of numbers, "units" if numbers surely have several units, or
        empty.
    :param what: A description with an example; empty for ordinary words.
    """

    of: str = ""
    what: str = ""


def find_lookalike(column: Column) -> Lookalike:
    """Find what the cells of a column of text look like."""
    values = column.counts_of_values
    pairs = [word for word in values.index if PAIR.fullmatch(word)]
    are_most = values[pairs].sum() >= LEAST_SHARE * values.sum()
    if len(pairs) >= MIN_ROWS and are_most:
        return Lookalike("pairs", f"two numbers in a cell, such as {pairs[0]!r}")
    units, words = _units_and_words(values.index, column.known)
    num_numbers = len(values) - len(words)
    enough = num_numbers >= max(FEWEST, LEAST_SHARE * len(values))
    if enough and len(units) > 1:
        are_sure = all(map(is_sure, filter(None, units)))
        what = f"numbers of several units, such as {listed(units.values())}"
        return Lookalike("units" if are_sure else "", what)
    if _have_two_orders(values.index):
        return Lookalike(what="dates that are not all in the order dmy or mdy")
    unread = next(filter(unread_form, values.index), "")
    if unread:
        form = f"{unread_form(unread)}, which are not read as numbers"
        what = f"cells such as {unread!r}, {form} (write decimal numbers)"
        return Lookalike(what=what)
    if merge_in_floats(values.index):
        example = f"whole numbers such as {values.index[0]}"
        return Lookalike(what=f"{example}, and several are equal in floating point")
    if len(words) == 1 and words[0].isalpha() and len(values) > 2:
        count = counted(values[words[0]], "cell")
        remedy = f"--missing {words[0]} reads numbers, and {words[0]!r} as missing"
        what = f"numbers and the word {words[0]!r} in {count} ({remedy})"
        return Lookalike(what=what)
    return Lookalike()


def _units_and_words(
    values: Iterable[str], known: Conventions
) -> tuple[dict[str, str], list[str]]:
    """Return each unit of numbers with its first cell, and the words that are not
    numbers.
    """
    mark = known.decimal or "."
    units: dict[str, str] = {}
    words = []
    for word in values:
        quantity = read_quantity(word, mark, known.marks(mark))
        if np.isnan(quantity.value):
            words.append(word)
        else:
            units.setdefault(quantity.unit, word)
    return units, words


def _have_two_orders(values: Iterable[str]) -> bool:
    """Whether all are dates, but not in one order."""
    if not all(map(has_order, values)):
        return False
    day_first, month_first = (
        read_dates(values, order).notna() for order in ("dmy", "mdy")
    )
    if day_first.all() or month_first.all():
        return False
    return bool(np.all(day_first | month_first))
