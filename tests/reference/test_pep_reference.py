"""
The dense reference of Power EP beside SciPy's adaptive integration, the closed forms of regression
and the limits that the papers state; golden numbers are in `test_golden.py`.
"""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from cases.pep import ALPHAS, CASES, N, probit_link, reference_sites
from helpers import assert_all_close, assert_close

from reference import regression as reference
from reference import sites as pep_reference

MEANS, VARIANCES = np.array([0.3, -1.2, 0.9]), np.array([0.5, 2.0, 0.1])
# Once more, as SciPy's distributions of y, where the case table has formulas.
LOG_DENSITIES: dict[str, Callable[[float, float], float]] = {
    "Gaussian": lambda y, f: scipy.stats.norm.logpdf(y, f, np.sqrt(0.2)),
    "probit": lambda y, f: scipy.stats.bernoulli.logpmf(y, probit_link(f)),
    "logit": lambda y, f: scipy.stats.bernoulli.logpmf(y, scipy.stats.logistic.cdf(f)),
    "Poisson": lambda y, f: scipy.stats.poisson.logpmf(y, np.exp(f)),
    "Gamma": lambda y, f: scipy.stats.gamma.logpdf(y, 1.7, scale=np.exp(f)),
    "Beta": lambda y, f: scipy.stats.beta.logpdf(
        y, 3.0 * probit_link(f), 3.0 - 3.0 * probit_link(f)
    ),
    "Ordinal": lambda y, f: np.log(
        1e-6 + np.diff(probit_link((np.array([-np.inf, -0.1, 0.6, np.inf]) - f) / 0.5))[int(y)]
    ),
    "Student-t": lambda y, f: scipy.stats.t.logpdf((y - f) / 0.4, 4.0) - np.log(0.4),
}


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", LOG_DENSITIES)
def test_tilted_moments_of_one_latent_function(name: str, alpha: float) -> None:
    assert set(CASES) == {*LOG_DENSITIES, "RobustMax"}
    y, mean, deviation = float(CASES[name].Y[0, 0]), 0.4, 0.8
    actual = CASES[name].factor(y)(np.array([mean]), np.array([deviation**2]), alpha)

    def integrand(f: float, power: int) -> float:
        log_p = float(LOG_DENSITIES[name](y, f))
        w = np.exp(alpha * log_p) if alpha > 0.0 else log_p
        return float(w * (f - mean) ** power * scipy.stats.norm.pdf(f, mean, deviation))

    accuracy = {"epsabs": 1e-13, "epsrel": 1e-12, "points": [mean]}
    for power, value in enumerate((actual.zeroth, actual.first[0], actual.second[0])):
        expected = scipy.integrate.quad(integrand, mean - 9.0, mean + 9.0, (power,), **accuracy)
        assert value == pytest.approx(expected[0], rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("label", [0, 1, 2])
def test_tilted_moments_of_three_latent_functions(label: int, alpha: float) -> None:
    """Against two integrals, over the other two functions, of the label's Gaussian tail."""
    high, low = 0.9, 0.05
    actual = pep_reference.largest_latent_factor(label, high, low)(MEANS, VARIANCES, alpha)
    w_high, w_low = (high**alpha, low**alpha) if alpha > 0.0 else (np.log(high), np.log(low))
    more, deviation = w_high - w_low, np.sqrt(VARIANCES)
    others = [k for k in range(3) if k != label]
    # A product rule over equally probable values of the other two, so the comparison is coarse.
    side = scipy.stats.norm.ppf((np.arange(1201) + 0.5) / 1201)
    first, second = (MEANS[k] + deviation[k] * side for k in others)
    z = (np.maximum(first[:, None], second) - MEANS[label]) / deviation[label]
    above, density = scipy.stats.norm.sf(z), scipy.stats.norm.pdf(z)
    assert actual.zeroth == pytest.approx(w_low + more * np.mean(above), rel=1e-4)
    slope, square = more * deviation[label] * np.mean(density), np.mean(above + z * density)
    expected = {label: (slope, w_low + more * square, 1e-3)}
    for k, values in zip(others, (first[:, None], second)):
        off = values - MEANS[k]
        square = w_low + more * np.mean(above * off**2) / VARIANCES[k]
        expected[k] = more * np.mean(above * off), square, 2e-3
    for k, (slope, square, rtol) in expected.items():
        assert actual.first[k] == pytest.approx(float(slope), rel=rtol)
        assert actual.second[k] / VARIANCES[k] == pytest.approx(float(square), rel=rtol)


@pytest.mark.parametrize("power", ALPHAS)
def test_gaussian_likelihood_is_the_collapsed_regression(power: str) -> None:
    """After one sweep, BYT17's remark 4."""
    case = CASES["Gaussian"]
    problem = case.reference_problem(ALPHAS[power])
    sites, _ = pep_reference.sweep(problem, pep_reference.no_sites(problem), step=1.0)
    assert pep_reference.sweep(problem, sites, step=1.0)[1] < 1e-11
    factors = reference.make_factors(N, ALPHAS[power])
    arguments = (problem.priors[0], case.Y - problem.means, np.full(N, 0.2), factors)
    assert_close(pep_reference.log_z(problem, sites), reference.pep_log_z(*arguments), rtol=1e-10)
    mean, covariance = pep_reference.posterior(problem, sites)[0].moments()
    assert_all_close((mean[:, None], covariance), reference.pep_qu(*arguments), rtol=1e-10)


def test_update_rule_of_the_papers_shrinks_the_error_by_one_minus_alpha() -> None:
    problem, fixed_point = reference_sites("Gaussian", "alpha 0.3")
    sites = pep_reference.no_sites(problem)
    for sweep in range(1, 4):
        sites, _ = pep_reference.sweep(problem, sites, step=0.3)
        factor = 1.0 - 0.7**sweep
        for (site,), (limit,) in zip(sites, fixed_point):
            assert_all_close(site, [factor * part for part in limit])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.near_copies("Gaussian")
def test_alpha_0_is_the_best_variational_bound(name: str, rng: np.random.Generator) -> None:
    problem, sites = reference_sites(name, "alpha 0")
    q = pep_reference.posterior(problem, sites)
    best = pep_reference.variational_bound(problem, q)
    assert_close(pep_reference.log_z(problem, sites), best, rtol=1e-10)

    def moved(natural: pep_reference.Natural, scale: float) -> pep_reference.Natural:
        root, T1 = np.linalg.cholesky(natural.T2), natural.T1
        root = root + scale * np.tril(rng.standard_normal(root.shape))
        return pep_reference.Natural(T1 + scale * rng.standard_normal(T1.shape), root @ root.T)

    for scale in (1e-3, 0.1):
        for _ in range(4):
            other = [moved(natural, scale) for natural in q]
            assert pep_reference.variational_bound(problem, other) < best


@pytest.mark.parametrize(
    "name", ["probit", "Poisson", pytest.param("RobustMax", marks=pytest.mark.slow)]
)
def test_continuous_at_alpha_0(name: str) -> None:
    at_0, gaps = pep_reference.log_z(*reference_sites(name, "alpha 0")), []
    for alpha in (1e-3, 1e-4):
        problem = CASES[name].reference_problem(np.full(N, alpha))
        sites = pep_reference.fixed_point(problem, tolerance=1e-9)
        gaps.append(pep_reference.log_z(problem, sites) - at_0)
    assert gaps[0] == pytest.approx(10.0 * gaps[1], rel=0.02)
