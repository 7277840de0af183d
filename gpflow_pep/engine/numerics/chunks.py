"""Sums over rows: in chunks, with a gradient that recomputes each chunk instead of
keeping it. And the order of rows in minibatches.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..checks import is_for_xla
from .tapes import own_tape, unrecorded

#: The number of entries of the [M, chunk] matrix of a chunk. It stays in the
#: processor's cache (8 MB in float64), and TensorFlow's matrix products were fastest
#: with it.
CHUNK_ELEMENTS = 1_000_000
#: A chunk size that no data exceed: all rows are one chunk, even if N is not known.
ALL_ROWS = 2**31 - 1
#: The least number of rows in a chunk that is chosen automatically.
MIN_CHUNK = 256
#: The largest size in bytes of intermediate matrices of size M x N that are kept
#: between value and gradient.
MEMORY_BUDGET = 2**30
#: The name of loops over chunks of rows in graphs, by which
#: examples/benchmarks/devices.py finds them.
ROW_LOOP = "rows"

#: Tensors, in any structure that ``tf.nest`` takes.
Tensors = Any
#: The minibatches of the k-th epoch, k = 0, 1, ...
Epochs = Callable[[int], tf.data.Dataset]


class Chunks(NamedTuple):
    """A way to cut the rows of a data set into pieces."""

    count: Any
    """The number of chunks, at least 1: an int, or a tensor if it is not known before a
    graph runs.
    """
    take: Callable[[Any], Tensors]
    """``take(k)`` gives the tensors of chunk ``k``, an int or a tensor in
    ``range(count)``.
    """

    def is_one(self) -> bool:
        """Whether it is known before a graph runs that there is one chunk."""
        return isinstance(self.count, int) and self.count == 1


def num_rows(X: tf.Tensor) -> Any:
    """Return N of [N, D], as a number if it is known before a graph runs."""
    return (
        tf.shape(X)[0] if X.shape[0] is None or tf.executing_eagerly() else X.shape[0]
    )


class Plan(NamedTuple):
    """How to sum over rows."""

    chunk_size: int  #: The most rows at a time.
    keep: bool
    """Whether all intermediate values may be kept; not if a chunk size was given,
    unless it is :data:`ALL_ROWS`.
    """


def plan(
    chunk_size: int | None,
    num_inducing: int | None,
    X: tf.Tensor,
    copies: int,
    num_latents: int = 1,
) -> Plan:
    """Choose how to sum over rows: chunks such that L x M x chunk numbers fit the
    processor's cache.

    If N is not known and no size is given, none of the ``copies`` M x N matrices are
    kept.
    """
    size = num_inducing or 1
    known = X.shape[0]
    fits = known is not None and copies * X.dtype.size * size * known <= MEMORY_BUDGET
    chosen = max(MIN_CHUNK, CHUNK_ELEMENTS // (size * num_latents))
    return Plan(
        chunk_size or chosen, chunk_size == ALL_ROWS or (chunk_size is None and fits)
    )


def row_chunks(rows: Tensors, chunk_size: int, columns: Tensors = None) -> Chunks:
    """Cut tensors into chunks of rows of nearly equal size.

    :param rows: Tensors with the same number of rows N, cut along their first axis. A
        tensor with a static size of one row belongs to every chunk.
    :param columns: None, or tensors cut along their last axis, of length N: ``take``
        then gives pairs of rows and columns.
    """
    values = tf.nest.flatten(rows)[0]
    total = tf.shape(values)[0] if values.shape[0] is None else values.shape[0]
    count, size = _equal_chunks(total, chunk_size)
    remainder = total - (count - 1) * size

    def take(k: Any) -> Tensors:
        if isinstance(count, int) and count == 1:
            return rows if columns is None else (rows, columns)
        # Chunk 0 takes the remainder. The others have a static size, for XLA.
        if isinstance(k, int) and k == 0:
            piece = 0, remainder
        else:
            piece = remainder + (k - 1) * size, size
        chunk = tf.nest.map_structure(lambda tensor: _cut(tensor, 0, *piece), rows)
        if columns is None:
            return chunk
        along = tf.nest.map_structure(lambda tensor: _cut(tensor, -1, *piece), columns)
        return chunk, along

    return Chunks(count, take)


def _equal_chunks(total: Any, chunk_size: Any) -> tuple[Any, Any]:
    """Choose the number of chunks of N rows, at least 1, and the size of all but one.

    They are integers if N and the chunk size are.
    """
    if isinstance(chunk_size, int) and chunk_size == ALL_ROWS:
        return 1, chunk_size
    if isinstance(total, int) and isinstance(chunk_size, int):
        # Equal chunks: a small remainder would need a separate graph and run slowly.
        size = -(-total // max(-(-total // chunk_size), 1)) or 1
        return max(-(-total // size), 1), size
    return tf.maximum(-(-total // chunk_size), 1), chunk_size


def _cut(tensor: tf.Tensor, axis: int, start: Any, size: Any) -> tf.Tensor:
    """Cut along the first or the last axis; one row belongs to every chunk."""
    if axis == 0 and tensor.shape[0] == 1:
        return tensor
    begin: list[Any] = [0] * tensor.shape.rank
    sizes: list[Any] = [-1] * tensor.shape.rank
    begin[axis], sizes[axis] = start, size
    piece = tf.slice(tensor, begin, sizes)
    # TensorFlow does not see that all other axes stay whole.
    shape = tensor.shape.as_list()
    shape[axis] = size if isinstance(size, int) else None
    piece.set_shape(shape)
    return piece


def added_up(
    function: Callable[..., Tensors], chunks: Chunks, shared: Sequence[tf.Tensor] = ()
) -> Tensors:
    """Compute the sum of :func:`sum_over_chunks`, not for differentiation."""
    total = function(chunks.take(0), *shared)
    if chunks.is_one():
        return total

    def add(k: tf.Tensor, total: Tensors) -> tuple[tf.Tensor, Tensors]:
        terms = function(chunks.take(k), *shared)
        # The terms of other chunks may have a less static shape.
        return k + 1, tf.nest.map_structure(
            lambda a, b: a + tf.ensure_shape(b, a.shape), total, terms
        )

    return _after_the_first(chunks, add, total)[0]


def _after_the_first(
    chunks: Chunks, body: Callable[..., Any], *start: Tensors
) -> list[Any]:
    """Run a loop over all chunks but the first, one at a time."""
    _, *results = tf.while_loop(
        lambda k, *_: k < chunks.count,
        body,
        (tf.constant(1), *start),
        maximum_iterations=chunks.count - 1 if isinstance(chunks.count, int) else None,
        parallel_iterations=1,
        name=ROW_LOOP,
    )
    return results


def sum_over_chunks(
    function: Callable[..., Tensors],
    chunks: Chunks,
    shared: Sequence[tf.Tensor],
    *,
    keep: bool,
    parts: Sequence[Any] = (),
) -> Tensors:
    r"""Compute :math:`\sum_k f(\mathrm{rows}_k, \mathrm{shared})` with memory for one
    chunk.

    Differentiable, to any order, in ``shared`` and in the variables that ``function``
    reads. With ``keep=False`` the gradient is another sum over chunks, in which each
    chunk's value is computed once more and differentiated. This takes the time of a
    second value, and no memory that grows with N. With ``keep=True`` automatic
    differentiation keeps every chunk's intermediate values. The rows are data, and
    constants for differentiation (a gradient in them is None).

    :param function: ``function(rows, *shared)`` gives tensors, in any structure, whose
        shapes do not depend on the chunk. Other tensors that it refers to count as
        constants.
    :param shared: Tensors that each chunk needs, and that have gradients.
    :param keep: Whether to keep the intermediate values of all chunks for the gradient.
    :param parts: The kernel and all other objects whose variables ``function`` reads.
        Their variables have gradients even if they are not trainable, because they may
        become trainable later, or be watched. Other variables are found only if they
        are trainable.
    """
    # tf.custom_gradient ignores variables that are not trainable.
    fixed = [] if keep else [v for v in float_variables(*parts) if not v.trainable]
    return _sum_over_chunks(function, chunks, shared, keep, fixed)


def float_variables(*modules: Any) -> list[tf.Variable]:
    """List the variables of kernels, likelihoods and the like, each one once."""
    variables = [v for module in modules for v in getattr(module, "variables", ())]
    return list({id(v): v for v in variables if v.dtype.is_floating}.values())


def _sum_over_chunks(
    function: Callable[..., Tensors],
    chunks: Chunks,
    shared: Sequence[tf.Tensor],
    keep: bool,
    fixed: Sequence[tf.Variable],
) -> Tensors:
    """Sum over rows, with variables that are not trainable."""

    def on_chunk(rows: Tensors, *shared: tf.Tensor) -> Tensors:
        return function(tf.nest.map_structure(tf.stop_gradient, rows), *shared)

    if keep or chunks.is_one():
        return added_up(on_chunk, chunks, shared)
    structure = list[Tensors]()

    @tf.custom_gradient
    def recomputed(*inputs: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        shared = inputs[: len(inputs) - len(fixed)]

        def gradient(
            *upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()
        ) -> Any:
            # A variable that was not trainable when the sum was made may be trainable
            # here, and would be listed twice.
            read = [v for v in variables if not any(v is other for other in fixed)]
            watched = [*fixed, *read]

            def chunk_gradients(rows: Tensors, *args: tf.Tensor) -> list[tf.Tensor]:
                shared = args[: len(args) - num_sums]
                upstream = args[len(args) - num_sums :]
                with own_tape([*shared, *watched]) as tape:
                    value = tf.nest.flatten(on_chunk(rows, *shared))
                by_all = tape.gradient(
                    value,
                    [*shared, *watched],
                    output_gradients=list(upstream),
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
                return list(map(tf.convert_to_tensor, by_all))

            gradients = _sum_over_chunks(
                chunk_gradients, chunks, (*shared, *upstream), False, fixed
            )
            by_read = {
                id(v): by for v, by in zip(read, gradients[len(inputs) :], strict=True)
            }
            return gradients[: len(inputs)], [by_read.get(id(v)) for v in variables]

        with unrecorded():  # the gradient computes each chunk once more
            sums = added_up(on_chunk, chunks, shared)
        structure[:] = [sums]
        num_sums = len(tf.nest.flatten(sums))
        return tf.nest.flatten(sums), gradient

    values = recomputed(*shared, *fixed)
    return tf.nest.pack_sequence_as(structure[0], values)


def map_over_chunks(function: Callable[[Tensors], Tensors], chunks: Chunks) -> Tensors:
    """Compute tensors with a value for each row, chunk after chunk; not for
    differentiation.
    """
    structure = function(chunks.take(0))
    if chunks.is_one():
        return structure
    head = tf.nest.flatten(structure)

    def add(k: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
        values = tf.nest.flatten(function(chunks.take(k)))
        return (
            k + 1,
            *(array.write(k - 1, v) for array, v in zip(arrays, values, strict=True)),
        )

    shapes = [[None, *value.shape[1:]] for value in head]
    arrays = [
        tf.TensorArray(value.dtype, size=chunks.count - 1, element_shape=shape)
        for value, shape in zip(head, shapes, strict=True)
    ]
    arrays = _after_the_first(chunks, add, *arrays)
    # If the number of chunks is not known, there may be no further chunk. Only `concat`
    # can return no rows, but XLA does not have it.
    known = isinstance(chunks.count, int)
    rest = [
        tf.reshape(array.stack(), [-1, *shape[1:]]) if known else array.concat()
        for array, shape in zip(arrays, shapes, strict=True)
    ]
    joined = [
        tf.concat(pieces_of_result, axis=0)
        for pieces_of_result in zip(head, rest, strict=True)
    ]
    return tf.nest.pack_sequence_as(structure, joined)


def shuffled_rows(num_rows: int, batch_size: int, seed: int) -> Epochs:
    """Put row numbers into batches, in another order each epoch.

    The order depends only on the seed and the number of the epoch, so that any epoch
    can be repeated, also in another process. Rows that do not fill a batch are left out
    of the epoch.
    """

    @tf.autograph.experimental.do_not_convert
    def epoch(number: int) -> tf.data.Dataset:
        seeds = tf.stack([tf.constant(seed, tf.int64), tf.cast(number, tf.int64)])
        rows = tf.range(num_rows, dtype=tf.int64)
        order = tf.random.experimental.stateless_shuffle(rows, seeds, alg="philox")
        return tf.data.Dataset.from_tensor_slices(order).batch(
            batch_size, drop_remainder=True
        )

    return epoch


def sizes_may_vary() -> bool:
    """Whether sizes may depend on values of other tensors, which XLA does not allow."""
    return not is_for_xla()
