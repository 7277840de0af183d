"""Which way to model several columns of y is chosen, and what it predicts."""

import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases.forms import saved
from gpflow.base import AnyNDArray
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep.distributions import Predictive
from gpflow_pep.estimators import PEPRegressor, SeparateRegressors, export_numpy
from gpflow_pep.estimators.recipe import columns
from gpflow_pep.estimators.recipe.columns import (
    GAIN_OF_MIXTURE,
    JOINT,
    SEPARATE,
    SHARE,
    SHARED,
    Ways,
    are_mixtures,
    choose,
    common_means,
)
from gpflow_pep.estimators.recipe.mixture import ColumnMixture, Mixture
from gpflow_pep.estimators.recipe.regression import COMPONENTS, FULL, ROUGH
from gpflow_pep.estimators.rows_held import RowsHeld
from gpflow_pep.estimators.single.settings import ModelSettings

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (28, 1))
Y = np.hstack([np.sin(2.0 * X), 1e3 - 40.0 * np.sin(2.0 * X)])
Y += [0.1, 4.0] * RNG.standard_normal((28, 2))
Y[:4, 1] = np.nan
NEW = np.linspace(-2.0, 2.0, 6)[:, None]
SMALL: dict[str, Any] = {
    "num_inducing": 5,
    "alpha": 0.5,
    "max_iterations": 3,
    "random_state": 0,
}
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")


def densities(*levels: float, noise: float = 0.5) -> AnyNDArray:
    """Log densities of 100 rows with a mean for each column; some were not observed."""
    values = noise * np.tile([1.0, -1.0], 50)[:, None] + np.array(levels)
    values[:10, 0] = np.nan
    return values


@pytest.mark.parametrize(
    "separate, joint, expected",
    [
        ((0.0, 0.0), (-0.5, -0.5), [SEPARATE, SEPARATE]),
        ((0.0, 0.0), (0.5, 0.5), [JOINT, JOINT]),
        ((0.0, 0.0), (-0.5, 0.2), [SEPARATE, JOINT]),
        ((np.nan, 0.5), (-0.5, 0.2), [JOINT, SEPARATE]),  # the time was over
        ((np.nan, np.nan), (-2.0, -2.0), [SHARED, SHARED]),
    ],
)
def test_the_best_way_on_rows_left_out_is_chosen(
    separate: tuple[float, ...], joint: tuple[float, ...], expected: list[str]
) -> None:
    by_way = {SHARED: densities(-1.0, -1.0), SEPARATE: densities(*separate)}
    by_way[JOINT] = densities(*joint)
    assert choose(by_way) == expected


def test_a_way_without_time_has_no_mean() -> None:
    by_way = {SHARED: densities(-1.0, -1.0), SEPARATE: densities(np.nan, np.nan)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert common_means(by_way) == {SHARED: pytest.approx(-1.0)}


def test_a_column_leaves_the_best_way_by_a_standard_error_only() -> None:
    rows = np.random.default_rng(0).standard_normal((100, 1))
    rows = (rows - rows.mean()) / rows.std(ddof=1)  # a standard error of 0.1
    for gain, way in ((0.09, SEPARATE), (0.11, JOINT)):
        by_way = {
            SEPARATE: np.zeros((100, 2)),
            JOINT: np.hstack([rows + gain, np.full((100, 1), -1.0)]),
        }
        assert choose(by_way) == [way, SEPARATE]


@pytest.fixture(scope="module")
def parts() -> tuple[PEPRegressor, PEPRegressor]:
    """A model of the second column alone, and one of both."""
    there = ~np.isnan(Y[:, 1])
    alone = PEPRegressor(**SMALL).fit(X[there], Y[there, 1])
    return alone, PEPRegressor(**SMALL).fit(X, Y)


def chosen(
    parts: tuple[PEPRegressor, PEPRegressor], known_places: tuple[int, int]
) -> PEPRegressor:
    """An estimator whose first column is predicted by the joint model."""
    mixtures = [part.mixture_ for part in parts]
    return of_columns(mixtures, ("Two ways.",), (1, 0), known_places)


def of_columns(mixtures: Any, *values: Any) -> PEPRegressor:
    whole = PEPRegressor()
    whole.n_outputs_ = 2
    whole.n_features_in_ = 1
    whole.target_names_ = None
    whole.mixture_ = ColumnMixture(tuple(mixtures), *values)
    whole.rows_held_ = RowsHeld(28, 28, 28)
    return whole


def test_each_column_is_predicted_by_its_component(
    parts: tuple[PEPRegressor, PEPRegressor], tmp_path: Path
) -> None:
    alone, joint = parts
    whole = chosen(parts, (1, 1))
    for model in (whole, saved(whole, tmp_path)):
        for method, arguments in (
            ("predict", ()),
            ("predict_f", ()),
            ("predict_quantiles", ()),
            ("predict_interval", (0.8,)),
        ):
            found = getattr(model, method)(NEW, *arguments)
            assert_allclose(
                found[:, 0], getattr(joint, method)(NEW, *arguments)[:, 0], rtol=1e-9
            )
            assert_allclose(
                found[:, 1], getattr(alone, method)(NEW, *arguments), rtol=1e-9
            )
        sd = model.predict(NEW, return_std=True)[1]
        assert_allclose(sd[:, 1], alone.predict(NEW, return_std=True)[1], rtol=1e-9)
        found = model.log_densities(X, Y)
        assert_allclose(found[:, 0], joint.log_densities(X, Y)[:, 0], rtol=1e-9)
        there = ~np.isnan(Y[:, 1])
        assert_array_equal(np.isnan(found[:, 1]), ~there)
        expected = alone.log_densities(X[there], Y[there, 1])
        assert_allclose(found[there, 1], expected, rtol=1e-9)
        known = np.column_stack([np.full(6, np.nan), np.full(6, 1010.0)])
        expected = joint.predict(NEW, known=known)
        assert_allclose(model.predict(NEW, known=known), expected, rtol=1e-9)
        assert model.summary() == "Two ways." and model.mixes_outputs_
        assert not model.far_rows(X).any() and model.far_rows(X + 50.0).all()
    draws = whole.sample_y(NEW, 4000)
    mean, sd = whole.predict(NEW, return_std=True)
    assert draws.shape == (6, 2, 4000)
    assert_allclose(draws.mean(axis=-1), mean, atol=0.1 * sd.max(axis=0).max())
    assert_allclose(draws.std(axis=-1), sd, rtol=0.1)
    with pytest.raises(ValueError, match="several columns"):
        export_numpy(tmp_path / "scorer", whole)


def test_known_targets_that_help_nothing(
    parts: tuple[PEPRegressor, PEPRegressor],
) -> None:
    whole = chosen(parts, (1, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        known = np.column_stack([np.full(6, np.nan), np.full(6, 1010.0)])
        found = whole.predict(NEW, known=known)
    assert_array_equal(found[:, 1], parts[0].predict(NEW))
    alone = of_columns([parts[0].mixture_], (), (0, 0), (0, 0))
    assert not alone.mixes_outputs_
    with pytest.warns(UserWarning, match="known: the predictions do not depend on it"):
        found = alone.predict(NEW, known=known)
    assert_array_equal(found, alone.predict(NEW))


@pytest.mark.slow
def test_columns_that_have_nothing_in_common_are_modelled_separately() -> None:
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-1.0, 1.0, (60, 2)), axis=0)
    rng.shuffle(x)
    y = np.column_stack([np.sin(9.0 * x[:, 0]), np.exp(1.5 * x[:, 1])])
    y += [0.3, 0.02] * rng.standard_normal(y.shape)
    y[:7, 1] = np.nan
    regressor = PEPRegressor(max_iterations=8)
    whole = regressor.fit(x, y)
    assert "Chosen: separate, for all columns." in whole.summary()
    expected = SeparateRegressors(PEPRegressor(max_iterations=8)).fit(x, y)
    assert_allclose(whole.predict(x), expected.predict(x), rtol=1e-9)
    # Columns of another layout in memory are summed in another order, by 1e-16, which
    # eight steps and a division by a small variance enlarge, by processor, to 2e-9.
    assert_allclose(whole.log_densities(x, y), expected.log_densities(x, y), rtol=1e-7)


def predicting(means: Any, variance: Any, **settings: Any) -> Any:
    """A single model that predicts its left-out rows so."""
    means = np.asarray(means, dtype=float)[None]
    predictive = Predictive(means, variance + np.zeros(means.shape), np.ones(1))
    noise = SimpleNamespace(variance=SimpleNamespace(numpy=lambda: 0.01))
    return SimpleNamespace(
        left_out=lambda copies: (slice(None), predictive),
        likelihood=noise,
        settings=replace(FULL, **settings),
    )


@pytest.mark.parametrize(
    "rank, spread, expected",
    [
        (4, 0.0, True),
        (7, 0.0, False),
        (4, 0.3, True),  # errors as large as the model states
        (7, 0.3, False),
    ],
)
def test_a_joint_model_is_tried_if_so_few_functions_suffice(
    rank: int, spread: float, expected: bool
) -> None:
    rng = np.random.default_rng(0)
    means = rng.standard_normal((60, rank)) @ rng.standard_normal((rank, 12))
    means += spread * rng.standard_normal(means.shape)
    single = predicting(means, 0.01 + spread**2)
    mixture: Any = SimpleNamespace(heaviest=single)
    assert are_mixtures(mixture, np.zeros((60, 1)), means) == expected


@pytest.mark.parametrize("loss", [0.5, 2.0])
def test_further_columns_get_the_component_that_is_as_good_as_the_mixture(
    loss: float,
) -> None:
    """The best component is worse than the mixture by a share of what is allowed."""
    rng = np.random.default_rng(0)
    y = rng.standard_normal((40, 5))
    y[:3, 1] = np.nan
    ways = Ways(ModelSettings(), rng.standard_normal((40, 1)), y)
    ways.fitted[SEPARATE] = [None] * 5
    for p in (0, 1, 4):
        there = y[~np.isnan(y[:, p]), p]
        variance = np.exp(2.0 * loss * GAIN_OF_MIXTURE)  # of the mixture it is 1
        parts = (
            predicting(there, variance),
            predicting(there, 10.0, kernel="rbf"),
            predicting(there, 20.0, kernel="matern52"),
        )
        mixture = SimpleNamespace(
            components=parts,
            left_out=predicting(there, 1.0).left_out,
        )
        ways.fitted[SEPARATE][p] = mixture
    ways.keep_best_component()
    expected = (FULL,) if loss < 1.0 else COMPONENTS
    assert tuple(ways.components) == tuple(expected)


def test_seconds_are_shared_by_what_is_left_and_what_columns_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trainings take 3 s here, whatever they are given."""
    now = 0.0
    given = []

    def train(settings: ModelSettings, X: Any, Y: Any, **_: Any) -> Any:
        nonlocal now
        given.append(settings.max_seconds)
        now += 3.0
        return SimpleNamespace(left_out=lambda copies: None)

    monkeypatch.setattr(columns, "fit_mixture", train)
    monkeypatch.setattr(columns, "fit_forecast", train)
    monkeypatch.setattr("time.perf_counter", lambda: now)
    rng = np.random.default_rng(0)
    y = rng.standard_normal((8, 10))
    ways = Ways(ModelSettings(max_seconds=30.0), rng.standard_normal((8, 1)), y)
    ways.add(SHARED, ways.train_together(SHARE * ways.budget.left, 0))
    ways.train_separately([0, 9], SHARE)
    assert_allclose(given, [15.0, 0.5 * 27.0 / 10.0, 3.0])
    ways.train_separately(range(10))
    assert_allclose(given[3:], [3.0] * 7)  # and then 30 s have passed
    assert [each is not None for each in ways.fitted[SEPARATE]] == (
        [True] * 8 + [False, True]
    )


def test_one_component_is_trained_as_it_is_beside_others() -> None:
    x = np.linspace(-2.0, 2.0, 30)[:, None]
    y = np.sin(3.0 * x) + 0.1 * np.random.default_rng(0).standard_normal((30, 1))
    settings = ModelSettings()
    whole = columns.fit_mixture(settings, x, y)
    for each in whole.components[::2]:
        alone = columns.fit_mixture(settings, x, y, components=(each.settings,))
        assert len(alone.components) == 1 and isinstance(alone, Mixture)
        found = alone.heaviest.settings
        assert found.is_like(each.settings)
        assert found.max_iterations == each.settings.max_iterations
    assert whole.components[0].settings.is_like(FULL)
    assert whole.components[2].settings.is_like(ROUGH)
