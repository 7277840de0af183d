"""Training on some rows: whose parameters change, which rows count, and what is refused."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_all_close

from gpflow_pep.models import PEP, PEPClassification, PEPRegression
from gpflow_pep.training import maximise, maximise_on_subset
from gpflow_pep.training.fitting.cheaper import ROWS_PER_POINT

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 6.0, (90, 1))
Y = np.sin(2.0 * X) + 0.1 * RNG.standard_normal(X.shape)


def regression(data=(X, Y), **options) -> PEPRegression:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.8)
    return PEPRegression(data, kernel, X[:3].copy(), noise_variance=0.05, **options)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_it_is_training_of_a_model_of_these_rows(alpha: float) -> None:
    data = tuple(tf.Variable(part, trainable=False) for part in (X, Y))
    model = regression(data, alpha=alpha, bound="tight")
    record = maximise_on_subset(model, 20, seed=3, max_iterations=5, progress=False)
    rows = np.random.default_rng(3).permutation(len(X))[:20]
    other = regression((X[rows], Y[rows]), alpha=alpha, bound="tight")
    options = {"tolerance": 1e-3, "window": 5, "max_iterations": 5}
    expected = maximise(other, progress=False, **options)
    np.testing.assert_allclose(record.objective, expected.objective, rtol=1e-8)
    assert_all_close(model.trainable_variables, other.trainable_variables, rtol=1e-6)
    # The model has all its rows: what it predicts is that of a model made with its parameters.
    parts = model.kernel, model.inducing_variable
    options = {"likelihood": model.likelihood, "alpha": alpha, "bound": "tight"}
    whole = PEPRegression((X, Y), *parts, **options)
    np.testing.assert_allclose(model.predict_f(X[:5]), whole.predict_f(X[:5]), rtol=1e-8)


def test_the_default_number_follows_that_of_points(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    monkeypatch.setattr(
        "gpflow_pep.training.fitting.cheaper.maximise", lambda model, **_: trained.append(model)
    )
    large = regression((np.tile(X, [2, 1]), np.tile(Y, [2, 1])))
    maximise_on_subset(large)
    maximise_on_subset(regression())  # at most half
    maximise_on_subset(regression(), 10**6)
    assert [len(each.data[0]) for each in trained] == [3 * ROWS_PER_POINT, 45, 90]


def classification(rows=slice(None), **options) -> PEP:
    labels, likelihood = (Y > 0.0).astype(float), gpflow.likelihoods.Bernoulli()
    data, kernel = (X[rows], labels[rows]), gpflow.kernels.SquaredExponential(lengthscales=0.8)
    return PEPClassification(data, kernel, likelihood, X[:3].copy(), **options)


def test_of_classes() -> None:
    model = classification()
    record = maximise_on_subset(model, 20, seed=3, max_iterations=4, progress=False)
    other = classification(np.random.default_rng(3).permutation(len(X))[:20])
    expected = maximise(other, tolerance=1e-3, window=5, max_iterations=4, progress=False)
    # Evaluations of training end with sites that are as near to their fixed point, not nearer.
    np.testing.assert_allclose(record.objective, expected.objective, rtol=1e-8)
    assert_all_close(model.trainable_variables, other.trainable_variables, rtol=1e-6)
    assert model.data[0].shape[0] == 90 and model.last_inference.num_sweeps == 0


def with_missing_targets() -> PEPRegression:
    return regression((X, np.where(np.arange(90)[:, None] == 0, np.nan, Y)))


def gpr() -> gpflow.models.GPR:
    return gpflow.models.GPR((X, Y), gpflow.kernels.Matern32())


HALVES = np.full(90, 0.5)


@pytest.mark.parametrize(
    "model, options, words",
    [
        (gpr, {}, "model: got GPR, expected a PEPRegression"),
        (lambda: classification(alpha=HALVES), {}, "a power for each row"),
        (with_missing_targets, {}, "Call maximise alone"),
        (lambda: regression(blocks=np.arange(90) // 9), {}, "got one with blocks"),
        (lambda: regression(alpha=HALVES), {}, "a power for each row"),
        (regression, {"num_rows": 0}, "num_rows: got 0, expected"),
        (regression, {"seed": -1}, "seed: got -1"),
        (regression, {"num_inducing": "auto"}, "num_inducing: got 'auto', expected none"),
    ],
)
def test_refused(model, options, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        maximise_on_subset(model(), **options)
