"""Comparisons of several targets, together and each by itself; and of targets that are
limits.
"""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import TARGETS, limits, real, run, two_targets
from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal
from rich.console import Console
from scipy.stats import norm
from sklearn.dummy import DummyRegressor

from gpflow_pep.compare import Comparison, clean, compare, predict_table, summarise
from gpflow_pep.compare.candidates import WithSpread
from gpflow_pep.compare.findings import _explained as explained
from gpflow_pep.compare.findings import _given_others as given_others
from gpflow_pep.compare.findings import _quality as quality
from gpflow_pep.compare.findings import _together_or_separate as together_or_separate
from gpflow_pep.compare.report import _by_row as by_row
from gpflow_pep.compare.run import table_of
from gpflow_pep.compare.scores import difference_over_parts, scores
from gpflow_pep.compare.terminal import drawn, word_tables
from gpflow_pep.estimators import PEPRegressor, load_estimator, save_estimator
from gpflow_pep.estimators.separate import SeparateRegressors
from gpflow_pep.tables.numbers import LIMIT

TABLE = two_targets()
SMALL: dict[str, Any] = {
    "num_inducing": 5,
    "max_iterations": 12,
    "random_state": 0,
    "alpha": 0.5,
}
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")


def small() -> Comparison:
    return real("two targets").comparison


def test_rows_with_any_target_are_learnt_from() -> None:
    data = clean(TABLE, TARGETS)
    assert list(data.X.columns) == ["x"] and list(data.y.columns) == TARGETS
    assert len(data.X) == 39 and data.kind == "numbers"
    assert "Dropped 1 of 40 rows without any target." in data.notes
    missing = data.y["height"].isna().sum()
    assert any(f"'height' ({missing})" in note for note in data.notes)
    assert clean(TABLE, ["1", "2"]).y.equals(data.y)
    # Labels of rows may repeat, as those of tables that were put together.
    cleaned = clean(pd.concat([TABLE.iloc[:20], TABLE.iloc[:20]]), TARGETS)
    assert (
        [*cleaned.X.index]
        == [*cleaned.y.index]
        == [*range(2), *range(3, 22), *range(23, 40)]
    )


def test_names_and_arrays_of_targets() -> None:
    frame, names = table_of(TABLE, TARGETS)
    assert names == TARGETS and frame.equals(TABLE)
    X = TABLE[["x"]]
    Y = TABLE[TARGETS]
    assert table_of(X, Y)[1] == TARGETS and table_of(X, Y)[0].equals(TABLE)
    assert table_of(X.to_numpy(), Y.to_numpy())[1] == ["y0", "y1"]
    # No names, but a label of each row.
    assert table_of(X, ["yes", "no"] * 20)[1] == "y"


def test_scores_recomputed_from_the_predictions() -> None:
    comparison = small()
    rows = summarise(comparison)
    Y = comparison.data.y
    for name in rows.index:
        held_out = comparison.held_out[name]
        assert len(held_out) == Y.notna().sum().sum()
        relative = []
        own = []
        densities = []
        for (_, target), some in held_out.groupby(["part", "target"]):
            true = Y.loc[some.index, target]
            assert_array_equal(some["true"], true)
            own.append(np.sqrt(np.mean((true - some["mean"]) ** 2)))
            relative.append(own[-1] / true.std(ddof=0))
            if not name.startswith("default"):  # which is no single Gaussian
                density = norm.logpdf(true, some["mean"], some["sd"])
                assert_allclose(some["log_density"], density, rtol=1e-6)
            densities.append(-some["log_density"].mean())
        assert_allclose(rows.loc[name, "rmse"], np.mean(relative))
        assert_allclose(rows.loc[name, "nlpd"], np.mean(densities), rtol=1e-6)
        assert_allclose(rows.loc[name, "rmse(height)"], np.mean(own[::2]))
        assert_allclose(
            rows.loc[name, "nlpd(weight)"], np.mean(densities[1::2]), rtol=1e-6
        )


def test_rows_are_counted_once_whatever_their_targets() -> None:
    comparison = small()
    names = ("alpha 0.5", "alpha 0.5 (separate)")
    losses = [
        np.array([f.scores["nlpd"] for f in comparison.fits_of(name)]) for name in names
    ]
    # Of each of two folds half of the rows.
    expected = difference_over_parts(*losses, ratio=1.0)
    assert_allclose(comparison.difference(*names), expected)
    held_out = comparison.held_out["alpha 0.5"].copy()  # errors do not depend on units
    before = scores(held_out)
    numbers = ["true", "mean", "lower_90", "upper_90"]
    held_out.loc[held_out["target"] == "height", numbers] *= 1000.0
    after = scores(held_out)
    assert_allclose(
        [after[n] for n in ("rmse", "mae")], [before[n] for n in ("rmse", "mae")]
    )


def test_names_of_targets_are_no_markup() -> None:
    comparison = small()
    name = "weight [/red] [kg]"
    data = comparison.data._replace(
        y=comparison.data.y.rename(columns={"weight": name})
    )
    held_out = {n: t.replace("weight", name) for n, t in comparison.held_out.items()}
    renamed = replace(comparison, data=data, held_out=held_out)
    file = io.StringIO()
    for words in word_tables(renamed):
        Console(width=300, file=file).print(drawn(renamed, words))
    assert f"RMSE of {name}" in file.getvalue()


def test_separate_models_are_those_of_each_target() -> None:
    comparison = small()
    held_out = comparison.held_out["alpha 0.5 (separate)"]
    part = held_out[(held_out["part"] == 1) & (held_out["target"] == "weight")]
    X = comparison.data.X
    y = comparison.data.y["weight"].dropna()
    train = y.index.difference(held_out.index[held_out["part"] == 1])
    alone = PEPRegressor(**SMALL).fit(X.loc[train].to_numpy(), y.loc[train])
    assert_allclose(
        part["mean"], alone.predict(X.loc[part.index].to_numpy()), rtol=1e-6
    )


def test_what_is_said() -> None:
    comparison = small()
    text = together_or_separate(comparison)
    by_loss = sorted(comparison.losses, key=comparison.losses.__getitem__)
    alone, together = (
        next(n for n in by_loss if ("(" in n) == kind) for kind in (True, False)
    )
    gap = comparison.difference(together, alone)
    assert (
        text.startswith("Modelling the targets together")
        and f"of {together} is" in text
    )
    assert text.endswith(f" than the {comparison.metrics[0].heading} of {alone}.")
    assert f" is {abs(gap.mean):.3f} {'worse' if gap.mean > 0.0 else 'better'} " in text
    noise = f" (noise alone gives up to {gap.limit * gap.error:.3f}) than the"
    assert (noise in text) != gap.clear
    share = explained(comparison)["height"]
    assert f"explains {share:.0%} of the variance of 'height' and" in quality(
        comparison
    )
    assert (
        comparison.details is not None and comparison.details.given_others is not None
    )
    before, after = comparison.details.given_others["weight"]
    assert 0.0 < after < before  # noise of height is noise of weight
    assert f"{after:.4g} instead of {before:.4g} for 'weight'" in given_others(
        comparison
    )


def test_predictions_of_a_row_stand_beside_each_other() -> None:
    comparison = small()
    out = real("two targets").out
    assert (
        "Targets 'height', 'weight', 1 input, 39 rows."
        in real("two targets").result.stderr
    )
    page = (out / "report.html").read_text(encoding="utf-8")
    assert (
        "Targets &#39;height&#39;, &#39;weight&#39;" in page
        and "RMSE of weight" in page
    )
    wide = pd.read_csv(out / "predictions.csv", index_col="row")
    held_out = comparison.held_out[str(comparison.best)]
    assert len(wide) == 39 and wide["true(weight)"].isna().any()
    some = held_out[held_out["target"] == "weight"]
    assert_allclose(wide.loc[some.index, "mean(weight)"], some["mean"])
    assert (
        by_row(held_out[held_out["target"] == "height"].drop(columns="target")).shape[1]
        == 8
    )


def test_rows_that_two_splits_hold_out_are_written_twice() -> None:
    held_out = small().held_out["default"]
    later = held_out.assign(part=held_out["part"].max() + 1, mean=0.5)
    wide = by_row(pd.concat([held_out, later]))
    once = by_row(held_out)
    assert_frame_equal(wide.iloc[: len(once)], once)
    assert list(wide.index) == [*once.index, *once.index]
    means = wide["mean(weight)"].iloc[len(once) :]
    assert_array_equal(means.notna(), once["mean(weight)"].notna())
    assert set(means.dropna()) == {0.5}


@pytest.mark.slow
def test_each_target_is_predicted_from_the_others_of_its_row(tmp_path: Path) -> None:
    model = small().model
    new = TABLE.head(6)
    saved = real("two targets").out / "model"
    new.to_csv(tmp_path / "new.csv", index=False)
    result = run("predict", saved, tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert result.exit_code == 0, result.output
    written = pd.read_csv(tmp_path / "p.csv", index_col="row")
    before = predict_table(model, new)
    assert_allclose(written["mean(height)"], before["mean(height)"], rtol=1e-6)
    assert list(before.columns[:2]) == ["mean(height)", "sd(height)"]
    changed = predict_table(model, new.assign(height=new["height"] + 1.0))
    assert_allclose(changed["mean(height)"], before["mean(height)"], rtol=1e-9)
    moved = np.abs(changed["mean(weight)"] - before["mean(weight)"]) > 0.1
    assert_array_equal(moved, new["height"].notna())
    without = predict_table(model, new[["x"]])
    assert_allclose(without["mean(height)"], model.predict(new[["x"]])[:, 0])


def test_separate_estimators_are_saved(tmp_path: Path, no_training: None) -> None:
    X = TABLE[["x"]].to_numpy()
    Y = TABLE[TARGETS]
    fitted = SeparateRegressors(PEPRegressor(**SMALL), max_seconds=20.0).fit(X, Y)
    assert fitted.estimators_[0].max_seconds == 10.0
    assert fitted.n_iter_ == sum(part.n_iter_ for part in fitted.estimators_)
    save_estimator(tmp_path / "model", fitted)
    loaded = load_estimator(tmp_path / "model")
    assert loaded.target_names_ == TARGETS
    parts = [
        part.score(X[~Y[n].isna()], Y[n].dropna())
        for n, part in zip(Y, loaded.estimators_)
    ]
    assert loaded.score(X, Y) == pytest.approx(np.mean(parts))
    assert loaded.log_score(X, Y) == pytest.approx(
        np.nanmean(loaded.log_densities(X, Y))
    )
    assert_array_equal(
        loaded.predict(X, return_std=True), fitted.predict(X, return_std=True)
    )


@pytest.mark.parametrize(
    "change, options, message",
    [
        (
            {"weight": ["a", "b"] * 20},
            {},
            "target 'weight': got classes, expected numbers",
        ),
        ({}, {"likelihood": "poisson"}, "likelihood: got 'poisson' with 2 targets"),
        ({}, {"drop": ("weight",)}, "drop: got 'weight'"),
    ],
)
def test_refused(change: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(TABLE.assign(**change), TARGETS, **options)


# Targets of which some are limits, such as <5.8 below what an instrument measures.
TRUE, LOW = (limits()[name].to_numpy() for name in ("true", "low"))
OF_LIMITS = limits()[["x", "y"]]


def of_cells(cells: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(1.0 * len(cells)), "y": cells})


def test_cells_that_are_limits() -> None:
    cells = [
        "<5.8",
        "< 5.8",
        "<=5.8",
        "\u2264 5.8",
        ">9",
        ">= 9",
        "\u22659",
        " 7.5 ",
        "",
        "-2",
    ]
    cleaned = clean(of_cells(cells + ["1.5", "2.5"] * 5), "y", limits=True)
    assert cleaned.limits is not None
    assert_array_equal(cleaned.y.iloc[:9], [5.8] * 4 + [9.0] * 3 + [7.5, -2.0])
    outcomes = cleaned.outcomes
    assert list(outcomes) == ["y", LIMIT] and list(outcomes.index) == list(
        cleaned.y.index
    )
    assert_array_equal(outcomes[LIMIT], [-1.0] * 4 + [1.0] * 3 + [0.0] * 12)
    assert any(
        "'y' has limits such as '<5.8' in 7 of 20 rows" in note
        for note in cleaned.notes
    )


@pytest.mark.parametrize(
    "table, options, message",
    [
        # However many there are: an empty cell, or a class, would be another question.
        *(
            (
                of_cells([f"<{i}" if i < most else f"{i}.5" for i in range(40)]),
                {},
                r"'y': got '<0' .* likelihood 'tobit'.*Pass --likelihood",
            )
            for most in (2, 20)
        ),
        (
            OF_LIMITS.assign(z=np.arange(60.0)),
            {"target": ["z", "y"], "decimal": "."},
            r"target 'y': got '<8' among its numbers",
        ),
        (
            OF_LIMITS.assign(y=TRUE),
            {"limits": True},
            r"likelihood: got 'tobit' for 'y', which has no limits",
        ),
    ],
)
def test_refused_limits(table: pd.DataFrame, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        clean(table, **{"target": "y", **options})


@pytest.mark.parametrize(
    "cells, options",
    [
        (["<=50K", ">50K"] * 10, {}),
        (["<5", "5-10", ">10", "<5"] * 5, {}),
        (["<1", "2", "3", "4"] * 5, {"task": "classification"}),
        (["<1", "2", "3", "4"] * 5, {"as_written": ["y"]}),
    ],
)
def test_classes_with_such_names_stay_classes(
    cells: list[str], options: dict[str, Any]
) -> None:
    cleaned = clean(of_cells(cells), "y", **options)
    assert cleaned.kind == "classes" and {*cleaned.y} == {*cells}


def test_a_baseline_scores_limits_as_probabilities() -> None:
    rows = np.arange(4.0)[:, None]
    y = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, -1.0], [2.5, 1.0]])
    model = WithSpread(DummyRegressor()).fit(rows, y)
    mean = y[:, 0].mean()
    std = y[:, 0].std()
    probabilities = norm.logcdf(3.0, mean, std), norm.logsf(2.5, mean, std)
    expected = [*norm.logpdf(y[:2, 0], mean, std), *probabilities]
    assert_allclose(model.log_densities(rows, y), expected)
    # Where all rows of a fold that are trained on have one target.
    constant = WithSpread(DummyRegressor()).fit(rows, np.full(4, 5.0))
    found = constant.log_densities(rows[:2], np.array([5.0, 6.0]))
    assert_allclose(found, norm.logpdf([0.0, 1.0], scale=1e-3))


@pytest.mark.slow
def test_limits_reach_the_models_and_the_scores() -> None:
    _, _, _, _, out, _, comparison, _ = real("limits")
    best = comparison.held_out["alpha 1"]
    known = best[best[LIMIT] == 0.0]
    first = best["part"] == 1
    fit, _ = comparison.fits_of("alpha 1")
    assert_allclose(fit.scores["nlpd"], -best["log_density"][first].mean())
    error = (known["true"] - known["mean"])[known["part"] == 1]
    assert_allclose(fit.scores["rmse"], np.sqrt(np.mean(error**2)))
    # Below the limits too it predicts the values, where what takes the limit for them
    # cannot.
    limited = best[best[LIMIT] < 0.0]
    assert (
        len(limited) > 10 and abs(np.mean(limited["mean"] - TRUE[limited.index])) < 0.2
    )
    linear = comparison.held_out["linear"].loc[limited.index]
    assert np.mean(linear["mean"] - TRUE[limited.index]) > 0.5
    assert LIMIT in pd.read_csv(out / "predictions.csv")
    predicted = predict_table(comparison.model, OF_LIMITS)
    assert list(predicted) == [
        "mean",
        "sd",
        "median",
        "lower_90",
        "upper_90",
        "unusual",
    ]
    model = comparison.model
    y = np.where(TRUE < LOW, LOW, np.round(TRUE, 3))
    targets = np.asarray(model[-1].model_.data[1])
    assert_array_equal(targets[:, 1], np.where(TRUE < LOW, -1.0, 0.0))
    assert_allclose(targets[:, 0], (y - y.mean()) / y.std(), rtol=1e-12)
