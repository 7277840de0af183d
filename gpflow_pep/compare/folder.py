"""The folder that a comparison writes. It is checked first, and other files in it are
kept.
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

#: The file that lists the files of a run, so that the next run can replace them.
MANIFEST = "files.json"
#: The scores of the fits that have ended, while others are still trained.
UNFINISHED = "unfinished.csv"
#: The largest number of targets with a picture of predictions, and the number of
#: series, the largest ones, with a picture over time.
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
#: The files that a run may write into its folder.
NAMES = (
    "report.html",
    "metrics.csv",
    "folds.csv",
    "predictions.csv",
    UNFINISHED,
    *(f"{name}.png" for name in FIGURES),
    MANIFEST,
)
#: The folders that a run may write there, and the file that describes each.
FOLDERS = {"model": MODEL, "scorer": SCORER}
_REMEDY = "Choose another --out, or move the file away."


def check_folder(out: Path) -> None:
    """Make a folder, or check that an earlier run wrote everything that this run would
    replace in it.
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
    """List the files that a run may write, so that a later run can replace them if this
    run is killed. Remove incomplete files of a killed run.
    """
    for unfinished in unfinished_folders(out):
        with only_writer(unfinished) as alone:
            if alone:
                shutil.rmtree(unfinished)
    list_files(out, NAMES)


def list_files(out: Path, names: Iterable[str]) -> None:
    """Write the list of the files of a run, without the files in folders that have
    their own list.
    """
    content = {
        "versions": {"gpflow_pep": __version__},
        "files": sorted({*names, MANIFEST}),
    }
    with atomic_write(out / MANIFEST) as new:
        new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
