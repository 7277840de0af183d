"""The content of files: reading, unpacking, decoding to text, and messages about
faults.
"""

import bz2
import csv
import gzip
import io
import lzma
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TextIO

from ..engine.refusals import refusal, with_suggestion

_BOMS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
#: The encoding that is tried for text that is not in UTF-8.
GUESSED = ("cp1252", "latin-1")
_NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?")
#: The number of rows in which names, titles and separators are looked for. Reading them
#: takes milliseconds.
SAMPLE = 1000
_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r\f\x1a")


class TableFault(Exception):
    """A fault of a file. The message follows the name of the file."""


#: RuntimeError means that a zip file is encrypted, or packed in a way that Python does
#: not support.
_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
    RuntimeError,
    StopIteration,
    csv.Error,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
)


@contextmanager
def unreadable(errors: tuple[type[Exception], ...] = _ERRORS) -> Iterator[None]:
    """Describe the fault of a file that a library cannot read."""
    try:
        yield
    except errors as error:
        raise TableFault(
            f" cannot be read ({error}), expected a table: CSV or similar text, plain"
            " or compressed, Parquet or Excel (.xlsx). Check how the file was"
            " written."
        ) from error


def _unzip(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [
            name
            for name in archive.namelist()
            if not name.endswith(("/", ".DS_Store"))
            and not name.startswith("__MACOSX/")
        ]
        if len(names) == 1:
            return archive.read(names[0])
    if "xl/workbook.xml" in names:
        return content  # for read_spreadsheet
    if "[Content_Types].xml" in names or "mimetype" in names:
        raise TableFault(
            " is a spreadsheet or document, expected text or .xlsx. Save the sheet as"
            " CSV."
        )
    raise TableFault(
        f" contains {len(names)} files, expected one. Unpack it and pass the table."
    )


_UNPACK: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
    b"PK\x03\x04": _unzip,
}


def read_content(path: Path) -> bytes:
    """Read and unpack the file, or the standard input if the name is "-"."""
    if path.is_dir():
        raise TableFault(
            " is a folder, expected a file. Pass the table in this folder."
        )
    with unreadable():
        if str(path) == "-":
            content = _content_of(sys.stdin)
        elif not path.exists():
            remedy = "Check the name and the folder."
            if path.parent.is_dir():
                names = [other.name for other in path.parent.iterdir()]
                remedy = with_suggestion(remedy, [path.name], names)
            raise TableFault(f" does not exist, expected a table. {remedy}")
        else:
            content = path.read_bytes()
        for magic, unpack in _UNPACK.items():
            if content.startswith(magic):
                content = unpack(content)
    if not content.strip():
        raise TableFault(
            " is empty, expected a line of column names and rows. Check how the file"
            " was written."
        )
    return content


@lru_cache(1)
def _content_of(stream: TextIO) -> bytes:
    """Read a stream. Its content can be read again with another encoding."""
    return stream.buffer.read()


def decode(content: bytes, encoding: str | None) -> tuple[str, str]:
    for name in [encoding] if encoding else _encodings(content):
        try:
            return content.decode(name).replace("\x00", "").lstrip("\ufeff"), name
        except LookupError:
            expected = "the name of an encoding, such as 'utf-8' or 'cp1252'"
            remedy = "Leave it out to have the encoding recognised."
            raise refusal("encoding", repr(name), expected, remedy) from None
        except ValueError as error:
            wrong = error
    raise TableFault(
        f" is not in the encoding {name} ({wrong}). Pass another encoding, or leave it"
        " out to have it recognised."
    )


def _encodings(content: bytes) -> list[str]:
    """Return encodings in the order in which to try them."""
    for bom, encoding in _BOMS.items():
        if content.startswith(bom):
            return [encoding]
    strange = len(content) - len(content.translate(None, _CONTROL))
    if b"\x00" in content or strange > 0.01 * len(content):
        raise TableFault(
            " is not text (it has control characters), expected a table: CSV or"
            " similar text, plain or compressed, Parquet or Excel (.xlsx). Save it as"
            " one of these, or pass its encoding."
        )
    return ["utf-8", *GUESSED]


def as_number(cell: str) -> float | None:
    """Read a number with a decimal point or comma; None if the cell is not a number."""
    return float(cell.replace(",", ".")) if _NUMBER.fullmatch(cell) else None
