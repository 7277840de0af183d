"""Functions of the power: exact limits and derivatives at every alpha."""

from decimal import Decimal, getcontext

import numpy as np
import pytest
import tensorflow as tf

from gpflow_pep.engine.numerics.power import log1p_over_power

ALPHAS = [0.0, 1e-300, 1e-14, 1e-9, 1e-6, 1e-3, 0.049, 0.051, 0.3, 0.5, 1.0]
VALUES = [-0.999999, -0.5, -1e-3, -1e-12, 0.0, 1e-300, 1e-12, 1e-3, 0.99, 1.01, 7.0, 1e3, 1e9]


def exact(x: float, alpha: float) -> float:
    """log(1 + alpha x) / alpha with 700 digits."""
    if alpha == 0.0:
        return x
    getcontext().prec = 700
    return float((1 + Decimal(alpha) * Decimal(x)).ln() / Decimal(alpha))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_log1p_ratio_to_rounding(alpha: float) -> None:
    actual = log1p_over_power(tf.constant(VALUES, tf.float64), alpha).numpy()
    expected = [exact(x, alpha) for x in VALUES]
    np.testing.assert_allclose(actual, expected, rtol=4e-15, atol=0.0)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("x", [-0.5, 1e-3, 0.07, 1.0, 30.0])
def test_log1p_ratio_derivatives(x: float, alpha: float) -> None:
    t = alpha * x
    in_x = 1.0 / (1.0 + t)
    # d/dalpha of log(1 + alpha x) / alpha by its series where the closed form cancels
    series = sum((-1.0) ** k * k * t ** (k - 1) / (k + 1) for k in range(1, 60))
    in_alpha = x**2 * (series if abs(t) < 0.3 else (1.0 / (1.0 + t) - np.log1p(t) / t) / t)
    x_tensor, alpha_tensor = tf.constant(x, tf.float64), tf.constant(alpha, tf.float64)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x_tensor, alpha_tensor])
        value = log1p_over_power(x_tensor, alpha_tensor)
    np.testing.assert_allclose(tape.gradient(value, x_tensor), in_x, rtol=1e-12)
    np.testing.assert_allclose(tape.gradient(value, alpha_tensor), in_alpha, rtol=1e-11)


def test_log1p_ratio_broadcasts_and_keeps_float32() -> None:
    value = log1p_over_power(tf.constant([1.0, 2.0], tf.float32), tf.constant([[0.0], [1.0]]))
    assert value.dtype == tf.float32
    np.testing.assert_allclose(value, [[1.0, 2.0], np.log([2.0, 3.0])], rtol=1e-6)
