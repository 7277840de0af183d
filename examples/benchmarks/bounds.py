"""Print how far a scaled conditional lifts the bounds of SGPR and SVGP, and its time.

    python examples/benchmarks/bounds.py --data DIRECTORY       # the table of docs/scaled.rst
    python examples/benchmarks/bounds.py poisson                # needs no data sets

Squared exponential with a lengthscale for each input, inducing inputs from k-means and standardised
rows. Hyperparameters are learnt by the bound of SGPR or SVGP (``prior``), by so many steps of
L-BFGS, and are the same for all numbers of a data set. ``log p(y)`` is exact for regression,
otherwise the estimate of EP with an inducing input at each row; ``closed`` is
(bound - prior) / (log p(y) - prior). ``proved`` is ``certified_bound()``, for regression the bound
itself. ``blocks`` are clusters of about 20 rows. ``time`` is the median processor time of
value and gradient, scaled over prior, both compiled, in turns, with converged sites.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from sklearn.cluster import KMeans

from gpflow_pep.models import PEP, PEPRegression
from gpflow_pep.selection import kmeans

BLOCK = 20


class Problem(NamedTuple):
    """Standardised rows, their likelihood and the number of inducing inputs."""

    X: AnyNDArray
    Y: AnyNDArray
    likelihood: Callable[[], gpflow.likelihoods.Likelihood]
    num_inducing: int

    @property
    def regression(self) -> bool:
        return isinstance(self.likelihood(), gpflow.likelihoods.Gaussian)


def standardise(values: AnyNDArray) -> AnyNDArray:
    return (values - values.mean(axis=0)) / values.std(axis=0)


def read(directory: Path, name: str, most: int) -> tuple[AnyNDArray, AnyNDArray]:
    """The first rows of a data set: inputs and target."""
    path = directory / f"{name}.csv.gz"
    if not path.is_file():
        raise SystemExit(f"{path} does not exist. Name its directory with --data.")
    rows = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)[:most]
    return rows[:, :-1], rows[:, -1:]


def counts(num_rows: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Generated: a smooth log rate of two inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (num_rows, 2))
    rate = np.exp(np.sin(2.0 * X[:, :1]) + np.cos(X[:, 1:]))
    return X, rng.poisson(rate).astype(float)


def problem(name: str, directory: Path, most: int | None, num_inducing: int | None) -> Problem:
    """One of the data sets."""
    rows, size, likelihood = DATA_SETS[name]
    rows = most or rows
    X, Y = counts(rows) if name == "poisson" else read(directory, name, rows)
    if name in ("boston", "kin8nm"):
        Y = standardise(Y)
    return Problem(standardise(X), Y, likelihood, num_inducing or size)


DATA_SETS = {
    "boston": (506, 50, lambda: gpflow.likelihoods.Gaussian(0.1)),
    "kin8nm": (2000, 200, lambda: gpflow.likelihoods.Gaussian(0.1)),
    "banana": (1000, 20, gpflow.likelihoods.Bernoulli),
    "poisson": (1000, 20, gpflow.likelihoods.Poisson),
}


def create(given: Problem, Z: AnyNDArray, alpha: float, conditional: str, **options: Any) -> Any:
    """The model of a data set."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(given.X.shape[1]))
    data = given.X, given.Y
    options |= {"alpha": alpha, "conditional": conditional}
    if given.regression:
        return PEPRegression(data, kernel, Z, likelihood=given.likelihood(), **options)
    return PEP(data, kernel, given.likelihood(), Z, **options)


def take_over(model: Any, trained: Any) -> Any:
    """The same hyperparameters."""
    for part in ("kernel", "likelihood"):
        gpflow.utilities.multiple_assign(
            getattr(model, part), gpflow.utilities.read_values(getattr(trained, part))
        )
    return model


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


def time_ratio(one: Any, other: Any, repeats: int) -> float:
    """Median processor time of one over that of the other, in turns."""
    functions = [value_and_gradient(model) for model in (one, other)]
    times = np.empty([repeats + 2, 2])
    for turn in range(len(times)):
        for which in (0, 1) if turn % 2 else (1, 0):
            start = time.process_time()
            functions[which]()[0].numpy()
            times[turn, which] = time.process_time() - start
    first, second = np.median(times[2:], axis=0)  # the first one compiles
    return float(first / second)


def log_evidence(given: Problem, trained: Any) -> float:
    """Exact, or by EP with an inducing input at each row."""
    if given.regression:
        noise = trained.likelihood.variance.numpy()
        exact = gpflow.models.GPR((given.X, given.Y), trained.kernel, noise_variance=noise)
        return float(exact.log_marginal_likelihood())
    ep = take_over(create(given, given.X, 1.0, "prior"), trained)
    return float(tf.function(ep.pep_log_marginal_likelihood)())


def gpflows_bound(given: Problem, trained: Any) -> float:
    """Of SGPR, or of SVGP at its best q: what the bound with the prior's conditional must be."""
    parts = trained.kernel, trained.inducing_variable
    data = given.X, given.Y
    if given.regression:
        noise = trained.likelihood.variance.numpy()
        return float(gpflow.models.SGPR(data, *parts, noise_variance=noise).elbo())
    svgp = gpflow.models.SVGP(parts[0], trained.likelihood, parts[1])
    svgp.q_mu.assign(trained.q_mu)
    svgp.q_sqrt.assign(trained.q_sqrt)
    return float(svgp.elbo(tuple(map(tf.constant, data))))


def bounds(given: Problem, steps: int, repeats: int) -> dict[str, float]:
    """All numbers of a data set."""
    Z = kmeans(given.X, given.num_inducing, seed=0).Z.numpy()
    prior = create(given, Z, 0.0, "prior")
    loss = tf.function(prior.training_loss)
    gpflow.optimizers.Scipy().minimize(
        loss, prior.trainable_variables, compile=False, options={"maxiter": steps}
    )
    found = prior.inducing_variable.Z.numpy()
    scaled = take_over(create(given, found, 0.0, "scaled"), prior)
    result = {
        "GPflow": gpflows_bound(given, prior),
        "prior": float(prior.pep_log_marginal_likelihood()),
        "scaled": float(scaled.pep_log_marginal_likelihood()),
    }
    if given.regression:
        num_blocks = max(1, len(given.X) // BLOCK)
        labels = KMeans(num_blocks, n_init=1, random_state=0).fit_predict(given.X)
        blocks = take_over(create(given, found, 0.0, "scaled", blocks=labels), prior)
        result["blocks"] = float(blocks.pep_log_marginal_likelihood())
        result["proved"] = result["scaled"]
    else:
        result["proved"] = float(scaled.certified_bound())
        result["rows"] = float(np.mean(scaled.certified_rows()))
    result["log p(y)"] = log_evidence(given, prior)
    gap = result["log p(y)"] - result["prior"]
    for name in ("scaled", "blocks"):
        if name in result:
            result[f"{name} closed"] = (result[name] - result["prior"]) / gap
    result["time"] = time_ratio(scaled, prior, repeats)
    return result


HEADS = ("GPflow", "prior", "scaled", "proved", "blocks", "log p(y)")
SHARES = ("scaled closed", "blocks closed", "rows")


def main(arguments: list[str] | None = None) -> None:
    """Parse arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(DATA_SETS)} (default: all)")
    parser.add_argument("--data", type=Path, default=os.environ.get("GPFLOW_PEP_DATA", "."))
    parser.add_argument("--rows", type=int, help="the first so many, of each")
    parser.add_argument("--inducing", type=int, help="inducing inputs, for each")
    parser.add_argument("--steps", type=int, default=30, help="of L-BFGS")
    parser.add_argument("--repeats", type=int, default=30, help="of each timed function")
    args = parser.parse_args(arguments)
    print(f"{'':8}{'N':>6}{'M':>5}" + "".join(f"{head:>10}" for head in HEADS), end="")
    print(f"{'closed':>8}{'blocks':>8}{'rows':>7}{'time':>7}")
    for name in args.names or DATA_SETS:
        given = problem(name, Path(args.data), args.rows, args.inducing)
        found = bounds(given, args.steps, args.repeats)
        numbers = "".join(f"{found[h]:10.2f}" if h in found else " " * 10 for h in HEADS)
        shares = "".join(
            f"{found[h]:>{width}.0%}" if h in found else " " * width
            for h, width in zip(SHARES, (8, 8, 7), strict=True)
        )
        print(
            f"{name:8}{len(given.X):6}{given.num_inducing:5}{numbers}{shares}{found['time']:7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
