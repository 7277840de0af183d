"""Time and peak memory of the rules that choose inducing variables, on many rows.

    python examples/benchmarks/selection.py                            # N = 1 000 000
    python examples/benchmarks/selection.py --rows 100000
    python examples/benchmarks/selection.py --rules greedy_variance

Each rule runs in a process of its own. Memory is that process's peak, with TensorFlow and the data
in it; the first line is a process that does nothing with them. ``trace`` says how good the choice
is: the residual variance that it leaves, as a fraction of the prior's, mean over 10 000 rows.
``kmeans`` takes mini-batches where there are many rows, ``kmeans_all_rows`` (minutes) never does.
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

from gpflow_pep import selection
from gpflow_pep.covariances import project, whiten

NOISE_VARIANCE = 0.01


def generate(num_rows: int, num_inputs: int) -> Any:
    """A smooth function of all inputs with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_rows, num_inputs))
    Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.1 * rng.standard_normal((num_rows, 1))
    return X, Y


def rules(data: Any, M: int, kernel: gpflow.kernels.Kernel) -> dict[str, Callable[[], Any]]:
    """What can be timed."""
    X, _ = data
    return {
        "nothing": lambda: None,
        "random_subset": lambda: selection.random_subset(X, M, seed=0),
        "greedy_variance": lambda: selection.greedy_variance(X, M, kernel=kernel),
        "ivm": lambda: selection.ivm(
            data, M, kernel=kernel, likelihood=gpflow.likelihoods.Gaussian(NOISE_VARIANCE), seed=0
        ),
        "greedy_variational": lambda: selection.greedy_variational(
            data, M, kernel=kernel, noise_variance=NOISE_VARIANCE, seed=0
        ),
        "kmeans": lambda: selection.kmeans(X, M, seed=0),
        "kmeans_all_rows": lambda: selection.kmeans(X, M, seed=0, minibatches=False),
    }


def one_rule(args: argparse.Namespace) -> None:
    """One rule in this process: seconds, peak memory and what it leaves over, as JSON."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(args.inputs, args.lengthscale))
    data = generate(args.rows, args.inputs)
    rule = rules(data, args.inducing, kernel)[args.one]
    start = time.perf_counter()
    chosen = rule()
    result = {"seconds": time.perf_counter() - start}
    result["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if chosen is not None:
        few = data[0][:10_000]
        result["trace"] = float(np.mean(project(whiten(chosen, kernel).W, chosen, kernel, few).D))
    print(json.dumps(result))


def table(args: argparse.Namespace) -> None:
    """All rules asked for."""
    print(
        f"N = {args.rows}, M = {args.inducing}, D = {args.inputs}, float64,"
        f" squared exponential with lengthscales {args.lengthscale}\n"
    )
    print(f"{'':20}{'seconds':>9}{'peak GiB':>10}{'trace':>9}")
    for name in ("nothing", *args.rules):
        command = [sys.executable, __file__, "--one", name, "--rows", str(args.rows)]
        command += ["--inducing", str(args.inducing), "--inputs", str(args.inputs)]
        command += ["--lengthscale", str(args.lengthscale)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        result = json.loads(output.strip().splitlines()[-1])
        trace = f"{result['trace']:9.4f}" if "trace" in result else ""
        print(f"{name:20}{result['seconds']:9.2f}{result['peak']:10.2f}{trace}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Parse arguments and print the table."""
    names = [name for name in rules((None, None), 0, None) if name != "nothing"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--inducing", type=int, default=500)
    parser.add_argument("--inputs", type=int, default=8)
    parser.add_argument("--lengthscale", type=float, default=2.0)
    parser.add_argument("--rules", nargs="+", choices=names, default=names)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    (one_rule if args.one else table)(args)


if __name__ == "__main__":
    main()
