"""Pictures of training, and of scores at several powers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas
from gpflow.base import AnyNDArray

from ..engine.checks import as_vector, as_vectors, refusal, require_same_length
from ..training import FitRecord, MaximiseRecord
from .canvas import BEST, FIT, SMALL, color_of, legend_on_top, note, picture

#: Losses of minibatches are averaged over this part of the steps.
SMOOTH = 0.05
#: The picture shows at least the last part of what the objective gained in all.
GAIN = 0.1


@picture()
def objective_trace(runs: Any, *, ax: Any = None) -> None:
    """
    Draw the objective (minus the training loss) at each step.

    Of several starts the best is strong and the others are faint; of minibatches there is the mean
    of neighbouring steps, with the estimates themselves behind it, and a dotted line at the best
    step of early stopping. The y axis is cut where the first steps would squeeze the others.

    :param runs: What :func:`~gpflow_pep.training.maximise` or
        :func:`~gpflow_pep.training.fit` returned; or an array of training losses, such as
        one's own loop has; or several of these by name.
    :raises ValueError: If there is no loss, or one is not finite.
    """
    named = runs if isinstance(runs, Mapping) else {"": runs}
    if not named:
        raise refusal("runs", "none", "at least one", "Pass a record of training.")
    objectives = [-as_vector("losses", getattr(run, "losses", run)) for run in named.values()]
    lines = []
    for number, ((name, run), line) in enumerate(zip(named.items(), objectives)):
        color = color_of(number)
        if isinstance(run, MaximiseRecord):
            for start in run.starts:
                ax.plot(-start.losses, color=color, alpha=0.35, linewidth=0.9)
        if isinstance(run, FitRecord):
            ax.plot(line, color=color, alpha=0.2, linewidth=0.6, rasterized=True)
            # The mean of neighbouring steps, of fewer near the ends.
            window = 2 * int(SMOOTH * len(line) / 2) + 1
            steps = pandas.Series(line).rolling(window, center=True, min_periods=1)
            line = steps.mean().to_numpy()
            if run.best_step is not None:
                ax.axvline(run.best_step, color=color, linestyle="dotted", linewidth=1.2)
        text = f"{name}: {line[-1]:.6g}".removeprefix(": ")
        ax.plot(line, color=color, linewidth=1.8, label=text)
        lines.append(line)
    low, high = _without_rise(lines)
    ax.set_ylim(low, high)
    below = min(float(objective.min()) for objective in objectives)
    if below < low:
        note(ax, f"↓ from {below:.4g}", bottom=True)
    ax.set(xlabel="step", ylabel="objective (nats)")
    ax.legend(loc="lower right", frameon=False, fontsize=SMALL, labelcolor="linecolor")


def _without_rise(objectives: Sequence[AnyNDArray]) -> tuple[float, float]:
    """Find limits of y that leave out a steep rise in the first steps."""
    highs = [float(line.max()) for line in objectives]
    lows = [
        min(high - GAIN * (high - float(line[0])), float(line[-1]))
        for high, line in zip(highs, objectives)
    ]
    margin = 0.06 * max(max(highs) - min(lows), 1e-9 * abs(max(highs)), 1e-12)
    return min(lows) - margin, max(highs) + margin


@picture()
def alpha_sweep(
    alphas: Any,
    values: Any,
    errors: Any = None,
    *,
    best: float | None = None,
    baselines: Mapping[str, float | tuple[float, float]] | None = None,
    label: str = "",
    ax: Any = None,
) -> None:
    """
    Draw a score against the power, with error bars, and other methods as horizontal lines.

    A line far from all powers would squeeze these: it is outside of the picture, and the legend has
    an arrow to where it is.

    :param alphas: Powers in [0, 1], [A], all different; one will do.
    :param values: The score of each, [A].
    :param errors: Its standard error, [A], or None.
    :param best: The power to be ringed, one of `alphas`.
    :param baselines: The score of other methods by name, or a pair of it and its standard error.
    :param label: Of the score.
    :raises ValueError: If arrays are not finite or of other lengths, a power is not in [0, 1] or
        there twice, an error is negative, or `best` is none of the powers.
    """
    alphas, values = as_vectors(alphas=alphas, values=values)
    errors = np.zeros_like(values) if errors is None else as_vector("errors", errors)
    require_same_length("errors", errors, "alphas", alphas)
    others = {str(name): _with_error(str(name), pair) for name, pair in (baselines or {}).items()}
    _check_powers(alphas, errors, best)
    order = np.argsort(alphas)
    alphas, values, errors = alphas[order], values[order], errors[order]
    several = len(alphas) > 1
    text = None if several else f"alpha {alphas[0]:g}: {values[0]:.4g}"
    bars, form = errors if errors.any() else None, "o-" if several else "o"
    ax.errorbar(alphas, values, bars, fmt=form, color=FIT, capsize=3, zorder=4, label=text)
    if best is not None and several:
        place = int(np.flatnonzero(np.isclose(alphas, best))[0])
        ax.plot(best, values[place], "o", color=BEST, markersize=13, fillstyle="none", zorder=5)
    low, high = _heights(values, errors, others)
    for number, (name, (value, error)) in enumerate(others.items(), start=2):
        color, style = color_of(number), ("--", "-.", ":")[number % 3]
        arrow = " ↑" if value > high else " ↓" if value < low else ""
        text = f"{name}: {value:.4g}{arrow}"
        ax.axhline(value, color=color, linestyle=style, zorder=2, label=text)
        ax.axhspan(value - error, value + error, color=color, alpha=0.1, linewidth=0)
    ax.set(xlim=(-0.05, 1.05), ylim=(low, high))
    ax.set(xlabel="alpha (0: variational, 1: EP)", ylabel=label)
    ax.set_xticks(alphas if len(alphas) <= 6 else np.linspace(0.0, 1.0, 6))
    ax.ticklabel_format(axis="y", useOffset=False)
    legend_on_top(ax, columns=2)


def _with_error(name: str, pair: Any) -> tuple[float, float]:
    numbers = as_vector(f"baselines of {name!r}", np.atleast_1d(np.asarray(pair)))
    if len(numbers) > 2 or (len(numbers) == 2 and numbers[1] < 0.0):
        raise refusal(
            "baselines",
            f"{pair!r} for {name!r}",
            "a number, or a pair of it and its standard error, at least 0",
            "Pass one.",
        )
    return float(numbers[0]), float(numbers[1]) if len(numbers) == 2 else 0.0


def _check_powers(alphas: AnyNDArray, errors: AnyNDArray, best: float | None) -> None:
    if alphas.min() < 0.0 or alphas.max() > 1.0 or len(set(alphas)) < len(alphas):
        raise refusal(
            "alphas",
            alphas.tolist(),
            "different numbers in [0, 1]",
            "Draw other methods as baselines, and repeated splits as a mean with its error.",
        )
    if errors.min() < 0.0:
        got = f"{errors.min():g}"
        raise refusal("errors", got, "numbers of at least 0", "Pass standard errors.")
    if best is not None and not np.isclose(alphas, best).any():
        raise refusal("best", best, f"one of alphas, {alphas.tolist()}", "Pass one, or None.")


def _heights(
    values: AnyNDArray, errors: AnyNDArray, others: Mapping[str, tuple[float, float]]
) -> tuple[float, float]:
    """Find limits of y that hold the sweep, and all baselines that are not far from it."""
    low, high = float(np.min(values - errors)), float(np.max(values + errors))
    far = 3.0 * (high - low) if len(values) > 1 and high > low else np.inf
    near = [
        value + sign * error
        for value, error in others.values()
        for sign in (-1.0, 1.0)
        if low - far <= value <= high + far
    ]
    low, high = min([low, *near]), max([high, *near])
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin
