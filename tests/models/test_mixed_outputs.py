"""Tied models whose q correlates the outputs of a row: the tilted integral is over all at once."""

from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from helpers import Array, assert_close, finite_difference_gradient, gradients

import gpflow_pep as pep

N, M, P, NOISE = 6, 4, 2, 0.3
rng = np.random.default_rng(0)
X, Z = rng.uniform(-2.0, 2.0, (N, 1)), np.linspace(-2.0, 2.0, M)[:, None]
Y = np.hstack([np.sin(X), np.cos(X)]) + 0.3 * rng.standard_normal((N, P))
MIXING = rng.standard_normal((P, P))


def _points() -> Any:
    points = gpflow.inducing_variables.InducingPoints(Z.copy())
    return gpflow.inducing_variables.SharedIndependentInducingVariables(points)


def _coregionalised() -> dict[str, Any]:
    kernels = [gpflow.kernels.SquaredExponential(), gpflow.kernels.Matern32()]
    root = np.tril(0.2 * rng.standard_normal((P, M, M))) + 0.6 * np.eye(M)
    return {
        "kernel": gpflow.kernels.LinearCoregionalization(kernels, MIXING.copy()),
        "inducing_variable": _points(),
        "q_mu": rng.standard_normal((M, P)),
        "q_sqrt": root,
    }


def _correlated_by_q() -> dict[str, Any]:
    """Outputs that are independent a priori, with one Gaussian over all of them."""
    root = np.tril(0.2 * rng.standard_normal((1, P * M, P * M))) + 0.6 * np.eye(P * M)
    kernel = gpflow.kernels.SquaredExponential()
    return {
        "kernel": gpflow.kernels.SharedIndependent(kernel, P),
        "inducing_variable": Z.copy(),
        "q_mu": rng.standard_normal((P * M, 1)),
        "q_sqrt": root,
    }


CASES = {"mixed a priori": _coregionalised, "correlated by q": _correlated_by_q}


def _tilted(mean: Array, covariance: Array, y: Array, alpha: float) -> float:
    """The product of Gaussians, by the density of y under noise / alpha."""
    if alpha == 0.0:
        expected = scipy.stats.norm.logpdf(y, mean, np.sqrt(NOISE))
        return float(np.sum(expected - 0.5 * np.diagonal(covariance) / NOISE))
    log_density = scipy.stats.multivariate_normal(mean, covariance + NOISE / alpha * np.eye(P))
    to_power = P * ((1.0 - alpha) * np.log(2.0 * np.pi * NOISE) - np.log(alpha)) / 2.0
    return float((to_power + log_density.logpdf(y)) / alpha)


@pytest.mark.near_copies("0.3-*", "1.0-*")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.3, 0.5, 1.0])
def test_gaussian_noise(case: str, alpha: float) -> None:
    arguments = CASES[case]()
    likelihood = gpflow.likelihoods.Gaussian(NOISE)
    model = pep.models.ARPEP(likelihood=likelihood, num_data=N, alpha=alpha, **arguments)
    svgp = gpflow.models.SVGP(likelihood=likelihood, num_data=N, **arguments)
    mean, covariance = svgp.predict_f(X, full_output_cov=True)
    assert np.max(np.abs(covariance.numpy()[:, 0, 1])) > 0.05  # there is something to lose
    ell = [_tilted(*row, alpha) for row in zip(mean.numpy(), covariance.numpy(), Y)]
    expected = np.sum(ell) - float(svgp.prior_kl())
    # The product of densities loses digits as 1 / alpha; the model does not.
    rtol = 1e-8 if alpha != 1e-6 else 1e-5
    assert_close(model.pep_log_marginal_likelihood((X, Y)), expected, rtol=rtol)
    if alpha == 0.0:
        assert_close(model.pep_log_marginal_likelihood((X, Y)), svgp.elbo((X, Y)), rtol=1e-10)


@pytest.mark.parametrize("alpha", [0.5, 0.0, 1.0])
@pytest.mark.slow
def test_gradients(alpha: float) -> None:
    model = pep.models.RPAPEP(
        likelihood=gpflow.likelihoods.Gaussian(NOISE), num_data=N, alpha=alpha, **_coregionalised()
    )
    loss = tf.function(lambda: model.training_loss((X, Y)))
    variables = [
        parameter.unconstrained_variable
        for parameter in (model.kernel.W, model.likelihood.variance, model.q_mu)
    ]
    for actual, variable in zip(gradients(loss, variables), variables):
        assert_close(actual, finite_difference_gradient(loss, variable), rtol=1e-7)


def test_others_are_refused_above_alpha_0() -> None:
    model = pep.models.ARPEP(
        likelihood=gpflow.likelihoods.Poisson(), num_data=N, alpha=0.5, **_coregionalised()
    )
    counts = X, np.round(np.exp(Y))
    with pytest.raises(ValueError, match=r"alpha: got .*Coregionalization.*Poisson, expected"):
        model.training_loss(counts)
    with pytest.raises(tf.errors.InvalidArgumentError, match="correlates the latent functions"):
        tf.function(model.training_loss)(counts)
    model.alpha.assign(0.0)
    assert np.isfinite(float(model.training_loss(counts)))
