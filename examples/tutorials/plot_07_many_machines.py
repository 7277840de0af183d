"""
Many machines
=============

The rows of a full-batch model spread over processes, which may be on many machines:
each holds its own rows, and the numbers are those of one process with all of them. This
script starts two processes on the machine it runs on. It was not run when this page was
built, because two more processes would wait for each other there; its output is that of
``python examples/tutorials/plot_07_many_machines.py``.
"""

import json
import os
import socket
import subprocess
import sys

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_pep as pep

# %%
# The rows of one process
# -----------------------
#
# Of real data each process reads its own files. Here process k generates part k of the
# rows.


def part(number):
    rng = np.random.default_rng(number)
    X = rng.uniform(-4.0, 4.0, (2000, 1))
    return X, np.sin(2.0 * X) + 0.3 * rng.standard_normal(X.shape)


# %%
# What each process does
# ----------------------
#
# The model is made of the process's own rows. What makes it a model of all rows is its
# training loss, in which M x M sums go over the network, once for the value and once
# for the gradient. Parameters start from the same numbers everywhere, so inducing
# points are not chosen from a process's own rows. Inside ``sharded`` predictions are of
# all rows.


def work():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    index = strategy.cluster_resolver.task_id
    Z = np.linspace(-4.0, 4.0, 20)[:, None]
    model = pep.models.PEPRegression(
        part(index), gpflow.kernels.SquaredExponential(), Z, alpha=0.5
    )
    loss = pep.training.sharded_training_loss(model, strategy)
    gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, options={"maxiter": 20}
    )
    with pep.training.sharded(model, strategy):
        log_z, posterior = float(model.pep_log_marginal_likelihood()), model.posterior()
    mean, _ = posterior.predict_f(np.array([[0.5]]))
    print(
        f"process {index}: {len(model.data[0])} rows of its own, log Z of all"
        f" {log_z:.6f}, mean at 0.5 {mean.numpy().item():.6f}",
        flush=True,
    )


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
    together = [np.concatenate(column) for column in zip(part(0), part(1))]
    Z = np.linspace(-4.0, 4.0, 20)[:, None]
    model = pep.models.PEPRegression(
        together, gpflow.kernels.SquaredExponential(), Z, alpha=0.5
    )
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": 20}
    )
    log_z = float(model.pep_log_marginal_likelihood())
    mean = model.predict_f(np.array([[0.5]]))[0].numpy().item()
    print(
        f"one process: {len(together[0])} rows, log Z {log_z:.6f}, mean at 0.5"
        f" {mean:.6f}"
    )


if __name__ == "__main__":
    if "TF_CONFIG" in os.environ:
        work()
    else:
        start()

# %%
# It prints
#
# .. literalinclude:: /figures/many_machines.txt
#    :language: text
#
# ``PEP`` and ``PEPClassification`` train in the same way, and minibatches with
# ``pep.training.fit(strategy=...)``: :ref:`distributed` has both, what is refused, and
# what happens when a process fails.
