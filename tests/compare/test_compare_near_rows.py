"""Comparisons whose predictions use near rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import run
from numpy.testing import assert_allclose

from gpflow_pep.compare import compare, predict_table
from gpflow_pep.compare.candidates import make_candidates
from gpflow_pep.compare.report import write_report
from gpflow_pep.compare.settings import Settings
from gpflow_pep.estimators import PEPRegressor, classifier, load_estimator
from gpflow_pep.tables.cleaning import clean


def waves(num_rows: int) -> pd.DataFrame:
    """A table of more waves than few inducing points can follow."""
    rng = np.random.default_rng(0)
    time = rng.uniform(0.0, 10.0, num_rows)
    load = np.sin(4.0 * time) + 0.1 * rng.standard_normal(num_rows)
    return pd.DataFrame({"time": time, "load": load})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Training ended after")
def test_the_mixture_knows_near_rows_as_the_estimator_does(tmp_path: Path) -> None:
    table = waves(1150)
    options: dict[str, Any] = {
        **{"num_inducing": 4, "max_iterations": 5, "test_fraction": 0.1},
        **{"baselines": False, "details": False},
    }
    comparison = compare(table, "load", **options)
    assert comparison.best == "mix" and comparison.model is not None
    predicted = comparison.held_out["mix"]
    test = np.sort(predicted.index)
    train = table.drop(index=test)
    alone = PEPRegressor(alpha="mix", num_inducing=4, max_iterations=5, random_state=0)
    alone.fit(train[["time"]], train["load"])
    assert alone.near_rows_ == comparison.model[-1].near_rows_ == 40
    densities = alone.log_densities(table.loc[test, ["time"]], table.loc[test, "load"])
    assert_allclose(predicted["log_density"].loc[test], densities, rtol=1e-6)
    scores = {fit.model: fit.scores["nlpd"] for fit in comparison.fits}
    assert all(scores["mix"] < scores[f"alpha {alpha}"] - 0.02 for alpha in ("0", "0.5", "1"))

    written = write_report(tmp_path, comparison, figures=False)
    assert tmp_path / "scorer" not in written
    assert "know 40 near training rows" in (tmp_path / "report.html").read_text()
    loaded = load_estimator(tmp_path / "model")
    new = waves(50)
    assert_allclose(
        predict_table(loaded, new)["mean"], comparison.model.predict(new[["time"]]), rtol=1e-8
    )


def test_of_two_classes_the_mixture_alone_knows_near_rows() -> None:
    table = waves(40)
    table["load"] = np.where(table["load"] > 0.0, "high", "low")
    candidates = make_candidates(clean(table, "load"), Settings(), [("rbf", 4)])
    asked = {name: each.get_params().get("near_rows") for name, (_, each) in candidates.items()}
    assert asked["mix"] == "auto" and asked["SVGP"] == 0
    assert [asked[f"alpha {alpha}"] for alpha in ("0", "0.5", "1")] == [0, 0, 0]


@pytest.mark.slow
def test_of_two_classes_one_model_for_all_powers_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the ensemble, which is made of models that know none."""
    monkeypatch.setattr(classifier, "LEAST_ROWS", 100)
    tried: list[list[float]] = []

    def instead(model: Any, *_: Any, **__: Any) -> None:
        tried.append([float(component.alpha.numpy()) for component in model.models])

    monkeypatch.setattr(classifier, "ensemble_with_near_labels", instead)
    table = waves(150)
    table["load"] = np.where(table["load"] > 0.0, "high", "low")
    options: dict[str, Any] = {
        **{"num_inducing": 4, "max_iterations": 5, "splits": 1, "test_fraction": 0.2},
        **{"baselines": False, "details": False, "select": "folds"},
    }
    compare(table, "load", near_rows=False, **options)
    assert not tried
    comparison = compare(table, "load", **options)
    assert tried[0] == [0.0, 0.5, 1.0] and len(tried) == 1 + (comparison.best == "mix")


def test_the_option_is_documented() -> None:
    assert "--near-rows" in run("compare", "--help").output
