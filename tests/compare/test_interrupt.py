"""Ctrl-C on a terminal: the command ends at once, and leaves the terminal as it was."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
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
with process.exit_on_sigint("Interrupted: so it is."), cli._progress(Console(stderr=True)):
    print(f"under way: {os.getpid()}.", file=sys.stderr, flush=True)
    time.sleep(60)
"""
HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"


def press_ctrl_c(process: int, terminal: int) -> None:
    """As a user does: the terminal sends the signal to all processes of the command."""
    os.write(terminal, b"\x03")


def signal_process(process: int, terminal: int) -> None:
    os.kill(process, signal.SIGINT)


@pytest.mark.parametrize("interrupt", [press_ctrl_c, signal_process])
def test_ctrl_c_on_a_terminal(interrupt: Callable[[int, int], None]) -> None:
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SHELL, COMMAND],
        stdin=its_end, stdout=its_end, stderr=its_end, start_new_session=True,
        cwd=Path(gpflow_pep.__file__).parents[1], env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(its_end)
    written, began = b"", 0.0
    while text := read(terminal):
        written += text
        if not began and (started := re.search(rb"under way: (\d+)\.", written)):
            began = time.perf_counter()
            interrupt(int(started[1]), terminal)
    os.close(terminal)
    assert process.wait(timeout=60.0) == 130, written
    assert time.perf_counter() - began < 2.0
    assert HIDE_CURSOR in written  # by the bar
    assert written.rindex(SHOW_CURSOR) > written.rindex(HIDE_CURSOR)
    assert written.endswith(b"\r\nInterrupted: so it is.\r\n")


def read(terminal: int) -> bytes:
    """What has been written; nothing when the process has ended, which Linux says by an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
