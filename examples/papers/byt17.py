"""Redo the experiments of Bui, Yan & Turner (2017): which power is best.

    python -m examples byt17 --quick --data DIRECTORY --out byt17 --jobs 2
    python -m examples byt17 --full --data DIRECTORY --out byt17-full --jobs 16
    python -m examples byt17 --table docs/results/byt17.csv --out figures

``regression`` is section 4.2, ``classification`` 4.3, ``synthetic`` 4.1, ``inducing``
Figure 23, ``everywhere`` appendix I.5, ``mnist`` appendix I.4, ``baselines`` other
methods on the same splits. All start from k-means and the same kernel. A data set's
name ends with the most rows that train, where it has more: ``kin8nm:2000``.
"""

import warnings
from functools import partial
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kullback_leiblers import gauss_kl
from scipy import special

from examples.data_sets import Problem, random_split, read
from examples.papers import baselines, byt17_summary, runner
from examples.papers.runner import Cell
from examples.papers.tasks import (
    Budget,
    Fitted,
    Task,
    classification_scores,
    regression_scores,
)
from gpflow_pep.models import PEP
from gpflow_pep.training.starts import kmeans

REGRESSION = ("boston", "concrete", "wine_red", "kin8nm", "ccpp")
CLASSIFICATION = ("banana", "ionosphere", "pima", "australian", "spambase")
PAPER_ALPHAS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
FEW_ALPHAS = (0.0, 0.2, 0.5, 0.8, 1.0)
TEST_FRACTION = 0.1
#: Gives SVGP more steps: those of L-BFGS move q as well.
SVGP_TIMES = 5
#: The synthetic data of section 4.1.
ROWS = 1000
INPUTS = 5
NOISE = 0.1
#: GPflow's probit link is squeezed by so much at both ends.
SQUEEZE = 1e-3


def grid(size: str) -> list[Cell]:
    """The cells of a size; splits in rounds, so that a run that is stopped has seen
    every set.
    """
    return {"quick": _quick, "reduced": _reduced, "full": _full}[size]()


def _cells(
    experiment: str,
    data: tuple[str, ...],
    splits: range,
    sizes: tuple[int, ...],
    methods: dict[str, tuple[float | None, ...]],
    steps: int,
) -> list[Cell]:
    """Those that share a compiled model beside each other."""
    return [
        Cell(
            experiment,
            name,
            split,
            M,
            method,
            alpha,
            steps * SVGP_TIMES ** (method == "SVGP"),
        )
        for name in data
        for M in sizes
        for method, alphas in methods.items()
        for split in splits
        for alpha in alphas
    ]


def _capped(names: tuple[str, ...], rows: int) -> tuple[str, ...]:
    return tuple(f"{name}:{rows}" for name in names)


def _synthetic(
    data: str,
    splits: range,
    sizes: tuple[int, ...],
    methods: dict[str, tuple[float | None, ...]],
    steps: int,
) -> list[Cell]:
    """And exact regression, which has no inducing inputs."""
    sparse = _cells("synthetic", (data,), splits, sizes, methods, steps)
    return [
        *sparse,
        *_cells("synthetic", (data,), splits, (0,), {"full": (None,)}, steps),
    ]


def _baselines(
    regression: tuple[str, ...],
    classification: tuple[str, ...],
    splits: range,
    M: int,
    steps: int,
) -> list[Cell]:
    def methods(names: tuple[str, ...]) -> dict[str, tuple[float | None, ...]]:
        powers = {"PEP": (0.0, 0.5, 1.0), "labels": (0.0, 1.0)}
        return {name: powers.get(name, (None,)) for name in names}

    return [
        *_cells(
            "baselines", regression, splits, (M,), methods(baselines.REGRESSION), steps
        ),
        *_cells(
            "baselines",
            classification,
            splits,
            (M,),
            methods(baselines.CLASSIFICATION),
            steps,
        ),
    ]


def _quick() -> list[Cell]:
    pep = {"PEP": FEW_ALPHAS}
    both = {"PEP": (0.0, 0.5, 1.0), "SVGP": (None,)}
    steps = 60
    return [
        *_cells("regression", _capped(REGRESSION, 400), range(2), (10, 30), pep, steps),
        *_cells(
            "classification", _capped(CLASSIFICATION, 300), range(2), (10,), both, steps
        ),
        *_synthetic("gp:200", range(2), (10, 50), pep, steps),
        *_cells(
            "inducing",
            ("banana:400",),
            range(1),
            (20,),
            {"PEP": (0.0, 0.5, 1.0)},
            steps,
        ),
        *_cells("everywhere", ("ionosphere:100",), range(1), (3,), {"PEP": (1.0,)}, 0),
        *_cells("mnist", ("mnist:300",), range(1), (20,), {"PEP": (0.0, 0.5, 1.0)}, 20),
        *_baselines(("boston:200",), ("ionosphere:150",), range(1), 20, steps),
    ]


def _reduced() -> list[Cell]:
    pep = {"PEP": (0.0, 0.05, 0.2, 0.5, 0.8, 1.0)}
    both = {**pep, "SVGP": (None,)}
    steps = 150
    cells = []
    for splits in (range(2), range(2, 5), range(5, 10)):
        cells += [
            *_cells(
                "regression",
                _capped(REGRESSION, 1000),
                splits,
                (10, 30, 100),
                pep,
                steps,
            ),
            *_cells(
                "classification",
                _capped(CLASSIFICATION, 600),
                splits,
                (10, 30),
                both,
                steps,
            ),
        ]
        if splits.start == 0:
            cells += [
                *_synthetic("gp:500", range(3), (10, 50, 200), pep, steps),
                *_cells(
                    "inducing",
                    ("banana:400",),
                    range(1),
                    (40,),
                    {"PEP": FEW_ALPHAS},
                    steps,
                ),
                *_cells(
                    "everywhere",
                    ("ionosphere:315",),
                    range(1),
                    (5,),
                    {"PEP": (1.0,)},
                    0,
                ),
                *_cells(
                    "mnist",
                    ("mnist:1000",),
                    range(1),
                    (50,),
                    {"PEP": (0.0, 0.5, 1.0)},
                    40,
                ),
            ]
        if splits.start < 5:
            cells += _baselines(
                ("boston:455", "wine_red:500"), ("ionosphere:315",), splits, 30, steps
            )
    return cells


def _full() -> list[Cell]:
    pep = {"PEP": PAPER_ALPHAS}
    both = {**pep, "SVGP": (None,)}
    steps = 2000
    cells = []
    for split in range(20):
        one = range(split, split + 1)
        cells += [
            *_cells(
                "regression", REGRESSION, one, (5, 10, 20, 50, 100, 200), pep, steps
            ),
            *_cells(
                "classification", CLASSIFICATION, one, (10, 20, 50, 100), both, steps
            ),
        ]
    return [
        *cells,
        *_synthetic("gp:500", range(30), (5, 10, 20, 50, 100, 200, 500), pep, steps),
        *_cells("inducing", ("banana:400",), range(1), (50,), pep, steps),
        *_cells("everywhere", ("ionosphere:315",), range(1), (13,), {"PEP": (1.0,)}, 0),
        *_cells("mnist", ("mnist:60000",), range(3), (100, 200), pep, steps),
        *_baselines(REGRESSION, CLASSIFICATION, range(20), 50, steps),
    ]


def evaluate(directory: Path, cell: Cell) -> runner.Outcome:
    if cell.experiment == "synthetic":
        return synthetic(cell)
    problem = (
        mnist(directory, cell) if cell.experiment == "mnist" else load(directory, cell)
    )
    if cell.experiment == "everywhere":
        return everywhere(problem, cell.M)
    task = task_of(problem, cell, 0 if name_of(cell) in REGRESSION else 2)
    fitted = baselines.fit(cell.method, task, cell.alpha, Budget(cell.steps))
    return (
        places(fitted, task)
        if cell.experiment == "inducing"
        else outcome(fitted, problem, task)
    )


def name_of(cell: Cell) -> str:
    return cell.data.partition(":")[0]


def at_most(problem: Problem, cell: Cell) -> Problem:
    """As many of the rows that train as the data's name says; they are in the file's
    order.
    """
    most = int(cell.data.partition(":")[2] or len(problem.train[0]))
    rows = np.random.default_rng(cell.split).permutation(len(problem.train[0]))[:most]
    X, Y = problem.train
    return Problem((X[rows], Y[rows]), problem.test)


def load(directory: Path, cell: Cell) -> Problem:
    """A split of a data set, 90% and 10% as in the paper."""
    kind = "regression" if name_of(cell) in REGRESSION else "classification"
    with warnings.catch_warnings():  # of a constant column
        warnings.simplefilter("ignore")
        dataset = read(directory, name_of(cell), kind)
    return at_most(random_split(dataset, TEST_FRACTION, cell.split), cell)


def mnist(directory: Path, cell: Cell) -> Problem:
    """Even digits from odd ones, pixels in [0, 1]; of fewer rows to train, 2000 are
    held out.
    """
    with np.load(directory / "mnist.npz") as file:
        images = file["x_train"], file["x_test"]
        Y, Y_test = (
            (file[name] % 2 == 0)[:, None].astype(float)
            for name in ("y_train", "y_test")
        )
    X, X_test = (image.reshape(len(image), -1) / 255.0 for image in images)
    problem = at_most(Problem((X, Y), (X_test, Y_test)), cell)
    if len(problem.train[0]) < len(X):
        problem = Problem(problem.train, (X_test[:2000], Y_test[:2000]))
    return problem


def task_of(problem: Problem, cell: Cell, num_classes: int) -> Task:
    """Start from k-means, the same for all methods and powers."""
    X, Y = problem.train
    Z = kmeans(X, cell.M, seed=cell.seed).Z.numpy() if cell.M else X[:0]
    return Task(X, Y, problem.test[0], Z, num_classes, cell.seed)


def outcome(fitted: Fitted, problem: Problem, task: Task) -> dict[str, float]:
    (_, Y), (_, Ynew) = problem
    if task.num_classes:
        scores = classification_scores(fitted, Ynew)
    else:
        scores = regression_scores(fitted, Ynew, Y)
    cost = {"seconds": fitted.seconds, "iterations": fitted.iterations}
    return {"rows": len(Y), **scores, "objective": fitted.objective, **cost}


def synthetic(cell: Cell) -> dict[str, float]:
    """
    A draw from a GP, half of it held out. At the hyperparameters that training found, also how far
    the objective is above the exact evidence, and KL(exact || sparse) of f at the held-out rows.
    """
    rng = np.random.default_rng(cell.split)
    num_train = int(cell.data.partition(":")[2])
    X = rng.uniform(-1.0, 1.0, (2 * num_train, INPUTS))
    kernel = gpflow.kernels.SquaredExponential(
        lengthscales=rng.uniform(0.5, 2.0, INPUTS)
    )
    root = np.linalg.cholesky(kernel(X).numpy() + NOISE**2 * np.eye(len(X)))
    Y = root @ rng.standard_normal((len(X), 1))
    problem = Problem((X[:num_train], Y[:num_train]), (X[num_train:], Y[num_train:]))
    task = task_of(problem, cell, 0)
    fitted = baselines.fit(cell.method, task, cell.alpha, Budget(cell.steps))
    found = outcome(fitted, problem, task)
    trained = fitted.model
    if cell.method != "PEP":
        return found
    exact = gpflow.models.GPR(
        problem.train, trained.kernel, likelihood=trained.likelihood
    )
    p_mean, p_covariance = exact.predict_f(task.Xnew, full_cov=True)
    q_mean, q_covariance = trained.predict_f(task.Xnew, full_cov=True)
    # Posteriors of smooth functions at many inputs are singular to rounding.
    jitter = 1e-6 * tf.eye(len(task.Xnew), dtype=p_covariance.dtype)
    p_root = tf.linalg.cholesky(p_covariance + jitter)
    error = fitted.objective - exact.log_marginal_likelihood()
    return {
        **found,
        "objective_error": float(error),
        "kl": float(gauss_kl(p_mean - q_mean, p_root, q_covariance[0] + jitter)),
    }


def places(fitted: Fitted, task: Task) -> list[dict[str, float]]:
    """Inducing inputs of two dimensions, and the probability of a 1 there."""
    Z = fitted.model.inducing_variable.Z.numpy()
    likelihood = fitted.model.likelihood
    at_Z, _ = baselines.predict(fitted.model, likelihood, task._replace(Xnew=Z))
    return [
        {"z1": z[0], "z2": z[1], "probability": p, "objective": fitted.objective}
        for z, p in zip(Z, at_Z[:, 1])
    ]


def everywhere(problem: Problem, size: int) -> list[dict[str, float]]:
    """
    With an inducing input at each row, Power EP at 1 beside the EP of Rasmussen &
    Williams, on a grid of log lengthscales and log standard deviations of f, as in
    Figure 33.
    """
    (X, Y), test = problem
    kernel = gpflow.kernels.SquaredExponential()
    model = PEP((X, Y), kernel, gpflow.likelihoods.Bernoulli(), X.copy(), alpha=1.0)
    energy = tf.function(model.pep_log_marginal_likelihood, autograph=False)
    rows = []
    for log_lengthscale in np.linspace(0.0, 5.0, size):
        for log_deviation in np.linspace(0.0, 5.0, size):
            kernel.lengthscales.assign(np.exp(log_lengthscale))
            kernel.variance.assign(np.exp(2.0 * log_deviation))
            # The sites are at their fixed point for what follows.
            log_z = float(energy())
            value = {
                "objective": log_z,
                "nlpd": -float(np.mean(model.predict_log_density(test))),
            }
            standard = standard_ep(
                kernel(X).numpy(), np.where(Y[:, 0] > 0.5, 1.0, -1.0)
            )
            place = {"log_lengthscale": log_lengthscale, "log_deviation": log_deviation}
            rows.append({**place, **value, "standard": standard})
    return rows


def standard_ep(
    K: AnyNDArray, y: AnyNDArray, passes: int = 1000, tolerance: float = 1e-9
) -> float:
    """
    log Z of expectation propagation with a site for each value of f (Rasmussen &
    Williams 2006, section 3.6), of all sites at once and damped; y = ±1. GPflow's
    squeezed probit link is not log-concave, so that a site's precision may be negative:
    no square roots of them, and shorter steps where a cavity is improper. NaN where
    that does not converge.
    """
    old = new = np.zeros((2, len(K)))
    step = 0.7
    for _ in range(passes):
        nu, tau = trial = old + step * (new - old)
        B = np.eye(len(K)) + K * tau
        covariance = np.linalg.solve(B, K)
        s = np.diag(covariance)
        cavity_tau = 1.0 / s - tau
        cavity_nu = (covariance @ nu) / s - nu
        if np.min(s) <= 0.0 or np.min(cavity_tau) <= 0.0:
            step *= 0.5
            continue
        v = 1.0 / cavity_tau
        m = cavity_nu / cavity_tau
        z = y * m / np.sqrt(1.0 + v)
        Z = SQUEEZE + (1.0 - 2.0 * SQUEEZE) * special.ndtr(z)
        slope = (1.0 - 2.0 * SQUEEZE) * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi) / Z
        first = y * slope / np.sqrt(1.0 + v)
        second = -slope * (z + slope) / (1.0 + v)
        new_tau = -second / (1.0 + second * v)
        new = np.stack([new_tau * m + first * (1.0 + new_tau * v), new_tau])
        old = trial
        step = min(0.7, 1.5 * step)
        if np.sum(np.max(np.abs(new - old), axis=1)) < tolerance:
            break
    else:
        return np.nan
    log_B = -0.5 * np.linalg.slogdet(B)[1]
    # Each site's normaliser and the quadratic forms, reduced to cavities (their (3.65),
    # (3.73)).
    own = 0.5 * (
        np.log1p(tau * v) + (m**2 * tau - 2.0 * nu * m - nu**2 * v) / (1.0 + tau * v)
    )
    return float(np.sum(np.log(Z)) + log_B + 0.5 * nu @ covariance @ nu + np.sum(own))


def evaluate_in(directory: Path) -> runner.Evaluate:
    """For the data sets of a directory."""
    return partial(evaluate, directory)


def main() -> None:
    runner.command(__doc__, grid, evaluate_in, byt17_summary.summarise)
