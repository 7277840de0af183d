"""Time value and gradient of PEPRegression beside GPflow's SGPR and GPRFITC, and its
memory.

    python -m examples regression                 # N = 20 000, M = 500, D = 8
    python -m examples regression --grow           # time and memory up to N = 1 000 000

All models of a table take turns in one process, so that a change of the machine's speed
meets all of them; read the ratios, which are of the shortest times. The floor is 8 M²N
floating-point operations at the best rate of TensorFlow's own float64 matrix product,
measured in the same run. ``--grow`` runs each N in a process of its own and prints that
process's peak memory.
"""

import argparse
import functools
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from examples.common import (
    arguments,
    in_own_process,
    peak_gibibytes,
    seconds,
    seconds_by_turns,
    value_and_gradient,
)
from gpflow_pep.models import PEPRegression

#: The smallest memory that does not slow the matrix products down: the default rows per
#: chunk.
SMALL_CHUNK = 2000


def gemm_rate(num_inducing: int, repeats: int = 20) -> float:
    """Best rate of an [M, M] by [M, columns] product in operations per second."""
    best = np.inf
    square = tf.random.normal([num_inducing, num_inducing], dtype=tf.float64)
    for columns in (1000, 2000, 4000):
        wide = tf.random.normal([num_inducing, columns], dtype=tf.float64)
        product = functools.partial(tf.matmul, square, wide)
        best = min(best, *(seconds(product) / columns for _ in range(repeats)))
    return 2.0 * num_inducing**2 / best


def generate(num_rows: int, num_inputs: int) -> Any:
    """A smooth function of all inputs with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_rows, num_inputs))
    Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.1 * rng.standard_normal((num_rows, 1))
    return X, Y


def build(model_class: Any, data: Any, num_inducing: int, **options: Any) -> Any:
    """A model with an ARD squared exponential and the first rows for inducing inputs."""
    X = data[0]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], 2.0))
    return model_class(
        data, kernel, X[:num_inducing].copy(), noise_variance=0.1, **options
    )


def beside_gpflow(args: argparse.Namespace) -> None:
    data = generate(args.rows, args.inputs)
    functions: dict[str, Callable[[], Any]] = {}
    first: dict[str, float] = {}
    for name, model_class, options in (
        ("GPflow SGPR", gpflow.models.SGPR, {}),
        ("GPflow GPRFITC", gpflow.models.GPRFITC, {}),
        ("PEPRegression alpha = 0", PEPRegression, {"alpha": 0.0}),
        ("PEPRegression alpha = 0.5", PEPRegression, {"alpha": 0.5}),
        ("PEPRegression alpha = 1", PEPRegression, {"alpha": 1.0}),
        ("alpha = 0.5, smallest memory", PEPRegression, {"chunk_size": SMALL_CHUNK}),
    ):
        model = build(model_class, data, args.inducing, **options)
        functions[name] = value_and_gradient(
            model.training_loss, model.trainable_variables
        )
        first[name] = seconds(functions[name])
    times = seconds_by_turns(functions, args.repeats)
    rate = gemm_rate(args.inducing)
    floor = 8.0 * args.inducing**2 * args.rows / rate
    median = {name: float(np.median(values)) for name, values in times.items()}
    print(
        f"N = {args.rows}, M = {args.inducing}, D = {args.inputs}, float64; value and"
        " gradient"
    )
    print(
        f"matrix product: {rate / 1e9:.1f} GF/s; floor (8 M²N operations):"
        f" {floor:.3f} s\n"
    )
    heads = ("median s", "min s", "/ SGPR", "/ FITC", "/ floor", "first s")
    print(" " * 30 + "".join(f"{head:>9}" for head in heads))
    shortest = {name: min(values) for name, values in times.items()}
    for name, value in shortest.items():
        others = (shortest["GPflow SGPR"], shortest["GPflow GPRFITC"], floor)
        ratios = [value / other for other in others]
        print(
            f"{name:30}{median[name]:9.3f}{value:9.3f}"
            + "".join(f"{ratio:9.2f}" for ratio in ratios)
            + f"{first[name]:9.1f}"
        )


def one_size(rows: int, args: argparse.Namespace) -> tuple[float, float]:
    """One N in this process: seconds of the second call, and peak memory."""
    data = generate(rows, args.inputs)
    model = build(PEPRegression, data, args.inducing)
    function = value_and_gradient(model.training_loss, model.trainable_variables)
    seconds(function)  # compiles
    return seconds(function), peak_gibibytes()


def grow(args: argparse.Namespace) -> None:
    rate = gemm_rate(args.inducing)
    print(
        f"PEPRegression alpha = 0.5, M = {args.inducing}, D = {args.inputs}: value and"
        " gradient"
    )
    print(f"matrix product: {rate / 1e9:.1f} GF/s; each N in its own process\n")
    print(f"{'N':>9} {'s':>8} {'µs / row':>9} {'/ floor':>8} {'peak GiB':>9}")
    for rows in (20_000, 100_000, 300_000, 1_000_000):
        second, peak = in_own_process(one_size, rows, args)
        floor = 8.0 * args.inducing**2 * rows / rate
        print(
            f"{rows:9d} {second:8.2f} {1e6 * second / rows:9.1f} {second / floor:8.2f}"
            f" {peak:9.2f}",
            flush=True,
        )


def main(given: list[str] | None = None) -> None:
    """Parse arguments and print the table asked for."""
    args = arguments(
        __doc__,
        rows=20_000,
        inducing=500,
        inputs=8,
        repeats=7,
        grow=False,
        quick={"rows": 2000, "inducing": 50, "repeats": 3},
        given=given,
    )
    (grow if args.grow else beside_gpflow)(args)
