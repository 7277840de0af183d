"""Targets of which some are limits, such as <5.8 below what an instrument measures."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import run
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.dummy import DummyRegressor

from gpflow_pep.compare import Comparison, clean, compare, predict_table, write_report
from gpflow_pep.compare.candidates import WithSpread
from gpflow_pep.estimators import PEPRegressor
from gpflow_pep.tables.cleaning import LIMIT

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-2.0, 2.0, 60))
TRUE = 10.0 + 3.0 * X + 0.3 * RNG.standard_normal(60)
LOW = np.where(np.arange(60) % 2, 9.0, 8.0)  # of two instruments


def table(values: Any = None) -> pd.DataFrame:
    cells = [f"<{low:g}" if y < low else f"{y:.3f}" for y, low in zip(TRUE, LOW, strict=True)]
    return pd.DataFrame({"x": X, "y": cells if values is None else values})


@cache
def small() -> Comparison:
    options: dict[str, Any] = {"num_inducing": 6, "max_iterations": 25, "details": False}
    likelihood: dict[str, Any] = {"likelihood": "tobit", "alphas": (1.0,)}
    return compare(table(), "y", folds=2, decimal=".", **likelihood, **options)


def test_cells_that_are_limits() -> None:
    cells = ["<5.8", "< 5.8", "<=5.8", "\u2264 5.8", ">9", ">= 9", "\u22659", " 7.5 ", "", "-2"]
    frame = pd.DataFrame({"x": np.arange(20.0), "y": cells + ["1.5", "2.5"] * 5})
    cleaned = clean(frame, "y", limits=True)
    assert cleaned.limits is not None
    assert_array_equal(cleaned.y.iloc[:9], [5.8] * 4 + [9.0] * 3 + [7.5, -2.0])
    outcomes = cleaned.outcomes
    assert list(outcomes) == ["y", LIMIT] and list(outcomes.index) == list(cleaned.y.index)
    assert_array_equal(outcomes[LIMIT], [-1.0] * 4 + [1.0] * 3 + [0.0] * 12)
    assert any("'y' has limits such as '<5.8' in 7 of 20 rows" in note for note in cleaned.notes)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_limits_name_the_likelihood_that_takes_them(share: float) -> None:
    """However many there are: an empty cell, or a class, would be another question."""
    cells = [f"<{i}" if i < 40 * share else f"{i}.5" for i in range(40)]
    frame = pd.DataFrame({"x": np.arange(40.0), "y": cells})
    with pytest.raises(ValueError, match=r"'y': got '<0' .* likelihood 'tobit'.*Pass --likelihood"):
        clean(frame, "y")


def test_limits_of_several_targets_are_refused_by_name() -> None:
    frame = table().assign(z=np.arange(60.0))
    with pytest.raises(ValueError, match=r"target 'y': got '<8' among its numbers"):
        clean(frame, ["z", "y"], decimal=".")


@pytest.mark.parametrize(
    "cells, options",
    [(["<=50K", ">50K"] * 10, {}), (["<5", "5-10", ">10", "<5"] * 5, {}),
     (["<1", "2", "3", "4"] * 5, {"task": "classification"}),
     (["<1", "2", "3", "4"] * 5, {"as_written": ["y"]})],
)  # fmt: skip
def test_classes_with_such_names_stay_classes(cells: list[str], options: dict[str, Any]) -> None:
    frame = pd.DataFrame({"x": np.arange(20.0), "y": cells})
    cleaned = clean(frame, "y", **options)
    assert cleaned.kind == "classes" and {*cleaned.y} == {*cells}


def test_the_likelihood_without_limits_is_refused() -> None:
    with pytest.raises(ValueError, match=r"likelihood: got 'tobit' for 'y', which has no limits"):
        clean(table(TRUE), "y", limits=True)


def test_a_baseline_scores_limits() -> None:
    """As probabilities: by the distribution function of its Gaussian."""
    rows = np.arange(4.0)[:, None]
    y = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, -1.0], [2.5, 1.0]])
    model = WithSpread(DummyRegressor(), 0.0).fit(rows, y)
    mean, std = y[:, 0].mean(), y[:, 0].std()
    expected = [
        *norm.logpdf(y[:2, 0], mean, std),
        norm.logcdf(3.0, mean, std), norm.logsf(2.5, mean, std),
    ]  # fmt: skip
    assert_allclose(model.log_densities(rows, y), expected)


def test_limits_reach_the_models_and_the_scores(tmp_path: Path) -> None:
    comparison = small()
    assert list(comparison.candidates) == ["default", "alpha 1", "mean", "linear", "boosted trees"]
    assert not any(fit.failed for fit in comparison.fits), [fit.message for fit in comparison.fits]
    best = comparison.held_out["alpha 1"]
    known = best[best[LIMIT] == 0.0]
    first = best["part"] == 1
    (fit,) = [fit for fit in comparison.fits_of("alpha 1") if fit.part == 1]
    assert_allclose(fit.scores["nlpd"], -best["log_density"][first].mean())
    error = (known["true"] - known["mean"])[known["part"] == 1]
    assert_allclose(fit.scores["rmse"], np.sqrt(np.mean(error**2)))
    # Below the limits too it predicts the values, where what takes the limit for them cannot.
    limited = best[best[LIMIT] < 0.0]
    assert len(limited) > 10
    assert abs(np.mean(limited["mean"] - TRUE[limited.index])) < 0.2
    linear = comparison.held_out["linear"].loc[limited.index]
    assert np.mean(linear["mean"] - TRUE[limited.index]) > 0.5
    write_report(tmp_path, comparison, figures=False)
    assert LIMIT in pd.read_csv(tmp_path / "predictions.csv")


def test_the_model_is_that_of_the_estimator() -> None:
    comparison = small()
    held_out = comparison.held_out["alpha 1"]
    test = held_out.index[held_out["part"] == 1]
    train = comparison.data.X.index.difference(test)
    estimator = PEPRegressor(
        "rbf", num_inducing=6, alpha=1.0, likelihood="tobit", random_state=0, max_iterations=25
    )
    y = np.stack([np.where(TRUE < LOW, LOW, np.round(TRUE, 3)), -1.0 * (TRUE < LOW)], axis=1)
    estimator.fit(X[train][:, None], y[train])
    assert_allclose(held_out.loc[test, "mean"], estimator.predict(X[test][:, None]), rtol=1e-4)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table().to_csv("data.csv", index=False)
    result = run("compare", "data.csv", "--target", "y")
    assert result.exit_code == 2
    assert "Pass --likelihood tobit" in result.stderr.splitlines()[-1]


def test_predictions_of_a_new_table() -> None:
    model = small().model
    predicted = predict_table(model, table())
    assert list(predicted) == ["mean", "sd", "median", "lower_90", "upper_90", "unusual"]
    assert_allclose(predicted["mean"], model.predict(table()[["x"]]), rtol=1e-10)


def test_a_baseline_of_equal_targets_has_densities() -> None:
    """Where all rows of a fold that are trained on have one target."""
    constant = WithSpread(DummyRegressor(), held_out=0.0).fit(X[:, None], np.full(60, 5.0))
    found = constant.log_densities(X[:2, None], np.array([5.0, 6.0]))
    assert_allclose(found, norm.logpdf([0.0, 1.0], scale=1e-3))
