"""Sums over chunks of rows, with a gradient that recomputes each chunk instead of keeping it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray

from . import replicas

#: A chunk is about so many numbers of an [M, chunk] matrix: it stays in the processor's cache
#: (8 MB in float64), where TensorFlow's matrix products were measured to be fastest.
CHUNK_ELEMENTS = 1_000_000
#: The least rows in a chunk that is chosen automatically.
MIN_CHUNK = 256
#: Intermediate matrices of size M x N may be kept between value and gradient up to so many bytes.
MEMORY_BUDGET = 2**30

Rows = tuple[tf.Tensor, ...]
Sums = tuple[tf.Tensor, ...]


class Chunks(NamedTuple):
    """A way to cut the rows of a data set into pieces."""

    count: Any
    """How many chunks there are, at least 1: an int, or a tensor where it is not known before."""

    take: Callable[[Any], Rows]
    """``take(k)`` gives the tensors of chunk ``k``, an int or a tensor in ``range(count)``."""


def default_chunk_size(num_inducing: int) -> int:
    """Rows per chunk such that M x chunk numbers fit the processor's cache."""
    return max(MIN_CHUNK, CHUNK_ELEMENTS // max(1, num_inducing))


def fits_memory(num_inducing: int, num_rows: int | None, itemsize: int, copies: int) -> bool:
    """
    Whether ``copies`` matrices of size M x N are within :data:`MEMORY_BUDGET`.

    :param num_rows: N, or None where it is not known; then they do not fit.
    :param itemsize: Bytes per number.
    """
    if num_rows is None:
        return False
    return copies * itemsize * num_inducing * num_rows <= MEMORY_BUDGET


def row_chunks(
    rows: Sequence[tf.Tensor], chunk_size: int, columns: Sequence[tf.Tensor] = ()
) -> Chunks:
    """
    Cut tensors along their first axis into chunks of nearly equal size.

    :param rows: Tensors with the same number of rows N.
    :param chunk_size: The most rows in a chunk.
    :param columns: Matrices with N columns, cut along these; they come after the rows.
    """
    static = rows[0].shape[0]
    num_rows = tf.shape(rows[0])[0] if static is None else static
    if static is not None:
        # Equal chunks: a small remainder would cost a graph of its own and run slowly.
        chunk_size = -(-static // -(-static // chunk_size))
    count = -(-num_rows // chunk_size)
    first = num_rows - (count - 1) * chunk_size

    def take(k: Any) -> Rows:
        # Chunk 0 takes the remainder. The others have a size that the compiler knows, for XLA.
        if isinstance(k, int) and k == 0:
            return (*(row[:first] for row in rows), *(column[:, :first] for column in columns))
        start = first + (k - 1) * chunk_size
        return (
            *(
                tf.slice(
                    row,
                    tf.concat([[start], tf.zeros(row.shape.rank - 1, tf.int32)], axis=0),
                    [chunk_size, *([-1] * (row.shape.rank - 1))],
                )
                for row in rows
            ),
            *(tf.slice(column, [0, start], [-1, chunk_size]) for column in columns),
        )

    return Chunks(count, take)


@dataclass(frozen=True, eq=False)
class BlockPlan:
    """Which blocks and rows each chunk has, for chunks of whole blocks."""

    names: AnyNDArray
    """[B], the label of each block, ascending."""

    order: AnyNDArray
    """[B], places in ``names``: the blocks chunk after chunk."""

    rows: AnyNDArray
    """Rows of the blocks in that order, all blocks of a chunk filled up with -1 to one width."""

    block_start: AnyNDArray
    """[number of chunks + 1], where each chunk starts in ``order``."""

    row_start: AnyNDArray
    """[number of chunks + 1], where each chunk starts in ``rows``."""

    width: AnyNDArray
    """[number of chunks], rows in each block of the chunk, fillings included."""


@check_shapes(
    "labels: [N]",
)
def plan_blocks(labels: AnyNDArray, chunk_size: int) -> BlockPlan:
    """
    Plan chunks of whole blocks; blocks of like size go together, so that little is filled up.

    :param labels: An integer for each row: the block that it belongs to.
    :param chunk_size: The most rows in a chunk, fillings included, except where one block has more.
    """
    names, block_of_row, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(block_of_row, kind="stable"), np.cumsum(sizes)[:-1])
    largest_first = np.argsort(-sizes, kind="stable")
    num_blocks: list[int] = []
    width: list[int] = []
    for size in sizes[largest_first]:
        if width and (num_blocks[-1] + 1) * width[-1] <= chunk_size:
            num_blocks[-1] += 1
        else:
            num_blocks.append(1)
            width.append(size)
    rows = [
        np.pad(members[block], (0, filled - sizes[block]), constant_values=-1)
        for block, filled in zip(largest_first, np.repeat(width, num_blocks))
    ]
    return BlockPlan(
        names=names,
        order=largest_first,
        rows=np.concatenate(rows),
        block_start=np.cumsum([0, *num_blocks]),
        row_start=np.cumsum([0, *np.multiply(num_blocks, width)]),
        width=np.asarray(width),
    )


def block_chunks(plan: BlockPlan) -> Chunks:
    """
    Cut rows into chunks of whole blocks.

    :return: Chunks whose ``take(k)`` gives the blocks [B] as places in ``plan.names``, and their
        rows [B, S], with -1 where a block has no more rows.
    """
    order, rows = tf.constant(plan.order, tf.int32), tf.constant(plan.rows, tf.int32)
    block_start = tf.constant(plan.block_start, tf.int32)
    row_start = tf.constant(plan.row_start, tf.int32)
    width = tf.constant(plan.width, tf.int32)

    def take(k: Any) -> Rows:
        block_rows = tf.reshape(rows[row_start[k] : row_start[k + 1]], [-1, width[k]])
        return order[block_start[k] : block_start[k + 1]], block_rows

    return Chunks(len(plan.width), take)


def _loop(function: Callable[..., Sums], chunks: Chunks, shared: Sequence[tf.Tensor]) -> Sums:
    total = function(chunks.take(0), *shared)
    if isinstance(chunks.count, int) and chunks.count == 1:
        return total
    maximum = chunks.count - 1 if isinstance(chunks.count, int) else None

    def add(k: tf.Tensor, *total: tf.Tensor) -> tuple[tf.Tensor, ...]:
        terms = function(chunks.take(k), *shared)
        return (k + 1, *(a + b for a, b in zip(total, terms)))

    result = tf.while_loop(
        lambda k, *_: k < chunks.count,
        add,
        (tf.constant(1), *total),
        maximum_iterations=maximum,
        parallel_iterations=1,  # one chunk at a time is the point
    )
    return tuple(result[1:])


def sum_over_chunks(
    function: Callable[..., Sums],
    chunks: Chunks,
    shared: Sequence[tf.Tensor],
    *,
    keep: bool,
) -> Sums:
    r"""
    Compute :math:`\sum_k f(\mathrm{rows}_k, \mathrm{shared})` with memory for one chunk, and where
    processes hold a shard of the rows each, see :mod:`gpflow_pep.ops.replicas`, over all of them.

    Differentiable, to any order, in ``shared`` and in the variables that ``function`` reads. With
    ``keep=False`` the gradient is another sum over chunks, in which each chunk's value is computed
    once more and differentiated: time for a second value, and no memory that grows with N. With
    ``keep=True`` automatic differentiation keeps every chunk's intermediate values. The rows are
    data: they are constants for differentiation (a gradient in them is None).

    :param function: ``function(rows, *shared)`` gives a tuple of tensors whose shapes do not
        depend on the chunk. Other tensors that it refers to count as constants.
    :param chunks: The rows, cut.
    :param shared: Tensors that each chunk needs, and that gradients must reach.
    :param keep: Keep the intermediate values of all chunks for the gradient.
    """
    return replicas.total(_sum_own_chunks(function, chunks, shared, keep))


def _sum_own_chunks(
    function: Callable[..., Sums], chunks: Chunks, shared: Sequence[tf.Tensor], keep: bool
) -> Sums:
    """The sum over the rows of this process."""

    def on_chunk(rows: Rows, *shared: tf.Tensor) -> Sums:
        return function(tuple(map(tf.stop_gradient, rows)), *shared)

    if keep or (isinstance(chunks.count, int) and chunks.count == 1):
        return _loop(on_chunk, chunks, shared)

    @tf.custom_gradient
    def recomputed(*shared: tf.Tensor) -> tuple[Sums, Callable[..., Any]]:
        def gradient(*upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            def of_chunk(rows: Rows, *args: tf.Tensor) -> Sums:
                shared, upstream = args[: len(args) - num_sums], args[len(args) - num_sums :]
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(shared)
                    tape.watch(variables)
                    value = on_chunk(rows, *shared)
                return tuple(
                    tape.gradient(
                        value,
                        [*shared, *variables],
                        output_gradients=list(upstream),
                        unconnected_gradients=tf.UnconnectedGradients.ZERO,
                    )
                )

            gradients = _sum_own_chunks(of_chunk, chunks, (*shared, *upstream), False)
            return gradients[: len(shared)], list(gradients[len(shared) :])

        sums = _loop(on_chunk, chunks, shared)
        num_sums = len(sums)
        return sums, gradient

    return tuple(recomputed(*shared))


def map_over_chunks(function: Callable[[Rows], Rows], chunks: Chunks) -> Rows:
    """
    Compute tensors with a value for each row, chunk after chunk; not for differentiation.

    :param function: Gives tensors with as many rows as the chunk.
    :param chunks: The rows, cut by :func:`row_chunks`.
    """
    head = function(chunks.take(0))
    if isinstance(chunks.count, int) and chunks.count == 1:
        return head

    def add(k: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
        values = function(chunks.take(k))
        return (k + 1, *(array.write(k - 1, v) for array, v in zip(arrays, values, strict=True)))

    arrays = [tf.TensorArray(value.dtype, size=chunks.count - 1) for value in head]
    _, *arrays = tf.while_loop(
        lambda k, *_: k < chunks.count,
        add,
        (tf.constant(1), *arrays),
        maximum_iterations=chunks.count - 1 if isinstance(chunks.count, int) else None,
        parallel_iterations=1,
    )
    return tuple(
        tf.concat([value, tf.reshape(array.stack(), [-1, *value.shape[1:]])], axis=0)
        for value, array in zip(head, arrays, strict=True)
    )
