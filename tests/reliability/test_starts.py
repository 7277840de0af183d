"""3 Random starts: L-BFGS ends without an exception or NaN, and how often at the best
optimum.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf
from campaign import Size, Trial
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, Poisson
from sklearn import datasets
from sklearn.preprocessing import scale

import gpflow_pep as pep

N = 60
M = 6
#: Nats from the best known value that count as reaching it.
NEAR = 0.1
#: Standard deviation of starts, in log hyperparameters.
SPREAD = 2.0


class Problem(NamedTuple):
    """Rows, and the likelihood that they are modelled with."""

    X: Any
    Y: Any
    likelihood: Callable[[], Any]

    @property
    def Z(self) -> Any:
        return np.asarray(pep.training.starts.kmeans(self.X, M, seed=0).Z)


def _of_sklearn(X: Any, y: Any, likelihood: Callable[[], Any]) -> Problem:
    rows = np.random.default_rng(0).permutation(len(X))[:N]
    Y = y[rows, None].astype(float)
    return Problem(
        scale(X[rows]), scale(Y) if likelihood is Gaussian else Y, likelihood
    )


def _drawn(
    seed: int, half: float, likelihood: Any, draw: Callable[[Any, Any], Any]
) -> Problem:
    random = np.random.default_rng(seed)
    X = np.sort(random.uniform(-half, half, (N, 1)), axis=0)
    Y = draw(X, random)
    return Problem(X, scale(Y) if likelihood is Gaussian else Y, likelihood)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "sine": lambda: _drawn(
        0, 3.0, Gaussian, lambda X, r: r.normal(np.sin(3.0 * X), 0.3)
    ),
    "step": lambda: _drawn(1, 2.0, Gaussian, lambda X, r: r.normal(np.sign(X), 0.1)),
    "diabetes": lambda: _of_sklearn(*datasets.load_diabetes(return_X_y=True), Gaussian),
    "moons": lambda: _of_sklearn(
        *datasets.make_moons(N, noise=0.25, random_state=0), Bernoulli
    ),
    "breast cancer": lambda: _of_sklearn(
        *datasets.load_breast_cancer(return_X_y=True), Bernoulli
    ),
    "counts": lambda: _drawn(
        2, 2.0, Poisson, lambda X, r: 1.0 * r.poisson(np.exp(1.0 + np.sin(2.0 * X)))
    ),
}


def start(problem: Problem, seed: int) -> Callable[[Any], None]:
    """The same hyperparameters for any model."""
    random = np.random.default_rng(seed)
    variance, lengthscale, noise = np.exp(SPREAD * random.standard_normal(3))

    def assign(model: Any) -> None:
        model.kernel.variance.assign(variance)
        model.kernel.lengthscales.assign(lengthscale)
        if isinstance(model.likelihood, Gaussian):
            model.likelihood.variance.assign(max(0.1 * noise, 1e-4))

    return assign


def ours(problem: Problem, alpha: float, moves: list[Any]) -> list[float]:
    """Objectives where ``maximise`` ended, of each start."""
    parts = ((problem.X, problem.Y), SquaredExponential())
    likelihood = problem.likelihood()
    if isinstance(likelihood, Gaussian):
        options = {"likelihood": likelihood, "alpha": alpha}
        model = pep.models.PEPRegression(*parts, problem.Z, **options)
    else:
        model = pep.models.PEP(*parts, likelihood, problem.Z, alpha=alpha)
    # About SciPy's own for theirs: some starts are on plateaus, where steps gain next
    # to nothing.
    gpflow.set_trainable(model.inducing_variable, False)
    record = pep.training.maximise(model, starts=moves, progress=False, tolerance=1e-9)
    return [ascent.objective for ascent in record.starts[1:]]


def theirs(problem: Problem, moves: list[Any]) -> tuple[list[float], int]:
    """The same of GPflow's SGPR or SVGP by SciPy, and how many ended by an error or
    NaN.
    """
    rows = (problem.X, problem.Y)
    kernel = SquaredExponential()
    likelihood = problem.likelihood()
    model: Any = None
    if isinstance(likelihood, Gaussian):
        model = gpflow.models.SGPR(rows, kernel, problem.Z, likelihood=likelihood)
        loss = model.training_loss
    else:
        model = gpflow.models.SVGP(kernel, likelihood, problem.Z, num_data=N)
        loss = model.training_loss_closure(tuple(map(tf.constant, rows)), compile=False)
    gpflow.set_trainable(model.inducing_variable, False)
    variables = model.trainable_variables
    before = [variable.numpy() for variable in variables]
    optimizer = gpflow.optimizers.Scipy()
    ends = []
    evaluate = optimizer.eval_func(loss, variables, {"autograph": False})
    options = {"method": "L-BFGS-B", "options": {"maxiter": 1000, "maxcor": 50}}
    for move in moves:
        for variable, value in zip(variables, before):
            variable.assign(value)
        move(model)
        try:
            begin = optimizer.initial_parameters(variables)
            ends.append(
                -float(
                    scipy.optimize.minimize(evaluate, begin, jac=True, **options).fun
                )
            )
        except Exception:
            ends.append(-np.inf)
    return ends, sum(not np.isfinite(end) for end in ends)


def _share(ends: list[float], best: float) -> str:
    return f"{100.0 * np.mean(np.array(ends) > best - NEAR):.0f}%"


@pytest.mark.parametrize("name", PROBLEMS)
def test_models(trial: Trial, size: Size, name: str) -> None:
    """PEPRegression and PEP by maximise from random starts"""
    problem = PROBLEMS[name]()
    moves = [start(problem, seed) for seed in range(size(quick=4, full=200))]
    others, failures = theirs(problem, moves)
    found = {alpha: ours(problem, alpha, moves) for alpha in (0.0, 0.5)}
    best = max(filter(np.isfinite, [*others, *found[0.0]]))
    other = "SGPR" if problem.likelihood is Gaussian else "SVGP"
    said = [f"{other} {_share(others, best)} ({failures} failed)"]
    for alpha, ends in found.items():
        said.append(f"alpha {alpha:g} {_share(ends, max(ends) if alpha else best)}")
        for number, end in enumerate(ends):
            with trial.case(f"{name}, alpha {alpha:g}, start {number}"):
                assert np.isfinite(end), f"it ended at {end}"
    trial.note(f"{name}: at the best known optimum, {', '.join(said)}")


@pytest.mark.parametrize("name", PROBLEMS)
def test_estimators(trial: Trial, size: Size, name: str) -> None:
    """Estimators from random kernels and inducing points"""
    problem = PROBLEMS[name]()
    scores = []
    of_classes = problem.likelihood is Bernoulli
    kind = pep.estimators.PEPClassifier if of_classes else pep.estimators.PEPRegressor
    options = {"likelihood": "poisson"} if problem.likelihood is Poisson else {}
    for seed in range(size(quick=1, full=20, long=200)):
        random = np.random.default_rng(seed)
        variance, lengthscale = np.exp(SPREAD * random.standard_normal(2))
        kernel = SquaredExponential(variance=variance, lengthscales=lengthscale)
        with trial.case(f"{name}, start {seed}"):
            model = kind(kernel, num_inducing=M, random_state=seed, **options)
            model.fit(problem.X, problem.Y[:, 0])
            scores.append(model.log_score(problem.X, problem.Y[:, 0]))
            assert np.isfinite(scores[-1]), f"log score {scores[-1]}"
    if scores:
        trial.note(
            f"{name}: log scores of training rows {min(scores):.2f} to"
            f" {max(scores):.2f}"
        )
