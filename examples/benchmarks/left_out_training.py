"""Print whether PEP predicts better if it is trained by log Z plus leave-one-out log
densities.

    python -m examples left_out_training --alphas 0.5 --data DIRECTORY
    python -m examples left_out_training generated          # needs no data sets

A random split of the rows, a squared exponential with a lengthscale for each input, all
parameters trained. First by log Z alone; from there by log Z plus the sum of
leave-one-out log densities. The numbers are of held-out rows: the mean negative log
density after the first training, and the change of it by the second, with its standard
error over rows; below 0 is better.
"""

from pathlib import Path

import gpflow
import numpy as np
from gpflow.base import AnyNDArray

from examples.common import arguments, squared_exponential
from examples.data_sets import DIRECTORY, Problem, numbers
from gpflow_pep.models import PEP
from gpflow_pep.training import maximise
from gpflow_pep.training.starts import kmeans

#: Rows held out, at most.
MOST_TEST = 1000
DATA_SETS = {
    "generated": "Poisson",
    "abalone": "Poisson",
    "banana": "Bernoulli",
    "pima": "Bernoulli",
    "australian": "Bernoulli",
    "boston": "StudentT",
    "concrete": "StudentT",
    "wine_red": "StudentT",
}


def likelihood_of(name: str) -> gpflow.likelihoods.Likelihood:
    kinds = {
        "Poisson": gpflow.likelihoods.Poisson,
        "Bernoulli": gpflow.likelihoods.Bernoulli,
    }
    kind = DATA_SETS[name]
    return kinds[kind]() if kind in kinds else gpflow.likelihoods.StudentT(0.5, df=4.0)


def split(name: str, directory: Path, num_rows: int, seed: int) -> Problem:
    """Rows of training and others, standardised; counts and labels stay as they are."""
    rng = np.random.default_rng(seed)
    if name == "generated":
        X = rng.uniform(-3.0, 3.0, (num_rows + MOST_TEST, 2))
        Y = rng.poisson(np.exp(np.sin(2.0 * X[:, :1]) + np.cos(X[:, 1:]))).astype(float)
    else:
        X, Y = numbers(directory, name)
    order = rng.permutation(len(X))
    train, test = order[:num_rows], order[num_rows : num_rows + MOST_TEST]
    scale = X[train].std(axis=0)
    X = (X - X[train].mean(axis=0)) / np.where(scale > 0.0, scale, 1.0)
    if DATA_SETS[name] == "StudentT":
        Y = (Y - Y[train].mean()) / Y[train].std()
    elif DATA_SETS[name] == "Bernoulli":
        Y = np.greater(Y, Y.mean()).astype(float)
    return Problem((X[train], Y[train]), (X[test], Y[test]))


def densities(model: PEP, rows: tuple[AnyNDArray, AnyNDArray]) -> AnyNDArray:
    return np.asarray(model.predict_log_density(rows))


def compare(
    name: str, problem: Problem, alpha: float, num_inducing: int, steps: int
) -> tuple[float, float, float]:
    """Negative log density by log Z; what both change, and the standard error of that."""
    X, Y = problem.train
    Z = kmeans(X, num_inducing, seed=0).Z.numpy()
    model = PEP(
        (X, Y), squared_exponential(X.shape[1]), likelihood_of(name), Z, alpha=alpha
    )
    maximise(model, max_iterations=100, progress=False)
    before = -densities(model, problem.test)
    maximise(model, objective="evidence+loo", max_iterations=steps, progress=False)
    change = -densities(model, problem.test) - before
    return (
        float(np.mean(before)),
        float(np.mean(change)),
        float(np.std(change) / len(change) ** 0.5),
    )


def main(given: list[str] | None = None) -> None:
    args = arguments(
        __doc__,
        names=DATA_SETS,
        data=DIRECTORY,
        alphas=[0.0, 0.5, 1.0],
        rows=300,
        inducing=15,
        steps=25,
        quick={"names": ["generated"], "rows": 40, "inducing": 4, "steps": 2},
        given=given,
    )
    print(f"{'':12}{'':10}" + "".join(f"{f'alpha {a:g}':>26}" for a in args.alphas))
    for name in args.names:
        problem = split(name, args.data, args.rows, seed=0)
        print(f"{name:12}{DATA_SETS[name]:10}", end="", flush=True)
        for alpha in args.alphas:
            before, change, error = compare(
                name, problem, alpha, args.inducing, args.steps
            )
            print(f"{before:9.3f}{change:+9.3f} ({error:.3f})", end="", flush=True)
        print()
