"""The comparison of models of missing outputs: what is removed, baselines, scores, its
tables.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import load_example

example = load_example("missing_outputs.py")


@pytest.mark.parametrize("name", ["diabetes", "counted"])
def test_what_is_removed(name: str) -> None:
    at_random = example.incomplete(name, "random", 0, 60, Path("."))
    table = at_random.table
    removed = at_random.removed
    assert len(table.X) == 48 and len(at_random.new.X) == 12
    assert not removed.all(axis=1).any() and 0.2 < removed.mean() < 0.5
    assert np.array_equal(np.isnan(at_random.Y), removed)
    if name == "diabetes":
        assert np.allclose(table.Y.mean(axis=0), 0.0) and np.allclose(
            table.Y.std(axis=0), 1.0
        )
    failure = example.incomplete(name, "failure", 0, 60, Path("."))
    (failing,) = np.flatnonzero(failure.removed.any(axis=0))
    place = failure.table.X[:, 0]
    gone = failure.removed[:, failing]
    assert place[gone].min() > place[~gone].max()


def test_the_truth_is_the_best() -> None:
    data = example.incomplete("generated", "random", 0, 80, Path("."))
    by_method = {
        "truth": {"mixed": {"imputed": example.truth(data)}},
        "linear": example.baseline(example.linear, data),
    }
    lines = {
        name: example.scores(predicted, data)[0]
        for name, predicted in by_method.items()
    }
    assert lines["truth"]["nlpd"] < lines["linear"]["nlpd"]
    assert lines["truth"]["rmse"] < lines["linear"]["rmse"]


def test_mixture_of_powers() -> None:
    """Most of the weight is where entries that were left out are likely."""
    Y = np.array([[0.0, np.nan]])
    zero = np.zeros((1, 2))
    one = np.ones((1, 2))
    by_power = [{"imputed": (zero, zero)}, {"imputed": (-5.0 * one, one)}]
    densities = [np.array([[-1.0, np.nan]]), np.array([[-np.inf, np.nan]])]
    log_density, mean = example.mixed(by_power, densities, Y)["imputed"]
    w = 0.1  # the least that the prior leaves
    assert np.allclose(mean, w)
    assert np.allclose(log_density, np.log(1.0 - w + w * np.exp(-5.0)))


def test_gains_are_differences_in_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    nlpd = {
        ("separate", 0): 1.0,
        ("separate", 1): 3.0,
        ("other", 0): 0.5,
        ("other", 1): 2.3,
    }
    key = {
        "table": "t",
        "pattern": "random",
        "power": "0.5",
        "way": "imputed",
        "rmse": 1.0,
    }
    lines = [
        {**key, "method": m, "split": s, "nlpd": value}
        for (m, s), value in nlpd.items()
    ]
    example.report(pd.DataFrame(lines))
    printed = capsys.readouterr().out
    assert "2.000 (1.000)" in printed and "1.400 (1.000)" in printed
    assert "0.600 +- 0.100" in printed


@pytest.mark.slow
def test_the_table(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "scores.csv"
    arguments = f"generated counted --quick --patterns random --out {out}"
    monkeypatch.setattr(sys, "argv", ["missing_outputs", *arguments.split()])
    example.main()
    first = capsys.readouterr().out
    assert "mixture, Q = 2" in first and "new rows, predict_y(given=)" in first
    assert not np.isnan(pd.read_csv(out)["nlpd"]).any()
    example.main()  # reads what is there
    assert capsys.readouterr().out == first
