"""GMRES against dense solutions."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close

from gpflow_pep.engine.numerics import krylov

RNG = np.random.default_rng(0)


def gmres(matrix: Any, right: Any, tolerance: float, most: int = 100) -> krylov._KrylovSolution:
    def times(x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(matrix, x)

    options: dict[str, Any] = {"tolerance": tolerance, "max_products": most}
    return krylov.gmres(times, tf.convert_to_tensor(right), **options)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("size", [1, 2, 12])
def test_solution(size: int, compiled: bool) -> None:
    matrix = np.eye(size) + 0.5 * RNG.standard_normal((size, size))
    right = RNG.standard_normal(size)
    solve = tf.function(gmres, autograph=False) if compiled else gmres
    solution = solve(matrix, right, 1e-13)
    assert_close(solution.x, np.linalg.solve(matrix, right), rtol=1e-9)
    assert 1 <= solution.num_products <= size and solution.residual < 1e-12


def test_residual_is_what_is_left() -> None:
    matrix, right = np.diag(np.linspace(1.0, 50.0, 40)), np.ones(40)
    solution = gmres(matrix, right, 1e-3)
    left = np.linalg.norm(right - matrix @ np.asarray(solution.x)) / np.linalg.norm(right)
    assert_close(solution.residual, left, rtol=1e-6)
    assert left <= 1e-3 and solution.num_products < 40
    few = gmres(matrix, right, 1e-3, most=4)
    assert few.num_products == 4 and few.residual > 1e-3


def test_few_different_eigenvalues_take_few_products() -> None:
    values, right = np.array([1.0, 1.0, 3.0, 3.0, -2.0, -2.0]), RNG.standard_normal(6)
    solution = gmres(np.diag(values), right, 1e-12)
    assert solution.num_products == 3
    assert_close(solution.x, right / values)


def test_flat_directions_are_left_alone() -> None:
    """The solution of minimum norm; where there is none, the residual says so."""
    Q, _ = np.linalg.qr(RNG.standard_normal((8, 8)))
    matrix = (Q * np.r_[0.0, 0.0, np.linspace(0.5, 2.0, 6)]) @ Q.T
    right = matrix @ RNG.standard_normal(8)
    expected = np.linalg.pinv(matrix, rcond=1e-10) @ right
    assert_close(gmres(matrix, right, 1e-11).x, expected)
    assert gmres(matrix, right + Q[:, 0], 1e-11).residual > 0.01


def test_nothing_to_solve() -> None:
    solution, none = (
        gmres(np.eye(3), np.zeros(3), 1e-10),
        gmres(np.zeros((3, 3)), np.ones(3), 1e-10),
    )
    assert solution.num_products == 0 and none.residual == 1.0
    assert not np.any(solution.x) and not np.any(none.x)
