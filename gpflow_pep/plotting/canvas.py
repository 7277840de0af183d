"""What pictures are drawn on, in which colours, and how lines are named."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.base import AnyNDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

INSTALL = "matplotlib is not installed, figures need it: pip install 'gpflow_pep[plots]'"

#: Colours that people with any colour vision tell apart (Okabe & Ito, 2008).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: Marks, one with each colour, for prints in grey.
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
FIT, BEST, TRAIN, HELD_OUT = PALETTE[0], PALETTE[1], "#8a8a8a", PALETTE[1]
INK, FAINT = "#333333", "#d9d9d9"
#: Up to so many rows each is drawn; of more, how densely they lie.
FEW = 300
#: Of labels and notes, in points.
SMALL = 8.5


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
    """
    Give the axes to draw on: the caller's, or a new figure of pyplot's, for ``plt.show()``.

    :param ax: The caller's, or None.
    :param width: Of a new figure, in inches.
    :param height: Of a new figure, in inches.
    :raises ImportError: If matplotlib is not installed.
    """
    if ax is not None:
        return ax
    _require_matplotlib()
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def tidy(axes: Any) -> None:
    """Hide the lines at the top and at the right."""
    axes.spines[["top", "right"]].set_visible(False)


def shades(color: str = FIT, least: float = 0.12) -> "Colormap":
    """Give the shades of a colour from light to dark; the lightest is still seen on white."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    full = np.array(to_rgb(color))
    stops = [1.0 - least * (1.0 - full), 1.0 - 0.6 * (1.0 - full), full, 0.35 * full]
    return LinearSegmentedColormap.from_list("shades", [tuple(stop) for stop in stops])


def halo() -> list[Any]:
    """Give a white rim to text and lines, which keeps them readable on what lies below."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.5, foreground="white")]


def note(ax: "Axes", text: str, *, right: bool = False, bottom: bool = False) -> None:
    """Write something into a corner, the upper left one if nothing else is said."""
    ax.annotate(
        text,
        (0.985 if right else 0.015, 0.015 if bottom else 0.985),
        xycoords="axes fraction",
        ha="right" if right else "left",
        va="bottom" if bottom else "top",
        fontsize=SMALL,
        color=INK,
        path_effects=halo(),
        zorder=10,
    )


def count(number: int) -> str:
    """Write a whole number, its digits in groups of three."""
    return f"{number:,}".replace(",", "\u2009")


def rows(number: int) -> str:
    """Write how many rows there are."""
    return f"{count(number)} row{'' if number == 1 else 's'}"


def room_on_top(ax: "Axes", fraction: float = 0.13) -> None:
    """Leave a part of the axes at the top free, for a legend or a note."""
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + (high - low) * fraction / (1.0 - fraction))


def legend_on_top(ax: "Axes", columns: int = 4) -> None:
    """Name what has a label in lines above all that was drawn."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        lines = -(-len(handles) // columns)
        room_on_top(ax, lines * 1.7 * SMALL / _points(ax)[1])
        ax.legend(
            handles,
            labels,
            loc="upper left",
            ncols=columns,
            frameon=False,
            fontsize=SMALL,
            handletextpad=0.4,
            columnspacing=1.2,
            borderaxespad=0.1,
        )


def label_right(ax: "Axes", labels: Sequence[tuple[float, str, str]]) -> None:
    """
    Name lines where they end, at the right, apart from one another. The axes get room for it.

    :param ax: All is drawn, and limits of y are final.
    :param labels: Height, text and colour of each.
    """
    if not labels:
        return
    width, height = _points(ax)
    low, high = ax.get_xlim()
    free = min(0.5, (0.56 * SMALL * max(len(text) for _, text, _ in labels) + 8.0) / width)
    transform = ax.xaxis.get_transform()
    start, end = transform.transform([low, high])
    ax.set_xticks([tick for tick in ax.get_xticks() if low <= tick <= high])
    ax.spines["bottom"].set_bounds(low, high)
    ax.set_xlim(low, transform.inverted().transform([start + (end - start) / (1.0 - free)])[0])
    wanted = ax.yaxis.get_transform().transform([y for y, _, _ in labels])
    bottom, top = ax.yaxis.get_transform().transform(ax.get_ylim())
    wanted = (wanted - bottom) / (top - bottom) * height
    for (y, text, color), place, found in zip(
        labels, wanted, _apart(wanted, 1.25 * SMALL, height), strict=True
    ):
        ax.annotate(
            text,
            (1.0 - free, y),
            xycoords=("axes fraction", "data"),
            xytext=(5.0, found - place),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
            color=color,
            path_effects=halo(),
            annotation_clip=False,
        )


def _points(ax: "Axes") -> tuple[float, float]:
    """Width and height of axes in points."""
    box, figure_ = ax.get_position(), ax.figure
    width, height = (72.0 * np.array(figure_.bbox.size) / figure_.dpi) if figure_ else (430, 300)
    return float(box.width * width), float(box.height * height)


def _apart(places: AnyNDArray, distance: float, top: float) -> AnyNDArray:
    """Move places as little as keeps them in their order, apart, and from 0 to `top`."""
    order = np.argsort(places, kind="stable")
    # Places less their number times the distance may be equal, but must increase: isotonic.
    from sklearn.isotonic import isotonic_regression

    steps = distance * np.arange(len(places))
    most = max(top - steps[-1], 0.0)
    found = np.empty(len(places))
    found[order] = isotonic_regression(places[order] - steps, y_min=0.0, y_max=most) + steps
    return found
