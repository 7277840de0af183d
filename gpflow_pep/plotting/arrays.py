"""Checks of what is to be drawn, beside those of all arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ..checks import as_matrix, as_numbers, refusal


def as_columns(name: str, values: Any, num_columns: int | None = None) -> AnyNDArray:
    """Convert to a matrix of finite numbers, [N, D]; a vector is one column."""
    array = as_numbers(name, values)
    return as_matrix(name, array[:, None] if array.ndim == 1 else array, num_columns)


def check_spread(name: str, values: AnyNDArray) -> AnyNDArray:
    """Refuse standard deviations that are not positive."""
    if np.min(values) <= 0.0:
        remedy = "Pass standard deviations of y, noise included."
        raise refusal(name, f"{np.min(values):g}", "positive numbers", remedy)
    return values


def as_names(kind: str, names: Sequence[Any] | None, number: int) -> list[str]:
    """Give a name for each of some classes or inputs, as text: the user's, or kind and number."""
    if names is None:
        return [f"{kind} {place}" for place in range(number)]
    if isinstance(names, str) or len(names) != number:
        got = repr(names) if isinstance(names, str) else f"{len(names)} names"
        raise refusal("names", got, f"{number}, one for each {kind}", "Pass a list.")
    return [str(name) for name in names]
