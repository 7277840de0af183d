"""GMRES against dense solutions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close

from gpflow_pep.engine.numerics import krylov

RNG = np.random.default_rng(0)


def gmres(times: Callable[[Any], Any], right: Any, **options: Any) -> krylov._KrylovSolution:
    return krylov.gmres(times, tf.constant(right), **options)


def product(matrix: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    return lambda x: tf.linalg.matvec(matrix, x)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("size", [1, 2, 12])
def test_solution(size: int, compiled: bool) -> None:
    matrix = np.eye(size) + 0.5 * RNG.standard_normal((size, size))
    right = RNG.standard_normal(size)

    def solve() -> krylov._KrylovSolution:
        return gmres(product(matrix), right, tolerance=1e-13, max_products=100)

    solution = tf.function(solve, autograph=False)() if compiled else solve()
    assert_close(solution.x, np.linalg.solve(matrix, right), rtol=1e-9)
    assert 1 <= solution.num_products <= size and solution.residual < 1e-12


def test_residual_is_what_is_left() -> None:
    matrix, right = np.diag(np.linspace(1.0, 50.0, 40)), np.ones(40)
    solution = gmres(product(matrix), right, tolerance=1e-3, max_products=100)
    left = np.linalg.norm(right - matrix @ np.asarray(solution.x)) / np.linalg.norm(right)
    assert_close(solution.residual, left, rtol=1e-6)
    assert left <= 1e-3 and solution.num_products < 40
    few = gmres(product(matrix), right, tolerance=1e-3, max_products=4)
    assert few.num_products == 4 and few.residual > 1e-3


def test_few_different_eigenvalues_take_few_products() -> None:
    matrix, right = np.diag([1.0, 1.0, 3.0, 3.0, -2.0, -2.0]), RNG.standard_normal(6)
    solution = gmres(product(matrix), right, tolerance=1e-12, max_products=100)
    assert solution.num_products == 3
    assert_close(solution.x, right / np.diag(matrix))


def test_flat_directions_are_left_alone() -> None:
    """The solution of minimum norm; where there is none, the residual says so."""
    Q, _ = np.linalg.qr(RNG.standard_normal((8, 8)))
    matrix = (Q * np.r_[0.0, 0.0, np.linspace(0.5, 2.0, 6)]) @ Q.T
    right = matrix @ RNG.standard_normal(8)
    solution = gmres(product(matrix), right, tolerance=1e-11, max_products=100)
    assert_close(solution.x, np.linalg.pinv(matrix, rcond=1e-10) @ right)
    outside = gmres(product(matrix), right + Q[:, 0], tolerance=1e-11, max_products=100)
    assert outside.residual > 0.01


def test_nothing_to_solve() -> None:
    solution = gmres(lambda x: x, np.zeros(3), tolerance=1e-10, max_products=10)
    assert solution.num_products == 0 and not np.any(solution.x)
    none = gmres(lambda x: 0.0 * x, np.ones(3), tolerance=1e-10, max_products=10)
    assert none.residual == 1.0 and not np.any(none.x)
