"""Labels predicted from near rows beside inducing points: the test of residuals, the mixture."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.special import logsumexp

import gpflow_pep as pep
from gpflow_pep.training import Ensemble, ensemble_with_near_labels
from gpflow_pep.training.choosing import near as choosing
from gpflow_pep.training.choosing.near import near_residuals, takes_near_labels

RNG = np.random.default_rng(3)
X = RNG.uniform(-1.0, 1.0, (400, 2))
FINE = 1.0 * (np.floor(4.0 * X[:, :1]) % 2 == np.floor(4.0 * X[:, 1:]) % 2)
COARSE = 1.0 * (X[:, :1] + 0.3 * RNG.standard_normal((400, 1)) > 0.0)


def _model(labels: AnyNDArray, **options: Any) -> pep.PEPClassification:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[0.8, 0.8])
    return pep.PEPClassification((X, labels), kernel, None, X[:12].copy(), **options)


def test_residuals_of_near_rows() -> None:
    inputs = RNG.uniform(-1.0, 1.0, (30, 2))
    p = RNG.uniform(0.2, 0.8, 30)
    labels = 1.0 * (RNG.uniform(size=30) < p)
    of_label = np.where(labels == 1.0, p, 1.0 - p)
    rows = np.array([4, 9, 22])
    actual = near_residuals(np.log(of_label), labels, tf.constant(inputs), rows)
    residuals = (labels - p) / np.sqrt(p * (1.0 - p))
    for n, product in zip(rows, actual, strict=True):
        near = np.argsort(np.sum((inputs - inputs[n]) ** 2, axis=1))[1:11]
        np.testing.assert_allclose(product, residuals[n] * residuals[near].mean(), rtol=1e-10)


def test_nothing_is_trained_where_residuals_of_near_rows_have_nothing_in_common(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choosing, "fit", lambda *_, **__: pytest.fail("trained"))
    model = _model(COARSE)
    assert ensemble_with_near_labels(model, (X, COARSE)) is None


@pytest.fixture(scope="module")
def mixed() -> Ensemble:
    mixture = ensemble_with_near_labels(_model(FINE), (X, FINE), 6, num_steps=3)
    assert mixture is not None
    return mixture


def test_mixture_by_rows_left_out(mixed: Ensemble) -> None:
    model, near = mixed.models
    kernel = near.kernel
    assert near.alpha.numpy() == 1.0
    assert kernel.lengthscales.numpy()[0] != 0.8  # trained
    assert mixed.near == (None, (6, None))
    assert mixed.weights.numpy()[1] > 0.8
    # The density of a row that is left out is that of a model without it.
    left_out = np.random.default_rng(0).permutation(400)[:1000]
    scores = mixed.record.log_densities
    densities = []
    for n in left_out[:12]:
        others = np.arange(400) != n
        without = pep.PEP(
            (X[others], FINE[others]), kernel, near.likelihood, X[:2].copy(), alpha=1.0
        )
        moments = without.predict_f(X[n : n + 1], near=6)
        density = without.likelihood.predict_log_density(X[n : n + 1], *moments, FINE[n : n + 1])
        densities.append(float(density[0]))
    actual = choosing._near_label_densities(near, 6, left_out)
    np.testing.assert_allclose(actual[:12], densities, atol=0.01)
    np.testing.assert_allclose(scores[1], actual.mean())
    np.testing.assert_allclose(scores[0], np.mean(model.loo_log_density()))


def test_predictions_are_those_of_both(mixed: Ensemble) -> None:
    new, labels = X[:9] + 0.01, FINE[:9]
    parts = []
    for component, options in zip(mixed.models, ({}, {"near": 6}), strict=True):
        moments = component.predict_f(new, **options)
        parts.append(component.likelihood.predict_log_density(new, *moments, labels))
    expected = logsumexp(np.stack(parts), axis=0, b=mixed.weights.numpy()[:, None])
    for predictor in (mixed, mixed.posterior()):
        np.testing.assert_allclose(
            predictor.predict_log_density((new, labels)), expected, rtol=1e-8
        )


@pytest.mark.slow
def test_rows_that_share_sites() -> None:
    """Densities of the training rows stand for those that are left out."""
    parts = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Bernoulli(), X[:5].copy()
    tied = pep.ARPEP(*parts, num_data=400)
    mixed = ensemble_with_near_labels(tied, (X, FINE), 5, num_steps=1)
    assert mixed is not None
    expected = np.mean(tied.predict_log_density((X, FINE)))
    np.testing.assert_allclose(mixed.record.log_densities[0], expected, rtol=1e-8)


def test_refusals() -> None:
    three = pep.PEPClassification(
        (X, np.arange(400)[:, None] % 3), gpflow.kernels.RBF(), None, X[:4].copy()
    )
    assert not takes_near_labels(three.kernel, three.likelihood)
    with pytest.raises(ValueError, match="model: got PEPClassification with MultiClass, expected"):
        ensemble_with_near_labels(three, (X, np.arange(400)[:, None] % 3))
    with pytest.raises(ValueError, match="near: got 400, expected an integer from 1 to 399"):
        ensemble_with_near_labels(_model(FINE), (X, FINE), 400)
