"""Processes that make some of the fits, each on a core of its own.

A fit of few rows is thousands of small operations, one after another, which leave all cores but one
idle. A process of its own loads TensorFlow while this one does, and compiles what it needs.
"""

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from .loading import loading_tensorflow

if TYPE_CHECKING:
    from .cleaning import Cleaned
    from .settings import Settings
    from .trials import Outcome, Trial

#: Above so many rows products of matrices keep all cores busy.
MOST_ROWS = 20_000
#: Each process loads TensorFlow and compiles, which takes as long as some ten fits of few rows.
MOST = 4


class WorkerLost(Exception):
    """A process that trained beside this one has ended."""


def default_jobs(num_rows: int, num_fits: int) -> int:
    """
    Find how many processes train at a time, where nobody says.

    :param num_rows: N.
    :param num_fits: How many fits there are to make.
    """
    childless = multiprocessing.current_process().daemon  # Python allows it no processes
    return 1 if childless or num_rows > MOST_ROWS else max(1, min(num_cores(), MOST, num_fits))


def num_cores() -> int:
    """Count the cores that this process may use."""
    from joblib import cpu_count

    return int(cpu_count())  # asked for physical ones, it may print tracebacks where none are told


class Worker:
    """
    A process that makes fits, beside this one. It ends with this one, however that ends.

    It computes on the CPU, so that two processes do not contend for a GPU.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()
        self._comparison: tuple[Any, ...] = ()

    def prepare(self, data: "Cleaned", settings: "Settings") -> None:
        """
        Say which comparison the next trials are of.

        :param data: The table.
        :param settings: What is compared.
        """
        self._comparison = data, settings

    def run(self, trial: "Trial", seconds: float) -> "Outcome":
        """
        Make one, as :meth:`Trials.run <gpflow_pep.compare.trials.Trials.run>` does.

        :param trial: Which one.
        :param seconds: For the steps of the fit.
        :raises WorkerLost: If the process has ended, or could not make it.
        """
        try:
            if self._comparison:
                self._connection.send(self._comparison)
                self._comparison = ()
            self._connection.send((trial, seconds))
            outcome, caught = self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerLost(
                "A process that trained beside this one has ended, perhaps for want of memory. The"
                " fits that it had left are made here; with --jobs 1 there is none."
            ) from error
        for message, category in caught:
            warnings.warn(message, category, stacklevel=1)
        made: Outcome = outcome
        return made

    def end(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self._connection.close()


@contextmanager
def beginning(number: int) -> Iterator[list[Worker]]:
    """
    Begin some processes, and end them with the context.

    Where TensorFlow is not there yet, it gets in each of them, and here, its share of the threads.

    :param number: How many.
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
    """Make trials until there is nobody who asks for them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is asked too, and ends this
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    try:
        with loading_tensorflow():
            from ..training.threads import one_blas_thread
            from .trials import Trials
        with one_blas_thread():
            trials = Trials(*connection.recv())
            while True:
                trial, seconds = connection.recv()
                with warnings.catch_warnings(record=True) as caught:
                    outcome = trials.run(trial, seconds)
                told = [(str(one.message), one.category) for one in caught]
                connection.send((outcome, told))
    except BaseException:  # the parent makes the fit too, and says what is wrong
        os._exit(1)


def _end_with_parent() -> None:
    """End at once where the parent has, also while TensorFlow computes."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
