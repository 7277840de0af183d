"""The table of methods with and without neighbours, on a few rows."""

import sys
from pathlib import Path
from types import ModuleType

import gpflow
import numpy as np
import pytest
from helpers import load_example

import gpflow_pep as pep


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_example("neighbours.py")


def test_prediction_by_all_rows_is_the_exact_process(example: ModuleType) -> None:
    """Whatever the inducing inputs are, where all rows are neighbours and alpha is 1."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (20, 2))
    Y = np.sin(3.0 * X[:, :1]) + 0.1 * rng.standard_normal((20, 1))
    kernel = gpflow.kernels.Matern32(lengthscales=[0.5, 1.0])
    options = {"noise_variance": 0.05, "mean_function": gpflow.functions.Constant(0.3)}
    model = pep.models.PEPRegression(
        (X, Y), kernel, X[:3].copy(), alpha=1.0, neighbours=19, **options
    )
    model_of_all = gpflow.models.GPR((X, Y), kernel, **options)
    Xnew = rng.uniform(-1.0, 1.0, (7, 2))
    # 19 of 20 rows: the one that is left out is the farthest.
    mean, variance = example.predict_f(model, Xnew)
    expected_mean, expected_variance = model_of_all.predict_f(Xnew)
    np.testing.assert_allclose(mean, expected_mean, atol=2e-2)
    np.testing.assert_allclose(variance, expected_variance, atol=2e-2)


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
