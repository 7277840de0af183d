"""Notes on what was done to columns of a table: one line for all columns of a kind."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

#: So many columns are named in a line.
_MOST_NAMED = 8


class Note(NamedTuple):
    """A note on a column.

    :param column: Its name.
    :param alone: The sentence, if no other column has a note of this kind.
    :param together: The sentence on several columns, without its point; it has {} for
        "24 columns".
    :param detail: What differs from column to column, in few words.
    """

    column: str
    alone: str
    together: str
    detail: str = ""


def sentences(notes: Iterable[str | Note]) -> list[str]:
    """Write notes out: those of one kind as one sentence, in the place of the first."""
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
    named = []
    for note in notes[:_MOST_NAMED]:
        detail = f" ({note.detail})" if note.detail else ""
        named.append(f"'{note.column}'{detail}")
    more = len(notes) - len(named)
    rest = f" and {more} more" if more else ""
    what = notes[0].together.replace("{}", f"{len(notes)} columns")
    return f"{what}: {', '.join(named)}{rest}."
