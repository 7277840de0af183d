"""Rows of Parquet files as batches, of which one row group at a time is in memory."""

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float

from ..checks import check_number, check_positive, check_seed, refusal
from ..ops.chunks import Epochs

#: Rows in a batch where all rows are read in their order.
BATCH_SIZE = 65_536


class RowGroup(NamedTuple):
    """Rows that a Parquet file stores together."""

    file: Path
    number: int
    """Of the group in its file, from 0."""

    num_rows: int


class ParquetRows:
    """
    Columns of a Parquet file, or of all ``*.parquet`` files of a folder, as X and Y::

        rows = pep.training.ParquetRows("flights.parquet", ["distance", "hour"], ["delay"])
        model = pep.PEPRegression(rows.batches(), kernel, Z)                     # all rows
        other = pep.ARPEP(kernel, likelihood, Z, num_data=rows.num_rows)
        pep.training.fit(other, rows.shuffled_batches(1000, seed=0), ...)        # minibatches

    Files are mapped to memory and read by row groups. It needs
    ``pip install 'gpflow-pep[parquet]'``.

    :param path: The file, or the folder of files, whose names sort them.
    :param inputs: Names of the columns of X, at least one, of numbers.
    :param targets: Names of the columns of Y.
    :param part: ``(k, n)``: every n-th row group, from the k-th; for processes that hold a shard of
        the rows each (:doc:`/distributed`).
    :raises ValueError: If pyarrow is not installed, there is no such file, it is no Parquet file,
        it lacks a column, or a column is not of numbers; if the part has no rows.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        inputs: Sequence[str],
        targets: Sequence[str],
        *,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        for name, columns in (("inputs", inputs), ("targets", targets)):
            if isinstance(columns, str) or not columns:
                remedy = f"Pass {name}=['a', 'b'], for example."
                raise refusal(name, repr(columns), "a list of names of columns", remedy)
        index, count = part
        check_positive("part", count)
        if index not in range(count):
            raise refusal("part", repr(part), f"(k, {count}) with k below {count}", "Count from 0.")
        self.inputs, self.targets = list(inputs), list(targets)
        self.groups = _groups(Path(path), [*inputs, *targets])[index::count]
        """The row groups, in their order."""
        self.num_rows = sum(group.num_rows for group in self.groups)
        """N, of this part."""
        if not self.num_rows:
            got, expected = f"no rows in part {part} of {path}", "at least one row"
            raise refusal("path", got, expected, "Write smaller row groups, or take fewer parts.")

    def batches(self, batch_size: int = BATCH_SIZE) -> tf.data.Dataset:
        """
        Make a data set of all rows in their order, for ``PEPRegression``.

        :param batch_size: Rows in a batch; the last one may have fewer.
        """
        check_positive("batch_size", batch_size)
        return self._dataset(self.groups).rebatch(batch_size)

    def shuffled_batches(self, batch_size: int, *, seed: int) -> Epochs:
        """
        Make batches for :func:`~gpflow_pep.training.loop.fit`, in another order each epoch.

        Row groups are read in random order, and the rows of each are shuffled: rows that are far
        from each other in a file never share a batch. Where the order of rows in the file says
        something about them, shuffle them once when it is written.

        :param batch_size: Rows in a batch. Those that are left over when batches are full wait for
            another epoch.
        :param seed: The same seed gives the same batches.
        :return: A function of the number of the epoch.
        :raises ValueError: If there are fewer rows than a batch has.
        """
        check_number(batch_size, self.num_rows, "batch_size", counted="rows")
        check_seed(seed)

        def epoch(number: int) -> tf.data.Dataset:
            seeds = [seed, int(number)]
            order = np.random.default_rng(seeds).permutation(len(self.groups))
            dataset = self._dataset([self.groups[k] for k in order], seeds)
            return dataset.rebatch(batch_size, drop_remainder=True)

        return epoch

    def _dataset(
        self, groups: Sequence[RowGroup], shuffled: Sequence[int] | None = None
    ) -> tf.data.Dataset:
        """Read row groups; with seeds for the order of rows in each."""
        columns, num_inputs, kind = [*self.inputs, *self.targets], len(self.inputs), default_float()

        def read() -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
            random = None if shuffled is None else np.random.default_rng(shuffled)
            for group in groups:
                table = _open(group.file).read_row_group(group.number, columns)
                values: AnyNDArray = np.empty([len(table), len(columns)], kind)
                for k, name in enumerate(columns):
                    values[:, k] = table.column(name).to_numpy()
                if random is not None:
                    values = random.permutation(values)
                yield values[:, :num_inputs], values[:, num_inputs:]

        widths = num_inputs, len(self.targets)
        signature = tuple(tf.TensorSpec([None, width], kind) for width in widths)
        return tf.data.Dataset.from_generator(read, output_signature=signature)


def _open(path: Path) -> Any:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        expected, remedy = "pyarrow, which is not installed", "pip install 'gpflow-pep[parquet]'"
        raise refusal("path", "a Parquet file", expected, f"Run: {remedy}.") from error
    try:
        return parquet.ParquetFile(path, memory_map=True)
    except (OSError, ArrowException) as error:
        remedy = "Check its name, and how it was written."
        raise refusal("path", f"{path} ({error})", "a Parquet file", remedy) from error


def _groups(path: Path, columns: Sequence[str]) -> list[RowGroup]:
    """List the row groups of all files, after a check of their columns."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise refusal("path", f"{path}, a folder without *.parquet", "some", "Check its name.")
    groups: list[RowGroup] = []
    for file in files:
        content = _open(file)
        _check_columns(file, content.schema_arrow, columns)
        sizes = [content.metadata.row_group(k).num_rows for k in range(content.num_row_groups)]
        groups.extend(RowGroup(file, k, size) for k, size in enumerate(sizes) if size)
    return groups


def _check_columns(file: Path, schema: Any, columns: Sequence[str]) -> None:
    for name in columns:
        if schema.names.count(name) != 1:
            expected = f"one of {', '.join(schema.names[:20])}"
            raise refusal("inputs, targets", f"{name!r} in {file}", expected, "Check the names.")
        kind = schema.field(name).type
        if not str(kind).startswith(("int", "uint", "float", "double", "half", "bool")):
            got, remedy = f"{name!r} of type {kind} in {file}", "Encode it as numbers first."
            raise refusal("inputs, targets", got, "numbers", remedy)
