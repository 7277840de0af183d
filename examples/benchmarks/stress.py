"""Print how often the inner loop of PEP converges where that is hard.

    python -m examples stress --data DIRECTORY               # minutes
    python -m examples stress --data DIRECTORY probit Poisson
    python -m examples stress --data DIRECTORY probit --search 20
    python -m examples stress --data DIRECTORY "Student's t" --follow

Cells: kernel variance 0.1 to 1e4, lengthscale 0.05 to 5, and inducing inputs: 20, 100,
as many as rows at the rows, and 20 of which half nearly repeat the others; from no
sites, tolerance 1e-6, 200 sweeps before a fallback. Classes and counts (round(exp(1 +
sin(2 x1) + y))) are on 400 rows of the banana data, Student's t likelihood on a sine
with outliers, RobustMax and softmax on three generated classes. ``--search`` starts the
cells that did not converge again, from random sites, and prints from how many of them a
proper fixed point was found. ``--follow`` looks for one in another way: from power 0,
where all of these converge, Newton's method follows the fixed point to the power of the
cell, or as far as there is one; printed is also the largest real part of an eigenvalue
of the update there. Above 1, no step is short enough for the update to be drawn to that
point.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import scipy.optimize
import tensorflow as tf

from examples.common import arguments
from examples.data_sets import DIRECTORY, numbers
from gpflow_pep.engine.sites.posterior import Sites
from gpflow_pep.engine.sites.record import FALLBACKS
from gpflow_pep.engine.sites.sweep import row_prior, sweep
from gpflow_pep.models import PEP

VARIANCES = (0.1, 1.0, 10.0, 100.0, 1e4)
LENGTHSCALES = (0.05, 0.3, 1.0, 5.0)
ALPHAS = (0.0, 0.5, 1.0)


class Problem(NamedTuple):
    """Data and likelihood."""

    X: np.ndarray
    Y: np.ndarray
    likelihood: Any


class Cell(NamedTuple):
    """What became of one run."""

    converged: bool
    sweeps: int
    refused: int
    fallback: str
    finite: bool
    note: str
    """What the record says where it did not converge, and what a search for a fixed
    point found.
    """


def classes(directory: Path, likelihood: Any) -> Problem:
    """The banana data."""
    return Problem(*numbers(directory, "banana_train400"), likelihood)


def counts(directory: Path) -> Problem:
    """Counts on the inputs of the banana data."""
    X, labels = numbers(directory, "banana_train400")
    Y = np.round(np.exp(1.0 + np.sin(2.0 * X[:, :1]) + labels))
    return Problem(X, Y, gpflow.likelihoods.Poisson())


def outliers(directory: Path) -> Problem:
    """A sine, 15% of whose targets are off by about 5."""
    rng = np.random.default_rng(0)
    X = np.linspace(-3.0, 3.0, 100)[:, None]
    Y = np.sin(2.0 * X) + 0.1 * rng.standard_normal(X.shape)
    off = rng.random(len(X)) < 0.15
    Y[off] += 5.0 * rng.standard_normal((off.sum(), 1))
    return Problem(X, Y, gpflow.likelihoods.StudentT(scale=0.1, df=3.0))


def three_classes(likelihood: Any) -> Problem:
    """Three classes in the plane, easily told apart."""
    X = np.random.default_rng(0).standard_normal((150, 2))
    Y = (X[:, :1] > 0.0) + (X[:, 1:] > 0.0).astype(float)
    return Problem(X, Y, likelihood)


PROBLEMS: dict[str, Callable[[Path], Problem]] = {
    "probit": lambda directory: classes(directory, gpflow.likelihoods.Bernoulli()),
    "logit": lambda directory: classes(
        directory, gpflow.likelihoods.Bernoulli(tf.sigmoid)
    ),
    "Poisson": counts,
    "Student's t": outliers,
    "RobustMax": lambda directory: three_classes(gpflow.likelihoods.MultiClass(3)),
    "Softmax": lambda directory: three_classes(gpflow.likelihoods.Softmax(3)),
}


def inducing_inputs(X: np.ndarray) -> dict[str, np.ndarray]:
    """By name; in random order, so that few are spread like many."""
    rng = np.random.default_rng(1)
    order = X[rng.permutation(len(X))]
    near = order[:10] + 1e-5 * rng.standard_normal((10, X.shape[1]))
    return {
        "20": order[:20],
        "100": order[:100],
        "at the rows": X.copy(),
        "near-duplicate": np.concatenate([order[:10], near]),
    }


Search = Callable[[PEP, Callable[[], tf.Tensor]], str]


def random_starts(model: PEP, evaluate: Callable[[], tf.Tensor], number: int) -> str:
    """From how many random sites the inner loop converges; their scale is that of the
    prior.
    """
    variance = float(model.kernel.variance.numpy())
    nu = model.sites.nu
    tau = model.sites.tau
    size = nu.numpy().shape
    found = 0
    for seed in range(number):
        rng = np.random.default_rng(seed)
        precision = rng.lognormal(0.0, 3.0, size) / variance
        tau.assign(precision)
        nu.assign(precision * np.sqrt(variance) * rng.standard_normal(size))
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            evaluate()
            found += bool(model.last_inference.converged)
    return f"; from {found} of {number} random starts"


def follow(model: PEP, evaluate: Callable[[], tf.Tensor]) -> str:
    """How far Newton's method follows the fixed point from power 0, and the update
    there.
    """
    goal = float(model.alpha.numpy())
    model.alpha.assign(0.0)
    model.update_sites(fresh=True)
    problem = model.site_problem()
    start = tf.stack(model.read_sites())
    s = model.posterior().predict_f(problem.rows.X)[1].numpy()
    units = np.stack([np.sqrt(1.0 / s), 1.0 / s]).ravel()

    @tf.function(autograph=False)
    def evaluated(x: tf.Tensor, alpha: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        sites = Sites(*tf.unstack(tf.reshape(x, [2, -1, 1])))
        other = problem._replace(rows=problem.rows._replace(alpha=alpha))
        found = sweep(other, row_prior(problem, sites), sites)
        return tf.reshape(tf.stack(found.target), [-1]) - x, found.proper

    def residual(x: np.ndarray, alpha: float) -> np.ndarray:
        change, proper = evaluated(
            tf.constant(x * units), tf.constant([alpha], tf.float64)
        )
        return change.numpy() / units if proper else np.full_like(x, 1e3)

    x = start.numpy().ravel() / units
    reached = 0.0
    for alpha in goal * np.linspace(0.0, 1.0, 21)[1:]:
        solved = scipy.optimize.root(residual, x, (alpha,), options={"xtol": 1e-10})
        if np.max(np.abs(residual(solved.x, alpha))) > 1e-8:
            break
        x = solved.x
        reached = alpha
    jacobian = scipy.optimize.approx_fprime(x, residual, 1e-6, reached)
    largest = 1.0 + np.max(np.linalg.eigvals(jacobian).real)
    model.alpha.assign(goal)
    return f"; followed to alpha {reached:.3g}, eigenvalue {largest:.2f}"


def cells(
    problem: Problem, Z: np.ndarray, search: Search
) -> dict[tuple[float, float, float], Cell]:
    """Of all kernels and powers for these inducing inputs: one compilation."""
    kernel = gpflow.kernels.SquaredExponential()
    model = PEP((problem.X, problem.Y), kernel, problem.likelihood, Z)
    evaluate = tf.function(model.pep_log_marginal_likelihood, autograph=False)
    results = {}
    for alpha in ALPHAS:
        model.alpha.assign(alpha)
        for variance in VARIANCES:
            kernel.variance.assign(variance)
            for lengthscale in LENGTHSCALES:
                kernel.lengthscales.assign(lengthscale)
                for part in (model.sites.nu, model.sites.tau):
                    part.assign(tf.zeros_like(part))
                try:
                    finite = bool(np.isfinite(evaluate().numpy()))
                except tf.errors.InvalidArgumentError:  # its message says what to do
                    finite = False
                sweeps, _, converged, refused, fallback = model.last_inference
                note = ""
                if not converged:
                    known = model.last_inference.no_fixed_point_found
                    note = ("; no fixed point found" if known else "") + search(
                        model, evaluate
                    )
                results[alpha, variance, lengthscale] = Cell(
                    bool(converged),
                    int(sweeps),
                    int(refused),
                    str(fallback),
                    finite,
                    note,
                )
    return results


def report(name: str, problem: Problem, only: str | None, search: Search) -> None:
    """A line for each power, and the cells that did not converge."""
    start = time.perf_counter()
    results = {
        (label, *key): cell
        for label, Z in inducing_inputs(problem.X).items()
        if only in (None, label)
        for key, cell in cells(problem, Z, search).items()
    }
    for alpha in ALPHAS:
        part = {key: cell for key, cell in results.items() if key[1] == alpha}
        good = [cell for cell in part.values() if cell.converged]
        sweeps = [cell.sweeps for cell in good] or [0]
        fallbacks = {
            fallback: sum(cell.fallback == fallback for cell in part.values())
            for fallback in FALLBACKS[1:]
        }
        print(
            f"{name:12}{alpha:7g}{len(good):10d}{len(part):6d}{np.median(sweeps):9.0f}"
            f"{np.quantile(sweeps, 0.95):7.0f}{sum(cell.refused for cell in part.values()):9d}"
            f"{fallbacks['continuation']:14d}{fallbacks['clipped']:9d}"
            f"{sum(not cell.finite for cell in part.values()):11d}",
            flush=True,
        )
    failures = [(key, cell) for key, cell in results.items() if not cell.converged]
    for (label, alpha, variance, lengthscale), cell in failures:
        print(
            f"    not: {label}, alpha {alpha:g}, variance {variance:g}, scale"
            f" {lengthscale:g}" + cell.note
        )
    print(f"    {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    args = arguments(
        __doc__,
        names=PROBLEMS,
        data=DIRECTORY,
        inducing=str,
        search=0,
        follow=False,
        quick={"names": ["RobustMax"], "inducing": "20"},
    )

    def search(model: PEP, evaluate: Callable[[], tf.Tensor]) -> str:
        by_chance = random_starts(model, evaluate, args.search) if args.search else ""
        return by_chance + (follow(model, evaluate) if args.follow else "")

    heads = (
        "converged",
        "of",
        "median",
        "95%",
        "refused",
        *FALLBACKS[1:],
        "not finite",
    )
    widths = (10, 6, 9, 7, 9, 14, 9, 11)
    print(
        f"{'likelihood':12}{'alpha':>7}"
        + "".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))
    )
    for name in args.names:
        report(name, PROBLEMS[name](args.data), args.inducing, search)
