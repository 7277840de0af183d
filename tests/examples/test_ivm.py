"""Rows that the informative vector machine of the examples chooses."""

import gpflow
import numpy as np
import pytest
from gpflow.likelihoods import Bernoulli, Likelihood, StudentT
from helpers import Array, regression_problem

from examples.ivm import ivm

PROBLEM = regression_problem(num_data=24)
X, Y = PROBLEM.X, PROBLEM.Y
LABELS = np.where(Y > 0.4, 1.0, 0.0)


def _log_evidence(likelihood: Likelihood, y: float, mean: float, variance: float) -> float:
    f = mean + np.sqrt(variance) * np.linspace(-9.0, 9.0, 4001)[:, None]
    log_p = likelihood.log_prob(np.zeros_like(f), f, np.full_like(f, y)).numpy()
    density = np.exp(log_p - 0.5 * np.square(f[:, 0] - mean) / variance)
    return float(np.log(np.sum(density) * (f[1, 0] - f[0, 0]) / np.sqrt(2.0 * np.pi * variance)))


@pytest.mark.parametrize(
    "likelihood, targets", [(Bernoulli(), LABELS), (StudentT(0.3, 4.0), Y)], ids=["labels", "heavy"]
)
def test_most_informative_for_other_likelihoods(likelihood: Likelihood, targets: Array) -> None:
    """Assumed-density filtering with explicit sites, and derivatives by finite differences."""
    kernel, few = PROBLEM.kernel() + gpflow.kernels.Linear(0.3), slice(0, 8)
    inputs, targets = X[few], targets[few]
    K = kernel(inputs).numpy()
    Z = ivm((inputs, targets), 4, kernel=kernel, likelihood=likelihood, seed=0).Z.numpy()
    nu, tau = np.zeros(8), np.zeros(8)
    chosen: list[int] = []
    for row in Z:
        place = int(np.flatnonzero((inputs == row).all(axis=1))[0])
        covariance = K @ np.linalg.inv(np.eye(8) + tau[:, None] * K)
        mean, variance = covariance @ nu, np.diagonal(covariance)
        falls, sites = np.full(8, -np.inf), {}
        for n in set(range(8)) - set(chosen):
            step = 1e-3
            values = [
                _log_evidence(likelihood, targets[n, 0], mean[n] + k * step, variance[n])
                for k in (-1, 0, 1)
            ]
            delta1 = (values[2] - values[0]) / (2.0 * step)
            delta2 = (values[2] - 2.0 * values[1] + values[0]) / step**2
            falls[n] = -0.5 * np.log1p(delta2 * variance[n])
            precision = -delta2 / (1.0 + delta2 * variance[n])
            sites[n] = precision, (delta1 - delta2 * mean[n]) / (1.0 + delta2 * variance[n])
        assert falls[place] >= falls.max() - 1e-4
        tau[place], nu[place] = sites[place]
        chosen.append(place)
