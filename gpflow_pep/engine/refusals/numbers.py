"""Checks of numbers, without TensorFlow."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from . import as_code, refusal


def is_number(value: Any) -> bool:
    """Whether a value is a real number. NaN, truth values and text are not."""
    numbers = (int, float, np.integer, np.floating)
    return (
        isinstance(value, numbers)
        and not isinstance(value, bool)
        and bool(value == value)  # NaN is not equal to itself
    )


def check_seed(seed: Any) -> int:
    """Refuse values that are not whole numbers of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        expected = "a whole number of at least 0"
        raise refusal("seed", as_code(seed), expected, "Pass 0, for example.")
    return int(seed)


def check_callable(name: str, value: Any, remedy: str) -> None:
    """Refuse values that are neither None nor a function."""
    if value is not None and not callable(value):
        raise refusal(name, as_code(value), "a function or None", remedy)


def check_positive(name: str, value: Any, remedy: str = "Pass one.") -> int:
    """Refuse values that are not whole numbers of at least 1."""
    if not is_number(value) or value % 1 or value < 1:
        expected = "a positive integer, a whole number of at least 1"
        raise refusal(name, as_code(value), expected, remedy)
    return int(value)


def check_number(M: Any, most: int, name: str = "M", counted: str = "rows") -> None:
    """Refuse values that are not a number from 1 to ``most``, the number of rows or of
    other things.
    """
    if (
        isinstance(M, bool)
        or not isinstance(M, (int, np.integer))
        or not 1 <= M <= most
    ):
        expected = f"an integer from 1 to {most}, the number of {counted}"
        raise refusal(name, as_code(M), expected, "Choose another number.")


def check_real(name: str, value: Any, interval: str, remedy: str) -> float:
    """Refuse values that are not numbers in an interval such as "(0, 1]" or "[0,
    inf)".
    """
    ends = interval[1:-1].split(", ")
    low, high = map(float, ends)
    above = is_number(value) and (value > low or (interval[0] == "[" and value == low))
    if not above or value > high or (interval[-1] == ")" and value == high):
        expected = f"a number in {interval}"
        if high == np.inf:
            expected = (
                f"a number {'above' if interval[0] == '(' else 'of at least'} {ends[0]}"
            )
        expected = "a positive number" if expected == "a number above 0" else expected
        raise refusal(name, as_code(value), expected, remedy)
    return float(value)


def check_level(level: Any) -> float:
    """Refuse values that are not the probability of an interval."""
    return check_real("level", level, "(0, 1)", "Pass 0.9 for 90%.")


def as_coverage(coverage: Any) -> npt.NDArray[np.float64]:
    """Compute the probabilities at the ends of a central interval, [2], from the
    probability of the interval.
    """
    coverage = check_real("coverage", coverage, "(0, 1)", "0.9 is usual.")
    return np.array([0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)])


def as_probabilities(quantiles: Any) -> npt.NDArray[np.float64]:
    """Convert to probabilities in (0, 1), [Q]; refuse other values."""
    try:
        values = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    except (TypeError, ValueError):
        values = np.empty((0, 0))
    if values.ndim != 1 or not np.all((values > 0.0) & (values < 1.0)):
        expected = "probabilities between 0 and 1, both excluded"
        remedy = "The central 90% lies between 0.05 and 0.95."
        raise refusal("quantiles", as_code(quantiles), expected, remedy)
    return values


def check_choice(
    name: str,
    value: Any,
    choices: Iterable[Any],
    remedy: str = "Pass one, or leave it out.",
) -> Any:
    """Refuse values that are not among some names and other choices."""
    if not any(
        isinstance(value, type(choice)) and value == choice for choice in choices
    ):
        raise refusal(name, as_code(value), " or ".join(map(as_code, choices)), remedy)
    return value
