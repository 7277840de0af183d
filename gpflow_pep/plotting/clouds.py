"""Rows as points where they are few, and as a density where they are many."""

from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.base import AnyNDArray

from .canvas import FEW, FIT, count, label_point, note, rows, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Hexagons along an axis.
CELLS = 45
#: A view may leave out this fraction of the rows at either end, if their distance from the others
#: is more than LONGER times the range of the others.
TAIL, LONGER = 0.001, 0.5


def view(values: AnyNDArray) -> tuple[float, float]:
    """
    Find limits for an axis: of all values, or of most where a few lie so far off that the others
    would be squeezed.
    """
    low, high = float(np.min(values)), float(np.max(values))
    if len(values) > FEW:
        ends = np.quantile(values, [TAIL, 1.0 - TAIL])
        off = LONGER * (ends[1] - ends[0])
        low = float(values[values >= ends[0] - off].min())
        high = float(values[values <= ends[1] + off].max())
    margin = 0.04 * (high - low) or 0.04 * abs(high) or 1.0
    return low - margin, high + margin


def cloud(ax: "Axes", x: AnyNDArray, y: AnyNDArray) -> None:
    """Draw rows within the final limits of axes: few as points, many as a density, with a note."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    inside = (left <= x) & (x <= right) & (low <= y) & (y <= high)
    text = rows(len(x))
    if len(x) <= FEW:
        ax.plot(x, y, "o", color=FIT, markersize=4, markeredgecolor="white", markeredgewidth=0.4)
    elif inside.any():
        cells = ax.hexbin(
            x[inside],
            y[inside],
            gridsize=(CELLS, int(0.6 * CELLS)),
            extent=(left, right, low, high),
            bins="log",
            mincnt=1,
            cmap=shades(),
            linewidths=0.1,
            zorder=1,
        )
        most = int(np.max(np.asarray(cells.get_array())))
        text += f", 1 to {count(most)} in a cell (darker: more)"
        if not inside.all():
            text += f"\n{rows(int(np.sum(~inside)))} outside of the picture"
    note(ax, text, right=True, bottom=True)


def backdrop(ax: "Axes", x: AnyNDArray, y: AnyNDArray, label: str, **style: Any) -> None:
    """Draw rows that others lie upon: small points, fainter the more there are."""
    many = len(x) > FEW
    style = {"marker": ".", "linestyle": "none", **style}
    ax.plot(
        x,
        y,
        markersize=3 if many else 5,
        alpha=float(np.clip(3.0 * FEW / len(x), 0.05, 0.9)),
        markeredgewidth=0.0,
        rasterized=many,
        **style,
    )
    ax.plot([], [], label=label, **style)


def perfect(ax: "Axes", slope: float, many: bool) -> None:
    """
    Draw the line that perfect predictions would lie on; above the others where rows are many.

    :param ax: Its limits are final.
    :param slope: 1 of the diagonal, 0 of the line at 0.
    :param many: Whether rows are drawn as a density, on which the line needs a white rim.
    """
    from matplotlib.patheffects import Normal, withStroke

    style: dict[str, Any] = {"color": "black", "linewidth": 1.1, "zorder": 1}
    if many:
        rim = [withStroke(linewidth=3.0, foreground="white"), Normal()]
        style |= {"zorder": 5, "path_effects": rim}
    ax.axline((0.0, 0.0), slope=slope, **style)
    if slope:
        end = ax.get_xlim()[1]
        label_point(ax, "perfect", (end, end), (-22.0, -5.0), ha="right", va="top", zorder=6)
