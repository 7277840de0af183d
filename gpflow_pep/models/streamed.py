"""Rows of a model that are read from files, chunk by chunk."""

from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf
from gpflow.config import default_float

from ..engine import checks
from ..engine.checks import refusal
from ..engine.numerics.chunks import Plan, Stream
from .parameters import Power
from .rows import Data, Rows

_IN_MEMORY = "Make a model of some of the rows, as arrays (X, Y), with the same parameters."


class StreamedData:
    """
    The rows of a data set, which is read once to count and check them.

    What needs the rows in memory, and so takes this for a pair (X, Y), is refused.

    :param dataset: Batches of X [B, D] and Y [B, P], of any sizes B, finite, of GPflow's default
        float; the same rows each time that it is iterated over.
    :raises ValueError: If it is another, or has no rows.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        _check_elements(dataset)
        self.dataset = dataset
        self.num_rows = 0
        for batch in dataset:
            X, Y = checks.check_data(batch)
            if self.num_rows == 0:
                self.first: Data = X, Y
                """The first batch."""
            self.num_rows += int(X.shape[0])
        if self.num_rows == 0:
            got, remedy = "a tf.data.Dataset without rows", "Check how the data are read."
            raise refusal("data", got, "at least one batch", remedy)

    def __deepcopy__(self, memo: dict[int, Any]) -> "StreamedData":
        return self  # nothing of it ever changes

    def __getitem__(self, index: Any) -> NoReturn:  # iteration calls it too
        raise self.not_in_memory()

    def not_in_memory(self) -> ValueError:
        """Make the error for what needs the rows in memory."""
        got = f"{self.num_rows} rows that are read from a tf.data.Dataset"
        return refusal("data", got, "rows in memory, which this needs", _IN_MEMORY)


def _check_elements(dataset: tf.data.Dataset) -> None:
    spec, kind = dataset.element_spec, tf.as_dtype(default_float())
    pair = isinstance(spec, tuple) and len(spec) == 2
    if not pair or any(part.shape.rank != 2 or part.dtype != kind for part in spec):
        expected = f"pairs of X [B, D] and Y [B, P] of {kind.name}"
        remedy = "Batch it, and map its elements to such pairs."
        raise refusal("data", f"a tf.data.Dataset of {spec}", expected, remedy)
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        got, expected = "a tf.data.Dataset without end", "each row once"
        raise refusal("data", got, expected, "Leave out repeat().")


class StreamedRows(Rows):
    """Rows that are read anew for each sum over them: see :class:`Rows`."""

    @property
    def num_rows(self) -> int:
        return int(self.data.num_rows)

    @property
    def in_variables(self) -> bool:
        return False

    def powers(self) -> tf.Tensor:
        check_one_power(self.alpha)
        return self.cut.powers(self.alpha, self.data.first[0])

    def num_targets(self) -> tf.Tensor:
        _, Y = self.data.first
        return self.reduction.total(tf.constant(self.num_rows * Y.shape[1], Y.dtype))

    def plan(self) -> Plan:
        plan = self.cut.plan(self.chunk_size, self.num_inducing, self.data.first[0])
        return plan._replace(keep=False)  # of rows that no memory holds

    def single_rows(self, chunk_size: int) -> Stream:
        return Stream(self.data.dataset, self.num_rows, chunk_size)

    def pieces(self, chunk_size: int) -> Stream:
        with tf.control_dependencies(self.require_same_version()):
            alpha = tf.identity(self.powers())
        return replace(self.single_rows(chunk_size), constants=(alpha,))


def check_one_power(alpha: Any) -> None:
    """Refuse powers of rows that are not in memory."""
    shape = tuple(alpha.shape if isinstance(alpha, Power) else np.shape(alpha))
    if shape:
        expected = "one number, the power of all rows, which are not in memory"
        raise refusal("alpha", f"shape {shape}", expected, "Pass 0.5, or another.")
