"""Rows that come in blocks, each of which is a factor (PITC)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray

from ..engine import checks
from ..engine.energies.collapsed import Bound, Conditional
from ..engine.numerics.chunks import Chunks
from ..engine.predictions.context_rows import BlockRows
from .parameters import Power
from .rows import Cut, Data


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
