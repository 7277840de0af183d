"""The surrogate regression: exact inference in it, done densely, against the
model's.
"""

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.pep import ALPHAS, CASES
from helpers import assert_close, regression_problem
from scipy.stats import multivariate_normal

import gpflow_pep as pep


def _regression(alpha: float) -> pep.PEPRegression:
    problem = regression_problem(3, num_data=15)
    data = problem.X, np.hstack([problem.Y, np.sin(problem.Y)])
    Z = problem.Z
    kernel = gpflow.kernels.SquaredExponential()
    return pep.PEPRegression(data, kernel, Z, alpha=alpha, noise_variance=0.2)


def _few_rows() -> pep.PEPRegression:
    """Fewer than inducing variables."""
    data = np.random.default_rng(0).standard_normal((2, 3, 1))
    kernel = gpflow.kernels.SquaredExponential()
    Z = np.linspace(-2.0, 2.0, 6)[:, None]
    return pep.PEPRegression(tuple(data), kernel, Z, alpha=0.5)


POWERS = {"probit": "0", "Poisson": "per row", "logit": "1", "RobustMax": "0.5"}
MODELS: dict[str, Any] = {
    **{
        name: partial(CASES[name].model, alpha=ALPHAS[f"alpha {POWERS[name]}"])
        for name in POWERS
    },
    **{
        f"regression, {alpha}": partial(_regression, alpha) for alpha in (0.0, 0.5, 1.0)
    },
    "few rows": _few_rows,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.near_copies("probit", "regression*", "few rows")
def test_exact_inference_gives_the_posterior_and_the_evidence(name: str) -> None:
    model = MODELS[name]()
    surrogate, (mean, covariances) = model.surrogate(), model.compute_qu()
    log_z = model.pep_log_marginal_likelihood()
    Z = model.inducing_variable
    Kuu = gpflow.covariances.Kuu(
        Z, model.kernel, jitter=gpflow.default_jitter()
    ).numpy()
    L, M = surrogate.targets.shape
    covariances = np.broadcast_to(covariances, (L, M, M))
    scale = np.exp(-float(surrogate.log_constant) / (L * M))
    evidence = scaled = 0.0
    for k, (W, y) in enumerate(
        zip(surrogate.weights.numpy(), surrogate.targets.numpy())
    ):
        covariance = W @ Kuu @ W.T + np.eye(M)  # of y = W u + N(0, I)
        gain = np.linalg.solve(covariance, W @ Kuu).T
        assert_close(gain @ y, mean[:, k])
        assert_close(Kuu - gain @ W @ Kuu, covariances[k])
        evidence += multivariate_normal(cov=covariance).logpdf(y)
        scaled += multivariate_normal(cov=scale**2 * covariance).logpdf(scale * y)
    assert_close(evidence + surrogate.log_constant, log_z)
    assert_close(scaled, log_z)  # scaled as documented there is no constant left
    if name == "few rows":  # directions that no row informs have rows of zeros
        assert np.sum(~np.any(surrogate.weights.numpy()[0], axis=1)) == 3


@pytest.mark.slow
def test_less_precision_than_the_prior_is_no_regression() -> None:
    """An outlier far from all else, for which Student's likelihood is convex."""
    X = np.array([[0.0], [5.0]])
    Y = np.array([[0.0], [4.0]])
    likelihood = gpflow.likelihoods.StudentT(scale=0.5, df=3.0)
    model = pep.models.PEP(
        (X, Y), gpflow.kernels.SquaredExponential(), likelihood, X, alpha=0.5
    )
    model.update_sites()
    assert np.any(model.sites.tau.numpy() < -1e-3)
    with pytest.raises(ValueError, match=r"negative precision.*log-concave"):
        model.surrogate()
    with pytest.raises(tf.errors.InvalidArgumentError, match="log-concave"):
        tf.function(model.surrogate, autograph=False)()
