"""SASPA's example: its tables, and that the paper's own likelihood converges."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from gpflow.kernels import SquaredExponential
from helpers import load_example

import gpflow_pep as pep
from gpflow_pep.training.starts import saspa


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_example("saspa.py")


@pytest.mark.slow
def test_blur_brings_the_circle_nearer(example: ModuleType) -> None:
    """QAM10, Figure 1, and at every alpha."""
    points, spherical, full = example.distances(0)
    assert np.all(full < spherical) and np.all(spherical < points)


@pytest.mark.parametrize("epsilon", [0.01, pytest.param(0.1, marks=pytest.mark.slow)])
def test_step_likelihood_converges(example: ModuleType, epsilon: float) -> None:
    """The paper's own likelihood, on the three Gaussians."""
    likelihood = pep.likelihoods.NoisyLabelBernoulli(epsilon, link="step")
    model = saspa(example.gaussians(0, 100), SquaredExponential(), likelihood, 10, seed=0)
    assert np.isfinite(model.pep_log_marginal_likelihood())
    record = model.last_inference
    assert record.converged and not record.fallback


@pytest.mark.slow
def test_step_likelihood_on_ionosphere(example: ModuleType, data_directory: Path) -> None:
    table = np.loadtxt(data_directory / "ionosphere.csv.gz", delimiter=",", skiprows=1)
    X, Y = table[:, :-1], table[:, -1:]
    kernel = SquaredExponential(lengthscales=np.sqrt(X.shape[1]))
    for epsilon in (0.01, 0.1):
        likelihood = pep.likelihoods.NoisyLabelBernoulli(epsilon, link="step")
        model = saspa((X, Y), kernel, likelihood, 40, seed=0)
        assert np.isfinite(model.pep_log_marginal_likelihood())
        assert model.last_inference.converged


def test_quality_of_classification(example: ModuleType) -> None:
    p, full, Y = np.array([0.2, 0.6]), np.array([0.5, 0.6]), np.array([1.0, 1.0])
    error, divergence = example.quality(p, full, Y)
    assert error == 0.5
    np.testing.assert_allclose(divergence, 0.5 * np.log(0.5 / 0.2) + 0.5 * np.log(0.5 / 0.8))
