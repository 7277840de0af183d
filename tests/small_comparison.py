"""One small comparison that several test modules look at; it is trained once."""

from functools import cache

import numpy as np

from gpflow_pep.compare import Comparison, Progress, compare
from gpflow_pep.datasets import Dataset

ALPHAS = (1.0, 0.0, 0.5)
PROGRESS: list[Progress] = []


def small_dataset() -> Dataset:
    rng = np.random.default_rng(1)
    X = np.round(rng.uniform(100.0, 106.0, size=(40, 1)), 3)
    Y = 2000.0 + 300.0 * np.sin(X) + 30.0 * rng.normal(size=X.shape)
    return Dataset(X, np.round(Y, 3), ("time",), "load")


@cache
def small_comparison() -> Comparison:
    return compare(
        small_dataset(),
        alphas=ALPHAS,
        num_inducing=6,
        max_iterations=15,
        seed=2,
        callback=PROGRESS.append,
    )
