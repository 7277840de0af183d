"""
Many machines
=============

Minibatches that several processes share, on one machine or on many: each process works
on its share of the rows of every batch, and the numbers are those of one process with
the whole batch. This script starts two processes on the machine it runs on. It was not
run when this page was built, because two more processes would wait for each other
there; its output is that of ``python examples/tutorials/plot_07_many_machines.py``.
"""

import json
import os
import socket
import subprocess
import sys
from contextlib import nullcontext

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras

import gpflow_pep as pep

# %%
# What each process does
# ----------------------
#
# All processes make the same model and read the same batches. The model and the
# optimiser are made in the scope of the strategy, so that each process has a copy of
# every variable, started from those of the first process.


def train(strategy=None):
    rng = np.random.default_rng(0)
    X = rng.uniform(-4.0, 4.0, (4000, 1))
    Y = np.sin(2.0 * X) + 0.3 * rng.standard_normal(X.shape)
    Z = np.linspace(-4.0, 4.0, 20)[:, None]
    with strategy.scope() if strategy else nullcontext():
        kernel = gpflow.kernels.SquaredExponential()
        likelihood = gpflow.likelihoods.Gaussian(0.1)
        model = pep.ARPEP(kernel, likelihood, Z, num_data=len(X))
        optimizer = tf_keras.optimizers.Adam(0.05)
    record = pep.training.fit(
        model,
        pep.training.shuffled_batches((X, Y), 200, seed=1),
        num_steps=100,
        optimizer=optimizer,
        strategy=strategy,
        progress=False,
    )
    mean = model.predict_f(np.array([[0.5]]))[0].numpy().item()
    return f"loss of the last step {record.losses[-1]:.4f}, mean at 0.5 {mean:.6f}"


# %%
# Start them
# ----------
#
# On real machines the same command runs on each, with a ``TF_CONFIG`` that names all of
# them and itself. Here two ports of this machine stand for two hosts.


def start():
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    processes = []
    for index in range(2):
        task = {
            "cluster": {"worker": addresses},
            "task": {"type": "worker", "index": index},
        }
        environment = {**os.environ, "TF_CONFIG": json.dumps(task)}
        processes.append(subprocess.Popen([sys.executable, __file__], env=environment))
    failures = [process.wait() for process in processes]
    if any(failures):
        sys.exit("A process failed; its message is above.")
    print(f"one process: {train()}")


if __name__ == "__main__":
    if "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        index = strategy.cluster_resolver.task_id
        print(f"process {index}: {train(strategy)}", flush=True)
    else:
        start()

# %%
# It prints
#
# .. literalinclude:: /figures/many_machines.txt
#    :language: text
#
# :ref:`distributed` says what is refused, and what happens when a process fails.
