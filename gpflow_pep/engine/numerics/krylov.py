"""Linear equations whose matrix is known by its products alone."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf


class _KrylovSolution(NamedTuple):
    """The end of the iteration."""

    x: tf.Tensor  #: [n], the solution.
    num_products: tf.Tensor  #: [], int: the number of products.
    #: [], the norm of b - K x divided by the norm of b.
    residual: tf.Tensor


class _State(NamedTuple):
    """The state after k steps, in units in which b has the norm 1."""

    #: [], int: k, or k + 1 if the last product could not be used.
    num_products: tf.Tensor
    basis: tf.Tensor
    """[k + 1, n], orthonormal rows, the first parallel to b. K times the first k rows
    has the coefficients H in this basis.
    """
    rotations: tf.Tensor
    """[k + 1, k + 1], the orthogonal matrix that makes the [k + 1, k] matrix H
    triangular. Its first column is its product with b, and the last number of this
    column is the residual.
    """
    triangle: tf.Tensor  #: [k, k], the triangular matrix.
    goes_on: tf.Tensor  #: [], bool: whether the iteration goes on.


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

    All iterates are combinations of :math:`b, K b, K^2 b, \dots`. If K is singular and
    b is in its range, the solution is therefore orthogonal to a null space that K and
    its transpose share. If b is not in the range, the iteration ends with a residual
    that is not small.

    :param times: ``times(x)`` is K x, [n].
    :param right: b, [n].
    :param tolerance: The residual, relative to b, at which the iteration ends.
    :param max_products: The largest number of products; more than n are never made.
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
        for _ in range(2):  # one time is not enough because of rounding errors
            along = tf.linalg.matvec(V, new)
            column = column + along
            new = new - tf.linalg.matvec(V, along, transpose_a=True)
        length = tf.norm(new)
        column = tf.linalg.matvec(state.rotations, column)
        pivot = tf.sqrt(tf.square(column[-1]) + tf.square(length))
        largest = tf.reduce_max(tf.pad(tf.linalg.diag_part(state.triangle), [[1, 0]]))
        state = state._replace(num_products=state.num_products + 1)
        # A pivot below this fraction of the largest is a rounding error: the rest of b
        # is outside of the range of K.
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
    """Add a direction to the basis.

    :param new: The part of K times the last direction that is outside of the basis.
    :param length: The norm of ``new``.
    :param column: The coefficients of the part inside the basis, [k + 1], rotated like
        H.
    :param pivot: The norm of the last number of ``column`` and ``length``.
    :param tolerance: See :func:`gmres`.
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
