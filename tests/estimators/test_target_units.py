"""Targets that a model takes in other units: logarithms, counts, and what is cut off."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep.estimators import (
    PEPRegressor,
    export_saved_model,
    load_estimator,
    save_estimator,
)
from gpflow_pep.likelihoods import LogNormal, NegativeBinomial, Tobit, ZeroInflatedPoisson
from gpflow_pep.models import PEP

RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (40, 1))
LOG_Y = 5.0 + np.sin(X[:, 0]) + 0.3 * RNG.standard_normal(40)
Y = np.exp(LOG_Y)
ROWS = np.array([[-2.0], [0.3], [5.0]])
SMALL: dict[str, Any] = {"num_inducing": 6, "alpha": 0.5, "random_state": 0}
MIXED = {**SMALL, "alpha": "mix"}
pytestmark = pytest.mark.usefixtures("no_training")


@pytest.fixture
def pair() -> tuple[PEPRegressor, PEPRegressor]:
    """A mixture for y by its name, and one for log y by hand, with components that differ."""
    by_name = PEPRegressor(likelihood="log_normal", **MIXED).fit(X, Y)
    by_hand = PEPRegressor(**MIXED).fit(X, LOG_Y)
    for model in (by_name, by_hand):
        for scale, component in zip((0.5, 1.0, 2.0), model.model_.models):
            component.kernel.lengthscales.assign([scale])
        model.model_.weights.assign([0.2, 0.5, 0.3])
        model._set_model(model.model_)
    return by_name, by_hand


def test_log_normal_is_gaussian_of_the_logarithm(pair: tuple[PEPRegressor, PEPRegressor]) -> None:
    by_name, by_hand = pair
    quantiles = by_name.predict_quantiles(ROWS, [0.05, 0.5, 0.99])
    assert_allclose(quantiles, np.exp(by_hand.predict_quantiles(ROWS, [0.05, 0.5, 0.99])))
    assert_allclose(by_name.sample_y(ROWS, 5), np.exp(by_hand.sample_y(ROWS, 5)))
    densities = by_hand.log_densities(X, LOG_Y) - LOG_Y
    assert_allclose(by_name.log_densities(X, Y), densities)
    assert_allclose(by_name.log_score(X, Y), densities.mean())
    assert by_name.alpha_scores_ is not None and by_hand.alpha_scores_ is not None
    for alpha, score in by_hand.alpha_scores_.items():
        assert_allclose(by_name.alpha_scores_[alpha], score - LOG_Y.mean(), rtol=1e-6)


def test_moments_of_log_normal_are_those_of_the_mixture(
    pair: tuple[PEPRegressor, PEPRegressor],
) -> None:
    by_name, by_hand = pair
    u = np.linspace(-8.0, 20.0, 2001)
    mean, std = by_name.predict(ROWS, return_std=True)
    for row, m, s in zip(ROWS, mean, std):
        density = np.exp(by_hand.log_densities(np.repeat(row[None], len(u), axis=0), u))
        assert_allclose(m, np.sum(density * np.exp(u)) * (u[1] - u[0]), rtol=1e-8)
        square = np.sum(density * np.exp(2.0 * u)) * (u[1] - u[0])
        assert_allclose(s, np.sqrt(square - m**2), rtol=1e-7)
    assert_array_equal(by_name.predict(ROWS), mean)


@pytest.mark.parametrize("calibrate", ["folds", None])
def test_intervals_of_log_normal(calibrate: str | None) -> None:
    intervals = [
        PEPRegressor(likelihood=name, **SMALL).fit(X, y).predict_interval(ROWS, calibrate=calibrate)
        for name, y in (("log_normal", Y), ("gaussian", LOG_Y))
    ]
    assert_allclose(intervals[0], np.exp(intervals[1]))


def test_log_normal_without_standardising() -> None:
    options = {**SMALL, "standardize": False}
    by_name = PEPRegressor(likelihood="log_normal", **options).fit(X, Y)
    by_hand = PEPRegressor(**options).fit(X, LOG_Y)
    assert_allclose(by_name.log_densities(X, Y), by_hand.log_densities(X, LOG_Y) - LOG_Y)
    assert_allclose(by_name.model_.data[1][:, 0], LOG_Y)


def test_log_normal_by_an_object_has_the_same_model() -> None:
    """Its inner loop finds what is exact by name, where targets are not standardised."""
    fitted = PEPRegressor(likelihood=LogNormal(0.1), **SMALL).fit(X, Y)
    assert isinstance(fitted.model_, PEP)
    exact = PEPRegressor(likelihood="log_normal", **SMALL)
    exact.set_params(standardize=False, inducing=fitted.inducing_variable_)
    scaled = fitted.input_scaler_.transform(X)
    exact.fit(scaled, Y)
    mean, std = fitted.predict(ROWS, return_std=True)
    rows = fitted.input_scaler_.transform(ROWS)
    assert_allclose((mean, std), exact.predict(rows, return_std=True), rtol=1e-5)
    assert_allclose(fitted.log_densities(X, Y), exact.log_densities(scaled, Y), rtol=1e-5)


def test_what_log_normal_cannot_do_is_refused() -> None:
    model = PEPRegressor(likelihood="log_normal", **SMALL)
    with pytest.raises(ValueError, match="got 0 at row 39, expected numbers above 0"):
        model.fit(X, np.r_[Y[:-1], 0.0])
    model.fit(X, Y)
    with pytest.raises(ValueError, match="got -1 at row 0, expected numbers above 0"):
        model.log_densities(X[:1], [-1.0])
    with pytest.raises(ValueError, match="return_cov: got it with log_normal, expected a Gaussian"):
        model.predict(ROWS, return_cov=True)


def test_log_normal_is_saved_and_exported(tmp_path: Path) -> None:
    model = PEPRegressor(likelihood="log_normal", **MIXED).fit(X, Y)
    expected = model.predict(ROWS, return_std=True)
    save_estimator(tmp_path / "model", model)
    for again in (load_estimator(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert_allclose(again.predict(ROWS, return_std=True), expected, rtol=1e-12)
        assert_allclose(again.log_densities(X, Y), model.log_densities(X, Y), rtol=1e-12)
        assert again.get_params()["likelihood"] == "log_normal"
    export_saved_model(tmp_path / "exported", model)
    predictor = tf.saved_model.load(str(tmp_path / "exported"))
    mean, variance = predictor.predict_y(tf.constant(ROWS))
    assert_allclose((mean[:, 0], np.sqrt(variance[:, 0])), expected, rtol=1e-9)


COUNTS = np.round(Y / 50.0) * (RNG.random(40) < 0.7)
OTHERS: dict[str, tuple[Any, type, Any]] = {
    "negative binomial": ("negative_binomial", NegativeBinomial, COUNTS),
    "zero-inflated": ("zero_inflated_poisson", ZeroInflatedPoisson, COUNTS),
    "both ends": (Tobit(-1.0, 1.0), Tobit, np.clip(LOG_Y - 5.0, -1.0, 1.0)),
    "one end": (Tobit(high=5.5), Tobit, np.minimum(LOG_Y, 5.5)),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.near_copies("one end", "zero*")
def test_counts_and_cut_off_targets(name: str, tmp_path: Path) -> None:
    likelihood, kind, y = OTHERS[name]
    model = PEPRegressor(likelihood=likelihood, **SMALL).fit(X, y)
    assert type(model.likelihood_) is kind and isinstance(model.model_, PEP)
    assert_array_equal(model.model_.data[1][:, 0], y)  # the bounds are those of the targets
    assert np.isfinite(model.log_score(X, y))
    mean, std = model.predict(ROWS, return_std=True)
    draws = model.sample_y(ROWS, 4000)
    assert_allclose(draws.mean(axis=1), mean, atol=5.0 * std.max() / np.sqrt(4000))
    assert_allclose(draws.std(axis=1), std, rtol=0.3)
    ends = model.predict_quantiles(ROWS, [0.05, 0.95])
    low, high = getattr(model.likelihood_, "bounds", (0.0, np.inf))
    assert np.all((low <= ends) & (ends <= high))
    save_estimator(tmp_path, model)
    again = load_estimator(tmp_path)
    assert_array_equal(again.predict(ROWS), mean)
