"""Where nothing is uncertain, a tilted integral is the log density itself, for every likelihood."""

import functools

import numpy as np
import pytest
from cases.tilted import CASES, LIKE_ANOTHER
from gpflow.base import AnyNDArray
from numpy.testing import assert_allclose

from gpflow_pep.likelihoods import log_power_expectation, tilted_derivatives

ALPHAS = np.repeat([0.0, 1e-6, 0.5, 1.0], 4)
MEANS = np.tile([-3.0, -0.3, 0.7, 2.0], 4)
h = 1e-3


@functools.cache
def means_and_values(name: str) -> tuple[AnyNDArray, list[float]]:
    latent = np.arange(CASES[name].num_latent)
    mean = MEANS[:, None] * np.cos(latent) + 0.5 * latent
    rows = zip(mean, ALPHAS)
    return mean, [CASES[name].reference(m, np.full(m.shape, 1e-10), alpha) for m, alpha in rows]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("variance", [0.0, 1e-20])
@pytest.mark.near_copies(*(f"0.0-{name}" for name in CASES if name not in LIKE_ANOTHER))
def test_the_integral_is_the_density(name: str, variance: float) -> None:
    case, (mean, expected) = CASES[name], means_and_values(name)
    likelihood, L = case.create(), case.num_latent
    steps = [sign * h * one for one in np.eye(L) for sign in (1.0, -1.0)]
    moved = np.vstack([mean, *(mean + step for step in steps)])
    K = 1 + len(steps)
    X, Y, none = np.zeros((K * len(mean), 1)), np.tile(case.target, (K * len(mean), 1)), 0.0 * moved
    ell = log_power_expectation(likelihood, X, moved, none + variance, Y, np.tile(ALPHAS, K))
    at, *ends = np.split(ell.numpy(), K)
    X, Y, none = (part[: len(mean)] for part in (X, Y, none))
    rows = X, mean, none + variance, Y
    parts = [part.numpy() for part in tilted_derivatives(likelihood, *rows, ALPHAS)]
    value, delta1, delta2 = parts
    # What a variance of 1e-10 does where log p is steep, and rounding.
    slope = np.abs(delta1).max()
    assert_allclose(at, value, 1e-9, 1e-12)
    assert_allclose(value, expected, case.tolerance, 10 * case.tolerance + 1e-10 * slope**2)
    for k, (above, below) in enumerate(zip(ends[::2], ends[1::2])):
        curvature = (above - 2.0 * value + below) / h**2
        atol = 1e-3 * (1.0 + slope + np.abs(curvature).max()) + 1e-5 * slope**2
        assert_allclose(delta1[:, k], (above - below) / (2.0 * h), 1e-5, 0.1 * atol)
        assert_allclose(delta2[:, k], curvature, 1e-3, atol)
    some = ALPHAS == 0.5
    of_one = tilted_derivatives(likelihood, *(part[some] for part in rows), 0.5)
    for actual, part in zip(of_one, parts):
        assert_allclose(actual, part[some], 1e-4, atol)
