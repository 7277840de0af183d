"""Spread the rows of one PEPRegression over processes: seconds of an evaluation, and speed-up.

    python -m examples processes                                 # one, two and four processes
    python -m examples processes --counts 1 2 --rows 20000 --dataset

Value and gradient of the training loss of the same rows: of one model in one process, and of
``gpflow_pep.training.sharded_training_loss`` over several processes of a
``tf.distribute.MultiWorkerMirroredStrategy``, of which each has an equal part of the rows. All
processes are started at first and compile; then the groups take turns, so that a change of the
machine's speed meets all of them. Each process has one thread for operations and one for BLAS.

``seconds`` is the least of an evaluation over the turns, from the call until all processes have
answered. ``busiest`` is the least processor time of the process that has most in a turn, with what
it takes to add up the sums; ``bound`` is the speed-up with a core for each process, if that were
all. ``message`` is what each process adds up with the others in an evaluation. Where there are
fewer cores than processes, ``seconds`` cannot fall further. With ``--dataset`` each process reads
its rows from a ``tf.data.Dataset`` in chunks.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from examples.common import arguments, squared_exponential, value_and_gradient
from examples.distributed import free_addresses

ROOT = Path(__file__).parents[2]
NUM_INPUTS = 8
BATCH_SIZE = 65_536
#: An environment variable by which a process knows that it is one of a group.
INDEX = "EXAMPLES_PROCESSES_INDEX"
ONE_THREAD = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class Answer(NamedTuple):
    """What a process says after an evaluation."""

    processor_seconds: float
    loss: float


class Group:
    """Processes that evaluate together, and wait otherwise."""

    def __init__(self, count: int, options: Sequence[str], stack: ExitStack) -> None:
        self.count = count
        addresses = free_addresses(count)
        command = [sys.executable, "-m", "examples", "processes", *options]
        self.processes: list[Any] = []
        for index in range(count):
            environment = {**os.environ, **ONE_THREAD, INDEX: str(index)}
            if count > 1:
                task = {"type": "worker", "index": index}
                configuration = {"cluster": {"worker": addresses}, "task": task}
                environment["TF_CONFIG"] = json.dumps(configuration)
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.kill)
            self.processes.append(process)

    def evaluate(self) -> tuple[float, list[Answer]]:
        """Let all processes evaluate once: seconds until the last has answered."""
        start = time.perf_counter()
        for process in self.processes:
            process.stdin.write("evaluate\n")
            process.stdin.flush()
        answers = [self.answer(process) for process in self.processes]
        return time.perf_counter() - start, answers

    def answer(self, process: Any) -> Answer:
        line = process.stdout.readline()
        if not line:
            sys.exit("A process failed; its message is above.")
        return Answer(*json.loads(line))


def own_rows(num_rows: int, index: int, count: int) -> tuple[Any, Any]:
    """The rows of a process: those of all are the same, however many processes there are."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (num_rows, NUM_INPUTS))
    Y = np.sin(X[:, :1]) + 0.5 * X[:, 1:2] + 0.2 * rng.standard_normal((num_rows, 1))
    return X[index::count], Y[index::count]


def serve(args: argparse.Namespace, index: int) -> None:
    """Be one of a group: evaluate for each line of the input."""
    import tensorflow as tf

    # Before anything is computed.
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if "TF_CONFIG" in os.environ else None
    import gpflow_pep as pep

    count = strategy.num_replicas_in_sync if strategy else 1
    data: Any = own_rows(args.rows, index, count)
    if args.dataset:
        data = tf.data.Dataset.from_tensor_slices(data).batch(BATCH_SIZE)
    Z = np.random.default_rng(1).uniform(-2.0, 2.0, (args.inducing, NUM_INPUTS))
    model = pep.PEPRegression(data, squared_exponential(NUM_INPUTS), Z, noise_variance=0.1)
    loss: Callable[[], tf.Tensor] = model.training_loss
    if strategy:
        loss = pep.training.sharded_training_loss(model, strategy)
    evaluate = value_and_gradient(loss, model.trainable_variables)

    def answer() -> None:
        start = time.process_time()
        value, gradients = evaluate()
        tf.nest.map_structure(np.asarray, gradients)
        print(json.dumps(Answer(time.process_time() - start, float(value))), flush=True)

    answer()  # compiles
    for _ in sys.stdin:
        answer()


def numbers_of_message(num_inducing: int, num_outputs: int, num_parameters: int) -> int:
    """How many numbers each process adds up with the others, in value and gradient."""
    sums = num_inducing**2 + num_outputs * num_inducing + 2
    return 2 * sums + 1 + 1 + num_parameters  # sums, their derivatives; N; loss and gradient


def main() -> None:
    args = arguments(
        __doc__,
        counts=[1, 2, 4],
        rows=100_000,
        inducing=300,
        repeats=9,
        dataset=False,
        quick={"rows": 4_000, "inducing": 50, "repeats": 3, "counts": [1, 2]},
    )
    if INDEX in os.environ:
        serve(args, int(os.environ[INDEX]))
        return
    options = ["--rows", str(args.rows), "--inducing", str(args.inducing)]
    options += ["--dataset"] * args.dataset
    with ExitStack() as stack:
        groups = [Group(count, options, stack) for count in args.counts]
        for group in groups:
            for process in group.processes:
                group.answer(process)
        turns = []
        for turn in range(args.repeats):
            order = groups if turn % 2 == 0 else groups[::-1]
            turns.append({group.count: group.evaluate() for group in order})
    parameters = args.inducing * NUM_INPUTS + NUM_INPUTS + 2
    size = 8 * numbers_of_message(args.inducing, 1, parameters) / 2**20
    print(
        f"PEPRegression, N = {args.rows}, M = {args.inducing}, D = {NUM_INPUTS}; {os.cpu_count()}"
        f" cores, the least of {args.repeats} turns"
    )
    print(f"{'processes':>9}{'seconds':>9}{'speed-up':>10}{'busiest':>9}{'bound':>8}{'MiB':>7}")
    first: dict[str, float] = {}
    for count in args.counts:
        seconds = min(turn[count][0] for turn in turns)
        busiest = min(max(answer.processor_seconds for answer in turn[count][1]) for turn in turns)
        first = first or {"seconds": seconds, "busiest": busiest}
        message = f"{size:7.2f}" if count > 1 else f"{'':7}"
        print(
            f"{count:9}{seconds:9.3f}{first['seconds'] / seconds:10.2f}{busiest:9.3f}"
            f"{first['busiest'] / busiest:8.2f}{message}"
        )
    losses = {answer.loss for _, answers in turns[0].values() for answer in answers}
    assert max(losses) - min(losses) < 1e-9 * abs(max(losses)), losses
