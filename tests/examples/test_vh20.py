"""The experiments of VH20 in small: a cell of each, the waves, and what is made of a table."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf


@pytest.fixture
def vh20(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module("examples.papers.vh20")
    monkeypatch.setattr(module, "waveform", lambda seed, rows: module_waveform(seed, 60))
    module_waveform = importlib.import_module("examples.papers.waveform").waveform
    plane = importlib.import_module("examples.papers.vh20_plane")
    monkeypatch.setattr(plane, "PLACES_ROWS", 20)
    active = importlib.import_module("examples.papers.vh20_active")
    for name, size in {"TRAIN": 20, "POOL": 12, "TEST": 10, "NUM_INDUCING": 3, "SCORED": 1}.items():
        monkeypatch.setattr(active, name, size)
    monkeypatch.setattr(active, "FIRST_STEPS", 1)
    monkeypatch.setattr(active, "STEPS", 1)
    # Compiling takes longer than these few steps.
    monkeypatch.setattr(tf, "function", lambda *given, **options: given[0] if given else _itself)
    importlib.import_module("examples.papers.baselines")._compiled.cache_clear()
    active._learner.cache_clear()
    return module


def _itself(function: Any) -> Any:
    return function


@pytest.mark.parametrize(
    "cell",
    [
        ("uci", "waveform", 0, 20, "PEP", 1.0, 1),
        ("uci", "waveform", 0, 20, "APEP", 0.5, 1),
        ("places", "plane", 0, 3, "PEP", 0.5, 1),
        ("time", "waveform", 0, 3, "ARPEP", 0.5, 2),
        ("active", "waveform", 0, 1, "entropy", 1.0),
    ],
    ids=lambda cell: f"{cell[0]} {cell[4]}",
)
@pytest.mark.near_copies("time *")
def test_a_cell(vh20: ModuleType, cell: tuple[Any, ...], tmp_path: Path) -> None:
    given = vh20.Cell(*cell)
    found = vh20.evaluate(tmp_path, given)
    rows = [found] if isinstance(found, dict) else found
    assert len(rows) == {"uci": 1, "places": 3, "time": 2, "active": 2}[given.experiment]
    for row in rows:
        assert np.all(np.isfinite(list(row.values())))
    if given.experiment == "uci":
        assert rows[0]["num_inducing"] == 4
        assert 0.0 <= rows[0]["error_rate"] <= 1.0
    if given.experiment == "active":
        assert [row["labels"] for row in rows] == [0, 1]


def test_grids(vh20: ModuleType) -> None:
    quick, reduced, full = (vh20.grid(size) for size in ("quick", "reduced", "full"))
    assert len(quick) < len(reduced) < len(full)
    for cells in (quick, reduced, full):
        assert len(set(cells)) == len(cells)
        assert {cell.experiment for cell in cells} == set(vh20.EXPERIMENTS)


def test_waves(vh20: ModuleType) -> None:
    X, classes = importlib.import_module("examples.papers.waveform").waveform(0, 6000)
    assert X.shape == (6000, 21)
    wave = [np.maximum(6.0 - np.abs(np.arange(1, 22) - peak), 0.0) for peak in (7, 15, 11)]
    for number, (one, other) in enumerate([(0, 1), (0, 2), (1, 2)]):
        mean = X[classes == number].mean(axis=0)
        np.testing.assert_allclose(mean, 0.5 * (wave[one] + wave[other]), atol=0.25)


def scores() -> pd.DataFrame:
    """A table in which the entropy is better than chance by 0.02, and alpha 0 worse by 1 nat."""
    random, rows = np.random.default_rng(0), []
    for split in range(4):
        noise = 0.001 * random.standard_normal()
        common = {"experiment": "uci", "data": "glass", "split": split, "M": 5, "seconds": 2.0}
        for method, alpha, nlpd in (("SVGP", np.nan, 1.8), ("PEP", 0.5, 0.8), ("PEP", 1.0, 0.9)):
            own = {"nlpd": nlpd + noise, "error_rate": 0.3, "left_out": nlpd}
            rows.append({**common, "method": method, "alpha": alpha, **own})
        for rule, error in (("entropy", 0.18), ("random", 0.2 + noise)):
            for labels in (0, 5, 10):
                own = {"error_rate": error, "labels": labels, "alpha": 0.5, "method": rule}
                rows.append({**common, "experiment": "active", "data": "waveform", **own})
    return pd.DataFrame(rows)


def test_summary(vh20: ModuleType, tmp_path: Path) -> None:
    summary = importlib.import_module("examples.papers.vh20_summary")
    summary.summarise(scores(), tmp_path)
    text = {path.stem: path.read_text() for path in tmp_path.glob("*.txt")}
    (line,) = [line for line in text["nlpd"].splitlines() if "PEP 0.5" in line]
    assert "0.81 ± 0.02" in line, "the paper's"
    assert float(line.split()[-1]) == pytest.approx(-0.01, abs=0.002)
    (line,) = [line for line in text["zero"].splitlines() if "glass" in line]
    assert "+1.000 [+1.000, +1.000]" in line
    assert "+1.24" in line, "the paper's difference"
    assert "100% chosen" in text["left_out"]
    assert "+0.020" in text["active"]
    pytest.importorskip("matplotlib")
    assert (tmp_path / "active.png").stat().st_size > 0
