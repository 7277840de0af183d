"""The table of methods with and without neighbours, on a few rows."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from helpers import load_example


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_example("neighbours.py")


@pytest.mark.slow
def test_the_table(
    example: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("matplotlib")
    figure = tmp_path / "figure.png"
    arguments = "--rows 60 --inducing 5 --neighbours 4 --steps 3 --methods SGPR PEP:1 near:1"
    monkeypatch.setattr(sys, "argv", ["neighbours.py", *arguments.split(), "--out", str(figure)])
    example.main()
    title, heading, *rows = capsys.readouterr().out.splitlines()
    assert "60 rows, 60 held out, D = 3, 4 neighbours" in title
    assert heading.split()[:3] == ["M", "SMSE", "NLPD"]
    assert [row.split()[0] for row in rows] == ["SGPR", "PEP:1", "near:1"]
    assert all(int(row.split()[-1]) == 3 for row in rows)
    assert figure.stat().st_size > 0


def test_fixed_hyperparameters_are_the_same_for_all(example: ModuleType) -> None:
    problem = example.load("generated", Path("."), 40)
    start = example.start(problem, fixed=True)
    runs = [
        example.evaluate(
            method,
            example.create(method, problem, problem.train[0][:5], start, 4),
            problem,
            lambda model: None,
        )
        for method in ("SGPR", "near:0")
    ]
    assert runs[0].noise == pytest.approx(runs[1].noise) == pytest.approx(float(start.noise))
    assert runs[0].objective < runs[1].objective  # bounds of the same evidence
    assert runs[0].seconds == runs[1].seconds == 0.0
