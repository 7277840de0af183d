"""Figures of a comparison. They need matplotlib, see :mod:`gpflow_pep.plotting`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .. import plotting
from ..metrics import calibration, central_interval
from ..plotting import BEST, FIT, HELD_OUT, TRAIN
from .run import Comparison, FitResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _best(comparison: Comparison) -> FitResult:
    if comparison.best is None:
        raise ValueError(
            "every fit of the comparison failed, expected at least one that did not: the messages"
            " of its results say why."
        )
    return comparison.best


def _require_number(comparison: Comparison) -> None:
    if comparison.dataset.classes:
        raise ValueError("the target is a class, expected a number: use reliability_figure.")


def metrics_figure(comparison: Comparison) -> "Figure":
    """
    Draw log Z and the held-out scores against alpha, with the best alpha marked.

    :param comparison: At least one of its fits did not fail.
    :raises ValueError: If every fit failed.
    :raises ImportError: If matplotlib is not installed.
    """
    best, decisive = _best(comparison), comparison.decisive
    results = sorted(
        (result for result in comparison.results if not result.failed),
        key=lambda result: result.alpha,
    )
    panels: dict[str, Callable[[FitResult], float]] = {
        "log Z of the training rows (nats)": lambda result: result.log_z
    }
    for metric in comparison.metrics:
        panels[metric.label] = lambda result, name=metric.name: result.scores[name]  # type: ignore[misc]
    nominal = [None, *(metric.nominal for metric in comparison.metrics)]
    alphas = [result.alpha for result in results]
    figure = plotting.figure(8.0, 5.5)
    for axes, (label, value), right in zip(
        figure.subplots(2, 2, sharex=True).flat, panels.items(), nominal, strict=True
    ):
        axes.plot(alphas, list(map(value, results)), "o-", color=FIT)
        axes.plot(
            best.alpha, value(best), "*", color=BEST, markersize=15,
            label=f"best {decisive.heading}: alpha = {best.alpha:g}",
        )  # fmt: skip
        if right is not None:
            axes.axhline(right, color=TRAIN, linestyle="--", linewidth=1, label=f"nominal, {right}")
        axes.set_title(label, fontsize="medium")
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.set_xticks(alphas)
        plotting.tidy(axes)
        if axes.get_subplotspec().is_last_row():
            axes.set_xlabel("alpha (0: variational, 1: EP)")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def predictions_figure(comparison: Comparison) -> "Figure":
    """
    Draw predictions of the best model with 90% intervals against the true held-out targets.

    :param comparison: Of a target that is a number; at least one of its fits did not fail.
    :raises ValueError: If every fit failed, or the target is a class.
    :raises ImportError: If matplotlib is not installed.
    """
    best, name = _best(comparison), comparison.dataset.target_name
    _require_number(comparison)
    held_out = comparison.held_out_predictions(best.alpha)
    figure = plotting.figure(5.5, 6.0)
    axes = figure.subplots()
    axes.errorbar(
        held_out["true"], held_out["mean"], yerr=held_out["upper_90"] - held_out["mean"], fmt="o",
        color=FIT, ecolor="#9dbfe0", markersize=4, elinewidth=0.9,
        label=f"mean and 90% interval ({best.scores['coverage']:.0%} hold the target)",
    )  # fmt: skip
    middle = float(np.mean(held_out["true"]))
    axes.axline((middle, middle), slope=1.0, color="black", linewidth=1, label="perfect")
    axes.set(
        xlabel=f"true {name}",
        ylabel=f"predicted {name}",
        title=f"Held-out rows, alpha = {best.alpha:g}",
    )
    figure.legend(frameon=False, loc="outside lower center", fontsize="small")
    plotting.tidy(axes)
    return figure


def fit_figure(comparison: Comparison) -> "Figure":
    """
    Draw, for one input, the data, the best model's mean and 90% band, and its inducing inputs.

    :param comparison: Of a target that is a number and one input; at least one of its fits did not
        fail.
    :raises ValueError: If there is more than one input, the target is a class, or every fit failed.
    :raises ImportError: If matplotlib is not installed.
    """
    dataset, split = comparison.dataset, comparison.split
    if len(dataset.feature_names) != 1:
        raise ValueError(
            f"the data have {len(dataset.feature_names)} inputs, expected 1 to draw a fit against:"
            " use predictions_figure."
        )
    _require_number(comparison)
    best = _best(comparison)
    fitted = comparison.models[best.alpha]
    x = dataset.X[:, 0]
    margin = 0.1 * np.ptp(x)
    grid = np.linspace(x.min() - margin, x.max() + margin, 400)
    prediction = fitted.predict(grid[:, None])
    lower, upper = central_interval(prediction.mean[:, 0], prediction.variance[:, 0])
    inducing = fitted.inputs.inverse_transform(fitted.model.inducing_variable.Z.numpy())[:, 0]

    figure = plotting.figure(8.0, 4.5)
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
    plotting.tidy(axes)
    return figure


def reliability_figure(comparison: Comparison) -> "Figure":
    """
    Draw how often the best model's predictions of classes come true, against the probability it
    gave them (:func:`gpflow_pep.metrics.calibration`), and how many there were.

    :param comparison: Of a target that is a class; at least one of its fits did not fail.
    :raises ValueError: If every fit failed, or the target is a number.
    :raises ImportError: If matplotlib is not installed.
    """
    best, dataset = _best(comparison), comparison.dataset
    if not dataset.classes:
        raise ValueError("the target is a number, expected a class: use predictions_figure.")
    rows = comparison.split.test
    probability = comparison.models[best.alpha].predict(dataset.X[rows]).probability
    found = calibration(dataset.Y[rows, 0].astype(int), probability)
    figure = plotting.figure(5.5, 6.0)
    axes, counts = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    plotting.draw_calibration(axes, found)
    axes.set_title(
        f"Predicted {dataset.target_name}, alpha = {best.alpha:g}:"
        f" calibration error {found.error:.3f}"
    )
    counts.bar(found.confidence, found.count, width=0.02, color=FIT)
    counts.set(xlabel="probability of the predicted class", ylabel="rows", xlim=(-0.03, 1.03))
    plotting.tidy(counts)
    return figure


def figures(comparison: Comparison) -> dict[str, Callable[[Comparison], "Figure"]]:
    """
    Find the figures that suit a comparison, by name: ``metrics``, and for a number
    ``predictions`` and, with one input, ``fit``; for a class ``reliability``.

    :param comparison: What they are to be drawn of.
    """
    if comparison.dataset.classes:
        return {"metrics": metrics_figure, "reliability": reliability_figure}
    drawings: dict[str, Callable[[Comparison], Figure]] = {
        "metrics": metrics_figure,
        "predictions": predictions_figure,
    }
    if len(comparison.dataset.feature_names) == 1:
        drawings["fit"] = fit_figure
    return drawings
