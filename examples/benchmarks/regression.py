"""Time value and gradient of PEPRegression beside GPflow's SGPR and GPRFITC, and its memory.

    python examples/benchmarks/regression.py                 # N = 20 000, M = 500, D = 8
    python examples/benchmarks/regression.py --neighbours 10  # and a model that knows neighbours
    python examples/benchmarks/regression.py --grow           # time and memory up to N = 1 000 000

All models of a table take turns in one process, so that a change of the machine's speed meets all
of them; read the ratios, which are of the shortest times. The floor is 8 M²N floating-point
operations at the best rate of TensorFlow's own float64 matrix product, measured in the same run.
``--grow`` runs each N in a process of its own and prints that process's peak memory.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_pep.models import PEPRegression

#: The smallest memory that does not slow the matrix products down: the default rows per chunk.
SMALL_CHUNK = 2000


def gemm_rate(num_inducing: int, repeats: int = 20) -> float:
    """Best rate of an [M, M] by [M, columns] product in operations per second."""
    best = np.inf
    square = tf.random.normal([num_inducing, num_inducing], dtype=tf.float64)
    for columns in (1000, 2000, 4000):
        wide = tf.random.normal([num_inducing, columns], dtype=tf.float64)
        for _ in range(repeats):
            start = time.perf_counter()
            tf.matmul(square, wide).numpy()
            best = min(best, (time.perf_counter() - start) / columns)
    return 2.0 * num_inducing**2 / best


def generate(num_rows: int, num_inputs: int) -> Any:
    """A smooth function of all inputs with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_rows, num_inputs))
    Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.1 * rng.standard_normal((num_rows, 1))
    return X, Y


def value_and_gradient(model: Any) -> Callable[[], Any]:
    """What an optimiser evaluates at each step, compiled."""
    variables = model.trainable_variables

    @tf.function
    def evaluate() -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss()
        return loss, tape.gradient(loss, variables)

    return evaluate


def build(model_class: Any, data: Any, num_inducing: int, **options: Any) -> Any:
    """A model with an ARD squared exponential and the first rows for inducing inputs."""
    X = data[0]
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], 2.0))
    return model_class(data, kernel, X[:num_inducing].copy(), noise_variance=0.1, **options)


def seconds(function: Callable[[], Any]) -> float:
    """Wall time of one call, until its result is there."""
    start = time.perf_counter()
    loss, _ = function()
    loss.numpy()
    return time.perf_counter() - start


def beside_gpflow(args: argparse.Namespace) -> None:
    """The table of one N."""
    data = generate(args.rows, args.inputs)
    functions: dict[str, Callable[[], Any]] = {}
    first: dict[str, float] = {}
    near = f"alpha = 0.5, {args.neighbours} neighbours"
    known = {"alpha": 0.5, "neighbours": args.neighbours}
    for name, model_class, options in (
        ("GPflow SGPR", gpflow.models.SGPR, {}),
        ("GPflow GPRFITC", gpflow.models.GPRFITC, {}),
        ("PEPRegression alpha = 0", PEPRegression, {"alpha": 0.0}),
        ("PEPRegression alpha = 0.5", PEPRegression, {"alpha": 0.5}),
        ("PEPRegression alpha = 1", PEPRegression, {"alpha": 1.0}),
        ("alpha = 0.5, smallest memory", PEPRegression, {"chunk_size": SMALL_CHUNK}),
        *([(near, PEPRegression, known)] if args.neighbours else []),
    ):
        functions[name] = value_and_gradient(build(model_class, data, args.inducing, **options))
        first[name] = seconds(functions[name])
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(args.repeats):
        for name, function in functions.items():
            times[name].append(seconds(function))
    rate = gemm_rate(args.inducing)
    floor = 8.0 * args.inducing**2 * args.rows / rate
    median = {name: float(np.median(values)) for name, values in times.items()}
    print(f"N = {args.rows}, M = {args.inducing}, D = {args.inputs}, float64; value and gradient")
    print(f"matrix product: {rate / 1e9:.1f} GF/s; floor (8 M²N operations): {floor:.3f} s\n")
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


def one_size(args: argparse.Namespace) -> None:
    """One N in this process: first call, second call, peak memory, as JSON."""
    data = generate(args.rows, args.inputs)
    model = build(PEPRegression, data, args.inducing, neighbours=args.neighbours)
    function = value_and_gradient(model)
    result = {"first": seconds(function), "second": seconds(function)}
    result["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(result))


def grow(args: argparse.Namespace) -> None:
    """The table of growing N."""
    rate = gemm_rate(args.inducing)
    near = f", {args.neighbours} neighbours" * bool(args.neighbours)
    print(
        f"PEPRegression alpha = 0.5{near}, M = {args.inducing}, D = {args.inputs}:"
        " value and gradient"
    )
    print(f"matrix product: {rate / 1e9:.1f} GF/s; each N in its own process\n")
    print(f"{'N':>9} {'s':>8} {'µs / row':>9} {'/ floor':>8} {'peak GiB':>9}")
    for rows in (20_000, 100_000, 300_000, 1_000_000):
        command = [sys.executable, __file__, "--one", "--rows", str(rows)]
        command += ["--inducing", str(args.inducing), "--inputs", str(args.inputs)]
        command += ["--neighbours", str(args.neighbours)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        result = json.loads(output.strip().splitlines()[-1])
        floor = 8.0 * args.inducing**2 * rows / rate
        print(
            f"{rows:9d} {result['second']:8.2f} {1e6 * result['second'] / rows:9.1f}"
            f" {result['second'] / floor:8.2f} {result['peak']:9.2f}",
            flush=True,
        )


def main(arguments: list[str] | None = None) -> None:
    """Parse arguments and print the table asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--inducing", type=int, default=500)
    parser.add_argument("--inputs", type=int, default=8)
    parser.add_argument("--neighbours", type=int, default=0, help="of one more model")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--grow", action="store_true", help="time and memory as N grows")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    (one_size if args.one else grow if args.grow else beside_gpflow)(args)


if __name__ == "__main__":
    main()
