"""The dense reference, checked against golden numbers, against a second derivation (iterative Power
EP on full-rank factors, the variational bound, SciPy's normal density) and in its limits.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats
from helpers import (
    GOLDEN_LOG_EXACT,
    GOLDEN_LOG_Z,
    GOLDEN_LOG_Z_BLOCKS,
    GOLDEN_MEAN,
    GOLDEN_VARIANCE,
    assert_all_close,
    assert_close,
    golden_problem,
    regression_problem,
)

from reference import regression as reference
from reference.regression import make_factors

GOLDEN_ATOL = 2e-10
ALPHAS = [0.0, 0.3, 0.5, 1.0]
BLOCKS = np.array([4, 0, 0, 1, 4, 2, 2, 2, 0, 4, 3, 0, 2, 2, 0, 4, 4])  # 5 blocks, one of one row


def test_golden_log_z() -> None:
    problem, mean, *_ = golden_problem()
    noise = np.full(9, problem.noise_variance)
    for alpha, expected in GOLDEN_LOG_Z.items():
        actual = reference.pep_log_z(
            problem.prior(jitter=0.0), problem.Y - mean, noise, make_factors(9, alpha)
        )
        assert actual == pytest.approx(expected, rel=0.0, abs=GOLDEN_ATOL)


def test_golden_log_z_of_blocks() -> None:
    problem, mean, noise, blocks, alpha = golden_problem()
    actual = reference.pep_log_z(
        problem.prior(jitter=0.0), problem.Y - mean, noise, make_factors(9, alpha, blocks)
    )
    assert actual == pytest.approx(GOLDEN_LOG_Z_BLOCKS, rel=0.0, abs=GOLDEN_ATOL)


def test_golden_predictions() -> None:
    problem, mean, *_ = golden_problem()
    mean_f, cov_f = reference.pep_predict(
        problem.prior(jitter=0.0),
        problem.Y - mean,
        np.full(9, problem.noise_variance),
        make_factors(9, 0.5),
        problem.covariance(problem.Z, problem.Xnew),
        problem.covariance(problem.Xnew, problem.Xnew),
    )
    assert mean_f[0, 0] + mean == pytest.approx(GOLDEN_MEAN, rel=0.0, abs=GOLDEN_ATOL)
    assert cov_f[1, 1] == pytest.approx(GOLDEN_VARIANCE, rel=0.0, abs=GOLDEN_ATOL)


def test_golden_exact_log_marginal_likelihood() -> None:
    problem, mean, *_ = golden_problem()
    actual = reference.exact_log_marginal_likelihood(
        problem.covariance(problem.X, problem.X),
        problem.Y - mean,
        np.full(9, problem.noise_variance),
    )
    assert actual == pytest.approx(GOLDEN_LOG_EXACT, rel=0.0, abs=GOLDEN_ATOL)


ITERATIVE_CASES = {
    "0.3": (0.3, None),
    "0.5": (0.5, None),
    "1": (1.0, None),
    "per row": (np.linspace(0.05, 1.0, 17), None),
    "blocks": (0.5, BLOCKS),
    "per block": ([0.2, 1.0, 0.5, 0.7, 0.9], BLOCKS),
    "one block": (0.4, np.zeros(17, dtype=int)),
}


@pytest.mark.parametrize("alpha, blocks", ITERATIVE_CASES.values(), ids=ITERATIVE_CASES.keys())
def test_one_sweep_of_power_ep_gives_the_closed_form(
    alpha: float | Sequence[float], blocks: Any | None
) -> None:
    problem = regression_problem()
    prior, noise = problem.prior(), np.linspace(0.05, 0.4, 17)
    factors = make_factors(17, alpha, blocks)
    state = reference.start_power_ep(prior, problem.Y[:, 0], noise, factors)
    state = reference.power_ep_sweep(state, step=1.0)
    again = reference.power_ep_sweep(state, step=1.0)
    mean, covariance = reference.pep_qu(prior, problem.Y, noise, factors)
    expected = reference.pep_log_z(prior, problem.Y, noise, factors)
    for converged in (state, again):
        assert_close(reference.power_ep_qu(converged)[0], mean[:, 0])
        assert_close(reference.power_ep_qu(converged)[1], covariance)
        assert_close(reference.power_ep_log_z(converged), expected)


def test_update_rule_of_the_papers_shrinks_the_error_by_one_minus_alpha() -> None:
    problem = regression_problem()
    prior, noise, alpha = problem.prior(), np.linspace(0.05, 0.4, 17), 0.3
    start = reference.start_power_ep(prior, problem.Y[:, 0], noise, make_factors(17, alpha))
    fixed_point = reference.power_ep_sweep(start, step=1.0).sites
    state = start
    for sweep in range(1, 4):
        state = reference.power_ep_sweep(state)
        for site, limit in zip(state.sites, fixed_point):
            factor = 1.0 - (1.0 - alpha) ** sweep
            assert_close(site.T1, factor * limit.T1)
            assert_close(site.T2, factor * limit.T2)


def test_alpha_0_is_the_largest_variational_bound(rng: np.random.Generator) -> None:
    problem = regression_problem()
    prior, noise = problem.prior(), np.linspace(0.05, 0.4, 17)
    factors = make_factors(17, 0.0)
    mean, covariance = reference.pep_qu(prior, problem.Y, noise, factors)
    best = reference.variational_bound(prior, problem.Y[:, 0], noise, mean[:, 0], covariance)
    assert_close(best, reference.pep_log_z(prior, problem.Y, noise, factors))
    for _ in range(10):
        other_mean = mean[:, 0] + 0.05 * rng.standard_normal(5)
        other_root = np.linalg.cholesky(covariance) @ (
            np.eye(5) + 0.1 * rng.standard_normal([5, 5])
        )
        assert best > reference.variational_bound(
            prior, problem.Y[:, 0], noise, other_mean, other_root @ other_root.T
        )


@pytest.mark.parametrize("blocks", [None, BLOCKS], ids=["rows", "blocks"])
def test_log_z_is_continuous_at_alpha_0(blocks: Any | None) -> None:
    problem = regression_problem()
    prior, noise = problem.prior(), np.linspace(0.05, 0.4, 17)
    at_0, near_0 = (
        reference.pep_log_z(prior, problem.Y, noise, make_factors(17, alpha, blocks))
        for alpha in (0.0, 1e-6)
    )
    assert at_0 != near_0
    assert_close(near_0, at_0, rtol=1e-4)


@pytest.mark.parametrize("blocks", [None, BLOCKS], ids=["FITC", "PITC"])
def test_alpha_1_is_one_normal_density(blocks: Any | None) -> None:
    problem = regression_problem(num_outputs=2)
    prior, noise = problem.prior(), np.linspace(0.05, 0.4, 17)
    factors = make_factors(17, 1.0, blocks)
    density = scipy.stats.multivariate_normal(
        mean=np.zeros(17), cov=reference.approximate_covariance(prior, noise, factors)
    )
    assert_close(
        reference.pep_log_z(prior, problem.Y, noise, factors), np.sum(density.logpdf(problem.Y.T))
    )


def test_alpha_1_and_one_block_of_everything_is_exact() -> None:
    problem = regression_problem()
    noise = np.linspace(0.05, 0.4, 17)
    assert_close(
        reference.pep_log_z(
            problem.prior(), problem.Y, noise, make_factors(17, 1.0, np.zeros(17, dtype=int))
        ),
        reference.exact_log_marginal_likelihood(
            problem.covariance(problem.X, problem.X), problem.Y, noise
        ),
    )


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("blocks", [None, BLOCKS], ids=["rows", "blocks"])
def test_inducing_points_at_all_the_rows_are_exact(alpha: float, blocks: Any | None) -> None:
    problem = regression_problem(num_outputs=2)
    problem = problem._replace(Z=problem.X)
    prior, noise = problem.prior(jitter=1e-13), np.linspace(0.05, 0.4, 17)
    factors = make_factors(17, alpha, blocks)
    Kfs = problem.covariance(problem.X, problem.Xnew)
    Kss = problem.covariance(problem.Xnew, problem.Xnew)
    assert_close(
        reference.pep_log_z(prior, problem.Y, noise, factors),
        reference.exact_log_marginal_likelihood(prior.Kff, problem.Y, noise),
    )
    assert_all_close(
        reference.pep_predict(prior, problem.Y, noise, factors, Kfs, Kss),
        reference.exact_predict(prior.Kff, problem.Y, noise, Kfs, Kss),
    )


@pytest.mark.parametrize("alpha", ALPHAS)
def test_predictions_follow_from_qu(alpha: float) -> None:
    problem = regression_problem(num_outputs=2)
    prior, noise = problem.prior(), np.linspace(0.05, 0.4, 17)
    factors = make_factors(17, alpha, BLOCKS)
    Kus = problem.covariance(problem.Z, problem.Xnew)
    Kss = problem.covariance(problem.Xnew, problem.Xnew)
    mean_u, cov_u = reference.pep_qu(prior, problem.Y, noise, factors)
    W = np.linalg.solve(prior.Kuu, Kus).T
    mean, cov = reference.pep_predict(prior, problem.Y, noise, factors, Kus, Kss)
    assert_close(mean, W @ mean_u)
    assert_close(cov, Kss - W @ Kus + W @ cov_u @ W.T)
