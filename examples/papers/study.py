"""Measure the estimators with nothing set, beside single models, exact ones, trees and
lines.

    python -m examples study --reduced --data DIRECTORY --out study --jobs 2
    python -m examples study --table study/results.csv --out study

On each split of each table, rules are compared with the evidence at power 0.5 and M =
100: other powers, their mixture, the leave-one-out density in the objective, another
kernel, other numbers of inducing points, the estimators with nothing set, and what
people use instead. Negative log densities are those of standardised targets. A name
ends with the most rows that train. Seconds are processor seconds. Methods of other
environments run beside the present estimators if an environment variable names the
Python interpreter: GPFLOW_PEP_EARLIER one with version 0.3 of this package,
GPFLOW_PEP_BOOSTED one with CatBoost and NGBoost.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray
from gpflow.models import GPR
from scipy.stats import norm, poisson
from sklearn import datasets
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from examples.data_sets import Dataset, Problem, random_rows, read, standardised
from examples.papers import runner
from examples.papers.runner import Cell
from examples.papers.study_summary import ALPHAS, rule_name, summarise
from gpflow_pep.estimators import PEPClassifier, PEPRegressor
from gpflow_pep.models import PEPRegression
from gpflow_pep.training import ensemble_of_models
from gpflow_pep.training.fitting.cheaper import SharedLosses
from gpflow_pep.training.starts import kmeans

MIXED = (0.0, 0.5, 1.0)
REGRESSION = (
    *(
        "snelson1d",
        "diabetes",
        "boston",
        "concrete",
        "wine_red",
        "abalone",
        "kin8nm",
        "ccpp",
    ),
    *("kin40k", "friedman1", "friedman2", "friedman3"),
)
BINARY = (
    "banana",
    "ionosphere",
    "pima",
    "australian",
    "spambase",
    "cancer",
    "wine_good",
    "moons",
)
SEVERAL = ("glass", "vehicle", "vowel", "svmguide2", "wine", "satimage")
COUNTS = ("abalone_rings", "progression", "bumps")
#: Tables of regression with the most rows that train; fewer rules are tried on them.
LARGE = ("kin8nm:6000", "ccpp:7000")
#: When training stops, as the estimators do.
STOP: dict[str, Any] = {"tolerance": 1e-4, "window": 10, "progress": False}
#: Rows up to which the exact Gaussian process is trained too.
MOST_EXACT = 1000
#: What people use instead for classes.
CLASSIFIERS: dict[str, Any] = {
    "boosted trees": HistGradientBoostingClassifier(random_state=0),
    "random forest": RandomForestClassifier(200, random_state=0),
    "logistic": LogisticRegression(max_iter=1000),
}
#: Rules of other environments: the variable that names the interpreter, and the method
#: of elsewhere.py.
ELSEWHERE = {
    "0.3": ("GPFLOW_PEP_EARLIER", "earlier"),
    "CatBoost": ("GPFLOW_PEP_BOOSTED", "CatBoost"),
    "NGBoost": ("GPFLOW_PEP_BOOSTED", "NGBoost"),
}
#: NGBoost's distributions are what it is used for; its classifier ended with
#: probabilities of 1e-10 for true classes.
REGRESSION_ONLY = ("NGBoost",)
_losses = SharedLosses()


def grid(size: str) -> list[Cell]:
    """The cells of a size; splits in rounds, so that a run that is stopped has seen
    every set.
    """
    rows, splits = {"quick": (150, 1), "reduced": (800, 3), "full": (2000, 10)}[size]
    tasks = {
        "regression": REGRESSION,
        "binary": BINARY,
        "classes": SEVERAL,
        "counts": COUNTS,
    }
    tasks |= {"points": REGRESSION, "defaults": (*REGRESSION, *BINARY, *SEVERAL)}
    sets = [(task, f"{name}:{rows}") for task, names in tasks.items() for name in names]
    if size == "quick":
        sets = [(task, f"{names[0]}:{rows}") for task, names in tasks.items()]
    else:
        sets += [(task, name) for task in ("large", "defaults") for name in LARGE]
    return [
        Cell(*named, split, 100, "all rules")
        for split in range(splits)
        for named in sets
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
    elif name == "abalone_rings":
        table = read(directory, "abalone", "regression")
        return Dataset(table.X, np.round(table.Y))
    elif name == "progression":
        X, y = datasets.load_diabetes(return_X_y=True)
    elif name == "bumps":
        rng = np.random.default_rng(0)
        X = rng.uniform(-2.0, 2.0, (1000, 2))
        y = rng.poisson(
            np.exp(1.0 + np.sin(3.0 * X[:, 0]) * np.cos(2.0 * X[:, 1]))
        ).astype(float)
    elif name.startswith("friedman"):
        make = getattr(datasets, f"make_{name}")
        noise = {"friedman1": 1.0, "friedman2": 125.0, "friedman3": 0.1}[name]
        X, y = make(1500, noise=noise, random_state=0)
    else:
        return read(
            directory, name, "classification" if name in (*BINARY, *SEVERAL) else None
        )
    return Dataset(X, y[:, None])


def problem_of(cell: Cell, directory: Path) -> Problem:
    """The rows of a split: a fifth of them held out, and at most so many to train on."""
    name, _, most = cell.data.partition(":")
    data = load(directory, name)
    split = random_rows(data.X, 0.2, cell.split, data.Y[:, 0] if data.classes else None)
    problem = standardised(data, split)
    if cell.experiment == "counts":
        problem = Problem(*((X, data.Y[part]) for (X, _), part in zip(problem, split)))
    rows = np.random.default_rng(cell.split).permutation(len(problem.train[0]))[
        : int(most)
    ]
    return Problem((problem.train[0][rows], problem.train[1][rows]), problem.test)


def evaluate(cell: Cell, directory: Path) -> list[dict[str, Any]]:
    """All rules on one split."""
    problem = problem_of(cell, directory)
    named = {
        "regression": regression_rules,
        "large": large_rules,
        "points": point_rules,
    }
    named |= {"counts": count_rules, "defaults": default_rules}
    rules = named.get(cell.experiment, class_rules)
    return [
        {"rule": rule, "N": len(problem.train[0]), **row}
        for rule, row in rules(problem, cell)
    ]


def _scores(
    problem: Problem, mean: Any, sd: Any, density: Any = None
) -> dict[str, float]:
    """Of normal densities, unless the log density of each row is given."""
    Y = problem.test[1][:, 0]
    mean = np.ravel(mean)
    sd = np.ravel(sd)
    density = norm.logpdf(Y, mean, sd) if density is None else np.asarray(density)
    ends = np.stack(norm.interval(0.9, mean, sd), axis=1)
    rmse = np.sqrt(np.mean((Y - mean) ** 2))
    return {"nlpd": -float(np.mean(density)), "rmse": float(rmse), **_interval(Y, ends)}


def _of_model(problem: Problem, model: Any) -> dict[str, float]:
    posterior = model.posterior() if hasattr(model, "likelihoods") else model
    mean, variance = posterior.predict_y(problem.test[0])
    density = posterior.predict_log_density(problem.test)
    return _scores(problem, mean, np.sqrt(variance), density)


KERNELS: dict[str, type[gpflow.kernels.Stationary]] = {
    "SE": gpflow.kernels.SquaredExponential,
    "Matern 5/2": gpflow.kernels.Matern52,
}


def _make_kernel(name: str, X: AnyNDArray) -> gpflow.kernels.Kernel:
    return KERNELS[name](lengthscales=np.full(X.shape[1], np.sqrt(X.shape[1])))


def _fit(
    problem: Problem,
    M: int,
    alpha: float,
    objective: str = "evidence",
    kernel: str = "SE",
) -> tuple[PEPRegression, float]:
    """Train a model from centres of clusters, and give the seconds."""
    X = problem.train[0]
    M = min(M, len(np.unique(X, axis=0)))
    began = time.process_time()
    parts = _make_kernel(kernel, X), kmeans(X, M, seed=0)
    model = PEPRegression(problem.train, *parts, alpha=alpha, noise_variance=0.1)
    _losses.maximise(model, cache_key=kernel, objective=objective, **STOP)
    return model, time.process_time() - began


def regression_rules(
    problem: Problem, cell: Cell
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each rule of regression with its scores and seconds."""
    yield from _powers(problem, cell.M, ALPHAS)
    model, seconds = _fit(problem, cell.M, 0.5, kernel="Matern 5/2")
    scores = _of_model(problem, model)
    yield "evidence .5, Matern 5/2", {**scores, "seconds": seconds}
    yield from _instead(problem)
    yield from _exact(problem)


def _powers(
    problem: Problem, M: int, alphas: tuple[float, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """One model at each power, and the mixture of three of them by leave-one-out."""
    fits = {alpha: _fit(problem, M, alpha) for alpha in alphas}
    for alpha, (model, seconds) in fits.items():
        yield (
            rule_name("evidence", alpha),
            {**_of_model(problem, model), "seconds": seconds},
        )
    models, every = zip(*(fits[alpha] for alpha in MIXED), strict=True)
    yield (
        "evidence mix",
        {**_of_model(problem, ensemble_of_models(models)), "seconds": sum(every)},
    )


def _exact(problem: Problem) -> Iterator[tuple[str, dict[str, Any]]]:
    """Exact Gaussian processes, where there are few enough rows."""
    if len(problem.train[0]) > MOST_EXACT:
        return
    for rule in ("SE", "Matern 5/2"):
        exact = GPR(
            problem.train, _make_kernel(rule, problem.train[0]), noise_variance=0.1
        )
        began = time.process_time()
        _losses.maximise(exact, cache_key=("exact", rule), **STOP)
        seconds = time.process_time() - began
        yield f"exact GP, {rule}", {**_of_model(problem, exact), "seconds": seconds}


def point_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """
    More inducing points at power 0.5, with what leave-one-out says of them.

    ``optimism`` is how much better that is than held-out rows, in nats of all training
    rows for each number of the inducing inputs.
    """
    N = len(problem.train[0])
    for M in (25, 50, 100, 200, 400):
        model, seconds = _fit(problem, M, 0.5)
        row = _of_model(problem, model)
        loo = -float(np.mean(model.loo_log_density()))
        numbers = model.inducing_variable.Z.numpy().size
        optimism = (row["nlpd"] - loo) * N / numbers
        yield f"M = {M}", {**row, "seconds": seconds, "loo": loo, "optimism": optimism}


def large_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """The powers, their mixture and what people use instead, for many rows."""
    yield from _powers(problem, cell.M, MIXED)
    yield from _instead(problem)


def default_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """The estimators with nothing set, and methods of other environments."""
    has_classes = cell.data.partition(":")[0] in (*BINARY, *SEVERAL)
    yield from _elsewhere(problem, has_classes)
    if has_classes:
        yield from _classifiers(
            problem, {"PEPClassifier()": PEPClassifier(random_state=0)}
        )
        return
    (X, Y), (X_new, Y_new) = problem
    began = time.process_time()
    estimator = PEPRegressor(random_state=0).fit(X, Y[:, 0])
    row = {"seconds": time.process_time() - began}
    row["points"] = len(estimator.inducing_variable_.Z.numpy())
    density = estimator.log_densities(X_new, Y_new[:, 0])
    row |= _scores(problem, *estimator.predict(X_new, return_std=True), density)
    yield (
        "PEPRegressor()",
        {**row, **_interval(Y_new[:, 0], estimator.predict_interval(X_new))},
    )


def _elsewhere(
    problem: Problem, has_classes: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The methods of other environments whose interpreters are named."""
    for rule, (variable, method) in ELSEWHERE.items():
        interpreter = os.environ.get(variable)
        if interpreter is None or (has_classes and rule in REGRESSION_ONLY):
            continue
        answer = _run_elsewhere(problem, has_classes, interpreter, method)
        row = {"seconds": float(answer["seconds"])}
        if has_classes:
            yield rule, {**_class_scores(problem, answer["probability"]), **row}
            continue
        moments = (answer[name] for name in ("mean", "sd", "density"))
        interval = _interval(problem.test[1][:, 0], answer["ends"])
        yield rule, {**_scores(problem, *moments), **interval, **row}


def _run_elsewhere(
    problem: Problem, has_classes: bool, interpreter: str, method: str
) -> dict[str, AnyNDArray]:
    """Fit and predict with another interpreter, which reads and writes files."""
    (X, Y), (X_new, Y_new) = problem
    arrays = {
        "X": X,
        "y": Y[:, 0],
        "X_new": X_new,
        "y_new": Y_new[:, 0],
        "classes": has_classes,
    }
    script = str(Path(__file__).with_name("elsewhere.py"))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with TemporaryDirectory() as folder:
        given = str(Path(folder) / "problem.npz")
        found = str(Path(folder) / "predicted.npz")
        np.savez(given, **arrays)
        subprocess.run(
            [interpreter, script, method, given, found], check=True, env=environment
        )
        return dict(np.load(found))


def _interval(y: AnyNDArray, ends: AnyNDArray) -> dict[str, float]:
    inside = (ends[:, 0] <= y) & (y <= ends[:, 1])
    return {
        "coverage": float(np.mean(inside)),
        "width": float(np.mean(ends[:, 1] - ends[:, 0])),
    }


def _instead(problem: Problem) -> Iterator[tuple[str, dict[str, Any]]]:
    """What people use instead, as normal densities with the spread of out-of-fold
    residuals.
    """
    X, Y = problem.train
    for rule, model in (
        ("boosted trees", HistGradientBoostingRegressor(random_state=0)),
        ("random forest", RandomForestRegressor(200, random_state=0)),
        ("linear", RidgeCV(np.logspace(-3, 3, 13))),
    ):
        began = time.process_time()
        spread = np.std(Y[:, 0] - cross_val_predict(model, X, Y[:, 0], cv=5))
        mean = model.fit(X, Y[:, 0]).predict(problem.test[0])
        seconds = time.process_time() - began
        yield (
            rule,
            {**_scores(problem, mean, np.full_like(mean, spread)), "seconds": seconds},
        )
    ends = [
        HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0)
        .fit(X, Y[:, 0])
        .predict(problem.test[0])
        for q in (0.05, 0.95)
    ]
    yield (
        "boosted trees, quantiles",
        _interval(problem.test[1][:, 0], np.stack(ends, axis=1)),
    )


def count_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each rule of counts with its scores and seconds; the others predict the rate of
    Poisson.
    """
    (X, Y), y = problem.train, problem.test[1][:, 0]
    options = {"likelihood": "poisson", "num_inducing": cell.M, "random_state": 0}
    rules: dict[str, Any] = {
        "evidence 0": PEPRegressor(**options, alpha=0.0),
        "evidence .5": PEPRegressor(**options, alpha=0.5),
        "evidence 1": PEPRegressor(**options, alpha=1.0),
        "evidence mix": PEPRegressor(**options, alpha="mix"),
        "PEPRegressor(poisson)": PEPRegressor(likelihood="poisson", random_state=0),
        "boosted trees": HistGradientBoostingRegressor(loss="poisson", random_state=0),
        "log-linear": make_pipeline(StandardScaler(), PoissonRegressor(max_iter=1000)),
    }
    for rule, model in rules.items():
        began = time.process_time()
        model.fit(X, Y[:, 0])
        row: dict[str, Any] = {"seconds": time.process_time() - began}
        mean = model.predict(problem.test[0])
        if isinstance(model, PEPRegressor):
            density = model.log_densities(problem.test[0], y)
            row["points"] = len(model.inducing_variable_.Z.numpy())
        else:
            density = poisson.logpmf(y, mean)
        rmse = np.sqrt(np.mean((y - mean) ** 2))
        yield rule, {"nlpd": -float(np.mean(density)), "rmse": float(rmse), **row}


def class_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each rule of classification with its scores and seconds."""
    number = {"num_inducing": cell.M, "random_state": 0}
    rules: dict[str, Any] = {
        "evidence 0": PEPClassifier(**number, alpha=0.0),
        "evidence .5": PEPClassifier(**number, alpha=0.5),
        "evidence 1": PEPClassifier(**number, alpha=1.0),
        "evidence mix": PEPClassifier(**number, alpha="mix"),
        **CLASSIFIERS,
    }
    yield from _classifiers(problem, rules)


def _classifiers(
    problem: Problem, rules: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    X, Y = problem.train
    for rule, classifier in rules.items():
        began = time.process_time()
        classifier.fit(X, Y[:, 0].astype(int))
        row: dict[str, Any] = {"seconds": time.process_time() - began}
        if rule == "PEPClassifier()":
            row["points"] = len(classifier.inducing_variable_.Z.numpy())
        yield (
            rule,
            {
                **_class_scores(problem, classifier.predict_proba(problem.test[0])),
                **row,
            },
        )


def _class_scores(problem: Problem, probability: AnyNDArray) -> dict[str, float]:
    """The log loss, the part of the labels that are wrong, and the calibration error in
    10 bins.
    """
    labels = problem.test[1][:, 0].astype(int)
    own = np.maximum(probability[np.arange(len(labels)), labels], 1e-12)
    wrong = np.argmax(probability, axis=1) != labels
    confidence = np.max(probability, axis=1)
    bins = np.minimum((10 * confidence).astype(int), 9)
    gaps = [
        np.sum(~wrong[bins == b]) - np.sum(confidence[bins == b]) for b in range(10)
    ]
    error = float(np.sum(np.abs(gaps)) / len(labels))
    nlpd = -float(np.mean(np.log(own)))
    return {
        "nlpd": nlpd,
        "error_rate": float(np.mean(wrong)),
        "calibration_error": error,
    }


def main() -> None:
    runner.command(
        __doc__, grid, lambda data: partial(evaluate, directory=data), summarise
    )


if __name__ == "__main__":
    main()
