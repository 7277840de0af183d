"""The experiments of Bui, Yan & Turner (2017): a cell of each, and what the summary says."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import EXAMPLES, assert_close


@pytest.fixture
def byt17() -> ModuleType:
    return importlib.import_module("examples.papers.byt17")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Data sets of the papers' names, and few rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    Y = np.sin(2.0 * X[:, :1])
    for name, target in (("boston", Y), ("banana", Y > 0.0), ("ionosphere", Y > 0.0)):
        table = pd.DataFrame(np.hstack([X, target]), columns=["a", "b", "y"])
        table.to_csv(tmp_path / f"{name}.csv.gz", index=False)
    images = rng.integers(0, 255, (40, 1, 2)).astype(np.uint8)
    digits = np.arange(40) % 10
    arrays = {"x_train": images, "x_test": images, "y_train": digits, "y_test": digits}
    np.savez(tmp_path / "mnist.npz", **arrays)
    return tmp_path


def smoke(byt17: ModuleType) -> list[Any]:
    """A cell of each experiment, which share compiled models where they can."""
    names = {
        "regression": "boston:30",
        "classification": "banana:30",
        "inducing": "banana:30",
        "everywhere": "ionosphere:20",
        "mnist": "mnist:30",
        "synthetic": "gp:30",
        "baselines": "boston:30",
    }
    cells = [byt17.Cell(name, data, 0, 4, "PEP", 0.5, 2) for name, data in names.items()]
    assert set(names) == {cell.experiment for size in SIZES for cell in byt17.grid(size)}
    return [
        byt17.Cell("everywhere", c.data, 0, 2, "PEP", 1.0) if c == cells[3] else c for c in cells
    ]


SIZES = ("quick", "reduced", "full")


@pytest.mark.slow
def test_a_cell_of_each_experiment(
    byt17: ModuleType, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the command line to the tables."""
    runner = importlib.import_module("examples.papers.runner")
    cells = smoke(byt17)
    monkeypatch.setattr(byt17, "grid", lambda size: cells)
    out = data / "out"
    monkeypatch.setattr("examples.papers.summaries.available", lambda: False)  # no figures yet
    monkeypatch.setattr("sys.argv", ["byt17", "--quick", "--data", str(data), "--out", str(out)])
    byt17.main()
    table = pd.read_csv(out / runner.TABLE)
    assert table["error"].isna().all(), table["error"].dropna().to_list()
    assert set(table["experiment"]) == {cell.experiment for cell in cells}
    assert table[table["experiment"] == "regression"]["smse"].notna().all()
    everywhere = table[table["experiment"] == "everywhere"]
    assert len(everywhere) == 4
    # Standard EP, which knows nothing of the package: appendix I.5.
    assert_close(everywhere["objective"], everywhere["standard"], 1e-4)
    for name in ("claims", "sets", "hurry", "grid", "synthetic", "inducing", "everywhere", "mnist"):
        assert (out / f"{name}.txt").exists()
    again = ["--table", str(out / runner.TABLE), "--out", str(data / "2")]
    monkeypatch.setattr("sys.argv", ["byt17", *again])
    byt17.main()
    assert (data / "2" / "claims.txt").read_text() == (out / "claims.txt").read_text()


def test_grids(byt17: ModuleType) -> None:
    """No cell twice; the full one is the paper's."""
    for size in SIZES:
        cells = byt17.grid(size)
        assert len(cells) == len(set(cells))
        assert {cell.method for cell in cells} <= set(byt17.baselines.METHODS)
    full = [cell for cell in byt17.grid("full") if cell.experiment == "regression"]
    assert len(full) == 5 * 20 * 6 * 9 and not any(":" in cell.data for cell in full)


def test_wins_ranks_and_intervals(byt17: ModuleType) -> None:
    """Power 0.5 beats 0 in three of four runs, one of them a tie, and 1 in all."""
    summaries = importlib.import_module("examples.papers.summaries")
    values = {0.0: [2.0, 2.0, 2.0, 0.5], 0.5: [1.0, 1.0, 2.0, 1.0], 1.0: [3.0, 3.0, 3.0, 3.0]}
    rows = [
        {"data": f"d{n % 2}", "split": n, "M": 5, "method": "PEP", "alpha": alpha, "smse": value}
        for alpha, column in values.items()
        for n, value in enumerate(column)
    ]
    unfinished = {**rows[0], "split": 9}
    wide = summaries.side_by_side(pd.DataFrame([*rows, unfinished]), "smse")
    assert len(wide) == 4  # the run that other powers have not ended is left out
    found = summaries.wins(wide, "PEP 0.5", "PEP 0")
    assert found[:3] == (2.5, 4, 1)
    assert found.share.value == 2.5 / 4 and found.share.low < 0.5 < found.share.high
    assert summaries.wins(wide, "PEP 0.5", "PEP 1").wins == 4
    assert_close(summaries.mean_interval([1.0, 2.0, 3.0]), [2.0, -0.4841, 4.4841], 1e-4)
    ranks = summaries.mean_ranks(wide)["value"]
    assert list(ranks[["PEP 0", "PEP 0.5", "PEP 1"]]) == [1.625, 1.375, 3.0]
    change, better, sets = summaries.over_sets(wide, "PEP 0.5", "PEP 0")
    assert_close(change.value, np.mean([-0.5, -0.25]))
    assert (better, sets) == (2, 2)


def test_what_is_printed_follows_from_the_table(byt17: ModuleType, tmp_path: Path) -> None:
    """The page of results shows what its command makes of the table beside it."""
    results = EXAMPLES.parent / "docs" / "results"
    table = importlib.import_module("examples.papers.runner").read(results / "byt17.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("examples.papers.summaries.available", lambda: False)
        byt17.byt17_summary.summarise(table, tmp_path)
    printed = {path.name: path.read_text() for path in (results / "byt17").glob("*.txt")}
    assert printed == {path.name: path.read_text() for path in tmp_path.glob("*.txt")}
    assert "claims.txt" in printed


@pytest.mark.slow
def test_figures(byt17: ModuleType, tmp_path: Path) -> None:
    results = EXAMPLES.parent / "docs" / "results"
    table = importlib.import_module("examples.papers.runner").read(results / "byt17.csv")
    byt17.byt17_summary.summarise(table, tmp_path)
    pictures = {path.name for path in (results / "byt17").glob("*.png")}
    assert pictures and pictures == {path.name for path in tmp_path.glob("*.png")}
