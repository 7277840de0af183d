"""Entropies of predictions and what labels tell, against SciPy and draws."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import Array, assert_close, regression_problem
from scipy.special import expit, xlogy
from scipy.stats import entropy, norm

import gpflow_pep as pep
from gpflow_pep.training.starts import acquisition, information_gain, predictive_entropy

PROBLEM = regression_problem(num_data=24)
LABELS = np.digitize(PROBLEM.Y, np.quantile(PROBLEM.Y, [0.3, 0.7])).astype(float)
NOISE = 0.09


def model(kind: str) -> Any:
    X, Y = PROBLEM.data
    if kind == "numbers":
        likelihood = gpflow.likelihoods.Gaussian(
            scale=gpflow.functions.Linear(A=0.1 * np.ones([X.shape[1], 1]), b=[0.5])
        )
        return pep.PEPRegression((X, Y), PROBLEM.kernel(), PROBLEM.Z, likelihood=likelihood)
    two = kind == "two"
    likelihood = gpflow.likelihoods.Bernoulli() if two else gpflow.likelihoods.MultiClass(3)
    Y = (LABELS > 0.5).astype(float) if two else LABELS
    return pep.PEP((X, Y), PROBLEM.kernel(), likelihood, PROBLEM.Z)


def expected(trained: Any, kind: str) -> tuple[Array, Array]:
    """The entropy of y, and what is left of it when f is known."""
    mean, variance = (part.numpy() for part in trained.predict_f(PROBLEM.Xnew))
    if kind == "numbers":
        deviation = (0.1 * PROBLEM.Xnew.sum(axis=1) + 0.5)[:, None]
        of_y = norm(scale=np.sqrt(variance + deviation**2)).entropy()
        return of_y[:, 0], norm(scale=deviation).entropy()[:, 0]
    draws = np.random.default_rng(0).standard_normal([200_000, mean.shape[1]])
    of_y, given_f = [], []
    for m, v in zip(mean, variance):
        f = m + np.sqrt(v) * draws
        if kind == "two":
            p = np.hstack([norm.cdf(-f), norm.cdf(f)])
        else:
            p = np.where(np.arange(3) == f.argmax(axis=1)[:, None], 1.0 - 1e-3, 0.5e-3)
        of_y.append(entropy(p.mean(axis=0)))
        given_f.append(entropy(p, axis=1).mean())
    return np.array(of_y), np.array(given_f)


@pytest.mark.parametrize("kind", ["numbers", "two", "several"])
@pytest.mark.near_copies
def test_entropy_and_gain(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquisition, "_CHUNK", 2)
    trained = model(kind)
    of_y, given_f = expected(trained, kind)
    tolerance = 1e-9 if kind == "numbers" else 5e-3  # of the draws
    X = tf.constant(PROBLEM.Xnew)
    assert_close(predictive_entropy(trained, X), of_y, rtol=tolerance)
    gain = information_gain(trained, X).numpy()
    np.testing.assert_allclose(gain, of_y - given_f, rtol=0.0, atol=2.0 * tolerance)
    if kind == "numbers":
        compiled = tf.function(lambda: predictive_entropy(trained, X))
        assert_close(compiled(), of_y, rtol=tolerance)


def test_likelihoods_without() -> None:
    X, Y = PROBLEM.data
    counts = gpflow.likelihoods.Poisson()
    other = pep.PEP((X, np.floor(np.abs(Y))), PROBLEM.kernel(), counts, PROBLEM.Z, max_sweeps=1)
    with pytest.raises(ValueError, match="likelihood: got Poisson, expected one of classes"):
        predictive_entropy(other, PROBLEM.Xnew)
    soft = pep.PEP((X, LABELS), PROBLEM.kernel(), gpflow.likelihoods.Softmax(3), PROBLEM.Z)
    with pytest.raises(ValueError, match="likelihood: got Softmax, expected Gaussian, Bernoulli"):
        information_gain(soft, PROBLEM.Xnew)
    with pytest.raises(ValueError, match="Give inducing inputs in the space of X"):
        predictive_entropy(soft, PROBLEM.Xnew[:, :1])


def _exact_entropy(prob: Any, m: float, v: float) -> float:
    """By Gauss-Legendre panels that are small near 0 and cover the Gaussian."""
    deviation = np.sqrt(v)
    low, high = m - 12.0 * deviation, m + 12.0 * deviation
    edges = [np.linspace(low, high, 800), np.clip(np.linspace(-45.0, 45.0, 1500), low, high)]
    edges = np.unique(np.concatenate(edges))
    x, w = np.polynomial.legendre.leggauss(12)
    half = 0.5 * np.diff(edges)[:, None]
    f = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * x
    p, q = prob(f), prob(-f)
    return float(np.sum(half * w * norm.pdf(f, m, deviation) * -(xlogy(p, p) + xlogy(q, q))))


@pytest.mark.parametrize(
    "likelihood, prob",
    [
        (gpflow.likelihoods.Bernoulli(), lambda f: 1e-3 + (1.0 - 2e-3) * norm.cdf(f)),
        (gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid), expit),
        (pep.likelihoods.NoisyLabelBernoulli(0.05), lambda f: 0.05 + 0.9 * norm.cdf(f)),
    ],
)
def test_entropy_left_by_f_at_every_variance(likelihood: Any, prob: Any) -> None:
    means, variances = np.meshgrid([0.0, -1.3, 3.0, 30.0], [1e-4, 1.0, 10.0, 100.0, 1e3, 1e6])
    rule = acquisition.entropy_given_f
    m, v = (tf.constant(part.reshape(-1, 1)) for part in (means, variances))
    actual = rule(likelihood, tf.zeros_like(m), m, v)
    expected = [_exact_entropy(prob, m, v) for m, v in zip(means.ravel(), variances.ravel())]
    assert_close(actual, np.array(expected), rtol=1e-8)
    certain = rule(likelihood, tf.zeros([1, 1], tf.float64), m[1:2], tf.zeros_like(m[:1]))
    p = prob(means.ravel()[1:2])
    assert_close(certain, entropy([p, 1.0 - p]), rtol=1e-10)
