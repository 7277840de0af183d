"""Read CSV, compressed, Parquet and Excel tables."""

import csv
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ..refusals import refusal
from .contents import (
    MISSING,
    TableFault,
    as_number,
    check_names,
    decode,
    read_content,
    unreadable,
)
from .headers import count_title_rows, names_of_places, title_note
from .spreadsheets import is_spreadsheet, read_spreadsheet

_SEPARATORS = (",", ";", "\t", "|")
_SPACES = r"\s+"
#: The separator and the decimal point are recognised from so many rows.
_SAMPLE = 1000
#: Names and titles are looked for in so many characters.
_BEGINNING = 2**20
_HINT = re.compile(r'"?sep=(.)"?')


class _Dialect(NamedTuple):
    """How a text is cut into cells: the separator, or :data:`_SPACES`, and the decimal point."""

    sep: str
    decimal: str


def read_table(
    path: str | PathLike[str],
    *,
    sep: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
    sheet: str | None = None,
) -> pd.DataFrame:
    """
    Read a table: a line of column names, then a line for each row; or a Parquet or Excel file.

    The file may be compressed (gzip, bzip2, xz, zip), lines before the names may start with # or be
    titles, the names may be absent, and rows may begin with a name or number as R writes them.
    Arguments that are None are recognised; the ``attrs`` of the table have those of text or of a
    sheet by these names, and under "notes" sentences that say what was done to it, if anything.
    Values stay as they are but for spaces before them; empty cells and words such as NA and ? are
    missing.

    :param path: The file; "-" for the standard input.
    :param sep: What separates the cells: a character, or the regular expression for spaces.
    :param decimal: The decimal point, "." or ",".
    :param encoding: The encoding of the text. UTF-8, 16 and 32 are recognised; text in none of them
        is taken as Windows-1252.
    :param header: Whether the first line has the names of columns; without they are x0, x1, ...
    :param sheet: The name of a sheet of an Excel file; None: the first that is not empty.
    :raises ValueError: If there is no such file, or it is empty, is no text, has no rows but the
        names, two columns of one name, or rows of different length.
    """
    try:
        content = read_content(Path(path))
        if content.startswith(b"PAR1"):
            return _read_parquet(content)
        if is_spreadsheet(content):
            return read_spreadsheet(content, sheet, header)
        if sheet is not None:
            got, expected = f"{sheet!r} for a file without sheets", "an Excel file (.xlsx)"
            raise refusal("sheet", got, expected, "Leave it out.")
        text, encoding = decode(content, encoding)
        num_lines = text.count("\n")
        hint = _HINT.fullmatch(text[:20].split("\n", 1)[0].strip())
        if hint:
            sep, text = sep or hint[1], text.split("\n", 1)[1] if "\n" in text else ""
        text, notes = _begin_with_names(_without_comments(text, sep), sep, header)
        dialect = _find_dialect(text, sep, decimal)
        names = _check_rows(text, dialect, num_lines - text.count("\n"))
        table = _parse(text, dialect, names)
    except TableFault as fault:
        raise ValueError(f"{path}{fault}") from fault.__cause__
    table.attrs = {**dialect._asdict(), "encoding": encoding, **({"notes": notes} if notes else {})}
    return table


def _read_parquet(content: bytes) -> pd.DataFrame:
    try:
        import pyarrow
    except ImportError as error:
        raise TableFault(
            " is a Parquet file, which needs pyarrow, which is not installed. Run: pip install"
            " 'gpflow-pep[parquet]'; or save the table as CSV."
        ) from error
    with unreadable():
        try:
            table = pd.read_parquet(io.BytesIO(content), engine="pyarrow")
        except pyarrow.ArrowException as error:
            raise ValueError(str(error)) from error
    if not isinstance(table.index, pd.RangeIndex):
        table = table.reset_index()
    table.columns = pd.Index([str(name) for name in table.columns])
    check_names(list(table.columns))
    if table.empty:
        raise TableFault(" has no rows, expected some. Check how it was written.")
    return table


def _records(text: str, sep: str) -> Iterator[tuple[int, list[str]]]:
    """Cut into cells; lines count from 1. Blank lines are left out."""
    if sep == _SPACES:
        lines: Any = (line.strip() for line in io.StringIO(text, newline=None))
        for number, line in enumerate(lines, 1):
            if line:
                yield number, next(csv.reader([re.sub(r"\s+", " ", line)], delimiter=" "))
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sep, skipinitialspace=True)
    for record in reader:
        if len(record) > 1 or (record and record[0].strip()):
            yield reader.line_num, record


def _first_records(text: str, sep: str, most: int = _SAMPLE) -> list[list[str]]:
    """Cut the first rows into cells; none where the text cannot be cut so."""
    try:
        return [record for _, record in islice(_records(text, sep), most)]
    except csv.Error:
        return []


def _find_dialect(text: str, sep: str | None, decimal: str | None) -> _Dialect:
    if sep is None:
        sep = max((*_SEPARATORS, _SPACES), key=partial(_suits, text))
        if _suits(text, sep) <= (0.0, 0):
            sep = next((mark for mark in _SEPARATORS if mark not in text), ",")
    elif sep != _SPACES and (len(sep) != 1 or sep in '"\r\n'):
        expected = f"one character, or {_SPACES!r} for spaces"
        raise refusal("sep", repr(sep), expected, "Leave it out to have it recognised.")
    if decimal is None:
        decimal = _find_decimal(text, sep)
    elif decimal not in (".", ","):
        raise refusal("decimal", repr(decimal), "'.' or ','", "Leave it out if unsure.")
    return _Dialect(sep, decimal)


def _suits(text: str, sep: str) -> tuple[float, int]:
    """How well a separator suits: the share of rows as long as the second, and their length."""
    records = _first_records(text, sep)
    if not records or len(records[0]) < 2:
        return 0.0, 0
    length = len(records[0])
    if len(records) > 1 and len(records[1]) == length + 1:
        length += 1
    if sep == _SPACES and not all(any(map(_is_number, record)) for record in records[1:]):
        return 0.0, 0  # words of a sentence
    share = sum(len(record) == length for record in records) / len(records)
    if sep == _SPACES:
        share /= 2.0  # cells have spaces too
    return share, length


def _is_number(cell: str) -> bool:
    return as_number(cell) is not None


def _find_decimal(text: str, sep: str) -> str:
    """Find the decimal point: what most numbers that can only be read in one way have."""
    cells = [cell.strip() for row in _first_records(text, sep)[1:] for cell in row]
    points = sum(bool(re.fullmatch(r"[+-]?\d*\.\d+([eE][+-]?\d+)?", cell)) for cell in cells)
    sure = r"[+-]?(\d*,\d{1,2}|\d*,\d{4,}|0,\d+|\d{4,},\d+|,\d+|\d{1,3}(\.\d{3})+,\d+)"
    commas = sum(bool(re.fullmatch(rf"{sure}([eE][+-]?\d+)?", cell)) for cell in cells)
    if commas == 0 and sep == ";":
        # 1,234: semicolons are there because commas are decimal points.
        commas = sum(bool(re.fullmatch(r"[+-]?\d{1,3},\d{3}", cell)) for cell in cells)
    return "," if commas > points else "."


def _check_rows(text: str, dialect: _Dialect, skipped: int) -> list[str]:
    """Check that all rows are as long as the first, and give the names in that."""
    with unreadable():
        records = _records(text, dialect.sep)
        _, header = next(records)
        rows = [(line, len(row), row[0], row[-1].strip()) for line, row in records]
    width = len(header)
    if rows and all(length == width + 1 for _, length, _, _ in rows):
        firsts = [first for _, _, first, _ in rows]
        if not any(last for *_, last in rows):
            header = [*header, ""]  # a separator at the end of each row
        elif firsts == [str(i) for i in range(1, len(rows) + 1)] or (
            len(set(firsts)) == len(rows) and not any(map(_is_number, firsts))
        ):
            header = ["", *header]  # as R writes the names of rows
    for line, length, _, _ in rows:
        if length != len(header):
            raise TableFault(
                f", line {line + skipped}: got {length} value(s), expected {len(header)}, one for"
                f" each column name (cells are separated by {dialect.sep!r}). Correct the line, put"
                " quotes around cells that hold separators, or name the separator."
            )
    names = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(header)]
    check_names(names)
    if not rows:
        raise TableFault(
            f" has only a line of column names ({', '.join(names)}), expected rows under it. Check"
            " how it was written."
        )
    return names


def _without_comments(text: str, sep: str | None) -> str:
    """Leave out lines that start with #, but for the sign itself where the last holds the names."""
    comments = re.match(r"(?:#[^\n]*\n)+", text)
    if not comments:
        return text
    *_, last = comments[0].splitlines()
    rest = text[comments.end() :]
    rest_sep = _find_dialect(rest, sep, None).sep
    widths = [*map(len, _first_records(last[1:].strip() + "\n" + rest, rest_sep, 2))]
    is_header = len(widths) == 2 and widths[0] == widths[1] > 1
    return last[1:].strip(" ") + "\n" + rest if is_header else rest


def _begin_with_names(text: str, sep: str | None, header: bool | None) -> tuple[str, list[str]]:
    """Leave out titles above the column names, or give columns names; and say so."""
    notes = []
    if header is None:
        text, note = _without_titles(text, sep)
        notes += [note] * bool(note)
    beginning = _beginning(text)
    mark = _find_dialect(beginning, sep, None).sep
    rows = _first_records(beginning, mark)
    names, why = names_of_places(rows, len(rows[0]) if rows else 0, header)
    if names:
        text = (" " if mark == _SPACES else mark).join(names) + "\n" + text
    return text, notes + why


def _beginning(text: str) -> str:
    """Give the first lines, in which names and titles are looked for."""
    if len(text) <= _BEGINNING:
        return text
    end = max(text.rfind(end, 0, _BEGINNING) for end in "\r\n")
    return text[: end + 1] or text


def _without_titles(text: str, sep: str | None) -> tuple[str, str]:
    """Leave out titles and blank lines above the column names; say which, or nothing."""
    marks: Sequence[str] = (sep,) if sep else _SEPARATORS
    beginning = _beginning(text)
    best = max(marks, key=partial(_suits, beginning))
    if _suits(beginning, best)[0] >= 0.9:
        marks = (best,)
    widest, rest, note = 0, text, ""
    for mark in marks:
        if len(mark) != 1:
            continue
        lines = io.StringIO(beginning, newline="")
        reader = csv.reader(lines, delimiter=mark, skipinitialspace=True)
        try:
            numbered = [(reader.line_num, row) for row in islice(reader, _SAMPLE)]
        except csv.Error:
            continue
        rows = [row for _, row in numbered]
        start = count_title_rows(rows)
        if start and len(rows[start]) > widest:
            lines = io.StringIO(text, newline="")
            rest = "".join(islice(lines, numbered[start - 1][0], None))
            widest, note = len(rows[start]), title_note(rows[:start])
    return rest, note


def _parse(text: str, dialect: _Dialect, names: list[str]) -> pd.DataFrame:
    with unreadable(), warnings.catch_warnings():
        warnings.simplefilter("ignore", pd.errors.ParserWarning)
        return pd.read_csv(
            io.StringIO(text),
            sep=dialect.sep,
            decimal=dialect.decimal,
            header=0,
            names=names,
            index_col=False,
            skipinitialspace=True,
            na_values=MISSING,
            float_precision="round_trip",
            low_memory=False,
        )
