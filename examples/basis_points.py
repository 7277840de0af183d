"""Redo Figures 4 and 5 of Qi, Abdel-Gawad & Minka (2010): basis points on Spambase and
Ionosphere.

    python -m examples basis_points --data DIRECTORY                   # many minutes
    python -m examples basis_points --data DIRECTORY ionosphere --splits 3 --lengthscale 1.5

Expectation propagation (Power EP at alpha = 1) with M basis points: k-means clusters' centres as
points, with spherical and with full covariances of the clusters; rows that the informative vector
machine chooses (``IVM rows``); and those rows as the only data (``IVM alone``, the paper's). Beside
them full expectation propagation, a basis point at each training row. Error rate on held-out rows,
and the sum over them of KL(full prediction || sparse prediction).

60% of the rows train, which of Spambase are the paper's 2761. Inputs are standardised.
The paper says neither its hyperparameters nor how it found them: here a squared
exponential kernel with one lengthscale, the probit likelihood, and the maximum of full
expectation propagation's evidence on at most 500 training rows of the first split, the
same for all methods and splits; ``--lengthscale`` then puts another lengthscale in.

DIRECTORY holds ``spambase.csv.gz`` and ``ionosphere.csv.gz``; without ``--data`` the
environment variable GPFLOW_PEP_DATA names it. Draws a figure where matplotlib is
installed.
"""

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

import gpflow_pep as pep
from examples.common import arguments, save_figure
from examples.data_sets import DIRECTORY, Data, Problem, random_split, read, rows_of
from examples.ivm import ivm
from examples.saspa import BLURS, average, full_ep, quality, train_kernel
from gpflow_pep.training.starts import saspa

SIZES = {"ionosphere": (5, 10, 20, 40, 80), "spambase": (10, 25, 50, 100)}
SPLITS = {"ionosphere": 6, "spambase": 3}
METHODS = (*BLURS, "IVM rows", "IVM alone")
TEST_FRACTION = 1839.5 / 4601  # rounded up: 1840 rows of Spambase
MOST_TRAINING_ROWS = 500
Result = tuple[AnyNDArray, AnyNDArray]


def shared_kernel(data: Data, likelihood: Any) -> gpflow.kernels.Kernel:
    """Hyperparameters for all methods and splits."""
    X, Y = data
    rows = np.random.default_rng(0).permutation(len(X))[:MOST_TRAINING_ROWS]
    return train_kernel((X[rows], Y[rows]), likelihood, lengthscale=np.sqrt(X.shape[1]))


def models(
    data: Data, kernel: gpflow.kernels.Kernel, likelihood: Any, M: int, seed: int
) -> Any:
    """One model after another, in the order of METHODS."""
    for blur in BLURS.values():
        yield saspa(data, kernel, likelihood, M, seed=seed, covariances=blur)
    chosen = ivm(data, M, kernel=kernel, likelihood=likelihood, seed=seed)
    yield pep.models.PEP(data, kernel, likelihood, chosen, alpha=1.0)
    yield full_ep(rows_of(data, chosen.Z.numpy()), kernel, likelihood)


def compare(
    problem: Problem,
    kernel: gpflow.kernels.Kernel,
    likelihood: Any,
    sizes: Any,
    seed: int,
) -> AnyNDArray:
    """Error and divergence, [1 + methods, sizes, 2], for one split; full EP first."""
    Xnew, Ynew = problem.test

    def probability(model: Any) -> AnyNDArray:
        p: AnyNDArray = model.predict_y(Xnew)[0].numpy()
        if not model.last_inference.converged:
            print(
                f"split {seed}, M = {int(model.inducing_variable.num_inducing)}: not"
                " converged"
            )
        return p

    full = probability(full_ep(problem.train, kernel, likelihood))
    results = [
        [
            quality(probability(m), full, Ynew)
            for m in models(problem.train, kernel, likelihood, M, seed)
        ]
        for M in sizes
    ]
    reference = np.broadcast_to(quality(full, full, Ynew), [1, len(sizes), 2])
    return np.concatenate([reference, np.swapaxes(results, 0, 1)])


def experiment(
    directory: Path, name: str, num_splits: int, lengthscale: float | None = None
) -> Result:
    """Means over splits, and standard errors, of what ``compare`` returns."""
    dataset = read(directory, name)
    likelihood = gpflow.likelihoods.Bernoulli()
    sizes = SIZES[name]
    start = time.perf_counter()

    def split(seed: int) -> Problem:
        return random_split(dataset, TEST_FRACTION, seed)

    problem = split(0)
    kernel = shared_kernel(problem.train, likelihood)
    if lengthscale is not None:
        kernel.lengthscales.assign(lengthscale)
    result = average(
        lambda seed: compare(split(seed), kernel, likelihood, sizes, seed), num_splits
    )
    num_rows, num_inputs = problem.train[0].shape
    print(
        f"{name}: {num_rows} rows train, {len(problem.test[0])} test, D = {num_inputs},"
        f" {num_splits} splits, {time.perf_counter() - start:.0f} s; kernel variance"
        f" {kernel.variance.numpy():.2f}, lengthscale {kernel.lengthscales.numpy():.2f}"
    )
    return result


def table(result: Result, sizes: Any) -> None:
    """Both measures, a column for each number of basis points."""
    for k, (title, digits) in enumerate([("test error", 4), ("KL from full EP", 2)]):
        print(f"{title:>16}" + "".join(f"{f'M = {M}':>18}" for M in sizes))
        for method, mean, error in zip(("full EP", *METHODS), *result):
            cells = (
                f"{m:.{digits}f} ± {e:.{digits}f}"
                for m, e in zip(mean[:, k], error[:, k])
            )
            print(f"{method:>16}" + "".join(f"{cell:>18}" for cell in cells))
    print(flush=True)


def draw(path: Path, results: dict[str, Result]) -> None:
    """Both measures against M, one row of panels for each data set."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2 * len(results)), layout="constrained")
    panels = figure.subplots(len(results), 2, squeeze=False)
    for (name, (mean, error)), row in zip(results.items(), panels):
        for k, axes in enumerate(row):
            if k == 0:
                axes.axhline(mean[0, 0, k], color="k", linestyle=":", label="full EP")
            for m, method in enumerate(METHODS, start=1):
                axes.errorbar(
                    SIZES[name],
                    mean[m, :, k],
                    error[m, :, k],
                    label=method,
                    marker=".",
                    capsize=2,
                )
            axes.set(
                title=name, xlabel="M", ylabel=("test error", "KL from full EP")[k]
            )
            axes.set_xscale("log")
            axes.set_xticks(SIZES[name], [str(M) for M in SIZES[name]], minor=False)
            axes.minorticks_off()
    panels[0, 0].legend(fontsize="small")
    save_figure(figure, path, "basis_points", dpi=90)


def main() -> None:
    args = arguments(
        __doc__,
        names=SIZES,
        data=DIRECTORY,
        splits=int,
        lengthscale=float,
        out=Path("basis_points.png"),
        quick={"names": ["ionosphere"], "splits": 2},
    )
    # Every choice of points has a kernel of its own to compile.
    tf.get_logger().setLevel("ERROR")
    results = {}
    for name in args.names:
        num_splits = args.splits or SPLITS[name]
        results[name] = experiment(args.data, name, num_splits, args.lengthscale)
        table(results[name], SIZES[name])
    if find_spec("matplotlib"):
        draw(args.out, results)
