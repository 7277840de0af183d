"""Linear equations whose matrix is known by its products alone."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf


class _KrylovSolution(NamedTuple):
    """Where the iteration ended."""

    x: tf.Tensor  #: [n], the solution.
    num_products: tf.Tensor  #: [], int: how many products there were.
    #: [], the norm of what is left, divided by that of the right-hand side.
    residual: tf.Tensor


class _State(NamedTuple):
    """After k steps, in units in which b has the norm 1."""

    #: [], int: k, or one more where the last product was of no use.
    num_products: tf.Tensor
    basis: tf.Tensor
    """[k + 1, n], orthonormal rows, the first along b. K times the first k is H in all
    of them.
    """
    rotations: tf.Tensor
    """[k + 1, k + 1], the orthogonal matrix that makes the [k + 1, k] matrix H
    triangular. Its first column is what it makes of b; the last number of that is left
    over.
    """
    triangle: tf.Tensor  #: [k, k], what it makes of H.
    goes_on: tf.Tensor  #: [], bool.


def gmres(
    times: Callable[[tf.Tensor], tf.Tensor],
    right: tf.Tensor,
    *,
    tolerance: float,
    max_products: int,
) -> _KrylovSolution:
    r"""
    Solve :math:`K x = b` by GMRES without restarts (Saad & Schultz 1986), from x = 0,
    in a graph or in eager mode.

    All iterates are combinations of :math:`b, K b, K^2 b, \dots`. So where K is
    singular and b is in its range, what comes out has no part in a null space that K
    and its transpose share. Where b is not in it, the iteration ends with a residual
    that is not small.

    :param times: ``times(x)`` is K x, [n].
    :param right: b, [n].
    :param tolerance: Of the residual, relative to b.
    :param max_products: The most products; no more than n are of use.
    """
    size = tf.norm(right)
    start = _State(
        num_products=tf.constant(0),
        basis=tf.math.divide_no_nan(right, size)[None],
        rotations=tf.ones([1, 1], right.dtype),
        triangle=tf.zeros([0, 0], right.dtype),
        goes_on=size > 0.0,
    )

    def step(state: _State) -> tuple[_State]:
        V = state.basis
        new = times(V[-1])
        column = tf.zeros_like(V[:, 0])
        for _ in range(2):  # once is not enough where rounding errors matter
            along = tf.linalg.matvec(V, new)
            column = column + along
            new = new - tf.linalg.matvec(V, along, transpose_a=True)
        length = tf.norm(new)
        column = tf.linalg.matvec(state.rotations, column)
        pivot = tf.sqrt(tf.square(column[-1]) + tf.square(length))
        largest = tf.reduce_max(tf.pad(tf.linalg.diag_part(state.triangle), [[1, 0]]))
        state = state._replace(num_products=state.num_products + 1)
        # Otherwise what is left of b is outside of the range of K.
        # A pivot below this part of the largest is a rounding error.
        is_of_use = pivot > 1e-12 * largest
        return (
            tf.cond(
                is_of_use,
                lambda: _extended(state, new, length, column, pivot, tolerance),
                lambda: state._replace(goes_on=is_of_use),
            ),
        )

    square = tf.TensorShape([None, None])
    columns = tf.TensorShape([None, right.shape[0]])
    scalar = tf.TensorShape([])
    (end,) = tf.while_loop(
        lambda state: state.goes_on,
        step,
        (start,),
        shape_invariants=(_State(scalar, columns, square, square, scalar),),
        maximum_iterations=tf.minimum(max_products, tf.size(right)),
        parallel_iterations=1,
    )
    rotated = size * end.rotations[:, :1]
    weights = tf.linalg.triangular_solve(end.triangle, rotated[:-1], lower=False)
    x = tf.linalg.matvec(end.basis[:-1], weights[:, 0], transpose_a=True)
    residual = tf.where(size > 0.0, tf.abs(end.rotations[-1, 0]), 0.0)
    return _KrylovSolution(x, end.num_products, residual)


def _extended(
    state: _State,
    new: tf.Tensor,
    length: tf.Tensor,
    column: tf.Tensor,
    pivot: tf.Tensor,
    tolerance: float,
) -> _State:
    """Take one more direction.

    :param new: What of K times the last one is outside of the basis, and its norm,
        ``length``.
    :param column: What is inside, [k + 1], rotated as H is.
    :param pivot: The norm of the last number of it and ``length``.
    """
    cosine = column[-1] / pivot
    sine = length / pivot
    rotations = tf.pad(state.rotations, [[0, 0], [0, 1]])
    along = rotations[-1:]
    across = tf.one_hot([tf.size(column)], tf.size(column) + 1, dtype=new.dtype)
    first = cosine * along + sine * across
    left_over = cosine * across - sine * along
    triangle = tf.pad(state.triangle, [[0, 1], [0, 0]])
    last_column = tf.concat([column[:-1], pivot[None]], axis=0)[:, None]
    return _State(
        state.num_products,
        tf.concat([state.basis, tf.math.divide_no_nan(new, length)[None]], axis=0),
        tf.concat([rotations[:-1], first, left_over], axis=0),
        tf.concat([triangle, last_column], axis=1),
        (tf.abs(left_over[0, 0]) > tolerance) & (length > 0.0),
    )
