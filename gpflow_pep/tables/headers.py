"""Where the column names of a table are: under titles, in its first row, or nowhere."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import count

import numpy as np

from .contents import as_number
from .encodings import MARGIN

#: Rows of cells as text; rows that are empty or have only empty cells are blank.
Rows = Sequence[Sequence[str]]
#: Of fewer rows the first is always taken for names.
_LEAST_ROWS = 5


def count_title_rows(rows: Rows) -> int:
    """Count the rows above the column names, titles and blank rows; 0 where there are
    no titles.

    The names are in the first row that has as many cells as most rows, all of which but
    one are filled. Rows above it are titles if a blank row follows them, or they have a
    single cell and the table has three columns at least. Only where the cells of some
    column begin with digits below that row, and not in it, are its cells names at all.
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
    """Whether rows with so many filled cells are titles above a table."""
    filled = {size for size in sizes if size}
    if not filled:
        return False
    return sizes[-1] == 0 or (filled == {1} and width >= 3)


def _are_names_of_columns(names: Sequence[str], below: Rows) -> bool:
    """Whether most names differ, and one is above a column of numbers."""
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
    """Whether the first row has no names, but values like those of the rows below.

    Each of its numbers is in the range of those below, or near, and there is at least
    one; each of its words is below it again; and dates are written like those below.
    Where the row has no words, whole numbers that only rise or fall along it, or
    numbers in equal steps, are names, such as years. Where a number is in the row twice
    there are no names, and its numbers may be anything.
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
    """Whether a cell is one like those below it, a number up to a margin."""
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
    """Name which rows were left out above the names."""
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
    """Name columns without names x0, x1, ..., with a note; no names where the first row
    has them.

    :param header: Whether it has; None: by :func:`_lacks_names`.
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
    """Give columns that share a name a number each, from left to right, and notes of
    that.
    """
    counts = Counter(names)
    used = {*names}
    result = []
    renamed: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        new = name
        if counts[name] > 1:
            numbered = (f"{name} ({place})" for place in count(1))
            new = next(one for one in numbered if one not in used)
            renamed[name].append(repr(new))
        used.add(new)
        result.append(new)
    how = "from left to right (--no-header: the first line is a row)"
    notes = [
        f"Columns with the same name {name!r} are renamed to {', '.join(new_names)},"
        f" {how}."
        for name, new_names in renamed.items()
    ]
    return result, notes
