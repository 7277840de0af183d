"""The folder of results: an earlier run's files go, those of others stay."""

from pathlib import Path

import pytest

from gpflow_pep.compare.folder import NESTED, begin_folder, check_folder, list_files


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
    names = ("folds.csv", ".metrics.csv", ".files.txt", ".model-a1b2/new/model.json", *NESTED)
    for name in names:
        write(tmp_path / name)
    write(tmp_path / ".model.backup")
    check_folder(tmp_path)
    begin_folder(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.backup", "files.txt"]


@pytest.mark.parametrize("name", ["report.html", "model/notes.txt", "saved_model/a.pb"])
def test_files_of_others_are_not_replaced(tmp_path: Path, name: str) -> None:
    earlier_run(tmp_path)
    write(tmp_path / name)
    with pytest.raises(ValueError, match=rf"got {name} in it, expected files.*earlier run.*Choose"):
        check_folder(tmp_path)


def test_a_folder_is_made(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    write(tmp_path / "file")
    with pytest.raises(ValueError, match=r"cannot be written .* Choose another --out"):
        check_folder(tmp_path / "file" / "below")
