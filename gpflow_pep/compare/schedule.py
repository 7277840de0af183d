"""When each trial runs and for how long, by joblib; and the calls of a callback."""

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from typing import Any, NamedTuple

import joblib

from .candidates import TRIVIAL, is_choice
from .process import run_trial
from .trials import Fit, Outcome, Trial, Trials

#: The least time for steps of a fit, where compiling has used up its share.
LEAST_SECONDS = 0.5


class Progress(NamedTuple):
    """What a callback gets before each fit and, with the ``fit``, after it.

    :param number: How many fits have ended, this one counted.
    :param total: How many there are.
    :param label: Which one it is.
    :param fit: The fit, after it.
    :param is_fit: Whether it is a fit; steps after the last one are none, and have one
        call each.
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

    def share(self, model: str) -> float:
        """Find the time for the steps of the next fit, of a model of this name."""
        left = self.end - time.perf_counter()
        at_once = min(self.at_once, self.fits)
        share = at_once * left / max(self.fits, 1)
        self.fits -= 1
        least = min(LEAST_SECONDS, max(left, 1e-3))  # after the end one evaluation
        return max(share - self.overhead.get(model, 0.0), least)

    def is_over(self) -> bool:
        """Whether no fit begins: compiling it, and the model of all rows after it,
        lasts longer.

        That is what it took the fit which shared most with others.
        """
        compiling = min(self.overhead.values(), default=0.0)
        return time.perf_counter() + 2.0 * compiling > self.end


class Reports:
    """The calls of the callback, one at a time."""

    def __init__(self, callback: Callable[[Progress], None], total: int) -> None:
        self.callback, self.total, self.done = callback, total, 0

    def __call__(self, label: str, fit: Fit | None = None, is_fit: bool = True) -> None:
        """Call before a fit, after it, and before a step that is no fit."""
        begins = is_fit and fit is None
        self.done += not begins
        self.callback(Progress(self.done + begins, self.total, label, fit, is_fit))


def run_trials(
    trials: Trials, waiting: Sequence[Trial], budget: TimeBudget, reports: Reports
) -> dict[Trial, Outcome]:
    """Run trials where ``joblib.parallel_config`` sets: by default here, one after
    another.

    The fits of a process that was lost are run here. What a callback raises is raised.
    When the time is over no fit begins, unless none has begun that may be saved.
    """
    outcomes: dict[Trial, Outcome] = {}
    has_choice = False
    begun: list[Trial] = []
    raised: list[BaseException] = []
    lock = threading.RLock()  # joblib takes the next task in a thread of its own

    def tasks() -> Iterator[Any]:
        for trial in waiting:
            nonlocal has_choice
            with lock:
                trivial = trial.model == TRIVIAL[trials.data.kind]
                if has_choice and not trivial and budget.is_over():
                    outcomes[trial] = trials.not_begun(trial)
                    budget.fits -= 1
                    reports.done += 1
                    continue
                has_choice |= is_choice(trial.model)
                seconds = 0.0 if trivial else budget.share(trial.model)
                begun.append(trial)
                try:
                    reports(trials.label(trial))
                except BaseException as error:
                    raised.append(error)
                    return
            # Nothing is sent ahead of time, so that time is shared.
            yield joblib.delayed(run_trial)(trials, os.getpid(), trial, seconds)

    parallel = joblib.Parallel(
        return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1
    )
    try:
        with closing(parallel(tasks())) as results:
            for trial, outcome, caught in results:
                for message, category in caught:
                    warnings.warn(message, category, stacklevel=1)
                with lock:
                    outcomes[trial] = outcome
                    if outcome.overhead:
                        budget.overhead[trial.model] = outcome.overhead
                    reports(trials.label(trial), outcome.fit)
    except BrokenProcessPool:
        warnings.warn(
            "A process that trained fits has ended; perhaps it ran out of memory. This"
            " process runs the fits that are left. With --jobs 1 there is no other"
            " process.",
            stacklevel=1,
        )
        budget.fits += sum(trial not in outcomes for trial in begun)
        budget.at_once = 1
        left = [trial for trial in waiting if trial not in outcomes]
        with joblib.parallel_config(n_jobs=1):
            return outcomes | run_trials(trials, left, budget, reports)
    for error in raised:
        raise error
    return outcomes
