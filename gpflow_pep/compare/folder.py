"""The folder that a comparison writes. It is checked first, and the files of others in it stay."""

import shutil
from collections.abc import Iterable
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
FIGURES = ("scores", "predictions", "classes", "fit", "details", "relevance", "training")
FOLDERS = ("model", "scorer", "saved_model")
#: What a run may write into its folder.
NAMES = (
    "report.html", "metrics.csv", "folds.csv", "predictions.csv", *FOLDERS,
    *(f"{name}.png" for name in FIGURES), MANIFEST,
)  # fmt: skip
#: What it may write into folders there: save_estimator, export_numpy, and TensorFlow.
NESTED = (
    "model/model.json", "model/arrays.npz", "model/pipeline.skops", "model/README.md",
    "scorer/scorer.json", "scorer/arrays.npz", "saved_model/saved_model.pb",
    "saved_model/fingerprint.pb", "saved_model/variables/variables.index",
    "saved_model/variables/variables.data-00000-of-00001",
)  # fmt: skip


def check_folder(out: Path) -> None:
    """Make a folder, or check that what a run would replace in it was written by an earlier one."""
    check_writable(out, "Choose another --out.")
    manifest = out / MANIFEST
    earlier = manifest.read_text(encoding="utf-8").splitlines() if manifest.is_file() else []
    check_no_foreign(
        out,
        _listed(out, [out / name for name in NAMES if (out / name).exists()]),
        {*earlier, MANIFEST},
        f"files that an earlier run has written (these are in {MANIFEST}), or none that a run would"
        " replace",
        "Choose another --out, or move the file away.",
    )


def begin_folder(out: Path) -> None:
    """
    Remove what an earlier run has written, and list what this one may write.

    The list comes first, so that a later run may replace the files of one that was killed.
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
    """Write the list of files of this run, which has ended: files and folders that it wrote."""
    _write_list(out, _listed(out, written))


def _write_list(out: Path, names: Iterable[str]) -> None:
    with atomic_write(out / MANIFEST) as new:
        new.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def _listed(out: Path, paths: Iterable[Path]) -> list[str]:
    """Name the files that some paths are, or have below them."""
    below = (file for path in paths for file in ([path] if path.is_file() else path.rglob("*")))
    return sorted({file.relative_to(out).as_posix() for file in below if file.is_file()})
