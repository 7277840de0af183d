"""Targets of several columns, with missing values: checks, scores, and parts of the
model.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import r2_score
from sklearn.utils import check_array, check_consistent_length

from ...engine.refusals import counted, refusal
from ...engine.refusals.arrays import AnyNDArray
from ...engine.refusals.numbers import check_number
from .inputs import check_sizes, check_table, filled
from .when_used import factors, gpflow, prior, starts

#: The largest number of latent functions that outputs are mixed from by default. q is
#: one Gaussian over the inducing variables of all of them, so the time grows at least
#: with the square of their number.
MOST_LATENT = 4


def has_columns(y: Any) -> bool:
    """Whether targets have several columns. Targets that are not arrays are refused by
    scikit-learn.
    """
    try:
        shape = np.asarray(y).shape
    except (TypeError, ValueError):
        return False
    return len(shape) == 2 and shape[1] > 1


def as_outputs(
    name: str,
    Y: Any,
    X: AnyNDArray,
    num_columns: int | None = None,
    names: Sequence[str] | None = None,
) -> AnyNDArray:
    """Check targets of several columns, [N, P]; NaN marks a target that was not
    observed.

    :param X: The inputs of the rows; the targets get their float type.
    :param num_columns: P, if it is known.
    :param names: The names of the columns; the columns of a table are put in this
        order.
    :raises ValueError: If the targets are not numbers, have another shape or other
        names, or are infinite.
    """
    check_table(name, Y)
    given = Y
    Y = filled(Y)
    options: dict[str, Any] = {"ensure_all_finite": "allow-nan", "input_name": name}
    options |= {"ensure_2d": num_columns is None, "ensure_min_samples": 0}
    checked: AnyNDArray = check_array(Y, dtype=X.dtype, **options)
    check_consistent_length(X, checked)
    if num_columns is not None and checked.shape[1:] != (num_columns,):
        got = checked.shape[1] if checked.ndim > 1 else 1
        expected = f"{num_columns} columns, as in training"
        remedy = (
            "Pass all columns, with NaN for unknown targets and, for Tobit, 0 for a"
            " value that is not a limit."
        )
        raise refusal(name, counted(got, "column"), expected, remedy)
    check_sizes(name, checked)
    present = column_names(given)
    if names is None or present is None or present == list(names):
        return checked
    if sorted(present) != sorted(set(names)):
        expected = f"{list(names)} in any order, as in training"
        raise refusal(
            name, f"the columns {present}", expected, "Rename or select the columns."
        )
    return checked[:, [present.index(column) for column in names]]


def column_names(Y: Any) -> list[str] | None:
    """Return the names of the columns of a table; None if there are no names."""
    return [str(name) for name in Y.columns] if hasattr(Y, "columns") else None


def check_readings(
    Y: AnyNDArray, names: Sequence[str] | None, has_noise: AnyNDArray
) -> None:
    """Refuse targets [N, P] if a column has fewer than two, and warn if all targets of
    a column are equal, if the size of the noise is learnt, or 0.

    :param has_noise: Whether the size of the noise is learnt, for each output, [P].
    """
    for place, (column, learns) in enumerate(zip(Y.T, has_noise, strict=True)):
        label = f" in column {place if names is None else repr(names[place])}"
        label = label if Y.shape[1] > 1 else ""
        there = column[~np.isnan(column)]
        if len(there) < 2:
            remedy = "Leave out this column, or use more rows."
            got = f"{len(there)} sample(s) with a target{label}"
            raise refusal("y", got, "at least 2, to learn how targets vary", remedy)
        rounding = len(there) * np.finfo(there.dtype).eps * np.abs(there).max()
        # Counts that are all 0 say as little as equal measurements.
        if not there.any() or (learns and np.ptp(there) <= rounding):
            warnings.warn(
                f"y: all targets{label} are {there[0]:g}, so the spread of targets"
                " cannot be learnt, and predicted standard deviations are"
                " meaningless.",
                stacklevel=4,
            )


def observed_rows(X: AnyNDArray, Y: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Leave out rows without any observed target."""
    observed = ~np.isnan(Y).all(axis=1)
    return X[observed], Y[observed]


def make_output_kernel(
    kernel: gpflow.kernels.Kernel,
    X: AnyNDArray,
    Y: AnyNDArray,
    num_latent: int | None,
    in_units: AnyNDArray,
    shares_noise: bool,
) -> gpflow.kernels.Kernel:
    """Make the kernel of several outputs from the kernel of one output, or use a kernel
    that already mixes outputs.

    :param kernel: The kernel that each latent function gets a copy of, or a
        ``LinearCoregionalization``.
    :param num_latent: The number of latent functions. None selects one for each output,
        at most :data:`MOST_LATENT`. 0 makes the outputs independent, with one shared
        kernel.
    :param in_units: Whether f has the units of Y, for each output, [P].
    :param shares_noise: Whether to add white noise if the number of latent functions is
        not given: one white latent function for 2 or 3 outputs, which then can have any
        covariance, otherwise two.
    :raises ValueError: If the number differs from the number in the kernel, or is
        larger than the number of outputs.
    """
    if prior.is_mixed(kernel):
        size = len(kernel.latent_kernels)
        if num_latent not in (None, size):
            expected = f"{size}, the number in the kernel"
            raise refusal("num_latent", num_latent, expected, "Leave it out.")
        return kernel
    size = min(Y.shape[1], MOST_LATENT) if num_latent is None else num_latent
    if size != 0:
        check_number(size, Y.shape[1], "num_latent", counted="columns of y")
    if size == 0 or Y.shape[1] == 1:
        return kernel
    scale = np.nanstd(Y, axis=0)
    options: dict[str, Any] = {"scales": np.where(in_units & (scale > 0.0), scale, 1.0)}
    if shares_noise and num_latent is None:
        options["num_white"] = 1 if Y.shape[1] < 4 else 2
    mixed: gpflow.kernels.LinearCoregionalization = starts.coregionalization(
        (X, Y), size, kernel=kernel, **options
    )
    return mixed


def parts_of(
    likelihood: gpflow.likelihoods.Likelihood, num_outputs: int
) -> list[gpflow.likelihoods.Likelihood]:
    """Return the likelihood of each output; refuse another number of likelihoods."""
    likelihoods = [likelihood] * num_outputs
    if num_outputs > 1:
        likelihoods = list(getattr(likelihood, "likelihoods", likelihoods))
    if len(likelihoods) != num_outputs:
        expected = f"{num_outputs}, one for each column of y"
        raise refusal(
            "likelihood",
            counted(len(likelihoods), "likelihood"),
            expected,
            "Pass a likelihood for each column.",
        )
    return likelihoods


def have_units(
    likelihood: gpflow.likelihoods.Likelihood, num_outputs: int
) -> AnyNDArray:
    """Find for each output, [P], whether its targets may be shifted and scaled."""
    likelihoods = parts_of(likelihood, num_outputs)
    return np.array(
        [factors.traits(output).in_units is not None for output in likelihoods]
    )


def mean_r2(Y: AnyNDArray, mean: AnyNDArray, sample_weight: AnyNDArray | None) -> float:
    """Average R² over outputs, each computed from its observed targets."""
    scores = []
    for true, predicted in zip(Y.T, mean.T, strict=True):
        there = ~np.isnan(true)
        weight = None if sample_weight is None else np.asarray(sample_weight)[there]
        if there.any():
            scores.append(r2_score(true[there], predicted[there], sample_weight=weight))
    return float(np.mean(scores)) if scores else np.nan
