"""Quality against time: what a curve records, the table of the best, and runs that are
short.
"""

import itertools
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from examples.benchmarks import quality, quality_curve
from examples.benchmarks.quality_curve import Curve, Over, Point
from examples.papers.runner import Cell


def spend(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_scores_take_no_time_of_the_run() -> None:
    curve = Curve(1.0, lambda value: {"value": value})

    def predict():
        return (2.0, spend(0.1))[:1]

    curve.look(u=predict)
    curve.look(u=predict)  # it is due when the time has grown
    spend(0.08)
    curve.look(u=predict, near=predict)
    assert [point.kind for point in curve.points] == ["u", "u", "near"]
    assert all(point.scores == {"value": 2.0} for point in curve.points)
    assert (
        curve.points[0].processor < 0.01 and 0.08 <= curve.points[-1].processor < 0.12
    )
    assert curve.points[-1].wall >= 0.08


def test_the_time_is_over_with_a_last_point() -> None:
    curve = Curve(0.01, lambda value: value)
    spend(0.02)
    with pytest.raises(Over):
        curve.look(u=lambda: (1.0,))
    assert len(curve.points) == 1


def test_a_longer_run_should_end_in_time() -> None:
    for *seconds, permitted in ([1], [5.0, 1], [11.0, 0], [3.0, 4.0, 1], [3.0, 6.0, 0]):
        curve = Curve(10.0, lambda value: value)
        curve.points = [Point(each, each, "u", {}) for each in seconds]
        assert curve.permits_longer() is bool(permitted)


def test_scores_of_numbers_and_of_classes() -> None:
    Y = np.array([[0.0], [1.0]])
    numbers = quality.scores(Y, False, Y, np.ones_like(Y))
    assert numbers == pytest.approx({"nlpd": 0.5 * np.log(2.0 * np.pi), "loss": 0.0})
    classes = quality.scores(Y, True, np.array([[0.25], [0.25]]), Y)
    assert classes == pytest.approx({"nlpd": -0.5 * np.log(0.75 * 0.25), "loss": 0.5})


@pytest.fixture
def found() -> pd.DataFrame:
    """Two runs of ours, of which one gets worse, and two of others."""
    points = [
        *(("PEP", 50, "u", 0.5, 0.5, 0.9), ("PEP", 50, "u", 0.5, 2.0, 0.3)),
        *(("PEP", 50, "u", 0.5, 8.0, 0.4), ("PEP", 100, "near", 0.5, 2.5, 0.35)),
        *(
            ("GPflow SGPR", 50, "u", np.nan, 0.9, 0.7),
            ("GPflow SGPR", 50, "u", np.nan, 9.0, 0.1),
        ),
        ("HistGB 0.1", 0, "u", np.nan, 0.2, 0.8),
    ]
    columns = ["method", "M", "kind", "alpha", "processor", "nlpd"]
    table = pd.DataFrame(points, columns=columns).assign(
        data="friedman/300", experiment="10 s"
    )
    return table.assign(loss=table["nlpd"] / 2.0)


def test_a_run_is_judged_by_the_last_that_it_had(found: pd.DataFrame) -> None:
    fronts = quality.front(found)
    nlpd = fronts[fronts["score"] == "nlpd"].set_index("seconds")
    assert list(nlpd.index) == [1.0, 3.0, 10.0]  # none went on for 30 seconds
    np.testing.assert_allclose(nlpd["ours"], [0.9, 0.3, 0.35])
    np.testing.assert_allclose(nlpd["others"], [0.7, 0.7, 0.1])
    np.testing.assert_allclose(nlpd["difference"], [0.2, -0.4, 0.25])
    assert nlpd["ours_run"].tolist()[1:] == [
        "PEP 0.5, M = 50",
        "PEP 0.5 + near rows, M = 100",
    ]
    assert nlpd["others_run"].tolist()[0] == "GPflow SGPR, M = 50"
    lines = list(quality.lines(fronts))
    assert lines[0] == "friedman/300, test NLPD" and "-0.4000" in lines[3]


def test_a_time_before_all_points_has_no_score(found: pd.DataFrame) -> None:
    fronts = quality.front(found.assign(processor=found["processor"] + 2.0))
    first, *_ = fronts.itertuples()
    assert list(quality.lines(fronts))[2].split() == ["1", "-", "-"]
    assert first.seconds == 1.0 and first.ours_run == "" and np.isnan(first.others)


def test_figures(found: pd.DataFrame, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    quality.summarise(found, tmp_path)
    assert (tmp_path / "friedman_300.png").stat().st_size > 0
    assert (tmp_path / "front.txt").read_text(
        encoding="utf-8"
    ) in capsys.readouterr().out + "\n"


def test_sets_and_methods() -> None:
    assert quality.parts("kin40k") == ("kin40k", 10_000, False)
    assert quality.parts("late/500") == ("late", 500, True)
    cells = quality.grid(
        ["kin8nm/300", "friedman/1000000"], ["mix", "ARPEP natural 0.03"], [5.0]
    )
    expected = {("kin8nm/300", "mix"), ("friedman/1000000", "ARPEP natural 0.03")}
    assert {(cell.data, cell.method) for cell in cells} == expected
    assert max(cell.M for cell in cells if cell.method == "mix") == 100
    one, *others = quality.grid(["kin40k/10000"], ["GPflow SGPR 400"], [5.0])
    assert (one.method, one.M) == ("GPflow SGPR", 400) and not others
    for name in quality.SETS:
        cells = quality.grid([name], [], [5.0])
        assert (
            len(set(cells))
            == len(cells)
            > len(quality.grid([name], [], [5.0], most=14))
            > 12
        )


def evaluate(method: str, M: int, alpha: float | None, limit: float) -> pd.DataFrame:
    cell = Cell(f"{limit:g} s", "friedman/300", 0, M, method, alpha)
    return pd.DataFrame(quality.evaluate(Path(), "python", cell))


@pytest.mark.near_copies("run0")
@pytest.mark.parametrize("run", [("HistGB 0.1", 0, None, 1.0), ("PEP", 20, 0.5, 20.0)])
def test_methods_learn(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on when it is read: a busy machine has as many points as any
    other.
    """
    clock = itertools.count()
    monkeypatch.setattr(quality_curve.time, "process_time", lambda: 0.1 * next(clock))
    points = evaluate(*run)
    assert (points["processor"].diff()[1:] >= 0.0).all()
    assert points["nlpd"].iloc[-1] < points["nlpd"].iloc[0] < 1.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, M, alpha",
    [
        ("GPflow SGPR", 20, None),
        ("GPflow SVGP 0.03", 20, None),
        ("near", 20, 0.5),
        ("ARPEP natural 0.03", 20, 0.5),
        ("ARPEP 0.03", 20, 0.5),
        ("PEPRegressor", 0, None),
        ("mix", 20, None),
    ],
)
def test_other_methods_learn(method: str, M: int, alpha: float | None) -> None:
    assert evaluate(method, M, alpha, 4.0)["loss"].iloc[-1] < 0.5


def test_what_is_not_installed_is_said(tmp_path: Path) -> None:
    python = partial(Cell, "1 s", "friedman/300", 0, 20)
    assert "--gpjax-python" in quality.skipped(python("GPJax SGPR"), "false")
    assert quality.skipped(python("PEP"), "false") == ""
