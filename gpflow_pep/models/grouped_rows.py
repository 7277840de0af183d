"""Rows that are worked on in groups: blocks, each a factor (PITC), and rows near each other."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, Module
from gpflow.kernels import Kernel

from .. import checks
from ..covariances import NearestPredecessors, largest_group, nearest_predecessors
from ..energies.collapsed import Bound, Conditional
from ..energies.neighbours import rows_with_neighbours
from ..ops import chunks
from ..ops.chunks import Chunks
from ..predictions.context_rows import BlockRows
from .parameters import Power
from .rows import Cut, Data, Rows

#: Matrices with as many numbers for each row as :meth:`NearRows.plan` counts that automatic
#: differentiation keeps.
_KEPT_MATRICES = 6


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


@check_shapes("labels: [N]")
def plan_blocks(labels: AnyNDArray, chunk_size: int) -> BlockPlan:
    """
    Plan chunks of whole blocks; blocks of like size go together, so that little is filled up.

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

    def take(k: Any) -> tuple[tf.Tensor, tf.Tensor]:
        block_rows = tf.reshape(rows[row_start[k] : row_start[k + 1]], [-1, width[k]])
        return order[block_start[k] : block_start[k + 1]], block_rows

    return Chunks(len(plan.width), take)


class Blocks(Cut):
    """The rows of each block are one factor, with their residual covariance in full."""

    def __init__(self, labels: AnyNDArray, chunk_size: int) -> None:
        self.plan_of_blocks = plan_blocks(labels, chunk_size)
        _, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        self.block_rows = BlockRows(
            tf.constant(self.plan_of_blocks.names, tf.int64),
            tf.constant(np.argsort(place, kind="stable"), tf.int32),
            tf.constant(np.cumsum([0, *sizes]), tf.int32),
        )

    def bound(self, conditional: Conditional) -> Bound:
        return conditional.blocks_of_rows

    def powers(self, alpha: Power, X: tf.Tensor) -> tf.Tensor:
        return checks.check_alpha(alpha, len(self.plan_of_blocks.names), "block")

    def pieces(self, data: Data, alpha: tf.Tensor, chunk_size: int) -> Chunks:
        X, Y = data
        blocks = block_chunks(self.plan_of_blocks)
        alpha = tf.broadcast_to(alpha, [len(self.plan_of_blocks.names)])

        def take(k: Any) -> tuple[tf.Tensor, ...]:
            block, row = blocks.take(k)
            member = tf.maximum(row, 0)  # -1 where there is no row
            return row >= 0, tf.gather(X, member), tf.gather(Y, member), tf.gather(alpha, block)

        return Chunks(blocks.count, take)

    def check_other_rows(self, num_rows: int, num_before: int | None, alpha: Power) -> None:
        if num_rows != num_before:
            raise checks.refusal(
                "data",
                f"{num_rows} rows for a model with blocks of {num_before}",
                "as many: each has the block of the row in its place",
                "Make a new model.",
            )


class NearRows(Module, Cut):
    """
    An order of the rows of a data set and the neighbours of each, as variables of a model.

    :param X: Inputs, [N, D]; of unknown length where that may change.
    """

    # They are no parameters: summaries and trainable variables leave them out, checkpoints do not.
    _TF_MODULE_IGNORED_PROPERTIES = frozenset(
        {"rows", "neighbours", *Module._TF_MODULE_IGNORED_PROPERTIES}
    )

    def __init__(self, X: tf.Tensor, kernel: Kernel, num_neighbours: int) -> None:
        super().__init__()
        self.num_neighbours = num_neighbours
        self._create(nearest_predecessors(X.numpy(), kernel, num_neighbours), X.shape[0])

    def _create(self, near: NearestPredecessors, known: int | None) -> None:
        shape = [None, None] if known is None else near.rows.shape
        self.rows = tf.Variable(near.rows, trainable=False, shape=shape)
        """See :class:`~gpflow_pep.covariances.nearest.NearestPredecessors`."""
        shape = [*shape, self.num_neighbours]
        self.neighbours = tf.Variable(near.neighbours, trainable=False, shape=shape)

    @property
    def state(self) -> tuple[tf.Variable, ...]:
        return self.rows, self.neighbours

    def refresh(self, X: tf.Tensor, kernel: Kernel) -> None:
        near = nearest_predecessors(X.numpy(), kernel, self.num_neighbours)
        if not self.rows.shape.is_compatible_with(near.rows.shape):
            self._create(near, X.shape[0])
            return
        self.rows.assign(near.rows)
        self.neighbours.assign(near.neighbours)

    def bound(self, conditional: Conditional) -> Bound:
        return rows_with_neighbours

    def powers(self, alpha: Power, X: tf.Tensor) -> tf.Tensor:
        value = checks.read_powers(alpha)
        if value.shape.rank != 0:
            raise checks.refusal(
                "alpha",
                f"shape {tuple(value.shape)} with neighbours",
                "a number: a row with its neighbours is no factor of its own that could have a"
                " power of its own",
                "Assign or pass one number.",
            )
        return value[None]

    def plan(self, chunk_size: int | None, num_inducing: int | None, X: tf.Tensor) -> chunks.Plan:
        # A row also has covariances with its group, and those between its neighbours.
        width = (num_inducing or 1) + self._group_size + (self.num_neighbours + 1) ** 2
        return chunks.plan(chunk_size, width, X, _KEPT_MATRICES)

    def pieces(self, data: Data, alpha: tf.Tensor, chunk_size: int) -> Chunks:
        """Cut rows into chunks of whole groups; one group may have more rows than a chunk."""
        X, Y = data
        groups = chunks.row_chunks(
            (self._rows_of(X), tf.convert_to_tensor(self.neighbours)),
            max(1, chunk_size // self._group_size),
        )

        def take(k: Any) -> tuple[tf.Tensor, ...]:
            row, neighbours = groups.take(k)
            member = tf.maximum(row, 0)  # -1 where there is no row
            return row >= 0, neighbours, tf.gather(X, member), tf.gather(Y, member), alpha

        return Chunks(groups.count, take)

    def check_other_rows(self, num_rows: int, num_before: int | None, alpha: Power) -> None:
        check_num_neighbours(self.num_neighbours, num_rows)

    @property
    def _group_size(self) -> int:
        """The most rows in a group."""
        return self.rows.shape[1] or largest_group(self.num_neighbours)

    def _rows_of(self, X: tf.Tensor) -> tf.Tensor:
        """Read the rows, after a check that X has as many."""
        rows = tf.convert_to_tensor(self.rows)
        text = checks.message(
            "data",
            "another number of rows than the neighbours were found for",
            "as many",
            "Call refresh_neighbours() after other rows were assigned.",
        )
        same = tf.equal(tf.reduce_max(rows) + 1, tf.shape(X)[0])
        with tf.control_dependencies(checks.require(same, text)):
            return tf.identity(rows)


def check_num_neighbours(num_neighbours: Any, num_rows: int) -> int:
    """Refuse what is no number of neighbours among so many rows; 0 is one."""
    most = max(num_rows, 1) - 1
    checks.check_number(num_neighbours, most, "neighbours", counted="other rows", least=0)
    return int(num_neighbours)


def choose_cut(rows: Rows, kernel: Kernel, blocks: Any, neighbours: int) -> Cut:
    """
    Cut rows as regression is asked to, or leave them as they are cut.

    :param rows: Rows that are each a factor of their own.
    :param kernel: The kernel, of one output.
    :param blocks: Labels of blocks, or None.
    :param neighbours: How many near rows each row knows.
    :raises ValueError: If they do not suit the rows, or are both there.
    """
    num_rows = int(tf.shape(rows.data[0])[0])
    neighbours = check_num_neighbours(neighbours, num_rows)
    if blocks is not None and neighbours:
        expected = "one of them: a row's conditional knows its block, or the rows near it"
        raise checks.refusal("blocks and neighbours", "both", expected, "Leave one out.")
    if blocks is not None:
        labels = checks.check_blocks(blocks, rows.data[0].shape[0])
        return Blocks(labels, rows.plan().chunk_size)
    return NearRows(rows.data[0], kernel, neighbours) if neighbours else rows.cut
