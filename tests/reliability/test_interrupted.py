"""6 Faults: killed, interrupted, out of disk, without a worker."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import interrupted_worker as worker
import numpy as np
import pandas as pd
import pytest
from campaign import Size, Trial
from forks import Forks
from test_killed import forks, readable, write_table

__all__ = ["forks"]  # the fixture
TRAINING = Path(__file__).parents[1] / "training"
#: Seconds after an interrupt in which a run has to end; the evaluation under way is waited for.
PROMPT = 2.0
#: Of compare, which ends at once.
INTERRUPTED = 130
#: Seconds in which a process has to notice that another is gone.
BOUND = 120.0
#: Of minibatch training that nothing interrupts: as many as interrupted ones may take, and more.
STEPS = 400


def _interrupted(forks: Forks, wait: float) -> tuple[float, int]:
    """Interrupt it after some seconds: when, and its exit code."""
    time.sleep(wait)
    forks.send(signal.SIGINT)
    sent = time.time()
    return sent, forks.end(timeout=60.0)


def test_interrupted_fit(trial: Trial, size: Size, forks: Forks, tmp_path: Path) -> None:
    """SIGINT in fit: ends within 2 seconds, with what was finished kept"""
    random, slowest = np.random.default_rng(1), 0.0
    alone = worker.fit(str(tmp_path / "alone"), steps=STEPS)
    for number in range(size(quick=2, full=6, long=50)):
        directory = tmp_path / f"fit{number}"
        output = directory.with_suffix(".npz")
        with trial.case(f"fit {number}"):
            assert forks.start("train", "fit", output), forks.errors()
            sent, code = _interrupted(forks, random.uniform(0.0, 1.0))
            assert code == 0, forks.errors()
            took = float(np.load(output)["ended"]) - sent
            slowest = max(slowest, took)
            steps = readable(directory)
            assert 0 < steps < STEPS
            record = worker.fit(str(directory), steps=steps + 1)
            for name in ("losses", "metrics"):
                found = record[name]
                np.testing.assert_array_equal(found, alone[name][: len(found)])
            assert took <= PROMPT, f"it took {took:.1f} seconds"
    trial.note(f"at most {slowest:.1f} seconds")


def test_interrupted_maximise(trial: Trial, size: Size, forks: Forks, tmp_path: Path) -> None:
    """SIGINT in maximise: ends within 2 seconds, with the best that was found kept"""
    random, slowest = np.random.default_rng(1), 0.0
    for number in range(size(quick=2, full=8, long=50)):
        output = tmp_path / f"{number}.npz"
        with trial.case(f"maximise {number}"):
            assert forks.start("train", "maximise", output), forks.errors()
            sent, code = _interrupted(forks, random.uniform(0.0, 1.0))
            assert code == 0, forks.errors()
            found = np.load(output)
            took = float(found["ended"]) - sent
            slowest = max(slowest, took)
            assert found["kept"] >= found["best"] - 1e-6 * abs(found["best"])
            assert found["best"] > found["before"]
            assert took <= PROMPT, f"it took {took:.1f} seconds"
    trial.note(f"at most {slowest:.1f} seconds")


def test_interrupted_compare(trial: Trial, size: Size, forks: Forks, tmp_path: Path) -> None:
    """SIGINT in gpflow-pep compare: ends within 2 seconds, with the scores of fits that ended"""
    random, slowest = np.random.default_rng(1), 0.0
    data = write_table(tmp_path / "t.csv")
    for number in range(size(quick=2, full=8, long=50)):
        out = tmp_path / f"out{number}"
        with trial.case(f"compare {number}"):
            forks.start("compare", data, out)
            deadline = time.time() + 60.0
            while not (out / "unfinished.csv").exists() and time.time() < deadline:
                time.sleep(0.01)
            sent, code = _interrupted(forks, random.uniform(0.0, 2.0))
            took = time.time() - sent
            slowest = max(slowest, took)
            assert code in (0, INTERRUPTED), forks.errors()  # 0: it had ended
            scores = [out / name for name in ("unfinished.csv", "folds.csv")]
            fits = pd.read_csv(next(path for path in scores if path.exists()))["model"]
            assert list(fits) == ["mean", "alpha 0.5"][: len(fits)]
            if code == INTERRUPTED:
                last = forks.errors().splitlines()[-1]
                assert last.endswith(f"Scores of the fits that ended are in {out}."), last
            assert took <= PROMPT, f"it took {took:.1f} seconds"
    trial.note(f"at most {slowest:.1f} seconds, with the end of the process")


@contextmanager
def _small_disk(directory: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of its own; skips the rest where it may not be made."""
    directory.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(directory)]
    made = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if made.returncode:
        raise PermissionError(made.stderr.strip())
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


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
    try:
        with _small_disk(tmp_path / "disk", 400) as disk:
            _with_full_disk(trial, disk, tmp_path)
    except PermissionError as error:
        trial.skip(f"a small file system cannot be mounted here ({error})")
    for name in ("checkpoint_dir", "log_dir"):
        with trial.case(f"{name} below a file"):
            file = tmp_path / name
            file.write_text("no folder")
            _expect_error(file / "below", ValueError, name)


def _with_full_disk(trial: Trial, disk: Path, tmp_path: Path) -> None:
    expected = worker.fit(str(tmp_path / "whole"), steps=12)
    directory, filler = disk / "checkpoints", disk / "filler"
    worker.fit(str(directory), steps=6)
    for leave in (0, 4096, 8192):
        with trial.case(f"full but for {leave} bytes"):
            _fill(filler, leave)
            with pytest.raises((OSError, ValueError), match=r"checkpoint_dir: got.*room"):
                worker.fit(str(directory), steps=12)
            filler.unlink()
            assert readable(directory) >= 6
    with trial.case("resumes when there is space"):
        found = worker.fit(str(directory), steps=12)
        np.testing.assert_array_equal(found["losses"], expected["losses"])
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with trial.case("read-only"):
        _expect_error(directory, ValueError, "checkpoint_dir")
        assert readable(directory) == 12


def _expect_error(directory: Path, kind: type, name: str) -> None:
    import tf_keras

    batches = worker.pep.training.shuffled_batches((worker.X, worker.Y), 30, seed=3)
    options: dict[str, Any] = {name: directory}
    with pytest.raises(kind, match=f"{name}: got .*cannot be written to"):
        worker.pep.training.fit(
            worker.arpep(),
            batches,
            num_steps=1,
            optimizer=tf_keras.optimizers.Adam(),
            progress=False,
            **options,
        )


def _pair(kind: str, output: Path) -> "list[subprocess.Popen[str]]":
    """Two processes of a distributed job."""
    from test_distributed import free_addresses

    cluster = {"worker": free_addresses(2)}
    configurations = [
        json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        for index in range(2)
    ]
    return [
        subprocess.Popen(
            [sys.executable, "distributed_worker.py", kind, str(output.with_suffix(f".{k}.npz"))],
            cwd=TRAINING,
            env={**os.environ, "TF_CONFIG": configuration},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for k, configuration in enumerate(configurations)
    ]


def test_worker_that_dies(
    trial: Trial, size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two distributed processes dies: the other stops, their job resumes"""
    monkeypatch.syspath_prepend(str(TRAINING))
    alone = importlib.import_module("distributed_worker").fitted(None, None)
    for number in range(size(quick=1, full=2, long=10)):
        output = tmp_path / f"job{number}"
        jobs = _pair("leaving", output)
        with trial.case(f"job {number} stops"):
            try:
                jobs[1].wait(timeout=600.0)
                gone = time.time()
                said, _ = jobs[0].communicate(timeout=BOUND)
                took = time.time() - gone
            finally:
                for job in jobs:
                    job.kill()
            assert jobs[1].returncode == 3 and jobs[0].returncode == 1, said[-500:]
            assert "strategy: got no answer from another process" in said, said[-500:]
            trial.note(f"job {number}: the other stopped after {took:.0f} seconds")
        jobs = _pair("resumed", output)
        with trial.case(f"job {number} resumes"):
            try:
                said = "".join(job.communicate(timeout=600.0)[0] for job in jobs)
            finally:
                for job in jobs:
                    job.kill()
            assert [job.returncode for job in jobs] == [0, 0], said[-500:]
            found = np.load(output.with_suffix(".0.npz"))
            for name in ("losses", "metrics"):
                np.testing.assert_allclose(found[name], alone[name], rtol=1e-9)
