"""Numbers that must be the same wherever they are computed; as a script, written to a file."""

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

RANDOM = np.random.default_rng(7)
X = RANDOM.uniform(-2.0, 2.0, (150, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.3 * RANDOM.standard_normal((len(X), 1))
LABELS = (Y > 0.0).astype(float)
CLASSES = np.digitize(Y, [-0.4, 0.4]).astype(float)
Z = X[::15].copy()
XNEW = RANDOM.uniform(-2.0, 2.0, (20, 2))

Numbers = list[Any]


def regression(**options: Any) -> Any:
    return pep.models.PEPRegression((X, Y), Matern32(), Z, noise_variance=0.1, **options)


def probit(**options: Any) -> Any:
    likelihood = gpflow.likelihoods.Bernoulli()
    return pep.models.PEP(
        (X, LABELS), SquaredExponential(), likelihood, Z, tolerance=1e-12, **options
    )


def robust_max(**options: Any) -> Any:
    likelihood = gpflow.likelihoods.MultiClass(3)
    return pep.models.PEP(
        (X, CLASSES), SquaredExponential(), likelihood, Z, tolerance=1e-12, **options
    )


def arpep() -> Any:
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return pep.models.ARPEP(Matern32(), likelihood, Z, num_data=len(X))


CHUNKED: dict[str, Callable[..., Any]] = {
    "PEPRegression": regression,
    "PEPRegression, scaled": lambda **options: regression(bound="tight", **options),
    "PEPRegression, blocks": lambda **options: regression(blocks=np.arange(150) // 5, **options),
    "PEP": probit,
}


def numbers(model: Any) -> Numbers:
    """The loss, its gradient, and predictions, of the parameters as they are."""
    variables = model.trainable_variables
    loss = gpflow.models.training_loss_closure(model, getattr(model, "data", (X, Y)), compile=False)
    with tf.GradientTape() as tape:
        value = loss()
    gradient = [tf.convert_to_tensor(part) for part in tape.gradient(value, variables)]
    flat = tf.concat([tf.reshape(part, [-1]) for part in gradient], axis=0)
    return [np.asarray(part) for part in (value, flat, *model.predict_f(XNEW))]


def _chosen(**rules: Callable[[], Any]) -> dict[str, Callable[[], Numbers]]:
    return {
        f"selection.{name}": lambda choose=choose: [np.asarray(choose().Z)]
        for name, choose in rules.items()
    }


def _fit() -> Numbers:
    model, optimizer = arpep(), tf_keras.optimizers.Adam(0.02)
    batches = pep.training.shuffled_batches((X, Y), 30, seed=3)
    record = pep.training.fit(
        model, batches, num_steps=30, optimizer=optimizer, natural_gradient=0.1, progress=False
    )
    return [record.losses, *model.predict_f(XNEW)]


def _fit_point() -> Numbers:
    model, optimizer = probit(), tf_keras.optimizers.Adam(0.02)
    batches = model.minibatch_training_loss_closure(30, seed=3)
    record = pep.training.fit(model, batches, num_steps=20, optimizer=optimizer, progress=False)
    return [record.losses, *model.predict_f(XNEW)]


def _maximise() -> Numbers:
    model = regression()
    record = pep.training.maximise(model, starts=3, seed=5, max_iterations=20, progress=False)
    return [np.array(record.objective), *model.predict_f(XNEW)]


def _estimator() -> Numbers:
    model = pep.estimators.PEPRegressor(num_inducing=10, random_state=2, max_iterations=20)
    return [model.fit(X, Y[:, 0]).predict(XNEW), model.sample_y(XNEW, 3, random_state=1)]


FIXED: dict[str, Callable[[], Numbers]] = {
    "regression": lambda: numbers(regression()),
    "probit": lambda: numbers(probit()),
    "RobustMax": lambda: numbers(robust_max()),
    "ARPEP": lambda: numbers(arpep()),
    **_chosen(
        random_subset=lambda: pep.training.starts.random_subset(X, 10, seed=3),
        kmeans=lambda: pep.training.starts.kmeans(X, 10, seed=3),
        greedy_variance=lambda: pep.training.starts.greedy_variance(
            X, 10, kernel=Matern32(), seed=3
        ),
        greedy_variational=lambda: pep.training.starts.greedy_variational(
            (X, Y), 10, kernel=Matern32(), noise_variance=0.1, seed=3
        ),
    ),
}
TRAINED = {"fit": _fit, "fit of PEP": _fit_point, "maximise": _maximise, "PEPRegressor": _estimator}


if __name__ == "__main__":
    found = {
        f"{name}/{k}": value
        for name, compute in {**FIXED, **TRAINED}.items()
        for k, value in enumerate(compute())
    }
    np.savez(sys.argv[1], **found)
