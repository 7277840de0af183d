"""Examples that redo figures of the papers: with a basis point at every row all is exact."""

from pathlib import Path

import gpflow
import numpy as np
import pytest
from helpers import assert_close, load_example, regression_problem

PROBLEM = regression_problem(num_data=14)
LABELS = (PROBLEM.Y > 0.4).astype(float)


def test_basis_points() -> None:
    example = load_example("basis_points.py")
    Ynew = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0])[:, None]
    problem = example.Problem((PROBLEM.X, LABELS), (PROBLEM.Xnew, Ynew))
    kernel, likelihood = PROBLEM.kernel(), gpflow.likelihoods.Bernoulli()
    result = example.compare(problem, kernel, likelihood, (len(PROBLEM.X),), 0)
    assert result.shape == (1 + len(example.METHODS), 1, 2)
    assert_close(result, np.broadcast_to(result[0], result.shape), 1e-4, scale=1.0)


@pytest.mark.slow
def test_titsias() -> None:
    example = load_example("titsias.py")
    problem = example.Problem(PROBLEM.data, (PROBLEM.Xnew, np.sin(PROBLEM.Xnew[:, :1])))
    optimize = example.lbfgs(5)
    exact = example.exact_regression(problem.train, optimize)
    values = example.fixed_hyperparameters(problem, exact, (len(PROBLEM.X),), 0, optimize)
    assert values.shape == (3 * (len(example.RULES) + 1) + 1, 1)
    # What Titsias observes of SPGP: trained, it leaves the exact posterior that it started from.
    *others, spgp, subset = np.abs(values[:, 0])
    assert np.max([*others, subset]) < 1e-3 < spgp
    of_exact, *sparse = example.all_optimised(problem, exact, (4,), 0, optimize)
    assert len(sparse) == 3 and np.all(np.isfinite([of_exact, *sparse]))
    assert sparse[0][2] < of_exact[2]  # the bound


def test_split_and_rows() -> None:
    example = load_example("data_sets.py")
    dataset = example.Dataset(PROBLEM.X, PROBLEM.Y)
    problem = example.random_split(dataset, 0.3, 0)
    (X, Y), (Xnew, _) = problem
    assert len(X) == 9 and len(Xnew) == 5
    for part in (X, Y):
        assert_close(part.mean(axis=0), np.zeros(part.shape[1]), 1e-12, scale=1.0)
        assert_close(part.std(axis=0), np.ones(part.shape[1]))
    chosen = example.rows_of((X, Y), X[[4, 1]])
    assert np.array_equal(chosen[0], X[[4, 1]]) and np.array_equal(chosen[1], Y[[4, 1]])
    with pytest.raises(SystemExit, match=r"Name the directory that holds it with --data"):
        example.read(Path("nowhere"), "boston")
