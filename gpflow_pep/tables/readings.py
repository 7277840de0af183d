"""How the cells of a column are read, and notes on this."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ..engine.refusals import counted
from .conventions import (
    FEWEST,
    MARKS,
    MARKS_IN_WORDS,
    PLAIN,
    WORDS_OF_NOTHING,
    Conventions,
    Spellings,
    find_conventions,
    find_sentinels,
    find_spellings,
)
from .dates import PERIODS, as_month_with_point, may_be_months
from .encodings import MAX_CATEGORIES, listed, option
from .formats import Column, Format, read_column_as, read_words, without
from .lookalikes import Lookalike, find_lookalike
from .notes import Note
from .numbers import is_limit
from .recognising import find_format, is_code, may_be_classes
from .units import HOURS

#: Cells that are good examples of how a column is read: numbers with thousands, or with
#: leading zeros.
_TELLING = re.compile(r"\d[., ']\d{3}(?!\d)|^0\d|\d[eE]\d|^\(|\d-$")
DROPPED = "Dropped column"
#: Things with an identifying number. Such a number is not an input if it differs in
#: every row.
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
#: Numbers that count time are not identifying numbers, because models can use them.
_TIME_NAME = re.compile(
    "(?i:time|second|minute|hour|day|week|month|quarter|year|step|cycle"
    "|stunde|tages|woche|monat|jahr|schritt|zykl)"
)


#: The singular of the verbs of notes.
_SINGULAR = {"have": "has", "hold": "holds"}


class Reading(Column):
    """A column of a table. Its cells are read once.

    :param cells: Values of any type; some may be missing.
    :param known: The conventions of the table.
    :param literal: Whether cells are read exactly as written; see
        :class:`~gpflow_pep.tables.formats.Column`.
    :raises ValueError: If the cells can be read in two ways.
    """

    #: How the cells are read.
    form: Format
    #: The values of the cells.
    values: "pd.Series[Any]"
    #: The values before numbers that mean a missing value are removed and spellings are
    #: joined.
    written: "pd.Series[Any]"
    #: The spellings of words in a column of text.
    spellings: Spellings

    def __init__(
        self, cells: "pd.Series[Any]", known: Conventions, literal: bool = False
    ) -> None:
        super().__init__(cells, known, literal)
        form = find_format(self)
        self.form = form._replace(missing=self._words_of_nothing(form))
        self.written = cells
        if form.kind != "other":
            self.written = read_column_as(self, self.form)
        self.values = self.written
        self.spellings = Spellings({}, [])
        if form.kind == "text" and not literal:
            self._join_spellings()
        if form.kind == "number" and not literal:
            self._leave_out_sentinels()

    def _words_of_nothing(self, form: Format) -> tuple[str, ...]:
        """Return the words that mean a missing value; empty if they are the usual
        ones.
        """
        if form.kind != "text":
            return (*form.missing, *self.known.missing)
        if self.literal:
            return ("", *self.known.missing)
        return (*MARKS_IN_WORDS, *self.known.missing) if self.known.missing else ()

    def _join_spellings(self) -> None:
        self.spellings = find_spellings(self.written)
        joined = self.spellings.joined
        self.form = self.form._replace(spellings=tuple(joined))
        best_of = {way: best for best, ways in joined.items() for way in ways}
        self.values = self.written.replace(best_of)

    def _leave_out_sentinels(self) -> None:
        named = self.known.sentinels
        sentinels = (*named, *find_sentinels(without(self.written, named)))
        self.form = self.form._replace(sentinels=sentinels)
        self.values = without(self.written, sentinels)

    @cached_property
    def lookalike(self) -> Lookalike:
        """What cells of text look like; empty if cells are read exactly as written."""
        if self.form.kind != "text" or self.literal:
            return Lookalike()
        return find_lookalike(self)

    @cached_property
    def marks(self) -> set[str]:
        """The words that mean a missing value."""
        return {*MARKS, *self.form.missing}

    @property
    def as_written(self) -> str:
        """The option of the command that reads the cells exactly as written."""
        return option("as-written", self.form.source or self.name)

    def note(self, what: str, detail: str, as_written: str = "") -> Note:
        """Make a note on the column.

        :param what: The sentence about several columns, after "24 columns". Its first
            word is a verb, which is in the singular for one column.
        :param detail: The part that differs from column to column, in few words.
        :param as_written: What the option --as-written does instead.
        """
        verb, _, rest = what.partition(" ")
        one = f"Column '{self.name}' {_SINGULAR[verb]} {rest}"
        together = f"{{}} {what}"
        in_brackets = [detail] if detail else []
        if as_written:
            in_brackets.append(f"{self.as_written} {as_written}")
            together += f" (--as-written {as_written})"
        if in_brackets:
            one += f" ({'; '.join(in_brackets)})"
        return Note(self.name, f"{one}.", together, detail)


def recognise(
    column: "pd.Series[Any]",
    *,
    as_written: bool = False,
    conventions: Conventions | None = None,
) -> Format:
    """Recognise how the cells of a column are read.

    :param column: Values of any type; some may be missing.
    :param as_written: Whether cells are read exactly as written: numbers with a unit or
        leading zeros are text, -999 is a number, and Yes and yes are two words.
    :param conventions: The conventions of the table; None uses only this column.
    :raises ValueError: If the cells can be read in two ways.
    """
    if conventions is None:
        conventions = conventions_of(column.to_frame())
    return Reading(column, conventions, as_written).form


def conventions_of(
    table: pd.DataFrame, stated: Conventions | None = None, sep: str = ""
) -> Conventions:
    """Find the conventions of a table from all of its cells; see
    :func:`find_conventions`.
    """
    columns = (Column(cells) for _, cells in table.items())
    texts = [column.texts for column in columns if not column.kind]
    return find_conventions(texts, stated or Conventions(), sep)


def why_drop(reading: Reading) -> Note | None:
    """Describe why a column is dropped; None if it is kept."""
    kind, reason = _reason_to_drop(reading)
    if not reason:
        return None
    alone = f"{DROPPED} '{reading.name}': {reason}."
    return Note(reading.name, alone, f"Dropped {{}} {kind}", reason)


def _reason_to_drop(reading: Reading) -> tuple[str, str]:
    """Describe the kind of columns that are dropped, and why this column is. The reason
    is empty if it is kept.
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
    """Write that most cells have different texts; empty if they do not."""
    words = reading.values[reading.cells.notna()]
    if words.nunique() <= max(2, len(words) // 2):
        return ""
    what = reading.lookalike.what or f"such as {words.iloc[0]!r}"
    return f"{words.nunique()} of its {len(words)} texts differ, {what}"


def _how_rows_are_numbered(reading: Reading) -> str:
    """Write that a column numbers the rows; empty if it does not."""
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


def how_read(reading: Reading) -> Iterator[Note]:
    """Describe how cells were read, unless that is obvious."""
    form = reading.form
    if reading.cells.isna().all():
        return
    if form.kind == "text":
        yield from _about_words(reading)
        return
    if form.kind == "date":
        yield _about_dates(reading)
    else:
        yield from _about_numbers(reading)
    new_missing = [word for word in form.missing if word not in reading.known.missing]
    if new_missing:
        what = "have words that are read as missing"
        yield reading.note(what, listed(new_missing))


def _about_dates(reading: Reading) -> Note:
    form = reading.form
    become = "which become days since 1970-01-01"
    example = ""
    if form.pattern:
        word = next(word for word in reading.counts if word not in reading.marks)
        (date,) = read_words([word], form)
        shown = f"{pd.Timestamp(date):%Y-%m-%d %H:%M}".removesuffix(" 00:00")
        example = f"'{word}' is {shown}"
    period = PERIODS.get(form.pattern)
    if period is None:
        return reading.note(f"hold dates, {become}", example)
    return reading.note(f"hold {period.of}, {become}", example, "keeps them as words")


def _about_numbers(reading: Reading) -> Iterator[Note]:
    texts = dict.fromkeys(reading.texts)
    words = [word for word in texts if not (word in reading.marks or is_limit(word))]
    if words:
        telling = next(filter(_TELLING.search, words), words[0])
        yield from _about_number(reading, telling)
    values = reading.values.dropna()
    if may_be_months(values.to_numpy()) and values.nunique() >= FEWEST:
        month = as_month_with_point(values.iloc[0])
        yield reading.note(
            "have numbers that may be months, and are read as numbers",
            f"{values.iloc[0]:.15g} may be {month}; write months as 2023-01",
        )


def _about_number(reading: Reading, cell: str) -> Iterator[Note]:
    """Describe how a number in text was read, unless it is a plain number."""
    (value,) = read_words([cell], reading.form)
    if PLAIN["."].fullmatch(cell) and float(cell) == value:
        return
    example = f"'{cell}' is {value:.15g}"
    if reading.form.unit == HOURS:
        example += " hours"
    if is_code(cell):
        example += f"; {reading.as_written} keeps them as words"
    yield reading.note("have text that is read as numbers", example)


def about_limits(reading: Reading) -> Iterator[Note]:
    """Describe limits such as <0.5 that are read as numbers."""
    if reading.form.kind != "number":
        return
    limits = [cell for cell in reading.texts if is_limit(cell)]
    if not limits:
        return
    (value,) = read_words(limits[:1], reading.form)
    example = f"'{limits[0]}' is {value:.15g}"
    rows = counted(len(limits), "row")
    yield reading.note("have limits that are read as numbers", f"{rows}, {example}")


def _about_words(reading: Reading) -> Iterator[Note]:
    what = reading.lookalike.what
    if what:
        kind = "have cells that look like numbers or dates, and are read as words"
        yield reading.note(kind, what)


def about_many_texts(reading: Reading) -> Iterator[Note]:
    """Describe how many texts get their own column."""
    count = reading.values.nunique()
    if reading.form.kind == "text" and count > MAX_CATEGORIES:
        what = (
            f"have many different texts: the {MAX_CATEGORIES} most frequent become a"
            " column each, and all others become one"
        )
        yield reading.note(what, f"{count} texts")


def how_joined(reading: Reading) -> Iterator[Note]:
    """Describe which cells are read as missing, and which words are joined with
    others.
    """
    yield from _about_sentinels(reading)
    yield from _about_marks(reading)
    if reading.form.kind == "text":
        yield from _about_marks_among_words(reading)
        yield from _about_spellings(reading)
        yield from _about_short_words(reading)


def _about_sentinels(reading: Reading) -> Iterator[Note]:
    """Describe numbers that are read as missing, because the user listed them or
    because they were found.
    """
    named = []
    found = []
    for sentinel in reading.form.sentinels:
        count = int((reading.written == sentinel).sum())
        rows = f"{sentinel:g} in {counted(count, 'row')}"
        if count and sentinel in reading.known.sentinels:
            named.append(rows)
        elif count:
            found.append(rows)
    if named:
        what = "have numbers that --missing reads as missing"
        yield reading.note(what, " and ".join(named))
    if found:
        what = "have numbers that are far from all others, and are read as missing"
        yield reading.note(what, " and ".join(found), "reads them as numbers")


def _about_marks(reading: Reading) -> Iterator[Note]:
    """Describe marks that are read as missing and may be words."""
    is_text = reading.form.kind == "text"
    if is_text and reading.literal:
        return
    texts = reading.texts
    marks = {*(MARKS_IN_WORDS if is_text else MARKS)} - {
        "",
        *reading.known.missing,
    }
    found = [cell for cell in texts if cell in marks]
    values = [cell for cell in texts if cell not in MARKS]
    if not found or not (is_text or may_be_classes(found, values)):
        return
    names = sorted({*found})
    count = counted(len(found), "cell")
    detail = f"{listed(names)} in {count}"
    what = "have marks that are read as missing"
    yield reading.note(what, detail, "keeps them as text")


def _about_marks_among_words(reading: Reading) -> Iterator[Note]:
    marks = [word for word in WORDS_OF_NOTHING if (reading.written == word).any()]
    if marks:
        remedy = f"--missing {','.join(marks)} reads them as missing"
        yield reading.note("have marks that are kept as text", remedy)


def _about_spellings(reading: Reading) -> Iterator[Note]:
    joined = {best: sorted(ways) for best, ways in reading.spellings.joined.items()}
    if not joined:
        return
    details = [f"{listed(ways)} as '{best}'" for best, ways in joined.items()]
    what = "have words in several spellings, of which the most frequent one is read"
    yield reading.note(what, ", ".join(details), "keeps them apart")


def _about_short_words(reading: Reading) -> Iterator[Note]:
    """List short words that may be one word in two spellings."""
    apart = reading.spellings.apart
    if not apart:
        return
    groups = ", ".join(" and ".join(map(repr, words)) for words in apart)
    what = "have short words that may be one word in two spellings, and are kept apart"
    yield reading.note(what, groups)
