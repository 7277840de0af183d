"""The command line on tables with faults: what it says, and its options that say otherwise."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import run, small_comparison

import gpflow_pep.compare.run
from gpflow_pep.compare import Cleaned, cli, page, report

ROWS = "".join(f"{i % 7}.5,{i % 5 if i % 4 else -999},{i % 7 + i % 3 / 4}\n" for i in range(40))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Cleaned]:
    """Tables that would be compared."""
    tables: list[Cleaned] = []

    def compare(data: Cleaned, *_: Any) -> Any:
        tables.append(data)
        return comparison

    comparison = small_comparison()
    monkeypatch.setattr(gpflow_pep.compare.run, "compare_table", compare)
    monkeypatch.setattr(cli, "default_jobs", lambda *_: 1)
    monkeypatch.setattr(report, "write_report", lambda *_, **__: [])
    return tables


def test_a_table_without_names(tmp_path: Path, seen: list[Cleaned]) -> None:
    (tmp_path / "data.csv").write_text(ROWS + ROWS)
    arguments = ("compare", tmp_path / "data.csv", "--out", tmp_path / "out", "--target")
    for target in ("x2", "2", "-1"):
        result = run(*arguments, target)
        assert result.exit_code == 0, result.output
        assert (
            "Read 80 rows of 3 columns (sep ',', decimal '.', encoding 'utf-8').\n" in result.stderr
        )
        assert "Note: The first line has values like those below it" in result.stderr
        assert "Note: 80 of 80 rows have the same inputs as another row, 80 of" in result.stderr
        assert "Target 'x2': a number. 2 inputs, 80 rows." in result.stderr
    assert (
        run(*arguments, "x2", "--no-together").stderr.count(
            "With --no-together some are trained on"
        )
        == 1
    )
    assert len(seen) == 4 and all(list(data.X) == ["x0", "x1"] for data in seen)
    result = run(*arguments, "x2", "--header")
    assert result.exit_code == 2 and "target: got 'x2', expected one of" in result.stderr


def test_numbers_as_they_are_written(tmp_path: Path, seen: list[Cleaned]) -> None:
    (tmp_path / "data.csv").write_text("a,b,y\n" + ROWS)
    arguments = ("compare", tmp_path / "data.csv", "--target", "y", "--out", tmp_path / "out")
    note = "Note: Column 'b': -999 in 10 rows is far from all other numbers"
    assert note in run(*arguments).stderr
    assert note not in run(*arguments, "--as-written", "b").stderr
    assert [int(data.X["b"].isna().sum()) for data in seen] == [10, 0]
    result = run(*arguments, "--sheet", "A")
    assert result.exit_code == 2 and "a file without sheets" in result.stderr


def test_names_with_commas_marks_and_orders(tmp_path: Path, seen: list[Cleaned]) -> None:
    rows = [
        f"{i % 7}.5;{1 + i % 9}/{1 + i % 8}/21;{i};{i % 3 - 200 * (i % 4 == 0)}" for i in range(40)
    ]
    (tmp_path / "data.csv").write_text("a;day;c,d;y\n" + "\n".join(rows) + "\n")
    arguments = ("compare", tmp_path / "data.csv", "--target", "y", "--out", tmp_path / "out")
    result = run(*arguments)
    assert result.exit_code == 2 and "Choose one: --dates dmy, mdy or ymd" in result.stderr
    result = run(*arguments, "--dates", "mdy", "--drop", '"c,d", a', "--task", "regression",
                 "--missing=-200,-199,-198")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "('2/2/21' is 2021-02-02)" in result.stderr
    assert list(seen[-1].X) == ["day"] and seen[-1].X["day"][1] == pd.Timestamp("2021-02-02")
    assert len(seen[-1].y) == 30
    assert run(*arguments, "--drop", "c").exit_code == 2


def test_warnings_reach_the_terminal_and_the_page(tmp_path: Path, seen: list[Cleaned]) -> None:
    y = np.random.default_rng(0).normal(size=40)
    rows = "".join(f"{i % 7}.5,{0.19 * v:.6f},{v:.6f}\n" for i, v in enumerate(y))
    (tmp_path / "data.csv").write_text("a,tax,y\n" + rows)
    result = run("compare", tmp_path / "data.csv", "--target", "y", "--out", tmp_path / "out")
    warning = "Column 'tax' puts the rows in the same order as the target 'y'"
    assert f"Warning: {warning}" in result.stderr
    comparison = small_comparison()
    data = comparison.data._replace(warnings=seen[0].warnings)
    shown = page.page(replace(comparison, data=data), {}, command="", folder=tmp_path)
    assert f'<p class="warning">{warning.replace(chr(39), "&#39;")}' in shown
