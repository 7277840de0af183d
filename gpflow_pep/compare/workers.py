"""Processes that run some of the fits, each on a core of its own.

A fit of few rows is thousands of small operations, one after another, which leave all cores but one
idle. A worker loads TensorFlow while the command does, and compiles what it needs.

They are made of multiprocessing's Process and Pipe. A ``ProcessPoolExecutor`` or joblib's pool have
named semaphores, of which Python's resource tracker complains on the terminal after Ctrl-C has
ended the command at once; and one lost process ends the whole pool.
"""

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from .process import loading_tensorflow

if TYPE_CHECKING:
    from ..tables.cleaning import Cleaned
    from .settings import Configuration, Settings
    from .trials import Outcome, Trial, Trials

#: Above so many rows products of matrices keep all cores busy.
MOST_ROWS = 20_000
#: Each process loads TensorFlow and compiles, which takes as long as some ten fits of few rows.
MAX_JOBS = 4


class WorkerLost(Exception):
    """A process that trained beside the command has ended."""


def default_jobs(num_rows: int, num_fits: int) -> int:
    """Choose how many processes train at a time, the command included."""
    is_daemon = multiprocessing.current_process().daemon  # Python allows it no child processes
    return 1 if is_daemon or num_rows > MOST_ROWS else max(1, min(num_cores(), MAX_JOBS, num_fits))


def num_cores() -> int:
    """Count the cores that this process may use."""
    from joblib import cpu_count

    return int(cpu_count())  # for physical cores it may print a traceback


class Worker:
    """
    A process that runs fits beside the command, and ends with it, however that ends.

    It computes on the CPU, so that two processes do not contend for a GPU.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, its_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(its_end,), daemon=True)
        self._process.start()
        its_end.close()
        self._comparison: tuple[Any, ...] = ()

    def prepare(
        self, data: "Cleaned", settings: "Settings", configurations: "Sequence[Configuration]"
    ) -> None:
        """Set the comparison that the next trials belong to; it is sent with the first of them."""
        self._comparison = data, settings, configurations

    def run(self, trial: "Trial", seconds: float) -> "list[Outcome]":
        """
        Run a trial there, as :meth:`Trials.run <gpflow_pep.compare.trials.Trials.run>` does here.

        :raises WorkerLost: If the process has ended, or could not run it.
        """
        try:
            if self._comparison:
                self._connection.send(self._comparison)
                self._comparison = ()
            self._connection.send((trial, seconds))
            outcomes, caught = self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerLost(
                "A process that trained beside this one has ended; perhaps it ran out of memory."
                " This one runs the fits that it had left. With --jobs 1 there is no other process."
            ) from error
        warn_again(caught)
        result: list[Outcome] = outcomes
        return result

    def end(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self._connection.close()


def run_recording(
    trials: "Trials", trial: "Trial", seconds: float
) -> "tuple[list[Outcome], list[tuple[str, type[Warning]]]]":
    """Run a trial in another process, and keep what it warns of for the one that asked."""
    with warnings.catch_warnings(record=True) as caught:
        outcomes = trials.run(trial, seconds)
    return outcomes, [(str(warning.message), warning.category) for warning in caught]


def warn_again(caught: "Sequence[tuple[str, type[Warning]]]") -> None:
    """Give the warnings of another process in this one."""
    for message, category in caught:
        warnings.warn(message, category, stacklevel=1)


@contextmanager
def started_workers(number: int) -> Iterator[list[Worker]]:
    """
    Start some workers, and end them with the context.

    Where TensorFlow is not loaded yet, each worker and this process get a share of the cores.
    """
    if number and "tensorflow" not in sys.modules:
        threads = max(1, num_cores() // (1 + number))
        for kind in ("INTRAOP", "INTEROP"):
            os.environ.setdefault(f"TF_NUM_{kind}_THREADS", str(threads))
    with ExitStack() as stack:
        workers = []
        for _ in range(number):
            workers.append(Worker())
            stack.callback(workers[-1].end)
        yield workers


def _serve(connection: Connection) -> None:
    """Run trials until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets the signal too, and ends this
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    try:
        with loading_tensorflow():
            from ..training.fitting.threads import one_blas_thread
            from .trials import Trials
        with one_blas_thread():
            while True:
                message = connection.recv()
                if len(message) == 3:
                    trials = Trials(*message)
                    continue
                connection.send(run_recording(trials, *message))
    except BaseException:  # the parent runs the fit too, and says what is wrong
        os._exit(1)


def _end_with_parent() -> None:
    """End at once when the parent has ended, also while TensorFlow computes."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
