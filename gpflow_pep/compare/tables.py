"""Read CSV, compressed and Parquet tables."""

import bz2
import csv
import gzip
import io
import lzma
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ..refusals import refusal

_SEPARATORS = (",", ";", "\t", "|")
_SPACES = r"\s+"
#: How many rows the separator and the decimal point are found out from.
_SAMPLE = 1000
#: Beside those of pandas. "?" is that of the UCI repository, "." that of SAS and Stata.
_MISSING = ["?", "-", "--", ".", "n.a.", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!"]
_BOMS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r\f\x1a")
_HINT = re.compile(r'"?sep=(.)"?')


class _Fault(Exception):
    """What is wrong with a file: the message after its name."""


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
) -> pd.DataFrame:
    """
    Read a table: a line of column names, then a line for each row; or a Parquet file.

    The file may be compressed (gzip, bzip2, xz, zip), lines before the names may start with #, and
    rows may begin with a name or number as R writes them. Arguments that are None are recognised;
    the ``attrs`` of the table have them by these names. Values stay as they are but for spaces
    before them; empty cells and words such as NA and ? are missing.

    :param path: The file.
    :param sep: What separates the cells: a character, or the regular expression for spaces.
    :param decimal: The decimal point, "." or ",".
    :param encoding: The encoding of the text. UTF-8, 16 and 32 are recognised; text in none of them
        is taken as Windows-1252.
    :raises ValueError: If there is no such file, or it is empty, is no text, has no rows but the
        names, two columns of one name, or rows of different length.
    """
    try:
        content = _content(Path(path))
        if content.startswith(b"PAR1"):
            return _read_parquet(content)
        text, encoding = _decode(content, encoding)
        num_lines = text.count("\n")
        hint = _HINT.fullmatch(text[:20].split("\n", 1)[0].strip())
        if hint:
            sep, text = sep or hint[1], text.split("\n", 1)[1] if "\n" in text else ""
        text = _without_comments(text, sep)
        dialect = _find_dialect(text, sep, decimal)
        names = _check_rows(text, dialect, num_lines - text.count("\n"))
        table = _parse(text, dialect, names)
    except _Fault as fault:
        raise ValueError(f"{path}{fault}") from fault.__cause__
    table.attrs = {**dialect._asdict(), "encoding": encoding}
    return table


@contextmanager
def _unreadable() -> Iterator[None]:
    """Say what is wrong with a file that a library cannot read."""
    try:
        yield
    # RuntimeError: a zip file is encrypted, or packed in a way that Python does not know.
    except (OSError, EOFError, ValueError, TypeError, KeyError, OverflowError, RuntimeError,
            StopIteration, csv.Error, zlib.error, lzma.LZMAError, zipfile.BadZipFile,
            ) as error:  # fmt: skip
        raise _Fault(
            f" cannot be read ({error}), expected a table: CSV or the like, plain or compressed, or"
            " Parquet. Check how it was written."
        ) from error


def _unzip(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if len(names) == 1:
            return archive.read(names[0])
    if "[Content_Types].xml" in names or "mimetype" in names:
        raise _Fault(" is a spreadsheet or document, expected text. Save the sheet as CSV.")
    raise _Fault(f" has {len(names)} files in it, expected one. Unpack it and name the table.")


_UNPACK: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
    b"PK\x03\x04": _unzip,
}


def _content(path: Path) -> bytes:
    """Read the file, and unpack it."""
    if path.is_dir():
        raise _Fault(" is a folder, expected a file. Name the table in it.")
    with _unreadable():
        if not path.exists():
            raise _Fault(" does not exist, expected a table. Check the name and the folder.")
        content = path.read_bytes()
        for magic, unpack in _UNPACK.items():
            if content.startswith(magic):
                content = unpack(content)
    if not content.strip():
        raise _Fault(
            " is empty, expected a line of column names and rows. Check how it was written."
        )
    return content


def _read_parquet(content: bytes) -> pd.DataFrame:
    try:
        import pyarrow
    except ImportError as error:
        raise _Fault(
            " is a Parquet file, which needs pyarrow, which is not installed. Run: pip install"
            " 'gpflow-pep[parquet]'; or save the table as CSV."
        ) from error
    with _unreadable():
        try:
            table = pd.read_parquet(io.BytesIO(content), engine="pyarrow")
        except pyarrow.ArrowException as error:
            raise ValueError(str(error)) from error
    if not isinstance(table.index, pd.RangeIndex):
        table = table.reset_index()
    table.columns = pd.Index([str(name) for name in table.columns])
    _check_names(list(table.columns))
    if table.empty:
        raise _Fault(" has no rows, expected some. Check how it was written.")
    return table


def _decode(content: bytes, encoding: str | None) -> tuple[str, str]:
    for name in [encoding] if encoding else _encodings(content):
        try:
            return content.decode(name).replace("\x00", "").lstrip("\ufeff"), name
        except LookupError:
            expected = "the name of an encoding, such as 'utf-8' or 'cp1252'"
            remedy = "Leave it out to have it recognised."
            raise refusal("encoding", repr(name), expected, remedy) from None
        except ValueError as error:
            wrong = error
    raise _Fault(
        f" is not in the encoding {name} ({wrong}). Name another, or leave it out to have it"
        " recognised."
    )


def _encodings(content: bytes) -> list[str]:
    """Give encodings in the order in which to try them."""
    for bom, encoding in _BOMS.items():
        if content.startswith(bom):
            return [encoding]
    start = content[:4096]
    even, odd = start[::2].count(0), start[1::2].count(0)
    for few, many, encoding in ((even, odd, "utf-16-le"), (odd, even, "utf-16-be")):
        if many > 0.3 * len(start[::2]) and few < 0.1 * many:
            return [encoding]
    strange = len(content) - len(content.translate(None, _CONTROL))
    if b"\x00" in content or strange > 0.01 * len(content):
        raise _Fault(
            " is no text (it has control characters), expected a table: CSV or the like, plain or"
            " compressed, or Parquet. Save it as one of these, or name its encoding."
        )
    return ["utf-8", "cp1252", "latin-1"]


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
    return bool(re.fullmatch(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?", cell))


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


def _check_names(names: Sequence[str]) -> None:
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise _Fault(
            f" has more than one column named {', '.join(duplicates)}, expected different names."
            " Rename or remove the copies; or is the first line no line of names?"
        )


def _check_rows(text: str, dialect: _Dialect, skipped: int) -> list[str]:
    """Check that all rows are as long as the first, and give the names in that."""
    with _unreadable():
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
            raise _Fault(
                f", line {line + skipped}: got {length} value(s), expected {len(header)}, one for"
                f" each column name (cells are separated by {dialect.sep!r}). Correct the line, put"
                " quotes around cells that hold separators, or name the separator."
            )
    names = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(header)]
    _check_names(names)
    if not rows:
        raise _Fault(
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


def _parse(text: str, dialect: _Dialect, names: list[str]) -> pd.DataFrame:
    with _unreadable(), warnings.catch_warnings():
        warnings.simplefilter("ignore", pd.errors.ParserWarning)
        return pd.read_csv(
            io.StringIO(text),
            sep=dialect.sep,
            decimal=dialect.decimal,
            header=0,
            names=names,
            index_col=False,
            skipinitialspace=True,
            na_values=_MISSING,
            float_precision="round_trip",
            low_memory=False,
        )
