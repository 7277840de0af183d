"""The files of a scorer: JSON and NumPy arrays, no pickle."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engine.files import SCORER, check_present, digest_of, read_arrays, undamaged
from ..engine.refusals import refusal

DESCRIPTION, ARRAYS = FILES = (SCORER, "arrays.npz")
#: The format that is written and read.
FORMAT = 1
REMEDY = "Pass the folder that export_numpy wrote, or export the estimator again."
#: An array in the description: this key, with its name in the other file.
_ARRAY = "array"


def write_parts(folder: Path, parts: Mapping[str, Any], versions: Mapping[str, str]) -> None:
    """
    Write what :func:`read_parts` reads into an empty folder.

    :param parts: Dictionaries with names as keys, lists, text, numbers, None and arrays.
    :param versions: Of the libraries that write, by name, for people to read.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}

    def put_aside(part: Any) -> dict[str, str]:
        if not isinstance(part, np.ndarray):
            raise TypeError(f"{type(part).__name__} is no part of a scorer")
        name = str(len(arrays))
        arrays[name] = part
        return {_ARRAY: name}

    content = json.loads(json.dumps(parts, default=put_aside))
    np.savez(folder / ARRAYS, **arrays)
    description = {
        "format": FORMAT,
        "versions": dict(versions),
        "files": FILES,
        "digest": digest_of(content, [folder / ARRAYS]),
        "content": content,
    }
    text = json.dumps(description, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / DESCRIPTION).write_text(text, encoding="utf-8")


def read_parts(folder: str | PathLike[str]) -> dict[str, Any]:
    """Read what :func:`write_parts` wrote; refuse what is damaged or of another format."""
    folder = Path(folder)
    check_present(folder, FILES, REMEDY)
    expected = "the files as export_numpy wrote them"
    with undamaged(folder / DESCRIPTION, expected, REMEDY):
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        file_format = description["format"]
    if type(file_format) is not int or file_format != FORMAT:
        remedy = "Load it with the version of gpflow_pep that wrote it, or export it again."
        raise refusal(
            str(folder / DESCRIPTION), f"format {file_format!r}", f"format {FORMAT}", remedy
        )
    with undamaged(folder, expected, REMEDY):
        same = digest_of(description["content"], [folder / ARRAYS]) == description["digest"]
    if not same:
        got = "files that were damaged or changed: the digest of the files is another"
        raise refusal(str(folder), got, expected, REMEDY)
    arrays = read_arrays(folder / ARRAYS, expected, REMEDY)

    def put_back(part: dict[str, Any]) -> Any:
        return arrays[part[_ARRAY]] if set(part) == {_ARRAY} else part

    with undamaged(folder, expected, REMEDY):
        return json.loads(json.dumps(description["content"]), object_hook=put_back)
