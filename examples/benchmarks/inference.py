"""Print what one sweep of PEP's inner loop costs beside the objective of GPflow's SGPR.

    python examples/benchmarks/inference.py

Both without derivatives, compiled, on N = 20 000 rows of 8 inputs with M = 500 inducing inputs; the
likelihood is probit. A sweep is the difference of two runs of the loop, over that of their sweeps:
what is done once for all sweeps (Kuf, its product with the inverse factor) is printed apart.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_pep.models import PEP

FEW, MANY = 2, 8


def seconds(function: Callable[[], Any], repeats: int) -> float:
    """Median over some calls, after two that compile."""
    times = []
    for call in range(repeats + 2):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
        if call < 2:
            times.clear()
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--inducing", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, [options.rows, 8])
    f = np.sin(3.0 * X[:, :1]) + X[:, 1:2] * X[:, 2:3]
    Y = f + 0.3 * rng.standard_normal(f.shape)
    Z = X[: options.inducing]

    def kernel() -> gpflow.kernels.Kernel:
        return gpflow.kernels.SquaredExponential(lengthscales=np.full(8, 1.5))

    sgpr = gpflow.models.SGPR((tf.constant(X), tf.constant(Y)), kernel(), Z)
    reference = seconds(tf.function(sgpr.training_loss), options.repeats)

    data = tf.constant(X), tf.constant((Y > 0.0).astype(float))
    loops = []
    for sweeps in (FEW, MANY):
        # Too few sweeps to converge: fallbacks follow with as many, and count among the record's.
        limits = {"max_sweeps": sweeps, "tolerance": 1e-12}
        model = PEP(data, kernel(), gpflow.likelihoods.Bernoulli(), Z, **limits)
        nothing = [tf.zeros_like(part) for part in model.read_sites()]

        def run(model: PEP = model, nothing: list[tf.Tensor] = nothing) -> tf.Tensor:
            for part, zero in zip((model.sites.nu, model.sites.tau), nothing, strict=True):
                part.unconstrained_variable.assign(zero)
            return model.training_loss()

        loops.append((seconds(tf.function(run), options.repeats), model.last_inference.num_sweeps))
    (few, few_sweeps), (many, many_sweeps) = loops
    sweep = (many - few) / (many_sweeps - few_sweeps)
    print(f"N = {options.rows}, M = {options.inducing}, D = 8; seconds, and over SGPR's")
    print(f"SGPR, objective      {reference:8.3f}{1.0:8.2f}")
    print(f"PEP, one sweep       {sweep:8.3f}{sweep / reference:8.2f}")
    rest = few - few_sweeps * sweep
    print(f"PEP, all the rest    {rest:8.3f}{rest / reference:8.2f}")


if __name__ == "__main__":
    main()
