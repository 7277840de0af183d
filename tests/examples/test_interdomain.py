"""The example of a user's own inducing variable: its covariances, and that models take it."""

from types import ModuleType

import gpflow
import numpy as np
import pytest
from gpflow.covariances import Kuf, Kuu
from helpers import assert_close, load_example

import gpflow_pep as pep


@pytest.fixture(scope="module")
def interdomain() -> ModuleType:
    return load_example("interdomain.py")


def test_covariances_are_those_of_differences(interdomain: ModuleType) -> None:
    kernel = gpflow.kernels.SquaredExponential(1.3, lengthscales=0.7)
    Z, X, h = np.array([[-0.4], [0.1], [0.9]]), np.linspace(-1.0, 1.0, 5)[:, None], 1e-3
    u = interdomain.ValuesAndSlopes(Z)
    points = np.concatenate([Z, Z + h, Z - h])
    eye, zero = np.eye(3), np.zeros([3, 3])
    D = np.block([[eye, zero, zero], [zero, eye / (2.0 * h), -eye / (2.0 * h)]])
    assert_close(Kuu(u, kernel), D @ kernel(points).numpy() @ D.T, rtol=1e-5)
    assert_close(Kuf(u, kernel, X), D @ kernel(points, X).numpy(), rtol=1e-5)


@pytest.mark.slow
def test_it_serves_in_models(interdomain: ModuleType) -> None:
    X, Y = interdomain.wave(30)
    Z = np.linspace(0.0, 10.0, 4)[:, None]
    kernel = gpflow.kernels.SquaredExponential()
    model = pep.models.PEPRegression((X, Y), kernel, interdomain.ValuesAndSlopes(Z), alpha=0.0)
    sgpr = gpflow.models.SGPR((X, Y), kernel, model.inducing_variable, likelihood=model.likelihood)
    assert_close(model.pep_log_marginal_likelihood(), sgpr.maximum_log_likelihood_objective())
    of_sites = pep.models.PEP((X, Y), kernel, model.likelihood, model.inducing_variable, alpha=0.0)
    assert_close(
        of_sites.pep_log_marginal_likelihood(), model.pep_log_marginal_likelihood(), rtol=1e-6
    )
    assert_close(of_sites.predict_f(X)[1], model.predict_f(X)[1], rtol=1e-6)
    start = float(model.training_loss())
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": 3}
    )
    assert float(model.training_loss()) < start
    with pytest.raises(ValueError, match="no covariance is registered"):
        pep.models.PEP(
            (X, Y), gpflow.kernels.Matern32(), model.likelihood, of_sites.inducing_variable
        )
