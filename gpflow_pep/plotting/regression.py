"""Pictures of predicted numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.stats import binom, norm

from .. import metrics
from ..checks import (
    as_vector,
    as_vectors,
    check_level,
    check_positive,
    refusal,
    require_same_length,
)
from . import canvas
from .canvas import as_columns, backdrop, check_spread, cloud, perfect, view
from .models import Inducing, draw_ticks


@canvas.picture(5.0, 5.0)
def predicted_against_actual(
    y: Any, mean: Any, std: Any = None, *, level: float = 0.9, ax: Any = None
) -> None:
    """
    Draw predictions against the observed targets: few rows as points with intervals, many as a
    density, below the diagonal on which perfect predictions lie.

    :param y: Targets, [N].
    :param mean: Predicted means, [N].
    :param std: Predicted standard deviations of y, noise included, [N]; or None.
    :param level: How much of the probability the intervals hold.
    :raises ValueError: If arrays are not finite or of other lengths, or `std` is not positive.
    """
    y, mean = as_vectors(y=y, mean=mean)
    level = check_level(level)
    low, high = view(np.concatenate([y, mean]))
    if std is not None:
        std = _standard_deviations(y, std)
        lower, upper = metrics.central_interval(mean, np.square(std), level)
        if len(y) <= canvas.FEW:
            low, high = view(np.concatenate([y, lower, upper]))
            ax.vlines(y, lower, upper, color=canvas.FIT, alpha=0.35, linewidth=1.2)
    ax.set(xlim=(low, high), ylim=(low, high), xlabel="actual", ylabel="predicted")
    ax.set_aspect("equal", adjustable="box")
    cloud(ax, y, mean)
    perfect(ax, 1.0, len(y) > canvas.FEW)
    if std is not None:
        inside = np.mean((lower <= y) & (y <= upper))
        canvas.note(ax, f"{level:.0%} intervals hold {inside:.1%} of the rows")


@canvas.picture()
def residuals(y: Any, mean: Any, std: Any = None, *, ax: Any = None) -> None:
    """
    Draw residuals, the targets minus the predictions, against the predictions.

    With standard deviations a residual is in units of these, and two lines hold 95% of all where
    predictions are right. Of many rows the median is drawn too, in ten groups of equal size: where
    it leaves 0, the mean is wrong.

    :param y: Targets, [N].
    :param mean: Predicted means, [N].
    :param std: Predicted standard deviations of y, noise included, [N]; or None.
    :raises ValueError: If arrays are not finite or of other lengths, or `std` is not positive.
    """
    y, mean = as_vectors(y=y, mean=mean)
    residual = y - mean
    if std is not None:
        residual = residual / _standard_deviations(y, std)
    low, high = view(residual)
    most = max(-low, high, 0.0 if std is None else 2.6)
    ax.set(
        xlim=view(mean),
        ylim=(-1.25 * most, 1.15 * most),  # room for notes
        xlabel="predicted",
        ylabel="actual − predicted" if std is None else "(actual − predicted) / std",
    )
    cloud(ax, mean, residual)
    perfect(ax, 0.0, len(y) > canvas.FEW)
    if std is not None:
        end = float(norm.ppf(0.975))
        for height in (-end, end):
            ax.axhline(height, color=canvas.INK, linestyle=(0, (4, 3)), linewidth=1.0, zorder=4)
        outside = np.mean(np.abs(residual) > end)
        canvas.note(ax, f"{outside:.1%} of the rows beyond the lines; 5% expected")
    if len(y) > canvas.FEW:
        groups = np.array_split(np.argsort(mean, kind="stable"), 10)
        medians = [[np.median(part[group]) for group in groups] for part in (mean, residual)]
        ax.plot(
            *medians, "o-", color=canvas.BEST, path_effects=canvas.halo(), zorder=6, label="median"
        )
        canvas.note(ax, "orange: the median of a tenth of the rows", bottom=True)


@canvas.picture()
def pit_histogram(
    pit: Any, *, num_bins: int | None = None, level: float = 0.95, ax: Any = None
) -> None:
    """
    Draw the histogram of probability integral transforms, P(target ≤ the observed one).

    It is flat where predictions are right, high at both ends where their intervals are too narrow
    and high in the middle where these are too wide. The band holds a bar with probability `level`:
    its count is binomial.

    :param pit: Numbers in [0, 1], [N]; of Gaussian predictions :func:`gpflow_pep.metrics.pit`.
    :param num_bins: Bars; by default as many as leave 20 rows to each, from 5 to 20.
    :param level: Of the band.
    :raises ValueError: If a number is not in [0, 1], or there is no bar.
    """
    values, level = as_vector("pit", pit), check_level(level)
    if np.min(values) < 0.0 or np.max(values) > 1.0:
        raise refusal(
            "pit",
            f"numbers from {np.min(values):g} to {np.max(values):g}",
            "probabilities in [0, 1]",
            "Pass metrics.pit(y, mean, variance), or a distribution function at the targets.",
        )
    if num_bins is None:
        num_bins = int(np.clip(len(values) // 20, 5, 20))
    num_bins = check_positive("num_bins", num_bins)
    scale = num_bins / len(values)
    counts, edges = np.histogram(values, num_bins, (0.0, 1.0))
    heights = scale * counts
    low, high = scale * np.array(binom.interval(level, len(values), 1.0 / num_bins))
    outside = (heights < low) | (heights > high)
    colors = np.where(outside, canvas.BEST, canvas.FIT)
    ax.bar(edges[:-1], heights, 1.0 / num_bins, align="edge", color=colors, edgecolor="white")
    ax.axhspan(low, high, color=canvas.INK, alpha=0.18, linewidth=0)
    ax.axhline(1.0, color="black", linewidth=1.1)
    ax.set(
        xlim=(0.0, 1.0),
        ylim=(0.0, 1.12 * max(high, np.max(heights))),
        xlabel="probability of a smaller target",
        ylabel="density",
    )
    bars = f"{np.sum(outside)} of {num_bins} bars (orange) outside of the {level:.0%} band"
    canvas.note(ax, f"{canvas.rows(len(values))}; {bars}")
    canvas.room_on_top(ax, 0.05)


@canvas.picture()
def leave_one_out(log_density: Any, *, worst: int = 3, ax: Any = None) -> None:
    """
    Draw the log density of each row given all others, rows in the order of it, and the means.

    What lies far down at the left are rows that the model does not expect: they are named by their
    number, from 0. ``model.loo_log_density()`` computes it.

    :param log_density: [N], or by name where models are compared, such as ``{"alpha 0": ...}``.
    :param worst: How many rows to name, of the first.
    :raises ValueError: If densities are not finite, or not of the same rows.
    """
    named = log_density if isinstance(log_density, Mapping) else {"": log_density}
    if not named:
        raise refusal("log_density", "no model", "at least one", "Pass an array.")
    remedy = "A row that the others exclude has no log density: look at it, or at the likelihood."
    sets = {name: as_vector("log_density", each, remedy) for name, each in named.items()}
    first, *_ = sets
    for name, values in sets.items():
        other = f"that of {first!r}"
        require_same_length(f"log_density of {name!r}", values, other, sets[first])
    for number, (name, values) in enumerate(sets.items()):
        color, marker = canvas.color_of(number), canvas.marker_of(number)
        heights, places = np.sort(values), np.arange(1, len(values) + 1)
        if len(values) <= canvas.FEW:
            ax.plot(places, heights, color=color, marker=marker, markersize=3, linewidth=0.8)
        else:
            ax.plot(places, heights, color=color, linewidth=1.8)
        error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
        text = f"{name}: mean {np.mean(values):.3f} ± {error:.3f}".removeprefix(": ")
        ax.plot([], [], color=color, marker=marker, label=text)
    order = np.argsort(sets[first], kind="stable")
    for rank, row in enumerate(order[: max(worst, 0)], start=1):
        canvas.label_point(ax, f"row {row}", (rank, sets[first][row]), (6.0, 0.0), va="center")
    ax.set_xscale("log")
    ax.set(xlabel="rows, the least expected first", ylabel="leave-one-out log density (nats)")
    ax.legend(loc="lower right", frameon=False, fontsize=canvas.SMALL, labelcolor="linecolor")


@canvas.picture(7.0, 4.0)
def regression_1d(
    x: Any,
    mean: Any,
    std: Any,
    *,
    data: Any = None,
    inducing: Inducing | Any = None,
    levels: Sequence[float] = (0.5, 0.9),
    ax: Any = None,
) -> None:
    """
    Draw predictions along one input: mean, bands, rows, and where inducing inputs are.

    :param x: Inputs of the predictions, [G], in any order.
    :param mean: Predicted means there, [G].
    :param std: Predicted standard deviations of y there, noise included, [G].
    :param data: A pair of inputs and targets [N], or such pairs by name, for instance
        ``{"training rows": (X, y), "held-out rows": (Xt, yt)}``.
    :param inducing: Inducing inputs [M], or what :func:`inducing_points_of` gives of a model; blur
        is drawn as a bar of one standard deviation to either side.
    :param levels: How much of the probability each band holds.
    :raises ValueError: If arrays are not finite or of other lengths, or `std` is not positive.
    """
    x, mean, std = as_vectors(x=x, mean=mean, std=std)
    check_spread("std", std)
    bands = sorted((check_level(level) for level in levels), reverse=True)
    pairs = _pairs(data)
    if inducing is not None and not isinstance(inducing, Inducing):
        inducing = Inducing(as_columns("inducing", inducing, 1))
    order = np.argsort(x, kind="stable")
    x, mean, std = x[order], mean[order], std[order]
    for number, (name, (inputs, targets)) in enumerate(pairs.items()):
        color, marker = (canvas.color_of(number), "x") if number else (canvas.TRAIN, ".")
        backdrop(ax, inputs, targets, name, color=color, marker=marker)
    ax.plot(x, mean, color=canvas.FIT, linewidth=1.8, path_effects=canvas.halo(), label="mean")
    for rank, level in enumerate(bands, start=1):
        lower, upper = metrics.central_interval(mean, np.square(std), level)
        alpha, text = min(0.16 * rank, 0.6), f"{level:.0%}"
        ax.fill_between(x, lower, upper, color=canvas.FIT, alpha=alpha, linewidth=0, label=text)
    ax.set(xlim=(x[0], x[-1]) if x[0] < x[-1] else None, xlabel="x", ylabel="y")
    if inducing is not None:
        draw_ticks(ax, inducing)
    canvas.legend_on_top(ax, columns=6)


def _standard_deviations(y: AnyNDArray, std: Any) -> AnyNDArray:
    return check_spread("std", as_vectors(y=y, std=std)[1])


def _pairs(data: Any) -> dict[str, tuple[AnyNDArray, AnyNDArray]]:
    """Give inputs and targets of rows by name."""
    if data is None:
        return {}
    pairs = {}
    for name, pair in (data if isinstance(data, Mapping) else {"data": data}).items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            got = f"{type(pair).__name__} for {name!r}"
            raise refusal("data", got, "a pair of inputs and targets", "Pass (x, y).")
        inputs, targets = as_vectors(inputs=pair[0], targets=pair[1])
        pairs[str(name)] = (inputs, targets)
    return pairs
