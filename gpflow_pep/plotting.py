"""
Figures of a comparison. They need matplotlib, which comes with the extra ``gpflow_pep[plots]``.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from .compare import Comparison, FitResult
from .metrics import central_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INSTALL = "matplotlib is not installed, figures need it: pip install 'gpflow_pep[plots]'"

FIT, BEST, TRAIN, HELD_OUT = "#1f5a99", "#c8442e", "#8a8a8a", "#c8442e"


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def _figure(width: float, height: float) -> "Figure":
    if not available():
        raise ImportError(INSTALL)
    # A Figure of its own, not pyplot's: drawing here leaves the caller's figures alone.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def _best(comparison: Comparison) -> FitResult:
    if comparison.best is None:
        raise ValueError(
            "every fit of the comparison failed, expected at least one that did not: the messages"
            " of its results say why."
        )
    return comparison.best


def metrics_figure(comparison: Comparison) -> "Figure":
    """
    log Z and the held-out scores against alpha, with the best alpha (lowest SMLL) marked.

    :param comparison: at least one of its fits did not fail.
    :raises ValueError: if every fit failed.
    :raises ImportError: if matplotlib is not installed.
    """
    best = _best(comparison)
    panels = {
        "log_z": "log Z of the training rows (nats)",
        "smse": "SMSE (lower is better)",
        "smll": "SMLL (nats, lower is better)",
        "coverage": "coverage of the 90% interval",
    }
    results = sorted(result for result in comparison.results if not result.failed)
    alphas = [result.alpha for result in results]
    figure = _figure(8.0, 5.5)
    for axes, (field, label) in zip(
        figure.subplots(2, 2, sharex=True).flat, panels.items(), strict=True
    ):
        axes.plot(alphas, [getattr(result, field) for result in results], "o-", color=FIT)
        axes.plot(
            best.alpha, getattr(best, field), "*", color=BEST, markersize=15,
            label=f"best SMLL: alpha = {best.alpha:g}",
        )  # fmt: skip
        if field == "coverage":
            axes.axhline(0.9, color=TRAIN, linestyle="--", linewidth=1, label="nominal, 0.9")
        axes.set_title(label, fontsize="medium")
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.set_xticks(alphas)
        _tidy(axes)
        if axes.get_subplotspec().is_last_row():
            axes.set_xlabel("alpha (0: variational, 1: FITC)")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def predictions_figure(comparison: Comparison) -> "Figure":
    """
    Predictions of the best model with 90% intervals against the true held-out targets.

    :param comparison: at least one of its fits did not fail.
    :raises ValueError: if every fit failed.
    :raises ImportError: if matplotlib is not installed.
    """
    best, name = _best(comparison), comparison.dataset.target_name
    held_out = comparison.held_out_predictions(best.alpha)
    figure = _figure(5.5, 6.0)
    axes = figure.subplots()
    axes.errorbar(
        held_out.true, held_out.mean, yerr=held_out.upper - held_out.mean, fmt="o", color=FIT,
        ecolor="#9dbfe0", markersize=4, elinewidth=0.9,
        label=f"mean and 90% interval ({best.coverage:.0%} hold the target)",
    )  # fmt: skip
    middle = float(np.mean(held_out.true))
    axes.axline((middle, middle), slope=1.0, color="black", linewidth=1, label="perfect")
    axes.set(
        xlabel=f"true {name}",
        ylabel=f"predicted {name}",
        title=f"Held-out rows, alpha = {best.alpha:g}",
    )
    figure.legend(frameon=False, loc="outside lower center", fontsize="small")
    _tidy(axes)
    return figure


def fit_figure(comparison: Comparison) -> "Figure":
    """
    For one input: the data, the best model's mean and 90% band, and its inducing inputs.

    :param comparison: of a data set with one input; at least one of its fits did not fail.
    :raises ValueError: if there is more than one input, or every fit failed.
    :raises ImportError: if matplotlib is not installed.
    """
    dataset, split = comparison.dataset, comparison.split
    if len(dataset.feature_names) != 1:
        raise ValueError(
            f"the data have {len(dataset.feature_names)} inputs, expected 1 to draw a fit against:"
            " use predictions_figure."
        )
    best = _best(comparison)
    fitted = comparison.models[best.alpha]
    x = dataset.X[:, 0]
    margin = 0.1 * np.ptp(x)
    grid = np.linspace(x.min() - margin, x.max() + margin, 400)
    prediction = fitted.predict(grid[:, None])
    lower, upper = central_interval(prediction.mean[:, 0], prediction.variance[:, 0])
    inducing = fitted.inputs.inverse_mean(fitted.model.inducing_variable.Z.numpy())[:, 0]

    figure = _figure(8.0, 4.5)
    axes = figure.subplots()
    axes.fill_between(grid, lower, upper, color=FIT, alpha=0.15, linewidth=0, label="90% of y")
    axes.plot(grid, prediction.mean[:, 0], color=FIT, label="mean")
    for rows, color, label in (
        (split.train, TRAIN, "training rows"),
        (split.test, HELD_OUT, "held-out rows"),
    ):
        axes.plot(x[rows], dataset.Y[rows, 0], ".", color=color, markersize=5, label=label)
    axes.plot(
        inducing, np.full_like(inducing, 0.03), "|", color="black", markersize=12,
        transform=axes.get_xaxis_transform(), label="inducing inputs",
    )  # fmt: skip
    axes.set(
        xlabel=dataset.feature_names[0],
        ylabel=dataset.target_name,
        title=f"Fit at alpha = {best.alpha:g}",
        xlim=(grid[0], grid[-1]),
    )
    figure.legend(loc="outside right center", frameon=False, fontsize="small")
    _tidy(axes)
    return figure
