"""Variances that rounding made negative: warnings of estimators and scorers."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpflow_pep.distributions.cutting import cuts_reported, record_cut
from gpflow_pep.estimators import PEPClassifier, PEPRegressor, export_numpy
from gpflow_pep.scoring import load_scorer

X = np.linspace(0.0, 1.0, 24)[:, None]
NUMBERS = np.sin(6.0 * X[:, 0]) + 0.1 * np.cos(40.0 * X[:, 0])


@pytest.fixture(scope="module")
def fitted() -> PEPRegressor:
    options: dict[str, Any] = {"kernel": "rbf", "alpha": 0.5, "max_iterations": 3}
    return PEPRegressor(num_inducing=6, random_state=0, **options).fit(X, NUMBERS)


def _lowered(component: Any, variance: float) -> Any:
    """Replace the variances of f, but for that of the first row of a call."""

    def moments(X: Any) -> Any:
        mean, computed = component.moments(X)
        return mean, np.where(np.arange(len(X))[:, None] > 0, variance, computed)

    return (component._replace(moments=moments),)


def _texts(predict: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predict()
    return [str(w.message) for w in caught if "negative" in str(w.message)]


@pytest.fixture(params=["estimator", "scorer", "posterior"])
def lowered(
    request: Any, fitted: PEPRegressor, tmp_path: Path, monkeypatch: Any
) -> Iterator[Callable[[float], Callable[[Any], Any]]]:
    kept = fitted.mixture_.heaviest._numpy_components

    def make(variance: float) -> Callable[[Any], Any]:
        if request.param == "scorer":
            export_numpy(tmp_path / "scorer", fitted)
            scorer = load_scorer(tmp_path / "scorer")
            (model,) = scorer._models
            lowered = _lowered(model.components[0], variance)
            scorer._models = [model._replace(components=lowered)]
            return lambda X: scorer.predict(X, return_std=True)
        if request.param == "estimator":
            fitted.mixture_.heaviest._numpy_components = _lowered(
                fitted.mixture_.heaviest._numpy_components[0], variance
            )
            return lambda X: fitted.predict(X, return_std=True)
        part = fitted.posterior_.posteriors[0]
        predict_f = type(part).predict_f

        def negative(self: Any, X: Any, *options: Any) -> Any:
            mean, computed = predict_f(self, X, *options)
            rows = np.arange(len(X))[:, None]
            return mean, np.where(rows > 0, variance, computed) + 0.0 * mean

        monkeypatch.setattr(type(part), "predict_f", negative)
        fitted.mixture_.heaviest._numpy_components = ()
        return lambda X: fitted.predict(X, return_std=True)

    yield make
    fitted.mixture_.heaviest._numpy_components = kept


def test_one_warning_of_a_call(
    lowered: Callable[[float], Callable[[Any], Any]], fitted: PEPRegressor
) -> None:
    noise = float(fitted.likelihood_.variance.numpy())
    predict = lowered(-0.01 * noise)
    (text,) = _texts(lambda: predict(X))
    assert "in 23 predictions" in text
    assert "by up to 1%" in text
    assert "variance_lower_bound" in text
    assert np.isfinite(predict(X)[1]).all()


def test_what_changes_nothing_is_not_reported(
    lowered: Callable[[float], Callable[[Any], Any]], fitted: PEPRegressor
) -> None:
    noise = float(fitted.likelihood_.variance.numpy())
    assert _texts(lambda: lowered(-0.9e-6 * noise)(X)) == []


def test_classes() -> None:
    options: dict[str, Any] = {"kernel": "rbf", "num_inducing": 5, "alpha": 0.5}
    fitted = PEPClassifier(max_iterations=2, random_state=0, **options)
    fitted.fit(X, NUMBERS > 0.0)
    assert _texts(lambda: fitted.predict_proba(X)) == []
    fitted.mixture_.heaviest._numpy_components = _lowered(
        fitted.mixture_.heaviest._numpy_components[0], -1e-3
    )
    assert len(_texts(lambda: fitted.predict_proba(X))) == 1


def test_the_outer_one_reports_all() -> None:
    def predict() -> None:
        with cuts_reported():
            for _ in range(2):
                with cuts_reported():
                    record_cut(-np.ones([3, 1]), np.full([3, 1], 100.0))
        record_cut(-np.ones([3, 1]), np.ones([3, 1]))  # nobody asks

    (text,) = _texts(predict)
    assert "in 6 predictions" in text
