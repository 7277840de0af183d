"""Targets of several columns, of which some may be missing: checks, scores, parts of the model."""

from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.likelihoods import Likelihood
from sklearn.metrics import r2_score
from sklearn.utils import check_array, check_consistent_length

from ..checks import check_number, refusal
from ..covariances.mixing import is_mixture
from ..selection import coregionalization
from ..tilted import support

#: The most latent functions of which outputs are mixtures by default: q is one Gaussian over the
#: inducing variables of all of them, so that time grows with the square of their number at least.
MOST_LATENT = 4
#: Beyond all bounds of targets.
_LARGE = 1e30


def has_columns(y: Any) -> bool:
    """Whether targets have several columns; of what is no array scikit-learn says what is wrong."""
    try:
        shape = np.asarray(y).shape
    except (TypeError, ValueError):
        return False
    return len(shape) == 2 and shape[1] > 1


def as_outputs(name: str, Y: Any, X: AnyNDArray, num_outputs: int | None = None) -> AnyNDArray:
    """
    Check targets of several columns, [N, P]; NaN are those that were not observed.

    :param X: The inputs of the rows, whose float they get.
    :param num_outputs: P, where it is known.
    :raises ValueError: If they are no numbers, of another shape, or infinite.
    """
    options: dict[str, Any] = {"ensure_all_finite": "allow-nan", "input_name": name}
    checked: AnyNDArray = check_array(Y, dtype=X.dtype, ensure_min_samples=0, **options)
    check_consistent_length(X, checked)
    if num_outputs not in (None, checked.shape[1]):
        expected = f"{num_outputs}, as the estimator was trained on"
        remedy = "Give as many, with NaN where a target is not known."
        raise refusal(name, f"{checked.shape[1]} columns", expected, remedy)
    return checked


def column_names(Y: Any) -> list[str] | None:
    """Give the names of the columns of a table; None of what has none."""
    return [str(name) for name in Y.columns] if hasattr(Y, "columns") else None


def observed_rows(X: AnyNDArray, Y: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Leave out rows of which nothing was observed; refuse an output that never was."""
    there = ~np.isnan(Y)
    unseen = np.flatnonzero(~there.any(axis=0))
    if unseen.size:
        got = f"NaN alone in column {unseen[0]}"
        raise refusal("y", got, "some targets in each column", "Leave such columns out.")
    some = there.any(axis=1)
    return X[some], Y[some]


def make_output_kernel(
    kernel: Kernel, X: AnyNDArray, Y: AnyNDArray, num_latent: int | None, in_units: AnyNDArray
) -> Kernel:
    """
    Make the kernel of several outputs from that of one, or take one that mixes them already.

    :param kernel: What the latent functions have copies of, or a ``LinearCoregionalization``.
    :param num_latent: How many latent functions there are; None: one for each output, but
        :data:`MOST_LATENT` at most; 0: outputs are independent and share the kernel.
    :param in_units: Of which outputs f has the units of Y, [P].
    :raises ValueError: If the number is another than that of the kernel, or above that of outputs.
    """
    if is_mixture(kernel):
        number = len(kernel.latent_kernels)
        if num_latent not in (None, number):
            expected = f"{number}, which the kernel has"
            raise refusal("num_latent", num_latent, expected, "Leave it out.")
        return kernel
    number = min(Y.shape[1], MOST_LATENT) if num_latent is None else num_latent
    if number != 0:
        check_number(number, Y.shape[1], "num_latent", counted="columns of y")
    if number == 0 or Y.shape[1] == 1:
        return kernel
    scale = np.nanstd(Y, axis=0)
    scales = np.where(in_units & (scale > 0.0), scale, 1.0)
    mixture: LinearCoregionalization = coregionalization(
        (X, Y), number, kernel=kernel, scales=scales
    )
    return mixture


def takes_any_number(likelihood: Likelihood, num_outputs: int) -> AnyNDArray:
    """Say of each output, [P], whether its targets may be shifted and scaled: whether negative
    ones, fractions and numbers of any size have a probability."""
    parts = [likelihood] * num_outputs
    if num_outputs > 1:
        parts = list(getattr(likelihood, "likelihoods", parts))
    if len(parts) != num_outputs:
        expected = f"{num_outputs}, one for each column of y"
        raise refusal("likelihood", f"{len(parts)} likelihoods", expected, "Give as many.")
    probes = np.array([[-0.5], [0.5], [-_LARGE], [_LARGE]])
    rules = (support.dispatch_or_raise(type(part))(part, probes) for part in parts)
    return np.array([bool(np.all(rule.inside)) for rule in rules])


def mean_r2(Y: AnyNDArray, mean: AnyNDArray, sample_weight: AnyNDArray | None) -> float:
    """Average R² over outputs, each of the targets that were observed."""
    scores = []
    for true, predicted in zip(Y.T, mean.T, strict=True):
        there = ~np.isnan(true)
        weight = None if sample_weight is None else np.asarray(sample_weight)[there]
        if there.any():
            scores.append(r2_score(true[there], predicted[there], sample_weight=weight))
    return float(np.mean(scores)) if scores else np.nan
