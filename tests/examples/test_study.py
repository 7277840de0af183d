"""The study of defaults: its cells, its rows, its table."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from examples.papers import earlier, study, study_summary
from examples.papers.runner import Cell


def cell(data: str, experiment: str = "regression") -> Cell:
    return Cell(experiment, data, 0, 5, "all rules")


def test_the_grid_has_enough_sets() -> None:
    cells = study.grid("reduced")
    number = pd.Series([c.experiment for c in cells if c.split == 0]).value_counts()
    assert number["regression"] >= 12 and number["binary"] >= 8 and number["classes"] >= 5
    assert number["counts"] >= 2
    assert len(study.grid("quick")) == 7


@pytest.mark.parametrize("name", ["diabetes", "friedman1", "friedman2", "friedman3"])
def test_rows_are_split_and_standardised(name: str) -> None:
    problem = study.problem_of(cell(f"{name}:100"), Path())
    X, Y = problem.train
    assert len(X) == len(Y) == 100 and len(problem.test[0]) > 80
    rows = {row.tobytes() for row in X}
    assert not any(row.tobytes() in rows for row in problem.test[0])
    np.testing.assert_allclose(Y.mean(), 0.0, atol=0.3)


def test_the_summary_compares_with_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = {
        "evidence 0": [1.5, 2.1],
        "evidence .5": [1.0, 2.0],
        "evidence .75": [1.2, 2.3],
        "evidence 1": [1.1, 1.9],
        "evidence mix": [0.5, 2.2],
        "PEPRegressor()": [0.9, 1.7],
    }
    rows = [
        {"experiment": "regression", "data": data, "split": 0, "rule": rule, "N": 10, "nlpd": value}
        for rule, values in rules.items()
        for data, value in zip("ab", values)
    ]
    study_summary.summarise(pd.DataFrame(rows), tmp_path)
    text = (tmp_path / "study.txt").read_text()
    assert text in capsys.readouterr().out
    summary, _ = text.split("NLPD of each set")
    summary, beside = summary.split("NLPD of other rules less that of PEPRegressor()")
    lines = {line[:22].strip(): line[22:].split() for line in summary.splitlines()}
    assert [float(word) for word in lines["evidence mix"]] == [2, 1.35, -0.15, 0.35, 1, 3]
    lines_beside = {line[:35].strip(): line[35:].split() for line in beside.splitlines()}
    # Of -0.4 and 0.5; Student's t with one degree of freedom has 12.706.
    assert lines_beside["evidence mix"] == ["+0.050", "[-5.668,", "+5.768]", "2", "1"]
    # The powers that were best are .5 and 1.
    assert [float(word) for word in lines["best power, hindsight"][:3]] == [2, 1.45, -0.05]
    assert (tmp_path / "study.png").stat().st_size > 10_000


@pytest.mark.slow
def test_every_rule_gives_scores() -> None:
    rows = study.evaluate(cell("diabetes:60"), Path())
    assert {"evidence .5", "both mix", "PEPRegressor()", "boosted trees"} <= {
        row["rule"] for row in rows
    }
    assert all(0.0 <= row["coverage"] <= 1.0 and row["width"] > 0.0 for row in rows)
    scored = [row for row in rows if "intervals" not in row["rule"] and "quant" not in row["rule"]]
    assert all(np.isfinite(row["nlpd"]) for row in scored)
    rows = study.evaluate(cell("moons:60", "binary"), Path())
    assert all(row["error_rate"] < 0.5 for row in rows)
    rows = study.evaluate(cell("diabetes:30", "points"), Path())
    assert [row["rule"] for row in rows] == ["M = 25", "M = 50", "M = 100", "M = 200", "M = 400"]
    assert all(np.isfinite(row["optimism"]) for row in rows)
    rows = study.evaluate(cell("bumps:60", "counts"), Path())
    assert all(np.isfinite(row["nlpd"]) and row["rmse"] < 20.0 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, experiment", [("friedman1", "defaults"), ("moons", "class defaults")]
)
def test_the_estimator_of_another_version_has_the_same_row(
    name: str, experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPFLOW_PEP_EARLIER", sys.executable)
    rows = {row["rule"]: row for row in study.evaluate(cell(f"{name}:60", experiment), Path())}
    ours = rows["PEPClassifier()" if experiment == "class defaults" else "PEPRegressor()"]
    np.testing.assert_allclose(rows["0.2"]["nlpd"], ours["nlpd"], rtol=1e-8)
    assert rows["0.2"]["process_seconds"] > 0.0


def test_predictions_of_another_version_are_of_its_estimator() -> None:
    random = np.random.default_rng(0)
    X, X_new = random.standard_normal((30, 1)), random.standard_normal((5, 1))
    y = np.sin(X[:, 0]) + 0.1 * random.standard_normal(30)
    problem = {"X": X, "y": y, "X_new": X_new, "y_new": np.sin(X_new[:, 0])}
    answer = earlier.predict({**problem, "classes": False})
    assert np.all((answer["ends"][:, 0] < answer["mean"]) & (answer["mean"] < answer["ends"][:, 1]))
    assert answer["density"].shape == (5,)
