"""Train a full-batch model whose rows are spread over processes, beside one process
with all rows.

    python -m examples distributed                      # two processes on this machine
    python -m examples distributed --workers 3 --model classification

On several hosts: set TF_CONFIG on each, as TensorFlow's MultiWorkerMirroredStrategy
reads it, and start the same command on all; the processes are those of TF_CONFIG then,
without a comparison:

    TF_CONFIG='{"cluster": {"worker": ["host0:2222", "host1:2222"]},
                "task": {"type": "worker", "index": 0}}' python -m examples distributed

Each process generates its own rows; of real data it would read its own files. The first
one prints log Z before and after training, the number of evaluations, seconds, and
predictions at two inputs.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, nullcontext

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from examples.common import arguments
from gpflow_pep.models import PEPClassification, PEPRegression
from gpflow_pep.training import sharded, sharded_training_loss

NUM_PARTS = 60
XNEW = np.array([[-1.0], [2.5]])


def part(number: int, num_rows: int) -> tuple[AnyNDArray, AnyNDArray]:
    """One of the parts that the data come in."""
    rng = np.random.default_rng(number)
    X = rng.uniform(-4.0, 4.0, (num_rows, 1))
    return X, np.sin(2.0 * X) + 0.3 * rng.standard_normal(X.shape)


def train(args: argparse.Namespace, strategy: tf.distribute.Strategy | None) -> str:
    """Train on this process's parts, with those of the other processes; say what came
    out.
    """
    index, count = 0, 1
    if strategy is not None:
        cluster = strategy.cluster_resolver
        index, count = cluster.task_id, strategy.num_replicas_in_sync
    own = [
        part(number, args.rows // NUM_PARTS)
        for number in range(index, NUM_PARTS, count)
    ]
    X, Y = (np.concatenate(column) for column in zip(*own))
    # Parameters start from the same numbers everywhere: not from this process's rows.
    kernel = gpflow.kernels.SquaredExponential()
    Z = np.linspace(-4.0, 4.0, args.inducing)[:, None]
    if args.model == "regression":
        model = PEPRegression((X, Y), kernel, Z, alpha=args.alpha, noise_variance=0.5)
    else:
        likelihood = gpflow.likelihoods.Bernoulli()
        labelled = X, np.where(Y > 0.0, 1.0, 0.0)
        model = PEPClassification(labelled, kernel, likelihood, Z, alpha=args.alpha)
    loss = (
        model.training_loss
        if strategy is None
        else sharded_training_loss(model, strategy)
    )
    before = -float(loss())
    start = time.perf_counter()
    result = gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, options={"maxiter": args.iterations}
    )
    seconds = time.perf_counter() - start
    with nullcontext() if strategy is None else sharded(model, strategy):
        posterior = model.posterior()
    mean, variance = (np.ravel(moment) for moment in posterior.predict_f(XNEW))
    return (
        f"{len(X)} of {args.rows // NUM_PARTS * NUM_PARTS} rows in process 1 of"
        f" {count}\n  log Z {before:.8f}, after {result.nfev} evaluations"
        f" {-result.fun:.8f}  ({seconds:.1f} s)\n  f at {np.ravel(XNEW)}: mean {mean},"
        f" variance {variance}"
    )


def free_addresses(count: int) -> list[str]:
    """Of this machine; the ports are free as long as nobody else is quick."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


def launch(count: int) -> None:
    """Start this command in several processes of this machine, and wait for them."""
    addresses = free_addresses(count)
    command = [sys.executable, "-m", "examples", "distributed", *sys.argv[1:]]
    processes = []
    try:
        for index in range(count):
            task = {"type": "worker", "index": index}
            configuration = {"cluster": {"worker": addresses}, "task": task}
            environment = {**os.environ, "TF_CONFIG": json.dumps(configuration)}
            processes.append(subprocess.Popen(command, env=environment))
        if any(process.wait() for process in processes):
            sys.exit("A process failed; its message is above.")
    finally:
        for process in processes:
            process.kill()


def main() -> None:
    args = arguments(
        __doc__,
        workers=2,
        model=("regression", "classification"),
        rows=6000,
        inducing=20,
        alpha=0.5,
        iterations=20,
        quick={"rows": 600, "iterations": 3},
    )
    if "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        said = train(args, strategy)
        if strategy.cluster_resolver.task_id == 0:
            print(said, flush=True)
    else:
        launch(args.workers)
        print(train(args, None))
