"""Numbers that must be the same wherever they are computed; as a script, written to a
file.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras
from gpflow.kernels import Matern32, SquaredExponential

import gpflow_pep as pep
from gpflow_pep.training import starts

RANDOM = np.random.default_rng(7)
X = RANDOM.uniform(-2.0, 2.0, (150, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.3 * RANDOM.standard_normal((len(X), 1))
LABELS = (Y > 0.0).astype(float)
CLASSES = np.digitize(Y, [-0.4, 0.4]).astype(float)
Z = X[::15].copy()
XNEW = RANDOM.uniform(-2.0, 2.0, (20, 2))

Numbers = list[Any]


def regression() -> Any:
    return pep.models.PEPRegression((X, Y), Matern32(), Z, noise_variance=0.1)


def by_sites(Y: Any, likelihood: Any) -> Any:
    return pep.models.PEP((X, Y), SquaredExponential(), likelihood, Z, tolerance=1e-12)


def probit() -> Any:
    return by_sites(LABELS, gpflow.likelihoods.Bernoulli())


def arpep() -> Any:
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return pep.models.ARPEP(Matern32(), likelihood, Z, num_data=len(X))


def numbers(model: Any) -> Numbers:
    """The loss, its gradient, and predictions, of the parameters as they are."""
    variables = model.trainable_variables
    loss = gpflow.models.training_loss_closure(
        model, getattr(model, "data", (X, Y)), compile=False
    )
    with tf.GradientTape() as tape:
        value = loss()
    gradient = [tf.convert_to_tensor(part) for part in tape.gradient(value, variables)]
    flat = tf.concat([tf.reshape(part, [-1]) for part in gradient], axis=0)
    return [np.asarray(part) for part in (value, flat, *model.predict_f(XNEW))]


def _fit(model: Any = None, **options: Any) -> Numbers:
    """ARPEP, or a model by its own minibatches."""
    options = {
        "optimizer": tf_keras.optimizers.Adam(0.02),
        "progress": False,
        **options,
    }
    if model is None:
        model = arpep()
        batches = pep.training.shuffled_batches((X, Y), 30, seed=3)
        options |= {"num_steps": 30, "natural_gradient": 0.1}
    else:
        batches = model.minibatch_training_loss_closure(30, seed=3)
    record = pep.training.fit(model, batches, **options)
    return [record.losses, *model.predict_f(XNEW)]


def _maximise() -> Numbers:
    model = regression()
    record = pep.training.maximise(
        model, starts=3, seed=5, max_iterations=20, progress=False
    )
    return [np.array(record.objective), *model.predict_f(XNEW)]


def _estimator() -> Numbers:
    model = pep.estimators.PEPRegressor(
        num_inducing=10, random_state=2, max_iterations=20
    )
    return [
        model.fit(X, Y[:, 0]).predict(XNEW),
        model.sample_y(XNEW, 3, random_state=1),
    ]


# Kernels are made when called for: where a module has computed, no process can be
# forked.
CHOSEN: dict[str, Callable[..., Any]] = {
    "random_subset": lambda M: starts.random_subset(X, M, seed=3),
    "kmeans": lambda M: starts.kmeans(X, M, seed=3),
    "greedy_variance": lambda M: starts.greedy_variance(
        X, M, kernel=Matern32(), seed=3
    ),
    "greedy_variational": lambda M: starts.greedy_variational(
        (X, Y), M, kernel=Matern32(), noise_variance=0.1, seed=3
    ),
}
FIXED: dict[str, Callable[[], Numbers]] = {
    "regression": lambda: numbers(regression()),
    "probit": lambda: numbers(probit()),
    "RobustMax": lambda: numbers(by_sites(CLASSES, gpflow.likelihoods.MultiClass(3))),
    "ARPEP": lambda: numbers(arpep()),
    **{
        f"selection.{name}": lambda rule=rule: [np.asarray(rule(10).Z)]
        for name, rule in CHOSEN.items()
    },
}
TRAINED = {
    "fit": _fit,
    "fit of PEP": lambda: _fit(probit(), num_steps=20),
    "maximise": _maximise,
}
TRAINED["PEPRegressor"] = _estimator


if __name__ == "__main__":
    found = {
        f"{name}/{k}": value
        for name, compute in {**FIXED, **TRAINED}.items()
        for k, value in enumerate(compute())
    }
    np.savez(sys.argv[1], **found)
