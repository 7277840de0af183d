"""Fit a method in an environment of its own, and write what it predicts.

    PYTHON_OF_AN_EARLIER_VERSION examples/papers/elsewhere.py earlier problem.npz predicted.npz
    PYTHON_WITH_CATBOOST examples/papers/elsewhere.py CatBoost problem.npz predicted.npz

The study runs this file with the interpreters that its environment variables name. It
imports nothing of the repository, and each method imports its own package.
"""

import sys
import time
from typing import Any

import numpy as np

#: The central interval is between these quantiles.
LOWER_AND_UPPER = (0.05, 0.95)
#: Boosting ends if so many more trees have not predicted the judged rows better.
PATIENCE = 50
#: The default of CatBoost, for NGBoost too.
MOST_TREES = 1000


def earlier(problem: Any) -> dict[str, Any]:
    """Fit the estimator of another version of this package with nothing set."""
    from gpflow_pep.estimators import PEPClassifier, PEPRegressor

    X_new = problem["X_new"]
    began = time.process_time()
    if problem["classes"]:
        model = PEPClassifier(random_state=0).fit(problem["X"], problem["y"])
        seconds = time.process_time() - began
        return {"probability": model.predict_proba(X_new), "seconds": seconds}
    model = PEPRegressor(random_state=0).fit(problem["X"], problem["y"])
    seconds = time.process_time() - began
    mean, sd = model.predict(X_new, return_std=True)
    return {
        "mean": mean,
        "sd": sd,
        "ends": model.predict_interval(X_new),
        "density": model.log_densities(X_new, problem["y_new"]),
        "seconds": seconds,
    }


def catboost(problem: Any) -> dict[str, Any]:
    """Fit CatBoost's trees; in regression they give each row a variance too."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    settings = {
        "random_seed": 0,
        "thread_count": 1,
        "verbose": False,
        "allow_writing_files": False,
        "early_stopping_rounds": PATIENCE,
    }
    X_new = problem["X_new"]
    began = time.process_time()
    train, judged = split(problem)
    if problem["classes"]:
        model = CatBoostClassifier(**settings).fit(*train, eval_set=judged)
        seconds = time.process_time() - began
        return {"probability": model.predict_proba(X_new), "seconds": seconds}
    model = CatBoostRegressor(loss_function="RMSEWithUncertainty", **settings)
    model.fit(*train, eval_set=judged)
    seconds = time.process_time() - began
    mean, variance = model.predict(X_new).T
    return normal(mean, np.sqrt(variance), problem["y_new"], seconds)


def ngboost(problem: Any) -> dict[str, Any]:
    """Fit NGBoost's trees, of regression with a normal distribution of each row."""
    from ngboost import NGBRegressor

    X_new = problem["X_new"]
    began = time.process_time()
    train, judged = split(problem)
    settings = {
        "n_estimators": MOST_TREES,
        "early_stopping_rounds": PATIENCE,
        "random_state": 0,
        "verbose": False,
    }
    model = NGBRegressor(**settings).fit(*train, *judged)
    seconds = time.process_time() - began
    predicted = model.pred_dist(X_new).params
    return normal(predicted["loc"], predicted["scale"], problem["y_new"], seconds)


def split(problem: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Leave a fifth of the rows out of training: they end it. With all 500 or 1000
    trees that are their defaults, both packages are far too certain of few rows.
    """
    rows = np.random.default_rng(0).permutation(len(problem["y"]))
    judged, train = np.split(rows, [len(rows) // 5])
    X = problem["X"]
    y = problem["y"]
    return (X[train], y[train]), (X[judged], y[judged])


def normal(mean: Any, sd: Any, y_new: Any, seconds: float) -> dict[str, Any]:
    """Collect moments, interval and log densities of normal distributions."""
    from scipy.stats import norm

    return {
        "mean": mean,
        "sd": sd,
        "ends": np.stack([norm.ppf(q, mean, sd) for q in LOWER_AND_UPPER], axis=1),
        "density": norm.logpdf(y_new, mean, sd),
        "seconds": seconds,
    }


METHODS = {"earlier": earlier, "CatBoost": catboost, "NGBoost": ngboost}


def predict(method: str, problem: Any) -> dict[str, Any]:
    """Train on X and y, and predict X_new: the arrays of the answer, by their names."""
    arrays = dict(problem)
    if arrays["classes"]:
        arrays["y"] = arrays["y"].astype(int)
    return METHODS[method](arrays)


if __name__ == "__main__":
    np.savez(sys.argv[3], **predict(sys.argv[1], np.load(sys.argv[2])))
