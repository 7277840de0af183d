"""Rows that no memory holds: a data set that is read anew, chunk by chunk, for each sum over it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ..checks import message, require

#: Chunks that are read while another one is computed with.
READ_AHEAD = 2


@dataclass(frozen=True)
class Stream:
    """
    Chunks of rows as :class:`~gpflow_pep.engine.numerics.chunks.Chunks` are, but in the order in
    which a data set gives them. Each pass over them begins to read it from its start.
    """

    dataset: tf.data.Dataset
    """Batches of any size: tuples of tensors that have the same rows along their first axes."""

    num_rows: int
    """N, of all batches."""

    chunk_size: int
    """About the most rows at a time."""

    constants: tuple[tf.Tensor, ...] = ()
    """Tensors that belong to every chunk; they follow those of the data set."""

    @property
    def size(self) -> int:
        """
        Rows in a chunk, about equal in all but the last, which has fewer: another row in it shows
        that the data set has more rows than N.
        """
        size = -(-self.num_rows // max(-(-self.num_rows // self.chunk_size), 1))
        while self.num_rows % size == 0:
            size += 1
        return size

    @property
    def count(self) -> int:
        """How many chunks there are, at least 1."""
        return -(-self.num_rows // self.size)

    def is_one(self) -> bool:
        """Whether there is one chunk."""
        return self.count == 1

    def one_pass(self) -> Callable[[Any], tuple[tf.Tensor, ...]]:
        """
        Begin to read the data set.

        :return: A function of 0, 1, 2, ... to be called in this order, which gives the tensors of
            that chunk. It stops where the data set has other than N rows.
        """
        size = self.size
        iterator = iter(self.dataset.rebatch(size).prefetch(READ_AHEAD))
        text = message(
            "data",
            f"a tf.data.Dataset that gives other than its {self.num_rows} rows when it is read"
            " again",
            "the same rows each time",
            "Make it so that each iteration starts anew, as from a function that returns a new"
            " generator; where rows were added, assign model.data anew.",
        )

        def take(k: Any) -> tuple[tf.Tensor, ...]:
            batch = iterator.get_next_as_optional()
            with tf.control_dependencies(require(batch.has_value(), text)):
                rows = batch.get_value()
            number, expected = tf.shape(rows[0])[0], tf.minimum(size, self.num_rows - k * size)
            with tf.control_dependencies(require(tf.equal(number, expected), text)):
                return (*map(tf.identity, rows), *self.constants)

        return take
