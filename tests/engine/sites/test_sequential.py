"""Row after row: the same fixed point, and one pass as plain NumPy does it."""

import gpflow
import numpy as np
import pytest
import scipy.stats
from cases.pep import ALPHAS, CASES, TIGHT, N, reference_sites
from helpers import Array, assert_close, trainable_by_name
from reference import sites as pep_reference

import gpflow_pep as pep


@pytest.mark.parametrize(
    "name, power", [("probit", "alpha per row"), ("Poisson", "alpha 0"), ("RobustMax", "alpha 1")]
)
@pytest.mark.near_copies
def test_the_same_fixed_point(name: str, power: str) -> None:
    model = CASES[name].model(alpha=ALPHAS[power])
    # Rounding of a posterior that is changed row by row leaves a little more than a sweep's.
    record = model.update_sites(sequential=True, tolerance=5.0 * TIGHT)
    assert record.converged and record.num_sweeps > 2
    # The record is that of the parallel loop, which finds nothing left to do.
    assert model.update_sites(tolerance=6.0 * TIGHT).num_sweeps == 1
    assert_close(
        model.pep_log_marginal_likelihood(), pep_reference.log_z(*reference_sites(name, power))
    )


def _assumed_density_filtering(K: Array, labels: Array) -> tuple[Array, Array]:
    """Mean and covariance of f after each label once, for the step likelihood without errors."""
    mean, covariance = np.zeros(len(K)), K.copy()
    for n, label in enumerate(labels):
        sign, variance = 2.0 * label - 1.0, covariance[n, n]
        z = sign * mean[n] / np.sqrt(1.0 + variance)
        ratio = scipy.stats.norm.pdf(z) / scipy.stats.norm.cdf(z)
        column = covariance[:, n]
        mean = mean + column * sign * ratio / np.sqrt(1.0 + variance)
        covariance = covariance - np.outer(column, column) * ratio * (z + ratio) / (1.0 + variance)
    return mean, covariance


@pytest.mark.slow
def test_one_pass_is_assumed_density_filtering() -> None:
    """Probit labels with next to no error rate; inducing inputs at the rows."""
    rng = np.random.default_rng(0)
    X = np.linspace(-3.0, 3.0, 8)[:, None]
    Y = rng.integers(0, 2, [8, 1]).astype(float)
    kernel = gpflow.kernels.Matern32(variance=2.0)
    likelihood = pep.likelihoods.NoisyLabelBernoulli(1e-12)
    model = pep.models.PEP((X, Y), kernel, likelihood, X, alpha=1.0)
    record = model.update_sites(max_sweeps=1, sequential=True)
    assert record.num_sweeps == 1 and not record.converged and record.num_rejected == 0
    nu, tau = model.sites.nu.numpy()[:, 0], model.sites.tau.numpy()[:, 0]
    K = kernel(X).numpy()
    covariance = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
    mean, expected = _assumed_density_filtering(K, Y[:, 0])
    assert_close(covariance, expected, rtol=1e-4)
    assert_close(covariance @ nu, mean, rtol=1e-4)


@pytest.mark.slow
def test_from_no_sites_where_those_given_are_improper() -> None:
    model, fresh = (CASES["probit"].model(alpha=1.0) for _ in range(2))
    model.sites.tau.assign(np.full([N, 1], -50.0))
    record, expected = (m.update_sites(max_sweeps=3, sequential=True) for m in (model, fresh))
    assert record == expected and record.num_rejected == 0
    np.testing.assert_array_equal(model.sites.tau, fresh.sites.tau)


@pytest.mark.slow
def test_improper_updates_are_refused_and_counted() -> None:
    """Targets far apart at the same place: Student's factors want more than q has to give."""
    X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1]])
    Y = np.array([[0.0], [8.0], [-8.0], [4.0], [-9.0]])
    likelihood = gpflow.likelihoods.StudentT(scale=0.1, df=2.0)
    kernel = gpflow.kernels.SquaredExponential(variance=10.0)
    model = pep.models.PEP((X, Y), kernel, likelihood, X, alpha=1.0)
    record = model.update_sites(max_sweeps=10, sequential=True)
    assert record.num_rejected > 0 and record.num_sweeps == 10
    assert not record.converged and record.residual == np.inf
    nu, tau = (part.numpy()[:, 0] for part in model.read_sites())
    assert np.all(np.isfinite(nu))
    precision = np.linalg.inv(kernel(X).numpy() + 1e-6 * np.eye(5)) + np.diag(tau)
    assert np.min(np.linalg.eigvalsh(precision)) > 0.0


@pytest.mark.slow
def test_a_damped_pass_goes_part_of_the_way() -> None:
    whole, half = (CASES["probit"].model(alpha=0.5) for _ in range(2))
    whole.update_sites(max_sweeps=1, sequential=True)
    half.update_sites(max_sweeps=1, damping=0.5, sequential=True)
    assert_close(half.sites.tau[0], 0.5 * whole.sites.tau[0])
    assert not any("sites" in name for name in trainable_by_name(half))
