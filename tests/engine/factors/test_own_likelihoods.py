"""Our own likelihoods where their digits are hard to keep, trained, and refused."""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import tensorflow as tf
from cases.tilted import CASES
from gpflow.likelihoods import Bernoulli, Gaussian, Poisson
from helpers import assert_close
from scipy.special import log_ndtr
from scipy.stats import norm

from gpflow_pep import likelihoods as ours
from gpflow_pep.engine.factors.entries import (
    entry_derivatives,
    entry_log_power_expectation,
)

EDGES = np.array([-1.0, 0.5, 4.0])
OURS = [
    name
    for name, case in CASES.items()
    if "gpflow_pep" in type(case.create()).__module__
]


def _column(values: Any) -> Any:
    return np.asarray(values, dtype=float).reshape(-1, 1)


@pytest.mark.parametrize("name", OURS)
def test_density_moments_and_draws_given_f(name: str) -> None:
    case = CASES[name]
    likelihood = case.create()
    F = np.array([[-1.2], [0.1], [0.9], [1.6]])
    X = 0.0 * F
    Y = np.tile(case.target, (4, 1))
    expected = case.reference.log_density(F[:, 0])  # type: ignore[attr-defined]
    assert_close(likelihood.log_prob(X, F, Y), expected, rtol=1e-9, scale=1e-3)
    if case.moments is None:
        return
    mean, variance = np.transpose([case.moments(f, np.array([1e-14])) for f in F])[
        ..., None
    ]
    assert_close(likelihood.conditional_mean(X, F), mean, rtol=1e-10)
    assert_close(likelihood.conditional_variance(X, F), variance, rtol=1e-9)

    draw = ours.traits(likelihood).draw
    if name.startswith("NoisyLabel"):
        assert draw is None
        return
    y = draw(X, np.repeat(F, 100_000, axis=1), np.random.default_rng(0))
    assert y.dtype == np.float64
    ours.check_support(likelihood, y)
    for sample, right in ((y, mean), ((y - mean) ** 2, variance)):
        error = np.abs(sample.mean(axis=1) - right[:, 0])
        assert np.all(error < 5.0 * sample.std(axis=1) / np.sqrt(1e5) + 1e-4)


@pytest.mark.near_copies("-1.0-None--30.0", "None-2.0-0.0", "-1.0-2.0-*")
@pytest.mark.parametrize("mean", [-30.0, -8.0, -0.9, 0.0, 7.0, 25.0])
@pytest.mark.parametrize("low, high", [(-1.0, None), (None, 2.0), (-1.0, 2.0)])
def test_moments_of_what_is_cut_off_keep_their_digits(
    mean: float, low: Any, high: Any
) -> None:
    """Where next to all is at a bound, the variance is tiny and not a
    rounding error.
    """
    likelihood = ours.Tobit(low, high, variance=0.5)
    actual = likelihood.predict_mean_and_var(*map(_column, (0.0, mean, 0.5)))
    start = float(np.clip(mean, *likelihood.bounds))
    up = likelihood.bounds[1] - start
    down = start - likelihood.bounds[0]

    def moment(power: int) -> float:
        """Of the distance from the start, by the tails on both sides; beyond 40 is
        nothing.
        """
        total = 0.0
        for sign, end in ((1.0, up), (-1.0, down)):

            def tail(x: float, sign: float = sign) -> float:
                return (
                    sign**power
                    * power
                    * x ** (power - 1)
                    * norm.sf(x + sign * (start - mean))
                )

            for a, b in pairwise(np.linspace(0.0, min(end, 40.0), 41)):
                total += scipy.integrate.quad(tail, a, b, epsabs=0.0, epsrel=1e-12)[0]
        return total

    shift = moment(1)
    square = moment(2)
    assert_close(actual[0], [[start + shift]], rtol=1e-10)
    assert_close(actual[1], [[square - shift**2]], rtol=1e-7, scale=1e-200)


def test_the_rate_of_wrong_labels_can_be_trained_and_stays_in_its_range() -> None:
    likelihood = ours.NoisyLabelBernoulli(0.07)
    assert not likelihood.epsilon.trainable
    likelihood.epsilon.unconstrained_variable.assign(30.0)
    assert 0.49 < float(likelihood.epsilon.numpy()) <= 0.5


REFUSED: list[tuple[Any, str]] = [
    (
        lambda: ours.NegativeBinomial(0.0),
        "dispersion: got 0.0, expected .* above 1e-06.*Poisson",
    ),
    (lambda: ours.LogNormal(-1.0), "variance: got -1.0, expected a number above 1e-06"),
    (
        lambda: ours.Tobit(0.0, variance=0.0),
        "variance: got 0.0, expected a number above 1e-06",
    ),
    (
        lambda: ours.Tobit(low=[0.0, 1.0]),
        r"low: got \[0.0, 1.0\], .* each row use Tobit\(\)",
    ),
    (
        lambda: ours.Tobit(2.0, 1.0),
        "low: got 2 with high=1, expected a number below high",
    ),
    (lambda: ours.Tobit(low=np.nan), "low: got nan, expected a number"),
    (
        lambda: ours.Ordinal([0.0, 0.0]),
        r"edges: got \[0.0, 0.0\], expected one .* ascending",
    ),
    (lambda: ours.Ordinal([]), r"edges: got \[\], expected one or more ascending"),
    (lambda: ours.Ordinal([np.nan]), "edges: got .*nan"),
    (
        lambda: ours.Ordinal([0.0], sigma=0.0),
        "sigma: got 0.0, expected a number above 0.001",
    ),
    (
        lambda: ours.Ordinal.of_classes(1),
        "num_classes: got 1, expected a whole number above 1",
    ),
    (
        lambda: ours.NoisyLabelBernoulli(0.1, "logit"),
        "link: got 'logit', expected 'probit' or",
    ),
    *(
        (
            partial(ours.NoisyLabelBernoulli, e),
            r"epsilon: got .*a number in .0, 0.5.*the rate",
        )
        for e in (0.0, 0.5, -0.1, np.nan)
    ),
]


@pytest.mark.parametrize("create, message", REFUSED)
def test_refusals(create: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create()


def test_probabilities_far_out() -> None:
    """Where that of GPflow's is its floor, and its prediction NaN at the ends."""
    f, labels = (np.ravel(p) for p in np.meshgrid([9.0, 60.0, 1e3, 1e6], range(4)))
    f = np.concatenate([f, -f])
    labels = np.concatenate([labels, labels]).astype(int)
    ends = np.r_[-np.inf, EDGES, np.inf]
    low = ends[labels]
    high = ends[labels + 1]
    # Both Phi are small.
    a, b = np.where(f > 0.0, (low - f, high - f), (f - high, f - low))
    expected = log_ndtr(b) + np.log(-np.expm1(log_ndtr(a) - log_ndtr(b)))
    likelihood = ours.Ordinal(EDGES)
    F = tf.constant(_column(f))
    Y = _column(labels)
    with tf.GradientTape() as tape:
        tape.watch(F)
        actual = likelihood.log_prob(F, F, Y)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)
    # Its slope is at the nearer edge, as that of a Gaussian is.
    edge = np.where(f > 0.0, high, low)
    outside = np.where(np.isfinite(edge), edge - f, 0.0)
    gradient = tape.gradient(actual, F).numpy()[:, 0]
    near = np.abs(f) < 10.0
    np.testing.assert_allclose(gradient[near], outside[near], rtol=0.05, atol=5e-5)
    np.testing.assert_allclose(gradient[~near], outside[~near], rtol=1e-3, atol=1e-6)
    density = likelihood.predict_log_density(F, F, np.full_like(Y, 3.0), Y)
    expected = ours.Ordinal(EDGES, 2.0).log_prob(F, F, Y)
    np.testing.assert_allclose(density, expected, rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize("width", [1e-9, 1e-4, 0.03, 0.0999, 0.1001, 0.3])
def test_narrow_bins(width: float) -> None:
    """By the integral of the density over the bin, relative to that in the middle."""
    f = _column([0.0, 0.9, -7.0, 300.0])
    nodes, weights = np.polynomial.legendre.leggauss(40)
    middle = norm.logpdf(0.5 * width - f)[:, 0]  # it underflows
    ratio = np.exp(norm.logpdf(0.5 * width * (nodes + 1.0) - f) - middle[:, None])
    expected = middle + np.log(0.5 * width * (ratio @ weights))
    actual = ours.Ordinal([0.0, width]).log_prob(0.0 * f, f, 0.0 * f + 1.0)
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


def test_bins_of_no_width_are_finite() -> None:
    likelihood = ours.Ordinal([0.0, 1.0])
    f = tf.constant([[0.3]], tf.float64)
    likelihood.edges.unconstrained_variable.assign([0.0, -800.0])
    with tf.GradientTape() as tape:
        tape.watch(f)
        value = ours.log_power_expectation(likelihood, f, f, f, _column(1.0), 0.5)
    assert np.isfinite(value) and value < -500.0
    for part in tape.gradient(value, [f, *likelihood.trainable_variables]):
        assert np.all(np.isfinite(part))


def test_moments_keep_their_digits_far_out() -> None:
    likelihood = ours.Ordinal(EDGES)
    mean, variance = likelihood.predict_mean_and_var(
        *map(_column, ([0, 0], [-30, 40], [1, 1]))
    )
    near = norm.cdf((np.array([-29.0, -36.0])) / np.sqrt(2.0))
    assert_close(mean, [[near[0]], [3.0 - near[1]]], rtol=1e-8, scale=1e-200)
    assert_close(variance, near[:, None], rtol=1e-6, scale=1e-200)


# A likelihood for each output, and integrals of the targets that were observed.

N = 6
rng = np.random.default_rng(0)
X = rng.standard_normal((N, 1))
MEAN = rng.standard_normal((N, 3))
VARIANCE = rng.uniform(0.1, 1.0, (N, 3))
Y = np.column_stack([rng.standard_normal(N), np.arange(N) % 2, np.arange(N)]).astype(
    np.float64
)
PARTS = [Gaussian(0.2), Bernoulli(), Poisson()]
MOMENTS = X, MEAN, VARIANCE
#: Each likelihood with X and its columns of means, variances and targets.
ALONE: list[tuple[Any, ...]] = [
    (part, X, *(of[:, p : p + 1] for of in (MEAN, VARIANCE, Y)))
    for p, part in enumerate(PARTS)
]


def test_columns() -> None:
    both = ours.PerOutput(PARTS)
    density = sum(part.log_prob(X, f, y) for part, _, f, _, y in ALONE)
    assert_close(both.log_prob(X, MEAN, Y), density, rtol=1e-12)
    for name in ("conditional_mean", "conditional_variance"):
        expected = np.hstack([getattr(part, name)(X, f) for part, _, f, _, _ in ALONE])
        assert_close(getattr(both, name)(X, MEAN), expected, rtol=1e-12)
    assert ours.traits(both).starts_at_high_powers
    assert not ours.traits(ours.PerOutput(PARTS[:2])).starts_at_high_powers


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_integrals(alpha: float) -> None:
    each = [ours.log_power_expectation(*rows, alpha) for rows in ALONE]
    both = ours.PerOutput(PARTS)
    assert_close(
        ours.log_power_expectation(both, *MOMENTS, Y, alpha), sum(each), rtol=1e-12
    )
    # Those of the tilted integral, where GPflow has 20 nodes.
    methods = {0.0: both.variational_expectations, 1.0: both.predict_log_density}
    if alpha in methods:
        assert_close(methods[alpha](*MOMENTS, Y), sum(each), rtol=1e-12)
    missing = rng.uniform(size=Y.shape) < 0.4
    targets = np.where(missing, np.nan, Y)
    power = np.array([alpha])
    ell = np.where(missing, 0.0, np.stack(each, axis=1))
    actual = entry_log_power_expectation(both, *MOMENTS, targets, power)
    assert_close(actual, ell, rtol=1e-12)
    derivatives, _ = entry_derivatives(both, *MOMENTS, targets, power, [])
    assert_close(derivatives.ell, ell, rtol=1e-12)
    alone = [ours.tilted_derivatives(*rows, alpha) for rows in ALONE]
    for name in ("delta1", "delta2"):
        there = np.hstack([getattr(of_one, name) for of_one in alone])
        expected = np.where(missing, 0.0, there)
        assert_close(getattr(derivatives, name), expected, rtol=1e-12)


def test_shared_parameters() -> None:
    shared = Gaussian(0.3)
    both = ours.PerOutput([shared, shared, Poisson()])
    power = np.full(N, 0.5)
    assert len(both.trainable_variables) == 1
    apart = ours.PerOutput([Gaussian(0.3), Gaussian(0.3), Poisson()])
    actual, expected = (
        entry_log_power_expectation(p, *MOMENTS, Y, power) for p in (both, apart)
    )
    assert_close(actual, expected, rtol=1e-12)


def test_supports() -> None:
    ours.check_support(ours.PerOutput(PARTS), Y)
    wrong = Y.copy()
    wrong[2, 1] = 0.5
    with pytest.raises(
        ValueError, match=r"Y: got 0\.5 at row 2, expected .* in column 1"
    ):
        ours.check_support(ours.PerOutput(PARTS), wrong)
    with pytest.raises(ValueError, match="Y: got 2 columns, expected 3"):
        ours.check_support(ours.PerOutput(PARTS), Y[:, :2])
