"""What pictures share: axes, colours, notes, rows as points or a density, checks of arrays."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from gpflow.base import AnyNDArray

from ..engine.checks import as_matrix, as_numbers, refusal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

Arguments = ParamSpec("Arguments")

INSTALL = "matplotlib is not installed, figures need it: pip install 'gpflow_pep[plots]'"

#: Colours that people with any colour vision tell apart (Okabe & Ito, 2008).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: Marks, one with each colour, for prints in grey.
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
FIT, BEST, TRAIN, HELD_OUT = PALETTE[0], PALETTE[1], "#8a8a8a", PALETTE[1]
INK, FAINT = "#333333", "#d9d9d9"
#: Up to this number of rows each is drawn as a point; of more rows the density is drawn.
FEW = 300
#: Hexagons along an axis.
CELLS = 45
#: A view may leave out this fraction of the rows at either end, if their distance from the others
#: is more than LONGER times the range of the others.
TAIL, LONGER = 0.001, 0.5
#: The size of labels and notes, in points.
SMALL = 8.5
#: Spaces within a legend in one line.
COMPACT = {"handletextpad": 0.3, "columnspacing": 1.0, "borderaxespad": 0.2}
#: What the documentation of every picture says.
_AXES = """\
    :param ax: To draw on; a new figure of pyplot's if None.
    :return: `ax`.
    :raises ImportError: If matplotlib is not installed.
"""


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def _require_matplotlib() -> None:
    if not available():
        raise ImportError(INSTALL)


def figure(width: float, height: float) -> "Figure":
    """
    Make a figure, of its own and not pyplot's: drawing here leaves the caller's figures alone.

    :param width: In inches.
    :param height: In inches.
    :raises ImportError: If matplotlib is not installed.
    """
    _require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def axes_for(ax: "Axes | None", width: float = 6.0, height: float = 4.2) -> "Axes":
    """Give the axes to draw on: the caller's, or a new figure of pyplot's, for ``plt.show()``."""
    if ax is not None:
        return ax
    _require_matplotlib()
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def picture(
    width: float = 6.0, height: float = 4.2, *, frame: bool = False
) -> Callable[[Callable[Arguments, None]], Callable[Arguments, "Axes"]]:
    """Decorate a function that draws on ``ax``: by default on a new figure; it returns ``ax``."""

    def with_axes(draw: Callable[Arguments, None]) -> Callable[Arguments, "Axes"]:
        draw.__annotations__["return"] = "Axes"

        @wraps(draw)
        def drawn(*arguments: Arguments.args, **options: Arguments.kwargs) -> "Axes":
            callers: Any = options.get("ax")
            options["ax"] = ax = axes_for(callers, width, height)
            try:
                draw(*arguments, **options)
            except BaseException:
                if callers is None:  # nothing is to be shown
                    sys.modules["matplotlib.pyplot"].close(ax.figure)
                raise
            if not frame:
                tidy(ax)
            return ax

        description, _, errors = str(draw.__doc__).partition("    :raises")
        drawn.__doc__ = f"{description}{_AXES}    :raises{errors}"
        return drawn

    return with_axes


def tidy(axes: Any) -> None:
    """Hide the lines at the top and at the right."""
    axes.spines[["top", "right"]].set_visible(False)


def color_of(number: int) -> str:
    """Choose the colour of the line, class or set with a number."""
    return PALETTE[number % len(PALETTE)]


def marker_of(number: int) -> str:
    """Choose the mark of the line or class with a number."""
    return MARKERS[number % len(MARKERS)]


def shades(least: float = 0.12) -> "Colormap":
    """Mix shades of blue from light to dark; the lightest is still seen on white."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    full = np.array(to_rgb(FIT))
    stops = [1.0 - least * (1.0 - full), 1.0 - 0.6 * (1.0 - full), full, 0.35 * full]
    return LinearSegmentedColormap.from_list("shades", [tuple(stop) for stop in stops])


def halo() -> list[Any]:
    """Make a white rim for text and lines, which keeps them readable on what lies below."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.5, foreground="white")]


def label_point(
    ax: "Axes", text: str, place: tuple[Any, Any], offset: tuple[float, float], **style: Any
) -> None:
    """Write a small text beside a place, at an offset in points."""
    style = {"fontsize": SMALL, "color": INK, "path_effects": halo(), **style}
    ax.annotate(text, place, xytext=offset, textcoords="offset points", **style)


def note(ax: "Axes", text: str, *, right: bool = False, bottom: bool = False) -> None:
    """Write a note into a corner, by default the upper left one."""
    x, ha = (0.985, "right") if right else (0.015, "left")
    y, va = (0.015, "bottom") if bottom else (0.985, "top")
    style: dict[str, Any] = {"xycoords": "axes fraction", "ha": ha, "va": va, "zorder": 10}
    label_point(ax, text, (x, y), (0.0, 0.0), **style)


def count(number: int) -> str:
    """Write a whole number, its digits in groups of three."""
    return f"{number:,}".replace(",", "\u2009")


def rows(number: int) -> str:
    """Write how many rows there are."""
    return f"{count(number)} row{'' if number == 1 else 's'}"


def room_on_top(ax: "Axes", fraction: float) -> None:
    """Leave a part of the axes at the top free, for a legend or a note."""
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + (high - low) * fraction / (1.0 - fraction))


def legend_on_top(ax: "Axes", columns: int = 4) -> None:
    """Name everything with a label in lines above all that was drawn."""
    num_labels = len(ax.get_legend_handles_labels()[0])
    if num_labels:
        room_on_top(ax, 0.07 * -(-num_labels // columns))
        ax.legend(loc="upper left", ncols=columns, frameon=False, fontsize=SMALL, **COMPACT)


def view(values: AnyNDArray) -> tuple[float, float]:
    """Find limits for an axis: of all values, but of a few so far off that they squeeze others."""
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
    """Draw the line of perfect predictions; where rows are many above these, with a white rim."""
    from matplotlib.patheffects import Normal, withStroke

    style: dict[str, Any] = {"color": "black", "linewidth": 1.1, "zorder": 1}
    if many:
        rim = [withStroke(linewidth=3.0, foreground="white"), Normal()]
        style |= {"zorder": 5, "path_effects": rim}
    ax.axline((0.0, 0.0), slope=slope, **style)
    if slope:
        end = ax.get_xlim()[1]
        label_point(ax, "perfect", (end, end), (-22.0, -5.0), ha="right", va="top", zorder=6)


def as_columns(name: str, values: Any, num_columns: int | None = None) -> AnyNDArray:
    """Convert to a matrix of finite numbers, [N, D]; a vector is one column."""
    array = as_numbers(name, values)
    return as_matrix(name, array[:, None] if array.ndim == 1 else array, num_columns)


def check_spread(name: str, values: AnyNDArray) -> AnyNDArray:
    """Refuse standard deviations that are not positive."""
    if np.min(values) <= 0.0:
        remedy = "Pass standard deviations of y, noise included."
        raise refusal(name, f"{np.min(values):g}", "positive numbers", remedy)
    return values


def as_names(kind: str, names: Sequence[Any] | None, number: int) -> list[str]:
    """Give a name for each of some classes or inputs, as text: the user's, or kind and number."""
    if names is None:
        return [f"{kind} {place}" for place in range(number)]
    if isinstance(names, str) or len(names) != number:
        got = repr(names) if isinstance(names, str) else f"{len(names)} names"
        raise refusal("names", got, f"{number}, one for each {kind}", "Pass a list.")
    return [str(name) for name in names]
