"""The folder of results: an earlier run's files are replaced, and those of others stay."""

import json
from pathlib import Path

import pytest

from gpflow_pep.compare.folder import MANIFEST, NAMES, begin_folder, check_folder, list_files


def write(path: Path, text: str = "mine") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def earlier_run(out: Path) -> None:
    write(out / "metrics.csv")
    description = {"versions": {"gpflow_pep": "1"}, "files": ["arrays.npz", "model.json"]}
    write(out / "model" / "model.json", json.dumps(description))
    write(out / "model" / "arrays.npz")
    list_files(out, ["metrics.csv"])


def files(out: Path) -> set[str]:
    return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}


def test_a_run_that_begins_removes_nothing(tmp_path: Path) -> None:
    earlier_run(tmp_path)
    write(tmp_path / "notes.txt")
    there = files(tmp_path)
    check_folder(tmp_path)
    begin_folder(tmp_path)
    assert files(tmp_path) == there


def test_the_folder_of_a_run_that_was_killed_may_be_written_again(tmp_path: Path) -> None:
    """At any point: files of an earlier run, of this one, and what was being written."""
    earlier_run(tmp_path)
    begin_folder(tmp_path)
    for name in NAMES:
        if name != MANIFEST:
            write(tmp_path / name)
    write(tmp_path / ".gpflow_pep-a1b2c3d4.unfinished" / "new" / "model.json")
    write(tmp_path / ".model-backup" / "mine")
    write(tmp_path / ".report.html")
    check_folder(tmp_path)
    begin_folder(tmp_path)
    hidden = {path.name for path in tmp_path.iterdir() if path.name.startswith(".")}
    assert hidden == {".model-backup", ".report.html"}


@pytest.mark.parametrize(
    "name", ["report.html", "model/notes.txt", "saved_model/saved_model.pb", "fit.png/mine",
             "scorer/README.md", "model/README.md"],
)  # fmt: skip
def test_files_of_others_are_not_replaced(tmp_path: Path, name: str) -> None:
    earlier_run(tmp_path)
    write(tmp_path / name)
    with pytest.raises(ValueError, match=rf"got {name.split('/mine')[0].split('/')[-1]} in it"):
        check_folder(tmp_path)
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("text", ["metrics.csv\nfiles.json\n", '["metrics.csv"]', "{}"])
def test_a_list_of_others_is_none(tmp_path: Path, text: str) -> None:
    write(tmp_path / "metrics.csv")
    write(tmp_path / MANIFEST, text)
    with pytest.raises(ValueError, match=r"got metrics\.csv in it, .* earlier run .* Choose"):
        check_folder(tmp_path)


def test_files_in_the_place_of_folders(tmp_path: Path) -> None:
    write(tmp_path / "model")
    with pytest.raises(ValueError, match=r"got model in it"):
        check_folder(tmp_path)


def test_a_folder_is_made(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("name", ["file/below", "s3://bucket/results"])
def test_a_folder_that_cannot_be_made(tmp_path: Path, name: str) -> None:
    write(tmp_path / "file")
    with pytest.raises(ValueError, match=r"(cannot be written|a URL).* Choose another --out"):
        check_folder(Path(name) if ":" in name else tmp_path / name)
