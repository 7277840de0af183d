"""Predictions of models with any likelihood from near rows, and training for these."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from gpflow.base import AnyNDArray
from helpers import assert_all_close, assert_gradients
from scipy.special import ndtr
from scipy.stats import multivariate_normal

import gpflow_pep as pep
from tests.reference import groups as reference

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (60, 2))
XNEW = RNG.uniform(-2.0, 2.0, (7, 2))
LABELS = 1.0 * (np.sin(3.0 * X[:, :1]) + X[:, 1:] + 0.3 * RNG.standard_normal((60, 1)) > 0.0)


def _model(alpha: Any = 0.5, rows: int = 60, **options: Any) -> pep.PEP:
    kernel = gpflow.kernels.Matern32(variance=3.0, lengthscales=[0.5, 1.3])
    bernoulli, Z = gpflow.likelihoods.Bernoulli(), X[:4].copy()
    data, mean = (X[:rows], LABELS[:rows]), gpflow.functions.Constant(0.2)
    return pep.PEP(data, kernel, bernoulli, Z, alpha=alpha, mean_function=mean, **options)


def _expected(model: pep.PEP, m: int, alpha: float) -> AnyNDArray:
    """Each new row given its m nearest rows, densely."""
    moments, scales = [], [0.5, 1.3]
    for new in XNEW:
        near = np.argsort(np.sum(((X - new) / scales) ** 2, axis=1))[:m]
        K = model.kernel(np.concatenate([new[None], X[near]])).numpy()
        factors = [
            lambda f, s=2.0 * y - 1.0: np.log(1e-3 + (1.0 - 2e-3) * ndtr(s * f))
            for y in LABELS[near, 0]
        ]
        nu, tau = reference.fixed_point(factors, np.full(m, 0.2), K[1:, 1:], alpha, 80)
        gain = np.linalg.solve(K[1:, 1:] + np.diag(1.0 / tau), K[1:, 0])
        moments.append([0.2 + gain @ (nu / tau - 0.2), K[0, 0] - gain @ K[1:, 0]])
    return np.array(moments)


@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.3, 0.5, 1.0])
def test_equation(alpha: float) -> None:
    model = _model(alpha)
    actual = np.hstack(model.predict_f(XNEW, near=5))
    # Sites stop when means move by less than 1e-4 standard deviations, see sites.groups.
    np.testing.assert_allclose(actual, _expected(model, 5, alpha), atol=1e-3)


def test_posterior_and_graph_and_powers_of_rows_are_the_same() -> None:
    model = _model(1.0)
    expected = model.predict_f(XNEW, near=5)
    graph = tf.function(lambda x: model.predict_f(x, near=5), autograph=False)
    assert_all_close(model.posterior(near=5).predict_f(XNEW), expected, rtol=1e-8)
    assert_all_close(graph(tf.constant(XNEW)), expected, rtol=1e-8)
    assert_all_close(_model(np.ones(60)).predict_f(XNEW, near=5), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="full_cov: got True with near rows of a likelihood"):
        model.predict_f(XNEW, full_cov=True, near=5)


@pytest.mark.slow
def test_all_rows_at_power_0_are_the_variational_gaussian() -> None:
    """With every row near, at the optimum of GPflow's VGP."""
    model = _model(0.0, rows=12)
    likelihood = gpflow.likelihoods.Bernoulli()
    vgp = gpflow.models.VGP(model.data, model.kernel, likelihood, model.mean_function)
    q = [*vgp.q_mu.variables, *vgp.q_sqrt.variables]
    gpflow.optimizers.Scipy().minimize(vgp.training_loss, q)
    for one, other in zip(model.predict_f(XNEW, near=12), vgp.predict_f(XNEW), strict=True):
        np.testing.assert_allclose(one, other, atol=3e-3)


def test_density_of_rows_with_gaussian_noise() -> None:
    kernel = gpflow.kernels.Matern32(lengthscales=[0.5, 1.3])
    model = pep.PEPRegression((X, LABELS), kernel, X[:4].copy(), noise_variance=0.3)
    index, near = np.array([3, 8]), np.array([[1, 2, 40], [5, 7, 9]])
    actual = model.near_row_log_density(tf.constant(index), tf.constant(near))
    for n, others, value in zip(index, near, actual, strict=True):
        rows = np.array([n, *others])
        K = kernel(X[rows]).numpy() + 0.3 * np.eye(4)
        joint = multivariate_normal.logpdf(LABELS[rows, 0], cov=K)
        expected = joint - multivariate_normal.logpdf(LABELS[others, 0], cov=K[1:, 1:])
        np.testing.assert_allclose(value, expected, rtol=1e-8)


@pytest.mark.parametrize("labels", [False, True])
def test_gradient(labels: bool) -> None:
    """Exact with Gaussian noise; with sites, but for what those before the last sweep would add."""
    model: Any = _model(1.0)
    if not labels:
        model = pep.PEPRegression((X, LABELS), model.kernel, X[:4].copy(), noise_variance=0.3)
    loss = model.near_row_training_loss_closure(5, batch_size=30)
    batch = next(iter(loss.epoch(0)))
    parts = model.kernel, model.mean_function, model.likelihood
    variables = [v for part in parts for v in part.trainable_variables]
    rtol = 0.1 if labels else 1e-5
    assert_gradients(lambda: loss.of_batch(batch), variables, step=1e-4, rtol=rtol, scale=1.0)


def test_neighbours_are_others_and_nearest() -> None:
    model = _model()
    index, near = next(iter(model.near_row_training_loss_closure(5, batch_size=60).epoch(0)))
    assert sorted(index.numpy()) == list(range(60))
    scaled = X / [0.5, 1.3]
    for n, others in zip(index.numpy(), near.numpy(), strict=True):
        order = np.argsort(np.sum((scaled - scaled[n]) ** 2, axis=1))
        assert n not in others
        assert set(others) == set(order[1:6])


def test_training_for_near_rows() -> None:
    """Rows that alternate at a scale which few inducing points cannot follow."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1.0, 1.0, (1200, 2))
    labels = 1.0 * (np.sin(25.0 * inputs[:, :1]) > 0.0)
    kernel = gpflow.kernels.Matern32(lengthscales=[1.0, 1.0])
    data = inputs[:1000], labels[:1000]
    model = pep.PEP(data, kernel, gpflow.likelihoods.Bernoulli(), inputs[:5].copy(), alpha=1.0)

    def errors() -> float:
        mean, _ = model.predict_f(inputs[1000:], near=10)
        return float(np.mean((mean.numpy() > 0.0) != labels[1000:]))

    before = errors()
    loss = model.near_row_training_loss_closure(10, batch_size=100)
    optimizer = tf_keras.optimizers.Adam(0.2)
    pep.training.fit(model, loss, num_steps=40, optimizer=optimizer, progress=False)
    lengthscales = model.kernel.lengthscales.numpy()
    assert errors() < 0.7 * before
    assert lengthscales[0] < 0.3 * lengthscales[1]
