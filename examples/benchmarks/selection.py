"""Time and peak memory of the rules that choose inducing variables, on many rows.

    python -m examples selection                            # N = 1 000 000
    python -m examples selection --rows 100000
    python -m examples selection --rules greedy_variance

Each rule runs in a process of its own. Memory is that process's peak, with TensorFlow
and the data in it; the first line is a process that does nothing with them. ``trace``
says how good the choice is: the residual variance that it leaves, as a fraction of the
prior's, mean over 10 000 rows. ``kmeans`` takes mini-batches where there are many rows,
``kmeans_all_rows`` (minutes) never does.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np

from examples.benchmarks.regression import generate
from examples.common import arguments, in_own_process, peak_gibibytes
from examples.ivm import ivm
from gpflow_pep.engine.prior import project, whiten
from gpflow_pep.training import starts

NOISE_VARIANCE = 0.01


def rules(
    data: Any, M: int, kernel: gpflow.kernels.Kernel
) -> dict[str, Callable[[], Any]]:
    """What can be timed."""
    X, _ = data
    return {
        "nothing": lambda: None,
        "random_subset": lambda: starts.random_subset(X, M, seed=0),
        "greedy_variance": lambda: starts.greedy_variance(X, M, kernel=kernel),
        "ivm": lambda: ivm(
            data,
            M,
            kernel=kernel,
            likelihood=gpflow.likelihoods.Gaussian(NOISE_VARIANCE),
            seed=0,
        ),
        "greedy_variational": lambda: starts.greedy_variational(
            data, M, kernel=kernel, noise_variance=NOISE_VARIANCE, seed=0
        ),
        "kmeans": lambda: starts.kmeans(X, M, seed=0),
        "kmeans_all_rows": lambda: starts.kmeans(X, M, seed=0, minibatches=False),
    }


def one_rule(name: str, args: argparse.Namespace) -> tuple[float, float, str]:
    """One rule in this process: seconds, peak memory and the residual variance that it
    leaves.
    """
    kernel = gpflow.kernels.SquaredExponential(
        lengthscales=np.full(args.inputs, args.lengthscale)
    )
    data = generate(args.rows, args.inputs)
    rule = rules(data, args.inducing, kernel)[name]
    start = time.perf_counter()
    chosen = rule()
    seconds = time.perf_counter() - start
    peak = peak_gibibytes()
    if chosen is None:
        return seconds, peak, ""
    D = project(whiten(chosen, kernel).W, chosen, kernel, data[0][:10_000]).D
    return seconds, peak, f"{float(np.mean(D)):9.4f}"


def main(given: list[str] | None = None) -> None:
    args = arguments(
        __doc__,
        rows=1_000_000,
        inducing=500,
        inputs=8,
        lengthscale=2.0,
        rules=[name for name in rules((None, None), 0, None) if name != "nothing"],
        quick={"rows": 10_000, "inducing": 50},
        given=given,
    )
    print(
        f"N = {args.rows}, M = {args.inducing}, D = {args.inputs}, float64,"
        f" squared exponential with lengthscales {args.lengthscale}\n"
    )
    print(f"{'':20}{'seconds':>9}{'peak GiB':>10}{'trace':>9}")
    for name in ("nothing", *args.rules):
        seconds, peak, trace = in_own_process(one_rule, name, args)
        print(f"{name:20}{seconds:9.2f}{peak:10.2f}{trace}", flush=True)
