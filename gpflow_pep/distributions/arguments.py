"""Checks of probabilities that users pass."""

from typing import Any

import numpy as np

from ..engine.refusals import refusal
from .units import Array


def as_probabilities(quantiles: Any) -> Array:
    """Convert to probabilities in (0, 1), [Q]; refuse what are none."""
    try:
        values = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    except (TypeError, ValueError):
        values = np.empty((0, 0))
    if values.ndim != 1 or not np.all((values > 0.0) & (values < 1.0)):
        expected = "probabilities between 0 and 1, these excluded"
        remedy = "The central 90% lies between 0.05 and 0.95."
        raise refusal("quantiles", quantiles, expected, remedy)
    return values


def as_coverage(coverage: Any) -> Array:
    """Give the probabilities at the ends of a central interval, [2], by that of the
    interval.
    """
    number = isinstance(coverage, int | float | np.integer | np.floating)
    if not number or isinstance(coverage, bool) or not 0.0 < coverage < 1.0:
        raise refusal("coverage", repr(coverage), "a number in (0, 1)", "0.9 is usual.")
    return np.array([0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)])
