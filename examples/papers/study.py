"""Measure what needs no choice: powers mixed, leave-one-out beside the evidence, more points.

    python -m examples study --reduced --data DIRECTORY --out study --jobs 2
    python -m examples study --table study/results.csv --out study

On each split of each table, rules are compared with the evidence at power 0.5 and M = 100: other
powers, mixtures of powers, the leave-one-out density in the objective, other kernels, starts and
numbers of inducing points, the estimators with nothing set, and what people use instead. Negative
log densities are those of standardised targets. A name ends with the most rows that train.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from scipy.stats import norm
from sklearn import datasets
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import cross_val_predict

from examples.data_sets import Dataset, Problem, random_split, read
from examples.papers import runner
from examples.papers.runner import Cell
from gpflow_pep.estimators import PEPClassifier, PEPRegressor
from gpflow_pep.models import PEPRegression
from gpflow_pep.selection import kmeans, random_subset
from gpflow_pep.training import mix_models
from gpflow_pep.training.shared import SharedLosses

ALPHAS = (0.0, 0.5, 0.75, 1.0)
MIXED = (0.0, 0.5, 1.0)
REGRESSION = (
    *("snelson1d", "diabetes", "boston", "concrete", "wine_red", "abalone", "kin8nm", "ccpp"),
    *("kin40k", "friedman1", "friedman2", "friedman3"),
)
BINARY = ("banana", "ionosphere", "pima", "australian", "spambase", "cancer", "wine_good", "moons")
SEVERAL = ("glass", "vehicle", "vowel", "svmguide2", "wine", "satimage")
REFERENCE = "evidence .5"
#: When training stops, as the estimators do.
STOP: dict[str, Any] = {"tolerance": 1e-4, "window": 10, "progress": False}
#: Rows up to which the exact Gaussian process is trained too.
MOST_EXACT = 1000
_losses = SharedLosses()


def grid(size: str) -> list[Cell]:
    """The cells of a size; splits in rounds, so that a run that is stopped has seen every set."""
    rows, splits = {"quick": (150, 1), "reduced": (800, 3), "full": (20_000, 10)}[size]
    tasks = {"regression": REGRESSION, "binary": BINARY, "classes": SEVERAL}
    if size == "quick":
        tasks = {name: sets[:1] for name, sets in tasks.items()}
    return [
        Cell(task, f"{name}:{rows}", split, 100, "all rules")
        for split in range(splits)
        for task, sets in tasks.items()
        for name in sets
    ]


def load(directory: Path, name: str) -> Dataset:
    """A table of the directory, of scikit-learn, or generated."""
    if name == "diabetes":
        X, y = datasets.load_diabetes(return_X_y=True)
    elif name == "cancer":
        X, y = datasets.load_breast_cancer(return_X_y=True)
        return Dataset(X, y[:, None].astype(float), ("0", "1"))
    elif name == "moons":
        X, y = datasets.make_moons(1500, noise=0.3, random_state=0)
        return Dataset(X, y[:, None].astype(float), ("0", "1"))
    elif name == "wine_good":
        table = read(directory, "wine_red", "regression")
        return Dataset(table.X, (table.Y > 5.5).astype(float), ("poor", "good"))
    elif name.startswith("friedman"):
        make = getattr(datasets, f"make_{name}")
        noise = {"friedman1": 1.0, "friedman2": 125.0, "friedman3": 0.1}[name]
        X, y = make(1500, noise=noise, random_state=0)
    else:
        return read(directory, name, "classification" if name in (*BINARY, *SEVERAL) else None)
    return Dataset(X, y[:, None])


def problem_of(cell: Cell, directory: Path) -> Problem:
    """The rows of a split: a fifth of them held out, and at most so many to train on."""
    name, _, most = cell.data.partition(":")
    problem = random_split(load(directory, name), 0.2, cell.split)
    rows = np.random.default_rng(cell.split).permutation(len(problem.train[0]))[: int(most)]
    return Problem((problem.train[0][rows], problem.train[1][rows]), problem.test)


def evaluate(cell: Cell, directory: Path) -> list[dict[str, Any]]:
    """All rules on one split."""
    problem = problem_of(cell, directory)
    rules = regression_rules if cell.experiment == "regression" else class_rules
    return [{"rule": rule, "N": len(problem.train[0]), **row} for rule, row in rules(problem, cell)]


def _scores(problem: Problem, mean: Any, sd: Any, density: Any = None) -> dict[str, float]:
    """Of normal densities, unless the log density of each row is given."""
    Y, mean, sd = problem.test[1][:, 0], np.ravel(mean), np.ravel(sd)
    density = norm.logpdf(Y, mean, sd) if density is None else np.asarray(density)
    inside = np.abs(Y - mean) < norm.ppf(0.95) * sd
    rmse = np.sqrt(np.mean((Y - mean) ** 2))
    return {"nlpd": -float(np.mean(density)), "rmse": float(rmse), "coverage": np.mean(inside)}


def _of_model(problem: Problem, model: Any) -> dict[str, float]:
    posterior = model.posterior() if hasattr(model, "likelihoods") else model
    mean, variance = posterior.predict_y(problem.test[0])
    density = posterior.predict_log_density(problem.test)
    return _scores(problem, mean, np.sqrt(variance), density)


KERNELS = {
    "Matern 3/2": gpflow.kernels.Matern32,
    "Matern 5/2": gpflow.kernels.Matern52,
    "SE": gpflow.kernels.SquaredExponential,
}


def regression_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each rule of regression with its scores and seconds."""
    X = problem.train[0]
    D = X.shape[1]
    M = min(cell.M, len(np.unique(X, axis=0)))

    def fit(alpha: float, objective: str, kernel: str = "SE", seed: int = 0) -> Any:
        points = kmeans(X, M, seed=seed) if seed == 0 else random_subset(X, M, seed=seed)
        covariance = KERNELS[kernel](lengthscales=np.full(D, np.sqrt(D)))
        model = PEPRegression(problem.train, covariance, points, alpha=alpha, noise_variance=0.1)
        _losses.maximise(model, cache_key=kernel, objective=objective, **STOP)
        return model

    every, whole = [], 0.0
    for objective, label in (("evidence", "evidence"), ("evidence+loo", "both")):
        models, total = {}, 0.0
        for alpha in ALPHAS:
            began = time.perf_counter()
            models[alpha] = fit(alpha, objective)
            seconds = time.perf_counter() - began
            total += seconds * (alpha in MIXED)
            name = f"{label} {alpha:g}".replace("0.", ".")
            yield name, {**_of_model(problem, models[alpha]), "seconds": seconds}
        three = [models[alpha] for alpha in MIXED]
        yield f"{label} mix", {**_of_model(problem, mix_models(three)), "seconds": total}
        every, whole = every + three, whole + total
        equal = mix_models(three, "uniform")
        yield f"{label} mix, equal", {**_of_model(problem, equal), "seconds": total}
    yield "mix of all six", {**_of_model(problem, mix_models(every)), "seconds": whole}
    kernels = [models[0.5]]
    for kernel in ("Matern 3/2", "Matern 5/2"):
        kernels.append(fit(0.5, "evidence+loo", kernel))
        yield f"both .5, {kernel}", _of_model(problem, kernels[-1])
    yield "both .5, mix of kernels", _of_model(problem, mix_models(kernels))
    starts = [models[0.5], *(fit(0.5, "evidence+loo", seed=seed) for seed in (1, 2))]
    yield "both .5, mix of starts", _of_model(problem, mix_models(starts))
    yield from _estimators(problem)
    yield from _instead(problem)


def _estimators(problem: Problem) -> Iterator[tuple[str, dict[str, Any]]]:
    X, Y = problem.train
    for rule, options in (
        ("PEPRegressor()", {}),
        ("PEPRegressor(both)", {"objective": "evidence+loo"}),
    ):
        began = time.perf_counter()
        estimator = PEPRegressor(random_state=0, **options).fit(X, Y[:, 0])
        seconds = time.perf_counter() - began
        density = estimator.log_densities(problem.test[0], problem.test[1][:, 0])
        low, high = estimator.predict_quantiles(problem.test[0], [0.05, 0.95]).T
        inside = (low < problem.test[1][:, 0]) & (problem.test[1][:, 0] < high)
        mean, sd = estimator.predict(problem.test[0], return_std=True)
        row = {**_scores(problem, mean, sd, density), "coverage": np.mean(inside)}
        yield (
            rule,
            {**row, "seconds": seconds, "points": len(estimator.inducing_variable_.Z.numpy())},
        )


def _instead(problem: Problem) -> Iterator[tuple[str, dict[str, Any]]]:
    """What people use instead, as normal densities with the spread of out-of-fold residuals."""
    X, Y = problem.train
    for rule, model in (
        ("boosted trees", HistGradientBoostingRegressor(random_state=0)),
        ("random forest", RandomForestRegressor(200, random_state=0)),
        ("linear", RidgeCV(np.logspace(-3, 3, 13))),
    ):
        began = time.perf_counter()
        spread = np.std(Y[:, 0] - cross_val_predict(model, X, Y[:, 0], cv=5))
        mean = model.fit(X, Y[:, 0]).predict(problem.test[0])
        seconds = time.perf_counter() - began
        yield rule, {**_scores(problem, mean, np.full_like(mean, spread)), "seconds": seconds}
    if len(X) <= MOST_EXACT:
        for rule in ("SE", "Matern 5/2"):
            kernel = KERNELS[rule](lengthscales=np.full(X.shape[1], np.sqrt(X.shape[1])))
            exact = gpflow.models.GPR(problem.train, kernel, noise_variance=0.1)
            began = time.perf_counter()
            _losses.maximise(exact, cache_key=("exact", rule), **STOP)
            seconds = time.perf_counter() - began
            yield f"exact GP, {rule}", {**_of_model(problem, exact), "seconds": seconds}


def class_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each rule of classification with its scores and seconds."""
    (X, Y), labels = problem.train, problem.test[1][:, 0]
    fitted: dict[str, Any] = {}

    def scores(probability: AnyNDArray) -> dict[str, float]:
        own = np.maximum(probability[np.arange(len(labels)), labels.astype(int)], 1e-12)
        wrong = np.mean(np.argmax(probability, axis=1) != labels)
        return {"nlpd": -float(np.mean(np.log(own))), "error": float(wrong)}

    number = {"num_inducing": cell.M, "random_state": 0}
    rules: dict[str, Any] = {
        "evidence 0": PEPClassifier(**number, alpha=0.0),
        "evidence .5": PEPClassifier(**number, alpha=0.5),
        "evidence 1": PEPClassifier(**number, alpha=1.0),
        "evidence mix": PEPClassifier(**number, alpha="mix"),
        "PEPClassifier()": PEPClassifier(random_state=0),
        "boosted trees": HistGradientBoostingClassifier(random_state=0),
        "random forest": RandomForestClassifier(200, random_state=0),
        "logistic": LogisticRegression(max_iter=1000),
    }
    for rule, classifier in rules.items():
        began = time.perf_counter()
        fitted[rule] = classifier.fit(X, Y[:, 0].astype(int))
        row: dict[str, Any] = {"seconds": time.perf_counter() - began}
        if rule == "PEPClassifier()":
            row["points"] = len(classifier.inducing_variable_.Z.numpy())
        yield rule, {**scores(classifier.predict_proba(problem.test[0])), **row}


def summarise(table: pd.DataFrame, out: Path) -> None:
    """Print and write, for each kind of task, how each rule does beside the reference."""
    parts = []
    for task, rows in table.groupby("experiment", sort=False):
        wide = {
            name: rows.pivot_table(index="data", columns="rule", values=name, sort=False)
            for name in ("nlpd", "rmse", "error", "coverage", "seconds", "points")
            if name in rows and rows[name].notna().any()
        }
        nlpd = wide["nlpd"].dropna(axis=1)
        behind = wide["nlpd"].sub(wide["nlpd"][REFERENCE], axis=0)
        error = behind.std(ddof=1) / np.sqrt(behind.count())
        summary = pd.DataFrame(
            {
                "sets": behind.count(),
                "NLPD": wide["nlpd"].mean(),
                "less .5": behind.mean(),
                "+-": error,
                "better on": (behind < 0.0).sum(),
                "rank": nlpd.rank(axis=1).mean(),
            }
        )
        for name in ("rmse", "error", "seconds", "points"):
            if name in wide:
                summary[name] = wide[name].mean()
        if "coverage" in wide:
            summary["|90% - coverage|"] = (wide["coverage"] - 0.9).abs().mean()
        sizes = rows.groupby("data", sort=False)["N"].first()
        splits = rows.groupby("data")["split"].nunique()
        parts.append(
            f"{task}: {len(sizes)} sets of {sizes.min()} to {sizes.max()} rows,"
            f" {splits.min()} to {splits.max()} split(s); means over sets\n"
            f"{summary.loc[wide['nlpd'].columns].round(3).to_string()}\n\n"
            f"NLPD of each set\n{wide['nlpd'].T.round(3).to_string()}\n"
        )
    text = "\n".join(parts)
    print(text)
    (out / "study.txt").write_text(text, encoding="utf-8")


def main() -> None:
    runner.command(
        __doc__, grid, lambda directory: partial(evaluate, directory=directory), summarise
    )


if __name__ == "__main__":
    main()
