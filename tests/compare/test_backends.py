"""Fits that run where joblib's backend says, on a cluster for example."""

import warnings
from contextlib import ExitStack
from typing import Any

import joblib
import pytest
from compare.small_comparison import ALPHAS, OPTIONS, small_comparison, small_table
from compare.test_workers import assert_same

from gpflow_pep.compare import Progress, compare, workers
from gpflow_pep.compare.trials import Trials


def compare_by_joblib(callback: Any = None) -> None:
    result = compare(small_table(), "load", alphas=ALPHAS, folds=2, callback=callback, **OPTIONS)
    assert_same(result, small_comparison())


def test_a_backend_runs_the_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were two jobs: joblib runs them in this process, one after another."""
    reports: list[Progress] = []
    asked = []
    run = Trials.run
    monkeypatch.setattr(Trials, "run", lambda *args: asked.append(args[1]) or run(*args))
    expected = small_comparison()
    asked.clear()
    monkeypatch.setattr(joblib, "effective_n_jobs", lambda _: 2)
    compare_by_joblib(reports.append)
    num_parts = len({fit.part for fit in expected.fits})
    num_trials = len(expected.candidates) * num_parts + len(expected.details.learning) - 1
    assert len(asked) == num_trials
    ended = [progress.number for progress in reports if progress.fit is not None]
    assert ended == list(range(1, len(ended) + 1))
    steps = [progress for progress in reports if not progress.is_fit]
    assert len(ended) + len(steps) == reports[0].total


def test_warnings_of_another_process_are_given_here() -> None:
    class Warns:
        def run(self, trial: Any, seconds: float) -> list[Any]:
            warnings.warn(f"{trial} took {seconds}", UserWarning, stacklevel=1)
            return ["outcome"]

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        outcomes, caught = workers.run_recording(Warns(), "trial", 3.0)
    assert outcomes == ["outcome"] and caught == [("trial took 3.0", UserWarning)]
    with pytest.warns(UserWarning, match="trial took 3.0"):
        workers.warn_again(caught)


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
        compare_by_joblib()
