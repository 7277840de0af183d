"""Targets that a model takes in other units: logarithms, counts, and what is
cut off.
"""

import copy
from functools import cache
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.forms import check_forms, saved
from gpflow.base import AnyNDArray, TensorType
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from gpflow_pep.distributions import Units
from gpflow_pep.estimators import PEPRegressor
from gpflow_pep.estimators.single.target_units import likelihood_in
from gpflow_pep.likelihoods import LogLinear, LogNormal, PerOutput, Tobit
from gpflow_pep.models import PEP

RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (40, 1))
LOG_Y = 5.0 + np.sin(X[:, 0]) + 0.3 * RNG.standard_normal(40)
Y = np.exp(LOG_Y)
SHIFTED = LOG_Y - 5.0
ROWS = np.array([[-2.0], [0.3], [5.0]])
SMALL: dict[str, Any] = {"num_inducing": 6, "alpha": 0.5, "random_state": 0}
pytestmark = pytest.mark.usefixtures("no_training")


def fit(likelihood: Any, y: AnyNDArray, **options: Any) -> PEPRegressor:
    return PEPRegressor(likelihood=likelihood, **{**SMALL, **options}).fit(X, y)


WARP = Units(2.0, 1.0, False, 0.4, -0.3)
VARYING = gpflow.likelihoods.Gaussian(variance=LogLinear(1))


def mixture(likelihood: Any, y: AnyNDArray, **options: Any) -> PEPRegressor:
    """Of three components that differ, in their noise too where it varies."""
    model = fit(likelihood, y, alpha="mix", **options)
    for scale, component in zip((0.5, 1.0, 2.0), model.model_.models):
        component.kernel.lengthscales.assign([scale])
        if likelihood is VARYING:
            component.likelihood.variance.weights.assign([[0.2 * scale]])
    model.model_.weights.assign([0.2, 0.5, 0.3])
    model.mixture_.heaviest.set_model(model.model_)
    return model


@cache
def pair(name: str) -> tuple[PEPRegressor, PEPRegressor, AnyNDArray, Any, Any]:
    """Mixtures for y and for t, the targets t, the function from t to y, and
    log dt/dy.
    """
    if name == "log_normal":
        models = mixture(name, Y), mixture("gaussian", LOG_Y)
        return *models, LOG_Y, np.exp, lambda y: -np.log(y)
    by_hand = mixture(VARYING, SHIFTED, standardize=False)
    by_name = copy.deepcopy(by_hand)
    by_name.mixture_.heaviest.units = WARP
    return by_name, by_hand, SHIFTED, WARP.inverse_transform, WARP.log_slope


@pytest.mark.parametrize("name", ["log_normal", "warped"])
def test_targets_in_other_units_are_those_of_a_model_of_t(name: str) -> None:
    by_name, by_hand, t, to_y, log_slope = pair(name)
    y = to_y(t)
    q = [0.05, 0.5, 0.99]
    of_t = by_hand.predict_quantiles(ROWS, q)
    assert_allclose(by_name.predict_quantiles(ROWS, q), to_y(of_t), rtol=1e-9)
    assert_allclose(by_name.sample_y(ROWS, 5), to_y(by_hand.sample_y(ROWS, 5)))
    densities = by_hand.log_densities(X, t) + log_slope(y)
    assert_allclose(by_name.log_densities(X, y), densities, rtol=1e-9)
    assert_allclose(by_name.log_score(X, y), densities.mean())
    grid = t.mean() + np.linspace(-13.0, 13.0, 6001)
    # By a formula, by nodes.
    values, rtol = (
        to_y(grid),
        1e-8 if name == "log_normal" else 1e-5,
    )
    of_y, of_f = (
        each(ROWS, return_std=True) for each in (by_name.predict, by_name.predict_f)
    )
    for n, row in enumerate(ROWS):
        pairs = [
            (
                of_y,
                np.exp(by_hand.log_densities(np.repeat(row[None], len(grid), 0), grid)),
            )
        ]
        if name == "warped":
            weights = by_hand.model_.weights
            parts = by_hand.posterior_.components_of_f(row[None])
            moments = zip(weights.numpy(), parts)
            density = sum(
                w * norm.pdf(grid, m[0, 0], np.sqrt(v[0, 0])) for w, (m, v) in moments
            )
            pairs.append((of_f, density))
        for (mean, std), p in pairs:
            p = p * (grid[1] - grid[0])
            assert_allclose(mean[n], p @ values, rtol=rtol)
            assert_allclose(std[n] ** 2, p @ (values - mean[n]) ** 2, rtol=10.0 * rtol)
    if name == "log_normal":
        for alpha, score in by_hand.alpha_scores_.items():
            assert_allclose(
                by_name.alpha_scores_[alpha], score - LOG_Y.mean(), rtol=1e-6
            )
    with pytest.raises(
        ValueError, match=r"return_cov: got True with (log_normal|a warped target)"
    ):
        by_name.predict(ROWS, return_cov=True)


@pytest.mark.near_copies("log_normal")
@pytest.mark.parametrize("name", ["log_normal", "warped"])
def test_all_forms_have_the_units(name: str, tmp_path: Path) -> None:
    model, _, t, to_y, _ = pair(name)
    check_forms(model, tmp_path, np.vstack([X, ROWS]), to_y(np.append(t, t[:3])))


def test_log_normal_of_one_model() -> None:
    """Its intervals, and without standardising."""
    models = fit("log_normal", Y), fit("gaussian", LOG_Y)
    for calibrate in ("folds", None):
        of_y, of_log = (
            each.predict_interval(ROWS, calibrate=calibrate) for each in models
        )
        assert_allclose(of_y, np.exp(of_log))
    by_name = fit("log_normal", Y, standardize=False)
    by_hand = fit("gaussian", LOG_Y, standardize=False)
    assert_allclose(
        by_name.log_densities(X, Y), by_hand.log_densities(X, LOG_Y) - LOG_Y
    )
    assert_allclose(by_name.model_.data[1][:, 0], LOG_Y)


@pytest.mark.slow
def test_log_normal_by_an_object() -> None:
    """Its inner loop finds what is exact by name."""
    fitted = fit(LogNormal(0.1), Y)
    assert isinstance(fitted.model_, PEP)
    scaled, rows = (fitted.input_scaler_.transform(each) for each in (X, ROWS))
    options = {**SMALL, "standardize": False, "inducing": fitted.inducing_variable_}
    exact = PEPRegressor(likelihood="log_normal", **options).fit(scaled, Y)
    expected = exact.predict(rows, return_std=True)
    assert_allclose(fitted.predict(ROWS, return_std=True), expected, rtol=1e-5)
    assert_allclose(
        fitted.log_densities(X, Y), exact.log_densities(scaled, Y), rtol=1e-5
    )


def test_what_log_normal_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0 at row 39, expected numbers above 0"):
        fit("log_normal", np.r_[Y[:-1], 0.0])
    model = fit("log_normal", Y)
    with pytest.raises(ValueError, match="got -1 at row 0, expected numbers above 0"):
        model.log_densities(X[:1], [-1.0])


COUNTS = np.round(Y / 50.0) * (RNG.random(40) < 0.7)
OTHERS: dict[str, tuple[Any, str, Any]] = {
    "negative binomial": ("negative_binomial", "NegativeBinomial", COUNTS),
    "both ends": (Tobit(-1.0, 1.0), "Tobit", np.clip(SHIFTED, -1.0, 1.0)),
    "one end": (Tobit(high=5.5), "Tobit", np.minimum(LOG_Y, 5.5)),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.near_copies("one end", "zero*")
def test_counts_and_cut_off_targets(name: str, tmp_path: Path) -> None:
    likelihood, kind, y = OTHERS[name]
    model = fit(likelihood, y)
    assert type(model.likelihood_).__name__ == kind and isinstance(model.model_, PEP)
    targets = model.model_.data[1][:, 0]
    if kind == "Tobit":
        ends = [(end - y.mean()) / y.std() for end in likelihood.bounds]
        assert_allclose(targets, (y - y.mean()) / y.std())
        assert_allclose(model.likelihood_.bounds, ends)
        # Exactly.
        assert np.min(targets) == model.likelihood_.bounds[0] or likelihood.low is None
    else:
        assert_array_equal(targets, y)
    assert np.isfinite(model.log_score(X, y))
    mean, std = model.predict(ROWS, return_std=True)
    draws = model.sample_y(ROWS, 4000)
    assert_allclose(draws.mean(axis=1), mean, atol=5.0 * std.max() / np.sqrt(4000))
    assert_allclose(draws.std(axis=1), std, rtol=0.3)
    ends = model.predict_quantiles(ROWS, [0.05, 0.95])
    bounds = np.array(getattr(model.likelihood_, "bounds", (0.0, np.inf)))
    low, high = model.mixture_.heaviest.units.inverse_transform(bounds)
    assert np.all((low <= ends) & (ends <= high))
    assert_array_equal(saved(model, tmp_path).predict(ROWS), mean)


CUT = np.clip(SHIFTED, -0.8, 0.9)
LIMITS = np.column_stack([CUT, np.sign(CUT - SHIFTED) * -1.0])
FAMILIES: dict[str, tuple[Any, AnyNDArray]] = {
    "Gaussian": (lambda s, b: gpflow.likelihoods.Gaussian(0.1), SHIFTED),
    "StudentT": (lambda s, b: gpflow.likelihoods.StudentT(), SHIFTED),
    "Tobit": (lambda s, b: Tobit(-0.8 * s + b, 0.9 * s + b, variance=0.1), CUT),
    "limits of rows": (lambda s, b: "tobit", LIMITS),
}


@pytest.mark.near_copies("Gaussian", "Tobit")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_shift_and_a_scale_of_y_change_predictions_likewise(name: str) -> None:
    """Where y has a density this is divided by the scale; a probability at a bound is
    not.
    """
    create, y = FAMILIES[name]
    scale = 40.0
    shift = 300.0
    moved_y = (
        np.column_stack([y]) * [scale, 1.0][: np.ndim(y)] + [shift, 0.0][: np.ndim(y)]
    )
    moved_y = moved_y.reshape(y.shape)
    plain = fit(create(1.0, 0.0), y)
    moved = fit(create(scale, shift), moved_y)
    for predict in ("predict", "predict_f"):
        mean, std = getattr(plain, predict)(ROWS, return_std=True)
        expected = scale * mean + shift, scale * std
        assert_allclose(
            getattr(moved, predict)(ROWS, return_std=True), expected, rtol=1e-7
        )
    inside = (y if y.ndim == 1 else y[:, 0]) == SHIFTED
    assert name in ("Gaussian", "StudentT") or 0 < inside.sum() < 40
    densities = plain.log_densities(X, y) - np.where(inside, np.log(scale), 0.0)
    assert_allclose(moved.log_densities(X, moved_y), densities, rtol=1e-6, atol=1e-6)
    assert_allclose(moved.score(X, moved_y), plain.score(X, y))


@pytest.mark.slow
def test_equal_limits_of_rows_are_a_bound() -> None:
    y = np.maximum(SHIFTED, -0.3)
    bound = fit(Tobit(low=-0.3, variance=0.1), y)
    rows = fit("tobit", np.column_stack([y, np.where(y == -0.3, -1.0, 0.0)]))
    expected = bound.predict_f(ROWS, return_std=True)
    assert_allclose(rows.predict_f(ROWS, return_std=True), expected, rtol=1e-7)
    # No limits are predicted.
    assert_allclose(rows.predict(ROWS), bound.predict_f(ROWS))
    with pytest.raises(
        ValueError, match="Y: got 1 column, expected 2 for the likelihood Tobit"
    ):
        fit("tobit", y)
    for score in (rows.score, rows.log_score, rows.log_densities):
        for targets in (y, y[:, None]):
            with pytest.raises(
                ValueError, match=r"y: got 1 column, expected 2 columns, .*for Tobit"
            ):
                score(X, targets)


def test_bounds_of_columns_are_in_their_units() -> None:
    likelihood = PerOutput([Tobit(-0.8, variance=0.1), Tobit(-73.0, variance=0.1)])
    model = fit(likelihood, np.column_stack([CUT, 100.0 * CUT + 7.0]), num_latent=2)
    lows = [part.low for part in model.likelihood_.likelihoods]
    assert_array_equal(lows, np.min(model.model_.data[1], axis=0))


class OfTheExponential(gpflow.likelihoods.ScalarLikelihood):  # type: ignore[misc]
    """Gaussian noise of exp(f): any number has a density, and none may be
    taken from y.
    """

    def _scalar_log_prob(
        self, X: TensorType, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return gpflow.logdensities.gaussian(Y, tf.exp(F), 0.1 * tf.ones_like(F))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return 0.1 * tf.ones_like(F)


@pytest.mark.slow
def test_of_other_likelihoods_no_level_is_taken_away() -> None:
    assert_array_equal(fit(OfTheExponential(), SHIFTED).model_.data[1][:, 0], SHIFTED)


def test_noise_that_is_not_trained_is_in_units_of_y() -> None:
    lik = gpflow.likelihoods
    for likelihood, expected in (
        (lik.Gaussian(variance=25.0), 25.0),
        (lik.Gaussian(scale=5.0), 25.0),
        (lik.StudentT(scale=5.0, df=4.0), 50.0),
        (lik.Gaussian(variance=2e-6), None),
        (lik.Gaussian(variance=gpflow.functions.Constant(1.0)), None),
    ):
        gpflow.set_trainable(likelihood, False)
        if expected is None:
            with pytest.raises(
                ValueError, match="likelihood: got a variance that is not trained"
            ):
                fit(likelihood, 40.0 * LOG_Y)
            continue
        model = fit(likelihood, 40.0 * LOG_Y)
        std, of_f = (
            each(ROWS, return_std=True)[1] for each in (model.predict, model.predict_f)
        )
        assert_allclose(std**2 - of_f**2, expected, rtol=1e-6)


def test_bounds_are_warped_with_targets() -> None:
    tobit: Any = likelihood_in(WARP, Tobit(-1.0, 2.5))
    assert_array_equal([tobit.low, tobit.high], WARP.transform(np.array([-1.0, 2.5])))
    turned = likelihood_in(WARP._replace(scale=1.0, offset=0.0), Tobit(-1.0, 2.5))
    assert turned.low != -1.0


def test_each_output_has_its_warp(tmp_path: Path) -> None:
    t = np.column_stack([SHIFTED, np.sin(X[:, 0])])
    by_hand = fit("gaussian", t, standardize=False)
    model = copy.deepcopy(by_hand)
    units = Units.of_columns(np.array([2.0, 0.5]), np.array([1.0, -3.0]))
    model.mixture_.heaviest.units = units = units._replace(
        skew=np.array([0.4, 0.0]), tails=np.array([-0.3, 0.2])
    )
    each = [
        Units(*(value[p] if np.ndim(value) else value for value in units))
        for p in (0, 1)
    ]
    y = units.inverse_transform(t)
    quantiles, of_t = (
        part.predict_quantiles(ROWS, [0.1, 0.5]) for part in (model, by_hand)
    )
    slopes = model.log_densities(X, y) - by_hand.log_densities(X, t)
    draws, of_draws = (part.sample_y(ROWS, 3) for part in (model, by_hand))
    means, stds = by_hand.predict(ROWS, return_std=True)
    expected = model.predict(ROWS, return_std=True)
    for p, one in enumerate(each):
        assert_allclose(quantiles[:, p], one.inverse_transform(of_t[:, p]), rtol=1e-9)
        assert_allclose(slopes[:, p], one.log_slope(y[:, p]), rtol=1e-9, atol=1e-12)
        assert_allclose(draws[:, p], one.inverse_transform(of_draws[:, p]), rtol=1e-12)
        mean, variance = one.moments(means[:, p], stds[:, p] ** 2)
        assert_allclose(
            (expected[0][:, p], expected[1][:, p] ** 2), (mean, variance), rtol=1e-9
        )
    assert_allclose(
        saved(model, tmp_path).predict(ROWS, return_std=True), expected, rtol=1e-12
    )
