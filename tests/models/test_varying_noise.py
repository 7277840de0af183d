"""Noise whose variance depends on inputs, a warp, and exact training of both: against
NumPy.
"""

import time
from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.base import AnyNDArray
from helpers import assert_gradients
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal, norm

from gpflow_pep.distributions import Predictive, Units
from gpflow_pep.estimators.single import exact as fitting
from gpflow_pep.estimators.single.exact import (
    KERNELS,
    STEPS_OF_STARTS,
    Hyperparameters,
    evidence,
    fit_exact,
    start_after,
)
from gpflow_pep.estimators.single.exact_model import ExactModel
from gpflow_pep.likelihoods import LogLinear
from gpflow_pep.models import PEPRegression
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
    return PEPRegression(
        (X, Y), kernel, Z.copy(), alpha=alpha, likelihood=likelihood, chunk_size=5
    )


def noise_at(X: AnyNDArray) -> Any:
    return 0.1 * np.exp(np.clip(X, -3.0, 3.0) @ W)


def covariance(A: AnyNDArray, B: AnyNDArray) -> Any:
    r = np.sqrt(3.0 * np.sum(((A[:, None] - B) / [0.7, 1.1]) ** 2, axis=-1))
    return 1.2 * (1.0 + r) * np.exp(-r)


def exact(
    rows: AnyNDArray, y: AnyNDArray, new: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray]:
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
    assert_allclose(
        log_prior, norm(scale=0.6 / np.sqrt(2.0)).logpdf(W).sum(), rtol=1e-12
    )


@pytest.mark.near_copies("0.3")
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_log_z_of_fewer_points(alpha: float) -> None:
    sparse = model(alpha, X[::3])
    k = covariance(X[::3], X)
    Q = k.T @ np.linalg.solve(covariance(X[::3], X[::3]), k)
    d = 1.2 - np.diag(Q)
    s = noise_at(X)
    log_z = multivariate_normal(np.zeros(14), Q + np.diag(alpha * d + s)).logpdf(
        Y[:, 0]
    )
    log_z -= 0.5 * (1.0 - alpha) / alpha * np.sum(np.log1p(alpha * d / s))
    assert_allclose(sparse.pep_log_marginal_likelihood(), log_z, rtol=1e-8)
    variables = sparse.likelihood.trainable_variables
    assert len(variables) == 2
    assert_gradients(sparse.training_loss, variables, rtol=1e-7)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_leave_one_out_with_noise_and_warp_is_that_of_refits(alpha: float) -> None:
    y = Y[:, 0]
    t = UNITS.transform(y)
    mean, variance = (
        part.numpy()[:, 0] for part in model(alpha, Y=t[:, None]).loo_moments()
    )
    left_out = Predictive(mean[None], variance[None], np.ones(1), UNITS)
    densities = left_out.log_densities(y)
    scores = left_out.normal_scores(y)
    for n in range(14):
        others = np.delete(np.arange(14), n)
        (m,), (v,) = exact(others, t[others], X[n : n + 1])
        assert_allclose([mean[n], variance[n]], [m, v], rtol=1e-8, atol=1e-9)
        slope = (UNITS.transform(y[n] + 1e-6) - UNITS.transform(y[n] - 1e-6)) / 2e-6
        assert_allclose(
            densities[n], norm.logpdf(t[n], m, np.sqrt(v)) + np.log(slope), atol=1e-8
        )
        assert_allclose(scores[n], (t[n] - m) / np.sqrt(v), rtol=1e-8, atol=1e-8)


def test_inputs_that_are_missing_or_far_away() -> None:
    noise = model(0.5).likelihood.variance
    assert_allclose(noise(np.array([[np.nan, np.nan], [0.0, 0.0]]))[:, 0], 0.1)
    far = noise(np.array([[1e9, 1.0], [3.0, 1.0]]))[:, 0]
    assert_allclose(far, noise_at(np.array([[3.0, 1.0]] * 2)))
    with pytest.raises(
        ValueError,
        match="LogLinear: got 3 inputs, expected 2, the number for which it was made",
    ):
        noise(np.ones((1, 3)))
    with pytest.raises(ValueError, match="variance: got 0"):
        LogLinear(2, variance=0.0)
    with pytest.raises(ValueError, match="num_inputs: got 0"):
        LogLinear(0)


def test_weights_of_means_are_the_least_squares_of_the_simplex() -> None:
    targets = RNG.normal(size=30)
    w = np.array([0.4, 0.3, 0.28, 0.02])
    means = targets + 0.5 * RNG.normal(size=(4, 30))
    # One whose share would be below 0.
    means[-1] = 10.0 * (means[:3].mean(axis=0) - targets)
    assert_allclose(weights_of_means(means[:1], targets, np.ones(1)), 1.0)
    u = weights_of_means(means, targets, w)
    assert_allclose(u.sum(), 1.0, rtol=1e-12)
    assert np.all(u >= 0.0)
    # The conditions of Karush, Kuhn and Tucker: equal slopes where u > 0, larger ones
    # elsewhere.
    error = np.mean((targets - w @ means) ** 2)
    slope = -2.0 * means @ (targets - u @ means) + 2.0 * 0.1 * 30 * error * (u - w)
    inside = u > 0.0
    assert_allclose(slope[inside], slope[inside][0], rtol=1e-8, atol=1e-8)
    assert np.all(slope[~inside] >= slope[inside][0])
    assert 0 < np.sum(inside) < 4
    # In other units they are the same.
    assert_allclose(
        weights_of_means(1e6 * means + 3.0, 1e6 * targets + 3.0, w), u, atol=1e-9
    )
    assert_allclose(weights_of_means(means, w @ means, w), w)


# Exact training.

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.standard_normal((30, 2)) * [1.0, 2.0]
TARGETS = np.sin(INPUTS[:, 0]) + 0.2 * np.exp(
    0.5 * INPUTS[:, 1]
) * RANDOM.standard_normal(30)
TARGETS = (TARGETS - TARGETS.mean()) / TARGETS.std()
WEIGHTS = np.array([0.3, -0.4])
NO_PARTS = np.full(2, -np.inf)
THETA = Hyperparameters(np.array([0.2, 0.7]), 0.3, -1.4, WEIGHTS, 0.3, -0.2, NO_PARTS)
THETAS = dict.fromkeys(KERNELS, THETA)
THETAS["additive"] = THETA._replace(log_additive=np.array([-0.3, -1.2]))


def dense(theta: Hyperparameters, kernel: str = "matern52") -> tuple[AnyNDArray, ...]:
    """Warped targets, the logarithms of their slopes, and the covariance."""
    r = cdist(
        INPUTS / np.exp(theta.log_lengthscales), INPUTS / np.exp(theta.log_lengthscales)
    )
    matern52 = (1.0 + np.sqrt(5.0) * r + 5.0 / 3.0 * r**2) * np.exp(-np.sqrt(5.0) * r)
    correlation = np.exp(-0.5 * r**2) if kernel == "rbf" else matern52
    pairs = zip(theta.log_additive, INPUTS.T)
    parts = (np.exp(v - np.subtract.outer(x, x) ** 2 / 8) for v, x in pairs)
    noise = np.exp(theta.log_noise + np.clip(INPUTS, -3.0, 3.0) @ theta.noise_weights)
    inside = np.exp(theta.tails) * np.arcsinh(TARGETS) - theta.skew
    slopes = np.cosh(inside) * np.exp(theta.tails) / np.sqrt(1.0 + TARGETS**2)
    covariance = np.exp(theta.log_variance) * correlation + sum(parts) + np.diag(noise)
    return np.sinh(inside), np.log(slopes), covariance


@pytest.mark.parametrize("kernel", KERNELS)
def test_evidence_and_gradient(kernel: str) -> None:
    theta = THETAS[kernel]
    factors = fitting.smooth_factors(INPUTS) if kernel == "additive" else None
    t, log_slopes, covariance = dense(theta, kernel)
    priors = (
        -0.5 * np.sum(THETA.noise_weights**2) * 2 / 0.6**2
        - 0.5 * (0.3**2 + 0.2**2) / 0.5**2
    )
    expected = multivariate_normal.logpdf(t, cov=covariance) + log_slopes.sum() + priors
    value, gradient = evidence(theta, INPUTS, TARGETS, kernel, factors)
    assert_allclose(value, expected, rtol=1e-10 if factors is None else 1e-7)

    def of_vector(vector: AnyNDArray) -> float:
        return evidence(
            Hyperparameters.of_vector(vector), INPUTS, TARGETS, kernel, factors
        )[0]

    vector = np.hstack(theta)
    steps = 1e-5 * np.eye(10)
    differences = [
        (of_vector(vector + h) - of_vector(vector - h)) / 2e-5 for h in steps
    ]
    assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_model_leaves_rows_out_as_refits_do(kernel: str) -> None:
    t, _, covariance = dense(THETAS[kernel], kernel)
    exact = ExactModel(THETAS[kernel], INPUTS, t, kernel, varying=True)
    mean, variance = exact.left_out()
    for n in range(0, 30, 7):
        others = np.arange(30) != n
        solved = np.linalg.solve(
            covariance[np.ix_(others, others)], covariance[others, n]
        )
        assert_allclose(mean[n], solved @ t[others], rtol=1e-4, atol=1e-6)
        assert_allclose(
            variance[n], covariance[n, n] - solved @ covariance[others, n], rtol=1e-4
        )


@pytest.mark.parametrize("name", ["Matern52", "RBF"])
def test_a_plain_model_is_that_of_gpflow(name: str) -> None:
    theta, best = fit_exact(INPUTS, TARGETS, kernel=name.lower())
    parameters = np.exp(theta.log_variance), np.exp(theta.log_lengthscales)
    kernel = getattr(gpflow.kernels, name)(*parameters)
    data = (INPUTS, TARGETS[:, None])
    noise = np.exp(theta.log_noise)
    model = gpflow.models.GPR(data, kernel, noise_variance=noise)
    assert_allclose(best.objective, float(model.log_marginal_likelihood()), rtol=1e-9)
    # Of w, a and b they are not 0.
    slopes = evidence(theta, INPUTS, TARGETS, name.lower())[1][:4]
    assert_allclose(slopes, 0.0, atol=0.05)
    assert best.converged and best.objective == max(a.objective for a in best.starts)
    assert theta.skew == theta.tails == 0.0 and not theta.noise_weights.any()


def test_the_full_model_gains_and_stops_in_time() -> None:
    y = np.exp(TARGETS)
    y = (y - y.mean()) / y.std()
    plain, record = fit_exact(INPUTS, y)
    full, best = fit_exact(INPUTS, y, varying=True, warp=True)
    assert best.objective > record.objective + 1.0 and full.skew > 0.1
    ended = time.perf_counter() - 1.0
    _, late = fit_exact(INPUTS, y, plain, varying=True, warp=True, deadline=ended)
    assert (
        late.iterations <= 1
        and not late.converged
        and late.objective >= record.objective
    )


def test_rows_that_no_factor_has_are_passed_over() -> None:
    same = np.zeros((12, 1))
    assert np.isfinite(fit_exact(same, np.zeros(12))[1].objective)
    broken = THETA._replace(log_variance=np.nan)
    value, gradient = evidence(broken, INPUTS, TARGETS, "rbf")
    assert value == -np.inf and not gradient.any()


#: The number of inputs.
KINDS = {"trend and wave": 1, "main effect and wave": 2, "interaction": 3}


def fine_part(kind: str) -> tuple[AnyNDArray, AnyNDArray]:
    """Standardised rows of a strong smooth part beside a fine one, noise .1."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, [60 * (1 + KINDS[kind]), KINDS[kind]])
    f = 1.5 * X[:, -1]
    if kind == "trend and wave":
        f += 0.7 * np.sin(20.0 * X[:, 0])
    elif kind == "main effect and wave":
        f += 0.7 * np.sin(9.0 * X[:, 0])
    else:
        f += np.sin(4.0 * X[:, 0]) * np.sin(4.0 * X[:, 1])
    y = f + 0.1 * rng.standard_normal(len(X))
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


@pytest.mark.parametrize("kernel", ["matern52", "rbf", "additive"])
@pytest.mark.parametrize("kind", KINDS)
def test_fine_parts_are_found(kind: str, kernel: str) -> None:
    X, y = fine_part(kind)
    theta, best = fit_exact(X, y, kernel=kernel)
    smooth = Hyperparameters.smooth(X.shape[1])
    taken_for_noise, alone = fit_exact(X, y, smooth, kernel=kernel)
    assert best.objective > alone.objective + 20.0
    assert theta.log_noise < taken_for_noise.log_noise - 1.5


def test_the_better_of_two_starts_goes_on() -> None:
    y = INPUTS[:, 0] + 0.3 * RNG.standard_normal(len(INPUTS))
    _, record = fit_exact(INPUTS, y)
    smooth, fine = record.starts
    assert record.objective == smooth.objective > fine.objective
    assert fine.iterations <= STEPS_OF_STARTS
    start = Hyperparameters.smooth(2)
    _, alone = fit_exact(INPUTS, y, start)
    assert_allclose(record.losses, alone.losses, rtol=1e-12)
    assert_allclose(np.hstack(start_after(start, record)), np.hstack(start))
    assert start_after(start, alone) is None
    # A fine start that wins goes on for what is left of the steps.
    X, y = fine_part("trend and wave")
    theta, record = fit_exact(X, y, max_iterations=12)
    assert record.iterations <= 12 and record.starts[0].iterations <= STEPS_OF_STARTS
    assert record.objective == record.starts[1].objective
    value, _ = evidence(theta, X, y, "matern52")
    assert_allclose(value, record.objective, rtol=1e-12)
