"""Data sets of the papers for the examples: read, split at random, standardised."""

import os
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from gpflow_pep.compare import clean, read_table

#: Where the data sets are, unless ``--data`` says so.
DIRECTORY = Path(os.environ.get("GPFLOW_PEP_DATA", "."))
MOST_CLASSES = 10
AnyNDArray = NDArray[Any]
Data = tuple[AnyNDArray, AnyNDArray]
Task = Literal["regression", "classification"]
#: Numbers of rows to train on and of rows held out.
Rows = tuple[AnyNDArray, AnyNDArray]


class Dataset(NamedTuple):
    """Inputs and targets in original units; classes by their numbers, and their names."""

    X: AnyNDArray
    Y: AnyNDArray
    classes: tuple[str, ...] = ()


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


def file(directory: Path, name: str) -> Path:
    """A file of the directory, which must exist."""
    path = directory / name
    if not path.is_file():
        sys.exit(
            f"{path} does not exist. Name the directory that holds it with --data, or"
            " in the environment variable GPFLOW_PEP_DATA."
        )
    return path


def numbers(directory: Path, name: str, most: int | None = None) -> Data:
    """Inputs and targets of ``NAME.csv.gz`` as they are there, or the first so many
    rows.
    """
    table = np.loadtxt(
        file(directory, f"{name}.csv.gz"), delimiter=",", skiprows=1, ndmin=2
    )
    return table[:most, :-1], table[:most, -1:]


def read(directory: Path, name: str, task: Task | None = None) -> Dataset:
    """``NAME.csv.gz`` of the directory, whose target is the column ``y``; see
    :func:`read_csv`.
    """
    return read_csv(file(directory, f"{name}.csv.gz"), task)


def read_csv(path: Path, task: Task | None = None) -> Dataset:
    """
    A table of numbers, whose target is the column ``y``. If the task, "regression" or
    "classification", is not said: classes are up to ten different whole numbers.
    """
    table = read_table(path)
    if task is None:
        few = table["y"].nunique() <= MOST_CLASSES and (table["y"] % 1.0 == 0.0).all()
        task = "classification" if few else "regression"
    data = clean(table, "y", task=task)
    X = data.X.to_numpy(np.float64)
    y = data.y.to_numpy()
    if data.kind == "numbers":
        return Dataset(X, y[:, None].astype(np.float64))
    classes, numbers = np.unique(y.astype(str), return_inverse=True)
    return Dataset(X, numbers[:, None].astype(np.float64), tuple(classes))


def random_rows(
    X: AnyNDArray, test_fraction: float, seed: int, labels: AnyNDArray | None
) -> Rows:
    """A random part held out; classes in the same proportions on both sides."""
    train, test = train_test_split(
        np.arange(len(X)), test_size=test_fraction, random_state=seed, stratify=labels
    )
    return np.sort(train), np.sort(test)


def random_split(dataset: Dataset, test_fraction: float, seed: int) -> Problem:
    """As :func:`random_rows`, and standardised."""
    labels = dataset.Y[:, 0] if dataset.classes else None
    return standardised(dataset, random_rows(dataset.X, test_fraction, seed, labels))


def standardised(dataset: Dataset, rows: Rows) -> Problem:
    """Inputs, and targets that are numbers, to mean 0 and deviation 1 of the training
    rows.
    """
    train, _ = rows
    X = StandardScaler().fit(dataset.X[train]).transform(dataset.X)
    scaler = StandardScaler().fit(dataset.Y[train])
    Y = dataset.Y if dataset.classes else scaler.transform(dataset.Y)
    return Problem(*((X[part], Y[part]) for part in rows))


def labelled(X: AnyNDArray, labels: AnyNDArray, rows: Rows) -> Labelled:
    """Rows to train on and rows held out; inputs standardised by the former."""
    train, test = rows
    X = StandardScaler().fit(X[train]).transform(X)
    Y = labels[:, None]
    return Labelled(X[train], Y[train], X[test], Y[test])


def rows_of(data: Data, Z: AnyNDArray) -> Data:
    """Inputs and targets of the rows that points were chosen from; the first, of equal
    ones.
    """
    place = {row.tobytes(): n for n, row in reversed(list(enumerate(data[0])))}
    rows = [place[z.tobytes()] for z in Z]
    return data[0][rows], data[1][rows]
