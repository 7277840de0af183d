"""Fits that run where joblib's backend says, and the end of the command by Ctrl-C or a
signal.
"""

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
from compare.small_comparison import OPTIONS, small_comparison, small_table
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal

import gpflow_pep
from gpflow_pep.compare import (
    Fit,
    Progress,
    Settings,
    clean,
    compare,
    process,
    schedule,
)
from gpflow_pep.compare.details import FRACTIONS
from gpflow_pep.compare.run import _what_began as what_began
from gpflow_pep.compare.trials import NOT_BEGUN, Outcome, Trial, Trials

ROOT = Path(gpflow_pep.__file__).parents[1]
TRIALS = [Trial("alpha 0", part) for part in range(1, 7)]
of_posix = pytest.mark.skipif(
    os.name != "posix", reason="signals and terminals of POSIX"
)
pytestmark = pytest.mark.usefixtures("interrupts_arrive")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_processes_of_a_backend_run_the_fits(backend: str) -> None:
    """With dask on a local cluster of two processes, as on any other."""
    with ExitStack() as stack:
        if backend == "dask":
            distributed = pytest.importorskip("distributed")
            options = {"threads_per_worker": 1, "dashboard_address": None}
            cluster = stack.enter_context(
                distributed.LocalCluster(n_workers=2, **options)
            )
            stack.enter_context(distributed.Client(cluster))
        jobs = {"n_jobs": 2} if backend == "loky" else {}
        stack.enter_context(joblib.parallel_config(backend=backend, **jobs))
        assert joblib.effective_n_jobs(None) == 2
        found = compare(small_table(), "load", alphas=(1.0, 0.0), folds=2, **OPTIONS)
    expected = small_comparison()  # the same, but for times
    for fit, other in zip(found.fits, expected.fits, strict=True):
        assert (fit.model, fit.part, fit.iterations) == (
            other.model,
            other.part,
            other.iterations,
        )
        assert_allclose([*fit.scores.values()], [*other.scores.values()], rtol=1e-6)
    assert list(found.held_out) == list(expected.held_out)
    for name, table in found.held_out.items():
        assert_frame_equal(table, expected.held_out[name], rtol=1e-6)
    assert (found.best, found.candidates) == (expected.best, expected.candidates)


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
    numbers = []
    inside = []

    def callback(progress: Progress) -> None:
        inside.append(1)
        time.sleep(0.002)
        assert len(inside) == 1
        inside.clear()
        numbers.append((progress.fit is None, progress.number))

    with joblib.parallel_config("threading", n_jobs=jobs):
        done, budget = run(callback)
    assert (
        sorted(done) == TRIALS
        and budget.fits == 0
        and budget.overhead == {"alpha 0": 0.5}
    )
    assert [number for begins, number in numbers if not begins] == [1, 2, 3, 4, 5, 6]
    assert sum(begins for begins, _ in numbers) == 6


@pytest.mark.slow
def test_tensorflow_is_loaded_without_its_messages() -> None:
    code = "from gpflow_pep.compare import compare; import sys"
    code += "; print('tensorflow' in sys.modules)"
    environment = {**os.environ}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def test_nothing_optional_begins_if_it_would_end_too_late() -> None:
    """The compilation of the saved model alone takes longer than what is left, while
    another model would still fit.
    """
    begun: list[Progress] = []
    trials: Any = SimpleNamespace(
        data=SimpleNamespace(kind="numbers"),
        run=lambda trial, seconds: pytest.fail("trained"),
        not_begun=lambda trial: trial,
        label=str,
    )
    curve = [Trial("alpha 0", 1, fraction) for fraction in FRACTIONS]
    budget = schedule.TimeBudget(60.0, len(curve))
    budget.overhead = {"alpha 0": 90.0, "another": 1.0}
    reports = schedule.Reports(begun.append, len(curve))
    assert not budget.is_over()
    done = schedule.run_trials(trials, curve, budget, reports)
    assert list(done) == curve and not begun
    assert (budget.fits, reports.done) == (0, len(curve))


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


def test_fits_of_a_process_that_was_lost_are_run_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_warnings_are_recorded_with_the_fit_but_not_in_threads() -> None:
    def do(trial: Trial, seconds: float) -> Outcome:
        warnings.warn(f"part {trial.part}", UserWarning, stacklevel=1)
        return Outcome(Fit(trial.model, trial.part, {}, 0.0, 0.0, 1, True, ""), None)

    trials: Any = SimpleNamespace(run=do)
    for of_threads in (None, os.getpid() + 1):
        ended = process.run_trial(trials, of_threads, TRIALS[0], 3.0)
        assert ended.outcome.fit.warnings == ("part 1",)
    with pytest.warns(UserWarning, match="part 1"):
        ended = process.run_trial(trials, os.getpid(), TRIALS[0], 3.0)
    assert ended.outcome.fit.warnings == ()


def run_by_a_clock(
    monkeypatch: pytest.MonkeyPatch, starts: dict[Trial, float], compiles: list[float]
) -> dict[Trial, Outcome]:
    """Run two models in three folds, one after another, in a minute of a clock: each
    fit takes a second after what it compiles, and some wait for their process.
    """
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(process, "_has_run", False)
    of_process = process.run_trial
    waiting = [
        Trial(model, part)
        for part in (1, 2, 3)
        for model in ("default", "alpha 0", "mean")
    ]

    def run_one(trial: Trial, seconds: float) -> Outcome:
        compiling = 0.0 if trial.model == "mean" else compiles.pop(0)
        now[0] += compiling + 1.0
        fit = Fit(trial.model, trial.part, {}, 0.0, seconds, 1, True, "")
        return Outcome(fit, None, compiling)

    def late(trials: Any, of_threads: Any, trial: Trial, seconds: float) -> Any:
        now[0] += starts.get(trial, 0.0)
        return of_process(trials, of_threads, trial, seconds)

    trials: Any = SimpleNamespace(
        data=SimpleNamespace(kind="numbers"),
        run=run_one,
        label=str,
        not_begun=lambda trial: Outcome(
            Fit(trial.model, trial.part, {}, 0.0, 0.0, 0, False, NOT_BEGUN), None
        ),
    )
    monkeypatch.setattr(schedule, "run_trial", late)
    budget = schedule.TimeBudget(60.0, 6)
    reports = schedule.Reports(lambda progress: None, len(waiting))
    outcomes = schedule.run_trials(trials, waiting, budget, reports)
    assert reports.done == len(outcomes) == len(waiting) and budget.fits == 0
    return outcomes


def begun(outcomes: dict[Trial, Outcome]) -> set[Trial]:
    return {t for t, each in outcomes.items() if each.fit.message != NOT_BEGUN}


def test_the_start_of_a_process_is_no_part_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two minutes of it, before a minute of fits."""
    starts = {Trial("default", 1): 120.0}
    outcomes = run_by_a_clock(monkeypatch, starts, [1.0] * 6)
    assert begun(outcomes) == {*outcomes}
    seconds = outcomes[Trial("alpha 0", 1)].fit.seconds
    assert seconds == pytest.approx(58.0 / 5)


@pytest.mark.parametrize(
    "compiles, folds",
    [
        ([40.0] + [1.0] * 5, [1, 2, 3]),  # the first loads what others find
        ([5.0, 30.0, 1.0, 1.0, 1.0, 1.0], [1, 2, 3]),
        ([30.0, 20.0, 20.0, 20.0, 20.0, 20.0], [1]),
    ],
)
def test_a_slow_first_fold_is_kept(
    compiles: list[float], folds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later fold begins in its place."""
    outcomes = run_by_a_clock(monkeypatch, {}, compiles)
    trials: Any = SimpleNamespace(
        parts=[None] * 3,
        candidates=dict.fromkeys(("default", "alpha 0", "mean")),
        settings=Settings(folds=3),
    )
    names, parts, _ = what_began(trials, outcomes)
    assert (names, parts) == (["default", "alpha 0", "mean"], folds)


def test_how_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, rows, fits, expected in (
        (3, process.MOST_ROWS, 15, 3),
        (3, process.MOST_ROWS + 1, 15, 1),
        (3, 100, 2, 2),
        (64, 100, 15, process.MAX_JOBS),
    ):
        monkeypatch.setattr(joblib, "cpu_count", lambda cores=cores: cores)
        assert process.default_jobs(rows, fits) == expected


def python(code: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, timeout=120.0, **options
    )


def started(code: str, *arguments: Any) -> "subprocess.Popen[bytes]":
    options: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    options["env"] = {
        name: os.environ[name] for name in os.environ if name != "OMP_NUM_THREADS"
    }
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, **options
    )


class Chatter:
    """Whose module writes messages while it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.write, (2, b"chatter")


def test_what_a_process_that_starts_late_unpickles_is_loaded_in_silence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    made = process.unpickled(pickle.dumps((SimpleNamespace, {"written": Chatter()})))
    assert made.written == len("chatter") and capfd.readouterr().err == ""
    trials = Trials(clean(small_table(), "load"), Settings(splits=1))
    unpickle, (kind_and_state,) = trials.__reduce__()
    assert unpickle is process.unpickled and type(unpickle(kind_and_state)) is Trials


@pytest.mark.slow
def test_a_process_that_starts_late_loads_tensorflow_in_silence() -> None:
    """Whatever the level of its messages is, but 0."""
    trials = Trials(clean(small_table(), "load"), Settings(splits=1))
    code = "import pickle, sys; print(type(pickle.load(sys.stdin.buffer)[1]).__name__)"
    payload = pickle.dumps((process.run_trial, trials))
    late = python(code, input=payload, env={**os.environ, process.LOG_LEVEL: "1"})
    assert (late.stdout, late.stderr) == (b"Trials\n", b"")


PROCESSES = """
import joblib, os, sys, time
from gpflow_pep.compare import process
process._load = process._load_on_cpu = lambda: None

def sleep():
    # In one write: two processes share the pipe, and print writes the end of a line
    # by itself.
    os.write(1, f"{os.getpid()} {os.environ['OMP_NUM_THREADS']}\\n".encode())
    time.sleep(60.0)

with process.exit_on_signals(lambda: "So it is."), process.fits_in_processes(2):
    joblib.Parallel()(joblib.delayed(sleep)() for _ in range(2))
"""


@of_posix
def test_ctrl_c_ends_the_other_processes() -> None:
    """In silence, though Python's resource tracker finds what they have left."""
    command = started(PROCESSES)
    lines = [command.stdout.readline().split() for _ in range(2)]  # type: ignore[union-attr]
    others = [psutil.Process(int(number)) for number, _ in lines]
    assert [threads for _, threads in lines] == [b"1", b"1"]
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=60.0)
    assert command.returncode == 130 and errors == b"\nInterrupted. So it is.\n"
    psutil.wait_procs(others, timeout=30.0)
    assert not any(other.is_running() for other in others)


# In the place of a shell: a process that begins a session takes the first terminal that
# it opens for its own. What is still to be read from a terminal is lost when that
# process ends: it waits.
SHELL = """
import os, signal, subprocess, sys, time
os.open(os.ttyname(0), os.O_RDWR)
signal.signal(signal.SIGINT, lambda *_: None)
code = subprocess.Popen([sys.executable, "-c", sys.argv[1]]).wait()
time.sleep(0.3)
sys.exit(code)
"""
COMMAND = """
import os, sys, time
from rich.console import Console
from gpflow_pep.compare import cli, process
with process.exit_on_signals(lambda: "So it is."), cli._progress(Console(stderr=True)):
    print(f"under way: {os.getpid()}.", file=sys.stderr, flush=True)
    for _ in range(600):  # a signal just before a sleep waits for its end
        time.sleep(0.1)
"""
HIDE_CURSOR = b"\x1b[?25l"
SHOW_CURSOR = b"\x1b[?25h"
#: As a user does: the terminal sends the signal to all processes of the command.
CTRL_C = "Ctrl-C"


@pytest.mark.near_copies("Ctrl-C", "15")
@pytest.mark.parametrize("way", [CTRL_C, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_command_ends_at_once_and_leaves_the_terminal_as_it_was(way: Any) -> None:
    pty = pytest.importorskip("pty", reason="terminals of POSIX")
    terminal, its_end = pty.openpty()
    shell = subprocess.Popen(
        [sys.executable, "-c", SHELL, COMMAND],
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        start_new_session=True,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(its_end)
    written = b""
    began = 0.0
    while text := read(terminal):
        written += text
        if not began and (begun := re.search(rb"under way: (\d+)\.", written)):
            began = time.perf_counter()
            if way == CTRL_C:
                os.write(terminal, b"\x03")
            else:
                os.kill(int(begun[1]), way)
    os.close(terminal)
    assert shell.wait(timeout=60.0) == (130 if way == CTRL_C else 128 + way), written
    assert time.perf_counter() - began < 2.0
    assert HIDE_CURSOR in written  # by the bar
    assert written.rindex(SHOW_CURSOR) > written.rindex(HIDE_CURSOR)
    assert written.endswith(b"\r\nInterrupted. So it is.\r\n")


def read(terminal: int) -> bytes:
    """What has been written; nothing when the process has ended, which Linux says by an
    error.
    """
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


@pytest.mark.near_copies("compare")
@of_posix
@pytest.mark.parametrize("command", ["compare", "predict"])
def test_ctrl_c_while_a_pipe_is_read(command: str, tmp_path: Path) -> None:
    (tmp_path / "scorer.json").touch()
    arguments = {
        "compare": ["-", "--target", "y"],
        "predict": [tmp_path, "-", "--out", "-"],
    }
    code = "from gpflow_pep.compare import cli; print('begun', flush=True); cli.main()"
    waiting = started(code, command, *arguments[command])
    assert waiting.stdout is not None and waiting.stdout.readline() == b"begun\n"
    time.sleep(0.5)
    waiting.send_signal(signal.SIGINT)
    _, errors = waiting.communicate(timeout=60.0)
    assert waiting.returncode == 130 and errors.startswith(b"\nInterrupted.")


@of_posix
def test_ctrl_c_while_tensorflow_is_loaded() -> None:
    ended = python(
        "import os, signal, time; from gpflow_pep.compare import process\n"
        "with process.exit_on_signals(lambda: 'So it is.'), process.silent_stderr():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(30)\n"
    )
    assert ended.returncode == 130 and ended.stderr == b"\nInterrupted. So it is.\n"


@of_posix
def test_a_signal_that_is_ignored_stays_so() -> None:
    """As nohup has made SIGHUP."""
    python(
        "import os, signal; from gpflow_pep.compare import process\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "with process.exit_on_signals(): os.kill(os.getpid(), signal.SIGHUP)\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
    ).check_returncode()
