"""The dense reference of regression in its limits, and beside SciPy's normal density.

Iterative Power EP, its second derivation, is in `test_pep_reference.py`; of blocks there are golden
numbers in `test_golden.py`.
"""

from typing import Any

import numpy as np
import pytest
import scipy.stats
from helpers import assert_all_close, assert_close, regression_problem

from reference import regression as reference
from reference.regression import make_factors

ALPHAS = [0.0, 0.3, 0.5, 1.0]
BLOCKS = np.array([4, 0, 0, 1, 4, 2, 2, 2, 0, 4, 3, 0, 2, 2, 0, 4, 4])  # 5 blocks, one of one row
ONE_BLOCK, NOISE = np.zeros(17, dtype=int), np.linspace(0.05, 0.4, 17)
PROBLEM, TWO_OUTPUTS = (regression_problem(num_outputs=count) for count in (1, 2))
Y, PRIOR = PROBLEM.Y, PROBLEM.prior()
of_rows_and_blocks = pytest.mark.parametrize("blocks", [None, BLOCKS], ids=["rows", "blocks"])


@of_rows_and_blocks
def test_log_z_is_continuous_at_alpha_0(blocks: Any | None) -> None:
    at_0, near_0 = (
        reference.pep_log_z(PRIOR, Y, NOISE, make_factors(17, alpha, blocks))
        for alpha in (0.0, 1e-6)
    )
    assert at_0 != near_0
    assert_close(near_0, at_0, rtol=1e-4)


@of_rows_and_blocks
def test_alpha_1_is_one_normal_density(blocks: Any | None) -> None:
    """Of FITC or PITC: in a block the covariance is the prior's."""
    factors, R = make_factors(17, 1.0, blocks), TWO_OUTPUTS.Y
    K = reference.approximate_covariance(PRIOR, NOISE, factors)
    density = scipy.stats.multivariate_normal(mean=np.zeros(17), cov=K)
    log_z = reference.pep_log_z(PRIOR, R, NOISE, factors)
    assert_close(log_z, np.sum(density.logpdf(R.T)))
    same = factors.blocks[:, None] == factors.blocks
    assert_close(K[same], (PRIOR.Kff + np.diag(NOISE))[same])


def test_alpha_1_and_one_block_of_everything_is_exact() -> None:
    log_z = reference.pep_log_z(PRIOR, Y, NOISE, make_factors(17, 1.0, ONE_BLOCK))
    assert_close(log_z, reference.exact_log_marginal_likelihood(PRIOR.Kff, Y, NOISE))


@pytest.mark.parametrize("alpha", ALPHAS)
@of_rows_and_blocks
def test_inducing_points_at_all_the_rows_are_exact(alpha: float, blocks: Any | None) -> None:
    problem = TWO_OUTPUTS._replace(Z=TWO_OUTPUTS.X)
    prior, (X, R) = problem.prior(jitter=1e-13), problem.data
    factors, new = make_factors(17, alpha, blocks), problem.Xnew
    covariances = problem.covariance(X, new), problem.covariance(new, new)
    exact = reference.exact_log_marginal_likelihood(prior.Kff, R, NOISE)
    assert_close(reference.pep_log_z(prior, R, NOISE, factors), exact)
    actual = reference.pep_predict(prior, R, NOISE, factors, *covariances)
    assert_all_close(actual, reference.exact_predict(prior.Kff, R, NOISE, *covariances))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_predictions_follow_from_qu(alpha: float) -> None:
    arguments = PRIOR, TWO_OUTPUTS.Y, NOISE, make_factors(17, alpha, BLOCKS)
    Kus, Kss = (PROBLEM.covariance(A, PROBLEM.Xnew) for A in (PROBLEM.Z, PROBLEM.Xnew))
    mean, cov = reference.pep_qu(*arguments)
    W = np.linalg.solve(PRIOR.Kuu, Kus).T
    actual = reference.pep_predict(*arguments, Kus, Kss)
    assert_all_close(actual, (W @ mean, Kss - W @ Kus + W @ cov @ W.T))
