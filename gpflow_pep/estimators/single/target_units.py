"""The conversion of targets to the units of a regressor's model, and back."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import StandardScaler

from ...distributions import Units
from ...engine.refusals.arrays import AnyNDArray
from .outputs import parts_of
from .when_used import entries, factors, gpflow, likelihoods


def fit_units(Y: AnyNDArray, *, scaled: AnyNDArray, logarithm: bool) -> Units:
    """Choose the units from targets [N, P], some of which may be missing (NaN). Other
    columns are ignored.

    :param scaled: Whether the targets of each output are standardised, [P].
    :param logarithm: Whether the model is of their logarithms.
    :raises ValueError: If a target has no logarithm.
    """
    levels = _levels(Y[:, : len(scaled)], logarithm)
    offset = np.zeros(len(scaled))
    scale = np.ones(len(scaled))
    if scaled.any():
        scaler = StandardScaler().fit(levels)
        offset = scaler.mean_ * scaled
        scale = np.where(scaled, scaler.scale_, 1.0)
    return Units.of_columns(scale, offset, logarithm)


def spread_of(X: AnyNDArray) -> AnyNDArray:
    """Compute the standard deviation of each column of X [N, D]; 1 for constant
    columns.
    """
    spread = np.std(X, axis=0)
    return np.where(spread > 0.0, spread, 1.0)


def to_model(units: Units, Y: AnyNDArray) -> AnyNDArray:
    """Convert targets [N, P], some of which may be missing (NaN), to the model's units.
    Further columns, which hold other data for the likelihood, stay.
    """
    P = np.size(units.scale)
    _levels(Y[:, :P], units.logarithm)
    t = units.transform(Y[:, :P])
    return np.hstack([t.astype(Y.dtype, copy=False), Y[:, P:]])


def likelihood_in(
    units: Units, likelihood: gpflow.likelihoods.Likelihood
) -> gpflow.likelihoods.Likelihood:
    """Convert the likelihood of targets to the likelihood of targets in the model's
    units.
    """
    P = np.size(units.scale)
    if (
        np.all(units.scale == np.ones(P))
        and not np.any(units.offset)
        and not units.is_warped
    ):
        return likelihood
    linear = units._replace(logarithm=False)
    of_outputs = parts_of(likelihood, P)
    changed = list(of_outputs)
    for p, output in enumerate(of_outputs):

        def change(value: float, p: int = p) -> float:
            row: AnyNDArray = np.full([1, P], value, gpflow.default_float())
            t = linear.transform(row)  # with the rounding of targets
            return float(t.astype(row.dtype)[0, p])

        in_units = factors.traits(output).in_units
        if in_units is not None:
            changed[p] = in_units(change, float(np.ravel(units.scale)[p]))
    if all(new is old for new, old in zip(changed, of_outputs, strict=True)):
        return likelihood
    return changed[0] if P == 1 else likelihoods.PerOutput(changed)


def log_slopes(
    units: Units, likelihood: gpflow.likelihoods.Likelihood, Y: AnyNDArray
) -> AnyNDArray:
    """Compute log densities in original units minus log densities in the model's units,
    [N, P]; 0 if a target has a probability, which has no units.
    """
    slopes = units.log_slope(units.inverse_transform(Y[:, : np.size(units.scale)]))
    return np.where(factors.traits(likelihood).has_density(Y), slopes, 0.0)


def _levels(Y: AnyNDArray, logarithm: bool) -> AnyNDArray:
    if not logarithm:
        return Y
    are_allowed = np.isnan(Y) | (np.isfinite(Y) & (Y > 0.0))
    if not are_allowed.all():
        entries.check_entries(likelihoods.LogNormal(), Y)
    return np.log(Y)
