"""The benchmark of bounds, on a few rows."""

import numpy as np
import pytest
from helpers import load_example


@pytest.mark.slow
def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    bounds = load_example("benchmarks/bounds.py")
    bounds.main(["generated", "--rows", "20", "--inducing", "4", "--steps", "2", "--repeats", "1"])
    _, line = capsys.readouterr().out.splitlines()
    name, rows, inducing, gpflow, prior, scaled, blocks, *_ = line.split()
    assert (name, rows, inducing) == ("generated", "20", "4")
    assert float(gpflow) == pytest.approx(float(prior), abs=0.011)
    assert float(prior) <= float(scaled) <= float(blocks)


@pytest.mark.slow
def test_regression() -> None:
    bounds = load_example("benchmarks/bounds.py")
    X = np.linspace(-2.0, 2.0, 30)[:, None]
    given = bounds.Problem(X, np.sin(3.0 * X), 4)
    found = bounds.bounds(given, steps=2, repeats=1)
    assert found["GPflow"] == pytest.approx(found["prior"], rel=1e-8)
    assert found["prior"] < found["scaled"] < found["blocks"] < found["log p(y)"]
    assert 0.0 < found["scaled closed"] < found["blocks closed"] < 1.0
    assert found["time"] > 0.0
    with pytest.raises(SystemExit, match="does not exist"):
        bounds.problem("boston", bounds.Path("no such directory"), None, None)
