"""Functions of the power: exact limits and derivatives at every alpha."""

from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close, value_and_gradients

from gpflow_pep.engine.numerics import power
from gpflow_pep.engine.numerics.power import log1p_over_power, log_power_mean

VALUES = np.array([-3.0, 0.2, 1.5, -0.7])
WEIGHTS = np.array([0.1, 0.4, 0.2, 0.3])
POWERS = (0.0, 1e-300, 1e-14, 1e-9, 1e-6, 1e-3, 0.04, 0.049, 0.051, 0.06, 0.5, 1.0)
each_power = pytest.mark.parametrize("alpha", POWERS)


def _log1p_ratio(x: float, alpha: float) -> float:
    """log(1 + alpha x) / alpha with 700 digits."""
    if alpha == 0.0:
        return x
    getcontext().prec = 700
    return float((1 + Decimal(alpha) * Decimal(x)).ln() / Decimal(alpha))


def _expm1_ratio(x: float, alpha: float) -> float:
    t = Fraction(alpha) * Fraction(x)
    term = Fraction(x)
    total = Fraction(0)
    for k in range(2, 40):
        total = total + term
        term = term * t / k
    return float(total)


@each_power
def test_log1p_ratio_to_rounding(alpha: float) -> None:
    parts = (
        (-0.999999, -0.5, -1e-3, -1e-12, 0.0, 1e-300),
        (1e-12, 1e-3, 0.99, 1.01, 7.0, 1e3, 1e9),
    )
    x = np.concatenate(parts)
    expected = [_log1p_ratio(one, alpha) for one in x]
    np.testing.assert_allclose(
        log1p_over_power(x, alpha), expected, rtol=4e-15, atol=0.0
    )


@each_power
def test_log1p_ratio_derivatives(alpha: float) -> None:
    """Also of the fast one, twice; in alpha by its series where the closed form
    cancels.
    """
    x = tf.constant([-0.9, -0.5, -1e-9, 0.0, 1e-3, 0.07, 1.0, 30.0, 5e3], tf.float64)
    powers = tf.fill(x.shape, tf.constant(alpha, tf.float64))
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, powers])
            value = log1p_over_power(x, powers)
            fast = power.fast_log1p_over_power(x, alpha)
        first = tape.gradient(fast, x)
    t = alpha * x.numpy()
    series = sum((-1.0) ** k * k * t ** (k - 1) / (k + 1) for k in range(1, 60))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        closed = (1.0 / (1.0 + t) - np.log1p(t) / t) / t
    in_alpha = x.numpy() ** 2 * np.where(np.abs(t) < 0.3, series, closed)
    np.testing.assert_allclose(fast, value, rtol=1e-14)
    np.testing.assert_allclose(tape.gradient(value, x), 1.0 / (1.0 + t), rtol=1e-12)
    np.testing.assert_allclose(tape.gradient(value, powers), in_alpha, rtol=1e-11)
    np.testing.assert_allclose(first, 1.0 / (1.0 + t), rtol=1e-14)
    second = outer.gradient(first, x)
    np.testing.assert_allclose(second, -alpha / (1.0 + t) ** 2, rtol=1e-13, atol=1e-29)


@each_power
def test_expm1_quotient_and_its_derivative(alpha: float) -> None:
    x = tf.constant([-2.0, -1e-9, 0.0, 0.3, 2.5], tf.float64)
    value, (by_x,) = value_and_gradients(lambda: power.expm1_over_power(x, alpha), [x])
    assert_close(value, [_expm1_ratio(float(one), alpha) for one in x], rtol=2e-16 * 8)
    assert_close(by_x, np.exp(alpha * x.numpy()), rtol=1e-14)


@each_power
def test_log_power_mean_and_its_derivatives(alpha: float) -> None:
    # Around the mean, where the exact sum of fractions converges fast.
    origin = float(WEIGHTS @ VALUES)
    pairs = zip(VALUES, WEIGHTS)
    excess = sum(
        Fraction(float(w)) * Fraction(_expm1_ratio(v - origin, alpha)) for v, w in pairs
    )
    t = float(excess) * alpha
    expected = origin + (np.log1p(t) / alpha if t > 1e-12 else float(excess))
    parts = tf.constant(VALUES), tf.constant(WEIGHTS)
    both = value_and_gradients(lambda: log_power_mean(*parts, alpha), parts)
    mean, (by_values, by_weights) = both
    assert_close(mean, expected, rtol=1e-14)
    distance = VALUES - mean.numpy()
    assert_close(by_values, WEIGHTS * np.exp(alpha * distance), rtol=1e-13)
    direction = np.array([1.0, -2.0, 0.5, 0.5])  # keeps the sum of the weights
    expected = direction @ [_expm1_ratio(one, alpha) for one in distance]
    assert_close(by_weights.numpy() @ direction, expected, rtol=1e-12)


@pytest.mark.parametrize("alpha", (1e-6, 0.1, 1.0))
def test_log_power_mean_where_all_terms_underflow(alpha: float) -> None:
    values = np.array([-1e7, -2e9]) / alpha
    weights = np.array([1e-200, 1.0])
    expected = -1e7 / alpha + np.log(1e-200) / alpha
    assert_close(log_power_mean(values, weights, alpha), expected, rtol=1e-14)


def test_special_rows() -> None:
    """Weights that vanish do not matter; shapes broadcast; single precision stays."""
    values, weights = (
        tf.constant(p, tf.float64) for p in ([1.0, 1e300, 2.0], [0.5, 0.0, 0.5])
    )
    mean, (by_values,) = value_and_gradients(
        lambda: log_power_mean(values, weights, 0.5), [values]
    )
    expected = log_power_mean(np.array([1.0, 2.0]), np.array([0.5, 0.5]), 0.5)
    assert_close(mean, expected, rtol=1e-15)
    assert np.all(np.isfinite(by_values))
    quotient = power.divide_by_power(np.array([0.0, 3.0]), np.array([0.0, 0.5]))
    assert_close(quotient, [0.0, 6.0], rtol=1e-16)
    value = log1p_over_power(
        tf.constant([1.0, 2.0], tf.float32), tf.constant([[0.0], [1.0]])
    )
    assert value.dtype == tf.float32
    np.testing.assert_allclose(value, [[1.0, 2.0], np.log([2.0, 3.0])], rtol=1e-6)
