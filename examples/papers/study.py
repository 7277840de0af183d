"""Measure what needs no choice: powers mixed, leave-one-out beside the evidence, more points.

    python -m examples study --reduced --data DIRECTORY --out study --jobs 2
    python -m examples study --table study/results.csv --out study

On each split of each table, rules are compared with the evidence at power 0.5 and M = 100: other
powers, ensembles of powers, the leave-one-out density in the objective, other kernels, starts and
numbers of inducing points, hyperparameters drawn from their posterior, the estimators with nothing
set, and what people use instead. Negative log densities are those of standardised targets. A name
ends with the most rows that train.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
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
from gpflow_pep.metrics import central_interval
from gpflow_pep.models import PEPRegression
from gpflow_pep.training import ensemble_of_models
from gpflow_pep.training.fitting.cheaper import SharedLosses
from gpflow_pep.training.starts import kmeans, random_subset

MIXED = (0.0, 0.5, 1.0)
REGRESSION = (
    *("snelson1d", "diabetes", "boston", "concrete", "wine_red", "abalone", "kin8nm", "ccpp"),
    *("kin40k", "friedman1", "friedman2", "friedman3"),
)
BINARY = ("banana", "ionosphere", "pima", "australian", "spambase", "cancer", "wine_good", "moons")
SEVERAL = ("glass", "vehicle", "vowel", "svmguide2", "wine", "satimage")
COUNTS = ("abalone_rings", "progression", "bumps")
#: Tables of regression with the most rows that train; fewer rules are tried on them.
LARGE = (("kin8nm", 6000), ("ccpp", 7000), ("kin40k", 20_000))
#: When training stops, as the estimators do.
STOP: dict[str, Any] = {"tolerance": 1e-4, "window": 10, "progress": False}
#: Rows up to which the exact Gaussian process is trained too.
MOST_EXACT = 1000
#: The estimators whose settings are compared.
ESTIMATORS: dict[str, dict[str, Any]] = {
    "PEPRegressor()": {},
    "PEPRegressor(both)": {"objective": "evidence+loo"},
}
#: Classifiers with nothing set.
CLASSIFIERS: dict[str, Any] = {
    "PEPClassifier()": PEPClassifier(random_state=0),
    "boosted trees": HistGradientBoostingClassifier(random_state=0),
    "random forest": RandomForestClassifier(200, random_state=0),
    "logistic": LogisticRegression(max_iter=1000),
}
_losses = SharedLosses()


def grid(size: str) -> list[Cell]:
    """The cells of a size; splits in rounds, so that a run that is stopped has seen every set."""
    rows, splits = {"quick": (150, 1), "reduced": (800, 3), "full": (2000, 10)}[size]
    tasks = {"regression": REGRESSION, "binary": BINARY, "classes": SEVERAL, "counts": COUNTS}
    tasks["points"] = REGRESSION
    tasks["defaults"], tasks["class defaults"] = REGRESSION, (*BINARY, *SEVERAL)
    sets = [(task, f"{name}:{rows}") for task, names in tasks.items() for name in names]
    if size == "quick":
        sets = [(task, f"{names[0]}:{rows}") for task, names in tasks.items()]
    else:
        sets += [("large", f"{name}:{most}") for name, most in LARGE]
    return [Cell(*named, split, 100, "all rules") for split in range(splits) for named in sets]


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
        y = rng.poisson(np.exp(1.0 + np.sin(3.0 * X[:, 0]) * np.cos(2.0 * X[:, 1]))).astype(float)
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
    data = load(directory, name)
    split = random_rows(data.X, 0.2, cell.split, data.Y[:, 0] if data.classes else None)
    problem = standardised(data, split)
    if cell.experiment == "counts":
        problem = Problem(*((X, data.Y[part]) for (X, _), part in zip(problem, split)))
    rows = np.random.default_rng(cell.split).permutation(len(problem.train[0]))[: int(most)]
    return Problem((problem.train[0][rows], problem.train[1][rows]), problem.test)


def evaluate(cell: Cell, directory: Path) -> list[dict[str, Any]]:
    """All rules on one split."""
    problem = problem_of(cell, directory)
    named = {"regression": regression_rules, "large": large_rules, "points": point_rules}
    named["counts"] = count_rules
    named["defaults"], named["class defaults"] = default_rules, default_class_rules
    rules = named.get(cell.experiment, class_rules)
    return [{"rule": rule, "N": len(problem.train[0]), **row} for rule, row in rules(problem, cell)]


def _scores(problem: Problem, mean: Any, sd: Any, density: Any = None) -> dict[str, float]:
    """Of normal densities, unless the log density of each row is given."""
    Y, mean, sd = problem.test[1][:, 0], np.ravel(mean), np.ravel(sd)
    density = norm.logpdf(Y, mean, sd) if density is None else np.asarray(density)
    ends = np.stack(central_interval(mean, sd**2, 0.9), axis=1)
    rmse = np.sqrt(np.mean((Y - mean) ** 2))
    return {"nlpd": -float(np.mean(density)), "rmse": float(rmse), **_interval(Y, ends)}


def _of_model(problem: Problem, model: Any) -> dict[str, float]:
    posterior = model.posterior() if hasattr(model, "likelihoods") else model
    mean, variance = posterior.predict_y(problem.test[0])
    density = posterior.predict_log_density(problem.test)
    return _scores(problem, mean, np.sqrt(variance), density)


KERNELS: dict[str, Callable[[AnyNDArray], gpflow.kernels.Kernel]] = {
    "SE": lambda scales: gpflow.kernels.SquaredExponential(lengthscales=scales),
    "Matern 3/2": lambda scales: gpflow.kernels.Matern32(lengthscales=scales),
    "Matern 5/2": lambda scales: gpflow.kernels.Matern52(lengthscales=scales),
    "SE + linear": lambda scales: (
        gpflow.kernels.SquaredExponential(lengthscales=scales)
        + gpflow.kernels.Linear(variance=0.1 / scales**2)
    ),
}


def _make_kernel(name: str, X: AnyNDArray) -> gpflow.kernels.Kernel:
    return KERNELS[name](np.full(X.shape[1], np.sqrt(X.shape[1])))


def _fit(
    problem: Problem,
    M: int,
    alpha: float,
    objective: str = "evidence",
    kernel: str = "SE",
    seed: int = 0,
) -> tuple[PEPRegression, float]:
    """Train a model, from centres of clusters (seed 0) or rows at random, and give the seconds."""
    X = problem.train[0]
    M = min(M, len(np.unique(X, axis=0)))
    began = time.perf_counter()
    points = kmeans(X, M, seed=seed) if seed == 0 else random_subset(X, M, seed=seed)
    parts = _make_kernel(kernel, X), points
    model = PEPRegression(problem.train, *parts, alpha=alpha, noise_variance=0.1)
    _losses.maximise(model, cache_key=kernel, objective=objective, **STOP)
    return model, time.perf_counter() - began


def regression_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each rule of regression with its scores and seconds."""
    fit = partial(_fit, problem, cell.M)

    def scores(model: Any, seconds: float) -> dict[str, Any]:
        return {**_of_model(problem, model), "seconds": seconds}

    every: list[tuple[PEPRegression, float]] = []
    for objective, label, alphas in (
        ("evidence", "evidence", ALPHAS),
        ("evidence+loo", "both", MIXED),
    ):
        fits = {}
        for alpha in alphas:
            fits[alpha] = fit(alpha, objective)
            yield rule_name(label, alpha), scores(*fits[alpha])
        models, seconds = zip(*(fits[alpha] for alpha in MIXED), strict=True)
        yield f"{label} mix", scores(ensemble_of_models(models), sum(seconds))
        yield f"{label} mix, equal", scores(ensemble_of_models(models, "uniform"), sum(seconds))
        every += [fits[alpha] for alpha in MIXED]
    models, seconds = zip(*every, strict=True)
    yield "mix of all six", scores(ensemble_of_models(models), sum(seconds))
    middle, *_ = every[MIXED.index(0.5)]
    kernels = [middle]
    for kernel in ("Matern 3/2", "Matern 5/2", "SE + linear"):
        model, lasted = fit(0.5, kernel=kernel)
        kernels.append(model)
        yield f"evidence .5, {kernel}", scores(model, lasted)
    yield "evidence .5, mix of kernels", _of_model(problem, ensemble_of_models(kernels))
    starts = [middle, *(fit(0.5, seed=seed)[0] for seed in (1, 2))]
    yield "evidence .5, mix of starts", _of_model(problem, ensemble_of_models(starts))
    yield "evidence .5, mix of draws", _draws(problem, middle)
    yield from _estimators(problem)
    yield from _instead(problem)
    yield from _exact(problem)


def _exact(problem: Problem) -> Iterator[tuple[str, dict[str, Any]]]:
    """Exact Gaussian processes, where there are few enough rows."""
    if len(problem.train[0]) > MOST_EXACT:
        return
    for rule in ("SE", "Matern 5/2"):
        exact = GPR(problem.train, _make_kernel(rule, problem.train[0]), noise_variance=0.1)
        began = time.perf_counter()
        _losses.maximise(exact, cache_key=("exact", rule), **STOP)
        seconds = time.perf_counter() - began
        yield f"exact GP, {rule}", {**_of_model(problem, exact), "seconds": seconds}


def point_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """
    More inducing points at power 0.5, with what leave-one-out says of them.

    ``optimism`` is how much better that is than held-out rows, in nats of all training rows for
    each number of the inducing inputs.
    """
    N = len(problem.train[0])
    for M in (25, 50, 100, 200, 400):
        model, seconds = _fit(problem, M, 0.5)
        row, loo = _of_model(problem, model), -float(np.mean(model.loo_log_density()))
        numbers = model.inducing_variable.Z.numpy().size
        optimism = (row["nlpd"] - loo) * N / numbers
        yield f"M = {M}", {**row, "seconds": seconds, "loo": loo, "optimism": optimism}


def large_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """The powers, their ensemble, the estimator and what people use instead, for many rows."""
    fits = {alpha: _fit(problem, cell.M, alpha) for alpha in MIXED}
    for alpha, (model, seconds) in fits.items():
        yield rule_name("evidence", alpha), {**_of_model(problem, model), "seconds": seconds}
    models, every = zip(*fits.values(), strict=True)
    yield "evidence mix", {**_of_model(problem, ensemble_of_models(models)), "seconds": sum(every)}
    yield from _estimators(problem, folds=False)
    yield from _instead(problem)


def _draws(problem: Problem, model: PEPRegression) -> dict[str, Any]:
    """Mix draws of the hyperparameters by Hamiltonian Monte Carlo, inducing inputs as trained."""
    began = time.perf_counter()
    model = gpflow.utilities.deepcopy(model)
    gpflow.set_trainable(model.inducing_variable, False)
    for parameter in model.trainable_parameters:
        at = np.log(parameter.numpy())
        parameter.prior = tfp.distributions.LogNormal(at, np.ones_like(at))
    parameters = model.trainable_parameters
    helper = gpflow.optimizers.SamplingHelper(model.log_posterior_density, parameters)
    step = tfp.mcmc.SimpleStepSizeAdaptation(
        tfp.mcmc.HamiltonianMonteCarlo(
            helper.target_log_prob_fn, num_leapfrog_steps=8, step_size=np.float64(0.02)
        ),
        num_adaptation_steps=50,
        target_accept_prob=np.float64(0.75),
    )

    @tf.function
    def sample() -> Any:
        return tfp.mcmc.sample_chain(
            100, helper.current_state, kernel=step, num_burnin_steps=50, trace_fn=None
        )

    chains = helper.convert_to_constrained_values(sample())
    draws = []
    for number in range(4, 100, 5):
        for parameter, values in zip(parameters, chains, strict=True):
            parameter.assign(values[number])
        draws.append(gpflow.utilities.deepcopy(model))
    row: dict[str, Any] = _of_model(problem, ensemble_of_models(draws, "uniform"))
    return {**row, "seconds": time.perf_counter() - began}


def _estimators(
    problem: Problem, folds: bool = True, rules: dict[str, dict[str, Any]] = ESTIMATORS
) -> Iterator[tuple[str, dict[str, Any]]]:
    X, Y = problem.train
    y = problem.test[1][:, 0]
    for rule, options in rules.items():
        began, process_began = time.perf_counter(), time.process_time()
        estimator = PEPRegressor(random_state=0, **options).fit(X, Y[:, 0])
        seconds, process_seconds = time.perf_counter() - began, time.process_time() - process_began
        density = estimator.log_densities(problem.test[0], y)
        mean, sd = estimator.predict(problem.test[0], return_std=True)
        row = {**_scores(problem, mean, sd, density), "seconds": seconds}
        row["process_seconds"] = process_seconds
        row["points"] = len(estimator.inducing_variable_.Z.numpy())
        yield rule, {**row, **_interval(y, estimator.predict_interval(problem.test[0]))}
        if folds and not options:
            ends = estimator.predict_interval(problem.test[0], calibrate="folds")
            yield "PEPRegressor(), intervals by folds", _interval(y, ends)


def default_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """What has nothing to choose: estimators of this and of another version, and of others."""
    yield from _earlier(problem)
    yield from _estimators(problem, folds=False, rules={"PEPRegressor()": {}})
    yield from _instead(problem)
    yield from _exact(problem)


def default_class_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same for classes."""
    yield from _earlier(problem, has_classes=True)
    yield from _classifiers(problem, CLASSIFIERS)


def _earlier(problem: Problem, has_classes: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
    """The estimator of another version, if an interpreter is named that has it."""
    interpreter = os.environ.get("GPFLOW_PEP_EARLIER")
    if interpreter is None:
        return
    (X, Y), (X_new, Y_new) = problem
    arrays = {"X": X, "y": Y[:, 0], "X_new": X_new, "y_new": Y_new[:, 0], "classes": has_classes}
    with TemporaryDirectory() as folder:
        given, found = (str(Path(folder) / name) for name in ("problem.npz", "predicted.npz"))
        np.savez(given, **arrays)
        script = str(Path(__file__).with_name("earlier.py"))
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        subprocess.run([interpreter, script, given, found], check=True, env=environment)
        answer = dict(np.load(found))
    row = {name: float(answer[name]) for name in ("seconds", "process_seconds")}
    if has_classes:
        yield "0.2", {**_class_scores(problem, answer["probability"]), **row}
    else:
        scores = _scores(problem, *(answer[name] for name in ("mean", "sd", "density")))
        yield "0.2", {**scores, **_interval(Y_new[:, 0], answer["ends"]), **row}


def _interval(y: AnyNDArray, ends: AnyNDArray) -> dict[str, float]:
    inside = (ends[:, 0] <= y) & (y <= ends[:, 1])
    return {"coverage": float(np.mean(inside)), "width": float(np.mean(ends[:, 1] - ends[:, 0]))}


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
    ends = [
        HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0)
        .fit(X, Y[:, 0])
        .predict(problem.test[0])
        for q in (0.05, 0.95)
    ]
    yield "boosted trees, quantiles", _interval(problem.test[1][:, 0], np.stack(ends, axis=1))
    if find_spec("gpboost"):
        began = time.perf_counter()
        row = _gpboost(problem)
        yield "GPBoost, FITC", {**row, "seconds": time.perf_counter() - began}


def _gpboost(problem: Problem) -> dict[str, float]:
    """GPBoost's FITC with 100 inducing points, by its own defaults otherwise."""
    from gpboost import GPModel

    X, Y = problem.train
    M = min(100, len(np.unique(X, axis=0)) - 1)
    covariance = {"cov_function": "gaussian_ard", "gp_approx": "fitc", "num_ind_points": M}
    model = GPModel(gp_coords=X, likelihood="gaussian", **covariance)
    model.fit(y=Y[:, 0], X=np.ones_like(Y))
    new = {"gp_coords_pred": problem.test[0], "X_pred": np.ones([len(problem.test[0]), 1])}
    predicted = model.predict(predict_var=True, predict_response=True, **new)
    return _scores(problem, predicted["mu"], np.sqrt(predicted["var"]))


def count_rules(problem: Problem, cell: Cell) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each rule of counts with its scores and seconds; the others predict the rate of Poisson."""
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
        began = time.perf_counter()
        model.fit(X, Y[:, 0])
        row: dict[str, Any] = {"seconds": time.perf_counter() - began}
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


def _classifiers(problem: Problem, rules: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    X, Y = problem.train
    for rule, classifier in rules.items():
        began, process_began = time.perf_counter(), time.process_time()
        classifier.fit(X, Y[:, 0].astype(int))
        row: dict[str, Any] = {"seconds": time.perf_counter() - began}
        row["process_seconds"] = time.process_time() - process_began
        if rule == "PEPClassifier()":
            row["points"] = len(classifier.inducing_variable_.Z.numpy())
        yield rule, {**_class_scores(problem, classifier.predict_proba(problem.test[0])), **row}


def _class_scores(problem: Problem, probability: AnyNDArray) -> dict[str, float]:
    """The log loss, the part of the labels that are wrong, and the calibration error in 10 bins."""
    labels = problem.test[1][:, 0].astype(int)
    own = np.maximum(probability[np.arange(len(labels)), labels], 1e-12)
    wrong = np.argmax(probability, axis=1) != labels
    confidence = np.max(probability, axis=1)
    bins = np.minimum((10 * confidence).astype(int), 9)
    gaps = [np.sum(~wrong[bins == b]) - np.sum(confidence[bins == b]) for b in range(10)]
    error = float(np.sum(np.abs(gaps)) / len(labels))
    nlpd = -float(np.mean(np.log(own)))
    return {"nlpd": nlpd, "error_rate": float(np.mean(wrong)), "calibration_error": error}


def main() -> None:
    runner.command(__doc__, grid, lambda data: partial(evaluate, directory=data), summarise)


if __name__ == "__main__":
    main()
