"""Common parts of pictures: axes, colours, notes, rows as points or a density, checks
of arrays.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from gpflow.base import AnyNDArray

from ..engine.checks import as_matrix, as_numbers, counted, refusal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arguments = ParamSpec("Arguments")

INSTALL = (
    "matplotlib is not installed, but figures need it: pip install 'gpflow_pep[plots]'"
)

#: Colours that people with any colour vision can distinguish (Okabe & Ito, 2008).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
FIT, BEST, TRAIN, HELD_OUT = PALETTE[0], PALETTE[1], "#8a8a8a", PALETTE[1]
INK, FAINT = "#333333", "#d9d9d9"
#: The size of labels and notes, in points.
SMALL = 8.5
#: The form of legends, compact so that they fit in one line.
LEGEND: dict[str, Any] = {"fontsize": SMALL, "handletextpad": 0.3, "columnspacing": 1.0}
#: The common part of the documentation of every picture.
_AXES = """\
    :param ax: The axes to draw on; None makes a new figure of pyplot.
    :return: `ax`.
    :raises ImportError: If matplotlib is not installed.
"""


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def figure(width: float, height: float) -> "Figure":
    """Make a figure that does not belong to pyplot, so that the caller's figures are
    not changed.

    :param width: The width in inches; the height is in inches too.
    :raises ImportError: If matplotlib is not installed.
    """
    if not available():
        raise ImportError(INSTALL)
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def picture(
    width: float = 6.0, height: float = 4.2
) -> Callable[[Callable[Arguments, None]], Callable[Arguments, "Axes"]]:
    """Decorate a function that draws on ``ax``. By default it draws on a new figure. It
    returns ``ax``.
    """

    def with_axes(draw: Callable[Arguments, None]) -> Callable[Arguments, "Axes"]:
        draw.__annotations__["return"] = "Axes"

        @wraps(draw)
        def drawn(*arguments: Arguments.args, **options: Arguments.kwargs) -> "Axes":
            ax: Any = options.get("ax")
            if ax is not None:
                draw(*arguments, **options)
            elif not available():
                raise ImportError(INSTALL)
            else:
                from matplotlib import pyplot

                ax = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
                options["ax"] = ax
                try:
                    draw(*arguments, **options)
                except BaseException:
                    pyplot.close(ax.figure)  # the figure is not shown
                    raise
            tidy(ax)
            return ax

        description, _, errors = str(draw.__doc__).partition("    :raises")
        drawn.__doc__ = f"{description}{_AXES}    :raises{errors}"
        return drawn

    return with_axes


def tidy(axes: Any) -> None:
    """Hide the lines at the top and at the right."""
    axes.spines[["top", "right"]].set_visible(False)


def color_of(place: int) -> str:
    """Choose the colour of a line, class or set by its number."""
    return PALETTE[place % len(PALETTE)]


def halo() -> list[Any]:
    """Make a white rim for text and lines, which keeps them readable on any
    background.
    """
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.5, foreground="white")]


def note(ax: "Axes", text: str) -> None:
    """Write a note above the axes, where it does not cover the picture."""
    ax.set_title(text, fontsize=SMALL, color=INK, loc="left")


def count(number: int) -> str:
    """Write a whole number with its digits in groups of three."""
    return f"{number:,}".replace(",", "\u2009")


def rows(number: int) -> str:
    """Write the number of rows."""
    return f"{count(number)} row{'' if number == 1 else 's'}"


def legend_on_top(ax: "Axes", columns: int = 4) -> None:
    """Draw a legend in lines above the axes."""
    if names := ax.get_legend_handles_labels()[1]:
        entry = 0.07 * max(map(len, names)) + 0.5  # inches, of small letters and a line
        columns = max(1, min(columns, int(ax.bbox.width / ax.figure.dpi / entry)))
        place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
        ax.legend(**place, ncols=columns, frameon=False, **LEGEND)


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


def as_names(kind: str, names: Sequence[Any] | None, size: int) -> list[str]:
    """Return a name for each class or input, as text: the user's name, or kind and
    number.
    """
    if names is None:
        return [f"{kind} {place}" for place in range(size)]
    if isinstance(names, str) or len(names) != size:
        got = repr(names) if isinstance(names, str) else counted(len(names), "name")
        raise refusal("names", got, f"{size}, one for each {kind}", "Pass a list.")
    return [str(name) for name in names]
