"""Fits that run where joblib's backend says: in this process, in others, or on a cluster."""

import os
import pickle
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import psutil
import pytest
from compare.small_comparison import ALPHAS, OPTIONS, small_comparison, small_table
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal

import gpflow_pep
from gpflow_pep.compare import (
    Comparison,
    Fit,
    Progress,
    Settings,
    clean,
    compare,
    process,
    schedule,
)
from gpflow_pep.compare.trials import Outcome, Trial, Trials


def assert_same(found: Comparison, expected: Comparison) -> None:
    """But for times."""
    assert [(fit.model, fit.part) for fit in found.fits] == [
        (fit.model, fit.part) for fit in expected.fits
    ]
    for fit, other in zip(found.fits, expected.fits):
        assert fit.iterations == other.iterations
        assert_allclose([*fit.scores.values()], [*other.scores.values()], rtol=1e-6)
    assert list(found.held_out) == list(expected.held_out)
    for name, table in found.held_out.items():
        assert_frame_equal(table, expected.held_out[name], rtol=1e-6)
    assert found.best == expected.best
    assert found.candidates == expected.candidates


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_processes_of_a_backend_run_the_fits(backend: str) -> None:
    """With dask on a local cluster of two processes, as on any other."""
    with ExitStack() as stack:
        if backend == "dask":
            distributed = pytest.importorskip("distributed")
            options = {"threads_per_worker": 1, "dashboard_address": None}
            cluster = stack.enter_context(distributed.LocalCluster(n_workers=2, **options))
            stack.enter_context(distributed.Client(cluster))
        jobs = {"n_jobs": 2} if backend == "loky" else {}
        stack.enter_context(joblib.parallel_config(backend=backend, **jobs))
        assert joblib.effective_n_jobs(None) == 2
        result = compare(small_table(), "load", alphas=ALPHAS, folds=2, **OPTIONS)
    assert_same(result, small_comparison())


TRIALS = [Trial("alpha 0", part) for part in range(1, 7)]


def run(
    callback: Callable[[Progress], None] | None = None,
    do: Callable[[Trial], None] = lambda trial: None,
) -> tuple[list[Trial], schedule.TimeBudget]:
    """Run trials of nothing."""

    def run_one(trial: Trial, seconds: float) -> Outcome:
        do(trial)
        fit = Fit(trial.model, trial.part, {}, 0.0, seconds, 1, True, "")
        return Outcome(fit, None, 0.5)

    trials: Any = SimpleNamespace(
        data=SimpleNamespace(kind="numbers"),
        candidates={"alpha 0": (0.0, None)},
        run=run_one,
        label=lambda trial: str(trial.part),
    )
    budget = schedule.TimeBudget(60.0, len(TRIALS), joblib.effective_n_jobs(None))
    reports = schedule.Reports(callback or (lambda progress: None), len(TRIALS))
    return list(schedule.run_trials(trials, TRIALS, budget, reports)), budget


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_callback_is_called_by_one_thread_at_a_time(jobs: int) -> None:
    """Where fits of two threads begin and end at any time."""
    numbers, inside = [], []

    def callback(progress: Progress) -> None:
        inside.append(1)
        time.sleep(0.002)
        assert len(inside) == 1
        inside.clear()
        numbers.append((progress.fit is None, progress.number))

    with joblib.parallel_config("threading", n_jobs=jobs):
        done, budget = run(callback)
    assert sorted(done) == TRIALS and budget.fits == 0 and budget.overhead == {"alpha 0": 0.5}
    assert [number for begins, number in numbers if not begins] == [1, 2, 3, 4, 5, 6]
    assert sum(begins for begins, _ in numbers) == 6


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("at_end", [True, False])
def test_what_a_callback_raises_is_raised(jobs: int, at_end: bool) -> None:
    """Also where joblib has asked for the next fit, and nothing goes on then."""
    seen = []

    def full(progress: Progress) -> None:
        seen.append(progress)
        if progress.label == "4" and (progress.fit is not None) == at_end:
            raise OSError("the disk is full")

    with (
        joblib.parallel_config("threading", n_jobs=jobs),
        warnings.catch_warnings(),
        pytest.raises(OSError, match="the disk is full"),
    ):
        warnings.simplefilter("ignore")  # joblib warns of the fits that it leaves
        run(full, lambda trial: time.sleep(0.02))
    if at_end:
        assert seen[-1].label == "4" and seen[-1].fit is not None
    else:
        assert "6" not in {progress.label for progress in seen}


def test_fits_of_a_process_that_was_lost_are_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    parallel = joblib.Parallel

    def breaks(**options: Any) -> Any:
        def call(tasks: Any) -> Any:
            monkeypatch.setattr(joblib, "Parallel", parallel)
            yield from parallel(**options)(next(tasks) for _ in range(2))
            next(tasks)
            raise BrokenProcessPool

        return call

    monkeypatch.setattr(joblib, "Parallel", breaks)
    ended: list[Progress] = []
    with pytest.warns(match="has ended; perhaps it ran out of memory"):
        done, budget = run(ended.append)
    assert done == TRIALS and budget.fits == 0
    assert [each.number for each in ended if each.fit is not None] == [1, 2, 3, 4, 5, 6]


def test_warnings_of_another_process_are_given_here() -> None:
    def do(trial: Trial) -> None:
        warnings.warn(f"part {trial.part}", RuntimeWarning, stacklevel=1)

    trials: Any = SimpleNamespace(run=lambda trial, seconds: do(trial))
    *_, caught = process.run_trial(trials, os.getpid() + 1, TRIALS[0], 3.0)
    assert caught == [("part 1", RuntimeWarning)]
    with pytest.warns(RuntimeWarning, match="part 1"):
        assert process.run_trial(trials, os.getpid(), TRIALS[0], 3.0)[-1] == []


def test_how_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblib, "cpu_count", lambda: 3)
    assert process.default_jobs(process.MOST_ROWS, 15) == 3
    assert process.default_jobs(process.MOST_ROWS + 1, 15) == 1
    assert process.default_jobs(100, 2) == 2
    monkeypatch.setattr(joblib, "cpu_count", lambda: 64)
    assert process.default_jobs(100, 15) == process.MAX_JOBS


def test_a_process_that_starts_late_loads_tensorflow_in_silence() -> None:
    """Whatever the level of its messages is, but 0."""
    trials = Trials(clean(small_table(), "load"), Settings(splits=1))
    code = "import pickle, sys; print(type(pickle.load(sys.stdin.buffer)[1]).__name__)"
    payload = pickle.dumps((process.run_trial, trials))
    environment = {**os.environ, process.LOG_LEVEL: "1"}
    late = subprocess.run(
        [sys.executable, "-c", code], input=payload, capture_output=True, env=environment,
        cwd=Path(gpflow_pep.__file__).parents[1], timeout=120.0,
    )  # fmt: skip
    assert (late.stdout, late.stderr) == (b"Trials\n", b"")


COMMAND = """
import joblib, os, sys, time
from gpflow_pep.compare import process
process._load = process._load_on_cpu = lambda: None

def sleep():
    # In one write: two processes share the pipe, and print writes the end of a line by itself.
    os.write(1, f"{os.getpid()} {os.environ['OMP_NUM_THREADS']}\\n".encode())
    time.sleep(60.0)

with process.exit_on_signals(lambda: "So it is."), process.fits_in_processes(2):
    joblib.Parallel()(joblib.delayed(sleep)() for _ in range(2))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_ends_the_other_processes() -> None:
    """In silence, though Python's resource tracker finds what they have left."""
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=Path(gpflow_pep.__file__).parents[1],
    )  # fmt: skip
    assert command.stdout is not None
    lines = [command.stdout.readline() for _ in range(2)]
    others = [psutil.Process(int(line.split()[0])) for line in lines]
    assert [line.split()[1] for line in lines] == ["1", "1"]
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=60.0)
    assert command.returncode == 130
    assert re.fullmatch(r"\nInterrupted\. So it is\.\n", errors)
    psutil.wait_procs(others, timeout=30.0)
    assert not any(other.is_running() for other in others)
