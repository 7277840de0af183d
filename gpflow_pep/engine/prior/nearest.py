"""Distances in units of a kernel's lengthscales, and the nearest rows."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.kernels import Kernel, Static, Stationary
from gpflow.kernels.base import Combination

from .. import checks
from ..numerics import chunks
from ..numerics.nearest_in_numpy import nearest_rows


@check_shapes("X: [N, D]", "return: [D]")
def input_scales(kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """
    Find a scale for each input, such that distances in units of it measure how much f
    can change.

    The scale is the smallest lengthscale of the stationary parts of the kernel for the
    input. If only other parts use the input, it is the standard deviation of the input
    (1 if that is 0). If no part uses the input, it is infinity, because f does not
    depend on the input.

    :param kernel: Any kernel of one output. Sums and products are taken apart.
    :param X: Inputs with a known number of columns, from which standard deviations are
        computed.
    """
    num_columns = X.shape[1]
    dtype = X.dtype
    unseen = tf.fill([num_columns], tf.constant(np.inf, dtype))
    scales = unseen
    seen = np.zeros(num_columns, bool)
    for term in _parts(kernel):
        columns = np.arange(num_columns)[term.active_dims]
        seen[columns] = True
        if isinstance(term, Stationary):
            lengthscales = tf.zeros(len(columns), dtype) + tf.abs(term.lengthscales)
            placed = tf.tensor_scatter_nd_update(unseen, columns[:, None], lengthscales)
            scales = tf.minimum(scales, placed)
    deviations = tf.math.reduce_std(X, axis=0)
    deviations = tf.where(deviations > 0.0, deviations, tf.ones_like(deviations))
    return tf.where(tf.math.is_inf(scales) & seen, deviations, scales)


def _parts(kernel: Kernel) -> Iterator[Kernel]:
    """List the parts of sums, products and the like, except constants and white
    noise.
    """
    if isinstance(kernel, Combination):
        for term in kernel.kernels:
            yield from _parts(term)
    elif not isinstance(kernel, Static):
        yield kernel


@check_shapes("X: [N, D]", "rows: [S]", "return: [S, m]")
def nearest_others(X: tf.Tensor, rows: TensorType, m: int) -> tf.Tensor:
    """Find the m nearest other rows for some of the scaled rows, in eager mode.

    :param rows: Their numbers.
    :param m: At most N - 1.
    """
    X = np.asarray(X)
    near = nearest_rows(X)(X[np.asarray(rows)], m + 1)
    # Of rows that are there several times, the row itself need not be among the
    # nearest.
    neighbours = np.argsort(near == np.asarray(rows)[:, None], axis=1, kind="stable")[
        :, :-1
    ]
    return tf.constant(np.take_along_axis(near, neighbours, axis=1), tf.int32)


@check_shapes("X: [N, D]", "Xnew: [S, D]", "return: [S, m]")
def nearest_by_products(X: tf.Tensor, Xnew: tf.Tensor, m: int) -> tf.Tensor:
    """Find the m nearest rows of each new row from all distances, the nearest first.

    It uses only operations of TensorFlow, for graphs and files, and costs N D for each
    new row. If rows are equally near up to rounding, any of them may be found.
    """
    text = checks.message(
        "near", f"{m} for fewer rows", "at most the number of rows", "Use fewer."
    )
    with tf.control_dependencies(checks.require(m <= tf.shape(X)[0], text)):
        X = tf.stop_gradient(X)
        Xnew = tf.stop_gradient(Xnew)
    # Distances from products lose the digits of a large mean.
    centre = tf.reduce_mean(X, axis=0)
    X = X - centre
    Xnew = Xnew - centre
    squares = tf.reduce_sum(tf.square(X), axis=1)

    def nearest_of_chunk(new: tf.Tensor) -> tf.Tensor:
        closeness = 2.0 * tf.matmul(new, X, transpose_b=True) - squares
        return tf.math.top_k(closeness, m).indices

    rows_at_a_time = tf.maximum(chunks.CHUNK_ELEMENTS // tf.shape(X)[0], 1)
    if X.shape[0] is not None:
        rows_at_a_time = max(chunks.CHUNK_ELEMENTS // X.shape[0], 1)
    return chunks.map_over_chunks(
        nearest_of_chunk, chunks.row_chunks(Xnew, rows_at_a_time)
    )
