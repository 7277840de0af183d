"""How the cells of a column are read, and the notes on it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ..engine.refusals import counted
from . import Format, read_cells
from .conventions import (
    FEWEST,
    MARKS,
    MARKS_IN_WORDS,
    PLAIN,
    WORDS_OF_NOTHING,
    Conventions,
    plain_spelling,
    short_spellings,
)
from .dates import (
    as_month_with_point,
    has_order,
    may_be_months,
    period_of,
    read_dates,
)
from .encodings import MAX_CATEGORIES, listed, option
from .formats import (
    is_code,
    may_be_classes,
    merge_in_floats,
    several_units,
    stripped,
    word_among_numbers,
)
from .notes import Note
from .numbers import is_limit, unread_form

#: Cells that show how a column is read: with thousands, or zeros before the number.
_TELLING = re.compile(r"\d[., ']\d{3}(?!\d)|^0\d|\d[eE]\d|^\(|\d-$")
DROPPED = "Dropped column"
#: What has a number by which it is found, which is no input where every row has another
#: one.
_THINGS = (
    "row|record|obs|observation|case|serial|order|invoice|ticket|booking|transaction"
    "|account|client|customer|patient|subject|participant|person|user|member|employee"
    "|student|sample|specimen"
)
ID_NAME = re.compile(
    r"(?i:(.*[ _.-])?(id|ids|uuid|guid|no|nr|key"
    rf"|({_THINGS})([ _.-]?(no|nr|num|number|index))?)"
    r"|id[ _.-].*|idx|index|number|rownames|rownum|.*nummer|#)"
    r"|.*[a-z](I[dD]|N[or]|Number)"
)
#: What counts time is none: what changes with time can be learnt from it.
_TIME_NAME = re.compile(
    "(?i:time|second|minute|hour|day|week|month|quarter|year|step|cycle"
    "|stunde|tages|woche|monat|jahr|schritt|zykl)"
)


@dataclass(frozen=True)
class Reading:
    """A column of a table, and how its cells are read; they are read once.

    :param name: The name of the column.
    :param cells: As they are in the table.
    :param form: How they are read.
    :param known: The conventions of the table.
    :param literal: Whether its numbers and words are values as they are written.
    """

    name: str
    cells: "pd.Series[Any]"
    form: Format
    known: Conventions
    literal: bool = False

    @cached_property
    def values(self) -> "pd.Series[Any]":
        """What the cells mean."""
        if self.form.sentinels or self.form.spellings:
            return read_cells(self.cells, self.form)
        return self.written

    @cached_property
    def written(self) -> "pd.Series[Any]":
        """The values, with numbers that stand for no value, and all spellings."""
        return read_cells(self.cells, self.form._replace(sentinels=(), spellings=()))

    @cached_property
    def texts(self) -> list[str]:
        """The cells of text, without spaces around."""
        return stripped(self.cells)

    @property
    def as_written(self) -> str:
        """The option of the command that reads the cells as they are."""
        return option("as-written", self.form.source or self.name)

    def note(self, what: str, together: str, detail: str = "") -> Note:
        """Make a note on the column.

        :param what: The sentence, after "Column" and the name.
        :param together: The sentence on several columns, after "24 columns".
        :param detail: What differs from column to column, in few words.
        """
        return Note(
            self.name, f"Column '{self.name}'{what}", f"{{}} {together}", detail
        )


def why_drop(reading: Reading) -> Note | None:
    """Word why a column is dropped; None if it is not."""
    kind, reason = _reason_to_drop(reading)
    if not reason:
        return None
    alone = f"{DROPPED} '{reading.name}': {reason}."
    return Note(reading.name, alone, f"Dropped {{}} {kind}", reason)


def _reason_to_drop(reading: Reading) -> tuple[str, str]:
    """Word which columns are dropped, and why this one is; the reason is empty if it is
    not.
    """
    cells = reading.cells.dropna()
    kind = reading.form.kind
    if kind == "other":
        of_type = type(cells.iloc[0]).__name__ if len(cells) else "none"
        which = "whose cells are neither numbers, dates nor text"
        return which, f"its cells are of type {of_type}"
    if cells.empty:
        return "that are empty", "it is empty"
    if kind == "text":
        return "whose texts nearly all differ", _how_texts_differ(reading)
    if kind == "number" and not reading.literal:
        return "that only number the rows", _how_rows_are_numbered(reading)
    return "", ""


def _how_texts_differ(reading: Reading) -> str:
    """Word that most cells have a text of their own; empty if they do not."""
    words = reading.values[reading.cells.notna()]
    if words.nunique() <= max(2, len(words) // 2):
        return ""
    count = f"{words.nunique()} of its {len(words)} texts differ"
    units = several_units(reading.cells, reading.known)
    if units:
        return f"{count}, numbers of several units, such as {listed(units.values())}"
    dates = _two_orders(words.unique())
    if dates:
        return f"{count}, {dates}"
    unread = next(filter(unread_form, reading.texts), "")
    if unread:
        return f"{count}, such as {unread!r}, {_not_read(unread)}"
    return f"{count}, such as {words.iloc[0]!r}"


def _not_read(cell: str) -> str:
    return f"{unread_form(cell)}, which are not read as numbers: write decimal numbers"


def _how_rows_are_numbered(reading: Reading) -> str:
    """Word that a column numbers the rows; empty if it does not."""
    if not _may_number_rows(reading.name):
        return ""
    numbers = reading.values.dropna()
    if len(numbers) < 3 or not numbers.is_unique or np.any(numbers % 1.0):
        return ""
    rises = ""
    if numbers.is_monotonic_increasing:
        rises = " and rise from row to row, as time does"
    way = f"{reading.as_written} keeps it"
    if any(map(is_code, reading.texts)):
        way = "rename it to keep it"
    return f"it only numbers the rows: its whole numbers all differ{rises} ({way})"


def _may_number_rows(name: str) -> bool:
    if not name.strip() or re.fullmatch(r"Unnamed: \d+", name):
        return True
    return bool(ID_NAME.fullmatch(name.rstrip(". "))) and not _TIME_NAME.match(name)


def _two_orders(words: Iterable[Any]) -> str:
    """Name dates of which no order suits all; empty where the words are no
    such dates.
    """
    words = [word for word in words if isinstance(word, str)]
    if not all(map(has_order, words)):
        return ""
    first, second = (read_dates(words, order).notna() for order in ("dmy", "mdy"))
    both = bool(np.all(first | second)) and not (first.all() or second.all())
    return "dates that are not all in the order dmy or mdy" if both else ""


def how_read(reading: Reading) -> Iterator[Note]:
    """Describe how cells were read, if it needs words."""
    cells, form = reading.cells.dropna(), reading.form
    if cells.empty:
        return
    if form.kind == "text":
        yield from _about_words(reading)
        return
    cells = cells[~cells.isin([*MARKS, *form.missing])]
    if form.kind == "date":
        yield _about_dates(reading, cells)
    else:
        yield from _about_numbers(reading, cells)
    others = [word for word in form.missing if word not in reading.known.missing]
    if others:
        yield reading.note(
            f": {_are(others)} read as missing.",
            "have words that are read as missing",
            listed(others),
        )


def _about_dates(reading: Reading, cells: "pd.Series[Any]") -> Note:
    pattern, example = reading.form.pattern, ""
    if pattern:
        date = reading.values[cells.index[0]]
        shown = f"{date:%Y-%m-%d %H:%M}".removesuffix(" 00:00")
        example = f"'{cells.iloc[0]}' is {shown}"
    how = f" ({example})" if example else ""
    of, otherwise = "dates", ""
    period = period_of(pattern)
    if period:
        of = period.of
        otherwise = f" ({reading.as_written} keeps the cells as words)"
    become = "become days since 1970-01-01"
    return reading.note(
        f" holds {of}{how}, which {become}{otherwise}.",
        f"hold {of}, which {become}",
        example,
    )


def _about_numbers(reading: Reading, cells: "pd.Series[Any]") -> Iterator[Note]:
    cells = cells[[not is_limit(str(cell)) for cell in cells]]
    if cells.empty:
        return
    row = next(filter(lambda row: _is_telling(cells[row]), cells.index), cells.index[0])
    cell = cells[row]
    if isinstance(cell, str) and cell:
        yield from _about_number(reading, cell, reading.written[row])
    values = reading.values[cells.index].to_numpy(dtype=np.float64)
    if may_be_months(values) and len({*values}) >= FEWEST:
        example = f"{values[0]:.15g}"
        yield reading.note(
            f" has numbers such as {example}, which may be the month"
            f" {as_month_with_point(values[0])}. They are read as numbers. Write"
            " months as 2023-01 or Jan 2023.",
            "have numbers that may be months and are read as numbers",
            example,
        )


def _is_telling(cell: Any) -> bool:
    return isinstance(cell, str) and _TELLING.search(cell) is not None


def _about_number(reading: Reading, cell: str, value: float) -> Iterator[Note]:
    """Describe how a number in text was read, if it is no plain one."""
    if PLAIN["."].fullmatch(cell) and float(cell) == value:
        return
    unit = reading.form.unit
    of_unit = f" with the unit '{unit}'" if unit else ""
    if unit == ":":
        of_unit = " of hours"
    example = f"'{cell}' is {value:.15g}"
    if is_code(cell):
        example += f"; {reading.as_written} keeps such cells as words"
    yield reading.note(
        f" has text that is read as numbers{of_unit} ({example}).",
        "have text that is read as numbers",
        example,
    )


def about_limits(reading: Reading) -> Iterator[Note]:
    """Describe limits such as <0.5 that are read as numbers."""
    if reading.form.kind != "number":
        return
    limits = [cell for cell in reading.texts if is_limit(cell)]
    if not limits:
        return
    value = read_cells(pd.Series(limits[:1]), reading.form)[0]
    example = f"'{limits[0]}' is {value:.15g}"
    rows = counted(len(limits), "row")
    yield reading.note(
        f" has limits in {rows}, which are read as numbers ({example}).",
        "have limits that are read as numbers",
        f"{rows}, {example}",
    )


def _about_words(reading: Reading) -> Iterator[Note]:
    words = reading.values
    different = words.dropna().unique()
    unread = next(filter(unread_form, different), "")
    word = word_among_numbers(reading.cells, reading.known)
    if unread:
        what = _not_read(unread)
        yield reading.note(
            f" has cells such as {unread!r}, {what}. They are read as words.",
            "have cells that are read as words, not as numbers",
            f"{unread!r}, {what}",
        )
    elif merge_in_floats(different):
        yield about_large_numbers(reading)
    elif word:
        count = counted(int((words == word).sum()), "cell")
        yield reading.note(
            f" has numbers and the word {word!r} in {count}. All are read as words"
            f" (--missing {word} reads numbers, and {word!r} as missing).",
            "have numbers and a word, and all cells are read as words (--missing"
            " reads a word as missing)",
            f"{word!r} in {count}",
        )
    dates = _two_orders(different)
    if dates:
        yield reading.note(
            f" has {dates}. They are read as words.",
            f"have {dates}, and are read as words",
        )
    if len(different) > MAX_CATEGORIES:
        most = f"the {MAX_CATEGORIES} most frequent have a column each, and all others"
        yield reading.note(
            f" has {len(different)} different texts: {most} share one.",
            f"have many different texts, of which {most} of a column share one",
            str(len(different)),
        )


def about_large_numbers(reading: Reading) -> Note:
    example = reading.values.dropna().iloc[0]
    what = "and several of them are equal in floating point, so they are read as words"
    return reading.note(
        f" has whole numbers such as {example}, {what}.",
        f"have large whole numbers, {what}",
        example,
    )


def _are(names: Sequence[str]) -> str:
    verb = "is" if len(names) == 1 else "are"
    return f"{listed(names)} {verb}"


def how_joined(reading: Reading) -> Iterator[Note]:
    """Name which cells are taken as no value, or are not, and which words as others."""
    yield from _about_sentinels(reading)
    yield from _about_marks(reading)
    if reading.form.kind == "text":
        yield from _about_marks_among_words(reading)
        yield from _about_spellings(reading)
        yield from _about_short_words(reading)


def _about_sentinels(reading: Reading) -> Iterator[Note]:
    """Name numbers that are taken as no value: those that a user named, and others."""
    rows: dict[bool, list[str]] = {True: [], False: []}
    for sentinel in reading.form.sentinels:
        count = int((reading.written == sentinel).sum())
        if count:
            were_named = sentinel in reading.known.sentinels
            rows[were_named].append(f"{sentinel:g} in {counted(count, 'row')}")
    if rows[True]:
        named = " and ".join(rows[True])
        yield reading.note(
            f": {named} is read as missing.",
            "have numbers that --missing reads as missing",
            named,
        )
    if rows[False]:
        found = " and ".join(rows[False])
        yield reading.note(
            f": {found} is far from all other numbers, and is read as missing"
            f" ({reading.as_written} reads it as a number).",
            "have numbers that are far from all others, and are read as missing"
            " (--as-written reads them as numbers)",
            found,
        )


def _about_marks(reading: Reading) -> Iterator[Note]:
    """Name marks that are taken as no value and may be words."""
    found = _marks_of_words(reading)
    if reading.form.kind != "text":
        found = _marks_of_numbers(reading)
    if not found:
        return
    marks = sorted(found)
    cells = counted(sum(cell in found for cell in reading.texts), "cell")
    yield reading.note(
        f": {_are(marks)} read as missing in {cells} ({reading.as_written} keeps them"
        " as text).",
        "have marks that are read as missing (--as-written keeps the marks of a"
        " column as text)",
        f"{listed(marks)} in {cells}",
    )


def _marks_of_words(reading: Reading) -> set[str]:
    missing = reading.form.missing
    if "" in missing:
        return set()
    return {*missing, *MARKS_IN_WORDS}.intersection(reading.texts) - {""}


def _marks_of_numbers(reading: Reading) -> set[str]:
    """Find marks beside numbers that may be classes."""
    marks = {*MARKS} - {"", *reading.known.missing}
    found = marks.intersection(reading.texts)
    numbers = [cell for cell in reading.texts if cell not in MARKS]
    return found if may_be_classes(found, numbers) else set()


def _about_marks_among_words(reading: Reading) -> Iterator[Note]:
    marks = [word for word in WORDS_OF_NOTHING if (reading.written == word).any()]
    if marks:
        remedy = f"--missing {','.join(marks)} reads them as missing"
        yield reading.note(
            f": {_are(marks)} kept as text ({remedy}).",
            f"have {listed(marks)}, which are kept as text ({remedy})",
        )


def _about_spellings(reading: Reading) -> Iterator[Note]:
    ways, details = [], []
    words = reading.written.dropna().unique()
    for spelling in reading.form.spellings:
        plain = plain_spelling(spelling)
        alike = {word for word in words if plain_spelling(word) == plain}
        joined = sorted(alike - {spelling})
        ways.append(f"{_are(joined)} read as '{spelling}'")
        details.append(f"{listed(joined)} as '{spelling}'")
    if ways:
        yield reading.note(
            f": {'; '.join(ways)} ({reading.as_written} keeps them apart).",
            "have words in several spellings, which are replaced by the most frequent"
            " one (--as-written keeps the spellings of a column apart)",
            ", ".join(details),
        )


def _about_short_words(reading: Reading) -> Iterator[Note]:
    """Name short words that may be one in two spellings."""
    if "" in reading.form.missing:
        return
    apart = short_spellings(reading.values)
    if apart:
        groups = ", ".join(" and ".join(map(repr, words)) for words in apart)
        yield reading.note(
            f" has {groups}, which may be one word in two spellings. They are kept"
            " apart. Write them alike if they are the same word.",
            "have short words that may be one word in two spellings, and are kept"
            " apart",
            groups,
        )
