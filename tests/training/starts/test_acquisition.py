"""Entropies of predictions, against SciPy and draws."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import Array, assert_close, regression_problem
from scipy.stats import entropy, norm

import gpflow_pep as pep
from gpflow_pep.training.starts import acquisition, predictive_entropy

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


def expected(trained: Any, kind: str) -> Array:
    mean, variance = (part.numpy() for part in trained.predict_f(PROBLEM.Xnew))
    if kind == "numbers":
        deviation = (0.1 * PROBLEM.Xnew.sum(axis=1) + 0.5)[:, None]
        return norm(scale=np.sqrt(variance + deviation**2)).entropy()[:, 0]
    draws = np.random.default_rng(0).standard_normal([200_000, 1, mean.shape[1]])
    f = mean + np.sqrt(variance) * draws  # [draws, rows, latent]
    if kind == "two":
        p = np.concatenate([norm.cdf(-f), norm.cdf(f)], axis=-1)
    else:
        p = np.where(np.arange(3) == f.argmax(axis=-1)[..., None], 1.0 - 1e-3, 0.5e-3)
    return entropy(p.mean(axis=0), axis=-1)


@pytest.mark.parametrize("kind", ["numbers", "two", "several"])
@pytest.mark.near_copies
def test_entropy(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquisition, "_CHUNK", 2)
    trained = model(kind)
    of_y = expected(trained, kind)
    tolerance = 1e-9 if kind == "numbers" else 5e-3  # of the draws
    X = tf.constant(PROBLEM.Xnew)
    assert_close(predictive_entropy(trained, X), of_y, rtol=tolerance)
    if kind == "numbers":
        compiled = tf.function(lambda: predictive_entropy(trained, X))
        assert_close(compiled(), of_y, rtol=tolerance)


def test_likelihoods_without() -> None:
    X, Y = PROBLEM.data
    parts = PROBLEM.kernel(), gpflow.likelihoods.Poisson(), PROBLEM.Z
    other = pep.PEP((X, np.floor(np.abs(Y))), *parts, max_sweeps=1)
    with pytest.raises(ValueError, match="likelihood: got Poisson, expected one of classes"):
        predictive_entropy(other, PROBLEM.Xnew)
    with pytest.raises(ValueError, match="Give inducing inputs in the space of X"):
        predictive_entropy(model("several"), PROBLEM.Xnew[:, :1])
