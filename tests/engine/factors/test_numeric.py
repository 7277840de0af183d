"""Likelihoods of which only the values of their density are known."""

import warnings
from typing import Any

import gpflow
import helpers
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp
from cases.tilted import ALPHAS, CASES, grid, reference_values
from cases.two_latents import TWO_LATENTS, NoisyStudentT, draw_rows
from gpflow.likelihoods import (
    Bernoulli,
    MultiLatentTFPConditional,
    Poisson,
    ScalarLikelihood,
)
from helpers import assert_all_close, assert_close
from reference import tilted as reference
from scipy.special import ndtr

import gpflow_pep as pep
from gpflow_pep.likelihoods import (
    AccuracyWarning,
    log_power_expectation,
    tilted_derivatives,
)

MEANS = (-3.0, 0.3, 5.0)
VARIANCES = (1e-4, 0.3, 1.0, 10.0)


class _Own(ScalarLikelihood):
    """What GPflow asks for beside the density; nothing here needs it."""

    def _conditional_mean(self, X: Any, F: Any) -> Any:
        return F

    def _conditional_variance(self, X: Any, F: Any) -> Any:
        return tf.ones_like(F)


class Laplace(_Own):
    target = 1.3

    def __init__(self, scale: float = 0.5) -> None:
        super().__init__()
        self.scale = gpflow.Parameter(scale, transform=gpflow.utilities.positive())

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> Any:
        return -tf.abs(Y - F) / self.scale - tf.math.log(2.0 * self.scale)

    def log_density(self, f: Any) -> Any:
        return scipy.stats.laplace.logpdf(self.target, f, 0.5)


class Cauchy(Laplace):
    target = 0.2

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> Any:
        return -tf.math.log1p(((Y - F) / self.scale) ** 2)

    def log_density(self, f: Any) -> Any:
        return -np.log1p(((self.target - f) / 0.01) ** 2)


class Window(_Own):
    """Targets that are rounded; further away the density is 0, or small."""

    half_width = 0.5
    outside = -np.inf

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> Any:
        outside = tf.constant(self.outside, F.dtype)
        return tf.where(tf.abs(Y - F) < self.half_width, tf.zeros_like(F), outside)


def _ell(likelihood: Any, mean: Any, variance: Any, Y: Any, alpha: Any) -> Any:
    mean, variance, Y = (
        np.asarray(part, float)[:, None] for part in (mean, variance, Y)
    )
    X = np.zeros_like(mean)
    return log_power_expectation(likelihood, X, mean, variance, Y, alpha).numpy()


@pytest.mark.parametrize(
    "likelihood, tolerance", [(Laplace(), 1e-4), (Cauchy(0.01), 1e-12)]
)
def test_equals_adaptive_integration(likelihood: Any, tolerance: float) -> None:
    rows = np.array([(m, v, a) for m in MEANS for v in VARIANCES for a in ALPHAS])
    density = likelihood.log_density
    y = likelihood.target
    expected = np.array(
        [reference.log_power_expectation(density, *row, [y]) for row in rows]
    )
    mean, variance, alpha = rows.T
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual = _ell(likelihood, mean, variance, np.full(len(mean), y), alpha)
    assert np.max(np.abs(actual - expected) / (1.0 + np.abs(expected))) < tolerance


@pytest.mark.near_copies("likelihood1*")
@pytest.mark.parametrize("likelihood, rtol", [(Laplace(), 1e-2), (Cauchy(0.5), 1e-6)])
def test_derivatives_in_a_parameter_and_the_moments(
    likelihood: Any, rtol: float
) -> None:
    """A kink moves between nodes."""
    one = tf.ones([1, 1], tf.float64)
    mean = tf.Variable([[0.2]], dtype=tf.float64)
    rows = (0.7 * one, one, 0.5)
    variables = [mean, likelihood.scale.unconstrained_variable]

    def value() -> tf.Tensor:
        return log_power_expectation(likelihood, one, mean, *rows)[0]

    by_mean, by_scale = helpers.gradients(value, variables)
    delta1 = tilted_derivatives(likelihood, one, mean, *rows).delta1
    ways = [by_mean, by_scale], [delta1, by_scale]
    helpers.assert_gradients(value, variables, *ways, step=1e-4, rtol=rtol)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_not_resolved_is_said(compiled: bool) -> None:
    """The expectation of exp(f) is further out than nodes reach."""

    class OwnPoisson(_Own):
        def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> Any:
            return Y * F - tf.exp(F)

    rows = (tf.constant([[part]], tf.float64) for part in (0.0, 0.3, 200.0, 3.0))
    rule: Any = log_power_expectation
    rule = tf.function(rule, autograph=False) if compiled else rule
    with pytest.warns(
        AccuracyWarning, match=r"OwnPoisson.*not accurate.*scalar_factor"
    ):
        rule(OwnPoisson(), *rows, 0.0)


@pytest.mark.near_copies("0.001*")
@pytest.mark.parametrize(
    "half_width, outside", [(0.1, -30.0), (1e-3, -30.0), (2.0, -3.0)]
)
def test_a_density_that_jumps(half_width: float, outside: float) -> None:
    """The nodes of both rules missed the same part, and there was no warning."""
    y, v, alpha = map(
        np.ravel, np.meshgrid([0.0, 0.37, 3.0], [1e-4, 1.0, 10.0, 1e4], ALPHAS)
    )
    likelihood = Window()
    likelihood.half_width = half_width
    likelihood.outside = outside
    inside = np.diff(
        [ndtr((y + end) / np.sqrt(v)) for end in (-half_width, half_width)], axis=0
    )[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.log(inside + (1.0 - inside) * np.exp(alpha * outside)) / alpha
    expected = np.where(alpha == 0.0, (1.0 - inside) * outside, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual = _ell(likelihood, np.zeros_like(y), v, y, alpha)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    step = 1e-3
    power = np.maximum(alpha, 0.1)
    one = np.ones((len(y), 1))
    ell = tilted_derivatives(likelihood, one, 0.03 * one, one, 0.0 * one, power)
    means = 0.03 + step, 0.03 - step
    p = np.array([np.diff(ndtr([m - half_width, m + half_width])) for m in means])
    high, low = np.log(p + (1.0 - p) * np.exp(power * outside)) / power
    assert_close(ell.delta1[:, 0], (high - low) / (2.0 * step), rtol=1e-3, scale=1e-2)


def test_no_density_is_no_number() -> None:
    inside = _ell(Window(), [0.3], [1e-3], [0.4], 0.0)
    assert_close(inside, [0.0], scale=1.0)
    assert np.isnan(_ell(Window(), [0.3], [1.0], [0.4], 0.0)).all()
    expected = np.log(np.diff(scipy.stats.norm.cdf([-0.4, 0.6])))
    assert_close(_ell(Window(), [0.3], [1.0], [0.4], 1.0), expected, rtol=1e-5)
    kernel = gpflow.kernels.SquaredExponential(1e-3)
    options = {"num_data": 2, "alpha": 0.0}
    model = pep.ARPEP(kernel, Window(), np.zeros((1, 1)), **options)
    with pytest.raises(
        ValueError, match=r"got Window.*or it is 0\..*The first of these rows: 1"
    ):
        model.elbo((np.zeros((2, 1)), np.array([[0.0], [5.0]])))


class Inflated(Poisson):
    """A count that is 0 more often."""

    def _scalar_log_prob(self, X: Any, F: Any, Y: Any) -> Any:
        log_prob = super()._scalar_log_prob(X, F, Y)
        more = tf.where(tf.equal(Y, 0.0), tf.constant(0.3, F.dtype), tf.zeros_like(F))
        return tf.math.log(more + 0.7 * tf.exp(log_prob))


class Same(Bernoulli):
    """It changes nothing that matters."""


def test_a_class_that_changes_the_density_is_not_what_it_derives_from() -> None:
    def density(f):
        return np.log(0.3 + 0.7 * np.exp(-np.exp(f)))

    for alpha in (0.0, 0.5, 1.0):
        expected = reference.log_power_expectation(density, 0.4, 0.6, alpha, [0.0])
        assert_close(
            _ell(Inflated(), [0.4], [0.6], [0.0], alpha), [expected], rtol=1e-8
        )
        same = _ell(Same(), [0.4], [0.6], [1.0], alpha)
        assert_close(same, _ell(Bernoulli(), [0.4], [0.6], [1.0], alpha), rtol=1e-14)


MULTI = CASES["MultiLatentTFPConditional"]._replace(log_scale=None)


@pytest.mark.slow
def test_nested_integrals_beyond_all_nodes_are_nan() -> None:
    """All nodes but the outermost have a density of 0 there, and all rules agree."""
    rows = grid(MULTI, (-50.0, 0.0), (10.0,), (0.5,))
    actual = log_power_expectation(MULTI.create(), *rows.arguments()).numpy()
    assert np.isnan(actual[0])
    assert_close(actual[1:], reference_values(MULTI, rows)[1:], rtol=1e-5)


@pytest.mark.slow
def test_nested_integrals_that_are_not_resolved_are_nan() -> None:
    """Beyond what the values of the density tell: not one wrong number is let
    through.
    """
    rows = grid(MULTI, (-50.0, 0.0), (10.0, 1e4), (0.5, 1.0))
    expected = reference_values(MULTI, rows)
    actual = log_power_expectation(MULTI.create(), *rows.arguments()).numpy()
    lost = np.isnan(actual)
    assert 1 <= lost.sum() < len(lost)
    error = np.abs(actual - expected) / (1.0 + np.abs(expected))
    assert np.max(error[~lost]) < 1e-3
    # The derivatives of the others are what they are without the lost ones.
    pair = [int(np.flatnonzero(lost)[0]), int(np.flatnonzero(~lost)[-1])]
    each = ([part[some] for part in rows] for some in (pair, pair[1:]))
    together, alone = (tilted_derivatives(MULTI.create(), *some) for some in each)
    assert_all_close([one[1:] for one in together], alone, rtol=1e-9)


@pytest.mark.slow
def test_rows_that_are_not_resolved_are_named() -> None:
    """Also where the others are; one power for all rows."""
    means = tf.constant([[-50.0, -26.5], [0.2, 0.1], [-50.0, -26.5]], tf.float64)

    class Means(gpflow.functions.MeanFunction):
        def __call__(self, X: Any) -> Any:
            return tf.gather(means, tf.cast(X[:, 0], tf.int32) % 3)

    kernels = [gpflow.kernels.SquaredExponential(variance) for variance in (10.0, 2.0)]
    points = gpflow.inducing_variables.InducingPoints([[100.0]])
    shared = gpflow.inducing_variables.SharedIndependentInducingVariables(points)
    kernel = gpflow.kernels.SeparateIndependent(kernels)
    options = {
        "num_latent_gps": 2,
        "num_data": 3,
        "alpha": 0.5,
        "mean_function": Means(),
    }
    model = pep.ARPEP(kernel, MULTI.create(), shared, **options)
    X = np.array([[0.0], [1.0], [2.0]])
    Y = np.full((3, 1), 0.4)
    with pytest.raises(ValueError, match=r"not resolve its integral(.|\n)*rows: 0, 2$"):
        model.training_loss((X, Y))
    assert np.isfinite(float(model.training_loss((X[1:2], Y[1:2]))))


@pytest.mark.slow
def test_a_density_whose_terms_cancel_far_away() -> None:
    """Rounding there looked like a peak: the integral was minus infinity, or 4e58."""

    def gamma(F: tf.Tensor) -> tfp.distributions.Distribution:
        return tfp.distributions.Gamma(tf.exp(F[..., :1]), tf.exp(F[..., 1:]))

    mean = np.array([[2.0, 1.08]])
    variance = np.array([[0.05, 0.22]])
    x, w = np.polynomial.hermite_e.hermegauss(60)
    first, second = np.meshgrid(
        *(m + np.sqrt(v) * x for m, v in zip(mean[0], variance[0]))
    )
    log_density = scipy.stats.gamma.logpdf(4.0, np.exp(first), scale=np.exp(-second))
    weights = np.outer(w, w) / np.sum(w) ** 2
    expected = 2.0 * np.log(np.sum(weights * np.exp(0.5 * log_density)))
    compiled = tf.function(log_power_expectation, autograph=False)
    rows = np.zeros((1, 1)), mean, variance, np.array([[4.0]])
    actual = compiled(MultiLatentTFPConditional(2, gamma), *rows, 0.5)
    assert_close(actual, [expected], rtol=1e-6)


def test_a_model_trains_with_a_likelihood_that_registers_nothing() -> None:
    random = np.random.default_rng(0)
    X = np.linspace(-2.0, 2.0, 12)[:, None]
    parts = gpflow.kernels.SquaredExponential(), Laplace(), X[::4].copy()
    model = pep.PEP(
        (X, np.sin(2.0 * X) + 0.2 * random.laplace(size=X.shape)), *parts, alpha=0.5
    )
    variables = model.trainable_variables
    before, by = helpers.value_and_gradients(model.training_loss, variables)
    length = sum(float(tf.reduce_sum(tf.square(one))) for one in by)
    for variable, one in zip(variables, by):
        variable.assign_sub(1e-3 * one)
    assert_close(model.training_loss() - before, -1e-3 * length, rtol=0.2)


# Of two latent functions.

POWERS = 0.0, 0.5, 1.0
N = 6


def _arguments(name: str, largest: float = 0.4) -> Any:
    rng = np.random.default_rng(1)
    X, Y = draw_rows(name, N)
    mean = np.array(TWO_LATENTS[name].means) + rng.standard_normal((N, 2)) * [0.7, 0.4]
    variance = largest * 10.0 ** rng.uniform(-2.0, 0.0, (N, 2))
    rows = (tf.constant(np.tile(part, (3, 1))) for part in (X, mean, variance, Y))
    return *rows, np.repeat(POWERS, N)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, largest", [*((name, 0.4) for name in TWO_LATENTS), ("NoisyStudentT", 1.0)]
)
def test_equals_dense_grids(name: str, largest: float) -> None:
    """By the trapezoid rule of 700 x 700 even nodes, where few nodes are enough and
    where not.
    """
    X, mean, variance, Y, alpha = _arguments(name, largest)
    kind: Any = TWO_LATENTS[name]
    z = np.linspace(-8.5, 8.5, 701)
    weights = np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum()
    expected = np.zeros((len(POWERS), N))
    for n in range(N):
        f, g = mean[n].numpy()[:, None] + np.sqrt(variance[n])[:, None] * z
        values = kind.log_density(f[:, None], g[None, :], float(Y[n, 0]))
        for k, a in enumerate(POWERS):
            sums = weights @ (np.exp(a * values) if a else values) @ weights
            expected[k, n] = np.log(sums) / a if a else sums
    actual = log_power_expectation(kind(), X, mean, variance, Y, alpha)
    assert_close(
        actual, expected.ravel(), rtol=1e-7 if largest < 1.0 else 1e-6, scale=1.0
    )


@pytest.mark.slow
def test_gradient_in_a_parameter_equals_finite_differences() -> None:
    rows = [part[::3] for part in _arguments("NoisyStudentT", 2.0)]
    likelihood = NoisyStudentT()
    weights = np.cos(np.arange(len(rows[0]), dtype=float))

    def value() -> Any:
        return tf.reduce_sum(log_power_expectation(likelihood, *rows) * weights)

    helpers.assert_gradients(value, [likelihood.df.unconstrained_variable], rtol=1e-6)
