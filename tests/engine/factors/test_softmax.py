"""The softmax's one integral: against sums over a grid, and against what holds for
every moment.
"""

import itertools
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close, directional_slope, value_and_gradients
from scipy.special import gammaln, logsumexp

from gpflow_pep.engine.factors import softmax
from gpflow_pep.engine.numerics.softmax_in_numpy import (
    softmax_probabilities as in_numpy,
)
from gpflow_pep.likelihoods import log_power_expectation

each_power = pytest.mark.parametrize("alpha", (0.0, 1e-6, 0.1, 0.5, 1.0))
some_powers = pytest.mark.parametrize("alpha", (0.0, 0.5, 1.0))
few_and_many = pytest.mark.parametrize("L", [3, 10])


def _ell(label: Any, mean: Any, variance: Any, alpha: Any) -> Any:
    N, L = mean.shape
    Y = np.broadcast_to(np.asarray(label, float).reshape(-1, 1), (N, 1))
    likelihood = gpflow.likelihoods.Softmax(L)
    return log_power_expectation(likelihood, np.zeros((N, 1)), mean, variance, Y, alpha)


def _over_a_grid(
    label: int, mean: np.ndarray, variance: np.ndarray, alpha: float
) -> float:
    z = np.linspace(-8.0, 8.0, 51)
    F = mean + np.sqrt(variance) * np.array(
        list(itertools.product(z, repeat=len(mean)))
    )
    log_weights = -0.5 * np.sum(((F - mean) ** 2) / variance, axis=1)
    log_weights -= logsumexp(log_weights)
    log_p = F[:, label] - logsumexp(F, axis=1)
    if alpha < 1e-3:  # the third cumulant's share is below 1e-9
        first = np.exp(log_weights) @ log_p
        return float(first + 0.5 * alpha * np.exp(log_weights) @ (log_p - first) ** 2)
    return float(logsumexp(log_weights + alpha * log_p)) / alpha


def _wide_moments(rng: np.random.Generator, L: int) -> "tuple[np.ndarray, np.ndarray]":
    return rng.uniform(-50.0, 50.0, (200, L)), 10.0 ** rng.uniform(-6.0, 6.0, (200, L))


@pytest.mark.near_copies("0.5")
@each_power
def test_values(alpha: float, rng: np.random.Generator) -> None:
    mean = rng.normal(0.0, 2.0, (6, 3))
    variance = 10.0 ** rng.uniform(-3.0, 0.7, (6, 3))
    expected = [_over_a_grid(2, m, v, alpha) for m, v in zip(mean, variance)]
    assert_close(_ell(2, mean, variance, alpha), expected, rtol=1e-5, scale=1.0)
    mean = rng.normal(0.0, 20.0, (50, 5))
    expected = mean[:, 3] - logsumexp(mean, axis=1)
    assert_close(
        _ell(3, mean, np.full((50, 5), 1e-12), alpha), expected, rtol=1e-5, scale=1.0
    )
    mean, variance = _wide_moments(rng, 3)
    more = (
        np.hstack([mean, np.full((200, 1), -5e4)]),
        np.hstack([variance, np.ones((200, 1))]),
    )
    assert_close(
        _ell(1, *more, alpha), _ell(1, mean, variance, alpha), rtol=1e-4, scale=1.0
    )


@pytest.mark.parametrize("L", [2, 3, 10])
def test_probabilities_sum_to_one_at_every_width(
    L: int, rng: np.random.Generator
) -> None:
    mean, variance = _wide_moments(rng, L)
    total = sum(np.exp(_ell(label, mean, variance, 1.0)) for label in range(L))
    assert_close(total, np.ones(200), rtol=1e-4)


def test_the_sum_of_bumps_is_the_gumbel_distribution() -> None:
    x = np.linspace(-4.0, 40.0, 4001)
    none = tf.zeros((1, 1, 1), tf.float64)
    rise = softmax._gumbel_plus_gaussian(tf.constant(x[None, :, None]), none)
    error = np.abs(np.exp(rise.log_cdf.numpy().ravel()) - np.exp(-np.exp(-x)))
    assert np.max(error / np.minimum(1.0, np.exp(x))) <= 6e-7


@pytest.mark.near_copies("3-*", "10-0.5")
@some_powers
@few_and_many
def test_the_variance_acts_as_the_heat_equation_says(
    alpha: float, L: int, rng: Any
) -> None:
    decades = np.repeat(np.arange(-3.0, 4.0), 6)[:, None]
    mean = tf.constant(rng.normal(0.0, 2.0, (42, L)) * np.sqrt(1.0 + 10.0**decades))
    variance = tf.constant(10.0 ** (decades + rng.uniform(-0.5, 0.5, (42, L))))
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(mean)
        with tf.GradientTape() as tape:
            tape.watch((mean, variance))
            ell = _ell(
                np.arange(42) % L, mean, variance, tf.constant(alpha, tf.float64)
            )
        by_mean, by_variance = tape.gradient(ell, (mean, variance))
        columns = tf.unstack(by_mean, axis=1)
    second = tf.stack(
        [outer.gradient(c, mean)[:, k] for k, c in enumerate(columns)], axis=1
    )
    expected = 0.5 * (second + alpha * by_mean**2)
    assert_close(variance * by_variance, variance * expected, rtol=1e-6, scale=1.0)


@pytest.mark.near_copies("3-0.5")
@some_powers
@few_and_many
def test_derivatives_equal_finite_differences(
    alpha: float, L: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Differences magnify the errors of values.
    monkeypatch.setattr(softmax, "_STEP", 0.2)
    mean = rng.normal(0.0, 2.0, (5, L))
    variance = 10.0 ** rng.uniform(-2.0, 1.0, (5, L))
    variables = [tf.Variable(part) for part in (mean, variance, np.array([alpha]))]
    direction = [rng.standard_normal(part.shape) * part for part in variables]

    def ell() -> tf.Tensor:
        return tf.reduce_sum(_ell(np.arange(5) % L, *variables))

    def along(function: Any) -> tf.Tensor:
        _, by = value_and_gradients(function, variables)
        return tf.add_n([tf.reduce_sum(g * d) for g, d in zip(by, direction)])

    for function, rtol in ((ell, 1e-5), (lambda: along(ell), 1e-4)):
        difference = directional_slope(function, variables, direction)
        assert_close(along(function), difference, rtol=rtol, scale=1.0)


def test_probabilities_of_all_classes_at_once(rng: np.random.Generator) -> None:
    """Those of SciPy's integral, and of NumPy alone, down to the smallest."""
    mean = rng.normal(0.0, 3.0, (6, 4))
    variance = 10.0 ** rng.uniform(-3.0, 1.5, (6, 4))
    probabilities = softmax.softmax_probabilities(
        tf.constant(mean), tf.constant(variance)
    ).numpy()
    assert_close(in_numpy(mean, variance), probabilities, rtol=1e-8)
    expected = np.stack(
        [np.exp(_ell(c, mean, variance, 1.0)) for c in range(4)], axis=1
    )
    assert_close(probabilities, expected, rtol=1e-6)
    sure = np.array([[0.0, -20.0, -300.0]])
    expected = np.exp(sure - logsumexp(sure))
    assert_close(in_numpy(sure, np.full((1, 3), 1e-9)), expected, rtol=1e-5)


def test_log_gamma_ratio() -> None:
    alpha = np.array([0.0, 1e-3, 0.2, 0.5, 1.0])
    expected = [-np.euler_gamma, *(gammaln(1.0 + alpha[1:]) / alpha[1:])]
    assert_close(softmax._log_gamma_ratio(tf.constant(alpha)), expected, rtol=1e-12)
