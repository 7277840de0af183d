"""The papers' experiments and the study of defaults in small: cells, grids, tables and
pages.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from helpers import EXAMPLES, assert_close

from examples.papers import (
    baselines,
    byt17,
    byt17_summary,
    elsewhere,
    recheck,
    runner,
    study,
    study_summary,
    summaries,
    vh20,
    vh20_active,
    vh20_plane,
    vh20_powers,
    vh20_summary,
    waveform,
)
from examples.papers.runner import Cell

RESULTS = EXAMPLES.parent / "docs" / "results"
SIZES = ("quick", "reduced", "full")
TABLES = {
    "byt17": (byt17_summary, {"claims.txt"}),
    "vh20": (vh20_summary, {"nlpd.txt", "powers.txt", "time.txt"}),
}


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "available", lambda: False)


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("*.txt")}


@pytest.mark.near_copies("byt17")
@pytest.mark.parametrize("name", TABLES)
def test_what_a_page_shows_follows_from_its_table(
    name: str, tmp_path: Path, no_pictures: None
) -> None:
    summary, some = TABLES[name]
    summary.summarise(runner.read(RESULTS / f"{name}.csv"), tmp_path)
    printed = texts(RESULTS / name)
    assert printed == texts(tmp_path) and some <= set(printed)


@pytest.mark.slow
def test_pictures_of_byt17(tmp_path: Path) -> None:
    byt17_summary.summarise(runner.read(RESULTS / "byt17.csv"), tmp_path)
    pictures = {path.name for path in (RESULTS / "byt17").glob("*.png")}
    assert pictures and pictures == {path.name for path in tmp_path.glob("*.png")}


def test_grids() -> None:
    """No cell twice, each larger than the one before; BYT17's full one is the
    paper's.
    """
    for module in (byt17, vh20):
        grids = [module.grid(size) for size in SIZES]
        assert len(grids[0]) < len(grids[1]) < len(grids[2])
        for cells in grids:
            assert len(cells) == len(set(cells))
            methods, names = (
                {getattr(c, n) for c in cells} for n in ("method", "experiment")
            )
            assert names == {*vh20.EXPERIMENTS} or module is byt17
            assert methods <= {*baselines.METHODS} or module is vh20
    full = [cell for cell in byt17.grid("full") if cell.experiment == "regression"]
    assert len(full) == 5 * 20 * 6 * 9 and not any(":" in cell.data for cell in full)


def test_names_that_no_cell_has_show_the_names_of_the_grid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["byt17", "--quick", "--sets", "boston", "--out", "unused"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit, match=r"Data sets: .*\bboston:400\b"):
        byt17.main()


@pytest.mark.slow
@pytest.mark.parametrize(
    "script, only, sets",
    [("byt17", "inducing", "banana:400"), ("vh20", "places", "plane")],
)
def test_two_processes(
    script: str, only: str, sets: str, data_directory: Path, tmp_path: Path
) -> None:
    """What the command line hands to a process must pickle, from ``__main__`` too."""
    options = f"{script} --quick --only {only} --sets {sets} --jobs 2".split()
    folders = "--data", str(data_directory), "--out", str(tmp_path)
    command = [sys.executable, "-m", "examples", *options, *folders]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES.parent)
    assert ended.returncode == 0, ended.stderr
    table = pd.read_csv(tmp_path / "results.csv")
    assert table["error"].isna().all() and table["method"].eq("PEP").all()
    assert (tmp_path / f"{only}.txt").exists()


# Bui, Yan & Turner (2017).


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


@pytest.mark.slow
def test_a_cell_of_each_experiment_of_byt17(
    data: Path, monkeypatch: pytest.MonkeyPatch, no_pictures: None
) -> None:
    """From the command line to the tables; cells share compiled models where
    they can.
    """
    sets = {
        "regression": "boston:30",
        "classification": "banana:30",
        "inducing": "banana:30",
    }
    sets |= {"mnist": "mnist:30", "synthetic": "gp:30", "baselines": "boston:30"}
    cells = [Cell(name, rows, 0, 4, "PEP", 0.5, 2) for name, rows in sets.items()]
    cells.append(Cell("everywhere", "ionosphere:20", 0, 2, "PEP", 1.0))
    names = {cell.experiment for cell in cells}
    assert names == {cell.experiment for size in SIZES for cell in byt17.grid(size)}
    out = data / "out"
    again = data / "2"
    monkeypatch.setattr(byt17, "grid", lambda size: cells)
    monkeypatch.setattr(
        "sys.argv", ["byt17", "--quick", "--data", str(data), "--out", str(out)]
    )
    byt17.main()
    table = pd.read_csv(out / runner.TABLE)
    assert table["error"].isna().all(), table["error"].dropna().to_list()
    assert set(table["experiment"]) == names
    assert table[table["experiment"] == "regression"]["smse"].notna().all()
    everywhere = table[table["experiment"] == "everywhere"]
    assert len(everywhere) == 4
    # Standard EP, which knows nothing of the package: appendix I.5.
    assert_close(everywhere["objective"], everywhere["standard"], 1e-4)
    for name in (
        "claims",
        "sets",
        "hurry",
        "grid",
        "synthetic",
        "inducing",
        "everywhere",
        "mnist",
    ):
        assert (out / f"{name}.txt").exists()
    table_of = ["byt17", "--table", str(out / runner.TABLE), "--out", str(again)]
    monkeypatch.setattr("sys.argv", table_of)
    byt17.main()
    assert (again / "claims.txt").read_text() == (out / "claims.txt").read_text()


def test_wins_ranks_and_intervals() -> None:
    """Power 0.5 beats 0 in three of four runs, one of them a tie, and 1 in all."""
    values = {
        0.0: [2.0, 2.0, 2.0, 0.5],
        0.5: [1.0, 1.0, 2.0, 1.0],
        1.0: [3.0, 3.0, 3.0, 3.0],
    }
    rows = [
        {
            "data": f"d{n % 2}",
            "split": n,
            "M": 5,
            "method": "PEP",
            "alpha": alpha,
            "smse": value,
        }
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


# Villacampa-Calvo and Hernández-Lobato (2020).


@pytest.fixture
def small_vh20(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    waves = waveform.waveform
    monkeypatch.setattr(vh20, "waveform", lambda seed, rows: waves(seed, 60))
    monkeypatch.setattr(vh20_plane, "PLACES_ROWS", 20)
    sizes = {"TRAIN": 20, "POOL": 12, "TEST": 10, "NUM_INDUCING": 3, "SCORED": 1}
    for name, size in {**sizes, "FIRST_STEPS": 1, "STEPS": 1}.items():
        monkeypatch.setattr(vh20_active, name, size)
    # Compiling takes longer than few steps.
    if not request.node.get_closest_marker("slow"):

        def plain(*given, **_):
            return given[0] if given else lambda function: function

        monkeypatch.setattr(tf, "function", plain)
    baselines._compiled.cache_clear()
    vh20_active._learner.cache_clear()


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
def test_a_cell_of_vh20(
    small_vh20: None, cell: tuple[Any, ...], tmp_path: Path
) -> None:
    given = Cell(*cell)
    found = vh20.evaluate(tmp_path, given)
    rows = [found] if isinstance(found, dict) else found
    assert (
        len(rows) == {"uci": 1, "places": 3, "time": 2, "active": 2}[given.experiment]
    )
    assert all(np.all(np.isfinite(list(row.values()))) for row in rows)
    if given.experiment == "uci":
        assert rows[0]["num_inducing"] == 4 and 0.0 <= rows[0]["error_rate"] <= 1.0
    if given.experiment == "active":
        assert [row["labels"] for row in rows] == [0, 1]


def test_waves() -> None:
    X, classes = waveform.waveform(0, 6000)
    assert X.shape == (6000, 21)
    wave = [
        np.maximum(6.0 - np.abs(np.arange(1, 22) - peak), 0.0) for peak in (7, 15, 11)
    ]
    for number, (one, other) in enumerate([(0, 1), (0, 2), (1, 2)]):
        mean = X[classes == number].mean(axis=0)
        np.testing.assert_allclose(mean, 0.5 * (wave[one] + wave[other]), atol=0.25)


def test_summary_of_vh20(tmp_path: Path) -> None:
    """The entropy is better than chance by 0.02, and alpha 0 worse by 1 nat."""
    random = np.random.default_rng(0)
    rows = []
    for split in range(4):
        noise = 0.001 * random.standard_normal()
        common = {
            "experiment": "uci",
            "data": "glass",
            "split": split,
            "M": 5,
            "seconds": 2.0,
        }
        for method, alpha, nlpd in (
            ("SVGP", np.nan, 1.8),
            ("PEP", 0.5, 0.8),
            ("PEP", 1.0, 0.9),
        ):
            own = {"nlpd": nlpd + noise, "error_rate": 0.3, "left_out": nlpd}
            rows.append({**common, "method": method, "alpha": alpha, **own})
        for rule, error in (("entropy", 0.18), ("random", 0.2 + noise)):
            for labels in (0, 5, 10):
                own = {
                    "error_rate": error,
                    "labels": labels,
                    "alpha": 0.5,
                    "method": rule,
                }
                rows.append(
                    {**common, "experiment": "active", "data": "waveform", **own}
                )
    vh20_summary.summarise(pd.DataFrame(rows), tmp_path)
    text = texts(tmp_path)
    (line,) = [line for line in text["nlpd.txt"].splitlines() if "PEP 0.5" in line]
    assert "0.81 ± 0.02" in line, "the paper's"
    assert float(line.split()[-1]) == pytest.approx(-0.01, abs=0.002)
    (line,) = [line for line in text["zero.txt"].splitlines() if "glass" in line]
    assert "+1.000 [+1.000, +1.000]" in line and "+1.24" in line, (
        "the paper's difference"
    )
    assert "100% chosen" in text["left_out.txt"] and "+0.020" in text["active.txt"]
    pytest.importorskip("matplotlib")
    assert (tmp_path / "active.png").stat().st_size > 0


def test_powers_of_vh20() -> None:
    """Both are best at 0.5, and ARPEP before PEP at 1; PEP has a split that ARPEP
    lacks.
    """
    nlpd = {
        ("PEP", 0.5): 0.1,
        ("PEP", 1.0): 0.4,
        ("ARPEP", 0.5): 0.3,
        ("ARPEP", 1.0): 0.35,
    }
    scores = pd.DataFrame(
        {"data": "wine", "M": 5, "split": split, "method": method, "alpha": alpha}
        | {"nlpd": value + 9.0 * (split == 3), "error_rate": 0.1}
        for split in range(4)
        for (method, alpha), value in nlpd.items()
        if method == "PEP" or split < 3
    )

    def ranks(text: str) -> dict[str, float]:
        lines = [line.split() for line in text.splitlines() if line.endswith("3 runs")]
        return {" ".join(line[:2]): float(line[2]) for line in lines}

    text, _ = vh20_powers.powers(scores).split("error, mean ± s.e.")
    assert (
        "PEP           0.100 ± 0.000" in text and "ARPEP         0.300 ± 0.000" in text
    )
    of_powers, of_methods = text.split("same power")
    assert ranks(of_powers) == {
        "PEP 0.5": 1.0,
        "PEP 1": 2.0,
        "ARPEP 0.5": 1.0,
        "ARPEP 1": 2.0,
    }
    assert ranks(of_methods) == {
        "PEP 0.5": 1.0,
        "PEP 1": 2.0,
        "ARPEP 0.5": 2.0,
        "ARPEP 1": 1.0,
    }
    pytest.importorskip("matplotlib")
    panels = vh20_powers.draw_powers(scores).axes
    # The scores of both methods.
    assert [len(axes.lines) for axes in panels[1::2]] == [
        2,
        2,
    ]
    assert panels[1].lines[0].get_ydata() == pytest.approx([0.1, 0.4])


# The study of defaults.


def of_study(data: str, experiment: str = "regression") -> list[dict[str, Any]]:
    return study.evaluate(Cell(experiment, data, 0, 5, "all rules"), Path())


def test_the_grid_of_the_study_has_enough_sets() -> None:
    cells = study.grid("reduced")
    number = pd.Series([c.experiment for c in cells if c.split == 0]).value_counts()
    least = {"regression": 12, "binary": 8, "classes": 5, "counts": 2}
    assert all(number[experiment] >= least[experiment] for experiment in least)
    assert len(study.grid("quick")) == 6


@pytest.mark.parametrize("name", ["diabetes", "friedman1", "friedman2", "friedman3"])
def test_rows_are_split_and_standardised(name: str) -> None:
    problem = study.problem_of(
        Cell("regression", f"{name}:100", 0, 5, "all rules"), Path()
    )
    X, Y = problem.train
    assert len(X) == len(Y) == 100 and len(problem.test[0]) > 80
    rows = {row.tobytes() for row in X}
    assert not any(row.tobytes() in rows for row in problem.test[0])
    np.testing.assert_allclose(Y.mean(), 0.0, atol=0.3)


def test_the_summary_compares_with_the_reference(tmp_path: Path, capsys: Any) -> None:
    rules = {
        **{
            "evidence 0": [1.5, 2.1],
            "evidence .5": [1.0, 2.0],
            "evidence .75": [1.2, 2.3],
        },
        **{
            "evidence 1": [1.1, 1.9],
            "evidence mix": [0.5, 2.2],
            "PEPRegressor()": [0.9, 1.7],
        },
    }
    rows = [
        {
            "experiment": "regression",
            "data": data,
            "split": 0,
            "rule": rule,
            "N": 10,
            "nlpd": value,
        }
        for rule, values in rules.items()
        for data, value in zip("ab", values)
    ]
    study_summary.summarise(pd.DataFrame(rows), tmp_path)
    text = (tmp_path / "study.txt").read_text()
    assert text in capsys.readouterr().out
    summary, _ = text.split("NLPD of each set")
    summary, beside = summary.split("NLPD of other rules less that of PEPRegressor()")
    lines = {line[:22].strip(): line[22:].split() for line in summary.splitlines()}
    assert [float(word) for word in lines["evidence mix"]] == [
        2,
        1.35,
        -0.15,
        0.35,
        1,
        3,
    ]
    lines_beside = {
        line[:35].strip(): line[35:].split() for line in beside.splitlines()
    }
    # Of -0.4 and 0.5; Student's t with one degree of freedom has 12.706. One split
    # each.
    assert lines_beside["evidence mix"] == [
        "+0.050",
        "[-5.668,",
        "+5.768]",
        "2",
        "1",
        "1",
    ]
    # The powers that were best are .5 and 1.
    assert [float(word) for word in lines["best power, hindsight"][:3]] == [
        2,
        1.45,
        -0.05,
    ]
    assert (tmp_path / "study.png").stat().st_size > 10_000


@pytest.mark.slow
def test_every_rule_gives_scores() -> None:
    rows = of_study("diabetes:60")
    names = {"evidence .5", "evidence mix", "exact GP, SE", "boosted trees"}
    assert names <= {row["rule"] for row in rows}
    assert all(0.0 <= row["coverage"] <= 1.0 and row["width"] > 0.0 for row in rows)
    assert all(np.isfinite(row["nlpd"]) for row in rows if "quant" not in row["rule"])
    assert all(row["error_rate"] < 0.5 for row in of_study("moons:60", "binary"))
    rows = of_study("diabetes:30", "points")
    assert [row["rule"] for row in rows] == [
        f"M = {M}" for M in (25, 50, 100, 200, 400)
    ]
    assert all(np.isfinite(row["optimism"]) for row in rows)
    rows = of_study("bumps:60", "counts")
    assert all(np.isfinite(row["nlpd"]) and row["rmse"] < 20.0 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, ours", [("friedman1", "PEPRegressor()"), ("moons", "PEPClassifier()")]
)
def test_the_estimator_of_another_version_has_the_same_row(
    name: str, ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPFLOW_PEP_EARLIER", sys.executable)
    rows = {row["rule"]: row for row in of_study(f"{name}:60", "defaults")}
    np.testing.assert_allclose(rows["0.3"]["nlpd"], rows[ours]["nlpd"], rtol=1e-8)
    assert rows["0.3"]["seconds"] > 0.0


def test_predictions_of_another_version_are_of_its_estimator() -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((30, 1))
    X_new = random.standard_normal((5, 1))
    y = np.sin(X[:, 0]) + 0.1 * random.standard_normal(30)
    problem = {"X": X, "y": y, "X_new": X_new, "y_new": np.sin(X_new[:, 0])}
    answer = elsewhere.predict("earlier", {**problem, "classes": False})
    assert np.all(
        (answer["ends"][:, 0] < answer["mean"])
        & (answer["mean"] < answer["ends"][:, 1])
    )
    assert answer["density"].shape == (5,)


def test_old_cells_are_computed_again(tmp_path: Path) -> None:
    cells = [Cell("classification", "pima", split, 10, "PEP", 0.5) for split in (0, 1)]
    journal = runner.Journal(tmp_path / "old.jsonl")
    for cell in cells:
        rows = [{"nlpd": 0.5, "error_rate": 0.25, "seconds": 1.0}]
        journal.append(cell, {"rows": rows, "error": "", "versions": "python, old"})
    journal.append(Cell("classification", "pima", 2, 10, "PEP"), {"error": "failed"})
    assert recheck.drawn(journal, 60, 0) == cells
    assert recheck.drawn(journal, 1, 0) == recheck.drawn(journal, 1, 0)

    def evaluate(cell: Cell) -> runner.Outcome:
        return {"nlpd": 0.5 + 0.1 * cell.split, "error_rate": 0.25}

    first, second = recheck.recheck(journal, cells, evaluate, tmp_path / "new")
    assert first.differences == {"nlpd": 0.0, "error_rate": 0.0}
    assert_close(second.differences["nlpd"], 0.1)
    more = [{"nlpd": 0.5}, {"nlpd": 0.5}]
    assert recheck.largest_differences(more[:1], more) == {"nlpd": np.inf}
