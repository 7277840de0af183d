"""The folder of results: an earlier run's files go, those of others stay."""

from pathlib import Path

import pytest

from gpflow_pep.compare.folder import BELOW, begin_folder, check_folder, list_files, whole


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    return path


def earlier_run(out: Path) -> None:
    files = [write(out / "metrics.csv"), write(out / "fit.png"), write(out / "model" / "a.json")]
    list_files(out, [*files[:2], out / "model"])


def test_files_of_an_earlier_run_are_removed_and_no_others(tmp_path: Path) -> None:
    earlier_run(tmp_path)
    write(tmp_path / "notes.txt")
    check_folder(tmp_path)
    assert (tmp_path / "metrics.csv").exists()  # a check removes nothing
    begin_folder(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["files.txt", "notes.txt"]


def test_the_folder_of_a_run_that_was_killed_may_be_written_again(tmp_path: Path) -> None:
    """At any point: files of an earlier run, of this one, and what was being written."""
    earlier_run(tmp_path)
    begin_folder(tmp_path)
    names = ("folds.csv", ".metrics.csv", ".files.txt", ".model-a1b2/new/model.json", *BELOW)
    for name in names:
        write(tmp_path / name)
    write(tmp_path / ".model.backup")
    check_folder(tmp_path)
    begin_folder(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.backup", "files.txt"]


def test_a_file_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "folds.csv")
    with pytest.raises(OSError, match="no space"), whole(path) as new:
        new.write_text("half")
        raise OSError("no space")
    assert path.read_text() == "mine"
    with whole(path) as new:
        new.write_text("all")
    assert path.read_text() == "all" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["report.html", "model/notes.txt", "saved_model/a.pb"])
def test_files_of_others_are_not_replaced(tmp_path: Path, name: str) -> None:
    earlier_run(tmp_path)
    write(tmp_path / name)
    with pytest.raises(ValueError, match=rf"has {name}, which no earlier run.*Choose another"):
        check_folder(tmp_path)


def test_a_folder_is_made(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    write(tmp_path / "file")
    with pytest.raises(ValueError, match=r"cannot write the folder .* choose another --out"):
        check_folder(tmp_path / "file" / "below")
