"""Pictures of inducing inputs, and of their blur."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

from ..checks import refusal
from ..inducing_variables import BlurredInducingPoints
from .arrays import as_columns, as_names
from .canvas import BEST, INK, TRAIN, axes_for, color_of, halo, legend_on_top, tidy
from .clouds import backdrop

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Inducing(NamedTuple):
    """Where inducing variables are."""

    Z: AnyNDArray
    """Inputs, [M, D]."""

    covariance: AnyNDArray | None = None
    """Of the blur of each, [M, D, D]; None for points."""


def inducing_points_of(model: Any) -> list[Inducing]:
    """
    Find the inducing inputs of each set that a model has; of an estimator, in original units.

    :param model: A model of GPflow's or of this package, a fitted ``PEPRegressor`` or
        ``PEPClassifier``, or an inducing variable.
    :raises ValueError: If it has none with inputs Z.
    """
    scaler = getattr(model, "input_scaler_", None)
    variables: Any = model
    for name in ("inducing_variable", "inducing_variable_"):
        variables = getattr(model, name, variables)
    sets = getattr(variables, "inducing_variables", (variables,))
    sets = [getattr(variable, "inducing_variable", variable) for variable in sets]
    if not all(hasattr(variable, "Z") for variable in sets):
        raise refusal(
            "model",
            f"{type(model).__name__} with the inducing variable {type(variables).__name__}",
            "one with inputs Z",
            "Leave this out, or draw it yourself.",
        )
    return [_in_original_units(variable, scaler) for variable in sets]


def _in_original_units(variable: Any, scaler: Any) -> Inducing:
    Z, covariance = np.asarray(variable.Z), None
    if isinstance(variable, BlurredInducingPoints):
        covariance = np.asarray(variable.covariance)
    if scaler is not None:
        Z = scaler.inverse_transform(Z)
        if covariance is not None and scaler.scale_ is not None:
            covariance = covariance * np.outer(scaler.scale_, scaler.scale_)
    return Inducing(Z, covariance)


def inducing_points(
    sets: Any,
    X: Any = None,
    *,
    dimensions: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """
    Draw inducing inputs among rows, and their blur: one standard deviation, as an ellipse.

    :param sets: Z [M, D], or what :func:`inducing_points_of` gives; each set has its colour.
    :param X: Rows, [N, D], or None.
    :param dimensions: The input on each axis, one or two; the first two by default. Of one input
        there are marks on a line.
    :param names: Of the D inputs.
    :param ax: To draw on; a new figure of pyplot's if None.
    :return: `ax`.
    :raises ValueError: If arrays are not finite or of other shapes, or there is no such input.
    :raises ImportError: If matplotlib is not installed.
    """
    several = _sets(sets)
    num_inputs = several[0].Z.shape[1]
    inputs = as_names("input", names, num_inputs)
    shown = tuple(range(min(2, num_inputs)) if dimensions is None else dimensions)
    if len(shown) not in (1, 2) or not all(0 <= dimension < num_inputs for dimension in shown):
        expected = f"one or two of the inputs 0 to {num_inputs - 1}"
        raise refusal("dimensions", shown, expected, "Choose others.")
    ax = axes_for(ax)
    if X is not None:
        X = as_columns("X", X, num_inputs)
        x, y = X[:, shown[0]], X[:, shown[1]] if len(shown) > 1 else np.zeros(len(X))
        backdrop(ax, x, y, "rows", color=TRAIN)
    for number, points in enumerate(several):
        name = "inducing inputs" if len(several) == 1 else f"inducing inputs {number}"
        draw_inducing(ax, points, shown, color=color_of(number), label=name)
    ax.set_xlabel(inputs[shown[0]])
    if len(shown) > 1:
        ax.set_ylabel(inputs[shown[1]])
    else:
        ax.set_yticks([])
    legend_on_top(ax)
    tidy(ax)
    return ax


def draw_inducing(
    ax: "Axes", inducing: Inducing, shown: Sequence[int], *, color: str, label: str
) -> None:
    """Draw one set with its blur; ``shown`` is the input on each axis, one or two."""
    from matplotlib.collections import EllipseCollection

    Z = inducing.Z[:, shown]
    flat = len(shown) == 1
    if flat:
        Z = np.column_stack([Z, np.zeros(len(Z))])
    if inducing.covariance is not None:
        label += ", blur ± 1 std"
        C = inducing.covariance[:, shown][:, :, shown]
        if flat:
            spread = np.sqrt(C[:, 0, 0])
            ax.hlines(Z[:, 1], Z[:, 0] - spread, Z[:, 0] + spread, color=color, alpha=0.5)
        else:
            values, vectors = np.linalg.eigh(C)
            short, long = 2.0 * np.sqrt(np.maximum(values, 0.0)).T
            angles = np.degrees(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1]))
            ellipses = EllipseCollection(
                long, short, angles, units="xy", offsets=Z, transOffset=ax.transData
            )
            ellipses.set(facecolor="none", edgecolor=color, linewidth=1.1)
            ax.add_collection(ellipses)
    style: dict[str, Any] = {
        "markersize": 8,
        "markeredgewidth": 1.6,
        "path_effects": halo(),
        "zorder": 6,
    }
    ax.plot(*Z.T, "+", color=color, label=label, **style)


def draw_ticks(ax: "Axes", inducing: Inducing) -> None:
    """Mark inducing inputs of one dimension at the foot of axes, on which all else is drawn."""
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.08 * (high - low), high)
    z, transform = inducing.Z[:, 0], ax.get_xaxis_transform()
    height = np.full_like(z, 0.03)
    if inducing.covariance is not None:
        spread = np.sqrt(inducing.covariance[:, 0, 0])
        style: dict[str, Any] = {"color": BEST, "alpha": 0.6, "linewidth": 3}
        bars = (height, z - spread, z + spread)
        ax.hlines(*bars, transform=transform, label="blur ± 1 std", **style)
    style = {"color": INK, "markersize": 9, "markeredgewidth": 1.4}
    ax.plot(z, height, "|", transform=transform, label="inducing inputs", **style)


def _sets(sets: Any) -> list[Inducing]:
    if isinstance(sets, Inducing) or not isinstance(sets, (list, tuple)):
        sets = [sets]
    several = [each if isinstance(each, Inducing) else Inducing(each) for each in sets]
    several = [each._replace(Z=as_columns("Z", each.Z)) for each in several]
    sizes = {each.Z.shape[1] for each in several}
    if len(sizes) != 1:
        raise refusal(
            "sets",
            f"inducing inputs with {sorted(sizes)} columns",
            "as many in each, and at least one set",
            "Draw them apart.",
        )
    return several
