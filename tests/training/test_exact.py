"""Exact regression with noise that varies and warped targets, against dense formulas."""

import time

import gpflow
import numpy as np
import pytest
from gpflow.base import AnyNDArray
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal

from gpflow_pep.training.fitting.exact import (
    KERNELS,
    Hyperparameters,
    evidence,
    fit_exact,
    smooth_factors,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 2)) * [1.0, 2.0]
Y = np.sin(X[:, 0]) + 0.2 * np.exp(0.5 * X[:, 1]) * RNG.standard_normal(30)
Y = (Y - Y.mean()) / Y.std()
WEIGHTS, NO_PARTS = np.array([0.3, -0.4]), np.full(2, -np.inf)
THETA = Hyperparameters(np.array([0.2, 0.7]), 0.3, -1.4, WEIGHTS, 0.3, -0.2, NO_PARTS)
THETAS = dict.fromkeys(KERNELS, THETA)
THETAS["additive"] = THETA._replace(log_additive=np.array([-0.3, -1.2]))


def dense(
    theta: Hyperparameters, kernel: str = "matern52"
) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """Warped targets, the logarithms of their slopes, and the covariance."""
    r = cdist(X / np.exp(theta.log_lengthscales), X / np.exp(theta.log_lengthscales))
    matern52 = (1.0 + np.sqrt(5.0) * r + 5.0 / 3.0 * r**2) * np.exp(-np.sqrt(5.0) * r)
    correlation = np.exp(-0.5 * r**2) if kernel == "rbf" else matern52
    parts = (np.exp(v - np.subtract.outer(x, x) ** 2 / 8) for v, x in zip(theta.log_additive, X.T))
    noise = np.exp(theta.log_noise + np.clip(X, -3.0, 3.0) @ theta.noise_weights)
    inside = np.exp(theta.tails) * np.arcsinh(Y) - theta.skew
    slopes = np.cosh(inside) * np.exp(theta.tails) / np.sqrt(1.0 + Y**2)
    covariance = np.exp(theta.log_variance) * correlation + sum(parts) + np.diag(noise)
    return np.sinh(inside), np.log(slopes), covariance


@pytest.mark.parametrize("kernel", KERNELS)
def test_evidence_and_gradient(kernel: str) -> None:
    theta, factors = THETAS[kernel], smooth_factors(X) if kernel == "additive" else None
    t, log_slopes, covariance = dense(theta, kernel)
    priors = -0.5 * np.sum(THETA.noise_weights**2) * 2 / 0.6**2 - 0.5 * (0.3**2 + 0.2**2) / 0.5**2
    expected = multivariate_normal.logpdf(t, cov=covariance) + log_slopes.sum() + priors
    value, gradient = evidence(theta, X, Y, kernel, factors)
    assert_allclose(value, expected, rtol=1e-10 if factors is None else 1e-7)

    def of_vector(vector: AnyNDArray) -> float:
        return evidence(Hyperparameters.of_vector(vector), X, Y, kernel, factors)[0]

    vector, steps = np.hstack(theta), 1e-5 * np.eye(10)
    differences = [(of_vector(vector + h) - of_vector(vector - h)) / 2e-5 for h in steps]
    assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernel", ["matern52", "additive"])
def test_the_model_leaves_rows_out_as_refits_do(kernel: str) -> None:
    t, _, covariance = dense(THETAS[kernel], kernel)
    model = THETAS[kernel].model(X, Y, kernel, varying=True)
    mean, variance = (np.asarray(part)[:, 0] for part in model.loo_moments())
    for n in range(0, 30, 7):
        others = np.arange(30) != n
        solved = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, n])
        assert_allclose(mean[n], solved @ t[others], rtol=1e-4, atol=1e-6)
        assert_allclose(variance[n], covariance[n, n] - solved @ covariance[others, n], rtol=1e-4)
    assert not model.inducing_variable.Z.trainable
    back = Hyperparameters.of_model(model, THETA.skew, THETA.tails)
    assert back is not None
    assert_allclose(np.hstack(back), np.hstack(THETAS[kernel]), rtol=1e-9)


@pytest.mark.parametrize("name", ["Matern52", "RBF"])
def test_a_plain_model_is_that_of_gpflow(name: str) -> None:
    theta, best = fit_exact(X, Y, kernel=name.lower())
    kernel = getattr(gpflow.kernels, name)(
        np.exp(theta.log_variance), np.exp(theta.log_lengthscales)
    )
    model = gpflow.models.GPR((X, Y[:, None]), kernel, noise_variance=np.exp(theta.log_noise))
    assert_allclose(best.objective, float(model.log_marginal_likelihood()), rtol=1e-9)
    slopes = evidence(theta, X, Y, name.lower())[1][:4]  # of w, a and b they are not 0
    assert_allclose(slopes, 0.0, atol=0.05)
    assert best.converged and best.objective == max(a.objective for a in best.starts)
    assert theta.skew == theta.tails == 0.0 and not theta.noise_weights.any()


def test_the_full_model_gains_and_stops_in_time() -> None:
    y = np.exp(Y)
    y = (y - y.mean()) / y.std()
    plain, record = fit_exact(X, y)
    full, best = fit_exact(X, y, varying=True, warp=True)
    assert best.objective > record.objective + 1.0 and full.skew > 0.1
    ended = time.perf_counter() - 1.0
    _, late = fit_exact(X, y, plain, varying=True, warp=True, deadline=ended)
    assert late.iterations <= 1 and not late.converged and late.objective >= record.objective


def test_rows_that_no_factor_has_are_passed_over() -> None:
    same = np.zeros((12, 1))
    assert np.isfinite(fit_exact(same, np.zeros(12))[1].objective)
    broken = THETA._replace(log_variance=np.nan)
    value, gradient = evidence(broken, X, Y, "rbf")
    assert value == -np.inf and not gradient.any()
