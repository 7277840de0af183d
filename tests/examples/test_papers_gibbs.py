"""Gibbs sampling of the papers' baselines, beside integrals over a grid."""

import importlib
from types import ModuleType

import gpflow
import numpy as np
import pytest
from helpers import assert_close
from scipy.special import ndtr


@pytest.fixture
def gibbs() -> ModuleType:
    return importlib.import_module("examples.papers.gibbs")


def test_two_pieces(gibbs: ModuleType) -> None:
    """The share and the mean below the threshold are those of the reweighted density."""
    uniform = (np.arange(200_000) + 0.5) / 200_000
    for threshold, below, above in ((0.5, 0.001, 0.999), (-0.3, 2.0, 0.5), (0.0, 1.0, 1.0)):
        found = gibbs.two_pieces(
            *(np.full(uniform.shape, x) for x in (threshold, below, above)), uniform
        )
        line = np.linspace(-9.0, 9.0, 20_001)
        weight = np.exp(-0.5 * line**2) * np.where(line < threshold, below, above)
        weight /= weight.sum()
        assert_close(np.mean(found < threshold), weight[line < threshold].sum(), 2e-3)
        assert_close(found.mean(), weight @ line, 2e-3, scale=1.0)


def test_one_inducing_input(gibbs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows, two classes: f0 - f1 is all that matters, and its prior is of one dimension."""
    monkeypatch.setattr(gibbs, "SWEEPS", 4000)
    monkeypatch.setattr(gibbs, "THIN", 1)
    X, Y, Xnew = np.array([[0.0], [0.7]]), np.array([[0.0], [1.0]]), np.array([[-0.4], [1.0]])
    kernel = gpflow.kernels.SquaredExponential(variance=2.0)
    likelihood = gpflow.likelihoods.MultiClass(2)
    Z = gpflow.inducing_variables.InducingPoints(np.array([[-0.2]]))
    draws = gibbs.sample(kernel, likelihood, Z, (X, Y))
    found = gibbs.probabilities(kernel, likelihood, Z, draws, Xnew)

    covariance = lambda x: 2.0 * np.exp(-0.5 * (x[:, 0] + 0.2) ** 2) / np.sqrt(2.0)  # noqa: E731
    difference = np.linspace(-9.0, 9.0, 4001)  # of v0 - v1, in deviations

    def zero_wins(x: np.ndarray) -> np.ndarray:
        slope = covariance(x)
        z = slope * difference[:, None] / np.sqrt(2.0 - slope**2)
        return 0.001 + 0.998 * ndtr(z)

    rows = zero_wins(X)
    weight = np.exp(-0.5 * difference**2) * rows[:, 0] * (1.0 - rows[:, 1])
    expected = weight @ zero_wins(Xnew) / weight.sum()
    assert_close(found[:, 0], expected, 0.02, scale=1.0)
    assert_close(found.sum(axis=1), np.ones(2), 1e-6)
