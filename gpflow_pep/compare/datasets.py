"""From a table on disk to rows that a model can be trained on."""

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.model_selection import train_test_split

MIN_ROWS = 10
MAX_GUESSED_CLASSES = 10


def check_finite(name: str, values: AnyNDArray) -> None:
    """Refuse values, of this name, that are not all finite numbers."""
    if not np.all(np.isfinite(values)):
        raise ValueError(
            f"{name} has values that are NaN or infinite, expected finite numbers: remove those"
            " rows or fill the values in."
        )


@dataclass(frozen=True)
class Dataset:
    """
    A data set in its original units.

    :param X: Inputs, [N, D].
    :param Y: Targets, [N, 1], not all equal; for classes their numbers, 0 to C - 1.
    :param feature_names: D names.
    :param target_name: The name of the target.
    :param classes: For classification the names of the C classes, each of at least 2 rows; for
        regression none.
    :raises ValueError: If the arrays do not fit together or are not finite, if there are fewer than
        10 rows, if all targets are equal, or the classes are not as said here.
    """

    X: AnyNDArray
    Y: AnyNDArray
    feature_names: tuple[str, ...]
    target_name: str
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        num_rows, num_features = len(self.X), len(self.feature_names)
        if self.X.shape != (num_rows, num_features) or self.Y.shape != (num_rows, 1):
            raise ValueError(
                f"X has shape {self.X.shape} and Y {self.Y.shape}, expected [N, {num_features}]"
                f" for {num_features} feature names and [N, 1]: reshape them, one row per datum."
            )
        check_finite("X", self.X)
        check_finite("Y", self.Y)
        if num_rows < MIN_ROWS:
            raise ValueError(
                f"the data have {num_rows} rows, expected at least {MIN_ROWS}: add rows, some are"
                " held out for testing."
            )
        if np.ptp(self.Y) == 0.0:
            value = self.classes[0] if len(self.classes) == 1 else self.Y[0, 0]
            raise ValueError(
                f"the target '{self.target_name}' is {value} in every row, expected values that"
                " differ: choose another target column."
            )
        if self.classes:
            self._check_classes()

    def _check_classes(self) -> None:
        numbers = np.arange(len(self.classes))
        if not np.all(np.isin(self.Y, numbers)):
            wrong = self.Y[~np.isin(self.Y, numbers)]
            raise ValueError(
                f"Y has the class {wrong[0]:g}, expected 0 to {len(self.classes) - 1} for"
                f" {len(self.classes)} names of classes: pass the numbers of the classes."
            )
        for name, count in zip(self.classes, np.sum(numbers == self.Y, axis=0), strict=True):
            if count < 2:
                raise ValueError(
                    f"the class '{name}' of '{self.target_name}' has {count} row(s), expected at"
                    " least 2, to train on and to hold out: remove it or join it with another; or"
                    " is the target a number, for regression?"
                )


def _check_header(names: list[str], path: Path, target: str) -> None:
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ValueError(
            f"{path} has more than one column named {', '.join(duplicates)}, expected different"
            " names: rename or remove the copies."
        )
    if target not in names:
        hint = "name one of these; the first line must hold the column names, separated by commas"
        raise ValueError(
            f"{path} has no column '{target}', its columns are {', '.join(names)}: {hint}."
        )
    if len(names) == 1:
        raise ValueError(
            f"{path} has only the target column '{target}', expected at least one input column:"
            " add the inputs, separated by commas."
        )


def _parse(path: Path) -> pd.DataFrame:
    """Read the table under the names in the file: pandas renames duplicates."""
    try:
        names = pd.read_csv(path, header=None, nrows=1, dtype=str, encoding="utf-8-sig").iloc[0]
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)
            table = pd.read_csv(path, index_col=False, skipinitialspace=True)
    except FileNotFoundError as error:
        raise ValueError(
            f"{path} does not exist, expected a CSV file: check the name and the folder."
        ) from error
    except pd.errors.EmptyDataError as error:
        raise ValueError(
            f"{path} is empty, expected a line of column names and rows of numbers: check how it"
            " was written."
        ) from error
    except (OSError, EOFError, zlib.error, ValueError, pd.errors.ParserWarning) as error:
        raise ValueError(
            f"{path} cannot be read ({error}), expected a CSV file, plain or compressed, with as"
            " many values in each row as there are names in the first: check how it was written."
        ) from error
    table.columns = pd.Index(names.fillna("").astype(str).str.strip())
    return table


def _numeric(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Convert the table to float64; refuse text, missing and infinite values."""
    numbers = table.apply(pd.to_numeric, errors="coerce").astype(np.float64)
    missing = table.isna()
    faults = {
        "text": (numbers.isna() & ~missing, "encode the column as numbers or remove it"),
        "no value": (missing, "fill the values in, or remove the rows or the column"),
        "an infinite value": (np.isinf(numbers), "correct the values or remove the rows"),
    }
    for fault, (found, remedy) in faults.items():
        for name in table.columns[found.any()]:
            row = int(np.argmax(found[name]))
            value = f" ({table[name].iloc[row]!r})" if fault == "text" else ""
            raise ValueError(
                f"{path}, column '{name}': {int(found[name].sum())} of {len(table)} rows have"
                f" {fault}, the first is row {row}{value} (rows count from 0), expected a finite"
                f" number in every row: {remedy}."
            )
    return numbers


def looks_like_classes(target: "pd.Series[Any]") -> bool:
    """
    Guess whether a column is classes rather than numbers.

    Classes are text (for the most part, so that a slip among numbers is none), truth values, or 2
    to 10 different values that are all whole.

    :param target: The column; values may be missing.
    """
    if pd.api.types.is_bool_dtype(target):
        return True
    if not pd.api.types.is_numeric_dtype(target):
        numbers = pd.to_numeric(target.dropna(), errors="coerce")
        return bool(numbers.isna().sum() > numbers.notna().sum())
    values = target.dropna().unique()
    return 2 <= len(values) <= MAX_GUESSED_CLASSES and bool(np.all(values == np.round(values)))


def _numbers_of_classes(target: "pd.Series[Any]") -> tuple["pd.Series[Any]", tuple[str, ...]]:
    """Turn classes into their numbers, in increasing or alphabetical order; NaN stays NaN."""
    if not pd.api.types.is_numeric_dtype(target):
        target = target.where(target.isna(), target.astype(str).str.strip())
    numbers, values = pd.factorize(target, sort=True)
    names = tuple(
        str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        for value in values.tolist()
    )
    return pd.Series(numbers, target.index, dtype=np.float64).where(numbers >= 0), names


def read_csv(
    path: str | PathLike[str],
    target: str,
    task: Literal["regression", "classification"] | None = None,
) -> Dataset:
    """
    Read a CSV file: a line of column names, then numbers only; classes may have any names.

    A compressed file (`.csv.gz`) is fine. Input columns that are constant are dropped, with a
    warning.

    :param path: The file.
    :param target: The name of the column to predict; all others are inputs.
    :param task: Whether that is a number or a class; None: see :func:`looks_like_classes`.
    :raises ValueError: If the file does not exist, is empty or is no such CSV file; if column names
        are repeated, or `target` is not among them; if a value is text, missing or infinite; if
        there are no input columns that vary; or as :class:`Dataset`.
    """
    path = Path(path)
    table = _parse(path)
    _check_header(list(table.columns), path, target)
    classes: tuple[str, ...] = ()
    if task == "classification" or (task is None and looks_like_classes(table[target])):
        table[target], classes = _numbers_of_classes(table[target])
    numbers = _numeric(table, path)
    inputs = numbers.drop(columns=target)
    constant = inputs.columns[(inputs.max() == inputs.min()).to_numpy()]
    if len(constant) == inputs.shape[1]:
        raise ValueError(
            f"{path}: every input column is constant ({', '.join(constant)}), expected at least one"
            " that varies: add an informative input."
        )
    if len(constant) > 0:
        warnings.warn(
            f"{path}: dropped the constant column(s) {', '.join(constant)}, which say nothing about"
            f" '{target}'.",
            stacklevel=2,
        )
        inputs = inputs.drop(columns=constant)
    return Dataset(
        X=inputs.to_numpy(),
        Y=numbers[[target]].to_numpy(),
        feature_names=tuple(inputs.columns),
        target_name=target,
        classes=classes,
    )


#: Data sets that scikit-learn ships, and the names of their targets.
EXAMPLES: dict[str, tuple[Callable[[], Any], str]] = {
    "diabetes": (partial(load_diabetes, scaled=False), "progression"),
    "breast-cancer": (load_breast_cancer, "diagnosis"),
    "wine": (load_wine, "cultivar"),
}


def load_example(name: str) -> Dataset:
    """
    Load a data set of scikit-learn, whose pages say where it is from.

    :param name: "diabetes" (442 patients, 10 inputs, the progression of the disease a year later),
        "breast-cancer" (569 tumours, 30 inputs, 2 classes) or "wine" (178 wines, 13 inputs, 3).
    """
    load, target_name = EXAMPLES[name]
    bunch = load()
    return Dataset(
        X=bunch.data,
        Y=bunch.target[:, None].astype(np.float64),
        feature_names=tuple(map(str, bunch.feature_names)),
        target_name=target_name,
        classes=tuple(map(str, bunch.get("target_names", ()))),
    )


class Split(NamedTuple):
    """Row numbers of a data set, each part in increasing order."""

    train: AnyNDArray
    test: AnyNDArray


def split_rows(dataset: Dataset, test_fraction: float, seed: int) -> Split:
    """
    Hold out a random part of the rows, of each class in the same proportion.

    :param dataset: The data.
    :param test_fraction: The fraction to hold out, in (0, 1).
    :param seed: The same seed gives the same split.
    :raises ValueError: If a part has fewer than 2 rows, or fewer rows than there are classes.
    """
    num_rows, fewest = len(dataset.X), max(2, len(dataset.classes))
    num_test = int(np.ceil(test_fraction * num_rows)) if 0.0 < test_fraction < 1.0 else 0
    if not fewest <= num_test <= num_rows - fewest:
        raise ValueError(
            f"a test fraction of {test_fraction} holds out {num_test} of {num_rows} rows, expected"
            f" at least {fewest} rows in either part (and of each class 1): choose a fraction in"
            " (0, 1), as 0.2."
        )
    labels = dataset.Y[:, 0] if dataset.classes else None
    parts = train_test_split(
        np.arange(num_rows), test_size=num_test, random_state=seed, stratify=labels
    )
    return Split(*map(np.sort, parts))
