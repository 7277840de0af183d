"""Memory of one evaluation in eager mode beside that of a compiled one.

Each is measured in a process of its own: this file, called as a program.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_pep as pep

ROOT = Path(__file__).parents[2]
#: The most that eager mode may need of what a compiled evaluation does.
MOST = 1.2


def make(name: str, N: int, M: int) -> tuple[Any, Callable[[], tf.Tensor]]:
    """A model, and its loss."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    F = np.sin(2.0 * X[:, :1]) + X[:, 1:2] + 0.5 * rng.normal(size=(N, 1))
    labels = (F > 0.0) * 1.0
    classes = np.digitize(F, [-0.5, 0.5]) * 1.0
    counts = np.floor(np.exp(F))
    of = gpflow.likelihoods
    targets: dict[str, tuple[Any, Any]] = {
        "labels": (of.Bernoulli(), labels),
        "heavy tails": (of.StudentT(), F),
        "counts": (of.Poisson(), counts),
        "classes": (of.MultiClass(3), classes),
        "softmax": (of.Softmax(3), classes),
    }
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(4))
    Z = X[:M].copy()
    if name == "regression":
        model: Any = pep.PEPRegression((X, F), kernel, Z, alpha=0.5)
    elif name == "tied":
        model = pep.APEP(kernel, of.Bernoulli(), Z, alpha=0.5, num_data=N)
        return model, lambda: model.training_loss((X, labels))
    else:
        likelihood, Y = targets[name]
        model = pep.PEP((X, Y), kernel, likelihood, Z, alpha=0.5)
    return model, model.training_loss


def main(name: str, mode: str, N: str, M: str) -> None:
    """Print the loss and the highest use of memory in MiB."""
    model, loss = make(name, int(N), int(M))

    def evaluate() -> tuple[tf.Tensor, Any]:
        with tf.GradientTape() as tape:
            value = loss()
        return value, tape.gradient(value, model.trainable_variables)

    value, _ = (tf.function(evaluate) if mode == "compiled" else evaluate)()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(float(value), peak)


def measured(name: str, mode: str, N: int, M: int) -> tuple[float, float]:
    """Loss and MiB of an evaluation in another process."""
    command = [sys.executable, __file__, name, mode, str(N), str(M)]
    threads = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **dict.fromkeys(threads, "1")}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    value, peak = done.stdout.split()
    return float(value), float(peak)


def check(name: str, N: int, M: int) -> None:
    value, compiled = measured(name, "compiled", N, M)
    same, eager = measured(name, "eager", N, M)
    np.testing.assert_allclose(same, value, rtol=1e-5)
    assert eager <= MOST * compiled, f"{name}: {eager:.0f} MiB for {compiled:.0f}"


@pytest.mark.slow
def test_noise_with_parameters() -> None:
    """Tapes watch the likelihood's scale, and kept all integrals of each sweep."""
    check("heavy tails", 2000, 50)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["regression", "tied", "labels", "heavy tails", "counts", "classes", "softmax"],
)
def test_large_models(name: str) -> None:
    check(name, 10_000, 200)


if __name__ == "__main__":
    main(*sys.argv[1:])
