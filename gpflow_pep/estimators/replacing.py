"""Folders that take the place of others at once."""

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Of Linux: the folder that relative paths begin at, and to exchange two paths.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """
    Give the name of a new folder to write, which takes the place of another once all is written.

    A process that is killed leaves the old folder or the new one, where the file system of Linux
    can exchange two names. Elsewhere two names are changed, one after the other, and a process that
    is killed between leaves both folders in the one that this works in, whose name begins with a
    dot and that of the folder.

    :param folder: The folder, which need not exist.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        new, old = Path(work, "new"), Path(work, "old")
        yield new
        if folder.exists() and _exchanged(new, folder):
            return
        try:
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
        except BaseException:
            if old.exists() and not folder.exists():
                old.rename(folder)
            raise


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two names, if the system can."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    paths = os.fsencode(one), os.fsencode(other)
    return rename is not None and not rename(
        _AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE
    )
