"""The folder that a comparison writes: checked before anything slow, and never anyone else's."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..files import (
    atomic_write,
    check_no_foreign,
    check_writable,
    unfinished_file,
    unfinished_folders,
)

#: Lists the files of a run, so that the next run knows which are its own to remove.
MANIFEST = "files.txt"
FIGURES = ("scores", "predictions", "classes", "fit", "relevance", "training")
FOLDERS = ("model", "saved_model")
#: What a run may write into its folder.
NAMES = (
    "report.html", "metrics.csv", "folds.csv", "predictions.csv", *FOLDERS,
    *(f"{name}.png" for name in FIGURES), MANIFEST,
)  # fmt: skip
#: What it may write into folders there: save_estimator, and TensorFlow.
NESTED = (
    "model/model.json", "model/arrays.npz", "model/pipeline.skops", "saved_model/saved_model.pb",
    "saved_model/fingerprint.pb", "saved_model/variables/variables.index",
    "saved_model/variables/variables.data-00000-of-00001",
)  # fmt: skip


def check_folder(out: Path) -> None:
    """
    Make a folder, or check that files of an earlier run in it may be removed.

    :param out: The folder.
    :raises ValueError: If it cannot be made or written, or has files that a run would replace and
        that none has written.
    """
    check_writable(out, "Choose another --out.")
    check_no_foreign(
        out,
        (path.relative_to(out).as_posix() for path in _replaceable(out)),
        {*_earlier(out), MANIFEST},
        f"files that an earlier run has written (these are in {MANIFEST}), or none that a run would"
        " replace",
        "Choose another --out, or move the file away.",
    )


def begin_folder(out: Path) -> None:
    """
    Remove what an earlier run has written, and list what this one may write.

    So the folder of a run that is killed is known as one, and may be written again.

    :param out: The folder, see :func:`check_folder`.
    """
    for name in NAMES:
        path = out / name
        unfinished = unfinished_folders(path) if name in FOLDERS else [unfinished_file(path)]
        for old in unfinished if name == MANIFEST else [path, *unfinished]:
            if old.is_dir():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)
    _write_list(out, (*NAMES, *NESTED))


def list_files(out: Path, written: Iterable[Path]) -> None:
    """
    Write the list of files of this run, which has ended.

    :param out: The folder.
    :param written: Files and folders in it.
    """
    files = [file for path in written for file in _files(path)]
    _write_list(out, sorted({file.relative_to(out).as_posix() for file in files}))


def _write_list(out: Path, names: Iterable[str]) -> None:
    with atomic_write(out / MANIFEST) as new:
        new.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def _earlier(out: Path) -> set[str]:
    path = out / MANIFEST
    return set(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else set()


def _replaceable(out: Path) -> Iterator[Path]:
    """Find the files that a run would replace."""
    for name in NAMES:
        if (out / name).exists():
            yield from _files(out / name)


def _files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
