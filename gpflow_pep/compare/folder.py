"""The folder that a comparison writes: checked before anything slow, and never anyone else's."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
BELOW = (
    "model/model.json", "model/arrays.npz", "saved_model/saved_model.pb",
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
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(
            f"cannot write the folder {out} ({error}): choose another --out."
        ) from error
    earlier = _earlier(out)
    for path in _present(out):
        name = path.relative_to(out).as_posix()
        if name not in earlier and name != MANIFEST:
            raise ValueError(
                f"{out} has {name}, which no earlier run has written (these are in {MANIFEST}),"
                " expected a folder in which nothing of others would be replaced. Choose another"
                " --out, or move the file away."
            )


def begin_folder(out: Path) -> None:
    """
    Remove what an earlier run has written, and list what this one may write.

    So the folder of a run that is killed is known as one, and may be written again.

    :param out: The folder, see :func:`check_folder`.
    """
    for name in NAMES:
        path = out / name
        found = [_unfinished(path), *(out.glob(f".{name}-*") if name in FOLDERS else [])]
        for one in found if name == MANIFEST else [path, *found]:
            if one.is_dir():
                shutil.rmtree(one)
            else:
                one.unlink(missing_ok=True)
    _write_list(out, (*NAMES, *BELOW))


def list_files(out: Path, written: Iterable[Path]) -> None:
    """
    Write the list of files of this run, which has ended.

    :param out: The folder.
    :param written: Files and folders in it.
    """
    files = [file for path in written for file in _files(path)]
    _write_list(out, sorted({file.relative_to(out).as_posix() for file in files}))


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """
    Give the name of a new file to write, which takes the place of another once all is written.

    So the file is whole whenever the process ends.

    :param path: The file, which need not exist.
    """
    yield _unfinished(path)
    os.replace(_unfinished(path), path)


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}")


def _write_list(out: Path, names: Iterable[str]) -> None:
    with whole(out / MANIFEST) as new:
        new.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def _earlier(out: Path) -> set[str]:
    path = out / MANIFEST
    return set(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else set()


def _present(out: Path) -> Iterator[Path]:
    """Find the files that a run would replace."""
    for name in NAMES:
        if (out / name).exists():
            yield from _files(out / name)


def _files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
