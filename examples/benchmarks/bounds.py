"""Print how far a scaled conditional lifts the bound of SGPR, and its time.

    python -m examples bounds --data DIRECTORY       # the table of docs/derivations.rst
    python -m examples bounds generated              # needs no data sets

Squared exponential with a lengthscale for each input, inducing inputs from k-means and
standardised rows. Hyperparameters are learnt by the bound of SGPR (``prior``), by so
many steps of L-BFGS, and are the same for all numbers of a data set. ``log p(y)`` is
exact; ``closed`` is (bound - prior) / (log p(y) - prior). ``blocks`` are clusters of
about 20 rows. ``time`` is the median processor time of value and gradient, scaled over
prior, both compiled, in turns.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from sklearn.cluster import KMeans

from examples.common import arguments, seconds_by_turns, value_and_gradient
from examples.data_sets import DIRECTORY, numbers
from gpflow_pep.models import PEPRegression
from gpflow_pep.training.starts import kmeans

BLOCK = 20


class Problem(NamedTuple):
    """Standardised rows, and the number of inducing inputs."""

    X: AnyNDArray
    Y: AnyNDArray
    num_inducing: int


def standardise(values: AnyNDArray) -> AnyNDArray:
    return (values - values.mean(axis=0)) / values.std(axis=0)


def generated(num_rows: int) -> tuple[AnyNDArray, AnyNDArray]:
    """A smooth function of two inputs, with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (num_rows, 2))
    f = np.sin(2.0 * X[:, :1]) + np.cos(X[:, 1:])
    return X, f + 0.3 * rng.standard_normal(f.shape)


def problem(
    name: str, directory: Path, most: int | None, num_inducing: int | None
) -> Problem:
    rows, size = DATA_SETS[name]
    rows = most or rows
    X, Y = generated(rows) if name == "generated" else numbers(directory, name, rows)
    return Problem(standardise(X), standardise(Y), num_inducing or size)


DATA_SETS = {"boston": (506, 50), "kin8nm": (2000, 200), "generated": (1000, 20)}


def create(given: Problem, Z: AnyNDArray, bound: str, **options: Any) -> PEPRegression:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(given.X.shape[1]))
    options |= {"alpha": 0.0, "bound": bound, "noise_variance": 0.1}
    return PEPRegression((given.X, given.Y), kernel, Z, **options)


def take_over(model: Any, trained: Any) -> Any:
    """The same hyperparameters."""
    for part in ("kernel", "likelihood"):
        gpflow.utilities.multiple_assign(
            getattr(model, part), gpflow.utilities.read_values(getattr(trained, part))
        )
    return model


def time_ratio(one: Any, other: Any, repeats: int) -> float:
    """Median processor time of one over that of the other, without the calls that
    compile.
    """
    functions = {
        name: value_and_gradient(model.training_loss, model.trainable_variables)
        for name, model in (("one", one), ("other", other))
    }
    times = seconds_by_turns(functions, repeats + 2, time.process_time)
    return float(np.median(times["one"][2:]) / np.median(times["other"][2:]))


def bounds(given: Problem, steps: int, repeats: int) -> dict[str, float]:
    Z = kmeans(given.X, given.num_inducing, seed=0).Z.numpy()
    prior = create(given, Z, "standard")
    loss = tf.function(prior.training_loss)
    gpflow.optimizers.Scipy().minimize(
        loss, prior.trainable_variables, compile=False, options={"maxiter": steps}
    )
    found, data = prior.inducing_variable.Z.numpy(), (given.X, given.Y)
    scaled = take_over(create(given, found, "tight"), prior)
    num_blocks = max(1, len(given.X) // BLOCK)
    labels = KMeans(num_blocks, n_init=1, random_state=0).fit_predict(given.X)
    blocks = take_over(create(given, found, "tight", blocks=labels), prior)
    noise = prior.likelihood.variance.numpy()
    exact = gpflow.models.GPR(data, prior.kernel, noise_variance=noise)
    sgpr = gpflow.models.SGPR(
        data, prior.kernel, prior.inducing_variable, noise_variance=noise
    )
    result = {
        "GPflow": float(sgpr.elbo()),
        "prior": float(prior.pep_log_marginal_likelihood()),
        "scaled": float(scaled.pep_log_marginal_likelihood()),
        "blocks": float(blocks.pep_log_marginal_likelihood()),
        "log p(y)": float(exact.log_marginal_likelihood()),
    }
    gap = result["log p(y)"] - result["prior"]
    for name in ("scaled", "blocks"):
        result[f"{name} closed"] = (result[name] - result["prior"]) / gap
    result["time"] = time_ratio(scaled, prior, repeats)
    return result


HEADS = ("GPflow", "prior", "scaled", "blocks", "log p(y)")
SHARES = ("scaled closed", "blocks closed")


def main(given: list[str] | None = None) -> None:
    args = arguments(
        __doc__,
        names=DATA_SETS,
        data=DIRECTORY,
        rows=int,
        inducing=int,
        steps=30,
        repeats=30,
        quick={"names": ["generated"], "rows": 100, "steps": 3, "repeats": 3},
        given=given,
    )
    print(f"{'':9}{'N':>6}{'M':>5}" + "".join(f"{head:>10}" for head in HEADS), end="")
    print(f"{'closed':>8}{'blocks':>8}{'time':>7}")
    for name in args.names:
        chosen = problem(name, args.data, args.rows, args.inducing)
        found = bounds(chosen, args.steps, args.repeats)
        numbers = "".join(
            f"{found[h]:10.2f}" if h in found else " " * 10 for h in HEADS
        )
        shares = "".join(
            f"{found[h]:>{width}.0%}" if h in found else " " * width
            for h, width in zip(SHARES, (8, 8), strict=True)
        )
        print(
            f"{name:9}{len(chosen.X):6}{chosen.num_inducing:5}{numbers}{shares}{found['time']:7.2f}",
            flush=True,
        )
