"""6 Interrupted training: killed, interrupted, out of disk, without a worker."""

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
import pytest
import tensorflow as tf
from campaign import Size, Trial

TRAINING = Path(__file__).parents[1] / "training"
#: Seconds after an interrupt in which a run has to end; the evaluation under way is waited for.
PROMPT = 2.0
#: Seconds in which a process has to notice that another is gone.
BOUND = 120.0


def _command(*arguments: object) -> list[str]:
    return [sys.executable, worker.__file__, *map(str, arguments)]


def _started(*arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        _command(*arguments),
        cwd=Path(worker.__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _is_running(process: "subprocess.Popen[str]") -> bool:
    """Wait until it trains; False where it ended before."""
    assert process.stdout is not None
    return any(line.strip() == worker.RUNNING for line in process.stdout)


def _readable(directory: Path) -> int:
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
def test_killed(trial: Trial, size: Size, kind: str, tmp_path: Path) -> None:
    """SIGKILL at random moments of fit: checkpoints whole, resumed to the same numbers"""
    expected = worker.fit(str(tmp_path / "whole"), kind)
    random, kills, runs = np.random.default_rng(0), size(quick=3, full=20, long=100), 0
    while trial.tried < kills:
        directory, output = tmp_path / f"killed{runs}", tmp_path / f"{runs}.npz"
        runs += 1
        while trial.tried < kills:
            process = _started(kind, directory, output)
            if not _is_running(process):
                break  # it had no step to take
            time.sleep(random.uniform(0.0, 0.6))
            process.kill()
            process.communicate()
            if process.returncode == 0:  # it was done before
                break
            with trial.case(f"{kind}, kill {trial.tried}"):
                assert process.returncode == -signal.SIGKILL
                _readable(directory)
        with trial.case(f"{kind}, run {runs} to the end"):
            subprocess.run(_command(kind, directory, output), check=True, capture_output=True)
            found = np.load(output)
            for name, numbers in expected.items():
                np.testing.assert_allclose(found[name], numbers, rtol=1e-10, err_msg=name)
    trial.note(f"{kind}: {runs} runs, killed and resumed until they were done")


@pytest.mark.parametrize("kind", ["fit", "maximise"])
def test_interrupted(trial: Trial, size: Size, kind: str, tmp_path: Path) -> None:
    """SIGINT in fit and maximise: ends within 2 seconds, with what was finished kept"""
    random, slowest = np.random.default_rng(1), 0.0
    for number in range(size(quick=2, full=10, long=50)):
        output = tmp_path / f"{kind}{number}.npz"
        with trial.case(f"{kind} {number}"):
            process = _started(kind, output)
            try:
                assert _is_running(process), process.communicate()[1][-500:]
                time.sleep(random.uniform(0.0, 1.0))
                process.send_signal(signal.SIGINT)
                sent = time.time()
                _, said = process.communicate(timeout=60.0)
            finally:
                process.kill()
            assert process.returncode == 0, said[-500:]
            found = np.load(output)
            took = float(found["ended"]) - sent
            slowest = max(slowest, took)
            if kind == "maximise":
                assert found["kept"] >= found["best"] - 1e-6 * abs(found["best"])
                assert found["best"] > found["before"]
            else:
                steps = _readable(tmp_path / f"{kind}{number}")
                assert steps > 0
                record = worker.fit(str(tmp_path / f"{kind}{number}"), steps=steps + 1)
                alone = worker.fit(str(tmp_path / f"alone{number}"), steps=steps + 1)
                np.testing.assert_array_equal(record["losses"], alone["losses"])
                np.testing.assert_array_equal(record["metrics"], alone["metrics"])
            assert took <= PROMPT, f"it took {took:.1f} seconds"
    trial.note(f"{kind}: at most {slowest:.1f} seconds")


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
            assert _readable(directory) >= 6
    with trial.case("resumes when there is space"):
        found = worker.fit(str(directory), steps=12)
        np.testing.assert_array_equal(found["losses"], expected["losses"])
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with trial.case("read-only"):
        _expect_error(directory, ValueError, "checkpoint_dir")
        assert _readable(directory) == 12


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


def test_worker_that_dies(trial: Trial, size: Size, tmp_path: Path) -> None:
    """One of two processes of a distributed fit dies: the other stops with a message"""
    import socket

    for number in range(size(quick=1, full=3, long=10)):
        with trial.case(f"job {number}"):
            with ExitStack() as stack:
                sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
                for one in sockets:
                    one.bind(("127.0.0.1", 0))
                addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
            jobs = []
            for index in range(2):
                task = {"type": "worker", "index": index}
                configuration = json.dumps({"cluster": {"worker": addresses}, "task": task})
                jobs.append(
                    subprocess.Popen(
                        [sys.executable, "distributed_worker.py", "leaving", str(tmp_path / "x")],
                        cwd=TRAINING,
                        env={**os.environ, "TF_CONFIG": configuration},
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        text=True,
                    )
                )
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
