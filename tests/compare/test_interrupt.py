"""Ctrl-C on a terminal: the command ends at once, and leaves the terminal as it was."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpflow_pep

pty = pytest.importorskip("pty", reason="terminals of POSIX")

# In the place of a shell: a process that begins a session takes the first terminal that it opens
# for its own. What is still to be read from a terminal is lost when that process ends: it waits.
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
    time.sleep(60)
"""
ROOT = Path(gpflow_pep.__file__).parents[1]
HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"


#: As a user does: the terminal sends the signal to all processes of the command.
CTRL_C = "Ctrl-C"


@pytest.mark.parametrize("way", [CTRL_C, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_on_a_terminal(way: str | signal.Signals) -> None:
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SHELL, COMMAND],
        stdin=its_end, stdout=its_end, stderr=its_end, start_new_session=True,
        cwd=ROOT, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(its_end)
    written, began = b"", 0.0
    while text := read(terminal):
        written += text
        if not began and (started := re.search(rb"under way: (\d+)\.", written)):
            began = time.perf_counter()
            if isinstance(way, str):
                os.write(terminal, b"\x03")
            else:
                os.kill(int(started[1]), way)
    os.close(terminal)
    assert process.wait(timeout=60.0) == (130 if way == CTRL_C else 128 + way), written
    assert time.perf_counter() - began < 2.0
    assert HIDE_CURSOR in written  # by the bar
    assert written.rindex(SHOW_CURSOR) > written.rindex(HIDE_CURSOR)
    assert written.endswith(b"\r\nInterrupted. So it is.\r\n")


@pytest.mark.parametrize("command", ["compare", "predict"])
def test_ctrl_c_before_tensorflow_is_loaded(command: str, tmp_path: Path) -> None:
    """While the table is read, which is a pipe that nobody writes to."""
    (tmp_path / "scorer.json").touch()
    arguments = {"compare": ["-", "--target", "y"], "predict": [tmp_path, "-", "--out", "-"]}
    code = "from gpflow_pep.compare import cli; print('begun', flush=True); cli.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, command, *map(str, arguments[command])], cwd=ROOT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60.0)
    assert process.returncode == 130 and errors.startswith(b"\nInterrupted.")


def test_ctrl_c_while_tensorflow_is_loaded() -> None:
    """Whose messages are kept off the terminal."""
    code = (
        "import os, signal, time; from gpflow_pep.compare import process\n"
        "with process.exit_on_signals(lambda: 'So it is.'), process._silent_stderr():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(30)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert ended.returncode == 130 and ended.stderr == b"\nInterrupted. So it is.\n"


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As nohup has made SIGHUP."""
    code = (
        "import os, signal; from gpflow_pep.compare import process\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "with process.exit_on_signals(): os.kill(os.getpid(), signal.SIGHUP)\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def read(terminal: int) -> bytes:
    """What has been written; nothing when the process has ended, which Linux says by an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
