"""Checks of what is to be drawn: got, expected, what to do."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray


def vector(name: str, values: Any, remedy: str = "Leave out rows without a value.") -> AnyNDArray:
    """
    Make a vector of finite numbers of what a user passed; a matrix of one column is one.

    :param name: What it is.
    :param values: An array, list, column of a table, or tensor.
    :param remedy: What to do about values that are not finite.
    :raises ValueError: If it is none.
    """
    array = _numbers(name, values, "a number")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(
            f"{name}: got shape {array.shape}, expected one number for each row, [N]. Pass one"
            " column at a time."
        )
    if array.size == 0:
        raise ValueError(f"{name}: got no values, expected at least one. Pass rows to draw.")
    _finite(name, array, remedy)
    return array


def vectors(**named: Any) -> list[AnyNDArray]:
    """
    Make vectors of equal length, see :func:`vector`.

    :param named: By name; where the first has N values the others must have N.
    :raises ValueError: If they are not.
    """
    arrays = {name: vector(name, values) for name, values in named.items()}
    first, *_ = arrays
    for name, array in arrays.items():
        same_length(name, array, first, arrays[first])
    return list(arrays.values())


def matrix(name: str, values: Any, num_columns: int | None = None) -> AnyNDArray:
    """
    Make a matrix of finite numbers, [N, D].

    :param name: What it is.
    :param values: An array, table or tensor; a vector is one column.
    :param num_columns: D, where it has to be that.
    :raises ValueError: If it is none.
    """
    array = _numbers(name, values, "a row of numbers")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or 0 in array.shape or num_columns not in (None, array.shape[1]):
        raise ValueError(
            f"{name}: got shape {np.shape(values)}, expected [N, {num_columns or 'D'}]."
            " Choose columns, or reshape it."
        )
    _finite(name, array, "Leave out rows without a value.")
    return array


def positive(name: str, values: AnyNDArray) -> AnyNDArray:
    """
    Refuse numbers that are not positive.

    :raises ValueError: If there are any.
    """
    if np.min(values) <= 0.0:
        raise ValueError(
            f"{name}: got {np.min(values):g}, expected positive numbers. Pass standard deviations"
            " of y, noise included."
        )
    return values


def same_length(name: str, values: Any, other: str, others: Any) -> None:
    """
    Refuse what is not one for each.

    :raises ValueError: If there are not as many of both.
    """
    if len(values) != len(others):
        raise ValueError(
            f"{name}: got {len(values)} values, expected {len(others)}, as many as {other}. Pass"
            " those of the same rows."
        )


def labels_of(name: str, values: Any) -> AnyNDArray:
    """
    Make a vector of class labels: numbers or words.

    :raises ValueError: If it is none, or a label is missing.
    """
    array: AnyNDArray = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name}: got shape {array.shape}, expected a label for each row, [N] with at least"
            " one. Pass one column."
        )
    missing = [value is None or value != value for value in array.tolist()]
    if any(missing):
        raise ValueError(
            f"{name}: got {sum(missing)} missing label(s), the first at index"
            f" {missing.index(True)}, expected one for each row. Leave those rows out."
        )
    return array


def names_of(what: str, names: Sequence[Any] | None, number: int, default: str) -> list[str]:
    """
    Give a name for each, as text.

    :param what: What they name.
    :param names: Given ones, or None.
    :param number: How many there are.
    :param default: Before the number, where none are given.
    :raises ValueError: If there is another number of names.
    """
    if names is None:
        return [f"{default} {place}" for place in range(number)]
    if isinstance(names, str) or len(names) != number:
        got = repr(names) if isinstance(names, str) else f"{len(names)} names"
        raise ValueError(f"names: got {got}, expected {number}, one for each {what}. Pass a list.")
    return [str(name) for name in names]


def level_of(level: Any) -> float:
    """
    Refuse what is no level of an interval.

    :raises ValueError: If it is not in (0, 1).
    """
    if not isinstance(level, (int, float, np.floating)) or not 0.0 < level < 1.0:
        raise ValueError(f"level: got {level!r}, expected a number in (0, 1). Pass 0.9 for 90%.")
    return float(level)


def _finite(name: str, array: AnyNDArray, remedy: str) -> None:
    bad = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
    if bad.size:
        raise ValueError(
            f"{name}: got NaN or infinity in {bad.size} row(s), the first at index {bad[0]},"
            f" expected finite numbers. {remedy}"
        )


def _numbers(name: str, values: Any, expected: str) -> AnyNDArray:
    try:
        array: AnyNDArray = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: got {type(values).__name__} that is no array of numbers ({error}), expected"
            f" {expected} for each row. Convert it."
        ) from error
    return array
