"""The files of a saved estimator: written whole or not at all, and checked when read."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from gpflow.base import AnyNDArray

from ..engine.checks import refusal
from ..engine.files import (
    MODEL,
    atomic_folder,
    check_present,
    check_replaceable,
    check_writable,
    digest_of,
    files_in,
    read_arrays,
    undamaged,
)

DESCRIPTION, ARRAYS, PIPELINE = MODEL, "arrays.npz", "pipeline.skops"
#: The format that is written.
FORMAT = 7
#: The files of each format that can be read. A format that was written once stays here.
FILES = dict.fromkeys((6, FORMAT), (DESCRIPTION, ARRAYS, PIPELINE))
#: A text for people, which is not read.
CARD = "README.md"
REMEDY = "Pass the folder that save_estimator wrote, or save the estimator again."
_EXPECTED = "the files as save_estimator wrote them"


class SavedFiles(NamedTuple):
    """What the files hold."""

    content: dict[str, Any]
    """The description, without format, versions and digest: what JSON can hold."""

    arrays: dict[str, AnyNDArray]
    """Of finite numbers or words."""

    pipeline: bytes
    """What skops wrote."""


@contextmanager
def replaced_folder(folder: str | PathLike[str], description: str) -> Iterator[Path]:
    """
    Give a folder to write, which appears when all is written; until then an earlier one stays.

    :param description: The file that names the files of the folder; one with others is refused.
    """
    folder = Path(folder).resolve() if "://" not in str(folder) else Path(folder)
    check_writable(folder if folder.exists() else folder.parent, "Choose another folder.")
    check_replaceable(folder, description, "Choose another folder, or move the file away.")
    with atomic_folder(folder, description) as new:
        new.mkdir()
        yield new


def write_files(
    folder: str | PathLike[str], saved: SavedFiles, versions: dict[str, str], card: str
) -> None:
    """Write what :func:`read_files` reads, and a text for people."""
    with replaced_folder(folder, DESCRIPTION) as new:
        if card:
            (new / CARD).write_text(card, encoding="utf-8")
        np.savez(new / ARRAYS, **saved.arrays)
        (new / PIPELINE).write_bytes(saved.pipeline)
        description = {
            "format": FORMAT,
            "versions": versions,
            "files": sorted({*files_in(new), DESCRIPTION}),
            "digest": digest(saved.content, new, FORMAT),
            **saved.content,
        }
        text = json.dumps(description, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        (new / DESCRIPTION).write_text(text, encoding="utf-8")


def digest(content: Any, folder: Path, file_format: int) -> str:
    """Compute a hash of the content and of the other files, but not of format and versions."""
    return digest_of(content, [folder / name for name in FILES[file_format][1:]])


def read_files(folder: str | PathLike[str]) -> SavedFiles:
    """
    Read what :func:`write_files` wrote, in this version or an earlier one; refuse what is damaged.
    """
    folder = Path(folder)
    check_present(folder, FILES[FORMAT][:1], REMEDY)
    with undamaged(folder / DESCRIPTION, _EXPECTED, REMEDY):
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    file_format = description.get("format") if isinstance(description, dict) else None
    if not isinstance(file_format, int) or file_format not in FILES:
        raise refusal(
            str(folder / DESCRIPTION),
            f"format {file_format!r}",
            f"one of {', '.join(map(str, FILES))}",
            "Load it with the version of gpflow_pep that wrote it, or save the estimator again.",
        )
    check_present(folder, FILES[file_format], REMEDY)
    header = ("format", "versions", "files", "digest")
    content = {name: part for name, part in description.items() if name not in header}
    with undamaged(folder, _EXPECTED, REMEDY):
        if digest(content, folder, file_format) != description.get("digest"):
            raise ValueError("the digest of the files is another")
    arrays = read_arrays(folder / ARRAYS, _EXPECTED, REMEDY)
    return SavedFiles(content, arrays, _of_this_version((folder / PIPELINE).read_bytes()))


def _of_this_version(pipeline: bytes) -> bytes:
    """Name classes of tables by their modules of this version; 0.2.0 had them in ``columns``."""
    with ZipFile(BytesIO(pipeline)) as written:
        parts = {name: written.read(name) for name in written.namelist()}
    old = rb'("__module__": "gpflow_pep\.)columns\b'
    schema, count = re.subn(old, rb"\1tables", parts.get("schema.json", b""))
    if not count:
        return pipeline
    with ZipFile(renamed := BytesIO(), "w", ZIP_DEFLATED) as new:
        for name, part in {**parts, "schema.json": schema}.items():
            new.writestr(name, part)
    return renamed.getvalue()
