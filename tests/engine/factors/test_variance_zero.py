"""Where nothing is uncertain, a tilted integral is the log density itself, for every likelihood."""

import functools

import numpy as np
import pytest
from cases.tilted import CASES
from gpflow.base import AnyNDArray
from numpy.testing import assert_allclose

from gpflow_pep.likelihoods import log_power_expectation, tilted_derivatives

ALPHAS = np.repeat([0.0, 1e-6, 0.5, 1.0], 4)
MEANS = np.tile([-3.0, -0.3, 0.7, 2.0], 4)
h = 1e-3


def means(name: str) -> AnyNDArray:
    latent = np.arange(CASES[name].num_latent)
    mean: AnyNDArray = MEANS[:, None] * np.cos(latent) + 0.5 * latent
    return mean


@functools.cache
def expected(name: str) -> list[float]:
    """By adaptive integration, at next to no variance."""
    moments = zip(means(name), ALPHAS)
    return [CASES[name].reference(m, np.full(m.shape, 1e-10), alpha) for m, alpha in moments]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("variance", [0.0, 1e-20])
@pytest.mark.near_copies("0.0-*")
def test_the_integral_is_the_density(name: str, variance: float) -> None:
    case, mean = CASES[name], means(name)
    likelihood = case.create()
    X, Y = np.zeros((len(mean), 1)), np.tile(case.target, (len(mean), 1))
    none = np.full_like(mean, variance)

    value, delta1, delta2 = (
        part.numpy() for part in tilted_derivatives(likelihood, X, mean, none, Y, ALPHAS)
    )
    # What a variance of 1e-10 does where log p is steep, and rounding.
    slope = np.abs(delta1).max()
    assert_allclose(value, expected(name), case.tolerance, 10 * case.tolerance + 1e-10 * slope**2)
    for k in range(case.num_latent):
        step = h * np.eye(case.num_latent)[k]
        moved = np.vstack([mean + step, mean - step])
        rest = np.vstack([none] * 2), np.vstack([Y] * 2), np.tile(ALPHAS, 2)
        ell = log_power_expectation(likelihood, np.vstack([X] * 2), moved, *rest)
        above, below = np.split(ell.numpy(), 2)
        curvature = (above - 2.0 * value + below) / h**2
        atol = 1e-3 * (1.0 + slope + np.abs(curvature).max()) + 1e-5 * slope**2
        assert_allclose(delta1[:, k], (above - below) / (2.0 * h), 1e-5, 0.1 * atol)
        assert_allclose(delta2[:, k], curvature, 1e-3, atol)
    some = ALPHAS == 0.5
    rows = (part[some] for part in (X, mean, none, Y))
    for actual, part in zip(tilted_derivatives(likelihood, *rows, 0.5), (value, delta1, delta2)):
        assert_allclose(actual, part[some], 1e-4, atol)
