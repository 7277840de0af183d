"""The folder of results: an earlier run's files are replaced, and those of
others stay.
"""

import json
from pathlib import Path

import pytest

from gpflow_pep.compare.folder import (
    MANIFEST,
    NAMES,
    begin_folder,
    check_folder,
    list_files,
)


def write(path: Path, text: str = "mine") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def earlier_run(tmp_path: Path) -> Path:
    write(tmp_path / "metrics.csv")
    description = {
        "versions": {"gpflow_pep": "1"},
        "files": ["arrays.npz", "model.json"],
    }
    write(tmp_path / "model" / "model.json", json.dumps(description))
    write(tmp_path / "model" / "arrays.npz")
    list_files(tmp_path, ["metrics.csv"])
    return tmp_path


def test_the_folder_of_a_run_that_was_killed_may_be_written_again(
    earlier_run: Path,
) -> None:
    """At any point: files of an earlier run, of this one, and what was being
    written.
    """
    write(earlier_run / "notes.txt")
    there = {*earlier_run.rglob("*")}
    check_folder(earlier_run)
    begin_folder(earlier_run)
    assert {*earlier_run.rglob("*")} == there
    for name in NAMES:
        if name != MANIFEST:
            write(earlier_run / name)
    write(earlier_run / ".gpflow_pep-a1b2c3d4.unfinished" / "new" / "model.json")
    write(earlier_run / ".model-backup" / "mine")
    write(earlier_run / ".report.html")
    check_folder(earlier_run)
    begin_folder(earlier_run)
    hidden = {path.name for path in earlier_run.iterdir() if path.name.startswith(".")}
    assert hidden == {".model-backup", ".report.html"}


@pytest.mark.parametrize(
    "name",
    [
        "report.html",
        "model/notes.txt",
        "fit.png/mine",
        "scorer/README.md",
        "model/README.md",
    ],
)
def test_files_of_others_are_not_replaced(earlier_run: Path, name: str) -> None:
    write(earlier_run / name)
    with pytest.raises(
        ValueError, match=rf"got {name.split('/mine')[0].split('/')[-1]} in it"
    ):
        check_folder(earlier_run)
    assert (earlier_run / name).read_text() == "mine"


@pytest.mark.parametrize("text", ["metrics.csv\nfiles.json\n", '["metrics.csv"]', "{}"])
def test_a_list_of_others_is_none(tmp_path: Path, text: str) -> None:
    write(tmp_path / "metrics.csv")
    write(tmp_path / MANIFEST, text)
    with pytest.raises(
        ValueError, match=r"got metrics\.csv in it, .* earlier run .* Choose"
    ):
        check_folder(tmp_path)


def test_folders_and_files_in_their_places(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    write(tmp_path / "model")
    with pytest.raises(ValueError, match=r"got model in it"):
        check_folder(tmp_path)
    for place in (tmp_path / "model/below", Path("s3://bucket/results")):
        with pytest.raises(
            ValueError, match=r"(cannot be written|a URL).* Choose another --out"
        ):
            check_folder(place)
