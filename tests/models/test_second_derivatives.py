"""Products with second derivatives of losses in closed form, against differences of gradients."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close

import gpflow_pep as pep

rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, (12, 1))
Y = np.hstack([np.sin(2.0 * X), np.cos(2.0 * X)]) + 0.1 * rng.standard_normal((12, 2))
ALPHAS = (0.0, 1e-6, 0.3, 0.5, 1.0)


def mixed(alpha: float) -> pep.PEPRegression:
    """With rows at inducing inputs, where nothing is left of f given u."""
    kernels = [gpflow.kernels.SquaredExponential(1.0, length) for length in (0.6, 1.2)]
    kernel = gpflow.kernels.LinearCoregionalization(kernels, W=np.array([[1.0, 0.3], [-0.5, 0.8]]))
    return pep.PEPRegression((X, Y), kernel, X[::3].copy(), noise_variance=[0.1, 0.2], alpha=alpha)


def with_memory(alpha: float) -> pep.PEPRegression:
    """Of points that are kept, and have not moved yet."""

    def model(rows: slice, **options: Any) -> pep.PEPRegression:
        data, kernel = (X[rows], Y[rows, :1]), gpflow.kernels.SquaredExponential()
        return pep.PEPRegression(
            data, kernel, X[:4] + 0.1, noise_variance=0.1, alpha=alpha, **options
        )

    return model(slice(6, 12), memory=model(slice(0, 6)).remember())


def check(
    model: Any, function: Callable[[], tf.Tensor], step: float = 1e-3, rtol: float = 1e-6
) -> None:
    """In all trainable variables at once, each in a direction of its own."""
    variables, random = model.trainable_variables, np.random.default_rng(1)
    direction = [random.standard_normal(variable.shape) for variable in variables]
    start = [variable.numpy() for variable in variables]

    def slope() -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = function()
        parts = zip(tape.gradient(value, variables), direction, strict=True)
        return tf.add_n(
            [tf.reduce_sum(tf.convert_to_tensor(part) * along) for part, along in parts]
        )

    with tf.GradientTape() as tape:
        along = slope()
    zero = tf.UnconnectedGradients.ZERO
    product = tape.gradient(along, variables, unconnected_gradients=zero)
    actual = sum(np.sum(tf.convert_to_tensor(a) * b) for a, b in zip(product, direction))
    expected = 0.0
    for offset, weight in ((-2, 1.0), (-1, -8.0), (1, 8.0), (2, -1.0)):
        for variable, value, part in zip(variables, start, direction, strict=True):
            variable.assign(value + step * offset * part)
        expected += weight * float(slope()) / (12.0 * step)
    assert_close(actual, expected, rtol=rtol)


@pytest.mark.near_copies("*-0.0", "*-0.3", "*-1.0")
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("make", [mixed, with_memory])
def test_losses(make: Callable[[float], pep.PEPRegression], alpha: float) -> None:
    model = make(alpha)
    check(model, model.training_loss)


#: Kernels with Matern parts, whose distances are 0 where rows are inducing inputs.
MATERN: dict[str, Callable[[], gpflow.kernels.Kernel]] = {
    "3/2": gpflow.kernels.Matern32,
    "5/2": gpflow.kernels.Matern52,
    "sum and product": lambda: (
        gpflow.kernels.Matern32() + gpflow.kernels.Matern52() * gpflow.kernels.SquaredExponential()
    ),
}


@pytest.mark.parametrize("name", MATERN)
def test_rows_at_inducing_inputs(name: str) -> None:
    kernel = MATERN[name]()
    model = pep.PEPRegression((X, Y[:, :1]), kernel, X[::3].copy(), noise_variance=0.1, alpha=0.5)
    check(model, model.training_loss, step=1e-5, rtol=1e-4)  # third derivatives jump there


@pytest.mark.parametrize("name", MATERN)
def test_predictions_at_a_row(name: str) -> None:
    data = np.array([[0.0], [1.0], [2.5]]), np.array([[0.5], [-1.0], [0.7]])
    model = pep.PEPRegression(data, MATERN[name](), data[0].copy(), noise_variance=0.01, alpha=0.5)
    x = tf.Variable([[1.0]], dtype=tf.float64)

    def slope(predict: Callable[[tf.Variable], tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            mean = predict(x)
        return tape.gradient(mean, x)

    posterior = model.posterior()
    for predict in (lambda x: model.predict_f(x)[0], lambda x: posterior.predict_f(x)[0]):
        with tf.GradientTape() as tape:
            by_x = slope(predict)
        actual, step = tape.gradient(by_x, x), 1e-5
        slopes = []
        for moved in (1.0 + step, 1.0 - step):
            x.assign([[moved]])
            slopes.append(float(slope(predict)))
        x.assign([[1.0]])
        assert_close(actual, [[(slopes[0] - slopes[1]) / (2.0 * step)]], rtol=1e-3)


def test_compiled_with_all_tapes_outside() -> None:
    model = mixed(0.5)
    check(model, tf.function(model.training_loss, autograph=False))
