"""Variances that rounding made negative. They are set to 0, with one warning for each
call.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from ..engine.refusals import counted
from .units import Array

#: A relative change of the variance of y from which there is a warning.
REPORTED = 1e-6
#: The relative changes of rows [N], for each time that variances were cut; None if they
#: are not recorded.
_CHANGES: ContextVar[list[Array] | None] = ContextVar("_CHANGES", default=None)


def record_cut(variance: Array, of_target: Array) -> None:
    """Record by how much the variances of rows change if they are set to 0.

    :param variance: The variance of f as it was computed, [N, L].
    :param of_target: The variance of y with a variance of f of at least 0, [N, P].
    """
    changes = _CHANGES.get()
    if changes is not None:
        least = np.min(of_target, axis=1)
        changes.append(np.max(np.maximum(-variance, 0.0), axis=1) / least)


@contextmanager
def cuts_reported() -> Iterator[None]:
    """Warn once of all changes in this context that matter."""
    if _CHANGES.get() is not None:  # the outer context reports
        yield
        return
    changes: list[Array] = []
    token = _CHANGES.set(changes)
    try:
        yield
    finally:
        _CHANGES.reset(token)
    largest = max((np.max(change) for change in changes), default=0.0)
    if largest <= REPORTED:
        return
    num_cut = sum(int(np.sum(change > REPORTED)) for change in changes)
    share = f"{100.0 * min(largest, 1.0):.1g}%"
    text = (
        f"Rounding made the variance of f negative in {counted(num_cut, 'prediction')}"
        " of a row by a model. It was set to 0, which changes the variance of y by up"
        f" to {share}. Standard deviations of these rows are unreliable. The noise is"
        " tiny compared with the variance of the kernel: give y with more digits, use"
        " fewer inducing points, or bound the noise from below by a likelihood such"
        " as gpflow.likelihoods.Gaussian(variance_lower_bound=1e-4)."
    )
    warnings.warn(text, UserWarning, stacklevel=5)
