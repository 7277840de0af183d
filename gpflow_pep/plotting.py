"""
Figures of a comparison. They need matplotlib, which comes with the extra ``gpflow_pep[plots]``.
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.base import AnyNDArray

from .compare.run import Comparison, FitResult
from .metrics import Calibration, calibration, central_interval

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


def _require_number(comparison: Comparison) -> None:
    if comparison.dataset.classes:
        raise ValueError("the target is a class, expected a number: use reliability_figure.")


def metrics_figure(comparison: Comparison) -> "Figure":
    """
    log Z and the held-out scores against alpha, with the best alpha marked.

    :param comparison: at least one of its fits did not fail.
    :raises ValueError: if every fit failed.
    :raises ImportError: if matplotlib is not installed.
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
    figure = _figure(8.0, 5.5)
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
        _tidy(axes)
        if axes.get_subplotspec().is_last_row():
            axes.set_xlabel("alpha (0: variational, 1: EP)")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def predictions_figure(comparison: Comparison) -> "Figure":
    """
    Predictions of the best model with 90% intervals against the true held-out targets.

    :param comparison: of a target that is a number; at least one of its fits did not fail.
    :raises ValueError: if every fit failed, or the target is a class.
    :raises ImportError: if matplotlib is not installed.
    """
    best, name = _best(comparison), comparison.dataset.target_name
    _require_number(comparison)
    held_out = comparison.held_out_predictions(best.alpha)
    figure = _figure(5.5, 6.0)
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
    _tidy(axes)
    return figure


def fit_figure(comparison: Comparison) -> "Figure":
    """
    For one input: the data, the best model's mean and 90% band, and its inducing inputs.

    :param comparison: of a target that is a number and one input; at least one of its fits did not
        fail.
    :raises ValueError: if there is more than one input, the target is a class, or every fit failed.
    :raises ImportError: if matplotlib is not installed.
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


def reliability_figure(comparison: Comparison) -> "Figure":
    """
    How often the best model's predictions of classes come true, against the probability it gave
    them (:func:`gpflow_pep.metrics.calibration`), and how many there were.

    :param comparison: of a target that is a class; at least one of its fits did not fail.
    :raises ValueError: if every fit failed, or the target is a number.
    :raises ImportError: if matplotlib is not installed.
    """
    best, dataset = _best(comparison), comparison.dataset
    if not dataset.classes:
        raise ValueError("the target is a number, expected a class: use predictions_figure.")
    rows = comparison.split.test
    probability = comparison.models[best.alpha].predict(dataset.X[rows]).probability
    found = calibration(dataset.Y[rows, 0].astype(int), probability)
    figure = _figure(5.5, 6.0)
    axes, counts = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    draw_calibration(axes, found)
    axes.set_title(
        f"Predicted {dataset.target_name}, alpha = {best.alpha:g}:"
        f" calibration error {found.error:.3f}"
    )
    counts.bar(found.confidence, found.count, width=0.02, color=FIT)
    counts.set(xlabel="probability of the predicted class", ylabel="rows", xlim=(-0.03, 1.03))
    _tidy(counts)
    return figure


def draw_calibration(axes: Any, found: Calibration) -> None:
    """
    How often predictions come true, against the probability they had.

    :param axes: matplotlib's, to draw on.
    :param found: what :func:`gpflow_pep.metrics.calibration` found.
    """
    axes.plot([0.0, 1.0], [0.0, 1.0], color="black", linewidth=1, label="perfect")
    axes.plot(found.confidence, found.accuracy, "o-", color=FIT, label="held-out rows")
    axes.set(ylabel="fraction that is right", ylim=(-0.03, 1.03))
    axes.legend(frameon=False, loc="upper left")
    _tidy(axes)


def draw_inducing_points(
    axes: Any, sets: Sequence[AnyNDArray], X: AnyNDArray | None, dimensions: Sequence[int]
) -> None:
    """
    Inducing inputs, each set in a colour of its own, among rows.

    :param axes: matplotlib's, to draw on.
    :param sets: Z [M, D] of each.
    :param X: the rows [N, D], or None.
    :param dimensions: the input on each axis; of one input, ticks on a line.
    """

    def shown(rows: AnyNDArray) -> AnyNDArray:
        columns = [rows[:, dimension] for dimension in dimensions]
        return np.stack(columns if len(columns) > 1 else [*columns, np.zeros(len(rows))])

    if X is not None:
        axes.plot(*shown(np.asarray(X)), ".", color=TRAIN, markersize=3, label="rows")
    for number, Z in enumerate(sets):
        axes.plot(*shown(Z), "+", markersize=9, color=f"C{number}", label="inducing inputs")
    axes.set_xlabel(f"input {dimensions[0]}")
    if len(dimensions) > 1:
        axes.set_ylabel(f"input {dimensions[1]}")
    else:
        axes.set_yticks([])
    _tidy(axes)


def figures(comparison: Comparison) -> dict[str, Callable[[Comparison], "Figure"]]:
    """
    The figures that suit a comparison, by name: ``metrics``, and for a number ``predictions`` and,
    with one input, ``fit``; for a class ``reliability``.

    :param comparison: what they are to be drawn of.
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
