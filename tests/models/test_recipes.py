"""SASPA in one call: which model and points it makes."""

from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, Poisson
from helpers import assert_close, regression_problem

import gpflow_pep as pep
from gpflow_pep.inducing_variables import BlurredInducingPoints
from gpflow_pep.training.starts import kmeans, saspa

PROBLEM = regression_problem(num_data=15)
LABELS = (PROBLEM.Y > 0.4).astype(float)
NOISE = Gaussian(0.09)


def of_problem(likelihood: Any, **options: Any) -> Any:
    return saspa(PROBLEM.data, PROBLEM.kernel(), likelihood, 4, seed=3, **options)


def log_z(model: Any) -> float:
    return float(model.pep_log_marginal_likelihood())


@pytest.mark.parametrize("covariances", ["full", "spherical", False])
def test_regression_is_in_closed_form(covariances: Any) -> None:
    model = of_problem(NOISE, covariances=covariances)
    assert isinstance(model, pep.models.PEPRegression)
    assert model.likelihood is NOISE
    points = kmeans(PROBLEM.X, 4, seed=3, covariances=covariances)
    assert type(model.inducing_variable) is type(points)
    options = {"alpha": 1.0, "noise_variance": 0.09}
    expected = pep.models.PEPRegression(PROBLEM.data, PROBLEM.kernel(), points, **options)
    assert_close(log_z(model), log_z(expected))


@pytest.mark.parametrize(
    "likelihood",
    [Bernoulli(), pep.likelihoods.NoisyLabelBernoulli(0.05, link="step"), Poisson()],
    ids=["probit", "step", "Poisson"],
)
def test_other_likelihoods(likelihood: gpflow.likelihoods.Likelihood) -> None:
    options = {"seed": 3, "alpha": 0.5, "max_sweeps": 300}
    model = saspa((PROBLEM.X, LABELS), PROBLEM.kernel(), likelihood, 4, **options)
    assert isinstance(model, pep.models.PEP) and model.max_sweeps == 300
    assert isinstance(model.inducing_variable, BlurredInducingPoints)
    assert model.alpha.numpy() == 0.5
    assert np.isfinite(log_z(model))
    assert model.last_inference.converged


def test_latent_functions_share_the_points() -> None:
    kernel = gpflow.kernels.SeparateIndependent([SquaredExponential(), SquaredExponential(2.0)])
    Y = np.hstack([PROBLEM.Y, LABELS])
    model = saspa((PROBLEM.X, Y), kernel, NOISE, 4, seed=3)
    each = [
        saspa((PROBLEM.X, Y[:, k : k + 1]), kernel.kernels[k], NOISE, 4, seed=3) for k in range(2)
    ]
    assert_close(log_z(model), sum(map(log_z, each)), rtol=1e-6)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"data": PROBLEM.X}, "expected a pair"),
        ({"kernel": gpflow.kernels.Matern32()}, "Matern32 with BlurredInducingPoints"),
        ({"M": 16}, "M: got 16"),
        ({"covariances": "round"}, "covariances: got 'round'"),
        ({"alpha": 2.0}, "alpha: got 2"),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    good = {"data": PROBLEM.data, "kernel": PROBLEM.kernel(), "likelihood": NOISE, "M": 4}
    with pytest.raises(ValueError, match=message):
        saspa(**{**good, "seed": 0, **changes})


def test_models_say_how_many_points_they_have() -> None:
    X, kernel = np.linspace(0.0, 1.0, 7)[:, None], SquaredExponential()
    assert pep.PEPRegression((X, X), kernel, X[:3].copy()).num_inducing == 3
    assert pep.ARPEP(kernel, NOISE, X[:4].copy(), num_data=7).num_inducing == 4
