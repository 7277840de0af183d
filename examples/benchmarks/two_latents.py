"""Print processor times of likelihoods of users with two latent functions.

    python -m examples two_latents                   # 300 rows: some minutes
    python -m examples two_latents NoisyStudentT --rows 1000

Only the log density is known of each: a negative binomial with its own dispersion, a
zero-inflated Poisson, a Weibull and a Student-t distribution whose scale varies (those
of the tests). Columns: the tilted integrals of all rows with their derivatives, as each
sweep needs them, and ``maximise`` from the defaults with 15 inducing inputs, together
with what its functions take to compile.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import gpflow
import numpy as np
import tensorflow as tf
from cases.two_latents import TWO_LATENTS, draw_rows

import gpflow_pep as pep
from examples.common import arguments, seconds


def build(name: str, num_rows: int, alpha: float) -> pep.PEP:
    """Make a model of rows that were drawn."""
    X, Y = draw_rows(name, num_rows)
    kernels = [gpflow.kernels.SquaredExponential() for _ in range(2)]
    points = gpflow.inducing_variables.InducingPoints(X[:: num_rows // 15].copy())
    return pep.PEP(
        (X, Y),
        gpflow.kernels.SeparateIndependent(kernels),
        TWO_LATENTS[name](),
        gpflow.inducing_variables.SharedIndependentInducingVariables(points),
        alpha=alpha,
        mean_function=gpflow.functions.Constant(np.array(TWO_LATENTS[name].means)),
    )


def milliseconds_of_integrals(model: pep.PEP, repeats: int) -> float:
    """Of value and derivatives of all rows, the least."""
    rng = np.random.default_rng(0)
    X, Y = model.data
    size = [int(X.shape[0]), 2]
    mean = np.array(TWO_LATENTS[type(model.likelihood).__name__].means)
    mean = mean + 0.5 * rng.standard_normal(size)
    variance = rng.uniform(0.01, 0.3, size)
    compiled = tf.function(
        lambda: pep.likelihoods.tilted_derivatives(
            model.likelihood,
            X,
            tf.constant(mean),
            tf.constant(variance),
            Y,
            model.alpha,
        ),
        autograph=False,
    )
    compiled()
    return 1e3 * min(seconds(compiled, time.process_time) for _ in range(repeats))


def main() -> None:
    quick = {"names": ["NoisyStudentT"], "rows": 40, "repeats": 1, "iterations": 2}
    options = {"rows": 300, "alpha": 0.5, "repeats": 5, "iterations": 1000}
    args = arguments(__doc__, names=TWO_LATENTS, quick=quick, **options)
    print(f"{'':16} {'integrals':>10} {'fit':>8} {'evaluations':>12} {'objective':>10}")
    for name in args.names:
        model = build(name, args.rows, args.alpha)
        integrals = milliseconds_of_integrals(model, args.repeats)
        start = time.process_time()
        record = pep.training.maximise(
            model, max_iterations=args.iterations, progress=False
        )
        fit = time.process_time() - start
        numbers = f"{integrals:7.0f} ms {fit:6.1f} s {record.evaluations:12}"
        print(f"{name:16} {numbers} {record.objective:10.2f}", flush=True)
