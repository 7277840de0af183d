"""Files and folders that are whole or not there."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpflow_pep import files
from gpflow_pep.files import (
    atomic_folder,
    atomic_write,
    check_no_foreign,
    check_writable,
    unfinished_file,
    unfinished_folders,
)


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "folds.csv"
    with pytest.raises(OSError, match="no space"), atomic_write(path) as new:
        new.write_text("half")
        raise OSError("no space")
    assert list(tmp_path.iterdir()) == []
    for text in ("first", "second"):
        with atomic_write(path) as new:
            new.write_text(text)
            assert new == unfinished_file(path)
        assert path.read_text() == text and list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match="no space"), atomic_write(path) as new:
        new.write_text("half")
        raise OSError("no space")
    assert path.read_text() == "second" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(files, "_exchange", lambda *_: False)
    folder = tmp_path / "below" / "model"
    for text in ("first", "second"):
        with atomic_folder(folder) as new:
            new.mkdir()
            (new / "file").write_text(text)
            assert new.parent in unfinished_folders(folder)
        assert (folder / "file").read_text() == text
        assert list(folder.parent.iterdir()) == [folder]
    with pytest.raises(OSError, match="no space"), atomic_folder(folder) as new:
        new.mkdir()
        raise OSError("no space")
    assert (folder / "file").read_text() == "second" and unfinished_folders(folder) == []


def test_files_of_others(tmp_path: Path) -> None:
    check_no_foreign(tmp_path, ["ours"], ("ours", "another of ours"), "ours", "Choose another.")
    with pytest.raises(ValueError, match=r"got theirs in it, expected ours\. Choose another\."):
        check_no_foreign(tmp_path, ["ours", "theirs"], ("ours",), "ours", "Choose another.")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b", "Choose another.")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"file.* cannot be written .* Choose another\."):
        check_writable(tmp_path / "file" / "below", "Choose another.")


def test_tensorflow_is_not_loaded() -> None:
    code = "import sys, gpflow_pep.files; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
