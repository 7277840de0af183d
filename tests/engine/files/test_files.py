"""Files and folders that are whole or not there, and files of others, which stay."""

import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpflow_pep.engine import files
from gpflow_pep.engine.files import (
    _atomic_folder,
    atomic_write,
    check_replaceable,
    check_writable,
)

DESCRIPTION = "model.json"
FILES = ("a", DESCRIPTION, "sub/b")


def write(folder: Path, text: str) -> None:
    """A folder as this package describes it, with one text in all of its files."""
    with _atomic_folder(folder, DESCRIPTION) as new:
        (new / "sub").mkdir(parents=True)
        for name in ("a", "sub/b"):
            (new / name).write_text(text)
        content = {"versions": {"gpflow_pep": text}, "files": FILES}
        (new / DESCRIPTION).write_text(json.dumps(content))


def read(folder: Path) -> str:
    """The text, as a loader reads it: ValueError where a file lacks, or is of another
    folder.
    """
    files.check_present(folder, FILES, "Write it again.")
    version = json.loads((folder / DESCRIPTION).read_text())["versions"]["gpflow_pep"]
    texts = {version, (folder / "a").read_text(), (folder / "sub" / "b").read_text()}
    if len(texts) > 1:
        raise ValueError("the digest of the files is another")
    return str(version)


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "folds.csv"
    for text in ("first", "second", None):
        left = {file: file.read_text() for file in tmp_path.iterdir()}
        with pytest.raises(OSError, match="no space"), atomic_write(path) as new:
            new.write_text("half")
            raise OSError("no space")
        assert {file: file.read_text() for file in tmp_path.iterdir()} == left
        if text:
            with atomic_write(path) as new:
                new.write_text(text)
                assert new.parent in files.unfinished_folders(tmp_path)
            assert path.read_text() == text and list(tmp_path.iterdir()) == [path]


def test_a_file_keeps_its_rights_and_its_link(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "private"
    link = tmp_path / "link"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    with atomic_write(link) as new:
        new.write_text("new")
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o600
    assert link.is_symlink()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write all files
    with pytest.raises(PermissionError, match="private"), atomic_write(path) as new:
        new.write_text("other")
    assert path.read_text() == "new"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device of Linux")
def test_a_device_is_written_as_it_is() -> None:
    with pytest.raises(OSError) as error, atomic_write(Path("/dev/full")) as new:
        new.write_text("text")
    assert error.value.errno == errno.ENOSPC and Path("/dev/full").is_char_device()


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "below" / "model[1]"
    folder.parent.mkdir()
    for text in ("first", "second"):
        write(folder, text)
        assert read(folder) == text and list(folder.parent.iterdir()) == [folder]
        with (
            pytest.raises(OSError, match="no space"),
            _atomic_folder(folder, DESCRIPTION),
        ):
            raise OSError("no space")
        assert read(folder) == text and files.unfinished_folders(folder.parent) == []


def test_a_mounted_volume(tmp_path: Path) -> None:
    """A file system of 64 kB; skipped where it may not be made."""
    folder = tmp_path / "volume"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if (
        not shutil.which("mount")
        or subprocess.run(mount, capture_output=True).returncode
    ):
        pytest.skip("needs root and the command mount")
    try:
        (folder / "lost+found").mkdir()
        for text in ("first", "second"):
            write(folder, text)
            assert read(folder) == text
            assert {*os.listdir(folder)} == {"a", "sub", DESCRIPTION, "lost+found"}
        with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device"):
            write(folder, "x" * 100_000)
        assert read(folder) == "second"
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
    assert list(tmp_path.iterdir()) == [folder]


def cannot_be_moved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder refuse to be renamed, as a volume does."""
    rename = Path.rename

    def renamed(self: Path, target: Any) -> Path:
        if folder in (self, Path(target)):
            raise OSError(errno.EBUSY, "busy")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", renamed)


def test_a_writable_folder_in_one_that_is_not(tmp_path: Path, monkeypatch: Any) -> None:
    folder = tmp_path / "model"
    write(folder, "first")
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, way: path != tmp_path and access(path, way)
    )
    cannot_be_moved(folder, monkeypatch)
    write(folder, "second")
    assert read(folder) == "second" and {*os.listdir(folder)} == {
        "a",
        "sub",
        DESCRIPTION,
    }


#: What changes a folder on a disk.
CALLS = ("rename", "replace", "mkdir", "rmdir", "unlink")


@pytest.mark.near_copies("False-*", "True-False")
@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("volume", [True, False])
def test_whichever_call_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, volume: bool, killed: bool
) -> None:
    """The old or the new files, or a message; and all is well after the next write."""
    seen = set()
    for last in itertools.count():
        parent = tmp_path / str(last)
        parent.mkdir()
        folder = parent / "model"
        write(folder, "old")
        process = os.fork() if killed else 0
        if process:
            _, status = os.waitpid(process, 0)
            done = os.waitstatus_to_exitcode(status) == 0
        else:
            with monkeypatch.context() as patch:
                done = written_until(folder, last, killed, volume, patch)
        try:
            seen.add(read(folder))
        except ValueError as error:
            seen.add("message")
            assert "a process that was killed" in str(error) or volume
        if not killed:
            assert read(folder) in ("old", "new"), last
        check_replaceable(folder, DESCRIPTION, "Choose another.")
        write(folder, "next")
        assert read(folder) == "next"
        if done:
            break
    assert last > 3 and seen == (
        {"old", "new", "message"} if killed else {"old", "new"}
    )


def written_until(
    folder: Path, last: int, killed: bool, volume: bool, patch: Any
) -> bool:
    """Write while so many calls change the disk: the next one ends the process, or
    fails.
    """
    if volume:
        cannot_be_moved(folder, patch)
    left = itertools.count(last, -1)

    def counted(call: Any) -> Any:
        def change(*arguments: Any, **options: Any) -> Any:
            if next(left) == 0:
                if killed:
                    os._exit(1)
                raise OSError(errno.EIO, "broken")
            return call(*arguments, **options)

        return change

    for name in CALLS:
        patch.setattr(os, name, counted(getattr(os, name)))
    with suppress(OSError):
        write(folder, "new")
    if killed:
        os._exit(0)
    return next(left) >= 0


def test_two_writers(tmp_path: Path) -> None:
    """Nobody sees a half, and no writer fails."""
    code = (
        "import sys; from pathlib import Path\n"
        "from gpflow_pep.engine.files import _atomic_folder, atomic_write\n"
        "for number in range(200):\n"
        "    with atomic_write(Path(sys.argv[1], 'file')) as new:\n"
        "        new.write_text(sys.argv[2] * 9999)\n"
        "    with _atomic_folder(Path(sys.argv[1], 'folder')) as new:\n"
        "        new.mkdir()\n"
        "        [(new / name).write_text(sys.argv[2]) for name in 'ab']\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path, text]) for text in "xy"
    ]
    while any(writer.poll() is None for writer in writers):
        if (tmp_path / "file").exists():
            text = (tmp_path / "file").read_text()
            assert len(text) == 9999 and len({*text}) == 1
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len({(tmp_path / "folder" / name).read_text() for name in "ab"}) == 1
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_one_writer_at_a_time_and_no_tensorflow(tmp_path: Path) -> None:
    with files.only_writer(tmp_path) as first, files.only_writer(tmp_path) as second:
        assert first and second is False
    with files.only_writer(tmp_path) as again:
        assert again
    code = "import sys, gpflow_pep.engine.files; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "name, content",
    [
        ("README.md", "mine"),
        ("model.json", "mine"),
        ("model.json", '{"versions": {"another": "1.0"}}'),
        ("model.json", "[" * 100_000),
        ("model.json/mine", "mine"),
        (".hidden", "mine"),
        ("sub/b", "mine"),
    ],
)
def test_files_of_others(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    with pytest.raises(
        ValueError, match=rf"got {name} in it, expected .* Choose another\."
    ):
        check_replaceable(tmp_path, DESCRIPTION, "Choose another.")
    files.remove_written(tmp_path, DESCRIPTION)
    assert (tmp_path / name).read_text() == content


def test_files_of_others_beside_ours(tmp_path: Path) -> None:
    """Nor does a description of files elsewhere remove one of them."""
    (tmp_path / "mine").write_text("mine")
    folder = tmp_path / "model"
    other = tmp_path / "other"
    write(folder, "ours")
    check_replaceable(folder, DESCRIPTION, "Choose another.")
    (folder / "sub" / "mine").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"got sub/mine in it"):
        check_replaceable(folder, DESCRIPTION, "Choose another.")
    files.remove_written(folder, DESCRIPTION)
    assert [path.name for path in folder.rglob("*")] == ["sub", "mine"]
    write(other, "ours")
    content = {
        "versions": {"gpflow_pep": "1"},
        "files": ["../mine", str(tmp_path / "mine"), "a"],
    }
    (other / DESCRIPTION).write_text(json.dumps(content))
    files.remove_written(other, DESCRIPTION)
    assert (tmp_path / "mine").exists() and not (other / "a").exists()


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_writable(tmp_path / "a" / "b", "Choose another.")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        ValueError, match=r"file.* cannot be written .* Choose another\."
    ):
        check_writable(tmp_path / "file" / "below", "Choose another.")
    monkeypatch.chdir(tmp_path / "a" / "b")
    for url in ("s3://bucket/x", "gs://x", "hdfs://host:80/x", "https://x.org/a"):
        with pytest.raises(
            ValueError, match=r"got a URL, expected a file or folder of this mach"
        ):
            check_writable(Path(url), "Choose another.")
    assert list(Path().iterdir()) == []
