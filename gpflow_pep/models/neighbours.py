"""The neighbours of a model's rows."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import Module
from gpflow.kernels import Kernel

from .. import checks
from ..covariances import largest_group, nearest_predecessors
from ..ops import chunks

#: Matrices with as many numbers for each row as :meth:`NeighbourPlan.plan` counts that automatic
#: differentiation keeps.
_KEPT_MATRICES = 6


class NeighbourPlan(Module):
    """
    An order of the rows of a data set and the neighbours of each, as variables of a model.

    :param X: Inputs, [N, D]; of unknown length where that may change.
    :param kernel: The kernel, whose lengthscales say what is near.
    :param m: The most neighbours of a row.
    """

    # They are no parameters: summaries and trainable variables leave them out, checkpoints do not.
    _TF_MODULE_IGNORED_PROPERTIES = frozenset(
        {"rows", "neighbours", *Module._TF_MODULE_IGNORED_PROPERTIES}
    )

    def __init__(self, X: tf.Tensor, kernel: Kernel, m: int) -> None:
        super().__init__()
        self.m = m
        found = nearest_predecessors(tf.convert_to_tensor(X).numpy(), kernel, m)
        any_size = X.shape[0] is None
        shape = [None, None] if any_size else found.rows.shape
        self.rows = tf.Variable(found.rows, trainable=False, shape=shape)
        """See :class:`~gpflow_pep.covariances.nearest.NearestPredecessors`."""
        self.neighbours = tf.Variable(found.neighbours, trainable=False, shape=[*shape, m])

    def refresh(self, X: tf.Tensor, kernel: Kernel) -> None:
        """
        Find them anew.

        :param X: Inputs, [N, D].
        :param kernel: The kernel, with the hyperparameters it has now.
        """
        found = nearest_predecessors(tf.convert_to_tensor(X).numpy(), kernel, self.m)
        self.rows.assign(found.rows)
        self.neighbours.assign(found.neighbours)

    def plan(self, chunk_size: int | None, num_inducing: int | None, X: tf.Tensor) -> chunks.Plan:
        """
        Choose how to sum over rows: see :func:`~gpflow_pep.ops.chunks.plan`.

        A row also has covariances with its group, and those between its neighbours.
        """
        width = (num_inducing or 1) + self._size + (self.m + 1) ** 2
        return chunks.plan(chunk_size, width, X, _KEPT_MATRICES)

    def chunks(
        self, data: tuple[tf.Tensor, tf.Tensor], alpha: tf.Tensor, chunk_size: int
    ) -> chunks.Chunks:
        """
        Cut rows into chunks of whole groups, as the energy takes them.

        :param data: X [N, D] and Y [N, P].
        :param alpha: The power, [1].
        :param chunk_size: The most rows in a chunk, but for a group that has more.
        """
        X, Y = data
        plan = self._of_as_many(X), tf.convert_to_tensor(self.neighbours)
        groups = chunks.row_chunks(plan, max(1, chunk_size // self._size))

        def take(k: Any) -> tuple[tf.Tensor, ...]:
            row, neighbours = groups.take(k)
            member = tf.maximum(row, 0)  # -1 where there is no row
            return row >= 0, neighbours, tf.gather(X, member), tf.gather(Y, member), alpha

        return chunks.Chunks(groups.count, take)

    @property
    def _size(self) -> int:
        """The most rows in a group."""
        return self.rows.shape[1] or largest_group(self.m)

    def _of_as_many(self, X: tf.Tensor) -> tf.Tensor:
        """Take the rows, after a check that X has as many."""
        rows = tf.convert_to_tensor(self.rows)
        as_many = checks.require(
            tf.equal(tf.reduce_max(rows) + 1, tf.shape(X)[0]),
            "data: got another number of rows than the neighbours were found for, expected as many."
            " Call refresh_neighbours() after other rows were assigned.",
        )
        with tf.control_dependencies(as_many):
            return tf.identity(rows)


def check_neighbours(
    neighbours: Any, X: tf.Tensor, has_blocks: bool, *, needed: bool = False
) -> bool:
    """
    Check how many neighbours rows are to have.

    :param neighbours: The number, or 0 for none.
    :param X: Inputs, [N, D].
    :param has_blocks: Whether rows come in blocks.
    :param needed: Whether there must be some.
    :return: Whether there are any.
    :raises ValueError: If it is no such number.
    """
    num_rows = int(tf.shape(X)[0])
    whole = isinstance(neighbours, (int, np.integer)) and not isinstance(neighbours, bool)
    if not whole or neighbours < 0 or neighbours >= max(num_rows, 1):
        raise ValueError(
            f"neighbours: got {neighbours!r}, expected a whole number from 1 to {num_rows - 1}, one"
            " less than there are rows, or 0 for none. 10 is a good start."
        )
    if neighbours and has_blocks:
        raise ValueError(
            "blocks and neighbours: got both, expected one or the other: the conditional of a row"
            " knows the rows of its block, or the rows near it. Leave one of them out."
        )
    if needed and not neighbours:
        raise ValueError(
            "neighbours: got a model without any, expected one that has some to refresh. Pass"
            " neighbours= when it is made."
        )
    return bool(neighbours)


def check_single_power(alpha: Parameter) -> tf.Tensor:
    """
    Check that there is one power for all rows, [1].

    :param alpha: The power(s).
    :raises ValueError: If there is one for each row, or it is outside [0, 1]; see
        :func:`gpflow_pep.checks.require`.
    """
    value = checks.read_powers(alpha)
    if value.shape.rank != 0:
        raise ValueError(
            f"alpha: got shape {tuple(value.shape)} with neighbours, expected a number: a row"
            " with its neighbours is no factor of its own that could have a power of its own."
            " Assign or pass one number."
        )
    return value[None]
