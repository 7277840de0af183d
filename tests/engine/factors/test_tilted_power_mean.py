"""The power mean and its parts, for every power."""

from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close

from gpflow_pep.engine.numerics.power import (
    divide_by_power,
    expm1_over_power,
    fast_log1p_over_power,
    log1p_over_power,
    log_power_mean,
)

VALUES = np.array([-3.0, 0.2, 1.5, -0.7])
WEIGHTS = np.array([0.1, 0.4, 0.2, 0.3])
POWERS = (0.0, 1e-300, 1e-14, 1e-9, 1e-6, 1e-3, 0.04, 0.06, 0.5, 1.0)


def _expm1_ratio(x: float, alpha: float) -> float:
    """By the series, in exact fractions."""
    t, term, total = Fraction(alpha) * Fraction(x), Fraction(x), Fraction(0)
    for k in range(2, 40):
        total, term = total + term, term * t / k
    return float(total)


@pytest.mark.parametrize("alpha", POWERS)
def test_expm1_quotient_and_its_derivative(alpha: float) -> None:
    x = tf.constant([-2.0, -1e-9, 0.0, 0.3, 2.5], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = expm1_over_power(x, alpha)
    assert_close(value, [_expm1_ratio(float(one), alpha) for one in x], rtol=2e-16 * 8)
    assert_close(tape.gradient(value, x), np.exp(alpha * x.numpy()), rtol=1e-14)


@pytest.mark.parametrize("alpha", POWERS)
def test_log1p_quotient_and_its_derivatives(alpha: float) -> None:
    x = tf.constant([-0.9, -1e-9, 0.0, 0.3, 5e3], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = fast_log1p_over_power(x, alpha)
        first = tape.gradient(value, x)
    growth = 1.0 + alpha * x.numpy()
    np.testing.assert_allclose(value, log1p_over_power(x, alpha), rtol=1e-14)
    np.testing.assert_allclose(first, 1.0 / growth, rtol=1e-14)
    np.testing.assert_allclose(outer.gradient(first, x), -alpha / growth**2, rtol=1e-13, atol=1e-29)


@pytest.mark.parametrize("alpha", POWERS)
def test_log_power_mean_equals_its_series(alpha: float) -> None:
    # Around the mean, where the exact sum of fractions converges fast.
    origin = float(WEIGHTS @ VALUES)
    excess = sum(
        Fraction(float(w)) * Fraction(_expm1_ratio(v - origin, alpha))
        for v, w in zip(VALUES, WEIGHTS)
    )
    t = float(excess) * alpha
    expected = origin + (np.log1p(t) / alpha if t > 1e-12 else float(excess))
    assert_close(log_power_mean(VALUES, WEIGHTS, alpha), expected, rtol=1e-14)


@pytest.mark.parametrize("alpha", (0.0, 1e-12, 1e-3, 1.0))
def test_log_power_mean_derivatives(alpha: float) -> None:
    values, weights = tf.constant(VALUES), tf.constant(WEIGHTS)
    with tf.GradientTape() as tape:
        tape.watch((values, weights))
        mean = log_power_mean(values, weights, alpha)
    by_values, by_weights = tape.gradient(mean, (values, weights))
    tilted = WEIGHTS * np.exp(alpha * (VALUES - mean.numpy()))
    assert_close(by_values, tilted, rtol=1e-13)
    direction = np.array([1.0, -2.0, 0.5, 0.5])  # keeps the sum of the weights
    distance = VALUES - mean.numpy()
    expected = direction @ (np.expm1(alpha * distance) / alpha if alpha else distance)
    assert_close(by_weights.numpy() @ direction, expected, rtol=1e-12)


@pytest.mark.parametrize("alpha", (1e-6, 0.1, 1.0))
def test_log_power_mean_where_all_terms_underflow(alpha: float) -> None:
    values = np.array([-1e7, -2e9]) / alpha
    weights = np.array([1e-200, 1.0])
    expected = -1e7 / alpha + np.log(1e-200) / alpha
    assert_close(log_power_mean(values, weights, alpha), expected, rtol=1e-14)


def test_weights_that_vanish_do_not_matter() -> None:
    values = tf.constant([1.0, 1e300, 2.0], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(values)
        mean = log_power_mean(values, tf.constant([0.5, 0.0, 0.5], tf.float64), 0.5)
    expected = log_power_mean(np.array([1.0, 2.0]), np.array([0.5, 0.5]), 0.5)
    assert_close(mean, expected, rtol=1e-15)
    assert np.all(np.isfinite(tape.gradient(mean, values)))


def test_per_power() -> None:
    assert_close(
        divide_by_power(np.array([0.0, 3.0]), np.array([0.0, 0.5])), [0.0, 6.0], rtol=1e-16
    )
