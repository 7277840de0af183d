"""What figures are drawn with. It needs matplotlib, of the extra ``gpflow_pep[plots]``."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.base import AnyNDArray

from .metrics import Calibration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INSTALL = "matplotlib is not installed, figures need it: pip install 'gpflow_pep[plots]'"

FIT, BEST, TRAIN, HELD_OUT = "#1f5a99", "#c8442e", "#8a8a8a", "#c8442e"


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def figure(width: float, height: float) -> "Figure":
    """
    Make a figure, of its own and not pyplot's: drawing here leaves the caller's figures alone.

    :param width: In inches.
    :param height: In inches.
    :raises ImportError: If matplotlib is not installed.
    """
    if not available():
        raise ImportError(INSTALL)
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def tidy(axes: Any) -> None:
    """Hide the lines at the top and at the right."""
    axes.spines[["top", "right"]].set_visible(False)


def draw_calibration(axes: Any, found: Calibration) -> None:
    """
    Draw how often predictions come true, against the probability they had.

    :param axes: Matplotlib's, to draw on.
    :param found: What :func:`gpflow_pep.metrics.calibration` found.
    """
    axes.plot([0.0, 1.0], [0.0, 1.0], color="black", linewidth=1, label="perfect")
    axes.plot(found.confidence, found.accuracy, "o-", color=FIT, label="held-out rows")
    axes.set(ylabel="fraction that is right", ylim=(-0.03, 1.03))
    axes.legend(frameon=False, loc="upper left")
    tidy(axes)


def draw_inducing_points(
    axes: Any, sets: Sequence[AnyNDArray], X: AnyNDArray | None, dimensions: Sequence[int]
) -> None:
    """
    Draw inducing inputs, each set in a colour of its own, among rows.

    :param axes: Matplotlib's, to draw on.
    :param sets: Z [M, D] of each.
    :param X: The rows [N, D], or None.
    :param dimensions: The input on each axis; of one input, ticks on a line.
    """

    def shown(rows: AnyNDArray) -> AnyNDArray:
        columns = [rows[:, dimension] for dimension in dimensions]
        return np.stack(columns if len(columns) > 1 else [*columns, np.zeros(len(rows))])

    if X is not None:
        axes.plot(*shown(np.asarray(X)), ".", color=TRAIN, markersize=3, label="rows")
    for number, Z in enumerate(sets):
        axes.plot(*shown(Z), "+", markersize=9, color=f"C{number}", label="inducing inputs")
    axes.set_xlabel(f"input {dimensions[0]}")
    if len(dimensions) > 1:
        axes.set_ylabel(f"input {dimensions[1]}")
    else:
        axes.set_yticks([])
    tidy(axes)
