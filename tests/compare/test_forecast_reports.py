"""A forecast as it is used: series, values of the past as baselines, relative errors,
pictures over time, and draws of a total.
"""

from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.dummy import DummyRegressor

from gpflow_pep.compare import Comparison, Settings, compare, figures
from gpflow_pep.compare.findings import _quality as quality
from gpflow_pep.compare.forecasts import (
    SHADES,
    Forecast,
    draw_forecast,
    latest_forecasts,
)
from gpflow_pep.compare.losses import RELATIVE
from gpflow_pep.compare.page import page
from gpflow_pep.compare.partition import clean_for
from gpflow_pep.compare.scores import difference_over_rows, scores
from gpflow_pep.compare.series import (
    LAST_VALUE,
    SAME_SEASON,
    PastValue,
    RowsInTime,
    rows_in_time,
    season_of,
    series_of,
    spacing,
)
from gpflow_pep.compare.terminal import legend
from gpflow_pep.estimators import DrawingPipeline, load_estimator, save_estimator
from gpflow_pep.tables.cleaning import Cleaned
from gpflow_pep.tables.encodings import CYCLES

SHOPS = ["north", "south", "west"]
KINDS = ["old", "new"]


def sales(num_shops: int = 3, num_months: int = 30) -> pd.DataFrame:
    """Sales of shops in months from January 2023, the last shop the largest."""
    rng = np.random.default_rng(0)
    months = pd.date_range("2023-01-01", periods=num_months, freq="MS")
    table = pd.DataFrame(
        [(m, shop) for m in months for shop in range(num_shops)], columns=["m", "shop"]
    )
    season = 1.0 + 0.3 * np.sin(2.0 * np.pi * table["m"].dt.month / 12.0)
    noise = 1.0 + 0.05 * rng.standard_normal(len(table))
    table["sold"] = np.round(100.0 * (1.0 + table["shop"]) * season * noise, 2)
    table["price"] = np.round(rng.uniform(8.0, 9.0, len(table)), 2)
    table["shop"] = [SHOPS[shop] for shop in table["shop"]]
    return table.rename(columns={"m": "month"}).sample(frac=1.0, random_state=0)


def cleaned(table: pd.DataFrame, target: str = "sold", time: str = "month") -> Cleaned:
    return clean_for(table, target, Settings(time_column=time, splits=1))


def with_columns() -> pd.DataFrame:
    """Twelve times, each of three shops and two kinds."""
    keys = [(t, s, k) for t in range(12) for s in SHOPS for k in KINDS]
    table = pd.DataFrame(keys, columns=["month", "shop", "kind"])
    rng = np.random.default_rng(0)
    return table.assign(
        sold=rng.uniform(1.0, 2.0, len(table)),
        sky=rng.choice(["sun", "rain"], len(table)),
        order=[f"order {n}" for n in range(len(table))],
        store_nr=table["shop"].map({s: 101 + n for n, s in enumerate(SHOPS)}),
    )


@pytest.mark.parametrize(
    "query, columns, expected",
    [
        ("shop == 'west' and kind == 'old'", ["sky"], None),
        ("kind == 'old'", ["sky", "shop"], {*SHOPS}),
        ("kind == 'old'", ["sky", "order", "store_nr"], {"101", "102", "103"}),
        (
            "kind == kind",
            ["shop", "kind"],
            {f"{shop}, {kind}" for shop in SHOPS for kind in KINDS},
        ),
    ],
)
def test_words_name_series_if_rows_repeat_times(
    query: str, columns: list[str], expected: set[str] | None
) -> None:
    table = with_columns().query(query)[["month", "sold", *columns]]
    series = series_of(cleaned(table.assign(month=2000 + table["month"])))
    assert (series if series is None else {*series}) == expected


@pytest.mark.parametrize(
    "times, season",
    [
        (pd.date_range("2023-01-01", periods=24, freq="MS"), "year"),
        (pd.date_range("2023-01-01", periods=23, freq="MS"), None),
        (pd.date_range("2023-01-01", periods=12, freq="QS"), "year"),
        (pd.date_range("2023-01-01", periods=120, freq="W"), "year"),
        (pd.date_range("2023-01-01", periods=800, freq="D"), "week"),
        (pd.bdate_range("2023-01-01", periods=20), "week"),
        (pd.date_range("2023-01-01", periods=13, freq="D"), None),
        (pd.date_range("2023-01-01", periods=48, freq="h"), "day"),
        (np.arange(100.0), None),
    ],
)
def test_the_season_is_found_in_the_dates(times: Any, season: str | None) -> None:
    assert season_of(pd.Series(times)) == season


def test_values_of_the_past_by_the_calendar() -> None:
    """Against a search by hand; two rows of one month are one value."""
    table = pd.concat([sales(), sales().query("shop == 'west'").iloc[:1]])
    table.iloc[-1, table.columns.get_loc("sold")] += 50.0
    data = cleaned(table)
    X = RowsInTime(rows_in_time(data)).transform(data.X)
    months = data.blocks.to_numpy()
    shops = data.X["shop"].to_numpy()
    first = np.datetime64("2024-03-01")
    known = pd.Series(data.y.to_numpy()).groupby([shops, months]).mean()
    train = months < first

    def last_value(shop: str, month: Any) -> float:
        return known[shop, pd.Timestamp("2024-02-01")]

    def same_season(shop: str, month: Any) -> float:
        before = pd.Timestamp(month)
        while before >= first:
            before -= pd.DateOffset(years=1)
        return known[shop, before]

    step = spacing(data.blocks)
    y = data.y.to_numpy()
    for season, expected in ((None, last_value), (CYCLES["year"], same_season)):
        predicted = PastValue(season, step).fit(X[train], y[train]).predict(X[~train])
        rows = zip(shops[~train], months[~train])
        assert_allclose(predicted, [expected(*row) for row in rows])
    model = PastValue(CYCLES["year"], step).fit(X[train], y[train])
    new_shop = np.array([[X[:, 0].max(), 99.0]])
    assert_allclose(model.predict(new_shop), y[train].mean())
    gap = train & (months != np.datetime64("2023-06-01"))
    model = PastValue(CYCLES["year"], step).fit(X[gap], y[gap])
    june = months == np.datetime64("2024-06-01")
    assert_allclose(model.predict(X[june]), [last_value(s, 0) for s in shops[june]])


@cache
def forecast() -> Comparison:
    return compare(
        sales(),
        "sold",
        time_column="month",
        horizon=3,
        splits=1,
        alphas=(0.5,),
        num_inducing=4,
        max_iterations=5,
        details=False,
    )


def test_values_of_the_past_are_scored_as_all_baselines_are() -> None:
    comparison = forecast()
    assert {LAST_VALUE, SAME_SEASON} <= comparison.candidates.keys()
    table = comparison.held_out[LAST_VALUE].query("part == 1")
    y = comparison.data.y
    times = comparison.data.blocks
    series = comparison.data.X["shop"]
    last = y[times == "2025-03-01"].groupby(series).first()
    assert_allclose(table["mean"], series[table.index].map(last))
    trained = sorted(times[times < "2025-04-01"].unique())
    size = len(trained) // 5  # the latest fifth, predicted from the others
    later = times.isin(trained[-size:])
    earlier = y[times == trained[-size - 1]].groupby(series).first()
    errors = y[later] - series[later].map(earlier)
    spread = np.sqrt(np.mean(errors**2))
    assert_allclose(table["sd"], spread)
    density = norm.logpdf(table["true"], table["mean"], spread)
    assert_allclose(table["log_density"], density)
    assert "'same season before' repeats the value of a year before." in legend(
        comparison
    )
    assert comparison.best not in (LAST_VALUE, SAME_SEASON)


def test_relative_errors_of_positive_targets() -> None:
    comparison = forecast()
    names = [metric.name for metric in comparison.metrics]
    assert names == ["nlpd", "rmse", "mae", "mape", "coverage"]
    best = str(comparison.best)
    table = comparison.held_out[best]
    relative = (table["mean"] / table["true"] - 1.0).abs()
    by_part = relative.groupby(table["part"]).mean()
    assert_allclose(comparison.scores_of(best)["mape"], by_part)
    latest = f"(on average {by_part[1]:.1%} of the target), and its 90%"
    assert latest in quality(comparison)
    other = comparison.held_out["mean"]
    change = difference_over_rows(RELATIVE, table, other)
    gap = scores(table)["mape"] - scores(other)["mape"]
    assert_allclose(change.mean, gap)
    shifted = sales().assign(sold=lambda t: t["sold"] - t["sold"].median())
    changed = replace(comparison, data=cleaned(shifted))
    assert RELATIVE not in changed.metrics
    assert RELATIVE not in replace(comparison, settings=Settings()).metrics
    assert np.isnan(scores(table.assign(true=table["true"] - 200.0))["mape"])


def test_the_latest_window_over_time() -> None:
    comparison = forecast()
    largest, *_, smallest = latest_forecasts(comparison)
    assert (largest.name, smallest.name) == ("sold, west", "sold, north")
    months = pd.date_range("2025-04-01", periods=3, freq="MS")
    assert_array_equal(largest.window.index, months)
    assert largest.before.index[-1] == pd.Timestamp("2025-03-01")
    own = sales().query("shop == 'west'").set_index("month")["sold"].sort_index()
    assert_allclose(largest.before, own["2024-04":"2025-03"])
    assert_allclose(largest.window["true"], own["2025-04":])
    held_out = comparison.held_out[str(comparison.best)].query("part == 1")
    ends = ["lower_90", "lower_50", "median", "upper_50", "upper_90"]
    assert (np.diff(held_out[ends], axis=1) > 0.0).all()
    figure = figures.pictures(comparison)["forecast"].figure(figures.WIDTH)
    assert figure.axes[0].get_ylabel() == "sold, west"
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert_allclose(lines["truth"].get_ydata(), own["2025-04":])
    text = page(comparison, {"forecast": [b"PNG"]}, command="", folder=Path())
    caption = "sold, west: the latest window. The median and the central 50% and 90%"
    assert caption in text
    another = figures.pictures(comparison)["forecast_2"].caption
    assert another.endswith(": the latest window, drawn in the same way.")
    assert "<th>lower_50</th>" not in text
    at_random = replace(comparison, settings=Settings())
    assert "forecast" not in figures.pictures(at_random)


@pytest.mark.parametrize("width", [figures.WIDTH, figures.WHOLE])
@pytest.mark.parametrize("freq", ["h", "D", "W", "MS", "QS"])
def test_labels_of_times_do_not_touch(width: float, freq: str) -> None:
    """27 times from February 2023."""
    times = pd.date_range("2023-02-01", periods=27, freq=freq)
    before = pd.Series(np.arange(18.0), times[:18])
    names = [
        "true",
        "median",
        *(f"{e}_{p}" for e in ("lower", "upper") for p in SHADES),
    ]
    window = pd.DataFrame({name: np.arange(9.0) for name in names}, times[18:])
    forecast = Forecast("sold", before, window)
    figure = figures.Picture(partial(draw_forecast, forecast), "", "").figure(width)
    figure.canvas.draw()
    labels = [t for t in figure.axes[0].get_xticklabels() if t.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    boxes = [box for box in boxes if box.x0 >= 0.0]
    gaps = [after.x0 - box.x1 for box, after in pairwise(boxes)]
    assert len(boxes) >= 2 and min(gaps) > 4.0


def test_a_window_of_one_time_has_bands() -> None:
    (first, *_), axes = latest_forecasts(forecast()), figures.plotting.figure(4, 3)
    axes = axes.subplots()
    draw_forecast(first._replace(window=first.window.iloc[:1]), axes)
    heights = [c.get_segments()[0][:, 1] for c in axes.collections]
    expected = first.window.iloc[0]
    assert_allclose(heights[0], [expected["lower_90"], expected["upper_90"]])
    assert_allclose(heights[1], [expected["lower_50"], expected["upper_50"]])


def test_the_total_of_a_period_is_drawn_from_the_saved_model(tmp_path: Any) -> None:
    model = forecast().model
    assert model is not None
    table = sales().drop(columns="sold").iloc[:6]
    draws = model.sample_y(table, n_samples=20, random_state=3)
    assert draws.shape == (6, 20)
    inputs = model[:-1].transform(table)
    assert_array_equal(draws, model[-1].sample_y(inputs, 20, random_state=3))
    save_estimator(tmp_path / "model", model)
    loaded = load_estimator(tmp_path / "model")
    again = loaded.sample_y(table, n_samples=20, random_state=3)
    assert_allclose(again, draws)
    assert not hasattr(DrawingPipeline([("last", DummyRegressor())]), "sample_y")
