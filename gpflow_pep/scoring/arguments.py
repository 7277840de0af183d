"""Checks of rows that users pass, without TensorFlow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..distributions.units import Array
from ..engine.refusals import refusal


def as_rows(
    X: Any, num_columns: int, names: Sequence[str] | None, *, unknown: bool = False
) -> Array:
    """Convert inputs to an array [N, D] of finite numbers.

    :param X: An array, lists of numbers, or a table. Columns of a table are found by
        name.
    :param num_columns: D.
    :param names: The names of the columns; None where they are not known.
    :param unknown: Whether rows may be NaN throughout, of which nothing is known.
    :raises ValueError: If there are no rows, other columns, or values that are no
        finite numbers.
    """
    if names is not None and hasattr(X, "columns"):
        columns = [str(column) for column in X.columns]
        if sorted(columns) != sorted(names):
            remedy = "Choose them: X[list(scorer.feature_names_in_)]."
            raise refusal(
                "X", f"the columns {columns}", f"the columns {list(names)}", remedy
            )
        X = X[list(names)]
    try:
        array = np.asarray(X)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"values of type {array.dtype}")
        rows = array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        got = f"{type(X).__name__} that is no array of numbers ({error})"
        remedy = "Convert it: numpy.asarray(X, dtype=float)."
        raise refusal("X", got, f"numbers, [N, {num_columns}]", remedy) from error
    if rows.ndim != 2 or rows.shape[1] != num_columns or not len(rows):
        expected = f"[N, {num_columns}] with at least one row"
        remedy = "Give the columns of the training data; a single row is X[None, :]."
        raise refusal("X", f"shape {rows.shape}", expected, remedy)
    right = np.isfinite(rows).all(axis=1) | (np.isnan(rows).all(axis=1) & unknown)
    wrong = np.flatnonzero(~right)
    if len(wrong):
        got = f"NaN or infinity in {len(wrong)} row(s), the first at index {wrong[0]}"
        remedy = "Remove those rows or fill in the missing values."
        raise refusal("X", got, "finite numbers", remedy)
    return rows
