"""Likelihoods of users with two latent functions, of which only the density is known."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.two_latents import TWO_LATENTS, NoisyStudentT, draw_rows
from helpers import assert_close

import gpflow_pep as pep
from gpflow_pep.likelihoods import log_power_expectation, tilted_derivatives

ALPHAS = 0.0, 0.5, 1.0
N = 6


def _arguments(name: str, largest: float = 0.4) -> Any:
    rng = np.random.default_rng(1)
    X, Y = draw_rows(name, N)
    mean = np.array(TWO_LATENTS[name].means) + rng.standard_normal((N, 2)) * [0.7, 0.4]
    variance = largest * 10.0 ** rng.uniform(-2.0, 0.0, (N, 2))
    rows = (tf.constant(np.tile(part, (3, 1))) for part in (X, mean, variance, Y))
    return *rows, np.repeat(ALPHAS, N)


@pytest.mark.parametrize(
    "name, largest", [*((name, 0.4) for name in TWO_LATENTS), ("NoisyStudentT", 1.0)]
)
def test_equals_dense_grids(name: str, largest: float) -> None:
    """By the trapezoid rule of 700 x 700 even nodes, where few nodes are enough and where not."""
    X, mean, variance, Y, alpha = _arguments(name, largest)
    kind: Any = TWO_LATENTS[name]
    z = np.linspace(-8.5, 8.5, 701)
    weights = np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum()
    expected = np.zeros((len(ALPHAS), N))
    for n in range(N):
        f, g = mean[n].numpy()[:, None] + np.sqrt(variance[n])[:, None] * z
        values = kind.log_density(f[:, None], g[None, :], float(Y[n, 0]))
        for k, a in enumerate(ALPHAS):
            sums = weights @ (np.exp(a * values) if a else values) @ weights
            expected[k, n] = np.log(sums) / a if a else sums
    actual = log_power_expectation(kind(), X, mean, variance, Y, alpha)
    assert_close(actual, expected.ravel(), rtol=1e-7 if largest < 1.0 else 1e-6, scale=1.0)


@pytest.mark.parametrize("name", TWO_LATENTS)
@pytest.mark.slow
def test_derivatives_equal_finite_differences(name: str) -> None:
    """Compiled, with rows that few nodes resolve and rows that need many."""
    X, mean, variance, Y, alpha = _arguments(name, largest=2.0 if name != "Weibull" else 0.4)
    likelihood: Any = TWO_LATENTS[name]()

    @tf.function(autograph=False)
    def derivatives(mean: Any) -> Any:
        return tilted_derivatives(likelihood, X, mean, variance, Y, alpha)

    actual, step = derivatives(mean), 1e-4
    for k in range(2):
        high, low = (derivatives(mean + s * step * np.eye(2)[k]) for s in (1.0, -1.0))
        for value, up, down in (
            (actual.delta1[:, k], high.ell, low.ell),
            (actual.delta2[:, k], high.delta1[:, k], low.delta1[:, k]),
        ):
            difference = (up - down) / (2.0 * step)
            assert_close(value, difference, rtol=1e-5, scale=1.0 + np.max(np.abs(difference)))


def test_gradient_in_a_parameter_equals_finite_differences() -> None:
    rows, likelihood = _arguments("NoisyStudentT", 2.0), NoisyStudentT()
    variable = likelihood.df.unconstrained_variable

    def value() -> Any:
        ell = log_power_expectation(likelihood, *rows)
        return tf.reduce_sum(ell * np.cos(np.arange(3.0 * N)))

    with tf.GradientTape() as tape:
        result = value()
    gradient, step, ends = tape.gradient(result, variable), 1e-4, []
    for change in (step, -2.0 * step):
        variable.assign_add(change)
        ends.append(value())
    assert_close(gradient, (ends[0] - ends[1]) / (2.0 * step), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO_LATENTS)
def test_a_model_is_trained(name: str) -> None:
    X, Y = draw_rows(name, 100)
    points = gpflow.inducing_variables.InducingPoints(X[::10].copy())
    model = pep.PEP(
        (X, Y),
        gpflow.kernels.SeparateIndependent([gpflow.kernels.RBF() for _ in range(2)]),
        TWO_LATENTS[name](),
        gpflow.inducing_variables.SharedIndependentInducingVariables(points),
        mean_function=gpflow.functions.Constant(np.array(TWO_LATENTS[name].means)),
    )
    before = float(model.pep_log_marginal_likelihood())
    pep.training.maximise(model, max_iterations=20, progress=False)
    assert float(model.pep_log_marginal_likelihood()) > before + 1.0
    assert np.corrcoef(model.predict_f(X)[0][:, 0], np.sin(2.0 * X[:, 0]))[0, 1] > 0.7
