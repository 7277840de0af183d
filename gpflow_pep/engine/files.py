"""Files and folders that are written completely or not at all. Other files are kept."""

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .refusals import refusal

if TYPE_CHECKING:
    import numpy.typing as npt

#: The files that describe the folders of a saved estimator and of a scorer: the
#: versions that wrote the folder, and its files.
MODEL = "model.json"
SCORER = "scorer.json"
_BEGIN = ".gpflow_pep-"
_END = ".unfinished"


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Provide the name of a new file to write, which replaces ``path`` when the block
    has ended.

    ``path`` is always the complete old or the complete new file, also if the process
    ends. If the block raises an error, the old file stays. A process that is killed
    leaves a hidden folder next to it. A path that is not a file, such as a pipe, is
    written directly.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    with _workplace(path.parent) as work:
        new = work / path.name
        yield new
        if path.exists():
            shutil.copymode(path, new)
        os.replace(new, path)


@contextmanager
def _atomic_folder(folder: Path, description: str = "") -> Iterator[Path]:
    """Provide the name of a new folder to make, which replaces ``folder`` when the
    block has ended.

    The new folder is written next to the old one, and then two names are changed, one
    after the other. A process that is killed in between leaves both in a hidden folder
    there, whose name is in the error of :func:`check_present`. A folder that cannot be
    moved, such as a mounted volume, gets the new files one by one. A process that is
    killed meanwhile leaves a folder that loaders refuse, and that can be written again.

    :param description: The file that describes the folder, if there is one. It is
        replaced last.
    """
    folder = folder.resolve()
    beside = not folder.exists() or os.access(folder.parent, os.W_OK)
    with _workplace(folder.parent if beside else folder) as work:
        new = work / "new"
        yield new
        if not (beside and _rename(new, folder)):
            _move_files(new, folder, description)


def _rename(new: Path, folder: Path) -> bool:
    """Give a folder the name of another folder. Return whether the other folder could
    be moved away.
    """
    old = new
    while True:
        try:
            new.rename(folder)
            return True
        except OSError as error:
            if (
                error.errno not in (errno.ENOTEMPTY, errno.EEXIST)
                and not folder.exists()
            ):
                if old is not new:
                    old.rename(folder)
                raise
        old = old.with_name(f"old-{old.name}")
        try:
            folder.rename(old)
        except FileNotFoundError:
            pass  # another process has moved it away
        except OSError:
            return False


def _move_files(new: Path, folder: Path, description: str) -> None:
    """Replace the files of a folder by the files of another folder, or none of them if
    that fails.
    """
    with only_writer(folder) as alone, _workplace(folder) as work:
        if alone is False:
            got = "a folder that another process is writing"
            raise refusal(
                str(folder),
                got,
                "one writer at a time",
                "Write again when that process is done.",
            )
        try:
            # A folder on another volume is copied.
            new = Path(shutil.move(new, work / "next"))
        except shutil.Error as error:
            raise OSError(error.args[0][0][2]) from error
        (work / "old").mkdir()
        there = {name.split("/")[0] for name in files_in(folder)} - {description}
        moves = [(folder / name, work / "old" / name) for name in sorted(there)]
        moves += [
            (path, folder / path.name)
            for path in new.iterdir()
            if path.name != description
        ]
        done = []
        try:
            for source, target in moves:
                source.rename(target)
                done.append((source, target))
            if description:
                os.replace(new / description, folder / description)
        except BaseException:
            for source, target in reversed(done):
                target.rename(source)
            raise


@contextmanager
def _workplace(folder: Path) -> Iterator[Path]:
    """Make a hidden folder with a new name in a folder, and remove it at the end."""
    with (
        tempfile.TemporaryDirectory(
            _END, _BEGIN, folder, ignore_cleanup_errors=True
        ) as work,
        only_writer(Path(work)),
    ):
        yield Path(work)


def unfinished_folders(folder: Path) -> list[Path]:
    """Find the hidden folders of processes that write in a folder, or that were killed
    while writing.
    """
    return sorted(path for path in folder.glob(f"{_BEGIN}*{_END}") if path.is_dir())


@contextmanager
def only_writer(folder: Path) -> Iterator[bool | None]:
    """Find whether no other process is in this context with the folder; None if the
    system does not show it (Windows, some networks). Another process can begin as soon
    as this process ends, in any way.
    """
    place = None
    alone = None
    try:
        import fcntl

        place = os.open(folder, os.O_RDONLY)
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = True
    except BlockingIOError:
        alone = False
    except (ImportError, OSError):
        pass
    try:
        yield alone
    finally:
        if place is not None:
            os.close(place)


def path_of(path: str | PathLike[str], remedy: str) -> Path:
    """Return the path of a file or folder, if it can be on this machine."""
    expected = "a file or folder of this machine"
    try:
        place = Path(path)
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            os.lstat(path)
    except (TypeError, ValueError, OSError) as error:
        got = f"{repr(path)[:80]}, which is not a path ({error})"
        raise refusal("path", got, expected, remedy) from error
    if re.match(r"\w[\w+.-]+:/", str(path)) or not str(path):  # C:/ is not a URL
        raise refusal(str(path), "a URL" if str(path) else "no name", expected, remedy)
    return place


@contextmanager
def replaced_folder(folder: str | PathLike[str], description: str) -> Iterator[Path]:
    """Provide a folder to write, which appears when everything is written. Until then
    an earlier folder stays.

    :param description: The file that lists the files of the folder. A folder with other
        files is refused.
    """
    folder = path_of(folder, "Choose another folder.").resolve()
    check_writable(
        folder if folder.exists() else folder.parent, "Choose another folder."
    )
    check_replaceable(
        folder, description, "Choose another folder, or move the file away."
    )
    with _atomic_folder(folder, description) as new:
        new.mkdir()
        yield new


def check_writable(folder: Path, remedy: str) -> None:
    """Make a folder if it does not exist, and check that files can be written in it."""
    folder = path_of(folder, remedy)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        got = f"a folder that cannot be written ({error})"
        raise refusal(
            str(folder), got, "a folder that can be written", remedy
        ) from error


def files_in(folder: Path) -> set[str]:
    """List the files and links below a folder, without :func:`unfinished_folders`."""
    names = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    return {
        name for name in names if not (name.startswith(_BEGIN) and f"{_END}/" in name)
    }


def written_files(folder: Path, description: str) -> set[str]:
    """List the files that this package wrote into a folder, according to the
    description in it.
    """
    try:
        content = json.loads((folder / description).read_text(encoding="utf-8"))
        ours = "gpflow_pep" in content["versions"]
        return set(content["files"]) if ours else set()
    except Exception:  # the files are not from this package
        return set()


def check_replaceable(folder: Path, description: str, remedy: str) -> None:
    """Refuse to replace a folder with files that this package did not write."""
    foreign = files_in(folder) - written_files(folder, description)
    if foreign:
        expected = (
            f"only files that {description} there lists, as gpflow_pep wrote it, or"
            " none"
        )
        raise refusal(str(folder), f"{min(foreign)} in it", expected, remedy)


def remove_written(folder: Path, description: str) -> None:
    """Remove the files that this package wrote into a folder, and folders that become
    empty.
    """
    for name in files_in(folder) & written_files(folder, description):
        (folder / name).unlink()
    for path in sorted([folder, *folder.rglob("*")], reverse=True):
        if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()


def check_present(folder: Path, names: Collection[str], remedy: str) -> None:
    """Refuse a folder if one of some files is missing."""
    for name in names:
        if not (folder / name).is_file():
            hidden = (
                [] if folder.exists() else unfinished_folders(folder.resolve().parent)
            )
            absent = [
                str(path.parent) for work in hidden for path in work.glob(f"*/{name}")
            ]
            where = (
                f" (a process that was killed has left {' and '.join(absent)})"
                if absent
                else ""
            )
            raise refusal(
                str(folder), f"no file {name}{where}", " and ".join(names), remedy
            )


@contextmanager
def undamaged(path: Path, expected: str, remedy: str) -> Iterator[None]:
    """Refuse a file if reading it raises any error."""
    try:
        yield
    except Exception as error:  # errors of NumPy have many types
        got = f"a file that is damaged or was changed ({error})"
        raise refusal(str(path), got, expected, remedy) from error


def read_arrays(
    path: Path, expected: str, remedy: str
) -> "dict[str, npt.NDArray[Any]]":
    """Read arrays that NumPy wrote; refuse arrays that do not have finite numbers or
    words.
    """
    import numpy as np  # the help of the command line does not need NumPy

    with (
        undamaged(path, expected, remedy),
        np.load(path, allow_pickle=False) as archive,
    ):
        arrays = dict(archive)
    for name, array in arrays.items():
        if array.dtype.kind not in "biufU" or (
            array.dtype.kind == "f" and not np.all(np.isfinite(array))
        ):
            got = (
                f"{array.dtype} values in entry {name} that are not finite numbers or"
                " words"
            )
            raise refusal(str(path), got, "only such", remedy)
    return arrays
