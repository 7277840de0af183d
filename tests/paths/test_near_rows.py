"""Functions of models with neighbours: u and near training rows."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.models import XNEW
from helpers import Array, assert_close, regression_problem

import gpflow_pep as pep

NUM_PATHS, M = 2000, 3
PROBLEM = regression_problem(3, num_data=25, num_outputs=2)


def model(**options: Any) -> pep.PEPRegression:
    options = {"neighbours": M, "mean_function": gpflow.functions.Constant(0.5), **options}
    return PROBLEM.model(pep.PEPRegression, **options)


def joint_moments(source: pep.PEPRegression, X: Array) -> tuple[Array, Array]:
    """
    Mean [N, P] and covariance [N, N], by NumPy, from the joint distribution of f under u alone.

    That is of the new rows and all training rows; the functions are linear in it and in the noise.
    """
    rows = np.vstack([X, PROBLEM.X])
    mean, covariance = map(np.asarray, source.predict_f(rows, full_cov=True, neighbours=0))
    to_u = PROBLEM.covariance(rows, PROBLEM.Z)
    Kuu = PROBLEM.covariance(PROBLEM.Z, PROBLEM.Z) + 1e-6 * np.eye(len(PROBLEM.Z))
    D = PROBLEM.covariance(rows, rows) - to_u @ np.linalg.solve(Kuu, to_u.T)
    scaled = rows / np.asarray(PROBLEM.lengthscales)
    distances = np.sum(np.square(scaled[: len(X), None] - scaled[len(X) :]), axis=-1)
    by_rows = np.zeros((len(X), len(PROBLEM.X)))
    for n, near in enumerate(np.argsort(distances, axis=1)[:, :M]):
        places = len(X) + near
        noisy = D[np.ix_(places, places)] + PROBLEM.noise_variance * np.eye(M)
        by_rows[n, near] = np.linalg.solve(noisy, D[places, n])
    linear = np.hstack([np.eye(len(X)), -by_rows])
    spread = linear @ covariance[0] @ linear.T + PROBLEM.noise_variance * by_rows @ by_rows.T
    return mean[: len(X)] + by_rows @ (PROBLEM.Y - mean[len(X) :]), spread


@pytest.mark.near_copies("0.5")
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_moments(alpha: float) -> None:
    source = model(alpha=alpha)
    X = np.vstack([XNEW, PROBLEM.X[:2]])  # training inputs are inputs like others
    mean, covariance = joint_moments(source, X)
    predicted = source.predict_f(X)
    assert_close(mean, predicted[0], rtol=1e-8)  # the reference is of what is predicted
    assert_close(np.diag(covariance), predicted[1][:, 0], rtol=1e-6)
    values = source.paths(NUM_PATHS, 32)(X).numpy()
    for output in range(2):
        apart = values[:, :, output] - mean[:, output]
        z = apart.mean(0) / np.sqrt(np.diag(covariance) / NUM_PATHS)
        assert np.max(np.abs(z)) < 4.0
        products = apart[:, :, None] * apart[:, None, :]
        z = (products.mean(0) - covariance) / (products.std(0) / np.sqrt(NUM_PATHS))
        assert np.max(np.abs(z)) < 4.0


def gradient_of(function: Callable[[Any], tf.Tensor], X: tf.Tensor) -> Array:
    with tf.GradientTape() as tape:
        tape.watch(X)
        total = tf.reduce_sum(tf.sin(function(X)))
    return np.asarray(tape.gradient(total, X))


def test_each_in_a_graph_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pep.paths.near_rows, "CHUNK_ELEMENTS", 200)
    paths = model().paths(3, 20)
    X = tf.stack([tf.constant(XNEW) + 0.1 * k for k in range(3)])
    values = paths.each(X)
    for k in range(3):
        assert_close(values[k], paths(X[k])[k], rtol=1e-10)
    compiled = tf.function(paths.each, input_signature=[tf.TensorSpec([3, None, 2], X.dtype)])
    assert_close(compiled(X), values, rtol=1e-10)
    gradient = gradient_of(paths.each, X)
    assert_close(gradient_of(compiled, X), gradient, rtol=1e-10)
    direction, step = np.random.default_rng(0).standard_normal(X.shape), 1e-6
    ends = [np.sum(np.sin(paths.each(X + k * step * direction))) for k in (-1, 1)]
    assert_close(np.sum(gradient * direction), (ends[1] - ends[0]) / (2.0 * step), rtol=1e-7)


@pytest.mark.slow
def test_update_with_other_rows(tmp_path: Any) -> None:
    source = model()
    paths = source.paths(3, 20)
    X = tf.constant(XNEW)
    paths.compiled = tf.function(
        paths.__call__, input_signature=[tf.TensorSpec([None, 2], X.dtype)]
    )
    before = paths.compiled(X)
    source.data = np.vstack([PROBLEM.X, PROBLEM.X + 0.1]), np.vstack([PROBLEM.Y, PROBLEM.Y + 1.0])
    assert_close(paths(X), before, rtol=1e-12)
    paths.update()
    assert_close(paths.compiled(X), source.paths(3, 20)(X), rtol=1e-10)
    assert np.max(np.abs(paths(X) - before)) > 0.1
    tf.saved_model.save(paths, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert_close(loaded.compiled(X), paths(X), rtol=1e-12)


def test_kernel_for_all_outputs() -> None:
    """The same model with the kernel in ``SharedIndependent``."""
    points = gpflow.inducing_variables.InducingPoints(PROBLEM.Z.copy())
    shared = pep.PEPRegression(
        PROBLEM.data,
        gpflow.kernels.SharedIndependent(PROBLEM.kernel(), 2),
        gpflow.inducing_variables.SharedIndependentInducingVariables(points),
        noise_variance=PROBLEM.noise_variance,
        mean_function=gpflow.functions.Constant(0.5),
        neighbours=M,
    )
    assert_close(shared.paths(3, 20)(XNEW), model().paths(3, 20)(XNEW), rtol=1e-10)
