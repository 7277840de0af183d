"""The files of saved estimators and of scorers. They are written completely or not at
all, and checked when they are read.

Both are a description in JSON, which people can read, and the arrays that it refers to,
without pickle. An estimator also has the training data, and a skops file for the rest
of its pipeline.
"""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import __version__
from ..engine.files import (
    MODEL,
    SCORER,
    check_present,
    files_in,
    path_of,
    read_arrays,
    replaced_folder,
    undamaged,
)
from ..engine.refusals import did_you_mean, refusal, similar

#: What JSON can hold.
Described = Any
ARRAYS = "arrays.npz"
PIPELINE = "pipeline.skops"
#: The files that belong to each description, and the function that writes them.
FILES = {MODEL: (ARRAYS, PIPELINE), SCORER: (ARRAYS,)}
WRITERS = {MODEL: "save_estimator", SCORER: "export_numpy"}
#: The number of the format, which changes when the content of the files changes.
FORMAT = 8
#: The number of digits of the digest in the version of a folder. Two of a million
#: folders have the same digits with a probability of 0.002.
DIGITS = 12
#: A text for people, which is not read by the package.
CARD = "README.md"
_HEADER = ("format", "versions", "files", "digest")


class SavedFiles(NamedTuple):
    """The content of the files."""

    #: The description, without format, versions and digest, in a form for JSON.
    content: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]  #: Arrays of finite numbers or words.
    pipeline: bytes = b""  #: The skops file of an estimator.


def write_files(
    folder: str | PathLike[str],
    saved: SavedFiles,
    name: str,
    card: str = "",
    **versions: str,
) -> None:
    """Write the files for :func:`read_files`, and a text for people.

    :param name: The name of the description: ``MODEL`` or ``SCORER``.
    :param versions: The versions of the libraries that write, in addition to Python and
        this package.
    """
    versions = {
        "python": platform.python_version(),
        "gpflow_pep": __version__,
        **versions,
    }
    with replaced_folder(folder, name) as new:
        if card:
            (new / CARD).write_text(card, encoding="utf-8")
        np.savez(new / ARRAYS, **saved.arrays)
        if PIPELINE in FILES[name]:
            (new / PIPELINE).write_bytes(saved.pipeline)
        description = {
            "format": FORMAT,
            "versions": versions,
            "files": sorted({*files_in(new), name}),
            "digest": digest(saved.content, new, name),
            **saved.content,
        }
        text = (
            json.dumps(description, indent=2, ensure_ascii=False, allow_nan=False)
            + "\n"
        )
        (new / name).write_text(text, encoding="utf-8")


def digest(content: Any, folder: Path, name: str) -> str:
    """Compute a hash of the content and of the other files, without format and
    versions.
    """
    total = hashlib.sha256(
        json.dumps(content, sort_keys=True, allow_nan=False).encode()
    )
    for other in FILES[name]:
        total.update((folder / other).read_bytes())
    return total.hexdigest()


def read_files(folder: str | PathLike[str], name: str) -> SavedFiles:
    """Read the files of :func:`write_files`; refuse damaged files."""
    folder = path_of(folder, remedy_of(name))
    expected = f"the files that {WRITERS[name]} wrote"
    description = _described(folder, name)
    check_present(folder, (name, *FILES[name]), remedy_of(name))
    content = {key: part for key, part in description.items() if key not in _HEADER}
    with undamaged(folder, expected, remedy_of(name)):
        same = digest(content, folder, name) == description.get("digest")
    if not same:
        got = "a file that is damaged or was changed (the digest of the files differs)"
        raise refusal(str(folder), got, expected, remedy_of(name))
    arrays = read_arrays(folder / ARRAYS, expected, remedy_of(name))
    pipeline = (folder / PIPELINE).read_bytes() if PIPELINE in FILES[name] else b""
    return SavedFiles(content, arrays, pipeline)


def description_of(folder: str | PathLike[str]) -> dict[str, Any]:
    """Read the description of a saved estimator or a scorer, without its arrays: the
    versions that wrote it, the digest of its files, and its promised scores.

    :raises ValueError: If the folder is neither of both, is damaged, or has another
        format.
    """
    remedy = "Pass the folder of a model, such as results/model or results/scorer."
    folder = path_of(folder, remedy)
    for name in FILES:
        if (folder / name).is_file():
            return _described(folder, name)
    got = f"neither {' nor '.join(FILES)}"
    if not folder.is_dir():
        got = "a file" if folder.exists() else "no such folder"
    expected = f"a folder with {' or '.join(FILES)}, which describe a model"
    remedy = _did_you_mean(folder, *FILES) or remedy
    raise refusal(str(folder), got, expected, remedy)


def version_of(folder: str | PathLike[str]) -> str:
    """Return the version of a saved estimator or a scorer: the version of this package
    that wrote it, and the beginning of the digest of its content, such as
    "0.4.0+5f1d8c07a2be".
    """
    description = description_of(folder)
    digits = str(description.get("digest"))[:DIGITS]
    return f"{description['versions']['gpflow_pep']}+{digits}"


def _described(folder: Path, name: str) -> dict[str, Any]:
    """Read the description of a folder, and check its format."""
    expected = f"the files that {WRITERS[name]} wrote"
    remedy = _did_you_mean(folder, name) or remedy_of(name)
    check_present(folder, (name,), remedy)
    with undamaged(folder / name, expected, remedy_of(name)):
        description = json.loads((folder / name).read_text(encoding="utf-8"))
    file_format = description.get("format") if isinstance(description, dict) else None
    if file_format != FORMAT:
        remedy = (
            "Load it with the version of gpflow_pep that wrote it, or run"
            f" {WRITERS[name]} again."
        )
        raise refusal(
            str(folder / name), f"format {file_format!r}", f"format {FORMAT}", remedy
        )
    return dict(description)


def _did_you_mean(path: Path, *names: str) -> str:
    """Suggest folders that contain a model: the folder of a similar name, or up to two
    levels below the path, or above it; empty if there are none.
    """
    found: list[Path] = []
    for place in _similar_places(path):
        below = [
            described
            for levels in ("", "*/", "*/*/")
            for name in names
            for described in sorted(place.glob(f"{levels}{name}"))
        ]
        above = [parent / name for parent in place.parents for name in names]
        found += [other.parent for other in (*below, *above) if other.is_file()]
    return did_you_mean(dict.fromkeys(found))


def _similar_places(path: Path) -> list[Path]:
    """Return a folder itself, and the folder of a file. If there is neither, correct
    each part of the path to the names that are there; a part that is not like any name
    is left out.
    """
    if path.is_dir():
        return [path]
    if path.exists() or path == path.parent:
        return [path.parent]
    parents = _similar_places(path.parent)
    corrected = [
        parent / name
        for parent in parents
        for name in similar(path.name, os.listdir(parent))
    ]
    folders = [place for place in corrected if place.is_dir()]
    return folders or parents


def remedy_of(name: str) -> str:
    """Describe what to do about a folder that cannot be read."""
    return f"Pass the folder that {WRITERS[name]} wrote, or write it again."


class Reader:
    """Read descriptions by :class:`~gpflow_pep.estimators.single.describing.Describer`
    without TensorFlow.

    An object becomes a dictionary with ``kind``, the name of its class (without the
    module for kernels and likelihoods of GPflow), the values of its parameters, and the
    arguments of its constructor.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._arrays = arrays
        self._known: dict[int, Any] = {}

    def __call__(self, described: Any) -> Any:
        """Construct the value that was described. If the description was changed, the
        error can have any type.
        """
        if isinstance(described, list):
            return [self(part) for part in described]
        if not isinstance(described, dict):
            return described
        if "array" in described:
            return self._arrays[described["array"]]
        if "words" in described:
            return np.array(described["words"], dtype=object)
        if "slice" in described:
            return slice(*described["slice"])
        if "ref" in described:
            return self._known[described["ref"]]
        if "number" not in described:
            return self._dictionary(described)
        construct = self._object if "class" in described else self._parameter
        self._known[described["number"]] = constructed = construct(described)
        return constructed

    def _dictionary(self, described: dict[str, Any]) -> Any:
        return {name: self(part) for name, part in described.items()}

    def _parameter(self, described: dict[str, Any]) -> Any:
        return self(described["value"])

    def _object(self, described: dict[str, Any]) -> Any:
        kind = described["class"].removeprefix("gpflow.kernels.")
        parameters = self._dictionary(described["parameters"])
        arguments = {
            name: parameters[part["value_of"]] if is_parameter(part) else self(part)
            for name, part in described["arguments"].items()
        }
        return {
            "kind": kind.removeprefix("gpflow.likelihoods."),
            **parameters,
            **arguments,
        }


def is_parameter(argument: Any) -> bool:
    """Whether an argument of a constructor is described as the value of a parameter."""
    return isinstance(argument, dict) and "value_of" in argument
