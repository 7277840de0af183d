"""Monotonic functions by virtual rows of derivatives whose sign is known."""

from typing import Any

import gpflow
import numpy as np
import pytest

import gpflow_pep as pep
from gpflow_pep.kernels import ValueOrDerivative, rows_of

GRID = np.linspace(0.0, 5.0, 101)[:, None]


def _data() -> Any:
    rng = np.random.default_rng(3)
    x = rng.uniform(0.0, 5.0, (15, 1))
    return x, np.tanh(2.0 * (x - 2.5)) + 0.3 * rng.standard_normal(x.shape)


def _kernel() -> ValueOrDerivative:
    return ValueOrDerivative(gpflow.kernels.SquaredExponential(1.0, 0.8))


def _slopes(model: Any) -> Any:
    return np.diff(model.predict_f(rows_of(GRID))[0][:, 0]) / np.diff(GRID[:, 0])


def _monotonic(data: Any, virtual: Any, alpha: float) -> pep.PEP:
    """Say of derivatives at some places that they are positive."""
    x, y = data
    X = np.vstack([rows_of(x), rows_of(virtual, 1)])
    # The last column of Y is the number of the likelihood.
    Y = np.vstack([rows_of(y), rows_of(np.ones_like(virtual), 1)])
    sign = pep.likelihoods.NoisyLabelBernoulli(1e-6, link="step")
    likelihood = gpflow.likelihoods.SwitchedLikelihood([gpflow.likelihoods.Gaussian(0.09), sign])
    return pep.PEP((X, Y), _kernel(), likelihood, X.copy(), alpha=alpha)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.near_copies("1.0")
def test_virtual_derivatives_make_the_mean_monotonic(alpha: float) -> None:
    """Riihimaki & Vehtari (2010)."""
    x, y = _data()
    plain = gpflow.models.GPR((rows_of(x), y), _kernel(), noise_variance=0.09)
    assert _slopes(plain).min() < -0.1
    model = _monotonic((x, y), np.linspace(0.0, 5.0, 20)[:, None], alpha)
    assert _slopes(model).min() > -0.02
    assert model.last_inference.converged
    residual = model.predict_f(rows_of(x))[0] - y
    assert np.sqrt(np.mean(residual**2)) < 0.6 * np.std(y)


def test_expectation_propagation_is_near_the_exact_posterior() -> None:
    """That of draws from exact regression, of which those with positive derivatives are left."""
    x, y = _data()
    virtual, new = (
        np.array([[0.5], [1.6], [3.4], [4.5]]),
        rows_of(np.linspace(0.2, 4.8, 6)[:, None]),
    )
    plain = gpflow.models.GPR((rows_of(x), y), _kernel(), noise_variance=0.09)
    mean, covariance = plain.predict_f(np.vstack([new, rows_of(virtual, 1)]), full_cov=True)
    root = np.linalg.cholesky(covariance[0] + 1e-9 * np.eye(10))
    draws = mean.numpy()[:, 0] + np.random.default_rng(0).standard_normal((400_000, 10)) @ root.T
    draws = draws[np.all(draws[:, 6:] > 0.0, axis=1), :6]
    assert len(draws) > 2_000
    actual_mean, actual_variance = _monotonic((x, y), virtual, 1.0).predict_f(new)
    np.testing.assert_allclose(actual_mean[:, 0], draws.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(np.sqrt(actual_variance[:, 0]), draws.std(axis=0), atol=0.02)
    assert np.abs(mean[:6, 0] - draws.mean(axis=0)).max() > 0.1
