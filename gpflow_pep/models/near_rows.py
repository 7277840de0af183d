"""Rows whose conditionals know the nearest of the rows before them."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import Module
from gpflow.kernels import Kernel

from .. import checks
from ..covariances import largest_group, nearest_predecessors
from ..energies.collapsed import Bound, Conditional
from ..energies.neighbours import rows_with_neighbours
from ..ops import chunks
from .parameters import Power
from .rows import Cut, Data

#: Matrices with as many numbers for each row as :meth:`NearRows.plan` counts that automatic
#: differentiation keeps.
_KEPT_MATRICES = 6


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
        self._find(X, kernel)

    def _find(self, X: tf.Tensor, kernel: Kernel) -> None:
        near = nearest_predecessors(X.numpy(), kernel, self.num_neighbours)
        shape = [None, None] if X.shape[0] is None else near.rows.shape
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
            self._find(X, kernel)
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

    def pieces(self, data: Data, alpha: tf.Tensor, chunk_size: int) -> chunks.Chunks:
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

        return chunks.Chunks(groups.count, take)

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
    whole = isinstance(num_neighbours, (int, np.integer)) and not isinstance(num_neighbours, bool)
    if not whole or num_neighbours < 0 or num_neighbours >= max(num_rows, 1):
        raise checks.refusal(
            "neighbours",
            repr(num_neighbours),
            f"a whole number from 1 to {num_rows - 1}, one less than there are rows, or 0 for none",
            "10 is a good start.",
        )
    return int(num_neighbours)
