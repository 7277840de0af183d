"""Targets of which some are limits, such as <5.8 below what an instrument measures."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import limits, real
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.dummy import DummyRegressor

from gpflow_pep.compare import clean, predict_table
from gpflow_pep.compare.candidates import WithSpread
from gpflow_pep.tables.cleaning import LIMIT

X, TRUE, LOW = (limits()[name].to_numpy() for name in ("x", "true", "low"))
TABLE = limits()[["x", "y"]]


def of_cells(cells: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"x": np.arange(1.0 * len(cells)), "y": cells})


def test_cells_that_are_limits() -> None:
    cells = ["<5.8", "< 5.8", "<=5.8", "\u2264 5.8", ">9", ">= 9", "\u22659", " 7.5 ", "", "-2"]
    cleaned = clean(of_cells(cells + ["1.5", "2.5"] * 5), "y", limits=True)
    assert cleaned.limits is not None
    assert_array_equal(cleaned.y.iloc[:9], [5.8] * 4 + [9.0] * 3 + [7.5, -2.0])
    outcomes = cleaned.outcomes
    assert list(outcomes) == ["y", LIMIT] and list(outcomes.index) == list(cleaned.y.index)
    assert_array_equal(outcomes[LIMIT], [-1.0] * 4 + [1.0] * 3 + [0.0] * 12)
    assert any("'y' has limits such as '<5.8' in 7 of 20 rows" in note for note in cleaned.notes)


@pytest.mark.parametrize("table, options, message", [
    # However many there are: an empty cell, or a class, would be another question.
    (of_cells([f"<{i}" if i < 2 else f"{i}.5" for i in range(40)]), {},
     r"'y': got '<0' .* likelihood 'tobit'.*Pass --likelihood"),
    (of_cells([f"<{i}" if i < 20 else f"{i}.5" for i in range(40)]), {},
     r"'y': got '<0' .* likelihood 'tobit'.*Pass --likelihood"),
    (TABLE.assign(z=np.arange(60.0)), {"target": ["z", "y"], "decimal": "."},
     r"target 'y': got '<8' among its numbers"),
    (TABLE.assign(y=TRUE), {"limits": True},
     r"likelihood: got 'tobit' for 'y', which has no limits"),
])  # fmt: skip
def test_refused(table: pd.DataFrame, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        clean(table, **{"target": "y", **options})


@pytest.mark.parametrize("cells, options", [
    (["<=50K", ">50K"] * 10, {}), (["<5", "5-10", ">10", "<5"] * 5, {}),
    (["<1", "2", "3", "4"] * 5, {"task": "classification"}),
    (["<1", "2", "3", "4"] * 5, {"as_written": ["y"]}),
])  # fmt: skip
def test_classes_with_such_names_stay_classes(cells: list[str], options: dict[str, Any]) -> None:
    cleaned = clean(of_cells(cells), "y", **options)
    assert cleaned.kind == "classes" and {*cleaned.y} == {*cells}


def test_a_baseline_scores_limits_as_probabilities() -> None:
    rows = np.arange(4.0)[:, None]
    y = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, -1.0], [2.5, 1.0]])
    model = WithSpread(DummyRegressor(), 0.0).fit(rows, y)
    mean, std = y[:, 0].mean(), y[:, 0].std()
    probabilities = norm.logcdf(3.0, mean, std), norm.logsf(2.5, mean, std)
    expected = [*norm.logpdf(y[:2, 0], mean, std), *probabilities]
    assert_allclose(model.log_densities(rows, y), expected)
    # Where all rows of a fold that are trained on have one target.
    constant = WithSpread(DummyRegressor(), held_out=0.0).fit(rows, np.full(4, 5.0))
    found = constant.log_densities(rows[:2], np.array([5.0, 6.0]))
    assert_allclose(found, norm.logpdf([0.0, 1.0], scale=1e-3))


def test_limits_reach_the_models_and_the_scores() -> None:
    _, _, _, _, out, _, comparison, _ = real("limits")
    best = comparison.held_out["alpha 1"]
    known, first = best[best[LIMIT] == 0.0], best["part"] == 1
    fit, _ = comparison.fits_of("alpha 1")
    assert_allclose(fit.scores["nlpd"], -best["log_density"][first].mean())
    error = (known["true"] - known["mean"])[known["part"] == 1]
    assert_allclose(fit.scores["rmse"], np.sqrt(np.mean(error**2)))
    # Below the limits too it predicts the values, where what takes the limit for them cannot.
    limited = best[best[LIMIT] < 0.0]
    assert len(limited) > 10
    assert abs(np.mean(limited["mean"] - TRUE[limited.index])) < 0.2
    linear = comparison.held_out["linear"].loc[limited.index]
    assert np.mean(linear["mean"] - TRUE[limited.index]) > 0.5
    assert LIMIT in pd.read_csv(out / "predictions.csv")
    predicted = predict_table(comparison.model, TABLE)
    assert list(predicted) == ["mean", "sd", "median", "lower_90", "upper_90", "unusual"]


def test_the_model_has_the_limits() -> None:
    model = real("limits").comparison.model
    y, targets = np.where(TRUE < LOW, LOW, np.round(TRUE, 3)), np.asarray(model[-1].model_.data[1])
    assert_array_equal(targets[:, 1], np.where(TRUE < LOW, -1.0, 0.0))
    assert_allclose(targets[:, 0], (y - y.mean()) / y.std(), rtol=1e-12)
