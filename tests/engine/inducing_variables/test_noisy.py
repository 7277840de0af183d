"""Noisy inducing variables: the jitter as a parameter (Titsias 2009, section 6)."""

import warnings
from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import SharedIndependentInducingVariables
from helpers import assert_close, finite_difference_gradient, gradients, regression_problem

import gpflow_pep as pep
from gpflow_pep.inducing_variables import BlurredInducingPoints, NoisyInducingVariables

PROBLEM = regression_problem()
ALPHAS = (0.0, 0.5, 1.0)


def _model(variance: float, alpha: float = 0.0) -> pep.models.PEPRegression:
    return PROBLEM.model(
        pep.models.PEPRegression, NoisyInducingVariables(PROBLEM.Z, variance), alpha=alpha
    )


def _exact() -> gpflow.models.GPR:
    return PROBLEM.model(gpflow.models.GPR)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("variance", [1e-3, 0.7])
def test_against_the_reference(alpha: float, variance: float) -> None:
    """T09 (21) at alpha = 0; the reference is told a jitter of v."""
    prior = PROBLEM.prior(gpflow.config.default_jitter() + variance)
    model = _model(variance, alpha)
    Q = prior.Kuf.T @ np.linalg.solve(prior.Kuu, prior.Kuf)
    D = np.diag(PROBLEM.covariance(PROBLEM.X, PROBLEM.X) - Q)
    s2, N = PROBLEM.noise_variance, len(PROBLEM.X)
    if alpha == 0.0:
        rest = -0.5 * np.sum(D) / s2
    else:
        rest = -0.5 * (1.0 - alpha) / alpha * np.sum(np.log1p(alpha * D / s2))
    K = Q + np.diag(alpha * D + s2 * np.ones(N))
    y = PROBLEM.Y[:, 0]
    log_normal = -0.5 * (
        y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1] + N * np.log(2.0 * np.pi)
    )
    assert_close(model.pep_log_marginal_likelihood(), log_normal + rest)


def test_a_lower_bound_that_rises_as_the_noise_falls() -> None:
    exact = float(_exact().log_marginal_likelihood())
    models = [_model(variance) for variance in (10.0, 1.0, 0.1, 1e-3, 1e-9)]
    bounds = [float(model.pep_log_marginal_likelihood()) for model in models]
    assert np.all(np.diff(bounds) > 0.0)
    without = PROBLEM.model(gpflow.models.SGPR)
    best = float(without.maximum_log_likelihood_objective())
    assert bounds[-1] <= best + 1e-6 <= exact
    assert_close(bounds[-1], best, rtol=1e-6)
    assert all(float(model.upper_bound()) >= exact for model in models)


def test_at_all_rows_it_stays_a_bound() -> None:
    """Points at all rows are exact; noise on them makes the bound fall, never exceed."""
    exact = float(_exact().log_marginal_likelihood())
    for variance in (1.0, 1e-2, 1e-8):
        model = PROBLEM.model(
            pep.models.PEPRegression, NoisyInducingVariables(PROBLEM.X, variance), alpha=0.0
        )
        assert float(model.pep_log_marginal_likelihood()) < exact
    assert_close(model.pep_log_marginal_likelihood(), exact, rtol=1e-4)


def test_trained_from_large_it_falls() -> None:
    model = _model(1.0)
    start = float(model.pep_log_marginal_likelihood())
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": 40}
    )
    assert model.inducing_variable.variance.numpy() < 1e-2
    # Wherever it ends, values that are read can be assigned.
    gpflow.utilities.multiple_assign(model, gpflow.utilities.read_values(model))
    exact = gpflow.models.GPR(PROBLEM.data, model.kernel, likelihood=model.likelihood)
    assert start < float(model.pep_log_marginal_likelihood()) < exact.log_marginal_likelihood()


def test_gradient_of_the_noise() -> None:
    model = _model(0.3, 0.5)
    variable = model.inducing_variable.deviation.unconstrained_variable
    (gradient,) = gradients(model.pep_log_marginal_likelihood, [variable])
    expected = finite_difference_gradient(model.pep_log_marginal_likelihood, variable)
    assert_close(gradient, expected, rtol=1e-6)


def test_predictions_are_those_of_the_same_prior() -> None:
    """Noise on inducing points is a white kernel that the data do not have."""
    model = _model(0.4, 0.5)
    Kuu_, Kuf_ = (PROBLEM.covariance(PROBLEM.Z, other) for other in (PROBLEM.Z, PROBLEM.Xnew))
    Kuu_ = Kuu_ + (0.4 + gpflow.config.default_jitter()) * np.eye(len(PROBLEM.Z))
    mean, covariance = (part.numpy() for part in model.compute_qu())
    A = np.linalg.solve(Kuu_, Kuf_)
    variance = PROBLEM.variance - np.sum(A * (Kuf_ - covariance @ A), axis=0)
    assert_close(model.predict_f(PROBLEM.Xnew)[0], A.T @ mean)
    assert_close(model.predict_f(PROBLEM.Xnew)[1][:, 0], variance)


@pytest.mark.parametrize("make", [gpflow.models.SGPR, gpflow.models.GPRFITC])
def test_models_of_gpflow(make: Any) -> None:
    points = NoisyInducingVariables(PROBLEM.Z, 0.4)
    model = make(PROBLEM.data, PROBLEM.kernel(), points, noise_variance=PROBLEM.noise_variance)
    alpha = 0.0 if make is gpflow.models.SGPR else 1.0
    assert_close(
        model.maximum_log_likelihood_objective(), _model(0.4, alpha).pep_log_marginal_likelihood()
    )


def test_sites_and_shared_variables() -> None:
    points = NoisyInducingVariables(PROBLEM.Z, 0.4)
    likelihood = gpflow.likelihoods.Gaussian(PROBLEM.noise_variance)
    expected = _model(0.4, 0.5).pep_log_marginal_likelihood()
    model = pep.models.PEP(PROBLEM.data, PROBLEM.kernel(), likelihood, points, alpha=0.5)
    assert_close(model.pep_log_marginal_likelihood(), expected, rtol=1e-6)
    shared = pep.models.PEP(
        PROBLEM.data,
        gpflow.kernels.SharedIndependent(PROBLEM.kernel(), 1),
        likelihood,
        SharedIndependentInducingVariables(points),
        alpha=0.5,
    )
    assert_close(shared.pep_log_marginal_likelihood(), expected, rtol=1e-6)
    assert_close(shared.predict_f(PROBLEM.Xnew)[0], model.predict_f(PROBLEM.Xnew)[0], rtol=1e-6)


def test_no_noise_is_no_noise() -> None:
    expected = PROBLEM.model(pep.models.PEPRegression, alpha=0.5)
    assert_close(
        _model(0.0, 0.5).pep_log_marginal_likelihood(), expected.pep_log_marginal_likelihood()
    )


def test_of_blurred_points() -> None:
    blurred = BlurredInducingPoints(PROBLEM.Z, np.full(len(PROBLEM.Z), 0.2))
    noisy, kernel = NoisyInducingVariables(blurred, 0.4), PROBLEM.kernel()
    assert_close(Kuu(noisy, kernel), Kuu(blurred, kernel) + 0.4 * np.eye(len(PROBLEM.Z)))
    assert_close(Kuf(noisy, kernel, PROBLEM.X), Kuf(blurred, kernel, PROBLEM.X))
    with pytest.raises(ValueError, match="Matern32 with BlurredInducingPoints"):
        pep.models.PEPRegression(PROBLEM.data, gpflow.kernels.Matern32(), noisy)


def test_equal_points_need_no_more_jitter() -> None:
    Z = np.repeat(PROBLEM.Z[:1], 30, axis=0)
    with warnings.catch_warnings(), gpflow.config.as_context(gpflow.config.Config(jitter=0.0)):
        warnings.simplefilter("error")
        model = pep.models.PEPRegression(
            PROBLEM.data, PROBLEM.kernel(), NoisyInducingVariables(Z, 0.1), alpha=0.0
        )
        assert np.isfinite(model.pep_log_marginal_likelihood())


@pytest.mark.parametrize("variance", [-1.0, np.nan, np.inf, [1.0, 2.0]], ids=str)
def test_refused(variance: Any) -> None:
    with pytest.raises(ValueError, match="expected a number of at least 0"):
        NoisyInducingVariables(PROBLEM.Z, variance)
