"""Noise of the variance that inducing variables leave over (Titsias 2009, appendix C)."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close, finite_difference_gradient, gradients, regression_problem

import gpflow_pep as pep
from gpflow_pep.likelihoods import ResidualVariance

PROBLEM = regression_problem()


def _dense() -> tuple[float, np.ndarray]:
    """T09 (42) and the noise variances, with the jitter of Kuu."""
    prior = PROBLEM.prior()
    Q = prior.Kuf.T @ np.linalg.solve(prior.Kuu, prior.Kuf)
    d = PROBLEM.variance - np.diag(Q)
    noise = PROBLEM.noise_variance + d
    K, y = Q + np.diag(noise), PROBLEM.Y[:, 0]
    log_normal = -0.5 * (
        y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1] + len(y) * np.log(2.0 * np.pi)
    )
    return log_normal - 0.5 * np.sum(d / noise), noise


def _model(Z: np.ndarray, alpha: float = 0.0, share: bool = True) -> pep.models.PEPRegression:
    kernel, points = PROBLEM.kernel(), gpflow.inducing_variables.InducingPoints(PROBLEM.Z)
    noise = ResidualVariance(kernel, points, PROBLEM.noise_variance)
    return pep.models.PEPRegression(
        PROBLEM.data,
        kernel,
        points if share else Z,
        alpha=alpha,
        likelihood=gpflow.likelihoods.Gaussian(variance=noise),
    )


def test_the_bound_of_spgp() -> None:
    model = _model(PROBLEM.Z)
    bound, noise = _dense()
    assert_close(model.likelihood.variance_at(PROBLEM.X)[:, 0], noise)
    assert_close(model.pep_log_marginal_likelihood(), bound)
    # One object in both places is one parameter.
    assert len(model.trainable_variables) == 4


def test_bound_of_the_model_with_that_noise() -> None:
    model = _model(PROBLEM.Z)
    exact = float(
        gpflow.models.GPR(
            PROBLEM.data, model.kernel, likelihood=model.likelihood
        ).log_marginal_likelihood()
    )
    assert float(model.pep_log_marginal_likelihood()) < exact
    # With variables of its own for q, the bound reaches it.
    own = _model(PROBLEM.X, share=False)
    assert_close(own.pep_log_marginal_likelihood(), exact, rtol=1e-4)
    assert float(own.pep_log_marginal_likelihood()) <= exact


def test_gradient_and_training() -> None:
    model = _model(PROBLEM.Z)
    value = tf.function(model.pep_log_marginal_likelihood)
    for gradient, variable in zip(
        gradients(value, model.trainable_variables), model.trainable_variables
    ):
        expected = finite_difference_gradient(value, variable)
        assert_close(gradient, expected, rtol=1e-6, scale=1.0)


def test_at_other_shapes() -> None:
    noise = ResidualVariance(PROBLEM.kernel(), PROBLEM.Z, 0.09)
    flat = noise(PROBLEM.Xnew)
    assert flat.shape == [6, 1]
    assert_close(noise(PROBLEM.Xnew.reshape(2, 3, 2)), tf.reshape(flat, [2, 3, 1]))


@pytest.mark.parametrize("variance", [0.0, -1.0, float("nan")])
def test_refused(variance: float) -> None:
    with pytest.raises(ValueError, match="variance: got"):
        ResidualVariance(PROBLEM.kernel(), PROBLEM.Z, variance)
