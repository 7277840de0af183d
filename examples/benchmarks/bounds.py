"""Print how far a scaled conditional lifts the bounds of SGPR and SVGP, and its time.

    python -m examples bounds --data DIRECTORY       # the table of docs/scaled.rst
    python -m examples bounds poisson                # needs no data sets

Squared exponential with a lengthscale for each input, inducing inputs from k-means and standardised
rows. Hyperparameters are learnt by the bound of SGPR or SVGP (``prior``), by so many steps of
L-BFGS, and are the same for all numbers of a data set. ``log p(y)`` is exact for regression,
otherwise the estimate of EP with an inducing input at each row; ``closed`` is
(bound - prior) / (log p(y) - prior). ``proved`` is ``certified_bound()``, for regression the bound
itself. ``blocks`` are clusters of about 20 rows. ``time`` is the median processor time of
value and gradient, scaled over prior, both compiled, in turns, with converged sites.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from sklearn.cluster import KMeans

from examples.common import arguments, seconds_by_turns, value_and_gradient
from examples.data_sets import DIRECTORY, numbers
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


def counts(num_rows: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Generated: a smooth log rate of two inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (num_rows, 2))
    rate = np.exp(np.sin(2.0 * X[:, :1]) + np.cos(X[:, 1:]))
    return X, rng.poisson(rate).astype(float)


def problem(name: str, directory: Path, most: int | None, num_inducing: int | None) -> Problem:
    rows, size, likelihood = DATA_SETS[name]
    rows = most or rows
    X, Y = counts(rows) if name == "poisson" else numbers(directory, name, rows)
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


def time_ratio(one: Any, other: Any, repeats: int) -> float:
    """Median processor time of one over that of the other, without the calls that compile."""
    functions = {
        name: value_and_gradient(model.training_loss, model.trainable_variables)
        for name, model in (("one", one), ("other", other))
    }
    times = seconds_by_turns(functions, repeats + 2, time.process_time)
    return float(np.median(times["one"][2:]) / np.median(times["other"][2:]))


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


def main(given: list[str] | None = None) -> None:
    args = arguments(
        __doc__,
        names=DATA_SETS,
        data=DIRECTORY,
        rows=int,
        inducing=int,
        steps=30,
        repeats=30,
        quick={"names": ["poisson"], "rows": 100, "steps": 3, "repeats": 3},
        given=given,
    )
    print(f"{'':8}{'N':>6}{'M':>5}" + "".join(f"{head:>10}" for head in HEADS), end="")
    print(f"{'closed':>8}{'blocks':>8}{'rows':>7}{'time':>7}")
    for name in args.names:
        chosen = problem(name, args.data, args.rows, args.inducing)
        found = bounds(chosen, args.steps, args.repeats)
        numbers = "".join(f"{found[h]:10.2f}" if h in found else " " * 10 for h in HEADS)
        shares = "".join(
            f"{found[h]:>{width}.0%}" if h in found else " " * width
            for h, width in zip(SHARES, (8, 8, 7), strict=True)
        )
        print(
            f"{name:8}{len(chosen.X):6}{chosen.num_inducing:5}{numbers}{shares}{found['time']:7.2f}",
            flush=True,
        )
