"""Pictures of predicted numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.stats import binom, norm

from ..engine.checks import as_vector, as_vectors, check_level, check_positive, refusal
from . import canvas
from .canvas import BEST, FIT, INK, TRAIN, as_columns, check_spread
from .models import Inducing

#: With more rows than this, a picture has no intervals, and if at least CROWDED rows
#: share a cell (there are CELLS along an axis), the colour of the cell shows their
#: density.
FEW = 300
CELLS = 45
CROWDED = 4
#: A view may leave out this fraction of the rows at either end if their distance from
#: the others is more than LONGER times the range of the others.
TAIL = 0.001
LONGER = 0.5


@canvas.picture(5.0, 5.0)
def predicted_against_actual(
    y: Any,
    mean: Any,
    std: Any = None,
    *,
    level: float = 0.9,
    intervals: Any = None,
    ax: Any = None,
) -> None:
    """Draw predictions against the observed targets, with the diagonal of perfect
    predictions on top. Few rows are points with intervals; many rows are a density,
    with points for isolated rows.

    :param y: Targets, [N].
    :param mean: Predicted means, [N].
    :param std: Predicted standard deviations of y, noise included, [N]; or None.
    :param level: The probability that the intervals contain.
    :param intervals: The ends of the intervals, [N, 2], if predictions are not Gaussian
        with this `std`.
    :raises ValueError: If arrays are not finite or differ in length, or if `std` is not
        positive.
    """
    y, mean = as_vectors(y=y, mean=mean)
    level = check_level(level)
    many = len(y) > FEW
    limits = view(np.concatenate([y, mean]))
    notes = [canvas.rows(len(y))]
    if std is not None:
        std = check_spread("std", as_vectors(y=y, std=std)[1])
        intervals = np.stack(norm.interval(level, mean, std), axis=1)
    if intervals is not None:
        ends = as_columns("intervals", intervals, 2).T
        lower, upper = (as_vectors(y=y, intervals=end)[1] for end in ends)
        inside = np.mean((lower <= y) & (y <= upper))
        notes.append(f"{level:.0%} intervals hold {inside:.1%} of them")
        if not many:
            limits = view(np.concatenate([y, lower, upper]))
            ax.vlines(y, lower, upper, color=FIT, alpha=0.35, linewidth=1.2)
    ax.set(xlim=limits, ylim=limits, xlabel="actual", ylabel="predicted")
    ax.set_aspect("equal", adjustable="box")
    if many:
        low, high = limits
        inside = (low <= np.minimum(y, mean)) & (np.maximum(y, mean) <= high)
        ax.plot(y, mean, ".", color=BEST, markersize=4, rasterized=True, zorder=1)
        size: Any = (CELLS, int(0.6 * CELLS))
        style: dict[str, Any] = {
            "extent": (*limits, *limits),
            "bins": "log",
            "mincnt": CROWDED,
        }
        style |= {"cmap": _shades(), "linewidths": 0.1, "zorder": 2}
        ax.hexbin(y[inside], mean[inside], gridsize=size, **style)
        notes.append(f"blue: {CROWDED} or more in a cell")
        if not inside.all():
            notes.append(f"{canvas.rows(int(np.sum(~inside)))} outside of the picture")
    else:
        ax.plot(
            y,
            mean,
            "o",
            color=FIT,
            markersize=4,
            markeredgecolor="white",
            markeredgewidth=0.4,
        )
    canvas.note(ax, "\n".join(notes))
    style = {"zorder": 5, "path_effects": canvas.halo()} if many else {"zorder": 1}
    ax.axline((0.0, 0.0), slope=1.0, color="black", linewidth=1.1, **style)


def _shades() -> Any:
    """Make shades of blue for a density, dark enough to be seen on white."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["Blues"](np.linspace(0.35, 1.0, 256)))


def view(values: AnyNDArray) -> tuple[float, float]:
    """Find limits for an axis with all values, except a few that are so far away that
    they would squeeze the others.
    """
    low = float(np.min(values))
    high = float(np.max(values))
    if len(values) > FEW:
        ends = np.quantile(values, [TAIL, 1.0 - TAIL])
        off = LONGER * (ends[1] - ends[0])
        low = float(values[values >= ends[0] - off].min())
        high = float(values[values <= ends[1] + off].max())
    margin = 0.04 * (high - low) or 0.04 * abs(high) or 1.0
    return low - margin, high + margin


@canvas.picture()
def pit_histogram(
    pit: Any, *, num_bins: int | None = None, level: float = 0.95, ax: Any = None
) -> None:
    """Draw the histogram of probability integral transforms, P(target ≤ the observed
    target).

    The histogram is flat if predictions are right, high at both ends if their intervals
    are too narrow, and high in the middle if the intervals are too wide. The band
    contains a bar with probability `level`, because its count is binomial.

    :param pit: Numbers in [0, 1], [N]; for Gaussian predictions
        ``scipy.stats.norm.cdf(y, mean, std)``.
    :param num_bins: The number of bars; by default 5 to 20, so that each bar has about
        20 rows.
    :param level: The level of the band.
    :raises ValueError: If a number is not in [0, 1], or there is no bar.
    """
    values = as_vector("pit", pit)
    level = check_level(level)
    if np.min(values) < 0.0 or np.max(values) > 1.0:
        got = f"numbers from {np.min(values):g} to {np.max(values):g}"
        remedy = (
            "Pass a distribution function at the targets: scipy.stats.norm.cdf(y, mean,"
            " std)."
        )
        raise refusal("pit", got, "probabilities in [0, 1]", remedy)
    if num_bins is None:
        num_bins = int(np.clip(len(values) // 20, 5, 20))
    scale = check_positive("num_bins", num_bins) / len(values)
    counts, edges = np.histogram(values, int(num_bins), (0.0, 1.0))
    heights = scale * counts
    low, high = scale * np.array(binom.interval(level, len(values), 1.0 / num_bins))
    outside = (heights < low) | (heights > high)
    style = {
        "color": np.where(outside, BEST, FIT),
        "align": "center",
    }
    ax.axhspan(low, high, color=canvas.FAINT, linewidth=0, zorder=0)
    ax.bar(0.5 * (edges[:-1] + edges[1:]), heights, 0.8 / num_bins, **style)
    ax.axhline(1.0, color="black", linewidth=1.1)
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.05 * max(high, np.max(heights))))
    ax.set(xlabel="predicted probability of a smaller target", ylabel="density")
    bars = f"{np.sum(outside)} of {num_bins} bars outside of the {level:.0%} band"
    canvas.note(ax, f"{canvas.rows(len(values))}\n{bars} (orange)")


@canvas.picture(7.0, 4.0)
def regression_1d(
    x: Any,
    mean: Any,
    std: Any,
    *,
    data: Any = None,
    inducing: Inducing | Any = None,
    levels: Sequence[float] = (0.5, 0.9),
    legend: bool = True,
    ax: Any = None,
) -> None:
    """Draw predictions along one input: mean, bands, rows, and the positions of
    inducing inputs.

    :param x: Inputs of the predictions, [G], in any order.
    :param mean: Predicted means there, [G].
    :param std: Predicted standard deviations of y there, noise included, [G].
    :param data: A pair of inputs and targets [N], or a dictionary of pairs by name, for
        instance ``{"training rows": (X, y), "held-out rows": (Xt, yt)}``.
    :param inducing: Inducing inputs [M], or the result of :func:`inducing_points_of`;
        blur is drawn as a bar of one standard deviation to either side.
    :param levels: The probability that each band contains.
    :param legend: Whether to draw a legend, in a line above the picture.
    :raises ValueError: If arrays are not finite or differ in length, or if `std` is not
        positive.
    """
    x, mean, std = as_vectors(x=x, mean=mean, std=std)
    check_spread("std", std)
    order = np.argsort(x, kind="stable")
    x = x[order]
    mean = mean[order]
    std = std[order]
    if data is None:
        data = {}
    pairs = data if isinstance(data, Mapping) else {"data": data}
    for place, (name, pair) in enumerate(pairs.items()):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            got = f"{type(pair).__name__} for {name!r}"
            raise refusal("data", got, "a pair of inputs and targets", "Pass (x, y).")
        inputs, targets = as_vectors(inputs=pair[0], targets=pair[1])
        color, marker = (canvas.color_of(place), "x") if place else (TRAIN, ".")
        # Points are fainter if there are more of them.
        alpha = float(np.clip(3.0 * FEW / len(inputs), 0.05, 0.9))
        style: dict[str, Any] = {
            "color": color,
            "alpha": alpha,
            "rasterized": len(inputs) > FEW,
        }
        ax.plot(inputs, targets, marker, markersize=4, label=str(name), **style)
    ax.plot(x, mean, color=FIT, linewidth=1.8, path_effects=canvas.halo(), label="mean")
    for rank, level in enumerate(
        sorted(map(check_level, levels), reverse=True), start=1
    ):
        lower, upper = norm.interval(level, mean, std)
        alpha = min(0.16 * rank, 0.6)
        text = f"{level:.0%}"
        ax.fill_between(
            x, lower, upper, color=FIT, alpha=alpha, linewidth=0, label=text
        )
    ax.set(xlim=(x[0], x[-1]) if x[0] < x[-1] else None, xlabel="x", ylabel="y")
    if inducing is not None:
        points = inducing if isinstance(inducing, Inducing) else None
        _draw_ticks(ax, points or Inducing(as_columns("inducing", inducing, 1)))
    if legend:
        canvas.legend_on_top(ax, columns=6)


def _draw_ticks(ax: Any, inducing: Inducing) -> None:
    """Mark inducing inputs of one dimension at the foot of the axes, after everything
    else is drawn.
    """
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.08 * (high - low), high)
    z = inducing.Z[:, 0]
    transform = ax.get_xaxis_transform()
    height = np.full_like(z, 0.03)
    style = {"color": BEST, "alpha": 0.6, "label": "blur ± 1 std"}
    if inducing.covariance is not None:
        spread = np.sqrt(inducing.covariance[:, 0, 0])
        ax.hlines(
            height, z - spread, z + spread, transform=transform, linewidth=3, **style
        )
    style = {
        "color": INK,
        "markersize": 9,
        "markeredgewidth": 1.4,
        "label": "inducing inputs",
    }
    ax.plot(z, height, "|", transform=transform, **style)
