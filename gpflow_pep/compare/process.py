"""The processes of the command. They load TensorFlow without its messages and faster,
and end at Ctrl-C.

A fit of few rows is a sequence of thousands of small operations, which use only one
core. joblib therefore runs fits in other processes, which load TensorFlow while this
process does.
"""

import atexit
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
#: With the value 1 TensorFlow uses Keras 2, which is loaded anyway, and does not also
#: load Keras 3.
OLD_KERAS = "TF_USE_LEGACY_KERAS"
#: The stderr of the user while TensorFlow's messages are kept back. The message of a
#: signal goes there.
_terminals: list[int] = []
#: Whether a trial has run in this process.
_has_run = False
#: A progress bar hides the cursor of the terminal; this shows it again.
_SHOW_CURSOR = "\x1b[?25h"
#: The exit code of a command that a signal ended is this plus the number of the signal:
#: 130 after Ctrl-C.
SHELL_CODE = 128
#: With more rows, products of matrices keep all cores busy.
MOST_ROWS = 20_000
#: Each process loads TensorFlow and compiles, which takes as long as about ten fits of
#: few rows.
MAX_JOBS = 4


def default_jobs(num_rows: int, num_fits: int) -> int:
    """Choose the number of processes that train at the same time."""
    import joblib

    cores = int(joblib.cpu_count())  # with physical cores it may print a traceback
    return 1 if num_rows > MOST_ROWS else max(1, min(cores, MAX_JOBS, num_fits))


@contextmanager
def fits_in_processes(jobs: int) -> Iterator[None]:
    """Load TensorFlow, and let joblib run fits in this number of other processes. With
    1 they run in this process.

    :raises ModuleNotFoundError: If TensorFlow or GPflow is not installed. No process
        has begun then.
    """
    for name in ("tensorflow", "gpflow"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    if jobs == 1:
        _load()
        yield
        return
    import joblib

    # After Ctrl-C this process leaves its semaphores to Python's resource tracker,
    # which would print complaints about them.
    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")
    threads = max(1, joblib.cpu_count() // jobs)
    for kind in ("INTRAOP", "INTEROP"):
        os.environ.setdefault(f"TF_NUM_{kind}_THREADS", str(threads))
    with joblib.parallel_config(
        "loky", n_jobs=jobs, inner_max_num_threads=1, max_nbytes=None
    ):
        results = joblib.Parallel(return_as="generator")(
            joblib.delayed(_load_on_cpu)() for _ in range(jobs)
        )
        _load()
        list(results)
        yield


def _load(module: str = "report") -> None:
    """Load a module that needs TensorFlow, and let it look for GPUs, while its messages
    are kept back.
    """
    with loading_tensorflow():
        import_module(f".{module}", __package__)
        import_module("tensorflow").config.list_logical_devices()


def _load_on_cpu() -> None:
    """Load the modules for fits, on the CPU, so that processes do not compete for a
    GPU.
    """
    # The command also gets the signal, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    _load("trials")


def unpickled(kind_and_state: bytes) -> Any:
    """Make an object whose class needs TensorFlow. If TensorFlow is not loaded yet, it
    is loaded without its messages.

    If a process of joblib was lost or idle for minutes, a new process replaces it and
    begins with this function.
    """
    with silent_stderr():
        kind, state = pickle.loads(kind_and_state)
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made


class Ended(NamedTuple):
    """A trial that has ended, in any process."""

    trial: Any
    outcome: Any
    seconds: float  #: The time of the trial, without the start of its process.
    is_first: bool  #: Whether the trial was the first one in its process.


def run_trial(trials: Any, of_threads: int | None, trial: Any, seconds: float) -> Ended:
    """Run a trial of :class:`~gpflow_pep.compare.trials.Trials`, and record its
    warnings with its fit.

    :param of_threads: The process in which threads run several trials at a time, if
        any. Warnings are not recorded there, because it is not known which trial caused
        them.
    """
    from ..engine.numerics.threads import one_blas_thread
    from .fit_warnings import with_warnings

    global _has_run
    is_first = not _has_run
    _has_run = True
    began = time.perf_counter()
    with one_blas_thread():
        if os.getpid() == of_threads:
            outcome = trials.run(trial, seconds)
        else:
            with warnings.catch_warnings(record=True) as caught:
                outcome = trials.run(trial, seconds)
            outcome = outcome._replace(fit=with_warnings(outcome.fit, caught))
    return Ended(trial, outcome, time.perf_counter() - began, is_first)


@contextmanager
def loading_tensorflow() -> Iterator[None]:
    """Import what needs TensorFlow in this context."""
    with silent_stderr(), _without_shape_checks():
        yield


@contextmanager
def silent_stderr() -> Iterator[None]:
    """Keep TensorFlow's messages about the machine off the terminal, unless their level
    is 0.

    Some messages are written before TensorFlow reads that level, so all output is kept
    back. It is shown if the import fails.
    """
    if os.environ.get(LOG_LEVEL) == "0":
        yield
        return
    os.environ[LOG_LEVEL] = "3"  # for later messages, whatever the level was
    sys.stderr.flush()
    terminal = os.dup(2)
    _terminals.append(terminal)
    with tempfile.TemporaryFile() as messages:
        os.dup2(messages.fileno(), 2)
        try:
            yield
        except BaseException:
            messages.seek(0)
            os.write(terminal, messages.read())
            raise
        finally:
            os.dup2(_terminals.pop(), 2)
            os.close(terminal)


@contextmanager
def _without_shape_checks() -> Iterator[None]:
    """Switch off features that take seconds, if the command is alone in its process.

    GPflow's checks of shapes parse their own language when GPflow is loaded. They help
    people who write programs; the command checks a user's table before. Python's
    garbage collector would search all loaded objects again and again, and once more at
    the end.
    """
    if "gpflow" in sys.modules:
        yield
        return
    os.environ.setdefault(OLD_KERAS, "1")
    gc.disable()
    try:
        import check_shapes

        check_shapes.set_enable_check_shapes(False)
        yield
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.freeze)


def make_streams_writable() -> None:
    """Discard output to a closed stream, and show ? for characters that the encoding
    cannot write.

    Otherwise the next file that is opened would get the number of the closed stream,
    and libraries would print into it.
    """
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
        elif name != "stdin" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


@contextmanager
def exit_on_signals(message: Callable[[], str] = str) -> Iterator[None]:
    """End the process at the first Ctrl-C, SIGTERM or SIGHUP, with a message on stderr.

    Files that were written stay. Python runs a signal's handler between two of its own
    instructions, so an evaluation of TensorFlow returns first. A signal that is ignored
    stays ignored, for example SIGHUP under nohup.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set a signal's handler
        return

    def end(signal_number: int, _: Any) -> None:
        _end_process(signal_number, message)

    handlers = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows lacks SIGHUP
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            handlers[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _end_process(signal_number: int, message: Callable[[], str]) -> None:
    """End this process and its children, in any state of the terminal."""
    try:
        for terminal in _terminals:
            os.dup2(terminal, 2)
        text = f"\nInterrupted. {message()}".rstrip()
        if os.isatty(2):
            text = _SHOW_CURSOR + text
        # sys.stderr is not used, because the signal may have interrupted other output
        # there, and because a progress bar replaces it by an object without an
        # encoding.
        encoding = getattr(sys.__stderr__, "encoding", None) or "utf-8"
        os.write(2, f"{text}\n".encode(encoding, errors="replace"))
    finally:
        for child in multiprocessing.active_children():
            child.terminate()
        os._exit(SHELL_CODE + signal_number)
