"""Positions of inducing inputs, and a picture of scores at several powers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

from ..engine.checks import as_vector, as_vectors, refusal, require_same_length
from . import canvas
from .canvas import BEST, FIT, color_of

_STYLES = "--", "-.", ":"


class Inducing(NamedTuple):
    """Positions of inducing variables."""

    Z: AnyNDArray  #: Inputs, [M, D].
    covariance: AnyNDArray | None = (
        None  #: The covariances of the blur, [M, D, D]; None for points.
    )


def inducing_points_of(model: Any) -> list[Inducing]:
    """Find the inducing inputs of each set in a model. For an estimator they are in
    original units.

    :param model: A model of GPflow or of this package, a fitted ``PEPRegressor`` or
        ``PEPClassifier``, or an inducing variable.
    :raises ValueError: If it has no inducing variable with inputs Z.
    """
    scaler = getattr(model, "input_scaler_", None)
    variables: Any = model
    for name in ("inducing_variable", "inducing_variable_"):
        variables = getattr(model, name, variables)
    sets = getattr(variables, "inducing_variables", (variables,))
    sets = [getattr(variable, "inducing_variable", variable) for variable in sets]
    if not all(hasattr(variable, "Z") for variable in sets):
        got = (
            f"{type(model).__name__} with the inducing variable"
            f" {type(variables).__name__}"
        )
        remedy = "Leave out this argument, or draw the points yourself."
        raise refusal("model", got, "an inducing variable with inputs Z", remedy)
    scale = getattr(scaler, "scale_", None)
    inputs = []
    square = 1.0 if scale is None else np.outer(scale, scale)
    for variable in sets:
        Z = np.asarray(variable.Z)
        blur = getattr(variable, "covariance", None)
        Z = Z if scaler is None else scaler.inverse_transform(Z)
        inputs.append(Inducing(Z, None if blur is None else square * np.asarray(blur)))
    return inputs


@canvas.picture()
def alpha_sweep(
    alphas: Any,
    values: Any,
    errors: Any = None,
    *,
    best: float | None = None,
    baselines: Mapping[str, float | tuple[float, float]] | None = None,
    label: str = "",
    ax: Any = None,
) -> None:
    """Draw a score against the power, with error bars, and other methods as horizontal
    lines.

    A line far from all powers would squeeze the picture. It is left out, and the legend
    has an arrow that shows its direction.

    :param alphas: Distinct powers in [0, 1], [A]; at least one.
    :param values: The score of each, [A].
    :param errors: The standard error of each score, [A], or None.
    :param best: The power to mark with a ring, one of `alphas`.
    :param baselines: The scores of other methods by name; each is a number, or a pair
        of a number and its standard error.
    :param label: The label of the score.
    :raises ValueError: If arrays are not finite or differ in length, if a power is not
        in [0, 1] or appears twice, if an error is negative, or if `best` is not one of
        the powers.
    """
    alphas, values = as_vectors(alphas=alphas, values=values)
    errors = np.zeros_like(values) if errors is None else as_vector("errors", errors)
    require_same_length("errors", errors, "alphas", alphas)
    others = {
        str(name): np.append(
            as_vector(f"baselines of {name!r}", np.atleast_1d(pair)), 0.0
        )[:2]
        for name, pair in (baselines or {}).items()
    }
    _check_powers(
        alphas, np.append(errors, [error for _, error in others.values()]), best
    )
    order = np.argsort(alphas)
    alphas = alphas[order]
    values = values[order]
    errors = errors[order]
    several = len(alphas) > 1
    text = None if several else f"alpha {alphas[0]:g}: {values[0]:.4g}"
    bars = errors if errors.any() else None
    form = "o-" if several else "o"
    ax.errorbar(
        alphas, values, bars, fmt=form, color=FIT, capsize=3, zorder=4, label=text
    )
    if best is not None and several:
        ring = values[np.isclose(alphas, best)][:1]
        ax.plot(
            [best], ring, "o", color=BEST, markersize=13, fillstyle="none", zorder=5
        )
    low, high = _heights(values, errors, np.reshape(list(others.values()), (-1, 2)))
    for place, (name, (value, error)) in enumerate(others.items(), start=2):
        color = color_of(place)
        style = _STYLES[place % len(_STYLES)]
        text = f"{name}: {value:.4g}"
        if value > high:
            text += " ↑"
        elif value < low:
            text += " ↓"
        ax.axhline(value, color=color, linestyle=style, zorder=2, label=text)
        ax.axhspan(value - error, value + error, color=color, alpha=0.1, linewidth=0)
    ticks = alphas if len(alphas) <= 6 else np.linspace(0.0, 1.0, 6)
    ax.set(xlabel="alpha (0: variational, 1: EP)", ylabel=label, xticks=ticks)
    ax.set(xlim=(-0.05, 1.05), ylim=(low, high))
    ax.ticklabel_format(axis="y", useOffset=False)
    canvas.legend_on_top(ax, columns=2)


def _check_powers(alphas: AnyNDArray, errors: AnyNDArray, best: float | None) -> None:
    if alphas.min() < 0.0 or alphas.max() > 1.0 or len(set(alphas)) < len(alphas):
        remedy = (
            "Draw other methods as baselines, and repeated splits as a mean with its"
            " error."
        )
        raise refusal("alphas", alphas.tolist(), "different numbers in [0, 1]", remedy)
    if errors.min() < 0.0:
        raise refusal(
            "errors", errors.min(), "numbers of at least 0", "Pass standard errors."
        )
    if best is not None and not np.isclose(alphas, best).any():
        raise refusal(
            "best",
            best,
            f"one of alphas, {alphas.tolist()}",
            "Pass one of them, or None.",
        )


def _heights(
    values: AnyNDArray, errors: AnyNDArray, baselines: AnyNDArray
) -> tuple[float, float]:
    """Find limits of y that contain the sweep, and the baselines [B, 2] that are not
    far from it.
    """
    low = float(np.min(values - errors))
    high = float(np.max(values + errors))
    far = 3.0 * (high - low) if len(values) > 1 and high > low else np.inf
    ends = np.ravel(
        [baselines[:, 0] - baselines[:, 1], baselines[:, 0] + baselines[:, 1]]
    )
    near = np.tile((low - far <= baselines[:, 0]) & (baselines[:, 0] <= high + far), 2)
    low = np.min(ends, where=near, initial=low)
    high = np.max(ends, where=near, initial=high)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return float(low - margin), float(high + margin)
