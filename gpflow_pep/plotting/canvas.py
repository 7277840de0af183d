"""What pictures are drawn on, in which colours, and how lines and places are named."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

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
#: Up to this number of rows each is drawn as a point; of more rows the density is drawn.
FEW = 300
#: The size of labels and notes, in points.
SMALL = 8.5
#: Spaces within a legend in one line.
COMPACT = {"handletextpad": 0.3, "columnspacing": 1.0, "borderaxespad": 0.2}


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

    :param width: Of a new figure, in inches.
    :param height: Of a new figure, in inches.
    """
    if ax is not None:
        return ax
    _require_matplotlib()
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def tidy(axes: Any) -> None:
    """Hide the lines at the top and at the right."""
    axes.spines[["top", "right"]].set_visible(False)


def color_of(number: int) -> str:
    """Choose the colour of the line, class or set with a number."""
    return PALETTE[number % len(PALETTE)]


def marker_of(number: int) -> str:
    """Choose the mark of the line or class with a number."""
    return MARKERS[number % len(MARKERS)]


def shades(color: str = FIT, least: float = 0.12) -> "Colormap":
    """Mix the shades of a colour from light to dark; the lightest is still seen on white."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    full = np.array(to_rgb(color))
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


def room_on_top(ax: "Axes", fraction: float) -> None:
    """Leave a part of the axes at the top free, for a legend or a note."""
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + (high - low) * fraction / (1.0 - fraction))


def legend_on_top(ax: "Axes", columns: int = 4) -> None:
    """Name everything with a label in lines above all that was drawn."""
    num_labels = len(ax.get_legend_handles_labels()[0])
    if num_labels:
        room_on_top(ax, 0.07 * -(-num_labels // columns))
        ax.legend(
            loc="upper left",
            ncols=columns,
            frameon=False,
            fontsize=SMALL,
            **COMPACT,
        )
