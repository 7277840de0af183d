"""Notes on changes to columns of a table, with one line for columns with the same kind
of note.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: The largest number of columns with their names in a line.
_MOST_NAMED = 8


class Note(NamedTuple):
    """A note on a column.

    :param column: The name of the column.
    :param alone: The sentence, if no other column has a note of this kind.
    :param together: The sentence about several columns, without its full stop. It has
        {} for "24 columns".
    :param detail: The part that differs from column to column, in few words.
    """

    column: str
    alone: str
    together: str
    detail: str = ""


def sentences(notes: Iterable[str | Note]) -> list[str]:
    """Write notes as sentences. Notes of the same kind become one sentence, in the
    place of the first.
    """
    kinds: defaultdict[str, list[Note]] = defaultdict(list)
    texts: dict[str, str] = {}
    for note in notes:
        if isinstance(note, str):
            texts[note] = note
            continue
        alike = kinds[note.together]
        alike.append(note)
        texts[note.together] = note.alone if len(alike) == 1 else _joined(alike)
    return list(texts.values())


def _joined(notes: list[Note]) -> str:
    named = [
        f"'{note.column}' ({note.detail})" if note.detail else f"'{note.column}'"
        for note in notes
    ]
    what = notes[0].together.replace("{}", f"{len(notes)} columns")
    return f"{what}: {first_of(named)}."


def first_of(texts: Sequence[str], most: int = _MOST_NAMED) -> str:
    """Join the first texts of a list, and write the number of the others."""
    text = ", ".join(texts[:most])
    if len(texts) > most:
        text += f" and {len(texts) - most} more"
    return text
