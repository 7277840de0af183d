"""Counts, positive and cut-off targets: densities, moments and draws by SciPy and quadrature."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import scipy.integrate
import tensorflow as tf
from helpers import assert_close
from scipy.stats import lognorm, nbinom, norm, poisson

import gpflow_pep as pep
from gpflow_pep.likelihoods import LogNormal, NegativeBinomial, Ordinal, Tobit, ZeroInflatedPoisson

Array = Any
F = np.array([[-1.2], [0.1], [0.9], [1.6]])
V = np.array([[0.1], [0.4], [0.02], [0.3]])
X = np.zeros_like(F)
#: For integrals over f.
POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(150)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


class Case(NamedTuple):
    create: Callable[[], gpflow.likelihoods.ScalarLikelihood]
    Y: Array  # [4, 1]
    log_density: Callable[[Array, Array], Array]  # of y given f
    moments: Callable[[Array], tuple[Array, Array]]  # mean and variance of y given f


def _nbinom(f: Array, link: Any = np.exp) -> Any:
    return nbinom(1.0 / 0.6, 1.0 / (1.0 + 0.6 * link(f)))


def _softplus(f: Array) -> Array:
    return np.logaddexp(0.0, f)


def _zero_inflated_log_density(y: Array, f: Array) -> Array:
    present = np.log(0.7) + poisson.logpmf(y, np.exp(f))
    return np.where(y == 0.0, np.logaddexp(present, np.log(0.3)), present)


def _zero_inflated_moments(f: Array) -> tuple[Array, Array]:
    counts = np.arange(400)
    p = 0.7 * poisson.pmf(counts, np.exp(f)[..., None])
    p[..., 0] += 0.3
    mean = p @ counts
    return mean, p @ counts**2 - mean**2


def _tobit_log_density(y: Array, f: Array) -> Array:
    at_ends = np.where(y <= -0.5, norm.logcdf((-0.5 - f) / 0.4), norm.logcdf((f - 1.0) / 0.4))
    return np.where((y <= -0.5) | (y >= 1.0), at_ends, norm.logpdf(y, f, 0.4))


def _tobit_moments(f: Array) -> tuple[Array, Array]:
    # The integral over what is between the bounds, of a polynomial times a Gaussian.
    nodes, weights = np.polynomial.legendre.leggauss(60)
    y = 0.25 + 0.75 * nodes
    inside = 0.75 * weights * norm.pdf(y, f[..., None], 0.4)
    low, high = norm.cdf((-0.5 - f) / 0.4), norm.cdf((f - 1.0) / 0.4)
    mean = -0.5 * low + high + inside @ y
    return mean, 0.25 * low + high + inside @ y**2 - mean**2


EDGES = np.array([-0.6, 0.2, 0.5, 1.9])


def _class_probabilities(f: Array) -> Array:
    return np.diff(norm.cdf((np.r_[-np.inf, EDGES, np.inf] - f[..., None]) / 0.5), axis=-1)


def _ordinal_log_density(y: Array, f: Array) -> Array:
    edges, label = np.r_[-np.inf, EDGES, np.inf], y.astype(int)
    a, b = (edges[label] - f) / 0.5, (edges[label + 1] - f) / 0.5
    inner, outer = np.where(a + b > 0.0, (-a, -b), (b, a))
    return norm.logcdf(inner) + np.log(-np.expm1(norm.logcdf(outer) - norm.logcdf(inner)))


def _ordinal_moments(f: Array) -> tuple[Array, Array]:
    labels, p = np.arange(5.0), _class_probabilities(f)
    mean = p @ labels
    return mean, p @ labels**2 - mean**2


CASES = {
    "negative binomial": Case(
        lambda: NegativeBinomial(0.6),
        [[0.0], [3.0], [1.0], [17.0]],
        lambda y, f: _nbinom(f).logpmf(y),
        lambda f: _nbinom(f).stats("mv"),
    ),
    "negative binomial, softplus": Case(
        lambda: NegativeBinomial(0.6, invlink=tf.nn.softplus),
        [[0.0], [3.0], [1.0], [17.0]],
        lambda y, f: _nbinom(f, _softplus).logpmf(y),
        lambda f: _nbinom(f, _softplus).stats("mv"),
    ),
    "zero-inflated Poisson": Case(
        lambda: ZeroInflatedPoisson(0.3),
        [[0.0], [3.0], [0.0], [9.0]],
        _zero_inflated_log_density,
        _zero_inflated_moments,
    ),
    "Tobit": Case(
        lambda: Tobit(-0.5, 1.0, variance=0.16),
        [[-0.5], [0.3], [1.0], [1.0]],
        _tobit_log_density,
        _tobit_moments,
    ),
    "ordinal": Case(
        lambda: Ordinal(EDGES, 0.5),
        [[0.0], [2.0], [4.0], [3.0]],
        _ordinal_log_density,
        _ordinal_moments,
    ),
    "log-normal": Case(
        lambda: LogNormal(0.16),
        [[0.4], [1.1], [3.0], [2.0]],
        lambda y, f: lognorm.logpdf(y, 0.4, scale=np.exp(f)),
        lambda f: lognorm.stats(0.4, scale=np.exp(f)),
    ),
}
each_case = pytest.mark.parametrize("name", CASES)
#: GPflow's own rule for other links than the exponential, 20 nodes.
BY_GPFLOW = "negative binomial, softplus"


@each_case
def test_density(name: str) -> None:
    case = CASES[name]
    Y = np.asarray(case.Y)
    expected = case.log_density(Y, F)[:, 0]
    assert_close(case.create().log_prob(X, F, Y), expected, rtol=1e-9, scale=1e-3)


@each_case
def test_conditional_moments(name: str) -> None:
    likelihood = CASES[name].create()
    mean, variance = CASES[name].moments(F)
    assert_close(likelihood.conditional_mean(X, F), mean, rtol=1e-10)
    assert_close(likelihood.conditional_variance(X, F), variance, rtol=1e-9)


@each_case
def test_predicted_moments(name: str) -> None:
    mean, variance = CASES[name].moments(F + np.sqrt(V) * POINTS)
    expected = mean @ WEIGHTS
    spread = (variance + (mean - expected[:, None]) ** 2) @ WEIGHTS
    rtol = 1e-6 if name == BY_GPFLOW else 1e-9
    predicted = CASES[name].create().predict_mean_and_var(X, F, V)
    assert_close(predicted[0][:, 0], expected, rtol=rtol)
    assert_close(predicted[1][:, 0], spread, rtol=rtol)


@each_case
def test_expectations(name: str) -> None:
    """Of the density and its logarithm; in any number of batches."""
    case, likelihood = CASES[name], CASES[name].create()
    Y = np.asarray(case.Y)
    log_density = case.log_density(Y, F + np.sqrt(V) * POINTS)
    expected = np.log(np.exp(log_density) @ WEIGHTS)
    assert_close(likelihood.predict_log_density(X, F, V, Y), expected, rtol=1e-7)
    bound = log_density @ WEIGHTS
    assert np.all(np.isfinite(bound))
    assert_close(likelihood.variational_expectations(X, F, V, Y), bound, rtol=1e-7)
    batches = [np.reshape(part, (2, 2, 1)) for part in (X, F, V, Y)]
    actual = likelihood.predict_log_density(*batches)
    assert_close(tf.reshape(actual, [-1]), expected, rtol=1e-7)


@each_case
def test_alpha_0_is_the_expectation_of_gpflow(name: str) -> None:
    """By GPflow's own quadrature, of 100 nodes."""
    likelihood = CASES[name].create()
    likelihood.num_gauss_hermite_points = 100
    Y, kind = np.asarray(CASES[name].Y), gpflow.likelihoods.ScalarLikelihood
    expected = kind._variational_expectations(likelihood, X, F, V, Y)
    actual = pep.likelihoods.log_power_expectation(likelihood, X, F, V, Y, 0.0)
    assert_close(actual, expected, rtol=1e-7)


@pytest.mark.near_copies("Tobit")
@pytest.mark.parametrize("name", ["negative binomial", "Tobit"])
def test_alpha_0_is_svgp(name: str) -> None:
    """At our q(u) the bound of SVGP is our log Z."""
    case, rows = CASES[name], np.linspace(0.0, 3.0, 4)[:, None]
    kernel, Y = gpflow.kernels.Matern32(), np.asarray(case.Y)
    model = pep.PEP((rows, Y), kernel, case.create(), rows[::2].copy(), alpha=0.0)
    log_Z = model.pep_log_marginal_likelihood()
    mean, covariance = model.compute_qu()
    svgp = gpflow.models.SVGP(kernel, case.create(), rows[::2].copy(), whiten=False)
    svgp.q_mu.assign(mean)
    svgp.q_sqrt.assign(tf.linalg.cholesky(covariance))
    assert_close(log_Z, svgp.elbo((rows, Y)), rtol=1e-8)


@each_case
def test_draws(name: str) -> None:
    likelihood, f = CASES[name].create(), np.repeat(F, 100_000, axis=1)
    draw = pep.likelihoods.traits(likelihood).draw
    assert draw is not None
    y = draw(X, f, np.random.default_rng(0))
    assert y.dtype == np.float64
    pep.likelihoods.check_support(likelihood, y)
    mean, variance = (np.reshape(part, -1) for part in CASES[name].moments(F))
    np.testing.assert_allclose(y.mean(axis=1), mean, atol=5.0 * np.sqrt(variance.max() / 1e5))
    np.testing.assert_allclose(y.var(axis=1), variance, rtol=0.05)


@pytest.mark.parametrize("mean", [-30.0, -8.0, -0.9, 0.0, 7.0, 25.0])
@pytest.mark.parametrize("low, high", [(-1.0, None), (None, 2.0), (-1.0, 2.0)])
def test_moments_of_what_is_cut_off_keep_their_digits(
    mean: float, low: float | None, high: float | None
) -> None:
    """Where next to all is at a bound, the variance is tiny and not a rounding error."""
    likelihood = Tobit(low, high, variance=0.5)
    actual = likelihood.predict_mean_and_var(X[:1], np.array([[mean]]), np.array([[0.5]]))
    start = float(np.clip(mean, *likelihood.bounds))

    def moment(power: int) -> float:
        def above(x: float) -> float:
            return float(power * x ** (power - 1) * norm.sf(start + x - mean))

        def below(x: float) -> float:
            return float(-power * (-x) ** (power - 1) * norm.cdf(start - x - mean))

        up, down = likelihood.bounds[1] - start, start - likelihood.bounds[0]
        # Beyond 40 there is nothing.
        ends = [np.linspace(0.0, min(end, 40.0), 41) for end in (up, down)]
        parts = (
            scipy.integrate.quad(part, a, b, epsabs=0.0, epsrel=1e-12)[0]
            for part, edges in zip((above, below), ends)
            for a, b in pairwise(edges)
            if b > a
        )
        return sum(parts)

    shift, square = moment(1), moment(2)
    assert_close(actual[0], [[start + shift]], rtol=1e-10)
    assert_close(actual[1], [[square - shift**2]], rtol=1e-7, scale=1e-200)


def test_small_dispersion_is_poisson() -> None:
    Y = np.array([[0.0], [3.0], [1.0], [17.0]])
    expected = poisson.logpmf(Y, np.exp(F))[:, 0]
    likelihood = NegativeBinomial(1.001e-6)
    assert_close(likelihood.log_prob(X, F, Y), expected, rtol=1e-4)


@pytest.mark.parametrize(
    "create, message",
    [
        (lambda: NegativeBinomial(0.0), "dispersion: got 0.0, expected .* above 1e-06.*Poisson"),
        (lambda: ZeroInflatedPoisson(1.0), r"zero_probability: got 1.0, expected a number in \(1e"),
        (lambda: LogNormal(-1.0), "variance: got -1.0, expected a number above 1e-06"),
        (lambda: Tobit(0.0, variance=0.0), "variance: got 0.0, expected a number above 1e-06"),
        (
            lambda: Tobit(low=[0.0, 1.0]),
            r"low: got \[0.0, 1.0\], expected .* each row is Tobit\(\)",
        ),
        (lambda: Tobit(2.0, 1.0), "low: got 2 with high=1, expected one below high"),
        (lambda: Tobit(low=np.nan), "low: got nan, expected a number"),
        (lambda: Ordinal([0.0, 0.0]), r"edges: got \[0.0, 0.0\], expected one .* ascending"),
        (lambda: Ordinal([]), r"edges: got \[\], expected one number or more"),
        (lambda: Ordinal([np.nan]), "edges: got .*nan"),
        (lambda: Ordinal([0.0], sigma=0.0), "sigma: got 0.0, expected a number above 0.001"),
        (lambda: Ordinal.of_classes(1), "num_classes: got 1, expected a whole number above 1"),
    ],
)
def test_refusals(create: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create()
