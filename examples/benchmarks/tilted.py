"""Print the error of the tilted integrals of every likelihood against adaptive
integration.

    python -m examples tilted            # the table of docs/derivations.rst: a minute
    python -m examples tilted --time     # and the time of value and derivatives

The grid: means to +-50, variances 1e-6 ... 1e6, alpha 0, 1e-6, 0.1, 0.5, 1, where the integral is
finite in float64. Errors are relative to 1 + |ell|. The likelihoods, their targets and the
integrals they are compared with are those of the tests. MultiLatentTFPConditional is without the
moments under which its density is narrower than the digits of its place, and without points whose
integral is NaN, because the rule says that it is not resolved.
"""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import numpy as np
import tensorflow as tf
from cases.tilted import CASES, Case, grid, reference_values

from examples.common import arguments, seconds
from gpflow_pep.likelihoods import log_power_expectation, tilted_derivatives

MEANS = (-50.0, -5.0, -1.0, 0.0, 0.7, 8.0, 50.0)
VARIANCES = (1e-6, 1e-2, 0.3, 1.0, 10.0, 100.0, 1e4, 1e6)
ROWS = 10_000


def errors(case: Case) -> "np.ndarray":
    """Of each point of the grid, but for those that are said not to be resolved."""
    rows = grid(case, MEANS, VARIANCES)
    expected = reference_values(case, rows)
    actual = log_power_expectation(case.create(), *rows.arguments()).numpy()
    error = np.abs(actual - expected) / (1.0 + np.abs(expected))
    return error[~np.isnan(actual)]


def milliseconds(case: Case, repeats: int = 5) -> float:
    """Of one compiled call for 10 000 rows, the median."""
    rng = np.random.default_rng(0)
    mean = tf.constant(rng.standard_normal((ROWS, case.num_latent)))
    variance = tf.constant(rng.uniform(0.1, 3.0, (ROWS, case.num_latent)))
    X = tf.zeros((ROWS, 1), tf.float64)
    Y = tf.constant(np.tile(case.target, (ROWS, 1)))
    likelihood = case.create()
    compiled = tf.function(
        lambda: tilted_derivatives(likelihood, X, mean, variance, Y, 0.5)
    )
    compiled()
    return 1e3 * float(np.median([seconds(compiled) for _ in range(repeats)]))


def main() -> None:
    args = arguments(__doc__, names=CASES, time=False, quick={"names": list(CASES)[:2]})
    # The reference looks for the integrand's mode with exponents that overflow.
    warnings.simplefilter("ignore", RuntimeWarning)
    print(
        f"{'case':32} {'largest':>9} {'95%':>9}"
        + ("  ms / 10 000" if args.time else "")
    )
    for name in args.names:
        error = errors(CASES[name])
        line = f"{name:32} {error.max():9.1e} {np.quantile(error, 0.95):9.1e}"
        print(
            line + (f"{milliseconds(CASES[name]):13.0f}" if args.time else ""),
            flush=True,
        )
