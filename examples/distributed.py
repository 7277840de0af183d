"""Train by minibatches that several processes share, beside one process alone.

    python -m examples distributed                      # two processes on this machine
    python -m examples distributed --workers 3

On several hosts: set TF_CONFIG on each, as TensorFlow's MultiWorkerMirroredStrategy
reads it, and start the same command on all; the processes are those of TF_CONFIG then,
without a comparison:

    TF_CONFIG='{"cluster": {"worker": ["host0:2222", "host1:2222"]},
                "task": {"type": "worker", "index": 0}}' python -m examples distributed

Each process reads the same batches and works on its share of the rows of each. The
first process prints the loss of the first and of the last step, seconds, and
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
import tf_keras

from examples.common import arguments
from gpflow_pep.models import ARPEP
from gpflow_pep.training import fit, shuffled_batches

XNEW = np.array([[-1.0], [2.5]])


def train(args: argparse.Namespace, strategy: tf.distribute.Strategy | None) -> str:
    """Train on the rows that all processes generate alike; say what came out."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-4.0, 4.0, (args.rows, 1))
    Y = np.sin(2.0 * X) + 0.3 * rng.standard_normal(X.shape)
    Z = np.linspace(-4.0, 4.0, args.inducing)[:, None]
    with strategy.scope() if strategy else nullcontext():
        kernel = gpflow.kernels.SquaredExponential()
        likelihood = gpflow.likelihoods.Gaussian(0.5)
        model = ARPEP(kernel, likelihood, Z, num_data=args.rows, alpha=args.alpha)
        optimizer = tf_keras.optimizers.Adam(0.05)
    start = time.perf_counter()
    record = fit(
        model,
        shuffled_batches((X, Y), args.batch, seed=1),
        num_steps=args.steps,
        optimizer=optimizer,
        strategy=strategy,
        progress=False,
    )
    seconds = time.perf_counter() - start
    count = strategy.num_replicas_in_sync if strategy else 1
    mean, variance = (np.ravel(moment) for moment in model.predict_f(XNEW))
    return (
        f"{count} process{'es' if count > 1 else ''}, {args.rows} rows\n"
        f"  loss {record.losses[0]:.8f}, after {args.steps} steps"
        f" {record.losses[-1]:.8f}  ({seconds:.1f} s)\n"
        f"  f at {np.ravel(XNEW)}: mean {mean}, variance {variance}"
    )


def free_addresses(count: int) -> list[str]:
    """Find ports of this machine, which are free as long as nobody else is quick."""
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
        rows=6000,
        inducing=20,
        batch=300,
        alpha=0.5,
        steps=200,
        quick={"rows": 600, "batch": 60, "steps": 5},
    )
    if "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        output = train(args, strategy)
        if strategy.cluster_resolver.task_id == 0:
            print(output, flush=True)
    else:
        launch(args.workers)
        print(train(args, None))
