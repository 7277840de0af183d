"""Pictures of inducing inputs, and of their blur."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

from ..inducing_variables import BlurredInducingPoints
from .arrays import matrix, names_of
from .canvas import BEST, INK, PALETTE, TRAIN, axes_for, halo, legend_on_top, tidy
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
    sets = [getattr(one, "inducing_variable", one) for one in sets]
    if not all(hasattr(one, "Z") for one in sets):
        raise ValueError(
            f"model: got {type(model).__name__} with the inducing variable"
            f" {type(variables).__name__}, expected one with inputs Z. Leave this out, or draw it"
            " yourself."
        )
    found = []
    for one in sets:
        Z = np.asarray(one.Z)
        covariance = np.asarray(one.covariance) if isinstance(one, BlurredInducingPoints) else None
        if scaler is not None:
            Z = scaler.inverse_transform(Z)
            if covariance is not None and scaler.scale_ is not None:
                covariance = covariance * np.outer(scaler.scale_, scaler.scale_)
        found.append(Inducing(Z, covariance))
    return found


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
    inputs = names_of("input", names, num_inputs, "input")
    shown = tuple(range(min(2, num_inputs)) if dimensions is None else dimensions)
    if len(shown) not in (1, 2) or not all(0 <= one < num_inputs for one in shown):
        raise ValueError(
            f"dimensions: got {shown}, expected one or two of the inputs 0 to {num_inputs - 1}."
            " Choose others."
        )
    ax = axes_for(ax)
    if X is not None:
        X = matrix("X", X, num_inputs)
        x, y = X[:, shown[0]], X[:, shown[1]] if len(shown) > 1 else np.zeros(len(X))
        backdrop(ax, x, y, "rows", color=TRAIN)
    for number, one in enumerate(several):
        name = "inducing inputs" if len(several) == 1 else f"inducing inputs {number}"
        draw_inducing(ax, one, shown, color=PALETTE[number % len(PALETTE)], label=name)
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
    """
    Draw one set with its blur.

    :param ax: To draw on.
    :param inducing: Where they are.
    :param shown: The input on each axis, one or two.
    :param color: Of the marks.
    :param label: For the legend.
    """
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
            axes = 2.0 * np.sqrt(np.maximum(values, 0.0))
            angles = np.degrees(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1]))
            ax.add_collection(
                EllipseCollection(
                    axes[:, 1], axes[:, 0], angles, units="xy", offsets=Z,
                    transOffset=ax.transData, facecolors="none", edgecolors=color, linewidths=1.1,
                )
            )  # fmt: skip
    ax.plot(
        *Z.T, "+", color=color, markersize=8, markeredgewidth=1.6, label=label,
        path_effects=halo(), zorder=6,
    )  # fmt: skip


def ticks(ax: "Axes", inducing: Inducing) -> None:
    """
    Mark inducing inputs of one dimension above the lower edge of axes, which get room for it.

    :param ax: All else is drawn.
    :param inducing: Where they are.
    """
    low, high = ax.get_ylim()
    bottom = low - 0.08 * (high - low)
    ax.set_ylim(bottom, high)
    z, height = inducing.Z[:, 0], 0.03
    if inducing.covariance is not None:
        spread = np.sqrt(inducing.covariance[:, 0, 0])
        ax.hlines(
            np.full_like(z, height), z - spread, z + spread, color=BEST, alpha=0.6, linewidth=3,
            transform=ax.get_xaxis_transform(), label="blur ± 1 std",
        )  # fmt: skip
    ax.plot(
        z, np.full_like(z, height), "|", color=INK, markersize=9, markeredgewidth=1.4,
        transform=ax.get_xaxis_transform(), label="inducing inputs",
    )  # fmt: skip


def _sets(sets: Any) -> list[Inducing]:
    given = sets
    if isinstance(given, Inducing) or not isinstance(given, (list, tuple)):
        given = [given]
    several = [one if isinstance(one, Inducing) else Inducing(one) for one in given]
    several = [one._replace(Z=matrix("Z", one.Z)) for one in several]
    shapes = {one.Z.shape[1] for one in several}
    if len(shapes) != 1:
        raise ValueError(
            f"sets: got inducing inputs with {sorted(shapes)} columns, expected as many in each,"
            " and at least one set. Draw them apart."
        )
    return several
