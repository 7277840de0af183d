"""The minibatch example: two and more classes, from a file too."""

import argparse
import gzip
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from helpers import load_example

OPTIONS = argparse.Namespace(
    inducing=6, alpha=0.5, batch_size=20, iterations=15, steps=60, rate=0.05
)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_example("minibatch.py")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three classes, one beside the other."""
    x = np.random.default_rng(0).uniform(-3.0, 3.0, (150, 2))
    rows = np.hstack([x, np.digitize(x[:, :1], [-1.0, 1.0])])
    with gzip.open(tmp_path / "three.csv.gz", "wt") as file:
        np.savetxt(file, rows, delimiter=",", header="a,b,y", comments="", fmt="%.8g")
    return tmp_path


def test_problem_of_a_file(example: ModuleType, directory: Path) -> None:
    problem = example.load("three", directory)
    assert problem.num_classes == 3
    assert len(problem.X) == 120 and len(problem.X_test) == 30
    np.testing.assert_allclose(problem.X.mean(axis=0), 0.0, atol=1e-12)


def test_no_directory(example: ModuleType) -> None:
    with pytest.raises(SystemExit, match="does not exist"):
        example.load("three", Path("nowhere"))


@pytest.mark.slow
def test_several_classes(example: ModuleType, directory: Path) -> None:
    problem = example.load("three", directory)
    found = example.scores(example.arpep_minibatch(problem, OPTIONS), problem)
    assert found["error"] < 0.3  # chance is 0.67
    assert found["nlpd"] < np.log(3.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["three", "generated"])
def test_all_methods(example: ModuleType, directory: Path, name: str) -> None:
    problem = example.load(name, directory)
    chance = 1.0 - 1.0 / problem.num_classes
    for train in example.METHODS.values():
        found = example.scores(train(problem, OPTIONS), problem)
        assert found["error"] < 0.5 * chance
        assert found["nlpd"] < np.log(problem.num_classes)
