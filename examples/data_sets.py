"""Data sets of the papers for the examples: read, split at random, standardised."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

from gpflow.base import AnyNDArray
from gpflow_pep.datasets import Dataset, Split, Standardiser, read_csv, train_test_split

#: Where the data sets are, unless ``--data`` says so.
DIRECTORY = Path(os.environ.get("GPFLOW_PEP_DATA", "."))
Data = tuple[AnyNDArray, AnyNDArray]


class Problem(NamedTuple):
    """Rows to train on, and rows held out."""

    train: Data
    test: Data


class Labelled(NamedTuple):
    """Inputs, and labels from 0 as a column; to train on, and held out."""

    X: AnyNDArray
    Y: AnyNDArray
    X_test: AnyNDArray
    Y_test: AnyNDArray

    @property
    def num_classes(self) -> int:
        return int(self.Y.max()) + 1


def read(directory: Path, name: str) -> Dataset:
    """``NAME.csv.gz`` of the directory, whose target is the column ``y``."""
    path = directory / f"{name}.csv.gz"
    if not path.is_file():
        sys.exit(
            f"{path} does not exist. Name the directory that holds it with --data, or in the"
            " environment variable GPFLOW_PEP_DATA."
        )
    return read_csv(path, "y")


def random_split(dataset: Dataset, test_fraction: float, seed: int) -> Problem:
    """A random part held out; classes in the same proportions on both sides."""
    labels = dataset.Y[:, 0] if dataset.classes else None
    return standardised(dataset, train_test_split(len(dataset.X), test_fraction, seed, labels))


def standardised(dataset: Dataset, split: Split) -> Problem:
    """Inputs, and targets that are numbers, to mean 0 and deviation 1 of the training rows."""
    X = Standardiser.fit(dataset.X[split.train]).transform(dataset.X)
    Y = (
        dataset.Y
        if dataset.classes
        else Standardiser.fit(dataset.Y[split.train]).transform(dataset.Y)
    )
    return Problem(*((X[rows], Y[rows]) for rows in split))


def labelled(X: AnyNDArray, labels: AnyNDArray, rows: tuple[AnyNDArray, AnyNDArray]) -> Labelled:
    """Numbers of rows to train on and of rows held out; inputs standardised by the former."""
    train, test = rows
    X, Y = Standardiser.fit(X[train]).transform(X), labels[:, None]
    return Labelled(X[train], Y[train], X[test], Y[test])


def rows_of(data: Data, Z: AnyNDArray) -> Data:
    """Inputs and targets of the rows that points were chosen from; the first, of equal ones."""
    place = {row.tobytes(): n for n, row in reversed(list(enumerate(data[0])))}
    rows = [place[z.tobytes()] for z in Z]
    return data[0][rows], data[1][rows]
