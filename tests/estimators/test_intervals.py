"""Intervals that left-out rows correct: by hand, where they are exact, and what is refused."""

import pickle
from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.base import AnyNDArray
from scipy.special import ndtri
from scipy.stats import norm
from sklearn.base import clone
from sklearn.model_selection import KFold

from gpflow_pep.estimators import PEPRegressor, load_estimator, save_estimator
from gpflow_pep.estimators.intervals import conformal_score
from gpflow_pep.models import PEPRegression
from gpflow_pep.scoring.predictive import Predictive
from gpflow_pep.training import Ensemble

RNG = np.random.default_rng(5)
X = RNG.uniform(-2.0, 2.0, (60, 1))
Y = 50.0 + 9.0 * np.sin(3.0 * X[:, 0]) + RNG.standard_t(3, 60)
XNEW = np.linspace(-3.0, 3.0, 9)[:, None]
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")
OPTIONS: dict[str, Any] = {"num_inducing": 5, "max_iterations": 5, "random_state": 0}


@pytest.fixture(scope="module", params=["mix", 0.5])
def fitted(request: pytest.FixtureRequest) -> PEPRegressor:
    return PEPRegressor(alpha=request.param, **OPTIONS).fit(X, Y)


def components(fitted: PEPRegressor) -> tuple[list[Any], AnyNDArray]:
    model = fitted.model_
    return (
        (model.models, model.weights.numpy())
        if isinstance(model, Ensemble)
        else ([model], np.ones(1))
    )


def test_scores_are_those_of_the_mixed_distribution() -> None:
    y, means, sds = RNG.normal(size=30), RNG.normal(size=(3, 30)), RNG.uniform(0.5, 2.0, (3, 30))
    w = np.array([0.2, 0.5, 0.3])
    below = w @ norm.cdf(y, means, sds)
    scores = Predictive(means, sds**2, w).normal_scores(y)
    np.testing.assert_allclose(scores, ndtri(below), rtol=1e-9)
    # Far out, where the distribution function is 1 in double precision.
    far = Predictive(np.zeros((3, 1)), np.ones((3, 1)), w).normal_scores(np.array([40.0]))
    np.testing.assert_allclose(far, 40.0, rtol=1e-9)


@pytest.mark.parametrize("score", [0.3, 1.6, 9.0, 50.0])
def test_intervals_of_a_gaussian_are_standard_deviations(score: float) -> None:
    mean, sd = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    ends = Predictive(mean[None], sd[None] ** 2, np.ones(1)).at_scores(np.array([-score, score]))
    expected = np.stack([mean - score * sd, mean + score * sd], axis=1)
    np.testing.assert_allclose(ends, expected, rtol=1e-12)


def test_a_fraction_of_rows_is_below_the_score() -> None:
    scores = RNG.permutation(19) + 1.0
    assert conformal_score(scores, 0.9) == 18.0  # (19 + 1) 0.9
    assert conformal_score(scores, 0.91) == 19.0
    assert conformal_score(scores, 0.95) == 19.0
    assert conformal_score(scores, 1e-12) == 1.0
    with pytest.raises(ValueError, match=r"0.96 with 19 rows, expected at most 0.95"):
        conformal_score(scores, 0.96)


def test_coverage_holds_where_rows_are_exchangeable() -> None:
    # Predictions are three times too narrow; the guarantee is for the mean over calibration sets.
    covered = []
    for _ in range(400):
        scores = np.abs(3.0 * RNG.normal(size=40))
        covered.append(2.0 * norm.cdf(conformal_score(scores, 0.8) / 3.0) - 1.0)
    error = np.std(covered) / np.sqrt(len(covered))
    assert 0.8 - 3.0 * error < np.mean(covered) < 0.8 + 1.0 / 41.0 + 3.0 * error


def test_without_calibration_they_are_quantiles(fitted: PEPRegressor) -> None:
    expected = fitted.predict_quantiles(XNEW, [0.1, 0.9])
    np.testing.assert_allclose(fitted.predict_interval(XNEW, 0.8), expected, rtol=1e-12)


@pytest.mark.near_copies("0.5")
def test_folds_are_trained_without_the_row(fitted: PEPRegressor) -> None:
    scores = np.empty(60)
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        x, y = X[train], Y[train]
        models, weights = components(clone(fitted).fit(x, y))
        moments = [one.predict_y((X[test] - x.mean()) / x.std()) for one in models]
        m, v = (np.stack([part[k][:, 0] for part in moments]) for k in (0, 1))
        below = weights @ norm.cdf((Y[test] - y.mean()) / y.std(), m, np.sqrt(v))
        scores[test] = np.abs(ndtri(below))
    score = np.sort(scores)[int(np.ceil(61 * 0.7)) - 1]
    expected = fitted.predict_quantiles(XNEW, norm.cdf([-score, score]))
    actual = fitted.predict_interval(XNEW, 0.7, calibrate="folds")
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_they_are_those_of_what_was_saved(fitted: PEPRegressor, tmp_path: Any) -> None:
    expected = fitted.predict_interval(XNEW, 0.8, calibrate="folds")
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(again.predict_interval(XNEW, 0.8, calibrate="folds"), expected)
    save_estimator(tmp_path / "saved", fitted)
    loaded = load_estimator(tmp_path / "saved")
    actual = loaded.predict_interval(XNEW, 0.8, calibrate="folds")
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_a_new_fit_has_scores_of_its_own() -> None:
    model = PEPRegressor(alpha=0.5, **OPTIONS).fit(X, Y)
    before = model.predict_interval(XNEW, calibrate="folds")
    after = model.fit(X, 2.0 * Y).predict_interval(XNEW, calibrate="folds")
    np.testing.assert_allclose(after, 2.0 * before, rtol=1e-6)


def test_leave_one_out_moments_are_exact_where_inducing_inputs_are_the_rows() -> None:
    x, y = X[:12], (Y[:12, None] - 50.0) / 9.0
    kernel = gpflow.kernels.Matern32()
    model = PEPRegression((x, y), kernel, x.copy(), noise_variance=0.1, alpha=0.3, chunk_size=5)
    mean, variance = model.loo_moments()
    for n in (0, 7):
        others = np.delete(np.arange(12), n)
        exact = gpflow.models.GPR((x[others], y[others]), kernel, noise_variance=0.1)
        m, v = exact.predict_y(x[n : n + 1])
        np.testing.assert_allclose([mean[n], variance[n]], [m[0], v[0]], rtol=1e-5)


@pytest.mark.parametrize(
    "settings, arguments, message",
    [
        ({}, {"coverage": 1.0}, r"coverage: got 1.0, expected a number in \(0, 1\)"),
        ({}, {"calibrate": "split"}, "calibrate: got 'split', expected 'folds' or None"),
        (
            {},
            {"coverage": 0.99, "calibrate": "folds"},
            "0.99 with 60 rows, expected at most 0.9836",
        ),
        pytest.param(
            {"likelihood": "student_t"},
            {"calibrate": "folds"},
            "expected Gaussian noise",
            marks=pytest.mark.slow,
        ),
        ({"batch_size": 50}, {"calibrate": "folds"}, "and a model that holds its rows"),
    ],
)
def test_what_cannot_be_is_refused(settings: Any, arguments: Any, message: str) -> None:
    options = {**OPTIONS, "max_iterations": 1, "alpha": 0.5, **settings}
    model = PEPRegressor(**options).fit(X, Y)
    with pytest.raises(ValueError, match=message):
        model.predict_interval(XNEW, **arguments)
