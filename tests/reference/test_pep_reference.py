"""
The dense reference of Power EP, checked against golden numbers, SciPy's adaptive integration, the
closed forms of regression, textbook EP, and the limits that the papers state.
"""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from cases.pep import (
    ALPHAS,
    CASES,
    EPSILON,
    N,
    poisson_log_density,
    probit_link,
    probit_log_density,
    reference_sites,
)
from helpers import Array, assert_close, golden_problem

from reference import regression as reference
from reference import sites as pep_reference
from reference.golden import (
    GOLDEN_ATOL,
    GOLDEN_MULTI_CLASS,
    GOLDEN_POISSON,
    GOLDEN_PROBIT,
    GOLDEN_SITE_MEAN,
    GOLDEN_SITE_VARIANCE,
    GOLDEN_SQUEEZED_PROBIT,
    golden_classes,
    golden_targets,
)

MEANS, VARIANCES = np.array([0.3, -1.2, 0.9]), np.array([0.5, 2.0, 0.1])


def _golden_fixed_point(
    targets: str, log_density: Callable[..., Array], alpha: float
) -> tuple[pep_reference.Problem, pep_reference.Sites]:
    problem, mean, *_ = golden_problem()
    factors = [
        pep_reference.scalar_factor(lambda f, y=y: log_density(f, y))
        for y in golden_targets(targets)[:, 0]
    ]
    prior = problem.prior(jitter=0.0)
    of_reference = pep_reference.Problem([prior], np.full([9, 1], mean), factors, np.full(9, alpha))
    return of_reference, pep_reference.fixed_point(of_reference)


@pytest.mark.parametrize("alpha, expected", GOLDEN_PROBIT.items())
def test_golden_probit(alpha: float, expected: float) -> None:
    state = _golden_fixed_point("labels", lambda f, y: probit_log_density(f, y, 0.0), alpha)
    assert pep_reference.log_z(*state) == pytest.approx(expected, rel=0.0, abs=GOLDEN_ATOL)


def test_golden_site() -> None:
    problem, sites = _golden_fixed_point("labels", lambda f, y: probit_log_density(f, y, 0.0), 0.5)
    site, w = sites[2][0], problem.direction(2, 0)
    nu, tau = site.T1 @ w / (w @ w), w @ site.T2 @ w / (w @ w) ** 2
    assert nu / tau == pytest.approx(GOLDEN_SITE_MEAN, rel=0.0, abs=GOLDEN_ATOL)
    assert 1.0 / tau == pytest.approx(GOLDEN_SITE_VARIANCE, rel=0.0, abs=GOLDEN_ATOL)


@pytest.mark.parametrize(
    "targets, log_density, expected",
    [
        ("labels", probit_log_density, GOLDEN_SQUEEZED_PROBIT),
        ("counts", poisson_log_density, GOLDEN_POISSON),
    ],
)
def test_golden_log_z(targets: str, log_density: Callable[..., Array], expected: float) -> None:
    state = _golden_fixed_point(targets, log_density, 0.5)
    assert pep_reference.log_z(*state) == pytest.approx(expected, rel=0.0, abs=GOLDEN_ATOL)


@pytest.mark.near_copies("0.5-*")
@pytest.mark.parametrize("alpha, expected", GOLDEN_MULTI_CLASS.items())
def test_golden_multi_class(alpha: float, expected: float) -> None:
    X = golden_problem().problem.X
    priors = [
        reference.squared_exponential_prior(X, Z, variance, lengthscales)
        for Z, variance, lengthscales in golden_classes()
    ]
    factors = [
        pep_reference.largest_latent_factor(int(y), 1.0 - EPSILON, EPSILON / 2.0)
        for y in golden_targets("classes")[:, 0]
    ]
    problem = pep_reference.Problem(
        priors, np.full([9, 3], golden_problem().mean), factors, np.full(9, alpha)
    )
    actual = pep_reference.log_z(problem, pep_reference.fixed_point(problem))
    assert actual == pytest.approx(expected, rel=0.0, abs=GOLDEN_ATOL)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].num_latent == 1])
def test_tilted_moments_of_one_latent_function(name: str, alpha: float) -> None:
    y = float(CASES[name].Y[0, 0])
    mean, deviation = 0.4, 0.8
    actual = CASES[name].factor(y)(np.array([mean]), np.array([deviation**2]), alpha)
    log_density = LOG_DENSITIES[name]

    def integrand(f: float, power: int) -> float:
        log_p = float(log_density(y, f))
        w = np.exp(alpha * log_p) if alpha > 0.0 else log_p
        return float(w * (f - mean) ** power * scipy.stats.norm.pdf(f, mean, deviation))

    for power, value in enumerate((actual.zeroth, actual.first[0], actual.second[0])):
        expected, _ = scipy.integrate.quad(
            integrand, mean - 9.0, mean + 9.0, (power,), epsabs=1e-13, epsrel=1e-12, points=[mean]
        )
        assert value == pytest.approx(expected, rel=1e-10, abs=1e-12)


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
@pytest.mark.parametrize("label", [0, 1, 2])
def test_tilted_moments_of_three_latent_functions(label: int, alpha: float) -> None:
    """Against two integrals, over the other two functions, of the label's Gaussian tail."""
    high, low = 0.9, 0.05
    actual = pep_reference.largest_latent_factor(label, high, low)(MEANS, VARIANCES, alpha)
    w_high, w_low = (high**alpha, low**alpha) if alpha > 0.0 else (np.log(high), np.log(low))
    others = [k for k in range(3) if k != label]
    deviation = np.sqrt(VARIANCES)
    # A product rule over equally probable values of the other two, so the comparison is coarse.
    side = scipy.stats.norm.ppf((np.arange(1201) + 0.5) / 1201)
    first, second = (MEANS[k] + deviation[k] * side for k in others)
    largest_other = np.maximum(first[:, None], second[None, :])
    z = (largest_other - MEANS[label]) / deviation[label]
    above = scipy.stats.norm.sf(z)
    probability = float(np.mean(above))
    expected = w_low + (w_high - w_low) * probability
    assert actual.zeroth == pytest.approx(expected, rel=1e-4)
    expected_first = (w_high - w_low) * deviation[label] * np.mean(scipy.stats.norm.pdf(z))
    assert actual.first[label] == pytest.approx(float(expected_first), rel=1e-3)
    for k, values in zip(others, (first[:, None], second[None, :])):
        expected_first = (w_high - w_low) * np.mean(above * (values - MEANS[k]))
        assert actual.first[k] == pytest.approx(float(expected_first), rel=2e-3)
        square = w_low + (w_high - w_low) * np.mean(above * (values - MEANS[k]) ** 2) / VARIANCES[k]
        assert actual.second[k] / VARIANCES[k] == pytest.approx(float(square), rel=2e-3)
    square = w_low + (w_high - w_low) * np.mean(above + z * scipy.stats.norm.pdf(z))
    assert actual.second[label] / VARIANCES[label] == pytest.approx(float(square), rel=1e-3)


@pytest.mark.parametrize("power", ALPHAS)
def test_gaussian_likelihood_is_the_collapsed_regression(power: str) -> None:
    case = CASES["Gaussian"]
    problem, sites = reference_sites("Gaussian", power)
    factors = reference.make_factors(N, ALPHAS[power])
    arguments = (problem.priors[0], case.Y - problem.means, np.full(N, 0.2), factors)
    assert_close(pep_reference.log_z(problem, sites), reference.pep_log_z(*arguments), rtol=1e-10)
    mean, covariance = pep_reference.posterior(problem, sites)[0].moments()
    expected_mean, expected_covariance = reference.pep_qu(*arguments)
    assert_close(mean[:, None], expected_mean, rtol=1e-10)
    assert_close(covariance, expected_covariance, rtol=1e-10)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_alpha_0_is_the_best_variational_bound(name: str, rng: np.random.Generator) -> None:
    problem, sites = reference_sites(name, "alpha 0")
    q = pep_reference.posterior(problem, sites)
    best = pep_reference.variational_bound(problem, q)
    assert_close(pep_reference.log_z(problem, sites), best, rtol=1e-10)
    for scale in (1e-3, 0.1):
        for _ in range(4):
            other = []
            for natural in q:
                root = np.linalg.cholesky(natural.T2)
                root = root + scale * np.tril(rng.standard_normal(root.shape))
                T1 = natural.T1 + scale * rng.standard_normal(natural.T1.shape)
                other.append(pep_reference.Natural(T1, root @ root.T))
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


def test_textbook_ep_is_the_limit_of_all_rows_as_inducing_inputs() -> None:
    X = golden_problem().problem.X
    signs = np.array([1, -1, 1, 1, -1, 1, -1, -1, 1])
    K = reference.squared_exponential(X, X, 1.3, [0.7, 1.1])
    textbook = pep_reference.classification_ep(K, signs)
    factors = [
        pep_reference.scalar_factor(lambda f, y=y: probit_log_density(f, y, 0.0))
        for y in 0.5 * (signs + 1)
    ]
    problem = pep_reference.Problem(
        [reference.Prior(K, K, K)], np.zeros([9, 1]), factors, np.ones(9)
    )
    sites = pep_reference.fixed_point(problem, tolerance=1e-10)
    assert_close(pep_reference.log_z(problem, sites), textbook.log_z, rtol=1e-9)
    mean, covariance = pep_reference.posterior(problem, sites)[0].moments()
    assert_close(mean, textbook.mean, rtol=1e-7)
    assert_close(covariance, textbook.covariance, rtol=1e-7)
