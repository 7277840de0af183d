"""Processes of forked_worker.py, one at a time: started, heard, killed."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import forked_worker
from forked_worker import BEGUN, ENDED, RUNNING


class Forks:
    """A process that forks others.

    :param errors: Where they write to stderr.
    """

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        with errors.open("w") as file:
            self._server = subprocess.Popen(
                [sys.executable, forked_worker.__file__],
                cwd=Path(forked_worker.__file__).parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        self._code: int | None = None

    def start(self, job: str, *arguments: object) -> bool:
        """Start one, and wait until it is under way; False where it ended before."""
        assert self._server.stdin is not None
        self._code = None
        print(json.dumps([job, *map(str, arguments)]), file=self._server.stdin, flush=True)
        self._number = int(next(number for word, number in self._said() if word == BEGUN))
        return any(word == RUNNING for word, _ in self._said())

    def _said(self) -> Iterator[tuple[str, str]]:
        """What it says until it ends."""
        assert self._server.stdout is not None
        while self._code is None:
            line = self._server.stdout.readline()
            assert line, f"the server ended: {self.errors()}"
            word, _, rest = line.strip().partition(" ")
            if word == ENDED:
                self._code = int(rest)
            else:
                yield word, rest

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        with suppress(ProcessLookupError):
            os.kill(self._number, number)

    def end(self, timeout: float = 300.0) -> int:
        """Wait for the exit code; kill it after so many seconds."""
        timer = threading.Timer(timeout, self.send, [signal.SIGKILL])
        timer.start()
        for _ in self._said():
            pass
        timer.cancel()
        assert self._code is not None
        return self._code

    def kill(self) -> bool:
        """Kill it; False where it ended well before."""
        self.send(signal.SIGKILL)
        code = self.end()
        assert code in (0, -signal.SIGKILL), self.errors()
        return code != 0

    def run(self, job: str, *arguments: object) -> None:
        """Start one, and wait for its end, which must be well."""
        self.start(job, *arguments)
        code = self.end()
        assert code == 0, f"exit code {code}: {self.errors()}"

    def errors(self) -> str:
        """The last of what was written to stderr."""
        return self._errors.read_text(errors="replace")[-500:]


@contextmanager
def forking(errors: Path) -> Iterator[Forks]:
    """Start the server, and end it and all."""
    forks = Forks(errors)
    try:
        yield forks
    finally:
        if forks._code is None and hasattr(forks, "_number"):
            forks.send(signal.SIGKILL)
        forks._server.kill()
        forks._server.communicate()
