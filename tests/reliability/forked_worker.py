"""Processes that the campaign kills or interrupts, which start at once: as a script it
imports what they need, and then forks one for each line that it reads: a job and its
arguments, as JSON. It only imports TensorFlow, which cannot be forked after it has
computed anything.
"""

import contextlib
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tf_keras
from reproducible_worker import XNEW, X, Y, arpep, probit, regression

import gpflow_pep as pep
from gpflow_pep.compare import cli
from gpflow_pep.engine.files import MODEL
from gpflow_pep.scoring.stored import read_files, write_files

#: What is said before the process number, when all is compiled and under way, and
#: before the exit code.
BEGUN = "begun"
RUNNING = "running"
ENDED = "ended"
#: What a run of compare is given beside its table and its folder.
COMPARE = (
    "--target y --alphas 0.5 --splits 1 --inducing 4 --max-iterations 3 --seed 1"
    " --jobs 1"
)
COMPARE += " --no-baselines"
STEPS = 120


def fit(
    directory: str, kind: str = "ARPEP", *, pause: float = 0.0, steps: int = STEPS
) -> Any:
    """Minibatch training with checkpoints: losses and predictions."""
    model = arpep() if kind == "ARPEP" else probit()
    batches: Any = pep.training.shuffled_batches((X, Y), 30, seed=3)
    if kind == "PEP":
        batches = model.minibatch_training_loss_closure(30, seed=3)

    def evaluate(model: Any) -> dict[str, float]:
        print(RUNNING, flush=True)
        time.sleep(pause)
        return {"mean": float(np.mean(model.predict_f(XNEW)[0]))}

    stopping = pep.training.EarlyStopping("mean", patience=STEPS)
    options = {"evaluate": evaluate, "evaluate_every": 5, "early_stopping": stopping}
    options |= {"checkpoint_dir": directory, "checkpoint_every": 4, "progress": False}
    optimizer = tf_keras.optimizers.Adam(0.02)
    record = pep.training.fit(
        model, batches, num_steps=steps, optimizer=optimizer, **options
    )
    metrics = [evaluation.metrics["mean"] for evaluation in record.evaluations]
    return {
        "losses": record.losses,
        "metrics": metrics,
        "mean": model.predict_f(XNEW)[0],
    }


def train(kind: str, directory: str, output: str) -> None:
    """To the end, unless it is killed."""
    np.savez(output, **fit(directory, kind, pause=0.01))


def interrupted_maximise(output: str) -> None:
    """Training on all rows, which keeps what it has when it is interrupted."""
    # Ignored in the background of a shell.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    model = regression()
    before = -float(model.training_loss())
    seen = []

    def tell(step: Any) -> None:
        if step.start == 0 and step.iteration == 1:
            print(RUNNING, flush=True)
        seen.append(step.objective)

    with contextlib.suppress(KeyboardInterrupt):
        pep.training.maximise(
            model, starts=10_000, tolerance=0.0, callback=tell, progress=False
        )
    ended = time.time()
    kept = -float(model.training_loss())
    np.savez(output, before=before, best=max(seen), kept=kept, ended=ended)


def interrupted_fit(output: str) -> None:
    """Minibatch training that is interrupted: the steps that the checkpoint has."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        fit(str(Path(output).with_suffix("")), pause=0.02, steps=100_000)
    np.savez(output, ended=time.time())


def compare(table: str, out: str) -> None:
    """The command line."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(RUNNING, flush=True)
    cli.main(["compare", table, "--out", out, *COMPARE.split()])


def save(folder: str, *templates: str) -> None:
    """Estimators in turn, over and over, into one folder; each read from another
    before.
    """
    print(RUNNING, flush=True)
    for content in itertools.cycle(
        [read_files(template, MODEL) for template in templates]
    ):
        write_files(folder, content, MODEL)


ALL = (train, interrupted_maximise, interrupted_fit, compare, save)
JOBS = {job.__name__: job for job in ALL}


def run(job: str, *arguments: str) -> int:
    """In the new process; its exit code."""
    print(BEGUN, os.getpid(), flush=True)
    try:
        JOBS[job](*arguments)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    importlib.import_module("gpflow_pep.compare.report")
    # Raises where something was computed.
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            code = run(*json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(process, 0)
        print(ENDED, os.waitstatus_to_exitcode(status), flush=True)


class Forks:
    """A process that forks others, one at a time. They write to `errors`."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        with errors.open("w") as file:
            pipes = {
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": file,
            }
            options = {"cwd": Path(__file__).parent, "text": True, **pipes}
            self._server = subprocess.Popen([sys.executable, __file__], **options)
        self._code: int | None = None

    def start(self, job: str, *arguments: object) -> bool:
        """Start one, and wait until it is under way; False where it ended before."""
        assert self._server.stdin is not None
        self._code = None
        print(
            json.dumps([job, *map(str, arguments)]), file=self._server.stdin, flush=True
        )
        self._number = int(
            next(number for word, number in self._said() if word == BEGUN)
        )
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
        with contextlib.suppress(ProcessLookupError):
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
        return self._errors.read_text(errors="replace")[-500:]


@contextlib.contextmanager
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


if __name__ == "__main__":
    main()
