"""The surrogate regression: exact inference in it, done densely, against the model's."""

from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from cases.pep import ALPHAS, CASES
from helpers import Array, assert_close, regression_problem

import gpflow_pep as pep


def _exact_regression(Kuu: Array, W: Array, y: Array) -> tuple[Array, Array, float]:
    """Posterior mean and covariance of u, and log evidence, of y = W u + N(0, I)."""
    covariance = W @ Kuu @ W.T + np.eye(len(y))
    gain = np.linalg.solve(covariance, W @ Kuu).T
    evidence = scipy.stats.multivariate_normal(cov=covariance).logpdf(y)
    return gain @ y, Kuu - gain @ W @ Kuu, float(evidence)


def _check(model: Any, mean: Array, covariances: Array) -> None:
    surrogate = model.surrogate()
    Kuu = gpflow.covariances.Kuu(
        model.inducing_variable, model.kernel, jitter=gpflow.default_jitter()
    ).numpy()
    evidence = 0.0
    for k, (W, y) in enumerate(zip(surrogate.weights.numpy(), surrogate.targets.numpy())):
        actual_mean, actual_covariance, log_density = _exact_regression(Kuu, W, y)
        assert_close(actual_mean, mean[:, k])
        assert_close(actual_covariance, covariances[k])
        evidence += log_density
    log_z = model.pep_log_marginal_likelihood()
    assert_close(evidence + surrogate.log_constant, log_z)
    # Scaled as documented there is no constant left.
    L, M = surrogate.targets.shape
    scale = np.exp(-float(surrogate.log_constant) / (L * M))
    scaled = sum(
        scipy.stats.multivariate_normal(cov=scale**2 * (W @ Kuu @ W.T + np.eye(M))).logpdf(
            scale * y
        )
        for W, y in zip(surrogate.weights.numpy(), surrogate.targets.numpy())
    )
    assert_close(scaled, log_z)


@pytest.mark.parametrize(
    "name, power",
    [
        ("probit", "alpha 0"),
        ("Poisson", "alpha per row"),
        ("logit", "alpha 1"),
        ("RobustMax", "alpha 0.5"),
    ],
)
@pytest.mark.near_copies
def test_exact_inference_gives_the_posterior_and_the_evidence(name: str, power: str) -> None:
    model = CASES[name].model(alpha=ALPHAS[power])
    mean, covariances = model.compute_qu()
    _check(model, mean.numpy(), covariances.numpy())


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_regression(alpha: float) -> None:
    problem = regression_problem(3, num_data=15)
    Y = np.hstack([problem.Y, np.sin(problem.Y)])
    Z = np.random.default_rng(0).uniform(-2.0, 2.0, [5, 2])
    kernel = gpflow.kernels.SquaredExponential()
    model = pep.models.PEPRegression((problem.X, Y), kernel, Z, alpha=alpha, noise_variance=0.2)
    mean, covariance = model.compute_qu()
    _check(model, mean.numpy(), np.stack([covariance.numpy()] * 2))


def test_fewer_rows_than_inducing_variables() -> None:
    """Directions that no row informs have rows of zeros, and nothing is infinite."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((3, 1)), rng.standard_normal((3, 1))
    model = pep.models.PEPRegression(
        (X, Y), gpflow.kernels.SquaredExponential(), np.linspace(-2.0, 2.0, 6)[:, None], alpha=0.5
    )
    surrogate = model.surrogate()
    assert np.sum(~np.any(surrogate.weights.numpy()[0], axis=1)) == 3
    assert all(np.all(np.isfinite(part)) for part in surrogate)
    mean, covariance = model.compute_qu()
    _check(model, mean.numpy(), covariance.numpy()[None])


@pytest.mark.slow
def test_less_precision_than_the_prior_is_no_regression() -> None:
    """An outlier far from all else, for which Student's likelihood is convex."""
    X, Y = np.array([[0.0], [5.0]]), np.array([[0.0], [4.0]])
    likelihood = gpflow.likelihoods.StudentT(scale=0.5, df=3.0)
    model = pep.models.PEP((X, Y), gpflow.kernels.SquaredExponential(), likelihood, X, alpha=0.5)
    model.update_sites()
    assert np.any(model.sites.tau.numpy() < -1e-3)
    with pytest.raises(ValueError, match=r"negative precision.*log-concave"):
        model.surrogate()
    with pytest.raises(tf.errors.InvalidArgumentError, match="log-concave"):
        tf.function(model.surrogate, autograph=False)()
