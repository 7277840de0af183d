"""Processes that train beside the one that was asked."""

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from compare.small_comparison import ALPHAS, OPTIONS, small_comparison, small_table
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal

import gpflow_pep
from gpflow_pep.compare import Comparison, Progress, Settings, clean, run, workers
from gpflow_pep.compare.trials import Trials
from gpflow_pep.compare.workers import MAX_JOBS, MOST_ROWS, Worker, default_jobs


@pytest.fixture
def worker() -> Iterator[Worker]:
    with workers.started_workers(1) as (one,):
        yield one


def compare_by(worker: Worker, callback: Any = None) -> Comparison:
    settings = Settings(alphas=ALPHAS, folds=2, **OPTIONS)
    return run.compare_table(clean(small_table(), "load"), settings, callback, [worker])


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


def test_a_worker_makes_fits_and_nothing_else_changes(worker: Worker) -> None:
    told: list[Progress] = []
    by_worker = []
    run_there = worker.run

    def tracked(trial: Any, seconds: float) -> Any:
        by_worker.append(trial)
        return run_there(trial, seconds)

    worker.run = tracked  # type: ignore[method-assign]
    found = compare_by(worker, told.append)
    assert_same(found, small_comparison())
    assert by_worker[0].models == ("alpha 0",) and by_worker[0].part == 2  # the last power
    ended = [progress for progress in told if progress.fit is not None]
    assert [progress.number for progress in ended] == list(range(1, 15))
    fits = [*found.fits, found.final]
    assert set(map(id, fits)) <= {id(progress.fit) for progress in ended}
    steps = sum(not progress.is_fit for progress in told)
    assert all(progress.total == 14 + steps for progress in told)


def test_fits_of_a_worker_that_was_lost_are_made_here(worker: Worker) -> None:
    worker._process.kill()
    with pytest.warns(match="trained beside this one has ended"):
        found = compare_by(worker)
    assert_same(found, small_comparison())


class _Thread(Worker):
    """What runs beside the comparison, without a process."""

    def __init__(self) -> None: ...

    def prepare(self, data: Any, settings: Any, configurations: Any) -> None:
        self.run = Trials(data, settings, configurations).run  # type: ignore[method-assign]


def test_what_a_callback_raises_is_raised() -> None:
    """Also where it was called for the fit of a worker, and nothing goes on then."""

    def full(progress: Progress) -> None:
        if progress.fit is not None and progress.label == "alpha 0, fold 2 of 2":
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        compare_by(_Thread(), full)


class _Connection:
    """Of a worker whose fits warn."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, what: Any) -> None:
        self.sent.append(what)

    def recv(self) -> Any:
        return ["outcome"], [("sites are far", RuntimeWarning)]


def test_warnings_of_a_worker_are_given_here() -> None:
    worker = Worker.__new__(Worker)
    worker._connection = connection = _Connection()  # type: ignore[assignment]
    worker.prepare("data", "settings", [])  # type: ignore[arg-type]
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert worker.run("trial", 3.0) == ["outcome"]  # type: ignore[arg-type, comparison-overlap]
        assert [(str(one.message), one.category) for one in caught] == [
            ("sites are far", RuntimeWarning)
        ]
    assert connection.sent == [("data", "settings", []), ("trial", 3.0), ("trial", 3.0)]


def test_how_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "num_cores", lambda: 3)
    assert default_jobs(MOST_ROWS, 15) == 3
    assert default_jobs(MOST_ROWS + 1, 15) == 1
    assert default_jobs(100, 2) == 2
    monkeypatch.setattr(workers, "num_cores", lambda: 64)
    assert default_jobs(100, 15) == MAX_JOBS
    monkeypatch.setattr(workers.multiprocessing.current_process(), "_config", {"daemon": True})
    assert default_jobs(100, 15) == 1  # which may have none below it


PARENT = """
import sys, time
from gpflow_pep.compare import workers
with workers.started_workers(2) as made:
    print(*(worker._process.pid for worker in made), flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(os.name != "posix", reason="kills as POSIX does")
def test_workers_end_with_their_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE, text=True, cwd=Path(gpflow_pep.__file__).parents[1],
    )  # fmt: skip
    assert parent.stdout is not None
    children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 30.0
    while any(child.is_running() and child.status() != "zombie" for child in children):
        assert time.monotonic() < deadline, "they still run"
        time.sleep(0.1)
