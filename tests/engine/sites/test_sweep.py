"""Where a run of the inner loop begins."""

from typing import Any

import gpflow
import numpy as np
import pytest

import gpflow_pep as pep


@pytest.mark.parametrize(
    "likelihood, draw",
    [
        (gpflow.likelihoods.Poisson, lambda rng, rate: rng.poisson(rate)),
        (gpflow.likelihoods.Exponential, lambda rng, rate: rng.exponential(rate)),
        (gpflow.likelihoods.Gamma, lambda rng, rate: rng.gamma(2.0, rate)),
    ],
)
@pytest.mark.near_copies
def test_rates_under_a_vague_prior(likelihood: Any, draw: Any) -> None:
    """The prior expects rates of e^50, and a first step at power 0 believes it."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((30, 1))
    Y = draw(rng, np.exp(1.0 + np.sin(2.0 * X))).astype(float)
    kernel = gpflow.kernels.SquaredExponential(variance=100.0, lengthscales=2.0)
    model = pep.models.PEP((X, Y), kernel, likelihood(), X, alpha=0.0)
    record = model.update_sites()
    assert record.converged
    assert record.num_sweeps < 30
    assert record.fallback == ""
