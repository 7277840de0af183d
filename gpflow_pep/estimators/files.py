"""The two files of a saved estimator: written whole or not at all, and checked when read."""

import hashlib
import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ..files import atomic_folder, check_no_foreign

FORMAT = 4
DESCRIPTION, ARRAYS = "model.json", "arrays.npz"
REMEDY = "Pass the folder that save_estimator wrote, or save the estimator again."


def check_replaceable(
    folder: str | PathLike[str], names: tuple[str, ...] = (DESCRIPTION, ARRAYS)
) -> None:
    """
    Check that a folder is one that an earlier call wrote, and may be replaced.

    :param folder: The folder, which need not exist.
    :param names: Of the files and folders that such a call may write.
    :raises ValueError: If it has others.
    :raises OSError: If it is no folder.
    """
    folder = Path(folder)
    check_no_foreign(
        folder,
        [path.name for path in folder.iterdir()] if folder.exists() else [],
        names,
        f"{' and '.join(names[:2])} of an earlier call or nothing, because the folder is replaced",
        "Choose another folder, or remove what is there.",
    )


def write_files(
    folder: str | PathLike[str],
    content: dict[str, Any],
    arrays: dict[str, AnyNDArray],
    versions: dict[str, str],
) -> None:
    """
    Write a folder, which appears when all is written; until then an earlier one stays as it is.

    :param folder: The folder.
    :param content: What the description holds: what JSON can.
    :param arrays: Of numbers or words.
    :param versions: Of what wrote it.
    :raises ValueError: If the folder has other files.
    """
    folder = Path(folder).resolve()
    check_replaceable(folder)
    with atomic_folder(folder) as new:
        new.mkdir()
        np.savez(new / ARRAYS, **arrays)
        description = {
            "format": FORMAT,
            "versions": versions,
            "digest": digest(content, (new / ARRAYS).read_bytes()),
            **content,
        }
        text = json.dumps(description, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        (new / DESCRIPTION).write_text(text, encoding="utf-8")


def through_json(content: Any) -> Any:
    """
    Give what will come back.

    :param content: What is to be written.
    """
    return json.loads(json.dumps(content, allow_nan=False))


def digest(content: Any, arrays: bytes) -> str:
    """
    Compute what changes with anything in the files but the format and the versions.

    :param content: What the description holds.
    :param arrays: The bytes of the other file.
    """
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode() + arrays).hexdigest()


def read_files(
    folder: str | PathLike[str],
) -> tuple[dict[str, Any], dict[str, AnyNDArray]]:
    """
    Read what :func:`write_files` wrote, and check that it is that.

    :param folder: The folder.
    :return: The content, and the arrays, of finite numbers or words.
    :raises ValueError: If a file is missing, damaged or changed, or of another format.
    """
    folder = Path(folder)
    for name in (DESCRIPTION, ARRAYS):
        if not (folder / name).is_file():
            raise ValueError(
                f"{folder} has no file {name}, expected {DESCRIPTION} and {ARRAYS}. {REMEDY}"
            )
    try:
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(folder / DESCRIPTION, error) from error
    found = description.get("format") if isinstance(description, dict) else None
    if found != FORMAT:
        raise ValueError(
            f"{folder / DESCRIPTION} has format {found}, expected {FORMAT}. Load it with the"
            " version of gpflow_pep that wrote it, or save the estimator again."
        )
    content = {
        name: part
        for name, part in description.items()
        if name not in ("format", "versions", "digest")
    }
    try:
        if digest(content, (folder / ARRAYS).read_bytes()) != description.get("digest"):
            raise ValueError("the digest of the files is another")
        with np.load(folder / ARRAYS, allow_pickle=False) as archive:
            arrays = dict(archive)
    except Exception as error:  # NumPy's are of many types
        raise _damaged(folder, error) from error
    for name, array in arrays.items():
        if array.dtype.kind not in "biufU" or (
            array.dtype.kind == "f" and not np.all(np.isfinite(array))
        ):
            raise ValueError(
                f"{folder / ARRAYS} has {array.dtype} values in entry {name} that are no finite"
                f" numbers or words, expected such. {REMEDY}"
            )
    return content, arrays


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{path} is damaged or was changed ({error}), expected {DESCRIPTION} and {ARRAYS} as"
        f" written. {REMEDY}"
    )
