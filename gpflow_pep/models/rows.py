"""The rows of a model: their source, how they are cut into factors, and rows that
replace them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorData

from ..engine import checks
from ..engine.checks import counted, refusal
from ..engine.energies.collapsed import RowSums, sum_blocks, sum_single_rows
from ..engine.numerics import chunks
from ..engine.numerics.chunks import Chunks, Plan
from ..engine.predictions.context_rows import BlockRows
from .arguments import Power

Data = tuple[tf.Tensor, tf.Tensor]


class Cut:
    """
    How the rows of a model are cut into factors. In this class each row is a factor,
    with a common power or its own power.

    :param num_gapped: The number of outputs with separate sets of rows, because targets
        are missing, so that each target is a factor; otherwise 0.
    """

    block_rows: BlockRows | None = None
    """The rows of each block, for predictions; None without blocks."""

    def __init__(self, num_gapped: int = 0) -> None:
        self.num_gapped = num_gapped

    def sums_of(self, parts: Any, piece: Any, W: tf.Tensor) -> RowSums:
        """Sum the terms of a piece of the rows."""
        return sum_single_rows(parts, piece, W, has_gaps=self.num_gapped > 0)

    def powers(self, alpha: Power, X: tf.Tensor) -> tf.Tensor:
        """Return the power of each factor, or one power [1] for all, after a check of
        their number.
        """
        return checks.check_alpha(alpha, chunks.num_rows(X), "row")

    def pieces(self, data: Data, alpha: tf.Tensor, chunk_size: int) -> Chunks:
        """Cut rows and powers into the pieces for the bound."""
        return chunks.row_chunks((*data, alpha), chunk_size)

    def check_other_rows(
        self, num_rows: int, num_before: int | None, alpha: Power
    ) -> None:
        """Refuse rows that cannot replace the present rows because of their number."""
        if alpha.shape.rank and num_rows != num_before:
            got = (
                f"{counted(num_rows, 'row')} for a model with"
                f" {counted(num_before or 0, 'power')}"
            )
            remedy = "Set one power for all rows first: model.alpha = 0.5."
            raise refusal("data", got, "as many", remedy)

    def plan(
        self, chunk_size: int | None, num_inducing: int | None, X: tf.Tensor
    ) -> Plan:
        """Choose how to sum over rows; see
        :func:`~gpflow_pep.engine.numerics.chunks.plan`.
        """
        # Four matrices of size M x N are kept for gradients: Kuf twice (its exponential
        # and the product with the variance), A, and A times the precisions of the rows.
        return chunks.plan(chunk_size, num_inducing, X, 4 * max(self.num_gapped, 1))


class Blocks(Cut):
    """The rows of each block are one factor, with their full residual covariance.

    :param labels: The label of each row's block, [N].
    :param chunk_size: The largest number of rows in a chunk, padding included, unless
        one block has more.
    """

    def __init__(self, labels: AnyNDArray, chunk_size: int) -> None:
        super().__init__()
        names, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        by_block = np.argsort(place, kind="stable")
        end = np.cumsum(sizes)
        parts = (names, tf.int64), (by_block, tf.int32), ([0, *end], tf.int32)
        self.block_rows = BlockRows(
            *(tf.constant(part, dtype) for part, dtype in parts)
        )
        # Blocks of similar size are put together, so that there is little padding.
        largest_first = np.argsort(-sizes, kind="stable")
        num_blocks: list[int] = []
        width: list[int] = []
        for size in sizes[largest_first]:
            if width and (num_blocks[-1] + 1) * width[-1] <= chunk_size:
                num_blocks[-1] += 1
            else:
                num_blocks.append(1)
                width.append(size)
        members = np.split(by_block, end[:-1])
        rows = [
            np.pad(members[block], (0, filled - sizes[block]), constant_values=-1)
            for block, filled in zip(largest_first, np.repeat(width, num_blocks))
        ]
        # The ends of chunks among the blocks, and among the rows.
        ends = (num_blocks, np.multiply(num_blocks, width))
        starts = (np.cumsum([0, *numbers]) for numbers in ends)
        self._plan = largest_first, np.concatenate(rows), *starts, np.asarray(width)

    def sums_of(self, parts: Any, piece: Any, W: tf.Tensor) -> RowSums:
        return sum_blocks(parts, piece, W)

    def powers(self, alpha: Power, X: tf.Tensor) -> tf.Tensor:
        return checks.check_alpha(alpha, self._num_blocks, "block")

    @property
    def _num_blocks(self) -> int:
        return len(self._plan[0])

    def chunks(self) -> Chunks:
        """Cut rows into chunks of whole blocks.

        :return: Chunks. ``take(k)`` returns the numbers of blocks [B], by ascending
            label, and the numbers of their rows [B, S], padded with -1.
        """
        order, rows, start, row_start, width = (
            tf.constant(p, tf.int32) for p in self._plan
        )

        def take(k: Any) -> tuple[tf.Tensor, tf.Tensor]:
            block_rows = tf.reshape(
                rows[row_start[k] : row_start[k + 1]], [-1, width[k]]
            )
            return order[start[k] : start[k + 1]], block_rows

        return Chunks(len(self._plan[-1]), take)

    def pieces(self, data: Data, alpha: tf.Tensor, chunk_size: int) -> Chunks:
        (X, Y), blocks = data, self.chunks()
        alpha = tf.broadcast_to(alpha, [self._num_blocks])

        def take(k: Any) -> tuple[tf.Tensor, ...]:
            block, row = blocks.take(k)
            member = tf.maximum(row, 0)  # -1 for padding
            return (
                row >= 0,
                tf.gather(X, member),
                tf.gather(Y, member),
                tf.gather(alpha, block),
            )

        return Chunks(blocks.count, take)

    def check_other_rows(
        self, num_rows: int, num_before: int | None, alpha: Power
    ) -> None:
        if num_rows != num_before:
            got = f"{counted(num_rows, 'row')} for a model with blocks of {num_before}"
            expected = (
                "as many rows, because each new row gets the block of the old row in"
                " its place"
            )
            raise refusal("data", got, expected, "Make a new model.")


class Rows(NamedTuple):
    """The present rows of a model, and everything that sums over them depend on."""

    data: Any  #: X [N, D] and Y [N, P], tensors or variables.
    alpha: Power  #: The power of all factors, or of each factor.
    cut: Cut  #: How the rows are cut into factors.
    version: tf.Variable
    """How often rows or powers were replaced in a way that compiled functions cannot
    see.
    """

    #: The largest number of rows that are computed at a time; None chooses it.
    chunk_size: int | None
    num_inducing: int | None
    """The number of inducing variables M, if it is known. Chunks are chosen so that M x
    chunk numbers fit in a processor's cache.
    """

    @property
    def num_rows(self) -> int | None:
        """The number of rows N of this process; None if it is not known before a graph
        runs.
        """
        return self.data[0].shape[0]

    @property
    def in_variables(self) -> bool:
        """Whether the rows are variables, to which other rows may be assigned."""
        return isinstance(self.data[0], tf.Variable)

    def read(self) -> Data:
        """Read X and Y. A graph stops with an error if they were replaced after it was
        traced.
        """
        X, Y = map(tf.convert_to_tensor, self.data)
        with tf.control_dependencies(self.require_same_version()):
            return (X if tf.executing_eagerly() else tf.identity(X)), Y

    def powers(self) -> tf.Tensor:
        """Read the power of each factor, or one power [1] for all."""
        return self.cut.powers(self.alpha, self.data[0])

    def num_targets(self) -> tf.Tensor:
        """Count the targets that are not NaN in all processes."""
        Y = tf.convert_to_tensor(self.data[1])
        if self.cut.num_gapped:
            return tf.math.count_nonzero(~tf.math.is_nan(Y), dtype=self.alpha.dtype)
        return tf.cast(tf.size(Y), self.alpha.dtype)

    def plan(self) -> chunks.Plan:
        """Choose how to sum over the rows."""
        return self.cut.plan(self.chunk_size, self.num_inducing, self.data[0])

    def single_rows(self, chunk_size: int) -> chunks.Chunks:
        """Cut only X and Y, independently of the factors."""
        return chunks.row_chunks(self.read(), chunk_size)

    def pieces(self, chunk_size: int) -> chunks.Chunks:
        """Cut the rows into the pieces for a bound."""
        return self.cut.pieces(self.read(), self.powers(), chunk_size)

    def sum(
        self, terms: Callable[..., Any], shared: Sequence[tf.Tensor], parts: Any
    ) -> Any:
        """Sum over all rows of all processes, chunk by chunk.

        :param terms: A function of ``(piece, *shared)`` that computes the contribution
            of the rows of a piece; see :meth:`Cut.pieces`.
        :param shared: Tensors that each piece needs and that have gradients.
        """
        chunk_size, keep_all = self.plan()
        pieces = self.pieces(chunk_size)
        return chunks.sum_over_chunks(terms, pieces, shared, keep=keep_all, parts=parts)

    def with_powers(self, alpha: Power) -> "Rows":
        """Store checked powers of another shape. Graphs that were traced before stop
        with an error.
        """
        self.version.assign_add(1)
        return self._replace(alpha=alpha)

    def with_data(self, data: Any) -> "Rows":
        """Replace the rows by other rows, which must have been checked before.

        Variables are assigned. Otherwise graphs that were traced with the old rows stop
        with an error.
        """
        if self.in_variables:
            for variable, value in zip(self.data, data, strict=True):
                variable.assign(value)
            return self
        self.version.assign_add(1)
        return self._replace(data=data)

    def require_same_version(self) -> list[tf.Operation]:
        """Stop a graph with an error if the rows were replaced after it was traced."""
        if tf.executing_eagerly():
            return []
        with tf.init_scope():
            traced = self.version.value() if tf.executing_eagerly() else None
        if traced is None:  # inside a graph that is not a tf.function
            return []
        remedy = "Compile it again (with a new gpflow.optimizers.Scipy())"
        if not self.in_variables:
            remedy += ", or make the data tf.Variables of shape [None, D]"
        got = (
            "a function that was compiled for rows, or powers of rows, that were"
            " replaced"
        )
        text = checks.message(
            "data", got, "a function of the present rows", f"{remedy}."
        )
        return checks.require(tf.equal(self.version, int(traced)), text)


@check_shapes("old: [N_old, D]", "new: [N_new, D]", "return: [N_new]")
def match_rows(old: AnyNDArray, new: AnyNDArray) -> AnyNDArray:
    """Find the index of each new row among the old rows, or -1.

    Rows are the same if all their numbers are. If a row occurs several times, its first
    new copy is matched with its first old copy, and so on; further copies are new.
    """
    rows = pd.DataFrame(np.concatenate([old, new]))
    labels = rows.groupby(list(rows.columns), sort=False, dropna=False).ngroup()
    is_new = np.arange(len(rows)) >= len(old)
    # The k-th occurrence of a row among the old rows matches the k-th occurrence among
    # the new rows.
    occurrence = labels.groupby([labels, is_new]).cumcount()
    keys = pd.MultiIndex.from_arrays([labels, occurrence])
    return keys[~is_new].get_indexer(keys[is_new])


def replace_rows(
    data: Data, alpha: Power, other: Data, powers: TensorData | None, add: bool
) -> tuple[Data, Power | None, AnyNDArray]:
    """Match other rows with the rows of a model, or append them.

    :param powers: The powers of new rows, if each row has a power.
    :param add: Whether the old rows are kept, before the other rows.
    :return: All rows; a power for each row, if each row had one before; and the place
        of each row among the old rows, or -1.
    """
    check_replacement(data, other, of_any_length=add)
    old = tuple(map(tf.convert_to_tensor, data))
    if add:
        index = np.r_[np.arange(len(old[0])), np.full(len(other[0]), -1)]
        other = tuple(
            tf.concat(parts, axis=0) for parts in zip(old, other, strict=True)
        )
    else:
        index = match_rows(
            *(np.hstack([part.numpy() for part in rows]) for rows in (old, other))
        )
    new_alpha = _powers(alpha, index, powers)
    check_replacement(data, other)
    return other, new_alpha, index


def check_replacement(data: Data, other: Data, *, of_any_length: bool = False) -> None:
    """Refuse rows that have other columns, or that do not fit the variables of a model.

    :param of_any_length: Whether any number of rows is allowed.
    """
    for name, new, old in zip("XY", other, data, strict=True):
        if new.shape[1] != old.shape[1]:
            got = f"{new.shape[1]} column(s)"
            expected = f"{old.shape[1]}, as before"
            remedy = "Pass the same columns, or make a new model."
            raise refusal(name, got, expected, remedy)
        fixed = isinstance(old, tf.Variable) and not of_any_length
        if fixed and not old.shape.is_compatible_with(new.shape):
            got = f"{counted(new.shape[0], 'row')} for a tf.Variable of {old.shape[0]}"
            raise refusal(name, got, "as many", "Create it with shape=[None, D].")


def _powers(alpha: Power, index: AnyNDArray, powers: TensorData | None) -> Power | None:
    """Find the power of each row; None if all rows have one power."""
    if alpha.shape.rank == 0:
        if powers is not None:
            got = "powers of new rows"
            expected = "no powers, because the model has one power for all rows"
            raise refusal(
                "alpha", got, expected, "Leave it out, or assign model.alpha."
            )
        return None
    is_new = index < 0
    if powers is None and np.any(is_new):
        expected = (
            f"the power of the {np.sum(is_new)} new rows, because each row of the"
        )
        expected += " model has a power of its own"
        raise refusal(
            "alpha", "none", expected, "Pass alpha= to update_data or condition_on."
        )
    new: AnyNDArray = np.asarray(0.0 if powers is None else powers)
    if new.shape not in ((), (np.sum(is_new),)):
        expected = f"a number, or one for each of the {np.sum(is_new)} new rows"
        raise refusal(
            "alpha",
            f"the shape {new.shape}",
            expected,
            "Pass one power for each new row.",
        )
    all_powers = alpha.numpy()[index]
    all_powers[is_new] = new
    return Power(all_powers)
