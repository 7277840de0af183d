"""Which process runs which trial, when and for how long; and the calls of a callback."""

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import joblib

from ..training.fitting.threads import one_blas_thread
from .candidates import TRIVIAL, is_choice
from .trials import Fit, Outcome, Trial, Trials
from .workers import Worker, WorkerLost, run_recording, warn_again

#: The least time for steps of a fit, where compiling has used up its share.
LEAST_SECONDS = 0.5


class Progress(NamedTuple):
    """
    What a callback gets before each fit and, with the ``fit``, after it. The powers of a mixture
    are trained one after another, and there is one call before all of them.

    :param number: How many fits have ended, this one counted.
    :param total: How many there are.
    :param label: Which one it is.
    :param fit: The fit, after it.
    :param is_fit: Whether it is a fit; steps after the last one are none, and have one call each.
    """

    number: int
    total: int
    label: str
    fit: Fit | None = None
    is_fit: bool = True


class TimeBudget:
    """Shares of the time that is left, and what compiling took the last time."""

    def __init__(self, seconds: float, fits: int, at_once: int = 1) -> None:
        self.end, self.fits, self.at_once = time.perf_counter() + seconds, fits, at_once
        self.overhead: dict[str, float] = {}

    def share(self, models: Sequence[str]) -> float:
        """Find the time for the steps of each of the next fits, of models of these names."""
        left = self.end - time.perf_counter()
        at_once = min(self.at_once, self.fits)
        share = at_once * left / max(self.fits, 1)
        self.fits -= len(models)
        return max(share - self.overhead.get(models[0], 0.0), LEAST_SECONDS)


class Reports:
    """The calls of the callback, for the fits of all queues, one at a time."""

    def __init__(self, callback: Callable[[Progress], None], total: int) -> None:
        self.callback, self.total, self.done = callback, total, 0

    def begin(self, label: str) -> None:
        """Call before a fit."""
        self.callback(Progress(self.done + 1, self.total, label))

    def step(self, label: str) -> None:
        """Call before a step that is no fit."""
        self.done += 1
        self.callback(Progress(self.done, self.total, label, is_fit=False))

    def end(self, label: str, fit: Fit) -> None:
        """Call after a fit."""
        self.done += 1
        self.callback(Progress(self.done, self.total, label, fit))


class Queue:
    """Trials that wait, and outcomes of the others; each process takes from it in a thread."""

    def __init__(
        self, trials: Trials, waiting: list[Trial], budget: TimeBudget, reports: Reports
    ) -> None:
        self._trials, self._budget, self._reports = trials, budget, reports
        self._waiting, self._lock = list(waiting), threading.Lock()
        self._stopped = False
        self.outcomes: dict[Trial, list[Outcome]] = {}

    def finish(self, workers: Sequence[Worker]) -> dict[Trial, list[Outcome]]:
        """
        Run all trials, here and by workers, or where the user's ``joblib.parallel_config`` says;
        what a callback raises is raised.
        """
        if not workers and joblib.effective_n_jobs(None) > 1:
            self._run_by_joblib()
            return self.outcomes
        if workers:  # they take powers, which share what is compiled, and no baselines if possible
            powers = {name: power for name, (power, _) in self._trials.candidates.items()}
            self._waiting.sort(key=lambda t: is_choice(t.models[0], powers[t.models[0]]))
        threads = ThreadPoolExecutor(1 + len(workers))
        try:
            helpers = [threads.submit(self._run_all, worker.run, -1) for worker in workers]
            self._run_all(self._trials.run, 0)
            for helper in helpers:
                helper.result()
        finally:
            threads.shutdown(wait=False)
        self._run_all(self._trials.run, 0)  # what lost workers have left
        return self.outcomes

    def _run_all(self, run: Callable[[Trial, float], list[Outcome]], place: int) -> None:
        """Run trials as long as there are any: the first (0) or the last (-1) that waits."""
        try:
            while task := self._next(place):
                trial, seconds = task
                try:
                    self._end(trial, run(trial, seconds))
                except WorkerLost as error:
                    self._put_back(trial, error)
                    return
        except BaseException:
            with self._lock:
                self._stopped = True
                self._waiting.clear()
            raise

    def _run_by_joblib(self) -> None:
        """Run all trials by joblib's backend; nothing is sent ahead, so that time is shared."""
        comparison = self._trials.data, self._trials.settings, self._trials.configurations

        def waiting() -> Iterator[Any]:
            while task := self._next(0):
                yield joblib.delayed(_run_elsewhere)(comparison, os.getpid(), *task)

        parallel = joblib.Parallel(
            return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1
        )
        for trial, outcomes, caught in parallel(waiting()):
            warn_again(caught)
            self._end(trial, outcomes)

    def _next(self, place: int) -> tuple[Trial, float] | None:
        with self._lock:
            if not self._waiting:
                return None
            trial = self._waiting.pop(place)
            trivial = trial.models[0] == TRIVIAL[self._trials.data.kind]
            seconds = 0.0 if trivial else self._budget.share(trial.models)
            self._reports.begin(self._trials.label(trial, trial.models[-1]))
            return trial, seconds

    def _end(self, trial: Trial, outcomes: list[Outcome]) -> None:
        with self._lock:
            self.outcomes[trial] = outcomes
            for outcome in outcomes:
                model = outcome.fit.model
                if outcome.overhead:
                    self._budget.overhead[model] = outcome.overhead
                self._reports.end(self._trials.label(trial, model), outcome.fit)

    def _put_back(self, trial: Trial, error: WorkerLost) -> None:
        with self._lock:
            if not self._stopped:
                self._waiting.append(trial)
                self._budget.fits += len(trial.models)
                warnings.warn(str(error), stacklevel=1)


def _run_elsewhere(
    comparison: tuple[Any, ...], process: int, trial: Trial, seconds: float
) -> tuple[Any, ...]:
    """
    Run a trial where joblib's backend does.

    :param process: The one that asked. In threads of it warnings arrive by themselves, and
        recording them there would not be safe.
    """
    trials = Trials(*comparison)
    with one_blas_thread():
        if os.getpid() == process:
            return trial, trials.run(trial, seconds), []
        return trial, *run_recording(trials, trial, seconds)
