"""Regressors of several columns of y, some of whose targets are missing."""

import pickle
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
from cases.forms import saved
from gpflow.base import AnyNDArray
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics import r2_score

from gpflow_pep.estimators import PEPRegressor, export_numpy
from gpflow_pep.estimators.recipe import regression
from gpflow_pep.estimators.separate import SeparateRegressors
from gpflow_pep.likelihoods import PerOutput
from gpflow_pep.training.choosing.ensemble import Ensemble, EnsemblePosterior

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (28, 1))
COMPLETE = np.hstack([np.sin(2.0 * X), 1e3 - 40.0 * np.sin(2.0 * X)])
COMPLETE += [0.1, 4.0] * RNG.standard_normal((28, 2))
Y = COMPLETE.copy()
Y[RNG.random(Y.shape) < 0.3] = np.nan
Y[3] = np.nan
NEW = np.linspace(-2.0, 2.0, 6)[:, None]
SMALL: dict[str, Any] = {
    "num_inducing": 5,
    "alpha": 0.5,
    "max_iterations": 3,
    "random_state": 0,
}
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")


@pytest.fixture(scope="module")
def fitted() -> PEPRegressor:
    return PEPRegressor(**SMALL).fit(X, Y)


def dense_prediction(
    model: PEPRegressor,
    known: AnyNDArray | None,
    at: AnyNDArray = NEW,
    left_out: bool = False,
) -> tuple[AnyNDArray, AnyNDArray]:
    """The exact process of several outputs, in units of the model, by NumPy alone.

    The last latent function is white noise, which the outputs of a row share.
    """
    W = np.asarray(model.kernel_.W)
    scales = [
        float(part.lengthscales.numpy()[0])
        for part in model.kernel_.latent_kernels[:-1]
    ]
    noise = np.array(
        [float(part.variance.numpy()) for part in model.likelihood_.likelihoods]
    )

    def covariance(
        a: AnyNDArray, p: AnyNDArray, b: AnyNDArray, q: AnyNDArray
    ) -> AnyNDArray:
        squares = (a[:, None] - b[None, :]) ** 2
        parts = [np.exp(-0.5 * squares / scale**2) for scale in scales] + [
            squares == 0.0
        ]
        return sum(np.outer(W[p, k], W[q, k]) * part for k, part in enumerate(parts))

    every_row, every_output = np.nonzero(~np.isnan(Y))
    means = np.empty((len(at), 2))
    variances = np.empty((len(at), 2))
    for n, x in enumerate(at[:, 0]):
        kept = np.logical_not(left_out) | (X[every_row, 0] != x)
        rows = every_row[kept]
        outputs = every_output[kept]
        also = (
            np.flatnonzero(~np.isnan(known[n]))
            if known is not None
            else np.empty(0, int)
        )
        places = np.r_[X[rows, 0], np.full(len(also), x)]
        which = np.r_[outputs, also]
        values = np.r_[Y[rows, outputs], [] if known is None else known[n, also]]
        K = covariance(places, which, places, which) + np.diag(noise[which])
        new = np.full(2, x), np.array([0, 1])
        K_new = covariance(*new, places, which)
        # Of an output that is known another reading is predicted, with its own noise.
        K_new[also, len(rows) :] -= np.outer(W[also, -1], W[which[len(rows) :], -1])
        means[n] = K_new @ np.linalg.solve(K, values)
        explained = np.diag(K_new @ np.linalg.solve(K, K_new.T))
        variances[n] = np.diag(covariance(*new, *new)) - explained + noise
    return means, variances


def test_predictions_are_exact_with_inducing_points_at_all_rows(
    no_training: None,
) -> None:
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-9)):
        options: dict[str, Any] = {
            **SMALL,
            "inducing": X,
            "standardize": False,
            "alpha": 1.0,
        }
        model = PEPRegressor("matern12", **options)
        model.set_params(
            kernel=gpflow.kernels.SquaredExponential(lengthscales=[0.6])
        ).fit(X, Y)
        known = np.where([True, False], COMPLETE[: len(NEW)], np.nan)
        known[2] = np.nan
        known[1] = COMPLETE[1]
        for given in (None, known):
            mean, sd = model.predict(NEW, return_std=True, known=given)
            expected_mean, expected_variance = dense_prediction(model, given)
            assert_allclose(mean, expected_mean, rtol=1e-5)
            assert_allclose(sd**2, expected_variance, rtol=1e-5)
        # f is what readings of a row have in common with those of other rows.
        f, sd_of_f = model.predict_f(NEW, return_std=True)
        expected_mean, expected_variance = dense_prediction(model, None)
        W = np.asarray(model.kernel_.W)
        parts = model.likelihood_.likelihoods
        noise = W[:, -1] ** 2 + [float(part.variance.numpy()) for part in parts]
        assert_allclose(f, expected_mean, rtol=1e-5)
        assert_allclose(sd_of_f**2 + noise, expected_variance, rtol=1e-5)
        there = ~np.isnan(Y).all(axis=1)
        expected = dense_prediction(model, None, X[there], left_out=True)
        for found, value in zip(model.model_.loo_moments(), expected, strict=True):
            assert_allclose(found, value, rtol=1e-5)


def table(shared: bool) -> tuple[AnyNDArray, AnyNDArray]:
    """Two functions of x, with noise that they share beside that of each, or
    without.
    """
    random = np.random.default_rng(1)
    x = random.uniform(-3.0, 3.0, (280, 1))
    shared_noise = 0.5 * random.standard_normal((280, 1))
    noise = 0.1 if shared else 0.3
    y = np.hstack([np.sin(2.0 * x), np.cos(3.0 * x)]) + noise * random.standard_normal(
        (280, 2)
    )
    return x, y + shared * shared_noise


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_targets_that_are_known_help_where_noise_is_shared(
    shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shared:  # the steps are limited
        monkeypatch.setattr(regression, "EXACT_BY_SCOUT", 60)
    rows, targets = table(shared)
    some = targets[:80].copy()
    some[:9, 1] = np.nan
    model = PEPRegressor().fit(rows[:80], some)
    assert model.num_inducing_ == 80 and model.mixes_outputs_
    assert "If other columns of the row are known: joint" in model.summary()
    new = rows[80:]
    known = targets[80:].copy()
    known[:, 1] = np.nan
    errors = [targets[80:] - model.predict(new, known=given) for given in (known, None)]
    ratio = np.divide(*(np.linalg.norm(error[:, 1]) for error in errors))
    assert ratio < 0.45 if shared else ratio < 1.03  # 0.27 if the functions were known
    inside = model.predict_interval(new, 0.9)
    held = (inside[..., 0] < targets[80:]) & (targets[80:] < inside[..., 1])
    assert abs(np.mean(held) - 0.9) < 3.0 * np.sqrt(0.9 * 0.1 / 200.0)  # 200 rows
    draws = model.sample_y(new[:2], 4000)
    correlation = [np.corrcoef(row)[0, 1] for row in draws]
    assert np.min(correlation) > 0.8 if shared else np.max(np.abs(correlation)) < 0.4
    expected = model.predict(new, known=known)
    assert_allclose(
        saved(model, tmp_path).predict(new, known=known), expected, rtol=1e-9
    )


@pytest.mark.slow
def test_each_column_is_warped_as_it_needs() -> None:
    rows, targets = table(True)
    targets[:, 0] = np.exp(targets[:, 0])
    some = targets[:80].copy()
    some[:9, 1] = np.nan
    options: dict[str, Any] = {
        "inducing": "rows",
        "kernel": "matern52",
        "max_iterations": 150,
    }
    plain, warped = (
        PEPRegressor(warp=warp, alpha=1.0, **options).fit(rows[:80], some)
        for warp in (False, True)
    )
    skew = warped.mixture_.heaviest.units.skew
    assert skew[0] > 0.3 > abs(skew[1])
    gains = warped.log_densities(rows[80:], targets[80:]).mean(axis=0)
    gains -= plain.log_densities(rows[80:], targets[80:]).mean(axis=0)
    assert gains[0] > 0.2 and gains[1] > -0.05


def test_everything_is_in_original_units(fitted: PEPRegressor) -> None:
    center = np.nanmean(Y, axis=0)
    size = np.nanstd(Y, axis=0)
    there = ~np.isnan(Y).all(axis=1)
    rows = (NEW - X[there].mean(0)) / X[there].std(0)
    mean, variance = (part.numpy() for part in fitted.model_.predict_y(rows))
    got_mean, got_sd = fitted.predict(NEW, return_std=True)
    assert_allclose(got_mean, size * mean + center, rtol=1e-9)
    assert_allclose(got_sd, size * np.sqrt(variance), rtol=1e-9)
    ends = fitted.predict_interval(NEW, 0.8)
    assert ends.shape == (6, 2, 2)
    assert_allclose(ends[..., 1], norm.ppf(0.9, got_mean, got_sd), rtol=1e-9)
    densities = fitted.log_densities(X, Y)
    expected = fitted.predict(X, return_std=True)
    assert_allclose(densities, norm.logpdf(Y, *expected), rtol=1e-8)
    assert fitted.log_score(X, Y) == pytest.approx(np.nanmean(densities))
    known = np.where([False, True], COMPLETE[: len(NEW)], np.nan)
    mean = fitted.model_.predict_f(rows, given=(known - center) / size)[0]
    assert_allclose(fitted.predict(NEW, known=known), size * mean + center, rtol=1e-9)
    quantiles = fitted.predict_quantiles(NEW, [0.5], known=known)
    assert_allclose(quantiles[..., 0], fitted.predict(NEW, known=known), rtol=1e-6)


def test_score_is_the_mean_over_columns(fitted: PEPRegressor) -> None:
    mean = fitted.predict(X)
    parts = [
        r2_score(Y[~np.isnan(y), p], mean[~np.isnan(y), p]) for p, y in enumerate(Y.T)
    ]
    assert fitted.score(X, Y) == pytest.approx(np.mean(parts))
    assert fitted.score(X, COMPLETE) == pytest.approx(r2_score(COMPLETE, mean))
    weights = np.arange(28.0)
    expected = r2_score(COMPLETE, mean, sample_weight=weights)
    assert fitted.score(X, COMPLETE, weights) == pytest.approx(expected)


@pytest.mark.slow
def test_draws_have_the_covariances_of_rows_and_outputs(fitted: PEPRegressor) -> None:
    rows = NEW[2:4]
    draws = fitted.sample_y(rows, 20_000)
    assert draws.shape == (2, 2, 20_000)
    scaled = fitted.input_scaler_.transform(rows)
    size = np.tile(np.nanstd(Y, axis=0), 2)
    _, of_f = fitted.model_.predict_f(scaled, full_cov=True, full_output_cov=True)
    noise = np.tile(
        [float(part.variance.numpy()) for part in fitted.likelihood_.likelihoods], 2
    )
    expected = np.asarray(of_f).reshape(4, 4) + np.diag(noise)
    got = np.cov(draws.reshape(4, -1)) / np.outer(size, size)
    assert_allclose(got, expected, atol=0.06 * np.diag(expected).max())
    apart = fitted.model_.predict_f(scaled)[1]
    # They are correlated.
    assert np.max(np.abs(expected - np.diag(np.ravel(apart) + noise))) > 0.1


def test_densities_of_mixtures_are_mixed_by_entry(
    fitted: PEPRegressor, no_training: None
) -> None:
    other = clone(fitted).fit(X, Y)
    mixture = Ensemble([fitted.model_, other.model_], np.array([0.3, 0.7])).posterior()
    assert isinstance(mixture, EnsemblePosterior)
    scaled = fitted.input_scaler_.transform(X)
    targets = (Y - np.nanmean(Y, axis=0)) / np.nanstd(Y, axis=0)
    parts = mixture.components_of_y(scaled)
    densities = [norm.pdf(targets, mean, np.sqrt(variance)) for mean, variance in parts]
    expected = np.log(0.3 * densities[0] + 0.7 * densities[1])
    found = mixture.predict_log_density_of_entries((scaled, targets))
    assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize(
    "options, model",
    [
        ({}, "PEPRegression"),
        pytest.param({"num_latent": 0}, "PEPRegression", marks=pytest.mark.slow),
        pytest.param({"likelihood": "student_t"}, "PEP", marks=pytest.mark.slow),
    ],
)
def test_forms(
    options: dict[str, Any], model: str, tmp_path: Path, no_training: None
) -> None:
    before = PEPRegressor(**SMALL, **options).fit(X, Y)
    for after in (saved(before, tmp_path), pickle.loads(pickle.dumps(before))):
        assert type(after.model_).__name__ == model and after.n_outputs_ == 2
        assert after.posterior_.takes_missing_targets
        assert_array_equal(after.model_.data[1], before.model_.data[1])
        expected = before.predict(NEW, return_std=True)
        assert_allclose(after.predict(NEW, return_std=True), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="several"):
        export_numpy(tmp_path / "scorer", before)


def test_number_of_latent_functions(no_training: None) -> None:
    five = np.hstack([COMPLETE, COMPLETE**2, X])
    model = PEPRegressor(**SMALL).fit(X, five)
    assert model.kernel_.W.shape == (5, 4) and model.predict(X).shape == five.shape
    model = PEPRegressor(**SMALL, num_latent=1).fit(X, Y)
    assert model.kernel_.W.shape == (2, 1)
    independent = PEPRegressor(**SMALL, num_latent=0).fit(X, COMPLETE)
    assert (
        independent.kernel_.variance.shape == ()
        and independent.predict(X).shape == Y.shape
    )
    for each in (model, independent):
        assert not each.far_rows(X).any() and each.far_rows(X + 50.0).all()
    with pytest.raises(
        ValueError, match="known: got known targets for independent outputs"
    ):
        independent.predict(X, known=Y)
    one = PEPRegressor(**SMALL).fit(X, COMPLETE[:, 0])
    assert one.predict(X).shape == (28,) and one.predict_interval(X).shape == (28, 2)


@pytest.mark.slow
def test_own_mixtures_and_likelihoods_are_copied(no_training: None) -> None:
    kernels = [gpflow.kernels.SquaredExponential(), gpflow.kernels.Matern32()]
    kernel = gpflow.kernels.LinearCoregionalization(
        kernels, W=np.array([[1.0, 0.2], [0.5, 1.0]])
    )
    likelihood = PerOutput(
        [gpflow.likelihoods.Gaussian(0.1), gpflow.likelihoods.Gaussian(0.2)]
    )
    model = PEPRegressor(kernel, likelihood=likelihood, **SMALL).fit(X, Y)
    assert [*map(type, model.kernel_.kernels)] == [*map(type, kernels)]
    assert model.likelihood_ is not likelihood and isinstance(
        model.likelihood_, PerOutput
    )
    assert model.kernel_ is not kernel
    with pytest.raises(
        ValueError, match="num_latent: got 1, expected 2, the number in the kernel"
    ):
        PEPRegressor(kernel, num_latent=1, **SMALL).fit(X, Y)


@pytest.mark.slow
def test_units_of_each_column(no_training: None) -> None:
    counts = np.column_stack([np.round(10.0 + X[:, 0]), 100.0 * X[:, 0]])
    likelihood = PerOutput(
        [gpflow.likelihoods.Poisson(), gpflow.likelihoods.Gaussian(0.1)]
    )
    model = PEPRegressor(likelihood=likelihood, **SMALL).fit(X, counts)
    targets = np.asarray(model.model_.data[1])
    assert_array_equal(targets[:, 0], counts[:, 0])
    assert_allclose([targets[:, 1].mean(), targets[:, 1].std()], [0.0, 1.0], atol=1e-9)
    assert model.predict_quantiles(X[:2]).shape == (2, 2, 3)  # of draws


@pytest.mark.slow
def test_intervals_of_folds() -> None:
    model = PEPRegressor(**SMALL).fit(X, Y)
    ends = model.predict_interval(X, 0.7, calibrate="folds")
    scores = model.mixture_.fold_scores
    there = ~np.isnan(Y[:, 0])
    assert_array_equal(~np.isnan(scores), ~np.isnan(Y[~np.isnan(Y).all(axis=1)]))
    assert (
        np.mean((ends[there, 0, 0] < Y[there, 0]) & (Y[there, 0] < ends[there, 0, 1]))
        > 0.5
    )


@pytest.mark.parametrize(
    "options, targets, message",
    [
        ({"num_latent": 3}, Y, "num_latent: got 3, expected an integer from 1 to 2"),
        ({"num_latent": 2}, Y[:, 0] * 0.0 + 1.0, "y: got no target in 8 rows of 28"),
        (
            {"num_latent": 2},
            COMPLETE[:, 0],
            "num_latent: got 2, expected an integer from 1 to 1",
        ),
        (
            {},
            np.where([True, False], Y, np.nan),
            r"y: got 0 sample\(s\) with a target in column 1",
        ),
        (
            {},
            np.where([True, False] | (X[0] == X), COMPLETE, np.nan),
            r"got 1 sample\(s\) .* 1,",
        ),
        ({}, np.where(np.isnan(Y), np.inf, Y), "infinity"),
        ({}, np.where(np.isnan(Y), 1e200, Y), r"y: got 1e\+200 in row"),
        ({"batch_size": 10}, Y, "batch_size: got 10 with several columns"),
        ({"near_rows": 2}, Y, "near_rows"),
        ({}, Y[:-1], "inconsistent"),
    ],
)
def test_refused(options: dict[str, Any], targets: AnyNDArray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PEPRegressor(**{**SMALL, **options}).fit(X, targets)


def test_refused_by_predictions(fitted: PEPRegressor) -> None:
    with pytest.raises(ValueError, match="return_cov: got True with several columns"):
        fitted.predict(X, return_cov=True)
    with pytest.raises(ValueError, match="known: got 1 column, expected 2"):
        fitted.predict(X, known=Y[:, :1])
    with pytest.raises(ValueError, match="y: got 1 column, expected 2"):
        fitted.score(X, Y[:, :1])


@pytest.mark.near_copies("False")
@pytest.mark.parametrize("separate", [False, True])
def test_columns_of_y_are_matched_by_name(separate: bool, no_training: None) -> None:
    model: Any = PEPRegressor(**SMALL)
    table = pd.DataFrame(COMPLETE, columns=["p", "q"])
    turned = table[["q", "p"]]
    other = table.rename(columns={"q": "r"})
    model = (SeparateRegressors(model) if separate else model).fit(X, table)
    for method in (model.score, model.log_score, model.log_densities):
        assert_array_equal(method(X, turned), method(X, COMPLETE))
        with pytest.raises(
            ValueError, match=r"y: got the columns \['p', 'r'\], expected \['p'"
        ):
            method(X, other)
    if not separate:
        for predict in (model.predict, model.predict_quantiles):
            assert_array_equal(predict(X, known=turned), predict(X, known=COMPLETE))
        with pytest.raises(ValueError, match="known: got the columns"):
            model.predict(X, known=other)
