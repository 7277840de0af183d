"""Ordinal regression with the exact probabilities of bins: far out, in narrow bins, in models."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close, finite_difference_gradient, gradients
from scipy.special import log_ndtr
from scipy.stats import norm

import gpflow_pep as pep
from gpflow_pep.estimators import PEPClassifier
from gpflow_pep.likelihoods import Ordinal

EDGES = np.array([-1.0, 0.5, 4.0])


def _column(values: Any) -> Any:
    return np.asarray(values, dtype=float).reshape(-1, 1)


@pytest.mark.parametrize("f", [-1e6, -1e3, -60.0, -9.0, 9.0, 60.0, 1e3, 1e6])
@pytest.mark.parametrize("label", range(4))
def test_probabilities_far_out(f: float, label: int) -> None:
    """Where that of GPflow's is its floor, and its prediction NaN at the ends."""
    low, high = np.r_[-np.inf, EDGES, np.inf][label : label + 2]
    a, b = (low - f, high - f) if f > 0.0 else (f - high, f - low)  # Phi(b) - Phi(a), both small
    expected = log_ndtr(b) + np.log(-np.expm1(log_ndtr(a) - log_ndtr(b)))
    likelihood, F, Y = Ordinal(EDGES), tf.constant([[f]], tf.float64), _column(label)
    with tf.GradientTape() as tape:
        tape.watch(F)
        actual = likelihood.log_prob(F, F, Y)
    assert_close(actual, [expected], rtol=1e-9, scale=1e-3)
    # Its slope is at the nearer edge, as that of a Gaussian is.
    edge = high if f > 0.0 else low
    outside = edge - f if np.isfinite(edge) else 0.0
    gradient = tape.gradient(actual, F)
    assert_close(gradient, [[outside]], rtol=0.05 if abs(f) < 10.0 else 1e-3, scale=1e-3)
    v = np.full((1, 1), 3.0)
    density = likelihood.predict_log_density(F, F, v, Y)
    assert_close(density, Ordinal(EDGES, 2.0).log_prob(F, F, Y), rtol=1e-12, scale=1e-6)


@pytest.mark.parametrize("width", [1e-9, 1e-4, 0.03, 0.0999, 0.1001, 0.3])
@pytest.mark.parametrize("f", [0.0, 0.9, -7.0, 300.0])
def test_narrow_bins(width: float, f: float) -> None:
    """By the integral of the density over the bin."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    # Relative to the density in the middle, which underflows.
    log_ratio = norm.logpdf(0.5 * width * (nodes + 1.0) - f) - norm.logpdf(0.5 * width - f)
    mass = 0.5 * width * (weights @ np.exp(log_ratio))
    expected = norm.logpdf(0.5 * width - f) + np.log(mass)
    likelihood = Ordinal([0.0, width])
    actual = likelihood.log_prob(_column(0.0), _column(f), _column(1.0))
    assert_close(actual, [expected], rtol=1e-10, scale=1.0)


def test_bins_of_no_width_are_finite() -> None:
    likelihood, f = Ordinal([0.0, 1.0]), tf.constant([[0.3]], tf.float64)
    likelihood.edges.unconstrained_variable.assign([0.0, -800.0])
    with tf.GradientTape() as tape:
        tape.watch(f)
        value = pep.likelihoods.log_power_expectation(likelihood, f, f, f, _column(1.0), 0.5)
    assert np.isfinite(value) and value < -500.0
    for part in tape.gradient(value, [f, *likelihood.trainable_variables]):
        assert np.all(np.isfinite(part))


def test_equals_gpflow_but_for_its_floor() -> None:
    theirs, X = gpflow.likelihoods.Ordinal(EDGES), np.zeros((4, 1))
    F, Y = _column([-0.7, 0.2, 1.0, 2.0]), _column([1.0, 2.0, 1.0, 2.0])
    ours = np.exp(Ordinal(EDGES).log_prob(X, F, Y))
    assert_close(0.998 * ours + 1e-6, np.exp(theirs.log_prob(X, F, Y)), rtol=1e-10)


def test_moments_keep_their_digits_far_out() -> None:
    """Where next to all is in one class."""
    likelihood = Ordinal(EDGES)
    mean, variance = likelihood.predict_mean_and_var(*map(_column, ([0, 0], [-30, 40], [1, 1])))
    near = norm.cdf((np.array([-29.0, -36.0])) / np.sqrt(2.0))
    assert_close(mean, [[near[0]], [3.0 - near[1]]], rtol=1e-8, scale=1e-200)
    assert_close(variance, near[:, None], rtol=1e-6, scale=1e-200)


def _problem() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-3.0, 3.0, (90, 1)), axis=0)
    f = 3.0 * np.sin(X[:, 0])
    return X, np.digitize(f + 0.5 * rng.standard_normal(90), [-2.0, 0.0, 1.0])


@pytest.mark.slow
def test_a_model_learns_the_edges() -> None:
    X, labels = _problem()
    likelihood = Ordinal.of_classes(4)
    kernel = gpflow.kernels.SquaredExponential()
    model = pep.PEPClassification((X, labels[:, None]), kernel, likelihood, X[::10].copy())
    before = float(model.pep_log_marginal_likelihood())
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": 15}
    )
    assert float(model.pep_log_marginal_likelihood()) > before + 5.0
    gaps = np.diff(likelihood.edges)  # between the classes 0, 2 and 3 they are as 2 to 1
    assert gaps[0] > 1.2 * gaps[1] > 0.0
    mean, variance = model.predict_y(X)
    assert np.mean(np.round(mean[:, 0]) == labels) > 0.7
    assert np.all((variance > 0.0) & (mean > 0.0) & (mean < 3.0))
    far = model.predict_log_density((np.array([[1e3]]), np.array([[3.0]])))
    assert np.isfinite(far)


@pytest.mark.slow
def test_classifier_by_name() -> None:
    X, labels = _problem()
    names = np.array(["1 never", "2 rarely", "3 often", "4 always"])[labels]
    options: dict[str, Any] = {"num_inducing": 8, "max_iterations": 15, "random_state": 0}
    model = PEPClassifier(likelihood="ordinal", **options).fit(X, names)
    p = model.predict_proba(X)
    assert_close(p.sum(axis=1), np.ones(90), rtol=1e-12)
    assert model.score(X, names) > 0.7
    # Classes next to a probable one are more probable than those behind them.
    first = p[:, 0] > 0.5
    assert first.any() and np.all(p[first, 1] > p[first, 3])


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_gradients_of_a_model_equal_finite_differences(alpha: float) -> None:
    X, labels = _problem()
    X, labels = X[::6], labels[::6].astype(float)[:, None]
    likelihood = Ordinal([-1.0, -0.2, 0.6])
    gpflow.set_trainable(likelihood.sigma, True)
    model = pep.PEP(
        (X, labels),
        gpflow.kernels.Matern52(),
        likelihood,
        X[::3].copy(),
        alpha=alpha,
        tolerance=1e-9,
    )
    variables, loss = likelihood.trainable_variables, tf.function(model.training_loss)
    assert len(variables) == 2
    for variable, actual in zip(variables, gradients(loss, variables)):
        expected = finite_difference_gradient(loss, variable)
        assert_close(actual, expected, rtol=1e-6, scale=1.0)
