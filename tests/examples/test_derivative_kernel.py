"""A kernel of values and derivatives beside finite differences of the kernel
of values.
"""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern32, Matern52, RationalQuadratic, SquaredExponential
from helpers import assert_close, assert_gradients, uncompiled, value_and_gradients

import gpflow_pep as pep
from examples.derivative_kernel import ValueOrDerivative, rows_of

STEP = 1e-4
rng = np.random.default_rng(0)
X = rng.standard_normal((4, 3))
X2 = rng.standard_normal((5, 3))
SCALES = {"variance": 1.3, "lengthscales": [0.8, 1.5, 2.0]}
BASES = {
    "SquaredExponential": SquaredExponential(**SCALES),
    "RationalQuadratic": RationalQuadratic(alpha=0.7, **SCALES),
    "Matern52": Matern52(**SCALES),
    "Matern32": Matern32(**SCALES),
    "active": SquaredExponential(1.3, [0.8, 1.5], active_dims=[2, 0]),
    "one scale": SquaredExponential(1.3, 0.8, active_dims=slice(1, 3)),
}


def _moved(x: Any, which: int, by: float) -> Any:
    return x + by * np.eye(3)[which - 1] if which else x


def _by_differences(base: Any, x: Any, i: int, x2: Any, j: int) -> Any:
    """Differences over x for i above 0, and over x2 for j above 0."""
    total = 0.0
    signs = (1.0, -1.0)
    for sign in signs if i else (1.0,):
        for sign2 in signs if j else (1.0,):
            K = base(_moved(x, i, sign * STEP), _moved(x2, j, sign2 * STEP)).numpy()
            total = total + (sign if i else 1.0) * (sign2 if j else 1.0) * K
    return total / (2.0 * STEP) ** ((i > 0) + (j > 0))


@pytest.mark.near_copies("SquaredExponential", "active")
@pytest.mark.parametrize("name", BASES)
def test_covariances_equal_finite_differences(name: str) -> None:
    base = BASES[name]
    kernel = ValueOrDerivative(base)
    for i, j in np.ndindex(4, 4):
        actual = kernel(rows_of(X, i), rows_of(X2, j))
        assert_close(actual, _by_differences(base, X, i, X2, j), rtol=1e-6, scale=1.0)
    # One matrix of all kinds.
    rows = np.vstack([rows_of(X, kind) for kind in range(4)])
    K = kernel(rows).numpy()
    assert_close(K, K.T, rtol=1e-13, scale=1.0)
    assert np.linalg.eigvalsh(K).min() > -1e-10
    assert_close(kernel(rows, full_cov=False), np.diag(K), rtol=1e-10)
    assert_close(K[:4, :4], base(X), rtol=1e-12)
    assert_close(kernel(rows, rows), K, rtol=1e-12, scale=1.0)
    assert_close(kernel(rows.reshape(4, 4, 4))[1], K[4:8, 4:8], rtol=1e-12, scale=1.0)


@pytest.mark.near_copies("SquaredExponential")
@pytest.mark.parametrize(
    "name", ["SquaredExponential", "RationalQuadratic", "Matern52"]
)
def test_gradients_equal_finite_differences(name: str) -> None:
    """In the lengthscales, the variance and x; none in the last column."""
    kernel = ValueOrDerivative(gpflow.utilities.deepcopy(BASES[name]))
    rows = np.vstack([rows_of(X, kind) for kind in (0, 1, 3)])
    weights = rng.standard_normal((12, 12))

    def value(rows: Any) -> tf.Tensor:
        others = rows_of(X2[:4], 2)[[0] * 12]
        return tf.reduce_sum(weights * kernel(tf.convert_to_tensor(rows), others))

    inputs = tf.Variable(rows)
    assert_gradients(lambda: value(rows), kernel.trainable_variables, rtol=1e-6)
    _, (by_rows,) = value_and_gradients(lambda: value(inputs), [inputs])
    assert np.all(by_rows.numpy()[:, -1] == 0.0)
    along = rng.standard_normal(rows.shape) * [1.0, 1.0, 1.0, 0.0]
    difference = (value(rows + STEP * along) - value(rows - STEP * along)) / (
        2.0 * STEP
    )
    assert_close(tf.reduce_sum(by_rows * along), difference, rtol=1e-6)


def _data() -> Any:
    x = np.linspace(0.0, 6.0, 8)[:, None]
    rows = np.vstack([rows_of(x), rows_of(x, 1)])
    Y = np.vstack([np.sin(2.0 * x), 2.0 * np.cos(2.0 * x)])
    return rows, Y + 0.1 * rng.standard_normal(Y.shape)


@pytest.mark.near_copies("0.5")
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_models_equal_exact_regression(alpha: float) -> None:
    """With inducing inputs at all rows, of values and of slopes."""
    data = _data()
    kernel = ValueOrDerivative(SquaredExponential())
    likelihood = gpflow.likelihoods.Gaussian(0.01)
    Z = data[0].copy()
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-12)):
        exact = gpflow.models.GPR(data, kernel, likelihood=likelihood)
        regression = pep.PEPRegression(
            data, kernel, Z, alpha=alpha, likelihood=likelihood
        )
        sites = pep.PEP(data, kernel, likelihood, Z, alpha=alpha)
        expected = exact.log_marginal_likelihood()
        for model in (regression, sites):
            assert_close(model.pep_log_marginal_likelihood(), expected, rtol=1e-6)
            new = np.vstack(
                [rows_of(np.array([[0.4], [2.2]]), kind) for kind in (0, 1)]
            )
            for actual, other in zip(model.predict_f(new), exact.predict_f(new)):
                assert_close(actual, other, rtol=1e-5, scale=1.0)


@pytest.mark.slow
@uncompiled()
def test_training_moves_points_and_not_their_kinds() -> None:
    data = _data()
    Z = np.vstack(
        [rows_of(np.array([[1.0], [3.1], [5.0]])), rows_of(np.array([[1.5], [4.0]]), 1)]
    )
    kernel = ValueOrDerivative(SquaredExponential())
    model = pep.PEPRegression(data, kernel, Z.copy(), alpha=0.5)
    before = float(model.pep_log_marginal_likelihood())
    pep.training.maximise(model, max_iterations=15, progress=False)
    trained = model.inducing_variable.Z.numpy()
    assert float(model.pep_log_marginal_likelihood()) > before + 1.0
    assert np.all(trained[:, 1] == Z[:, 1]) and np.all(trained[:, 0] != Z[:, 0])


def test_kinds_that_are_none() -> None:
    kernel = ValueOrDerivative(SquaredExponential())
    x = np.array([[0.3, 3.0]])
    with pytest.raises(ValueError, match=r"X: got 3 in the last column.*or 1 to 1"):
        kernel(x)
    assert np.isnan(tf.function(kernel.K, autograph=False)(tf.constant(x))).all()
    with pytest.raises(
        ValueError, match=r"derivative: got 2, expected 0 for values.*1 to 1"
    ):
        rows_of(x[:, :1], 2)


@pytest.mark.parametrize(
    "base, message",
    [
        (gpflow.kernels.Matern12(), r"base: got Matern12, a function of the distance"),
        (gpflow.kernels.Linear(), r"base: got Linear, expected a stationary kernel"),
        (
            SquaredExponential() + SquaredExponential(),
            r"got Sum.*add kernels ValueOrDerivative",
        ),
    ],
    ids=["Matern12", "Linear", "Sum"],
)
def test_kernels_without_derivatives_are_refused(base: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ValueOrDerivative(base)
