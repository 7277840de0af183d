"""Pictures of predicted numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.stats import binom

from .. import metrics
from ..engine.checks import as_vector, as_vectors, check_level, check_positive, refusal
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
