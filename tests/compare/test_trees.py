"""Boosted trees: words as scikit-learn's trees take them, rows that end training."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import log_loss

from gpflow_pep.compare import Settings, clean
from gpflow_pep.compare.partition import clean_for
from gpflow_pep.compare.trees import TreeColumns, best_stage
from gpflow_pep.compare.trials import Trial, Trials

LEAST: dict[str, Any] = {"alphas": (0.5,), "num_inducing": 3}
N = 240


def shops(seed: int = 0) -> pd.DataFrame:
    """Forty shops in twelve months, whose order no column shows."""
    rng = np.random.default_rng(seed)
    shop = rng.integers(0, 40, N)
    month = pd.date_range("2023-01-01", periods=12, freq="MS")[np.arange(N) // 20]
    table = pd.DataFrame({"month": month, "price": rng.uniform(1.0, 2.0, N)})
    table["shop"] = [f"s{number:02}" for number in shop]
    level = np.random.default_rng(1).normal(size=40)[shop]
    table["sales"] = 5.0 * level + table["price"] + 0.3 * rng.normal(size=N)
    return table


def patients() -> pd.DataFrame:
    """Forty patients, six rows each, with a level of their own."""
    rng = np.random.default_rng(2)
    patient = np.repeat(np.arange(40), 6)
    table = pd.DataFrame({"patient": patient, "age": rng.integers(20, 80, 40)[patient]})
    table["weight"] = rng.normal(size=40)[patient]
    ill = rng.uniform(size=40) < 0.5  # of the patient, as no column shows
    table["outcome"] = np.where(ill[patient] ^ (rng.uniform(size=N) < 0.1), "a", "b")
    return table


def trees_of(table: pd.DataFrame, target: str, **options: Any) -> tuple[Any, Any]:
    settings = Settings(**LEAST, **options)
    trials = Trials(clean_for(table, target, settings), settings)
    return trials, trials.run(Trial("boosted trees", 1), 10.0)


def test_words_are_categories_as_scikit_learn_has_them() -> None:
    """The predictions are those of a table with columns of categories."""
    table = shops()
    table.loc[3, "price"], table.loc[5, "shop"] = np.nan, None
    data = clean(table, "sales")
    columns = TreeColumns(data.formats).fit(data.X[:200])
    X = columns.transform(data.X)
    assert X.shape == (N, 3)
    words = data.X["shop"].astype("category")
    # Gaps, and shops that come later, are missing.
    words = words.cat.set_categories(sorted(data.X["shop"][:200].dropna().unique()))
    numbers = data.X[["month", "price"]].assign(month=X[:, 1])
    native = pd.concat([words, numbers], axis=1)
    options = {"early_stopping": False, "random_state": 0, "max_iter": 20}
    ours = HistGradientBoostingRegressor(categorical_features=[0], **options)
    theirs = HistGradientBoostingRegressor(categorical_features="from_dtype", **options)
    y = data.y.to_numpy()
    expected = theirs.fit(native[:200], y[:200]).predict(native)
    assert_allclose(ours.fit(X[:200], y[:200]).predict(X), expected)


def test_more_words_than_trees_take() -> None:
    table = pd.DataFrame(
        {"w": [f"w{n}" for n in range(300)] * 2, "y": np.arange(600.0)}
    )
    data = clean(table, "y")
    X = TreeColumns(data.formats).fit_transform(data.X)
    assert np.nanmax(X) == 253 and np.isnan(X).sum() == 2 * 46


def test_all_rows_train_as_many_trees_as_predict_held_out_rows_best() -> None:
    trials, outcome = trees_of(shops(), "sales")
    pipeline = outcome.pipeline
    train, _ = trials.parts[0]
    held_out = trials._held_out_in(train)
    assert 0.15 < held_out.mean() < 0.25
    X = pipeline[0].transform(trials.data.X)
    y = trials.data.y.to_numpy()
    options = {"early_stopping": False, "random_state": 0, "categorical_features": [0]}
    copy = HistGradientBoostingRegressor(**options)
    copy.fit(X[train[~held_out]], y[train[~held_out]])
    true = y[train[held_out]]
    losses = [
        np.mean((stage - true) ** 2)
        for stage in copy.staged_predict(X[train[held_out]])
    ]
    number = int(np.argmin(losses)) + 1
    trees = pipeline[-1].regressor_
    assert trees.n_iter_ == number < 100
    assert_allclose(pipeline[-1].std_, np.sqrt(min(losses)))
    again = HistGradientBoostingRegressor(**options, max_iter=number)
    assert_allclose(trees.predict(X), again.fit(X[train], y[train]).predict(X))


@pytest.mark.parametrize("target", ["outcome", "weight"])
def test_whole_groups_end_the_training(target: str) -> None:
    trials, outcome = trees_of(patients(), target, group_column="patient")
    train, _ = trials.parts[0]
    held_out = trials._held_out_in(train)
    groups = trials.data.blocks.iloc[train]
    assert not {*groups[held_out]} & {*groups[~held_out]}
    assert 0.1 < held_out.mean() < 0.3
    if target == "outcome":  # new patients are not known
        assert outcome.pipeline[-1].trees_.n_iter_ < 10
        assert outcome.fit.scores["nlpd"] < 0.75


def test_the_latest_rows_end_the_training_of_forecasts() -> None:
    trials, _ = trees_of(shops(), "sales", time_column="month")
    train, _ = trials.parts[0]
    held_out = trials._held_out_in(train)
    times = trials.data.blocks.iloc[train]
    assert times[held_out].min() > times[~held_out].max()


def test_a_stage_of_classes_is_chosen_by_log_loss() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + rng.normal(size=300), [-1, 1])]
    trees = HistGradientBoostingClassifier(max_iter=30).fit(X[:200], y[:200])
    number, probability = best_stage(trees, X[200:], y[200:])
    losses = [log_loss(y[200:], p) for p in trees.staged_predict_proba(X[200:])]
    assert number == np.argmin(losses) + 1
    assert_array_equal(
        probability, list(trees.staged_predict_proba(X[200:]))[number - 1]
    )


@pytest.mark.near_copies("options0-2", "options1-3", "options2-8")
@pytest.mark.parametrize("rare", [2, 3, 8])
@pytest.mark.parametrize("options", [{}, {"group_column": "x"}, {"splits": 1}])
def test_rare_classes(rare: int, options: Any) -> None:
    """Where the rows that are not held out lack a class no tree is left out."""
    x = np.arange(120) % 40
    table = pd.DataFrame({"x": x, "z": x**2, "y": ["a"] * rare + ["b"] * (120 - rare)})
    settings = Settings(**LEAST)
    trials = Trials(clean(table, "y"), settings)
    if "group_column" in options:
        trials.data = trials.data._replace(blocks=table["x"])
    outcome = trials.train(Trial("boosted trees", 0), slice(None), 10.0)
    assert outcome.pipeline is not None, outcome.fit.message
    assert_array_equal(outcome.pipeline[-1].classes_, ["a", "b"])


def test_trees_of_several_targets_with_gaps_words_and_groups() -> None:
    table = shops().assign(other=lambda t: t["sales"] ** 2)
    table.loc[::7, "other"] = np.nan
    settings = Settings(**LEAST, group_column="shop")
    table["kind"] = np.where(table["shop"] > "s20", "late", "early")
    data = clean_for(table, ["sales", "other"], settings)
    outcome = Trials(data, settings).run(Trial("boosted trees", 1), 10.0)
    assert np.isfinite(outcome.fit.scores["nlpd"]), outcome.fit.message
