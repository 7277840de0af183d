"""The place of the column names of a table: below titles, in its first row, or
nowhere.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import count

import numpy as np

from .contents import as_number
from .encodings import MARGIN, listed

#: Rows of cells as text. Rows without cells, or with only empty cells, are blank.
Rows = Sequence[Sequence[str]]
#: With fewer rows the first row is always read as names.
_LEAST_ROWS = 5


def count_title_rows(rows: Rows) -> int:
    """Count the titles and blank rows above the column names; 0 if there are no titles.

    The names are in the first row that has as many cells as most rows, with at most one
    empty cell. Rows above it are titles if a blank row follows them, or if they have a
    single cell and the table has at least three columns. The cells of that row are
    names only if below it some column has cells that begin with digits, and its own
    cell in that column does not.
    """
    cells = [[cell.strip() for cell in row] for row in rows]
    sizes = [sum(map(bool, row)) for row in cells]
    lengths = Counter(len(row) for row, size in zip(cells, sizes) if size)
    width = max(lengths, key=lambda length: (lengths[length], length), default=0)
    if width < 2:
        return 0
    full = [
        place
        for place, size in enumerate(sizes)
        if len(cells[place]) == width and size >= max(2, width - 1)
    ]
    start = full[0] if full else 0
    if not _are_titles(sizes[:start], width):
        return 0
    below = [row for row in cells[start + 1 :] if len(row) == width]
    return start if _are_names_of_columns(cells[start], below) else 0


def _are_titles(sizes: Sequence[int], width: int) -> bool:
    """Whether rows with these numbers of filled cells are titles above a table."""
    filled = {size for size in sizes if size}
    if not filled:
        return False
    return sizes[-1] == 0 or (filled == {1} and width >= 3)


def _are_names_of_columns(names: Sequence[str], below: Rows) -> bool:
    """Whether most names differ, and one of them is above a column of numbers."""
    if 2 * len(set(names)) <= len(names):
        return False
    return any(map(_is_name_of_numbers, names, zip(*below)))


def _is_name_of_numbers(name: str, column: Sequence[str]) -> bool:
    values = [cell for cell in column if cell]
    starts = re.compile(r"[+\-\u2212$€£.,]?\s?\d")
    return (
        bool(name and values)
        and not starts.match(name)
        and all(map(starts.match, values))
    )


def _lacks_names(rows: Rows) -> bool:
    """Whether the first row has values like the rows below it, instead of names.

    It does if it has at least one number, each of its numbers is in or near the range
    of the numbers below, each of its words occurs again below it, and its dates are
    written like the dates below. If the row has no words, whole numbers that only rise
    or fall along the row, or numbers in equal steps, are names, such as years. If the
    row has a number twice, it has no names, whatever the numbers are.
    """
    heads, *below = [
        [cell.strip() for cell in row] for row in rows if any(map(str.strip, row))
    ]
    if (
        len(below) < _LEAST_ROWS
        or len(heads) < 2
        or any(len(row) != len(heads) for row in below)
    ):
        return False
    numbers = [value for value in map(as_number, heads) if value is not None]
    margin = MARGIN if len(set(numbers)) == len(numbers) else np.inf
    if not all(
        _is_like(cell, column, margin) for cell, column in zip(heads, zip(*below))
    ):
        return False
    num_words = len(list(filter(None, heads))) - len(numbers)
    return bool(numbers) and (num_words > 0 or not _are_names(numbers))


def _is_like(cell: str, column: Sequence[str], margin: float) -> bool:
    """Whether a cell is like the cells below it; for a number, up to a margin."""
    filled = [word for word in column if word]
    if not cell or cell in filled:
        return bool(filled)
    value = as_number(cell)
    if value is None:
        digits = [re.sub(r"\d", "0", word) for word in (cell, *filled)]
        return (
            bool(re.fullmatch(r"[0/.:\- T]*0[0/.:\- T]*", digits[0]))
            and digits[0] in digits[1:]
        )
    numbers = [number for number in map(as_number, filled) if number is not None]
    if len(numbers) < 0.9 * len(filled) or not numbers:
        return False
    low = min(numbers)
    high = max(numbers)
    return margin == np.inf or abs(value - np.clip(value, low, high)) <= margin * (
        high - low
    )


def _are_names(numbers: Sequence[float]) -> bool:
    steps = np.diff(numbers)
    if not len(steps) or np.min(steps) <= 0.0 <= np.max(steps):
        return False
    if not np.any(np.mod(numbers, 1.0)):
        return True
    return len(steps) > 1 and bool(np.ptp(steps) <= 1e-9 * abs(steps[0]))


def title_note(rows: Rows) -> str:
    """Describe which rows above the names were left out."""
    title = next(cell.strip() for row in rows for cell in row if cell.strip())
    lines = "a line" if len(rows) == 1 else f"{len(rows)} lines"
    return (
        f"Left out {lines} above the column names:"
        f" {title!r}{' and so on' if len(rows) > 1 else ''} (--header reads the first"
        " line as names)."
    )


def names_of_places(
    rows: Rows, count: int, header: bool | None
) -> tuple[list[str], list[str]]:
    """Name columns without names x0, x1, ..., with a note. The result is empty if the
    first row has names.

    :param header: Whether the first row has names; None decides by
        :func:`_lacks_names`.
    """
    if header or not rows or (header is None and not _lacks_names(rows)):
        return [], []
    named = f"are called x0 to x{count - 1}; use these names for --target"
    note = f"The columns {named}."
    if header is None:
        note = (
            "The first line has values like the lines below it, so it is read as a"
            f" row. The columns {named} (--header reads the first line as names)."
        )
    return [f"x{place}" for place in range(count)], [note]


def distinct(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Add numbers to equal names of columns, from left to right, with a note."""
    counts = Counter(names)
    used = {*names}
    result = []
    for name in names:
        new = name
        if counts[name] > 1:
            numbered = (f"{name} ({place})" for place in count(1))
            new = next(one for one in numbered if one not in used)
        used.add(new)
        result.append(new)
    renamed = [new for new in result if new not in counts]
    if not renamed:
        return result, []
    note = (
        "Columns with the same name are numbered from left to right:"
        f" {listed(renamed)} (--no-header: the first line is a row)."
    )
    return result, [note]
