"""Noise whose variance depends on the inputs, and a warp: against dense NumPy."""

from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.base import AnyNDArray
from helpers import assert_gradients
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal, norm

from gpflow_pep.likelihoods import LogLinear
from gpflow_pep.models import PEPRegression
from gpflow_pep.scoring.predictive import Predictive
from gpflow_pep.scoring.units import Units
from gpflow_pep.training import weights_of_means

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (14, 2))
X[3] = [4.0, -5.0]  # its noise is that at 3, -3
Y = np.sin(2.0 * X[:, :1]) + 0.3 * RNG.normal(size=(14, 1))
XNEW = np.array([[0.3, -0.2], [9.0, 1.0]])
W = np.array([0.6, -0.3])
UNITS = Units(1.5, 0.2, False, 0.4, -0.3)


@pytest.fixture(autouse=True)
def small_jitter() -> Any:
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-11)):
        yield


def model(alpha: float, Z: AnyNDArray = X, Y: AnyNDArray = Y) -> PEPRegression:
    noise = LogLinear(2, variance=0.1)
    noise.weights.assign(W[:, None])
    likelihood = gpflow.likelihoods.Gaussian(variance=noise)
    kernel = gpflow.kernels.Matern32(1.2, [0.7, 1.1])
    return PEPRegression((X, Y), kernel, Z.copy(), alpha=alpha, likelihood=likelihood, chunk_size=5)


def noise_at(X: AnyNDArray) -> AnyNDArray:
    exponent: AnyNDArray = np.clip(X, -3.0, 3.0) @ W
    return 0.1 * np.exp(exponent)


def covariance(A: AnyNDArray, B: AnyNDArray) -> AnyNDArray:
    r = np.sqrt(3.0 * np.sum(((A[:, None] - B) / [0.7, 1.1]) ** 2, axis=-1))
    value: AnyNDArray = 1.2 * (1.0 + r) * np.exp(-r)
    return value


def exact(rows: AnyNDArray, y: AnyNDArray, new: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Mean and variance of new targets given others."""
    K = covariance(X[rows], X[rows]) + np.diag(noise_at(X[rows]))
    k = covariance(X[rows], new)
    mean = k.T @ np.linalg.solve(K, y)
    variance = 1.2 + noise_at(new) - np.sum(k * np.linalg.solve(K, k), axis=0)
    return mean, variance


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_log_z_and_predictions_are_those_of_the_exact_model(alpha: float) -> None:
    every = model(alpha)
    K = covariance(X, X) + np.diag(noise_at(X))
    log_z = multivariate_normal(np.zeros(14), K).logpdf(Y[:, 0])
    assert_allclose(every.pep_log_marginal_likelihood(), log_z, rtol=1e-8)
    moments = every.predict_y(XNEW)
    for new, expected in zip(moments, exact(np.arange(14), Y[:, 0], XNEW)):
        assert_allclose(new[:, 0], expected, rtol=1e-8, atol=1e-9)
    # The prior on the weights is a part of what is maximised.
    log_prior = every.log_posterior_density() - every.pep_log_marginal_likelihood()
    assert_allclose(log_prior, norm(scale=0.6 / np.sqrt(2.0)).logpdf(W).sum(), rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_log_z_of_fewer_points(alpha: float) -> None:
    sparse = model(alpha, X[::3])
    k = covariance(X[::3], X)
    Q = k.T @ np.linalg.solve(covariance(X[::3], X[::3]), k)
    d, s = 1.2 - np.diag(Q), noise_at(X)
    log_z = multivariate_normal(np.zeros(14), Q + np.diag(alpha * d + s)).logpdf(Y[:, 0])
    log_z -= 0.5 * (1.0 - alpha) / alpha * np.sum(np.log1p(alpha * d / s))
    assert_allclose(sparse.pep_log_marginal_likelihood(), log_z, rtol=1e-8)
    variables = sparse.likelihood.trainable_variables
    assert len(variables) == 2
    assert_gradients(sparse.training_loss, variables, rtol=1e-7)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_leave_one_out_with_noise_and_warp_is_that_of_refits(alpha: float) -> None:
    y = Y[:, 0]
    t = UNITS.transform(y)
    mean, variance = (part.numpy()[:, 0] for part in model(alpha, Y=t[:, None]).loo_moments())
    left_out = Predictive(mean[None], variance[None], np.ones(1), UNITS)
    densities, scores = left_out.log_densities(y), left_out.normal_scores(y)
    for n in range(14):
        others = np.delete(np.arange(14), n)
        (m,), (v,) = exact(others, t[others], X[n : n + 1])
        assert_allclose([mean[n], variance[n]], [m, v], rtol=1e-8, atol=1e-9)
        slope = (UNITS.transform(y[n] + 1e-6) - UNITS.transform(y[n] - 1e-6)) / 2e-6
        assert_allclose(densities[n], norm.logpdf(t[n], m, np.sqrt(v)) + np.log(slope), atol=1e-8)
        assert_allclose(scores[n], (t[n] - m) / np.sqrt(v), rtol=1e-8, atol=1e-8)


def test_inputs_that_are_missing_or_far_away() -> None:
    noise = model(0.5).likelihood.variance
    assert_allclose(noise(np.array([[np.nan, np.nan], [0.0, 0.0]]))[:, 0], 0.1)
    assert_allclose(
        noise(np.array([[1e9, 1.0], [3.0, 1.0]]))[:, 0],
        np.repeat(noise_at(np.array([[3.0, 1.0]])), 2),
    )
    with pytest.raises(ValueError, match="LogLinear: got 3 inputs, expected 2, as it was made for"):
        noise(np.ones((1, 3)))
    with pytest.raises(ValueError, match="variance: got 0"):
        LogLinear(2, variance=0.0)
    with pytest.raises(ValueError, match="num_inputs: got 0"):
        LogLinear(0)


@pytest.mark.parametrize("number", [1, 4])
def test_weights_of_means_are_the_least_squares_of_the_simplex(number: int) -> None:
    targets = RNG.normal(size=30)
    means = targets + 0.5 * RNG.normal(size=(number, 30))
    w = np.full(number, 1.0 / number)
    if number > 1:  # one whose share would be below 0
        w = np.array([0.4, 0.3, 0.28, 0.02])
        means[-1] = 10.0 * (means[:3].mean(axis=0) - targets)
    u = weights_of_means(means, targets, w)
    assert_allclose(u.sum(), 1.0, rtol=1e-12)
    assert np.all(u >= 0.0)
    # The conditions of Karush, Kuhn and Tucker: equal slopes where u > 0, larger ones elsewhere.
    error = np.mean((targets - w @ means) ** 2)
    slope = -2.0 * means @ (targets - u @ means) + 2.0 * 0.1 * 30 * error * (u - w)
    inside = u > 0.0
    assert_allclose(slope[inside], slope[inside][0], rtol=1e-8, atol=1e-8)
    assert np.all(slope[~inside] >= slope[inside][0])
    if number > 1:
        assert 0 < np.sum(inside) < number
    # In other units they are the same.
    assert_allclose(weights_of_means(1e6 * means + 3.0, 1e6 * targets + 3.0, w), u, atol=1e-9)
    assert_allclose(weights_of_means(means, w @ means, w), w)
