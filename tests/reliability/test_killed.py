"""6 Faults: killed, interrupted, out of disk."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import forked_worker as worker
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from campaign import Size, Trial
from forked_worker import Forks

from gpflow_pep.compare.folder import MANIFEST, UNFINISHED
from gpflow_pep.estimators import (
    PEPRegressor,
    load_estimator,
    save_estimator,
)

ROWS = np.linspace(-1.0, 1.0, 7)[:, None]

#: Seconds after an interrupt in which a run has to end; the evaluation under way is
#: waited for.
PROMPT = 2.0
#: Of minibatch training that nothing interrupts: as many as interrupted ones may take,
#: and more.
STEPS = 400


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with worker.forking(tmp_path_factory.mktemp("forks") / "errors.txt") as found:
        yield found


def readable(directory: Path) -> int:
    """The number of the newest checkpoint, all of which are read in full."""
    state = tf.train.get_checkpoint_state(str(directory))
    if state is None:
        return 0
    for path in state.all_model_checkpoint_paths:
        if path == state.model_checkpoint_path or Path(f"{path}.index").exists():
            reader = tf.train.load_checkpoint(path)
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
    return int(state.model_checkpoint_path.rpartition("-")[2])


@pytest.mark.parametrize("kind", ["ARPEP", "PEP"])
def test_training(
    trial: Trial, size: Size, forks: Forks, kind: str, tmp_path: Path
) -> None:
    """SIGKILL in fit: checkpoints whole, resumed to the same numbers"""
    whole = tmp_path / "whole.npz"
    forks.run("train", kind, tmp_path / "whole", whole)
    expected = np.load(whole)
    full = {"ARPEP": 16, "PEP": 8}[kind]
    random = np.random.default_rng(0)
    kills = size(quick=2, full=full, long=100)
    killed = runs = 0
    while killed < kills:
        directory = tmp_path / f"killed{runs}"
        output = tmp_path / f"{runs}.npz"
        runs += 1
        while killed < kills and forks.start("train", kind, directory, output):
            time.sleep(random.uniform(0.0, 0.8))
            if not forks.kill():
                break
            killed += 1
            with trial.case(f"{kind}, kill {killed}"):
                readable(directory)
        with trial.case(f"{kind}, run {runs} to the end"):
            forks.run("train", kind, directory, output)
            found = np.load(output)
            for name, numbers in expected.items():
                np.testing.assert_allclose(
                    found[name], numbers, rtol=1e-10, err_msg=name
                )
            assert not list(directory.glob("*_temp"))
    trial.note(f"{kind}: {killed} kills, {runs} runs resumed until they were done")


def table(path: Path) -> pd.DataFrame:
    """Without what differs between two runs that are the same."""
    found = pd.read_csv(path, keep_default_na=False)
    return found.drop(columns=["seconds", "cell_seconds"], errors="ignore")


def assert_whole(out: Path, expected: Path, *, done: bool) -> None:
    """The folder of a comparison has the files of another, or fewer until it
    is done.
    """
    there = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    wanted = {path.name for path in expected.iterdir()} | (
        set() if done else {UNFINISHED}
    )
    assert there == wanted if done else there <= wanted, there ^ wanted
    for name in there:
        path = out / name
        if path.suffix == ".csv":
            rows = table(expected / name.replace(UNFINISHED, "folds.csv"))
            written = table(path)
            # As fits end, those on fewer rows too, which come last.
            if name == UNFINISHED:
                number = min(len(rows), len(written))
                rows = rows.iloc[:number]
                written = written.iloc[:number]
            pd.testing.assert_frame_equal(written, rows, check_dtype=done, rtol=1e-10)
        elif path.suffix == ".png":
            assert path.read_bytes()[-8:-4] == b"IEND", f"{name} is cut"
        elif path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>"), f"{name} is cut"
        elif name == "model":
            load_estimator(path)
    if done:
        assert not [path.name for path in out.iterdir() if path.name.startswith(".")]
        assert (out / MANIFEST).read_text() == (expected / MANIFEST).read_text()


def write_table(path: Path) -> Path:
    frame = pd.DataFrame(worker.X, columns=["a", "b"]).assign(y=worker.Y)
    frame.iloc[:60].to_csv(path, index=False)
    return path


def test_compare(trial: Trial, size: Size, forks: Forks, tmp_path: Path) -> None:
    """SIGKILL in gpflow-pep compare: files whole, run again: the same numbers"""
    data = write_table(tmp_path / "t.csv")
    whole = tmp_path / "whole"
    out = tmp_path / "out"
    # The first waits until the server has loaded TensorFlow.
    forks.run("compare", data, tmp_path / "first")
    began = time.perf_counter()
    forks.run("compare", data, whole)
    seconds = time.perf_counter() - began
    random = np.random.default_rng(1)
    kills = size(quick=3, full=24, long=100)
    killed = done = 0
    while killed < kills:
        forks.start("compare", data, out)
        time.sleep(random.uniform(0.0, seconds))
        was_killed = forks.kill()
        killed = killed + was_killed
        done = done + (not was_killed)
        with trial.case(f"kill {killed}"):
            assert_whole(out, whole, done=not was_killed)
    with trial.case("to the end"):
        forks.run("compare", data, out)
        assert_whole(out, whole, done=True)
    trial.note(
        f"{killed} kills in the {seconds:.1f} s of a run, {done} ended before, one"
        " folder"
    )


def test_saving(trial: Trial, size: Size, forks: Forks, tmp_path: Path) -> None:
    """SIGKILL in saving over an older model: it is the old or the new one"""
    templates = [tmp_path / "template0", tmp_path / "template1"]
    expected = []
    for number, template in enumerate(templates):
        estimator = PEPRegressor(num_inducing=4, random_state=number, max_iterations=1)
        estimator.fit(worker.X[:30, :1], worker.Y[:30, 0] + number)
        save_estimator(template, estimator)
        expected.append(estimator.predict(ROWS))
    folder = tmp_path / "model"
    save_estimator(folder, estimator)
    random = np.random.default_rng(3)
    seen = [0, 0]
    for number in range(size(quick=2, full=32, long=320)):
        with trial.case(f"save, kill {number}"):
            assert forks.start("save", folder, *templates)
            time.sleep(random.uniform(0.0, 0.1))
            assert forks.kill()
            if not folder.exists():
                # Killed between two names: the message says where the model is.
                with pytest.raises(
                    ValueError, match=r"a process that was killed has left"
                ):
                    load_estimator(folder)
                continue
            found = load_estimator(folder).predict(ROWS)
            differences = [np.max(np.abs(found - one)) for one in expected]
            assert min(differences) < 1e-10, "it is neither"
            seen[int(np.argmin(differences))] += 1
    trial.note(f"{seen[0]} times the one, {seen[1]} times the other")


class Interrupts:
    """Processes that are interrupted after some seconds, and how long they
    take to end.
    """

    def __init__(self, forks: Forks, longest: float) -> None:
        self.forks = forks
        self._longest = longest
        self._random = np.random.default_rng(1)
        self.took: list[float] = []

    def interrupt(self) -> tuple[float, int]:
        """When, and the exit code."""
        time.sleep(self._random.uniform(0.0, self._longest))
        self.forks.send(signal.SIGINT)
        sent = time.time()
        return sent, self.forks.end(timeout=60.0)

    def train(self, job: str, output: Path) -> Any:
        """Start and interrupt it; what it wrote, once it has ended."""
        assert self.forks.start(job, output), self.forks.errors()
        sent, code = self.interrupt()
        assert code == 0, self.forks.errors()
        found = np.load(output)
        self.check(float(found["ended"]) - sent)
        return found

    def check(self, took: float) -> None:
        self.took.append(took)
        assert took <= PROMPT, f"it took {took:.1f} seconds"


def test_interrupted_fit(
    trial: Trial, size: Size, forks: Forks, tmp_path: Path
) -> None:
    """SIGINT in fit: ends within 2 seconds, with what was finished kept"""
    alone = worker.fit(str(tmp_path / "alone"), steps=STEPS)
    interrupts = Interrupts(forks, 1.0)
    for number in range(size(quick=2, full=6, long=50)):
        directory = tmp_path / f"fit{number}"
        with trial.case(f"fit {number}"):
            interrupts.train("interrupted_fit", directory.with_suffix(".npz"))
            steps = readable(directory)
            assert 0 < steps < STEPS
            record = worker.fit(str(directory), steps=steps + 1)
            for name in ("losses", "metrics"):
                found = record[name]
                np.testing.assert_array_equal(found, alone[name][: len(found)])
    trial.note(f"at most {max(interrupts.took):.1f} seconds")


def test_interrupted_maximise(
    trial: Trial, size: Size, forks: Forks, tmp_path: Path
) -> None:
    """SIGINT in maximise: ends within 2 seconds, with the best that was found kept"""
    interrupts = Interrupts(forks, 1.0)
    for number in range(size(quick=2, full=8, long=50)):
        with trial.case(f"maximise {number}"):
            found = interrupts.train("interrupted_maximise", tmp_path / f"{number}.npz")
            assert found["kept"] >= found["best"] - 1e-6 * abs(found["best"])
            assert found["best"] > found["before"]
    trial.note(f"at most {max(interrupts.took):.1f} seconds")


def test_interrupted_compare(
    trial: Trial, size: Size, forks: Forks, tmp_path: Path
) -> None:
    """SIGINT in gpflow-pep compare: ends within 2 seconds, with the scores of fits that
    ended
    """
    data = write_table(tmp_path / "t.csv")
    interrupts = Interrupts(forks, 2.0)
    for number in range(size(quick=2, full=8, long=50)):
        out = tmp_path / f"out{number}"
        with trial.case(f"compare {number}"):
            forks.start("compare", data, out)
            deadline = time.time() + 60.0
            while not (out / "unfinished.csv").exists() and time.time() < deadline:
                time.sleep(0.01)
            sent, code = interrupts.interrupt()
            took = time.time() - sent
            # 0: it had ended; 130: it ended at once.
            assert code in (
                0,
                130,
            ), forks.errors()
            scores = [out / name for name in ("unfinished.csv", "folds.csv")]
            fits = pd.read_csv(next(path for path in scores if path.exists()))["model"]
            assert set(fits) <= {"default", "mean", "alpha 0.5"} and fits.is_unique
            if code == 130:
                last = forks.errors().splitlines()[-1]
                where = out / "unfinished.csv"
                assert last.endswith(f"of the finished fits are in {where}."), last
            interrupts.check(took)
    trial.note(
        f"at most {max(interrupts.took):.1f} seconds, with the end of the process"
    )


def _fill(path: Path, leave: int) -> None:
    """Take all space but some bytes."""
    with path.open("wb", buffering=0) as file, ExitStack() as stack:
        stack.callback(lambda: os.truncate(path, max(path.stat().st_size - leave, 0)))
        try:
            while True:
                file.write(b"x" * 1024)
        except OSError:
            pass


def test_full_disk(trial: Trial, tmp_path: Path) -> None:
    """A full disk, a read-only one: a clear error, checkpoints stay, fit resumes"""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        return trial.skip(
            f"a small file system cannot be mounted here ({made.stderr.strip()})"
        )
    try:
        _with_full_disk(trial, disk, tmp_path)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _with_full_disk(trial: Trial, disk: Path, tmp_path: Path) -> None:
    expected = worker.fit(str(tmp_path / "whole"), steps=12)
    directory = disk / "checkpoints"
    filler = disk / "filler"
    worker.fit(str(directory), steps=6)
    for leave in (0, 4096, 8192):
        with trial.case(f"full but for {leave} bytes"):
            _fill(filler, leave)
            with pytest.raises(
                (OSError, ValueError), match=r"(?i)checkpoint_dir: got.*free some space"
            ):
                worker.fit(str(directory), steps=12)
            filler.unlink()
            assert readable(directory) >= 6
    with trial.case("resumes when there is space"):
        found = worker.fit(str(directory), steps=12)
        np.testing.assert_array_equal(found["losses"], expected["losses"])
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with trial.case("read-only"):
        with pytest.raises(
            ValueError, match=r"checkpoint_dir: got .*cannot be written to"
        ):
            worker.fit(str(directory), steps=13)
        assert readable(directory) == 12
