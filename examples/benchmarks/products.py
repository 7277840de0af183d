"""Rates of TensorFlow's float64 matrix products beside those of the BLAS that NumPy and SciPy call.

    python examples/benchmarks/products.py

An [M, M] matrix times [M, n], and [M, n] times its transpose, one thread each, by turns in one
process; billions of floating-point operations a second, best of the repeats. dtrmm and dsyrk know
that a matrix is triangular or a result symmetric: their rates count the operations of the full
product, so that all columns can be compared. The last column is TensorFlow's product where the
work is handed to NumPy by ``tf.numpy_function``, with the copies and the lock that this takes.
"""

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import tensorflow as tf
from scipy.linalg.blas import dsyrk, dtrmm

REPEATS = 40


def best_rates(work: dict[str, Callable[[], Any]], operations: float) -> dict[str, float]:
    """Billions of operations a second of each, by turns."""
    best = dict.fromkeys(work, np.inf)
    for function in work.values():
        function()
    for _ in range(REPEATS):
        for name, function in work.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return {name: operations / seconds / 1e9 for name, seconds in best.items()}


def projection(num_inducing: int, num_rows: int) -> dict[str, float]:
    """Rates of W Kuf, W [M, M] lower triangular."""
    rng = np.random.default_rng(0)
    W = np.tril(rng.standard_normal((num_inducing, num_inducing)))
    Kuf = rng.standard_normal((num_inducing, num_rows))
    columns = np.asfortranarray(Kuf)
    W_tf, Kuf_tf = tf.constant(W), tf.constant(Kuf)
    by_numpy = tf.function(lambda: tf.numpy_function(np.dot, (W_tf, Kuf_tf), tf.float64))
    by_tensorflow = tf.function(lambda: tf.matmul(W_tf, Kuf_tf))
    work = {
        "TensorFlow": lambda: by_tensorflow().numpy(),
        "NumPy": lambda: W @ Kuf,
        "triangular": lambda: dtrmm(1.0, W, columns, lower=1),
        "op of NumPy": lambda: by_numpy().numpy(),
    }
    return best_rates(work, 2.0 * num_inducing**2 * num_rows)


def gram(num_inducing: int, num_rows: int) -> dict[str, float]:
    """Rates of A Aᵀ, A [M, n]."""
    A = np.random.default_rng(0).standard_normal((num_inducing, num_rows))
    columns, A_tf = np.asfortranarray(A), tf.constant(A)
    by_numpy = tf.function(lambda: tf.numpy_function(lambda A: A @ A.T, (A_tf,), tf.float64))
    by_tensorflow = tf.function(lambda: tf.matmul(A_tf, A_tf, transpose_b=True))
    work = {
        "TensorFlow": lambda: by_tensorflow().numpy(),
        "NumPy": lambda: A @ columns.T,
        "triangular": lambda: dsyrk(1.0, columns, lower=1),
        "op of NumPy": lambda: by_numpy().numpy(),
    }
    return best_rates(work, 2.0 * num_inducing**2 * num_rows)


def main() -> None:
    first = True
    for num_inducing, num_rows in ((50, 5000), (100, 2000), (200, 2000), (500, 2000)):
        for name, rates_of in (("W Kuf", projection), ("A Aᵀ", gram)):
            rates = rates_of(num_inducing, num_rows)
            if first:
                print(f"{'product':8}{'M':>6}{'n':>7}" + "".join(f"{key:>13}" for key in rates))
                first = False
            line = "".join(f"{rate:13.1f}" for rate in rates.values())
            print(f"{name:8}{num_inducing:6d}{num_rows:7d}{line}", flush=True)


if __name__ == "__main__":
    main()
