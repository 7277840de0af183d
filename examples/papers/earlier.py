"""Fit the estimator of another version, in an environment of its own, with nothing set.

    PYTHON_OF_THAT_VERSION examples/papers/earlier.py problem.npz predicted.npz

The study runs this file where the environment variable GPFLOW_PEP_EARLIER names that
interpreter; it imports nothing of the repository.
"""

import sys
import time
from typing import Any

import numpy as np


def predict(problem: Any) -> dict[str, Any]:
    """Train on X and y, and predict X_new: the arrays of the answer, by their names."""
    from gpflow_pep.estimators import PEPClassifier, PEPRegressor

    X = problem["X"]
    y = problem["y"]
    X_new = problem["X_new"]
    began = time.process_time()
    if problem["classes"]:
        model = PEPClassifier(random_state=0).fit(X, y.astype(int))
        answer = {"probability": model.predict_proba(X_new)}
    else:
        model = PEPRegressor(random_state=0).fit(X, y)
        mean, sd = model.predict(X_new, return_std=True)
        answer = {"mean": mean, "sd": sd, "ends": model.predict_interval(X_new)}
        answer["density"] = model.log_densities(X_new, problem["y_new"])
    return {**answer, "seconds": time.process_time() - began}


if __name__ == "__main__":
    np.savez(sys.argv[2], **predict(np.load(sys.argv[1])))
