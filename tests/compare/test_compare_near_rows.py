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
from gpflow_pep.estimators import PEPRegressor, load_estimator
from gpflow_pep.scoring import load_scorer
from gpflow_pep.tables.cleaning import clean


def waves(num_rows: int) -> pd.DataFrame:
    """A table of more waves than few inducing points can follow."""
    rng = np.random.default_rng(0)
    time = rng.uniform(0.0, 10.0, num_rows)
    load = np.sin(4.0 * time) + 0.1 * rng.standard_normal(num_rows)
    return pd.DataFrame({"time": time, "load": load})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Training ended after")
def test_the_default_uses_near_rows_as_the_estimator_does(tmp_path: Path) -> None:
    table = waves(1150)
    options: dict[str, Any] = {
        **{"num_inducing": 4, "max_iterations": 5, "test_fraction": 0.1, "alphas": (0.5,)},
        **{"baselines": False, "details": False},
    }
    comparison = compare(table, "load", **options)
    assert comparison.best == "default" and comparison.model is not None
    predicted = comparison.held_out["default"]
    test = np.sort(predicted.index)
    train = table.drop(index=test)
    alone = PEPRegressor(max_iterations=5, random_state=0)
    alone.fit(train[["time"]], train["load"])
    assert alone.near_rows_ == comparison.model[-1].near_rows_
    densities = alone.log_densities(table.loc[test, ["time"]], table.loc[test, "load"])
    assert_allclose(predicted["log_density"].loc[test], densities, rtol=1e-6)

    written = write_report(tmp_path, comparison, figures=False)
    assert tmp_path / "scorer" in written
    new = waves(50)
    for loaded in (load_estimator(tmp_path / "model"), load_scorer(tmp_path / "scorer")):
        assert_allclose(
            predict_table(loaded, new)["mean"], comparison.model.predict(new[["time"]]), rtol=1e-8
        )


@pytest.mark.parametrize("near_rows", [True, False])
def test_the_default_alone_uses_near_rows(near_rows: bool) -> None:
    table = waves(40)
    for target in (table["load"], np.where(table["load"] > 0.0, "high", "low")):
        data = clean(table.assign(load=target), "load")
        candidates = make_candidates(data, Settings(near_rows=near_rows))
        asked = {
            name: each.get_params().get("near_rows", 0) for name, (_, each) in candidates.items()
        }
        assert asked.pop("default") == ("auto" if near_rows else 0)
        assert not any(asked.values())


def test_the_option_is_documented() -> None:
    assert "--near-rows" in run("compare", "--help").output
