"""Print how far an evaluation of PEP is from the least that its sweeps can cost in TensorFlow.

    python examples/benchmarks/floor.py --data DIRECTORY
    python examples/benchmarks/floor.py --data DIRECTORY pima

The least is a graph of the products, factors and exponentials of so many sweeps and of one
gradient, and of nothing else: no guards, no acceleration, no fallbacks, no parameters to transform.
SVGP, PEP (alpha 0.5, the defaults) and these graphs take turns, on the paths and data of
``evaluations.py``, of which only the binary ones are here. ``sweeps`` is PEP's mean number on its
path, and ``least`` is interpolated between whole numbers of sweeps.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

from evaluations import BINARY, TURNS, Evaluated, problems  # isort: skip  # sets the environment
import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from gpflow_pep.models import PEP

#: As many exponentials for each row as the package's rule for the probit.
NUM_PLACES = 112
LENGTH, REPEATS = 60, 60


def bare(X: AnyNDArray, Z: AnyNDArray, sweeps: int) -> Callable[[], tf.Tensor]:
    """Make a compiled function of about as many products as an evaluation has."""
    (N, D), M = X.shape, len(Z)
    rows, eye = tf.constant(X), tf.eye(M, dtype=tf.float64)
    points, lengthscales = tf.Variable(Z), tf.Variable(np.full(D, np.sqrt(D)))
    tau, nu = tf.Variable(np.full(N, 0.5)), tf.Variable(np.full(N, 0.1))
    places = np.linspace(-8.0, 6.0, NUM_PLACES)[None]
    powers = tf.constant(np.concatenate([places**0, places, places**2]))

    def covariance(x: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
        squares = (tf.reduce_sum(tf.square(part), axis=1) for part in (z, x))
        distance = sum(tf.meshgrid(*squares, indexing="ij")) - 2.0 * tf.matmul(
            z, x, transpose_b=True
        )
        return tf.exp(-0.5 * distance)

    def inverse_factor(K: tf.Tensor) -> tf.Tensor:
        return tf.linalg.triangular_solve(tf.linalg.cholesky(K), eye)

    def tilted(m: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        of_rows = tf.stack([-0.5 * m * m / v, m / v, -0.5 / v], axis=1)
        sums = tf.matmul(tf.exp(tf.matmul(of_rows, powers)), powers, transpose_b=True)
        return 1e-3 * sums[:, 0], -0.4 + 1e-6 * sums[:, 1]

    def evaluate() -> tf.Tensor:
        with tf.GradientTape() as tape:
            x, z = rows / lengthscales, points / lengthscales
            K, W = covariance(x, z), inverse_factor(covariance(z, z) + 1e-6 * eye)
            A = tf.stop_gradient(tf.matmul(W, K))
            d, (t, n) = 1.0 - tf.reduce_sum(tf.square(A), axis=0), (tau, nu)
            for _ in range(sweeps):
                V = inverse_factor(tf.matmul(A * t, A, transpose_b=True) + eye)
                w = tf.matmul(V, tf.matmul(V, tf.matmul(A, n[:, None])), transpose_a=True)
                m = tf.matmul(w, A, transpose_a=True)[0]
                s = tf.reduce_sum(tf.square(tf.matmul(V, A)), axis=0)
                first, second = tilted(m, s + d)
                t = -second / (1.0 + 0.5 * second * s)
                n = t * m + first * (1.0 + 0.5 * t * s)
            covariance_of_v = tf.matmul(V, V, transpose_a=True)
            by_A = w * first - t * tf.matmul(covariance_of_v, A) - second * A
            by_K = tf.matmul(W, by_A, transpose_a=True)
            by_W = tf.linalg.band_part(tf.matmul(by_A, K, transpose_b=True), -1, 0)
            value = tf.reduce_sum(tf.stop_gradient(by_K) * K)
            value += tf.reduce_sum(tf.stop_gradient(by_W) * W)
        gradients = tape.gradient(value, [points, lengthscales])
        return tf.concat([tf.reshape(part, [-1]) for part in (value, *gradients)], axis=0)

    return tf.function(evaluate, autograph=False)


def table(directory: Path, name: str) -> str:
    """The line of one data set."""
    X, Y, kernel, likelihood, Z = problems(directory, name)[""]
    data = tf.constant(X), tf.constant(Y)
    svgp = gpflow.models.SVGP(*gpflow.utilities.deepcopy((kernel, likelihood, Z)))
    pep = PEP(data, *gpflow.utilities.deepcopy((kernel, likelihood, Z)), alpha=0.5)
    models = (
        Evaluated(svgp, svgp.training_loss_closure(data, compile=False), LENGTH),
        Evaluated(pep, pep.training_loss, LENGTH),
    )
    sweeps = []
    for x in models[1].path:
        models[1].evaluate(x)
        sweeps.append(pep.last_inference.num_sweeps)
    mean = float(np.mean(sweeps[1:]))
    whole = range(1, int(np.ceil(mean)) + 1)
    graphs = {number: bare(X, np.asarray(Z), number) for number in whole}
    seconds: dict[int, list[float]] = {number: [] for number in whole}
    for _ in range(TURNS):
        for model in models:
            model.visit()
        for number, graph in graphs.items():
            graph()
            for _ in range(REPEATS):
                start = time.perf_counter()
                graph().numpy()
                seconds[number].append(time.perf_counter() - start)
    # As those of the models: the shortest of several turns.
    shortest = {number: float(np.quantile(found, 0.1)) for number, found in seconds.items()}
    at_rest, step = shortest[1], float(np.interp(mean, whole, list(shortest.values())))
    found = (
        [float(np.median(models[0].seconds)), step, float(np.median(models[1].seconds))],
        [models[0].rest(), at_rest, models[1].rest()],
    )
    columns = "".join(
        f"{1e3 * svgp:9.2f}{1e3 * least:8.2f}{least / svgp:7.2f}{1e3 * ours:8.2f}{ours / svgp:7.2f}"
        for svgp, least, ours in found
    )
    return f"{name:12}{len(X):6}{mean:8.1f}{columns}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=BINARY, help="binary data sets")
    parser.add_argument("--data", type=Path, default=os.environ.get("GPFLOW_PEP_DATA", "."))
    options = parser.parse_args()
    heads = f"{'SVGP':>9}{'least':>8}{'/SVGP':>7}{'PEP':>8}{'/SVGP':>7}"
    print(f"{'':26}{'after a step, ms':>39}{'at rest, ms':>39}")
    print(f"{'':12}{'N':>6}{'sweeps':>8}{heads}{heads}", flush=True)
    for name in options.names:
        print(table(options.data, name), flush=True)


if __name__ == "__main__":
    main()
