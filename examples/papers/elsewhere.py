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
    """Fit CatBoost's trees, of regression with a variance of each row."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    settings = {
        "random_seed": 0,
        "thread_count": 1,
        "verbose": False,
        "allow_writing_files": False,
    }
    X_new = problem["X_new"]
    began = time.process_time()
    if problem["classes"]:
        model = CatBoostClassifier(**settings).fit(problem["X"], problem["y"])
        seconds = time.process_time() - began
        return {"probability": model.predict_proba(X_new), "seconds": seconds}
    model = CatBoostRegressor(loss_function="RMSEWithUncertainty", **settings)
    model.fit(problem["X"], problem["y"])
    seconds = time.process_time() - began
    mean, variance = model.predict(X_new).T
    return normal(mean, np.sqrt(variance), problem["y_new"], seconds)


def ngboost(problem: Any) -> dict[str, Any]:
    """Fit NGBoost's trees, of regression with a normal distribution of each row."""
    from ngboost import NGBClassifier, NGBRegressor
    from ngboost.distns import k_categorical

    X_new = problem["X_new"]
    began = time.process_time()
    if problem["classes"]:
        distribution = k_categorical(len(np.unique(problem["y"])))
        model = NGBClassifier(Dist=distribution, random_state=0, verbose=False)
        model.fit(problem["X"], problem["y"])
        seconds = time.process_time() - began
        return {"probability": model.predict_proba(X_new), "seconds": seconds}
    model = NGBRegressor(random_state=0, verbose=False)
    model.fit(problem["X"], problem["y"])
    seconds = time.process_time() - began
    predicted = model.pred_dist(X_new).params
    return normal(predicted["loc"], predicted["scale"], problem["y_new"], seconds)


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
