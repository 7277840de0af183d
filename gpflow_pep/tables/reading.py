"""Reading of tables from CSV, compressed, Parquet and Excel files."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from ..engine.files import path_of
from ..engine.refusals import refusal
from .contents import SAMPLE, TableFault, as_number, decode, read_content, unreadable
from .conventions import (
    MARKS,
    PLAIN,
    WHOLE,
    find_conventions,
    given_conventions,
    ways_of_writing,
)
from .headers import count_title_rows, distinct, names_of_places, title_note
from .recognising import is_large_label, may_be_classes
from .spreadsheets import is_spreadsheet, read_spreadsheet

#: The cells of a row are a tuple, because Python's garbage collector does not search
#: tuples of text again and again.
_Row: TypeAlias = tuple[str, ...]
_SEPARATORS = (",", ";", "\t", "|")
_SPACES = r"\s+"
#: The number of characters in which names and titles are looked for.
_BEGINNING = 2**20
_TRUTH = {
    "True": True,
    "TRUE": True,
    "true": True,
    "False": False,
    "FALSE": False,
    "false": False,
    "": None,
}
_HINT = re.compile(r'"?sep=(.)"?')


def read_table(
    path: str | PathLike[str],
    *,
    sep: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
    sheet: str | None = None,
) -> pd.DataFrame:
    """Read a table: a line of column names, then a line for each row; or a Parquet or
    Excel file.

    The file may be compressed (gzip, bzip2, xz, zip), lines before the names may start
    with # or be titles, the names may be absent, and rows may begin with a name or
    number as R writes them. Arguments that are None are recognised. The ``attrs`` of
    the table have the recognised arguments by name, and under "notes" and "warnings"
    sentences on what was done to the table. Columns of plain numbers become numbers; in
    these, empty cells, NA, ? and similar marks are missing. All other cells remain
    text, without leading spaces. So do numbers such as 1,234 if no cell of the file
    shows which mark is the decimal mark, and numbers with NA or ? that repeat, which
    may be classes.

    :param path: The file; "-" for the standard input.
    :param sep: The separator of the cells: a character, or the regular expression for
        spaces.
    :param decimal: The decimal mark, "." or ",".
    :param thousands: The separator of thousands: "." or ",", which is then not the
        decimal mark, or another mark.
    :param encoding: The encoding of the text. UTF-8 is recognised, and so are UTF-16
        and 32 by their first bytes; other text is read as Windows-1252.
    :param header: Whether the first line has the column names; columns without names
        are called x0, x1, ...
    :param sheet: The name of a sheet of an Excel file; None selects the first that is
        not empty.
    :raises ValueError: If there is no such file, or if it is empty, is not text, has
        only column names, or has rows that are longer than the line of names.
    """
    stated = given_conventions(decimal, thousands)
    try:
        content = read_content(path_of(path, "Download the table and pass the file."))
        parquet = content.startswith(b"PAR1")
        if parquet or is_spreadsheet(content):
            table = (
                _read_parquet(content)
                if parquet
                else read_spreadsheet(content, sheet, header)
            )
            marks = {"decimal": stated.decimal, "thousands": stated.thousands}
            table.attrs |= {name: mark for name, mark in marks.items() if mark}
            return table
        if sheet is not None:
            got = f"{sheet!r} for a file without sheets"
            raise refusal("sheet", got, "an Excel file (.xlsx)", "Leave it out.")
        text, encoding = decode(content, encoding)
        num_lines = text.count("\n")
        hint = _HINT.fullmatch(text[:20].partition("\n")[0].strip())
        if hint:
            sep = sep or hint[1]
            text = text.partition("\n")[2]
        _check_sep(sep)
        text = _without_comments(text, sep)
        text, sep, notes = _begin_with_names(text, sep, header)
        cells = _cut(text, sep, num_lines - text.count("\n"))
    except TableFault as fault:
        raise ValueError(f"{path}{fault}") from fault.__cause__
    columns = [list(map(str.strip, cells[name])) for name in cells]
    known = find_conventions(columns, stated, sep)
    table = pd.DataFrame({name: _typed(cells[name], known.decimal) for name in cells})
    about: dict[str, Any] = {
        "sep": sep,
        "decimal": known.decimal,
        "thousands": known.thousands,
        "encoding": encoding,
        "notes": notes + cells.attrs["notes"],
        "warnings": cells.attrs["warnings"],
    }
    table.attrs = {key: value for key, value in about.items() if value}
    return table


def _typed(column: "pd.Series[Any]", decimal: str) -> "pd.Series[Any]":
    """Convert text to numbers or truth values if all cells are plain numbers or truth
    values, or marks of missing values.

    :param column: Cells of text; empty for an empty cell.
    :param decimal: The decimal mark; empty if it is not known.
    """
    cells = list(map(str.strip, column))
    marks = {*MARKS}.intersection(cells)
    values = [cell for cell in cells if cell not in marks]
    ways = {*ways_of_writing(values)} - {""}
    if ways and ways | marks <= {*_TRUTH}:
        return pd.Series([_TRUTH[cell] for cell in cells], column.index)
    text = column.where(column != "", None)
    all_whole = all(map(WHOLE.fullmatch, ways))
    are_numbers = all_whole or _are_plain(ways, decimal)
    if not are_numbers or may_be_classes(marks, values):
        return text
    if all_whole and not marks:
        try:
            return pd.Series(list(map(int, cells)), column.index, dtype=np.int64)
        except OverflowError:
            pass  # floating point holds larger numbers
    if all_whole and any(map(is_large_label, values)):
        return text
    return pd.Series(_floats(cells, marks, decimal or "."), column.index)


def _floats(cells: Iterable[str], marks: set[str], decimal: str) -> list[float]:
    return [
        np.nan if cell in marks else float(cell.replace(decimal, ".")) for cell in cells
    ]


def _are_plain(numbers: Iterable[str], decimal: str) -> bool:
    """Whether all are plain numbers with the decimal mark. If the mark is not known,
    plain numbers have no mark, such as 1e-05.
    """
    if not decimal and any("." in text for text in numbers):
        return False
    return all(map(PLAIN[decimal or "."].fullmatch, numbers))


def _read_parquet(content: bytes) -> pd.DataFrame:
    try:
        import pyarrow
    except ImportError as error:
        raise TableFault(
            " is a Parquet file, which needs pyarrow, but pyarrow is not installed."
            " Run: pip install 'gpflow-pep[parquet]'; or save the table as CSV."
        ) from error
    with unreadable():
        try:
            table = pd.read_parquet(io.BytesIO(content), engine="pyarrow")
        except pyarrow.ArrowException as error:
            raise ValueError(str(error)) from error
    if not isinstance(table.index, pd.RangeIndex):
        table = table.reset_index()
    table.columns, notes = distinct([str(name) for name in table.columns])
    table.attrs = {"notes": notes} if notes else {}
    if table.empty:
        raise TableFault(
            " has no rows, expected at least one. Check how the file was written."
        )
    return table


def _rows(text: str, sep: str, strict: bool = False) -> Iterator[tuple[int, _Row]]:
    """Split text into rows of cells, with the numbers of their lines, counted from
    1.
    """
    lines: Iterable[str] = io.StringIO(text, newline="")
    if sep == _SPACES:
        lines = (" ".join(line.split()) for line in io.StringIO(text, newline=None))
        sep = " "
    reader = csv.reader(lines, delimiter=sep, skipinitialspace=True, strict=strict)
    for record in reader:
        yield reader.line_num, tuple(record)


def _records(text: str, sep: str, strict: bool = False) -> Iterator[tuple[int, _Row]]:
    """Split text into rows, without blank rows."""
    for line, row in _rows(text, sep, strict):
        if len(row) > 1 or (row and row[0].strip()):
            yield line, row


def _first(
    rows: Iterator[tuple[int, _Row]], most: int = SAMPLE
) -> list[tuple[int, _Row]]:
    """Return the first rows; empty if the text cannot be split with this separator."""
    try:
        return list(islice(rows, most))
    except csv.Error:
        return []


def _first_records(text: str, sep: str, most: int = SAMPLE) -> list[_Row]:
    return [row for _, row in _first(_records(text, sep), most)]


def _check_sep(sep: str | None) -> None:
    """Refuse separators that cannot be used. The messages of csv would differ between
    versions of Python.
    """
    if sep is None or sep == _SPACES:
        return
    if len(sep) != 1 or sep in '"\r\n':
        expected = f"one character, or {_SPACES!r} for spaces"
        raise refusal(
            "sep", repr(sep), expected, "Leave it out to have the separator recognised."
        )


def _find_sep(text: str, sep: str | None) -> str:
    if sep is None:
        sep = max((*_SEPARATORS, _SPACES), key=partial(_suits, text))
        if not _suits(text, sep)[0]:
            sep = next((mark for mark in _SEPARATORS if mark not in text), ",")
    return sep


def _suits(text: str, sep: str) -> tuple[float, float, int]:
    """
    Rate a separator: the share of rows as long as the second row, the share of cells
    that are numbers, and the length of the second row.
    """
    records = _first_records(text, sep)
    if not records or len(records[0]) < 2:
        return 0.0, 0.0, 0
    length = len(records[0])
    if len(records) > 1 and len(records[1]) == length + 1:
        length += 1
    numbers = [
        [as_number(cell.strip()) is not None for cell in record] for record in records
    ]
    if sep == _SPACES and not all(map(any, numbers[1:])):
        return 0.0, 0.0, 0  # the words of a sentence
    share = sum(len(record) == length for record in records) / len(records)
    if sep == _SPACES:
        share /= 2.0  # cells may also contain spaces
    return share, sum(map(sum, numbers)) / sum(map(len, numbers)), length


def _cut(text: str, sep: str, skipped: int) -> pd.DataFrame:
    """Split text into cells of text, and refuse rows that are longer than the first
    row. The ``attrs`` have notes and warnings.

    :param skipped: The number of lines above the text.
    """
    header, rows = _split_off_header(text, sep)
    width = len(header)
    odd = [(line + skipped, row) for line, row in rows if len(row) != width]
    short = [line for line, row in odd if len(row) < width]
    # If spaces separate cells, an empty cell cannot be seen, so that any cell of a
    # short row may be missing.
    refused = width if sep == _SPACES or 2 * len(short) > len(rows) else 0
    for line, row in odd:
        if any(map(str.strip, row[width:])) or len(row) < refused:
            raise TableFault(
                f", line {line}: got {len(row)} value(s), expected {width}, one for"
                f" each column name (cells are separated by {sep!r}). Correct the"
                " line, put quotes around cells that contain separators, or set the"
                " separator (--sep)."
            )
    names = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(header)]
    names, notes = distinct(names)
    if not rows:
        raise TableFault(
            f" has only a line of column names ({', '.join(names)}), expected rows"
            " below it. Check how the file was written."
        )
    cells = [row for _, row in rows]
    if odd:
        cells = [(*row[:width], *[""] * (width - len(row))) for row in cells]
    table = pd.DataFrame(cells, columns=names, dtype=object)
    table.attrs = {"notes": notes, "warnings": []}
    if short:
        table.attrs["warnings"].append(
            f"{len(short)} of {len(rows)} lines have fewer cells than there are"
            f" columns (the first is line {short[0]}). The missing cells at the end of"
            " such a line are read as empty."
        )
    return table


def _split_off_header(text: str, sep: str) -> tuple[_Row, list[tuple[int, _Row]]]:
    """Return the names of the columns, and the rows below them with the numbers of
    their lines.

    If all rows are longer by one cell, an empty name is added: at the end, if each row
    ends with a separator; or at the beginning, for the names or numbers of rows that R
    writes.
    """
    with unreadable():
        try:
            (_, header), *rows = _records(text, sep, strict=True)
        except csv.Error as error:
            if "end of data" in str(error):
                raise
            (_, header), *rows = _records(text, sep)
    if not rows or any(len(row) != len(header) + 1 for _, row in rows):
        return header, rows
    if not any(row[-1].strip() for _, row in rows):
        return (*header, ""), rows
    if _are_names_of_rows([row[0] for _, row in rows]):
        return ("", *header), rows
    return header, rows


def _are_names_of_rows(cells: Sequence[str]) -> bool:
    """Whether the cells count the rows, or are words that all differ."""
    if all(cell == str(row) for row, cell in enumerate(cells, 1)):
        return True
    differ = len(set(cells)) == len(cells)
    return differ and all(as_number(cell) is None for cell in cells)


def _without_comments(text: str, sep: str | None) -> str:
    """Leave out lines that start with #. If the last one has the column names, only the
    sign is removed.
    """
    comments = re.match(r"(?:#[^\n]*\n)+", text)
    if not comments:
        return text
    *_, last = comments[0].splitlines()
    rest = text[comments.end() :]
    rest_sep = _find_sep(rest, sep)
    widths = [*map(len, _first_records(last[1:].strip() + "\n" + rest, rest_sep, 2))]
    is_header = len(widths) == 2 and widths[0] == widths[1] > 1
    return last[1:].strip(" ") + "\n" + rest if is_header else rest


def _begin_with_names(
    text: str, sep: str | None, header: bool | None
) -> tuple[str, str, list[str]]:
    """Leave out titles above the column names, or name the columns. Return also the
    separator and notes.
    """
    notes = []
    if header is None:
        text, note = _without_titles(text, sep)
        if note:
            notes.append(note)
    beginning = _beginning(text)
    mark = _find_sep(beginning, sep)
    rows = _first_records(beginning, mark)
    names, why = names_of_places(rows, len(rows[0]) if rows else 0, header)
    if names:
        text = (" " if mark == _SPACES else mark).join(names) + "\n" + text
    return text, mark, notes + why


def _beginning(text: str) -> str:
    """Return the first lines, in which names and titles are looked for."""
    if len(text) <= _BEGINNING:
        return text
    end = max(text.rfind(end, 0, _BEGINNING) for end in "\r\n")
    return text[: end + 1] or text


def _without_titles(text: str, sep: str | None) -> tuple[str, str]:
    """Leave out titles and blank lines above the column names; return a note, or an
    empty text.
    """
    marks: Sequence[str] = (sep,) if sep else _SEPARATORS
    beginning = _beginning(text)
    best = max(marks, key=partial(_suits, beginning))
    if _suits(beginning, best)[0] >= 0.9:
        marks = (best,)
    widest = 0
    rest = text
    note = ""
    for mark in marks:
        if len(mark) != 1:
            continue
        numbered = _first(_rows(beginning, mark))
        rows = [row for _, row in numbered]
        start = count_title_rows(rows)
        if start and len(rows[start]) > widest:
            lines = io.StringIO(text, newline="")
            rest = "".join(islice(lines, numbered[start - 1][0], None))
            widest = len(rows[start])
            note = title_note(rows[:start])
    return rest, note
