"""Checks of what is to be drawn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ..checks import is_number, refusal

_LEAVE_OUT = "Leave out rows without a value."


def vector(name: str, values: Any, remedy: str = _LEAVE_OUT) -> AnyNDArray:
    """
    Make a vector of finite numbers of an array, list, column of a table, or tensor; a matrix of one
    column is one.

    :param remedy: What to do about values that are not finite.
    """
    array = _only_column(_numbers(name, values, "a number"))
    if array.ndim != 1:
        raise refusal(
            name,
            f"shape {array.shape}",
            "one number for each row, [N]",
            "Pass one column at a time.",
        )
    if array.size == 0:
        raise refusal(name, "no values", "at least one", "Pass rows to draw.")
    _check_finite(name, array, remedy)
    return array


def vectors(**arguments: Any) -> list[AnyNDArray]:
    """Make vectors of the same length, see :func:`vector`."""
    arrays = {name: vector(name, values) for name, values in arguments.items()}
    first, *_ = arrays
    for name, array in arrays.items():
        check_same_length(name, array, first, arrays[first])
    return list(arrays.values())


def matrix(name: str, values: Any, num_columns: int | None = None) -> AnyNDArray:
    """Make a matrix of finite numbers, [N, D]; a vector is one column."""
    array = _numbers(name, values, "a row of numbers")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or 0 in array.shape or num_columns not in (None, array.shape[1]):
        raise refusal(
            name,
            f"shape {np.shape(values)}",
            f"[N, {num_columns or 'D'}]",
            "Choose columns, or reshape it.",
        )
    _check_finite(name, array, _LEAVE_OUT)
    return array


def labels(name: str, values: Any) -> AnyNDArray:
    """Make a vector of class labels: numbers or words, none of them missing."""
    array = _only_column(np.asarray(values))
    if array.ndim != 1 or array.size == 0:
        raise refusal(
            name,
            f"shape {array.shape}",
            "a label for each row, [N] with at least one",
            "Pass one column.",
        )
    missing = [value is None or value != value for value in array.tolist()]
    if any(missing):
        raise refusal(
            name,
            f"{sum(missing)} missing label(s), the first at index {missing.index(True)}",
            "one for each row",
            "Leave those rows out.",
        )
    return array


def check_same_length(name: str, values: Any, other: str, others: Any) -> None:
    if len(values) != len(others):
        raise refusal(
            name,
            f"{len(values)} values",
            f"{len(others)}, as many as {other}",
            "Pass those of the same rows.",
        )


def check_positive(name: str, values: AnyNDArray) -> AnyNDArray:
    if np.min(values) <= 0.0:
        remedy = "Pass standard deviations of y, noise included."
        raise refusal(name, f"{np.min(values):g}", "positive numbers", remedy)
    return values


def check_level(level: Any) -> float:
    if not is_number(level) or not 0.0 < level < 1.0:
        raise refusal("level", repr(level), "a number in (0, 1)", "Pass 0.9 for 90%.")
    return float(level)


def as_names(kind: str, names: Sequence[Any] | None, number: int) -> list[str]:
    """Give a name for each of some classes or inputs, as text: the user's, or kind and number."""
    if names is None:
        return [f"{kind} {place}" for place in range(number)]
    if isinstance(names, str) or len(names) != number:
        got = repr(names) if isinstance(names, str) else f"{len(names)} names"
        raise refusal("names", got, f"{number}, one for each {kind}", "Pass a list.")
    return [str(name) for name in names]


def _only_column(array: AnyNDArray) -> AnyNDArray:
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _check_finite(name: str, array: AnyNDArray, remedy: str) -> None:
    bad = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
    if bad.size:
        got = f"NaN or infinity in {bad.size} row(s), the first at index {bad[0]}"
        raise refusal(name, got, "finite numbers", remedy)


def _numbers(name: str, values: Any, expected: str) -> AnyNDArray:
    try:
        array: AnyNDArray = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        got = f"{type(values).__name__} that is no array of numbers ({error})"
        raise refusal(name, got, f"{expected} for each row", "Convert it.") from error
    return array
