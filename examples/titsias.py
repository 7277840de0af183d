"""Redo Figures 2 and 3 of Titsias (2009) for Power EP: Boston housing and Kin40k.

    python -m examples titsias boston --data DIRECTORY [--splits 5] [--out FIGURE.png]
    python -m examples titsias kin40k --data DIRECTORY [--iterations 60]

Boston housing, 455 rows train and 51 test, in several random splits. First with hyperparameters
fixed at the maximum of exact regression's evidence: KL(p || q) between the exact posterior of the
test rows' function values, jointly, and the sparse one, for inducing inputs chosen by each rule of
``gpflow_pep.training.starts``, and for random ones that the objective of each power then trains
(``trained``). ``subset`` is exact regression on the random rows alone. Then with everything
optimised from the same start, random rows: SMSE, SMLL (the paper's SNLP) and the objective beside
exact regression's log marginal likelihood.

Kin40k, 10 000 rows train and 30 000 test: SMSE, SMLL and seconds with everything
optimised by so many iterations of L-BFGS from random rows.

The kernel is a squared exponential with a lengthscale for each input. DIRECTORY holds
``boston.csv.gz`` and ``kin40k.csv.gz``; without ``--data`` the environment variable
GPFLOW_PEP_DATA names it. Draws a figure of the first table where matplotlib is
installed.
"""

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kullback_leiblers import gauss_kl

from examples.common import arguments, save_figure, squared_exponential
from examples.data_sets import (
    DIRECTORY,
    Data,
    Problem,
    random_split,
    read,
    rows_of,
    standardised,
)
from examples.saspa import ALPHAS, average
from gpflow_pep.metrics import smll, smse
from gpflow_pep.models import PEPRegression
from gpflow_pep.training import starts

TEST_FRACTION = 50.5 / 506  # rounded up: 51 rows of Boston housing
FIXED_SIZES = (10, 25, 50, 100, 200)
TRAINED_SIZES = (20, 50, 100)
KIN40K_SIZES = (32, 128, 512)
#: Iterations of L-BFGS on Boston housing, where it does not converge before.
ITERATIONS = 300
RULES = ("random", "kmeans", "greedy_variance", "greedy_variational")
Optimizer = Callable[[Any], Any]
Sizes = tuple[int, ...]


def lbfgs(iterations: int) -> Optimizer:
    """Training of a model, which compiles once for each."""
    optimizer = gpflow.optimizers.Scipy()

    def train(model: Any) -> None:
        optimizer.minimize(
            model.training_loss,
            model.trainable_variables,
            options={"maxiter": iterations},
        )

    return train


def exact_regression(data: Data, optimize: Optimizer) -> gpflow.models.GPR:
    """Exact regression at the maximum of its evidence."""
    model = gpflow.models.GPR(
        data, squared_exponential(data[0].shape[1]), noise_variance=0.1
    )
    optimize(model)
    return model


def divergence(exact: Any, model: Any, Xnew: AnyNDArray) -> float:
    """KL(p || q) between joint posteriors of f at new inputs, p the exact one."""
    p_mean, p_covariance = exact.predict_f(Xnew, full_cov=True)
    q_mean, q_covariance = model.predict_f(Xnew, full_cov=True)
    return float(
        gauss_kl(p_mean - q_mean, tf.linalg.cholesky(p_covariance), q_covariance[0])
    )


def choose(
    rule: str, data: Data, M: int, exact: gpflow.models.GPR, seed: int
) -> AnyNDArray:
    """Inducing inputs by a rule, for the exact model's hyperparameters."""
    if rule == "random":
        chosen = starts.random_subset(data[0], M, seed=seed)
    elif rule == "kmeans":
        chosen = starts.kmeans(data[0], M, seed=seed)
    elif rule == "greedy_variance":
        chosen = starts.greedy_variance(data[0], M, kernel=exact.kernel)
    else:
        noise = float(exact.likelihood.variance.numpy())
        chosen = starts.greedy_variational(
            data, M, kernel=exact.kernel, noise_variance=noise, seed=seed
        )
    return chosen.Z.numpy()


def fixed_hyperparameters(
    problem: Problem,
    exact: gpflow.models.GPR,
    sizes: Sizes,
    seed: int,
    optimize: Optimizer,
) -> AnyNDArray:
    """Divergences, [rows of the table, sizes]: each rule at each power, trained, and
    the subset.
    """
    data, (Xnew, _) = problem
    gpflow.set_trainable((exact.kernel, exact.likelihood), False)
    columns = []
    for M in sizes:
        column = []
        for rule in RULES:
            Z = choose(rule, data, M, exact, seed)
            model = PEPRegression(data, exact.kernel, Z, likelihood=exact.likelihood)
            for alpha in ALPHAS:
                model.alpha.assign(alpha)
                column.append(divergence(exact, model, Xnew))
        Z = choose("random", data, M, exact, seed)
        model = PEPRegression(data, exact.kernel, Z, likelihood=exact.likelihood)
        for alpha in ALPHAS:
            model.inducing_variable.Z.assign(Z)
            model.alpha.assign(alpha)
            optimize(model)
            column.append(divergence(exact, model, Xnew))
        subset = gpflow.models.GPR(
            rows_of(data, Z), exact.kernel, likelihood=exact.likelihood
        )
        columns.append([*column, divergence(exact, subset, Xnew)])
    return np.array(columns).T


def scores(model: Any, problem: Problem) -> tuple[float, float]:
    """SMSE and SMLL of the held-out rows."""
    (_, Y), (Xnew, Ynew) = problem
    log_density = model.predict_log_density((Xnew, Ynew)).numpy()
    return smse(Ynew, model.predict_f(Xnew)[0].numpy()), smll(Ynew, log_density, Y)


def start(problem: Problem, M: int, seed: int) -> PEPRegression:
    """A model to train, from random rows."""
    X = problem.train[0]
    Z = starts.random_subset(X, M, seed=seed)
    return PEPRegression(
        problem.train, squared_exponential(X.shape[1]), Z, noise_variance=0.1
    )


def all_optimised(
    problem: Problem,
    exact: gpflow.models.GPR,
    sizes: Sizes,
    seed: int,
    optimize: Optimizer,
) -> AnyNDArray:
    """SMSE, SMLL and objective, [1 + sizes x powers, 3]; exact regression first."""
    rows = [[*scores(exact, problem), float(exact.log_marginal_likelihood())]]
    for M in sizes:
        model = start(problem, M, seed)
        initial = gpflow.utilities.read_values(model)
        for alpha in ALPHAS:
            gpflow.utilities.multiple_assign(model, initial)
            model.alpha.assign(alpha)
            optimize(model)
            rows.append(
                [*scores(model, problem), float(model.pep_log_marginal_likelihood())]
            )
    return np.array(rows)


def boston(directory: Path, num_splits: int, out: Path) -> None:
    dataset = read(directory, "boston")
    problems = [
        random_split(dataset, TEST_FRACTION, seed) for seed in range(num_splits)
    ]
    exact = [exact_regression(problem.train, lbfgs(ITERATIONS)) for problem in problems]

    def over_splits(function: Any, sizes: Sizes) -> tuple[AnyNDArray, AnyNDArray]:
        return average(
            lambda seed: function(
                problems[seed], exact[seed], sizes, seed, lbfgs(ITERATIONS)
            ),
            num_splits,
        )

    mean, error = over_splits(fixed_hyperparameters, FIXED_SIZES)
    print(
        f"Boston housing, {num_splits} splits. KL from the exact posterior at 51 test"
        " rows"
    )
    print(f"{'':24}{'alpha':>6}" + "".join(f"{f'M = {M}':>18}" for M in FIXED_SIZES))
    labels = [(rule, f"{alpha:g}") for rule in (*RULES, "trained") for alpha in ALPHAS]
    for (rule, alpha), *row in zip([*labels, ("subset", "")], mean, error):
        cells = (f"{m:.2f} ± {e:.2f}" for m, e in zip(*row))
        print(f"{rule:24}{alpha:>6}" + "".join(f"{cell:>18}" for cell in cells))
    print(flush=True)
    if find_spec("matplotlib"):
        draw(out, mean[:-1].reshape(-1, len(ALPHAS), len(FIXED_SIZES)))
    mean, error = over_splits(all_optimised, TRAINED_SIZES)
    print(f"Boston housing, {num_splits} splits, everything optimised")
    print(f"{'':10}{'alpha':>6}{'SMSE':>18}{'SMLL':>18}{'objective':>18}")
    labels = [(f"M = {M}", f"{alpha:g}") for M in TRAINED_SIZES for alpha in ALPHAS]
    for (size, alpha), m, e in zip([("exact", ""), *labels], mean, error):
        cells = (f"{m[k]:.{d}f} ± {e[k]:.{d}f}" for k, d in enumerate((4, 4, 1)))
        print(f"{size:10}{alpha:>6}" + "".join(f"{cell:>18}" for cell in cells))


def kin40k(directory: Path, iterations: int) -> None:
    """The table of Kin40k, row by row."""
    dataset = read(directory, "kin40k")
    rows = np.arange(len(dataset.X))
    problem = standardised(dataset, (rows[:10_000], rows[10_000:]))
    print(f"Kin40k, at most {iterations} iterations of L-BFGS")
    print(f"{'':10}{'alpha':>6}{'SMSE':>10}{'SMLL':>10}{'objective':>12}{'seconds':>9}")
    for M in KIN40K_SIZES:
        for alpha in ALPHAS:
            model = start(problem, M, 0)
            optimize = lbfgs(iterations)
            model.alpha.assign(alpha)
            began = time.perf_counter()
            optimize(model)
            seconds = time.perf_counter() - began
            error, loss = scores(model, problem)
            value = float(model.pep_log_marginal_likelihood())
            print(
                f"{f'M = {M}':10}{alpha:>6g}{error:>10.4f}{loss:>10.4f}{value:>12.1f}"
                f"{seconds:>9.0f}",
                flush=True,
            )


def draw(path: Path, divergences: AnyNDArray) -> None:
    """Mean divergences against M, a panel for each power."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    panels = figure.subplots(1, len(ALPHAS), sharey=True)
    for k, (alpha, axes) in enumerate(zip(ALPHAS, panels)):
        for rule, values in zip((*RULES, "trained"), divergences):
            axes.plot(FIXED_SIZES, values[k], ".-", label=rule)
        axes.set(title=f"alpha = {alpha:g}", xlabel="M", xscale="log", yscale="log")
        axes.set_xticks(FIXED_SIZES, [str(M) for M in FIXED_SIZES])
        axes.minorticks_off()
    panels[0].set_ylabel("KL from the exact posterior")
    panels[0].legend(fontsize="small")
    save_figure(figure, path, "titsias", dpi=90)


def main() -> None:
    args = arguments(
        __doc__,
        name=("boston", "kin40k"),
        data=DIRECTORY,
        splits=5,
        iterations=60,
        out=Path("titsias.png"),
        quick={"splits": 2, "iterations": 5},
    )
    # Every choice of points has a kernel of its own to compile.
    tf.get_logger().setLevel("ERROR")
    if args.name == "boston":
        boston(args.data, args.splits, args.out)
    else:
        kin40k(args.data, args.iterations)
