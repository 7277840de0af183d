"""Power EP in small groups of rows, beside one row after the other in NumPy."""

from functools import cache
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, Poisson, StudentT
from scipy.special import gammaln, ndtr

from gpflow_pep.engine.sites import groups
from gpflow_pep.engine.sites.groups import GroupRows, infer_groups
from gpflow_pep.engine.sites.posterior import Sites
from gpflow_pep.models import ConvergenceWarning
from tests.reference import groups as reference

S = 5
ALPHAS = (0.0, 1e-6, 0.3, 0.5, 1.0)


def _log_prob(likelihood: Likelihood, y: float) -> reference.Density:
    if isinstance(likelihood, Bernoulli):
        return lambda f: np.log(1e-3 + (1.0 - 2e-3) * ndtr((2.0 * y - 1.0) * f))
    return lambda f: y * f - np.exp(f) - gammaln(y + 1.0)


def _rows(likelihood: Likelihood, alpha: float, each: bool = False) -> GroupRows:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (2, S, 2))
    Y = 1.0 * rng.integers(0, 2 if isinstance(likelihood, Bernoulli) else 5, (2, S, 1))
    C = gpflow.kernels.Matern32(variance=2.0, lengthscales=0.7)(X).numpy()
    alphas = np.full((2, S) if each else (1, 1), alpha)
    return GroupRows(
        *map(tf.constant, (X, Y, alphas, 0.3 * rng.standard_normal((2, S)), C))
    )


@cache
def compiled(likelihood: Likelihood) -> Any:
    """To the end, for all powers."""
    options = {"tolerance": 1e-12, "max_sweeps": 50}

    def infer(*rows):
        return infer_groups(likelihood, GroupRows(*rows), **options)

    return tf.function(infer, autograph=False)


@pytest.mark.near_copies("poisson-0.3-True", "bernoulli-*-False")
@pytest.mark.parametrize(
    "alpha, each", [*((alpha, False) for alpha in ALPHAS), (0.3, True), (1.0, True)]
)
@pytest.mark.parametrize(
    "likelihood", [Bernoulli(), Poisson()], ids=["bernoulli", "poisson"]
)
def test_fixed_point(likelihood: Likelihood, alpha: float, each: bool) -> None:
    rows = _rows(likelihood, alpha, each)
    sites = Sites(*compiled(likelihood)(*rows))
    for group in range(2):
        factors = [_log_prob(likelihood, float(y)) for y in rows.Y[group, :, 0]]
        mean = rows.mean[group].numpy()
        C = rows.covariance[group].numpy()
        nu, tau = reference.fixed_point(factors, mean, C, alpha, 35)
        np.testing.assert_allclose(sites.nu[group], nu, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(sites.tau[group], tau, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gaussian_noise_is_exact_at_once(alpha: float) -> None:
    rows = _rows(Poisson(), alpha)
    targets, variance = groups.gaussian_observations(Gaussian(0.2), rows)
    np.testing.assert_allclose(targets, rows.Y, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(variance, np.full((2, S), 0.2), rtol=1e-8)


def test_default_tolerance_is_that_of_means() -> None:
    """Nor does a group depend on others: sweeps went on until the last had settled."""
    rows = _rows(Bernoulli(), 0.5)
    ends = []
    mean = rows.mean.numpy()[..., None]
    inverse = np.linalg.inv(rows.covariance)
    for sites in (
        infer_groups(Bernoulli(), rows),
        infer_groups(Bernoulli(), rows, 1e-12, 50),
    ):
        v = np.linalg.inv(inverse + sites.tau.numpy()[..., None] * np.eye(S))
        m = v @ (inverse @ mean + sites.nu.numpy()[..., None])
        expected = m[..., 0], v.diagonal(0, 1, 2)
        for pair in zip(groups._group_marginals(rows, sites), expected):
            np.testing.assert_allclose(*pair, rtol=1e-8)
        ends.append(m[..., 0])
    assert np.max(np.abs(ends[0] - ends[1]) / np.sqrt(expected[1])) < 1e-3
    hard = rows._replace(
        covariance=rows.covariance * np.array([1.0, 30.0])[:, None, None]
    )
    both = infer_groups(Bernoulli(), hard)
    first = infer_groups(Bernoulli(), GroupRows(*(part[:1] for part in hard)))
    for part, alone in zip(both, first, strict=True):
        np.testing.assert_allclose(part[:1], alone, rtol=1e-12)


@pytest.mark.near_copies("False")
@pytest.mark.parametrize("in_graph", [False, True])
def test_sites_that_do_not_settle(
    in_graph: bool, recwarn: pytest.WarningsRecorder
) -> None:
    """Those of Student-t targets that a long lengthscale cannot follow; in training
    silently.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (20, 8, 2))
    Y = np.sin(9.0 * X[..., :1]) + X[..., 1:] + 0.1 * rng.standard_t(3.0, (20, 8, 1))
    C = gpflow.kernels.Matern32(variance=10.0, lengthscales=2.0)(X).numpy()
    rows = GroupRows(*map(tf.constant, (X, Y, np.ones((1, 1)), np.zeros((20, 8)), C)))
    student = StudentT(scale=0.1, df=3.0)

    def infer(**options: float) -> Sites:
        def function():
            return infer_groups(student, rows, **options)

        return Sites(
            *(tf.function(function, autograph=False) if in_graph else function)()
        )

    with pytest.warns(
        ConvergenceWarning, match="near rows did not converge.*fewer near rows"
    ):
        assert np.isfinite(infer().nu).all()
    if in_graph:
        infer(tolerance=groups.TRAINING_TOLERANCE)
        infer_groups(Bernoulli(), _rows(Bernoulli(), 0.5))
        assert not recwarn
