"""An input that goes on beyond the rows: ``PEPRegressor(time=...)``."""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from gpflow_pep.compare import Settings
from gpflow_pep.compare.partition import clean_for
from gpflow_pep.compare.trials import Trial, Trials
from gpflow_pep.estimators import (
    PEPRegressor,
    export_numpy,
    load_estimator,
    save_estimator,
)
from gpflow_pep.estimators.recipe.forecasts import latest_rows
from gpflow_pep.estimators.single.exact import (
    SLOPE,
    SMOOTH,
    Hyperparameters,
    _factors,
    evidence,
)
from gpflow_pep.estimators.single.inputs import fit_yeo_johnson
from gpflow_pep.scoring import load_scorer


def level(years: int) -> pd.DataFrame:
    """A monthly level with a trend that is not straight, a season and noise of .15."""
    k = np.arange(12 * years)
    u = k / 12.0
    noise = 0.15 * np.random.default_rng(0).standard_normal(len(k))
    y = 315 + 0.8 * u + 0.013 * u**2 + 3 * np.sin(2 * np.pi * u) + noise
    return pd.DataFrame({"month": k % 12 + 1.0, "year": 1960 + u, "y": y})


@pytest.fixture(scope="module")
def forecast() -> tuple[PEPRegressor, pd.DataFrame, pd.DataFrame]:
    table = level(20)
    past = table[:180]
    later = table[180:]
    model = PEPRegressor(time="year", random_state=0)
    return model.fit(past[["month", "year"]], past["y"]), past, later


def test_a_level_with_trend_and_season_goes_on(forecast: Any) -> None:
    """Without ``time`` the RMSE is .49: the trend ends where the rows end."""
    model, _, later = forecast
    X = later[["month", "year"]]
    y = later["y"]
    mean, sd = model.predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.3
    assert np.mean(np.abs(mean - y) < 1.645 * sd) > 0.8
    assert model.log_score(X, y) > 0.0


def test_a_recalibration_by_the_latest_rows_does_not_narrow(forecast: Any) -> None:
    """The spread that fits them is .92, and errors grow beyond them."""
    assert forecast[0].recalibration_.spread >= 1.0 - 1e-9


def test_the_rows_that_judge_are_left_out() -> None:
    """The latest eight rows have ten times the noise of the others; models that had
    trained on them would be 1.7 times too narrow there, and not 11 times.
    """
    noise = np.random.default_rng(0).standard_normal(40)
    noise[:32] *= 0.1
    model = PEPRegressor(time=0, random_state=0).fit(np.arange(40.0)[:, None], noise)
    assert model.recalibration_.scale > 5.0


def test_the_time_is_not_bent_and_has_a_line_in_each_component(forecast: Any) -> None:
    model, past, _ = forecast
    assert len(model.components_) == 3
    for part in model.components_:
        *_, line = part.model.kernel.kernels
        assert type(line) is gpflow.kernels.Linear and line.active_dims == [1]
        assert_allclose(line.variance, SLOPE)
        assert not line.variance.trainable
        years = part.scaler.transform(past[["month", "year"]].to_numpy())[:, 1]
        assert_allclose(np.diff(years), np.diff(years)[0])
        assert len(part.model.data[0]) == 180  # the latest rows are given back
    assert "all rows but the latest 36, which decide" in model.summary()


def test_saved_and_exported(forecast: Any, tmp_path: Path) -> None:
    model, _, later = forecast
    X = later[["month", "year"]]
    expected = model.predict(X, return_std=True)
    save_estimator(tmp_path / "model", model)
    loaded = load_estimator(tmp_path / "model")
    assert loaded.time == "year"
    export_numpy(tmp_path / "scorer", model)
    scorer = load_scorer(tmp_path / "scorer")
    for found in (loaded, scorer):
        assert_allclose(found.predict(X, return_std=True), expected, rtol=1e-6)


@pytest.mark.parametrize("kernel", ["additive", "matern52", "rbf"])
def test_the_evidence_with_a_line(kernel: str) -> None:
    """Against SciPy's density, and finite differences."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    y = rng.normal(size=12)
    vector = np.r_[0.2, -0.1, 0.3, -1.0, 0.0, 0.0, 0.0, 0.0, -0.5, -0.7]
    if kernel != "additive":
        vector[-2:] = -np.inf
    factors = _factors(X, kernel == "additive", 1)
    theta = Hyperparameters.of_vector(vector)
    value, gradient = evidence(theta, X, y, kernel, factors)
    kinds = {"rbf": gpflow.kernels.RBF}
    scaled = kinds.get(kernel, gpflow.kernels.Matern52)(
        np.exp(0.3), np.exp([0.2, -0.1])
    )
    K = scaled(X).numpy() + SLOPE * np.outer(X[:, 1], X[:, 1])
    if kernel == "additive":
        for d, v in enumerate(np.exp([-0.5, -0.7])):
            K += v * np.exp(-0.5 * ((X[:, [d]] - X[:, d]) / SMOOTH) ** 2)
    K += np.exp(-1.0) * np.eye(12)
    assert_allclose(value, multivariate_normal(np.zeros(12), K).logpdf(y), rtol=1e-7)
    for place in np.flatnonzero(np.isfinite(vector)):
        step = np.zeros(10)
        step[place] = 1e-5
        ends = [
            evidence(Hyperparameters.of_vector(vector + s), X, y, kernel, factors)[0]
            for s in (step, -step)
        ]
        assert_allclose(gradient[place], (ends[0] - ends[1]) / 2e-5, atol=1e-5)


def test_the_column_that_stays_straight() -> None:
    X = np.exp(np.random.default_rng(0).normal(size=(100, 2)))
    bent = fit_yeo_johnson(X, straight=0).transform(X)
    expected = (X[:, 0] - X[:, 0].mean()) / X[:, 0].std()
    assert_allclose(bent[:, 0], np.minimum(expected, 8.0))
    assert_array_equal(bent[:, 1], fit_yeo_johnson(X).transform(X)[:, 1])


def test_the_latest_rows_share_no_time_with_others() -> None:
    times = np.repeat([1.0, 2.0, 3.0, 4.0], [10, 10, 10, 3])
    for order in (np.arange(33), np.random.default_rng(0).permutation(33)):
        assert_array_equal(latest_rows(times[order]), times[order] >= 3.0)
    assert latest_rows(np.r_[np.ones(30), 2.0, 2.0]).sum() == 2
    assert latest_rows(np.ones(9)).sum() == 0


@pytest.mark.parametrize(
    "time, message",
    [
        ("day", "time: got 'day', expected one of the columns .'a', 'b'."),
        (2, "time: got 2, expected a name, or a position from 0 to 1"),
        (True, "time: got True, expected a name, or a position"),
        (0.0, "time: got 0.0, expected a name, or a position"),
    ],
)
def test_refused(time: Any, message: str) -> None:
    X = pd.DataFrame({"a": np.arange(9.0), "b": np.arange(9.0) ** 2})
    with pytest.raises(ValueError, match=message):
        PEPRegressor(time=time).fit(X, X["a"])
    with pytest.raises(ValueError, match="time: got 'a', expected a position"):
        PEPRegressor(time="a").fit(X.to_numpy(), X["a"])


def test_few_rows_and_one_time() -> None:
    x = np.linspace(0.0, 1.0, 9)
    for X in (x[:, None], np.column_stack([np.ones(9), x])):
        model = PEPRegressor(time=np.int64(0), random_state=0).fit(X, x)
        assert np.isfinite(model.predict(X, return_std=True)).all()


def test_one_model_by_name_has_the_line_too() -> None:
    table = level(8)
    X = table[["month", "year"]].to_numpy()
    model = PEPRegressor("rbf", alpha=0.5, num_inducing=20, time=-1, random_state=0)
    model.set_params(max_iterations=20).fit(X, table["y"])
    assert type(model.kernel_.kernels[-1]) is gpflow.kernels.Linear


@pytest.mark.near_copies("targets0")
@pytest.mark.parametrize("targets", [["y"], ["y", "z"]])
def test_the_command_passes_the_place_of_the_column(targets: list[str]) -> None:
    """After the columns that the word becomes."""
    table = level(4).assign(word=["a", "b", "c"] * 16, z=np.arange(48.0) % 7)
    table = table[["word", "year", "y", "z"]]
    settings = Settings(alphas=(0.5,), time_column="year", max_iterations=2)
    target: Any = targets if len(targets) > 1 else targets[0]
    data = clean_for(table[["word", "year", *targets]], target, settings)
    trials = Trials(data, settings)
    outcome = trials.run(Trial("default", 1), 30.0)
    assert outcome.pipeline is not None, outcome.fit.message
    assert outcome.pipeline[-1].time == 3
    single = trials.run(Trial("alpha 0.5", 1), 10.0).pipeline[-1]
    assert single.time is None


@pytest.mark.slow
def test_the_level_of_sixty_years() -> None:
    """B2: the default had an RMSE of 8.9 and an exact GP .9."""
    table = level(60)
    past = table[:540]
    later = table[540:]
    columns = ["month", "year"]
    model = PEPRegressor(time="year", random_state=0).fit(past[columns], past["y"])
    error = model.predict(later[columns]) - later["y"]
    assert np.sqrt(np.mean(error**2)) < 0.9
