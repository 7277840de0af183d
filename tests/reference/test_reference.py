"""The dense references beside SciPy, closed forms, and the limits that the papers
state.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate
from cases.pep import ALPHAS, CASES, N, probit_link, reference_sites
from helpers import assert_all_close, assert_close, regression_problem
from scipy import stats

from reference import regression as reference
from reference import sites as pep_reference
from reference.regression import make_factors
from reference.tilted import log_power_expectation

MEANS = np.array([0.3, -1.2, 0.9])
VARIANCES = np.array([0.5, 2.0, 0.1])
ENDS = np.array([-np.inf, -0.1, 0.6, np.inf])
# Once more, as SciPy's distributions of y, where the case table has formulas.
LOG_DENSITIES: dict[str, Callable[[float, float], float]] = {
    "Gaussian": lambda y, f: stats.norm.logpdf(y, f, np.sqrt(0.2)),
    "probit": lambda y, f: stats.bernoulli.logpmf(y, probit_link(f)),
    "logit": lambda y, f: stats.bernoulli.logpmf(y, stats.logistic.cdf(f)),
    "Poisson": lambda y, f: stats.poisson.logpmf(y, np.exp(f)),
    "Gamma": lambda y, f: stats.gamma.logpdf(y, 1.7, scale=np.exp(f)),
    "Beta": lambda y, f: stats.beta.logpdf(
        y, 3.0 * probit_link(f), 3.0 - 3.0 * probit_link(f)
    ),
    "Ordinal": lambda y, f: np.log(
        1e-6 + np.diff(probit_link((ENDS - f) / 0.5))[int(y)]
    ),
    "Student-t": lambda y, f: stats.t.logpdf((y - f) / 0.4, 4.0) - np.log(0.4),
}


@pytest.mark.near_copies("*-0.3")
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", LOG_DENSITIES)
def test_tilted_moments_of_one_latent_function(name: str, alpha: float) -> None:
    assert set(CASES) == {*LOG_DENSITIES, "RobustMax"}
    y = float(CASES[name].Y[0, 0])
    mean = 0.4
    deviation = 0.8
    actual = CASES[name].factor(y)(np.array([mean]), np.array([deviation**2]), alpha)

    def integrand(f: float, power: int) -> float:
        log_p = float(LOG_DENSITIES[name](y, f))
        w = np.exp(alpha * log_p) if alpha > 0.0 else log_p
        return float(w * (f - mean) ** power * stats.norm.pdf(f, mean, deviation))

    accuracy = {"epsabs": 1e-13, "epsrel": 1e-12, "points": [mean]}
    for power, value in enumerate((actual.zeroth, actual.first[0], actual.second[0])):
        expected = scipy.integrate.quad(
            integrand, mean - 9.0, mean + 9.0, (power,), **accuracy
        )
        assert value == pytest.approx(expected[0], rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("infinity", [-np.inf, np.inf])
def test_an_infinite_log_density_at_power_zero_is_refused(infinity: float) -> None:
    def log_density(f: np.ndarray) -> np.ndarray:
        return np.where(f > 0.3, infinity, 0.0)

    with (
        np.errstate(invalid="ignore"),
        pytest.raises(ValueError, match="the integrand is infinite or NaN between"),
    ):
        log_power_expectation(log_density, 0.0, 1.0, 0.0)


@pytest.mark.near_copies("*-0.3")
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("label", [0, 1, 2])
def test_tilted_moments_of_three_latent_functions(label: int, alpha: float) -> None:
    """Against two integrals, over the other two functions, of the label's Gaussian
    tail.
    """
    high = 0.9
    low = 0.05
    actual = pep_reference.largest_latent_factor(label, high, low)(
        MEANS, VARIANCES, alpha
    )
    w_high, w_low = (high**alpha, low**alpha) if alpha > 0.0 else np.log([high, low])
    more = w_high - w_low
    deviation = np.sqrt(VARIANCES)
    others = [k for k in range(3) if k != label]
    # A product rule over equally probable values of the other two, so the comparison is
    # coarse.
    side = stats.norm.ppf((np.arange(1201) + 0.5) / 1201)
    first, second = (MEANS[k] + deviation[k] * side for k in others)
    z = (np.maximum(first[:, None], second) - MEANS[label]) / deviation[label]
    above = stats.norm.sf(z)
    density = stats.norm.pdf(z)
    assert actual.zeroth == pytest.approx(w_low + more * np.mean(above), rel=1e-4)
    expected = {label: (deviation[label] * density, above + z * density, 1e-3)}
    for k, values in zip(others, (first[:, None], second)):
        off = values - MEANS[k]
        expected[k] = above * off, above * off**2 / VARIANCES[k], 2e-3
    for k, (slope, square, rtol) in expected.items():
        assert actual.first[k] == pytest.approx(more * np.mean(slope), rel=rtol)
        square = w_low + more * np.mean(square)
        assert actual.second[k] / VARIANCES[k] == pytest.approx(square, rel=rtol)


@pytest.mark.parametrize("power", ALPHAS)
def test_gaussian_likelihood_is_the_collapsed_regression(power: str) -> None:
    """After one sweep, BYT17's remark 4."""
    case = CASES["Gaussian"]
    problem = case.reference_problem(ALPHAS[power])
    sites, _ = pep_reference.sweep(problem, pep_reference.no_sites(problem), step=1.0)
    assert pep_reference.sweep(problem, sites, step=1.0)[1] < 1e-11
    factors = make_factors(N, ALPHAS[power])
    arguments = (problem.priors[0], case.Y - problem.means, np.full(N, 0.2), factors)
    assert_close(
        pep_reference.log_z(problem, sites), reference.pep_log_z(*arguments), rtol=1e-10
    )
    mean, covariance = pep_reference.posterior(problem, sites)[0].moments()
    assert_all_close(
        (mean[:, None], covariance), reference.pep_qu(*arguments), rtol=1e-10
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.near_copies("Gaussian")
def test_alpha_0_is_the_best_variational_bound(
    name: str, rng: np.random.Generator
) -> None:
    problem, sites = reference_sites(name, "alpha 0")
    q = pep_reference.posterior(problem, sites)
    best = pep_reference.variational_bound(problem, q)
    assert_close(pep_reference.log_z(problem, sites), best, rtol=1e-10)

    def moved(natural: pep_reference.Natural, scale: float) -> pep_reference.Natural:
        root = np.linalg.cholesky(natural.T2)
        T1 = natural.T1
        root = root + scale * np.tril(rng.standard_normal(root.shape))
        return pep_reference.Natural(
            T1 + scale * rng.standard_normal(T1.shape), root @ root.T
        )

    for scale in (1e-3, 0.1):
        for _ in range(4):
            other = [moved(natural, scale) for natural in q]
            assert pep_reference.variational_bound(problem, other) < best


@pytest.mark.parametrize(
    "name", ["probit", "Poisson", pytest.param("RobustMax", marks=pytest.mark.slow)]
)
def test_continuous_at_alpha_0(name: str) -> None:
    at_0 = pep_reference.log_z(*reference_sites(name, "alpha 0"))
    gaps = []
    for alpha in (1e-3, 1e-4):
        problem = CASES[name].reference_problem(np.full(N, alpha))
        sites = pep_reference.fixed_point(problem, tolerance=1e-9)
        gaps.append(pep_reference.log_z(problem, sites) - at_0)
    assert gaps[0] == pytest.approx(10.0 * gaps[1], rel=0.02)


# Of regression; iterative Power EP is its second derivation.

POWERS = [0.0, 0.3, 0.5, 1.0]
# 5 blocks, one of one row.
BLOCKS = np.array([4, 0, 0, 1, 4, 2, 2, 2, 0, 4, 3, 0, 2, 2, 0, 4, 4])
ONE_BLOCK = np.zeros(17, dtype=int)
NOISE = np.linspace(0.05, 0.4, 17)
PROBLEM, TWO_OUTPUTS = (regression_problem(num_outputs=count) for count in (1, 2))
Y = PROBLEM.Y
PRIOR = PROBLEM.prior()
of_rows_and_blocks = pytest.mark.parametrize(
    "blocks", [None, BLOCKS], ids=["rows", "blocks"]
)


@of_rows_and_blocks
def test_log_z_is_continuous_at_alpha_0(blocks: Any | None) -> None:
    factors = (make_factors(17, alpha, blocks) for alpha in (0.0, 1e-6))
    at_0, near_0 = (reference.pep_log_z(PRIOR, Y, NOISE, part) for part in factors)
    assert at_0 != near_0
    assert_close(near_0, at_0, rtol=1e-4)


@of_rows_and_blocks
def test_alpha_1_is_one_normal_density(blocks: Any | None) -> None:
    """Of FITC or PITC: in a block the covariance is the prior's."""
    factors = make_factors(17, 1.0, blocks)
    R = TWO_OUTPUTS.Y
    K = reference.approximate_covariance(PRIOR, NOISE, factors)
    density = stats.multivariate_normal(mean=np.zeros(17), cov=K)
    log_z = reference.pep_log_z(PRIOR, R, NOISE, factors)
    assert_close(log_z, np.sum(density.logpdf(R.T)))
    same = factors.blocks[:, None] == factors.blocks
    assert_close(K[same], (PRIOR.Kff + np.diag(NOISE))[same])


def test_alpha_1_and_one_block_of_everything_is_exact() -> None:
    log_z = reference.pep_log_z(PRIOR, Y, NOISE, make_factors(17, 1.0, ONE_BLOCK))
    assert_close(log_z, reference.exact_log_marginal_likelihood(PRIOR.Kff, Y, NOISE))


@pytest.mark.parametrize("alpha", POWERS)
@of_rows_and_blocks
def test_inducing_points_at_all_the_rows_are_exact(
    alpha: float, blocks: Any | None
) -> None:
    problem = TWO_OUTPUTS._replace(Z=TWO_OUTPUTS.X)
    prior, (X, R) = problem.prior(jitter=1e-13), problem.data
    factors = make_factors(17, alpha, blocks)
    new = problem.Xnew
    covariances = problem.covariance(X, new), problem.covariance(new, new)
    exact = reference.exact_log_marginal_likelihood(prior.Kff, R, NOISE)
    assert_close(reference.pep_log_z(prior, R, NOISE, factors), exact)
    actual = reference.pep_predict(prior, R, NOISE, factors, *covariances)
    assert_all_close(actual, reference.exact_predict(prior.Kff, R, NOISE, *covariances))


@pytest.mark.parametrize("alpha", POWERS)
def test_predictions_follow_from_qu(alpha: float) -> None:
    arguments = PRIOR, TWO_OUTPUTS.Y, NOISE, make_factors(17, alpha, BLOCKS)
    Kus, Kss = (PROBLEM.covariance(A, PROBLEM.Xnew) for A in (PROBLEM.Z, PROBLEM.Xnew))
    mean, cov = reference.pep_qu(*arguments)
    W = np.linalg.solve(PRIOR.Kuu, Kus).T
    actual = reference.pep_predict(*arguments, Kus, Kss)
    assert_all_close(actual, (W @ mean, Kss - W @ Kus + W @ cov @ W.T))
