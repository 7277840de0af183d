"""Files and folders that are written as a whole or not at all; files of others stay."""

import ctypes
import hashlib
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .refusals import refusal

if TYPE_CHECKING:
    import numpy.typing as npt

#: Of Linux: the folder that relative paths begin at, and the flag that exchanges two paths.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """
    Give the name of a new file to write, which replaces ``path`` when the block has ended.

    Whenever the process ends, ``path`` is the old file or the new one, and whole. A block that
    raises leaves the old file; a process that is killed leaves the new one as well, under the name
    that :func:`unfinished_file` gives.
    """
    new = unfinished_file(path)
    try:
        yield new
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """
    Give the name of a new folder to write, which replaces ``folder`` when the block has ended.

    A process that is killed leaves the old folder or the new one, where the file system of Linux
    can exchange two names. Elsewhere two names are changed, one after the other, and a process that
    is killed between leaves both folders in one of :func:`unfinished_folders`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        new, old = Path(work, "new"), Path(work, "old")
        yield new
        if folder.exists() and _exchange(new, folder):
            return
        try:
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
        except BaseException:
            if old.exists() and not folder.exists():
                old.rename(folder)
            raise


def unfinished_file(path: Path) -> Path:
    """Name the file that :func:`atomic_write` writes until it is whole."""
    return path.with_name(f".{path.name}")


def unfinished_folders(folder: Path) -> list[Path]:
    """Find the folders that processes left which were killed in :func:`atomic_folder`."""
    return sorted(folder.parent.glob(f".{folder.name}-*"))


def check_writable(folder: Path, remedy: str) -> None:
    """Make a folder if there is none, and check that files can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        got = f"a folder that cannot be written ({error})"
        raise refusal(str(folder), got, "one that can", remedy) from error


def check_no_foreign(
    folder: Path, present: Iterable[str], known: Collection[str], expected: str, remedy: str
) -> None:
    """Refuse to replace a file whose name is none of the known ones of earlier calls."""
    for name in sorted(set(present) - set(known)):
        raise refusal(str(folder), f"{name} in it", expected, remedy)


def check_present(folder: Path, names: Collection[str], remedy: str) -> None:
    """Refuse a folder that lacks one of some files."""
    for name in names:
        if not (folder / name).is_file():
            raise refusal(str(folder), f"no file {name}", " and ".join(names), remedy)


@contextmanager
def undamaged(path: Path, expected: str, remedy: str) -> Iterator[None]:
    """Refuse a file if reading it raises, whatever the error is."""
    try:
        yield
    except Exception as error:  # NumPy's are of many types
        got = f"a file that is damaged or was changed ({error})"
        raise refusal(str(path), got, expected, remedy) from error


def digest_of(content: Any, paths: Iterable[Path]) -> str:
    """Compute a hash of what JSON can write and of some files."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def read_arrays(path: Path, expected: str, remedy: str) -> "dict[str, npt.NDArray[Any]]":
    """Read arrays that NumPy wrote; refuse others than of finite numbers or words."""
    import numpy as np  # the help of the command line needs none of it

    with undamaged(path, expected, remedy), np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    for name, array in arrays.items():
        if array.dtype.kind not in "biufU" or (
            array.dtype.kind == "f" and not np.all(np.isfinite(array))
        ):
            got = f"{array.dtype} values in entry {name} that are no finite numbers or words"
            raise refusal(str(path), got, "only such", remedy)
    return arrays


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names, if the system can; say whether it could."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    paths = os.fsencode(first), os.fsencode(second)
    return rename is not None and not rename(
        _AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE
    )
