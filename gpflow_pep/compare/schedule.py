"""The schedule of the trials, which joblib runs, their time limits, and the calls of a
callback.
"""

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from typing import Any, NamedTuple

import joblib
import numpy as np

from .candidates import TRIVIAL, is_choice
from .process import Ended, run_trial
from .trials import Fit, Outcome, Trial, Trials

#: The smallest time for the steps of a fit, if compiling has used up its share.
LEAST_SECONDS = 0.5


class Progress(NamedTuple):
    """The argument of a callback, before each fit and, with the ``fit``, after it.

    :param number: The number of fits that have ended, this one included.
    :param total: The number of all fits.
    :param label: The name of the fit.
    :param fit: The result of the fit, after it; None before.
    :param is_fit: Whether this is a fit; steps after the last fit are not, and have one
        call each.
    """

    number: int
    total: int
    label: str
    fit: Fit | None = None
    is_fit: bool = True


class TimeBudget:
    """Shares of the remaining time, and the time of the last compilation.

    :param seconds: The time for all fits together.
    :param fits: The number of fits that share the time.
    :param at_once: The number of fits that run at the same time.
    :ivar lock: A thread must hold the lock to read or change the budget, because joblib
        starts tasks in a separate thread.
    """

    def __init__(self, seconds: float, fits: int, at_once: int = 1) -> None:
        self.end = time.perf_counter() + seconds
        self.fits = fits
        self.at_once = at_once
        self.overhead: dict[str, float] = {}
        self.overhead_of_first = np.inf
        self.lock = threading.RLock()

    def share(self, model: str) -> float:
        """Compute the time for the steps of the next fit of the model with this
        name.
        """
        seconds = self.end - time.perf_counter()
        at_once = min(self.at_once, self.fits)
        share = at_once * seconds / max(self.fits, 1)
        self.fits -= 1
        # After the end there is time for one evaluation.
        least = min(LEAST_SECONDS, max(seconds, 1e-3))
        return max(share - self.overhead.get(model, 0.0), least)

    def note(self, ended: Ended, waited: float) -> None:
        """Record the time of a fit that was not spent on steps.

        :param waited: The seconds from its call to its end. The start of its process is
            not charged, so this time is given back to the remaining fits.
        """
        self.end += max(waited - ended.seconds, 0.0) / self.at_once
        overhead = ended.outcome.overhead
        if overhead and ended.is_first:  # it loads modules that later fits find loaded
            self.overhead_of_first = min(overhead, self.overhead_of_first)
        elif overhead:
            self.overhead[ended.trial.model] = overhead

    def is_over(self, last: str | None = None) -> bool:
        """Whether no further fit begins, because compiling it, and then the model of
        all rows, would take longer than the remaining time.

        The estimate is the compilation time of the fit that shared most of its code
        with others. The first fit of a process is not counted.

        :param last: The name of a model that is trained after the model of all rows.
            Its own compilation time is the estimate.
        """
        known = [*self.overhead.values(), self.overhead_of_first]
        compiling = 2.0 * min(known) if self.overhead else 0.0
        if last in self.overhead:
            compiling = self.overhead[last]
        return time.perf_counter() + compiling > self.end


class Reports:
    """The calls of the callback, one at a time."""

    def __init__(self, callback: Callable[[Progress], None], total: int) -> None:
        self.callback = callback
        self.total = total
        self.done = 0

    def __call__(self, label: str, fit: Fit | None = None, is_fit: bool = True) -> None:
        """Call the callback before a fit, after it, and before a step that is not a
        fit.
        """
        begins = is_fit and fit is None
        self.done += not begins
        self.callback(Progress(self.done + begins, self.total, label, fit, is_fit))


def run_trials(
    trials: Trials,
    waiting: Sequence[Trial],
    budget: TimeBudget,
    reports: Reports,
) -> dict[Trial, Outcome]:
    """Run trials as ``joblib.parallel_config`` is set; by default in this process, one
    after another.

    If a process was lost, its fits run in this process. Errors of a callback are
    raised. No fit begins when the time is over. As long as no model has begun that may
    be saved, only optional trials stop for this reason.
    """
    outcomes: dict[Trial, Outcome] = {}
    waiting_trials = list(waiting)
    while waiting_trials:
        num_before = len(outcomes)
        try:
            _run_in_time(trials, waiting_trials, budget, reports, outcomes)
        except BrokenProcessPool:
            warnings.warn(
                "A process that trained fits has ended; perhaps it ran out of memory."
                " This process runs the remaining fits. With --jobs 1 there are no"
                " other processes.",
                stacklevel=1,
            )
            budget.at_once = 1
            waiting_trials = [trial for trial in waiting if trial not in outcomes]
            with joblib.parallel_config(n_jobs=1):
                return outcomes | run_trials(trials, waiting_trials, budget, reports)
        waiting_trials = [trial for trial in waiting if trial not in outcomes]
        if len(outcomes) == num_before:
            break
        # The times of the last fits may show that there is time for more.
    for trial in waiting_trials:
        outcomes[trial] = trials.not_begun(trial)
        budget.fits -= 1
        reports.done += 1
    return outcomes


def _run_in_time(
    trials: Trials,
    waiting: Sequence[Trial],
    budget: TimeBudget,
    reports: Reports,
    outcomes: dict[Trial, Outcome],
) -> None:
    """Run trials in their order until there is no time for the next one, and add their
    outcomes.

    :raises BrokenProcessPool: If a process was lost.
    """
    has_choice = any(is_choice(trial.model) for trial in outcomes)
    called: dict[Trial, float] = {}
    raised: list[BaseException] = []
    of_threads = os.getpid() if joblib.effective_n_jobs(None) > 1 else None

    def tasks() -> Iterator[Any]:
        for trial, seconds in _begin(trials, waiting, budget, has_choice):
            with budget.lock:
                called[trial] = time.perf_counter()
                try:
                    reports(trials.label(trial))
                except BaseException as error:
                    raised.append(error)
                    return
            # No fit is sent in advance, because its share of the time is computed when
            # it starts.
            yield joblib.delayed(run_trial)(trials, of_threads, trial, seconds)

    parallel = joblib.Parallel(
        return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1
    )
    try:
        with closing(parallel(tasks())) as results:
            for ended in results:
                waited = time.perf_counter() - called[ended.trial]
                with budget.lock:
                    outcomes[ended.trial] = ended.outcome
                    budget.note(ended, waited)
                    reports(trials.label(ended.trial), ended.outcome.fit)
    except BrokenProcessPool:
        budget.fits += len(called.keys() - outcomes.keys())
        raise
    for error in raised:
        raise error


def _begin(
    trials: Trials,
    waiting: Sequence[Trial],
    budget: TimeBudget,
    has_choice: bool,
) -> Iterator[tuple[Trial, float]]:
    """Yield the trials for which there is time, in their order, and the seconds of
    each.

    :param has_choice: Whether a model that may be saved has been trained.
    """
    trivial = TRIVIAL[trials.data.kind]
    is_over = False
    for trial in waiting:
        with budget.lock:
            # A later trial does not begin before an earlier one, because models can be
            # compared on a part only if all of them were trained there.
            if trial.is_optional:
                is_over = is_over or budget.is_over(last=trial.model)
            elif has_choice:
                is_over = is_over or budget.is_over()
            if trial.model == trivial:
                seconds = 0.0
            elif is_over:
                continue
            else:
                seconds = budget.share(trial.model)
                has_choice = has_choice or is_choice(trial.model)
        yield trial, seconds
