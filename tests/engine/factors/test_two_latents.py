"""Likelihoods of users with two latent functions, of which only the density is known."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.two_latents import TWO_LATENTS, NoisyStudentT, draw_rows
from helpers import assert_close

import gpflow_pep as pep
from gpflow_pep.engine.factors import nested
from gpflow_pep.engine.factors.generic import bounded

ALPHAS = 0.0, 0.5, 1.0
N = 6


def _arguments(name: str, largest: float = 0.4) -> Any:
    """Rows at every power: inputs, means, variances, targets, powers."""
    rng = np.random.default_rng(1)
    X, Y = draw_rows(name, N)
    mean = np.array(TWO_LATENTS[name].means) + rng.standard_normal((N, 2)) * [0.7, 0.4]
    variance = largest * 10.0 ** rng.uniform(-2.0, 0.0, (N, 2))
    rows = (np.tile(part, (3, 1)) for part in (X, mean, variance, Y))
    return *rows, np.repeat(ALPHAS, N)


def _by_dense_grid(log_density: Any, mean: Any, variance: Any, y: float, alpha: Any) -> Any:
    """By the trapezoid rule of 700 x 700 even nodes, at all powers."""
    z = np.linspace(-8.5, 8.5, 701)
    weights = np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum()
    f, g = (m + np.sqrt(v) * z for m, v in zip(mean, variance))
    values = log_density(f[:, None], g[None, :], y)
    return [
        np.log(weights @ np.exp(a * values) @ weights) / a if a else weights @ values @ weights
        for a in alpha
    ]


@pytest.mark.parametrize("name", TWO_LATENTS)
def test_equals_dense_grids(name: str) -> None:
    X, mean, variance, Y, alpha = _arguments(name)
    kind: Any = TWO_LATENTS[name]
    expected = np.array(
        [
            _by_dense_grid(kind.log_density, mean[n], variance[n], float(Y[n, 0]), ALPHAS)
            for n in range(N)
        ]
    )
    actual = pep.likelihoods.log_power_expectation(kind(), X, mean, variance, Y, alpha)
    assert_close(actual, expected.T.ravel(), rtol=1e-7, scale=1.0)


@pytest.mark.parametrize("name", TWO_LATENTS)
@pytest.mark.slow
def test_derivatives_equal_finite_differences(name: str) -> None:
    """Compiled, with rows that few nodes resolve and rows that need many."""
    X, mean, variance, Y, alpha = _arguments(name, largest=2.0 if name != "Weibull" else 0.4)
    likelihood: Any = TWO_LATENTS[name]()

    @tf.function(autograph=False)
    def derivatives(mean: Any, variance: Any) -> Any:
        return pep.likelihoods.tilted_derivatives(likelihood, X, mean, variance, Y, alpha)

    actual, step = derivatives(tf.constant(mean), tf.constant(variance)), 1e-4
    for k in range(2):
        one = step * np.eye(2)[k]
        high, low = (derivatives(tf.constant(mean + s * one), variance) for s in (1.0, -1.0))
        for value, parts in (
            (actual.delta1[:, k], (high.ell, low.ell)),
            (actual.delta2[:, k], (high.delta1[:, k], low.delta1[:, k])),
        ):
            difference = (parts[0] - parts[1]) / (2.0 * step)
            size = 1.0 + np.max(np.abs(difference))
            assert_close(value, difference, rtol=1e-5, scale=size)


def test_even_nodes_are_enough_for_some_rows_and_say_where_they_are_not() -> None:
    X, mean, variance, Y, alpha = (tf.constant(part) for part in _arguments("NoisyStudentT", 1.0))
    likelihood = NoisyStudentT()

    log_prob = bounded(lambda F: likelihood.log_prob(X, F, Y))
    quick, careful = nested._placings(2)
    rules = [(nested._even_axes(variance), True)]
    for placing, with_ends in ((quick, True), (careful, False)):
        tensors = placing.tensors(mean.dtype)
        placed = nested._placed_axes(log_prob, mean, variance, alpha, tensors)
        rules.append(([nested._Axis(*axis) for axis in placed], with_ends))
    even, placed, best = (
        nested._integrate_on_grid(axes, log_prob, mean, variance, alpha, with_ends=with_ends)
        for axes, with_ends in rules
    )
    by_even = even.error < 1e-5 * (1.0 + np.abs(even.value))
    by_placed = placed.error < 1e-5 * (1.0 + np.abs(placed.value))
    assert 3 <= np.sum(by_even) <= len(by_even) - 3
    assert np.sum(by_placed & ~by_even) >= 3
    for value, enough in ((even.value, by_even), (placed.value, by_placed)):
        assert_close(value[enough], best.value[enough], rtol=1e-7, scale=1.0)
    expected = np.where(by_even, even.value, np.where(by_placed, placed.value, best.value))
    actual = pep.likelihoods.log_power_expectation(likelihood, X, mean, variance, Y, alpha)
    assert_close(actual, expected, rtol=1e-12)


def test_gradient_in_a_parameter_equals_finite_differences() -> None:
    X, mean, variance, Y, alpha = _arguments("NoisyStudentT", 2.0)
    likelihood = NoisyStudentT()
    variable = likelihood.df.unconstrained_variable

    def value() -> Any:
        ell = pep.likelihoods.log_power_expectation(likelihood, X, mean, variance, Y, alpha)
        return tf.reduce_sum(ell * np.cos(np.arange(3.0 * N)))

    with tf.GradientTape() as tape:
        result = value()
    gradient, start, step = tape.gradient(result, variable), variable.numpy(), 1e-4
    variable.assign(start + step)
    high = value()
    variable.assign(start - step)
    assert_close(gradient, (high - value()) / (2.0 * step), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO_LATENTS)
def test_a_model_is_trained(name: str) -> None:
    X, Y = draw_rows(name, 100)
    kernels = [gpflow.kernels.SquaredExponential() for _ in range(2)]
    points = gpflow.inducing_variables.InducingPoints(X[::10].copy())
    mean = np.array(TWO_LATENTS[name].means)
    model = pep.PEP(
        (X, Y),
        gpflow.kernels.SeparateIndependent(kernels),
        TWO_LATENTS[name](),
        gpflow.inducing_variables.SharedIndependentInducingVariables(points),
        mean_function=gpflow.functions.Constant(mean),
    )
    before = float(model.pep_log_marginal_likelihood())
    pep.training.maximise(model, max_iterations=20, progress=False)
    assert float(model.pep_log_marginal_likelihood()) > before + 1.0
    assert np.corrcoef(model.predict_f(X)[0][:, 0], np.sin(2.0 * X[:, 0]))[0, 1] > 0.7
