"""Linear equations whose matrix is known by its products alone."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

#: A pivot below this part of the largest is a rounding error.
_SINGULAR = 1e-12


class KrylovSolution(NamedTuple):
    """Where the iteration ended."""

    x: AnyNDArray
    """[n], the solution."""

    num_products: int
    """How many products there were."""

    residual: float
    """The norm of what is left, divided by that of the right-hand side."""


def gmres(
    times: Callable[[AnyNDArray], AnyNDArray],
    right: AnyNDArray,
    *,
    tolerance: float,
    max_products: int,
) -> KrylovSolution:
    r"""
    Solve :math:`K x = b` by GMRES without restarts (Saad & Schultz 1986), from x = 0.

    All iterates are combinations of :math:`b, K b, K^2 b, \dots`. So where K is singular and b is
    in its range, what comes out has no part in a null space that K and its transpose share. Where b
    is not in it, the iteration ends with a residual that is not small.

    :param times: ``times(x)`` is K x, [n].
    :param right: b, [n].
    :param tolerance: Of the residual, relative to b.
    :param max_products: The most products; no more than n are of use.
    """
    size = float(np.linalg.norm(right))
    if size == 0.0:
        return KrylovSolution(np.zeros_like(right), 0, 0.0)
    basis, num_products = [right / size], 0
    # The columns of H, the least-squares problem's matrix, are rotated to triangular ones.
    columns, rotations, rest = list[AnyNDArray](), list[tuple[float, float]](), [size]
    for _ in range(min(max_products, len(right))):
        new, num_products = times(basis[-1]), num_products + 1
        V = np.stack(basis)
        column = np.zeros(len(basis))
        for _ in range(2):  # once is not enough where rounding errors matter
            along = V @ new
            column, new = column + along, new - along @ V
        length = float(np.linalg.norm(new))
        for place, (cosine, sine) in enumerate(rotations):
            first, second = column[place], column[place + 1]
            column[place : place + 2] = (
                cosine * first + sine * second,
                cosine * second - sine * first,
            )
        pivot = float(np.hypot(column[-1], length))
        if pivot <= _SINGULAR * max((column[-1] for column in columns), default=0.0):
            break  # what is left of b is outside of the range
        cosine, sine = column[-1] / pivot, length / pivot
        column[-1] = pivot
        columns.append(column)
        rotations.append((cosine, sine))
        rest[-1:] = [cosine * rest[-1], -sine * rest[-1]]
        if abs(rest[-1]) <= tolerance * size or length == 0.0:
            break
        basis.append(new / length)
    number = len(columns)
    triangle = np.zeros([number, number])
    for place, column in enumerate(columns):
        triangle[: place + 1, place] = column
    weights = np.linalg.solve(triangle, np.array(rest[:number]))
    x = weights @ np.stack(basis)[:number]
    return KrylovSolution(x, num_products, abs(rest[-1]) / size)
