"""Intervals that left-out rows correct: by hand, where they are exact, and what is
refused.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases.forms import forms
from gpflow.base import AnyNDArray
from numpy.testing import assert_allclose
from scipy.special import ndtri
from scipy.stats import norm
from sklearn.base import clone
from sklearn.model_selection import KFold

from gpflow_pep.estimators import PEPRegressor, intervals
from gpflow_pep.estimators.intervals import conformal_score
from gpflow_pep.training.choosing.ensemble import components

RNG = np.random.default_rng(5)
X = RNG.uniform(-2.0, 2.0, (60, 1))
Y = 50.0 + 9.0 * np.sin(3.0 * X[:, 0]) + RNG.standard_t(3, 60)
XNEW = np.linspace(-3.0, 3.0, 9)[:, None]
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")
OPTIONS: dict[str, Any] = {"num_inducing": 5, "max_iterations": 5, "random_state": 0}


@pytest.fixture(scope="module", params=["mix", 0.5])
def fitted(request: pytest.FixtureRequest) -> PEPRegressor:
    return PEPRegressor(alpha=request.param, **OPTIONS).fit(X, Y)


def folds(model: PEPRegressor, coverage: float = 0.9) -> AnyNDArray:
    return model.predict_interval(XNEW, coverage, calibrate="folds")


def test_a_fraction_of_rows_is_below_the_score() -> None:
    scores = RNG.permutation(19) + 1.0
    for coverage, score in ((0.9, 18.0), (0.91, 19.0), (0.95, 19.0), (1e-12, 1.0)):
        assert conformal_score(scores, coverage) == score  # (19 + 1) 0.9
    with pytest.raises(ValueError, match=r"0.96 with 19 rows, expected at most 0.95"):
        conformal_score(scores, 0.96)


@pytest.mark.near_copies("0.5")
def test_folds_are_trained_without_the_row(fitted: PEPRegressor) -> None:
    scores = np.empty(60)
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        x = X[train]
        y = Y[train]
        models, weights = components(clone(fitted).fit(x, y).model_)
        moments = [one.predict_y((X[test] - x.mean()) / x.std()) for one in models]
        m, v = (np.stack([part[k][:, 0] for part in moments]) for k in (0, 1))
        below = np.asarray(weights) @ norm.cdf(
            (Y[test] - y.mean()) / y.std(), m, np.sqrt(v)
        )
        scores[test] = np.abs(ndtri(below))
    score = np.sort(scores)[int(np.ceil(61 * 0.7)) - 1]
    expected = fitted.predict_quantiles(XNEW, norm.cdf([-score, score]))
    assert_allclose(folds(fitted, 0.7), expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.near_copies("0.5")
def test_all_forms_have_them(fitted: PEPRegressor, tmp_path: Any) -> None:
    expected = folds(fitted, 0.8)
    loaded, pickled, _ = forms(fitted, tmp_path)
    for other in (loaded, pickled):
        assert_allclose(folds(other, 0.8), expected, rtol=1e-9)


def test_a_new_fit_has_scores_of_its_own() -> None:
    model = PEPRegressor(alpha=0.5, **OPTIONS).fit(X, Y)
    before = folds(model)
    assert_allclose(folds(model.fit(X, 2.0 * Y)), 2.0 * before, rtol=1e-6)


def test_copies_are_in_one_fold() -> None:
    seen = SimpleNamespace(normal_scores=np.abs)
    seen.predictive = lambda rows: None if np.isin(rows, seen.rows).any() else seen

    def train(rows: AnyNDArray, _: AnyNDArray) -> Any:
        seen.rows = rows
        return seen

    targets = np.append(Y, Y[:20])
    scores = intervals.fold_scores(train, np.vstack([X, X[:20]]), targets[:, None])
    assert_allclose(scores, targets)


@pytest.mark.near_copies("settings[01]*")
@pytest.mark.parametrize(
    "settings, arguments, message",
    [
        ({}, {"coverage": 1.0}, r"coverage: got 1.0, expected a number in \(0, 1\)"),
        (
            {},
            {"calibrate": "split"},
            "calibrate: got 'split', expected 'folds' or None",
        ),
        (
            {},
            {"coverage": 0.99, "calibrate": "folds"},
            "0.99 with 60 rows, expected at most 0.9836",
        ),
        ({"batch_size": 50}, {"calibrate": "folds"}, "and a model that holds its rows"),
        pytest.param(
            {"likelihood": "student_t"},
            {"calibrate": "folds"},
            "expected Gaussian noise",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_is_refused(settings: Any, arguments: Any, message: str) -> None:
    options = {**OPTIONS, "max_iterations": 1, "alpha": 0.5, **settings}
    model = PEPRegressor(**options).fit(X, Y)
    with pytest.raises(ValueError, match=message):
        model.predict_interval(XNEW, **arguments)
