"""Small comparisons that several test modules look at; each is trained once."""

from functools import cache

import numpy as np

from gpflow_pep.compare import Comparison, Dataset, Progress, compare

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


CLASSES = ("ham", "spam", "toast")


def small_classes(num_classes: int) -> Dataset:
    rng = np.random.default_rng(4)
    X = rng.uniform(0.0, 50.0, size=(45, 2))
    latent = np.sin(X[:, 0] / 15.0) + 0.2 * rng.normal(size=45)
    Y = np.digitize(latent, np.quantile(latent, [0.4, 0.7][: num_classes - 1]))
    return Dataset(X, Y[:, None].astype(float), ("length", "width"), "mail", CLASSES[:num_classes])


@cache
def small_classification(num_classes: int) -> Comparison:
    alphas = (0.0, 1.0) if num_classes == 2 else (0.5,)
    return compare(
        small_classes(num_classes), alphas=alphas, num_inducing=5, max_iterations=6, seed=1
    )
