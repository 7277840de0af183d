"""Checks of arrays, without TensorFlow. They convert arguments of users to numbers of a
known shape.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from . import counted, refusal

#: An array of any type and shape.
AnyNDArray = np.ndarray[Any, Any]
_ROWS_WITHOUT = "Leave out rows without a value."


def refuse_masked(name: str, values: Any) -> None:
    """Refuse an array of which some values are masked, because their numbers are still
    there, and other libraries would read them.
    """
    masked = int(np.sum(np.ma.getmaskarray(values))) if np.ma.isMA(values) else 0
    if masked:
        got = f"a masked array with {counted(masked, 'masked value')}"
        remedy = "Leave out their rows, or pass .filled(numpy.nan) for missing targets."
        raise refusal(name, got, "an array without masked values", remedy)


def as_numbers(
    name: str, values: Any, dtype: npt.DTypeLike = np.float64
) -> npt.NDArray[Any]:
    """Convert anything like an array to an array of floats; refuse values that are not
    real numbers.
    """
    refuse_masked(name, values)
    try:
        array = np.asarray(values)
        if values is None or array.dtype.kind not in "fiubO":  # objects may be numbers
            raise TypeError(f"its type is {array.dtype}")
        numbers: npt.NDArray[Any] = array.astype(dtype)
    except (TypeError, ValueError) as error:
        got = f"{type(values).__name__} that is not an array of real numbers ({error})"
        remedy = "Convert it, for instance with numpy.asarray(..., dtype=float)."
        raise refusal(name, got, "an array of numbers", remedy) from error
    return numbers


def as_matrix(
    name: str,
    values: Any,
    num_columns: int | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> npt.NDArray[Any]:
    """Convert to a matrix of finite numbers, [N, D], with at least one row and one
    column.
    """
    array = as_numbers(name, values, dtype)
    if array.ndim != 2 or 0 in array.shape or num_columns not in (None, array.shape[1]):
        got = f"shape {array.shape}"
        expected = f"two axes [N, {num_columns or 'D'}], of at least 1 each"
        raise refusal(name, got, expected, f"A single column is {name}[:, None].")
    require_finite_rows(name, array, _ROWS_WITHOUT)
    return array


def as_vector(name: str, values: Any) -> npt.NDArray[Any]:
    """Convert to a vector of at least one finite number. A matrix of one column becomes
    a vector.
    """
    array = _single_column(name, as_numbers(name, values), "number")
    require_finite_rows(name, array, _ROWS_WITHOUT)
    return array


def as_vectors(**values: Any) -> list[npt.NDArray[Any]]:
    """Convert to vectors of equal length; see :func:`as_vector`."""
    arrays = {name: as_vector(name, numbers) for name, numbers in values.items()}
    reference = next(iter(arrays))
    for name, array in arrays.items():
        require_same_length(name, array, reference, arrays[reference])
    return list(arrays.values())


def as_labels(name: str, values: Any) -> npt.NDArray[Any]:
    """Convert to a vector of class labels, numbers or words, without missing labels."""
    array = _single_column(name, np.asarray(values), "label")
    missing = [value is None or value != value for value in array.tolist()]
    if any(missing):
        got = (
            f"{sum(missing)} missing label(s), the first at index {missing.index(True)}"
        )
        raise refusal(name, got, "a label for each row", "Leave out those rows.")
    return array


def require_finite_rows(name: str, array: npt.NDArray[Any], remedy: str) -> None:
    """Refuse rows with NaN or infinity. The error has the number of these rows, and the
    first one.
    """
    width = array.shape[-1] if array.ndim > 1 else 1
    bad = np.flatnonzero(~np.isfinite(array).reshape(-1, width).all(axis=1))
    if bad.size:
        got = f"NaN or infinity in {bad.size} row(s), the first at index {bad[0]}"
        raise refusal(name, got, "finite numbers", remedy)


def require_shape(
    name: str, array: npt.NDArray[Any], shape: tuple[int | None, ...]
) -> None:
    """Refuse an array of another shape. None stands for any length of an axis."""
    is_same = array.ndim == len(shape) and all(
        length in (None, size) for length, size in zip(shape, array.shape, strict=True)
    )
    if not is_same:
        lengths = ", ".join("any" if n is None else str(n) for n in shape)
        expected = f"the shape [{lengths}]"
        raise refusal(
            name, f"the shape {list(array.shape)}", expected, "Check its axes."
        )


def require_same_length(name: str, values: Any, other: str, others: Any) -> None:
    """Refuse an argument that does not have as many rows as another argument."""
    if len(values) != len(others):
        expected = f"{len(others)}, as many as {other}"
        raise refusal(
            name,
            counted(len(values), "value"),
            expected,
            "Pass values of the same rows.",
        )


def _single_column(name: str, array: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.size == 0:
        expected = f"one {kind} for each row, [N], and at least one row"
        raise refusal(
            name, f"shape {array.shape}", expected, "Pass one column at a time."
        )
    return array
