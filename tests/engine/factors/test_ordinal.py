"""Predictions of ordinal regression, against sums over classes by quadrature."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import norm

import gpflow_pep as pep
from gpflow_pep.likelihoods import predict_mean_and_var

EDGES = np.array([-1.0, 0.5, 4.0])


def _moments(sigma: float, m: float, v: float) -> tuple[float, float]:
    bins = zip([-np.inf, *EDGES], [*EDGES, np.inf])

    def probability(low: float, high: float) -> float:
        def integrand(f: float) -> float:
            inside = norm.cdf((high - f) / sigma) - norm.cdf((low - f) / sigma)
            return float((0.998 * inside + 1e-6) * norm.pdf(f, m, np.sqrt(v)))

        reach = 10.0 * np.sqrt(v)
        return float(quad(integrand, m - reach, m + reach, points=EDGES, limit=200)[0])

    p = np.array([probability(low, high) for low, high in bins])
    p /= p.sum()
    mean = p @ np.arange(4)
    return mean, p @ (np.arange(4) - mean) ** 2


@pytest.mark.parametrize("sigma", [1.0, 0.3])
def test_mean_and_variance(sigma: float) -> None:
    likelihood = gpflow.likelihoods.Ordinal(EDGES)
    likelihood.sigma.assign(sigma)
    m, v = np.array([[-2.0, 0.1], [0.7, 3.0]]), np.array([[0.5, 2.0], [10.0, 0.2]])
    actual = predict_mean_and_var(likelihood, np.zeros((2, 1)), m, v)
    expected = [_moments(sigma, *row) for row in zip(m.ravel(), v.ravel())]
    for part, other in zip(actual, np.transpose(expected)):
        assert_allclose(part, other.reshape(2, 2), rtol=1e-7)


def test_models_predict() -> None:
    X = np.linspace(0.0, 3.0, 12)[:, None]
    Y = np.digitize(X, [1.0, 2.0, 2.7]).astype(float)
    likelihood = gpflow.likelihoods.Ordinal(EDGES)
    model = pep.PEP((X, Y), gpflow.kernels.SquaredExponential(), likelihood, X[::3].copy())
    mean, variance = tf.function(model.predict_y, autograph=False)(X)
    assert mean[-1, 0] > mean[0, 0] + 1.0
    assert np.all((mean > 0.0) & (mean < 3.0) & (variance > 0.0))
    expected = predict_mean_and_var(likelihood, X, *model.predict_f(X))
    for part, other in zip((mean, variance), expected):
        assert_allclose(part, other, rtol=1e-9)
