"""SASPA in one call: which model and points it makes."""

from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.kernels import SquaredExponential
from helpers import assert_close, regression_problem

import gpflow_pep as pep
from gpflow_pep.inducing_variables import BlurredInducingPoints
from gpflow_pep.training.starts import saspa

PROBLEM = regression_problem(num_data=15)
LABELS = (PROBLEM.Y > 0.4).astype(float)


@pytest.mark.parametrize("covariances", ["full", "spherical", False])
def test_regression_is_in_closed_form(covariances: Any) -> None:
    likelihood = gpflow.likelihoods.Gaussian(0.09)
    model = saspa(PROBLEM.data, PROBLEM.kernel(), likelihood, 4, seed=3, covariances=covariances)
    assert isinstance(model, pep.models.PEPRegression)
    assert model.likelihood is likelihood
    points = pep.training.starts.kmeans(PROBLEM.X, 4, seed=3, covariances=covariances)
    assert type(model.inducing_variable) is type(points)
    expected = pep.models.PEPRegression(
        PROBLEM.data, PROBLEM.kernel(), points, alpha=1.0, noise_variance=0.09
    )
    assert_close(model.pep_log_marginal_likelihood(), expected.pep_log_marginal_likelihood())


def test_one_pass_is_exact_for_gaussian_noise() -> None:
    """QAM10, section 3.3: only the compact representation is an approximation then."""
    model = saspa(PROBLEM.data, PROBLEM.kernel(), gpflow.likelihoods.Gaussian(0.09), 4, seed=3)
    online = pep.models.PEP(
        PROBLEM.data, model.kernel, model.likelihood, model.inducing_variable, alpha=1.0
    )
    assert online.update_sites(max_sweeps=1, sequential=True).residual < 1e-8
    assert_close(
        online.pep_log_marginal_likelihood(), model.pep_log_marginal_likelihood(), rtol=1e-8
    )


@pytest.mark.parametrize(
    "likelihood",
    [
        gpflow.likelihoods.Bernoulli(),
        pep.likelihoods.NoisyLabelBernoulli(0.05, link="step"),
        gpflow.likelihoods.Poisson(),
    ],
    ids=["probit", "step", "Poisson"],
)
def test_other_likelihoods(likelihood: gpflow.likelihoods.Likelihood) -> None:
    data = PROBLEM.X, LABELS
    model = saspa(data, PROBLEM.kernel(), likelihood, 4, seed=3, alpha=0.5, max_sweeps=300)
    assert isinstance(model, pep.models.PEP) and model.max_sweeps == 300
    assert isinstance(model.inducing_variable, BlurredInducingPoints)
    assert model.alpha.numpy() == 0.5
    assert np.isfinite(model.pep_log_marginal_likelihood())
    assert model.last_inference.converged


def test_latent_functions_share_the_points() -> None:
    kernel = gpflow.kernels.SeparateIndependent([SquaredExponential(), SquaredExponential(2.0)])
    likelihood = gpflow.likelihoods.Gaussian(0.09)
    Y = np.hstack([PROBLEM.Y, LABELS])
    model = saspa((PROBLEM.X, Y), kernel, likelihood, 4, seed=3)
    each = [
        saspa((PROBLEM.X, Y[:, k : k + 1]), kernel.kernels[k], likelihood, 4, seed=3)
        for k in range(2)
    ]
    expected = sum(float(one.pep_log_marginal_likelihood()) for one in each)
    assert_close(model.pep_log_marginal_likelihood(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"data": PROBLEM.X}, "expected a pair"),
        ({"kernel": gpflow.kernels.Matern32()}, "Matern32 with BlurredInducingPoints"),
        ({"M": 16}, "M: got 16"),
        ({"covariances": "round"}, "covariances: got 'round'"),
        ({"alpha": 2.0}, "alpha: got 2"),
    ],
    ids=["data", "kernel", "M", "covariances", "alpha"],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    good = {
        "data": PROBLEM.data,
        "kernel": PROBLEM.kernel(),
        "likelihood": gpflow.likelihoods.Gaussian(),
        "M": 4,
        "seed": 0,
    }
    with pytest.raises(ValueError, match=message):
        saspa(**{**good, **changes})


def test_models_say_how_many_points_they_have() -> None:
    X, kernel = np.linspace(0.0, 1.0, 7)[:, None], SquaredExponential()
    assert pep.PEPRegression((X, X), kernel, X[:3].copy()).num_inducing == 3
    gaussian = gpflow.likelihoods.Gaussian()
    assert pep.ARPEP(kernel, gaussian, X[:4].copy(), num_data=7).num_inducing == 4
