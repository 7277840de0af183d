"""The folder that a comparison writes. It is checked first, and the files of others in
it stay.
"""

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from .. import __version__
from ..engine.files import (
    MODEL,
    SCORER,
    atomic_write,
    check_replaceable,
    check_writable,
    only_writer,
    unfinished_folders,
    written_files,
)
from ..engine.refusals import refusal

#: Lists the files of a run, so that the next run has a list of what it may replace.
MANIFEST = "files.json"
#: The scores of the fits that have ended, while others are still trained.
UNFINISHED = "unfinished.csv"
#: Each target has a picture of its predictions, up to so many targets, and so many
#: series, the largest, have a picture over time.
MOST_TARGETS = 9
MOST_SERIES = 4
FIGURES = (
    "forecast",
    *(f"forecast_{number}" for number in range(2, MOST_SERIES + 1)),
    "scores",
    "predictions",
    *(f"predictions_{number}" for number in range(2, MOST_TARGETS + 1)),
    "histogram",
    "fit",
    "reliability",
    "confusion",
    "importance",
    "learning",
)
#: What a run may write into its folder.
NAMES = (
    "report.html",
    "metrics.csv",
    "folds.csv",
    "predictions.csv",
    UNFINISHED,
    *(f"{name}.png" for name in FIGURES),
    MANIFEST,
)
#: The folders that it may write there, and the file that describes each.
FOLDERS = {"model": MODEL, "scorer": SCORER}
_REMEDY = "Choose another --out, or move the file away."


def check_folder(out: Path) -> None:
    """Make a folder, or check that what a run would replace in it was written by an
    earlier one.
    """
    check_writable(out, "Choose another --out.")
    earlier = written_files(out, MANIFEST)
    files = [
        name for name in FOLDERS if (out / name).exists() and not (out / name).is_dir()
    ]
    for name in (*files, *(name for name in NAMES if os.path.lexists(out / name))):
        if name not in earlier or (out / name).is_dir():
            expected = (
                f"only files that an earlier run wrote, which are listed in {MANIFEST}"
            )
            raise refusal(str(out), f"{name} in it", expected, _REMEDY)
    for name, description in FOLDERS.items():
        check_replaceable(out / name, description, _REMEDY)


def begin_folder(out: Path) -> None:
    """List what a run may write, so that a later run may replace the files of one that
    was killed; and remove what such a one was writing.
    """
    for unfinished in unfinished_folders(out):
        with only_writer(unfinished) as alone:
            if alone:
                shutil.rmtree(unfinished)
    list_files(out, NAMES)


def list_files(out: Path, names: Iterable[str]) -> None:
    """Write the list of the files of a run, beside those in folders that have their own
    list.
    """
    content = {
        "versions": {"gpflow_pep": __version__},
        "files": sorted({*names, MANIFEST}),
    }
    with atomic_write(out / MANIFEST) as new:
        new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
