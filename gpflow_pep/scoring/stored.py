"""The files of saved estimators and of scorers: written whole or not at all, checked
when read.

Both are a description in JSON, which people can read, and the arrays that it names; no
pickle. An estimator has the training data too, and what skops wrote of what is around
it.
"""

import hashlib
import json
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
from ..engine.refusals import refusal

ARRAYS = "arrays.npz"
PIPELINE = "pipeline.skops"
#: The files beside each description, and what writes them.
FILES = {MODEL: (ARRAYS, PIPELINE), SCORER: (ARRAYS,)}
WRITERS = {MODEL: "save_estimator", SCORER: "export_numpy"}
#: The format that is read and written; it changes with what the files hold.
FORMAT = 8
#: So many digits of the digest name the content of a folder: two of a million folders
#: have the same with a probability of 0.002.
DIGITS = 12
#: A text for people, which is not read.
CARD = "README.md"
_HEADER = ("format", "versions", "files", "digest")


class SavedFiles(NamedTuple):
    """What the files hold."""

    content: dict[str, Any]  #: Without format, versions and digest: what JSON can hold.
    arrays: dict[str, npt.NDArray[Any]]  #: Of finite numbers or words.
    pipeline: bytes = b""  #: What skops wrote, of an estimator.


def write_files(
    folder: str | PathLike[str],
    saved: SavedFiles,
    name: str,
    card: str = "",
    **versions: str,
) -> None:
    """Write what :func:`read_files` reads, and a text for people.

    :param name: That of the description: ``MODEL`` or ``SCORER``.
    :param versions: Of the libraries that write, beside Python and this package.
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
    """Compute a hash of the content and of the other files, but not of format and
    versions.
    """
    total = hashlib.sha256(
        json.dumps(content, sort_keys=True, allow_nan=False).encode()
    )
    for other in FILES[name]:
        total.update((folder / other).read_bytes())
    return total.hexdigest()


def read_files(folder: str | PathLike[str], name: str) -> SavedFiles:
    """Read what :func:`write_files` wrote; refuse what is damaged."""
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
    """Read what describes a saved estimator or a scorer, without its arrays: the
    versions that wrote it, the digest of its files, and what was promised of it.

    :raises ValueError: If the folder is neither, or is damaged or of another format.
    """
    remedy = "Pass the folder of a model, such as results/model or results/scorer."
    folder = path_of(folder, remedy)
    for name in FILES:
        if (folder / name).is_file():
            return _described(folder, name)
    expected = f"{' or '.join(FILES)}, which describe a model"
    remedy = _did_you_mean(folder, *FILES) or remedy
    raise refusal(str(folder), f"neither {' nor '.join(FILES)}", expected, remedy)


def version_of(folder: str | PathLike[str]) -> str:
    """Name a saved estimator or a scorer: the version of this package that wrote it,
    and the beginning of the digest of its content, as in "0.3.0+5f1d8c07a2be".
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


def _did_you_mean(folder: Path, *names: str) -> str:
    """Suggest folders directly above and below that have such a description; empty if
    there are none.
    """
    above = [folder.parent / name for name in names]
    below = [path for name in names for path in sorted(folder.glob(f"*/{name}"))]
    found = [str(path.parent) for path in (*above, *below) if path.is_file()]
    return f"Did you mean {' or '.join(found)}?" if found else ""


def remedy_of(name: str) -> str:
    """Describe what to do about a folder that cannot be read."""
    return f"Pass the folder that {WRITERS[name]} wrote, or write it again."


class Reader:
    """Read what :class:`~gpflow_pep.estimators.single.describing.Describer` describes,
    without TensorFlow.

    An object is a dictionary: ``kind``, its class, without the module where that is one
    of GPflow's kernels or likelihoods; its parameters' values, and the arguments of its
    constructor.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._arrays = arrays
        self._known: dict[int, Any] = {}

    def __call__(self, described: Any) -> Any:
        """Construct the value that was described; errors of a changed one are of any
        type.
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
