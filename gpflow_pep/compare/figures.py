"""Figures of a comparison. They need matplotlib, see :mod:`gpflow_pep.plotting`.

Scores and held-out predictions are those of the saved model. Fit shows the model of all
rows.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .. import plotting
from .candidates import label_of
from .findings import summarise
from .forecasts import draw_forecast, latest_forecasts
from .predicting import predictions
from .run import Comparison
from .scores import class_indices, difference_over_rows, scores, without_limits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Of a panel, in inches. A phone shows it in this size, so that its letters are as
#: large as others.
WIDTH = 3.8


def _best(comparison: Comparison) -> pd.DataFrame:
    return without_limits(comparison.held_out[str(comparison.best)])


def _draw_scores(comparison: Comparison) -> "Figure":
    """Draw each metric against alpha, with standard errors, beside the default and the
    baselines.

    Of several kernels or numbers of points, those of the best single model are drawn.
    """
    table, best = summarise(comparison), comparison.candidates[str(comparison.best)]
    table = table[table["failed"] == 0]
    powers, others = table[table["alpha"].notna()], table[table["alpha"].isna()]
    if len(powers):
        labels = powers.index.map(label_of)
        lowest = (
            powers[comparison.metrics[0].name].map(comparison.metrics[0].loss).argmin()
        )
        powers = powers[labels == labels[lowest]]
    metrics = comparison.metrics
    figure = plotting.figure(2 * WIDTH, 3.0 * ((len(metrics) + 1) // 2))
    for axes, metric in zip(figure.subplots((len(metrics) + 1) // 2, 2).flat, metrics):
        error = f"{metric.name}_se"
        plotting.alpha_sweep(
            powers["alpha"],
            powers[metric.name],
            powers[error].fillna(0.0),
            best=best if best in [*powers["alpha"]] else None,
            baselines={
                str(name): (row[metric.name], np.nan_to_num(row[error]))
                for name, row in others.iterrows()
            },
            label=metric.label,
            ax=axes,
        )
        if metric.nominal is not None:
            axes.axhline(metric.nominal, color="black", linewidth=1, linestyle=":")
    return figure


def _draw_forecast(comparison: Comparison) -> "Figure":
    """Draw the latest window of the largest series over time."""
    forecasts = latest_forecasts(comparison)
    width = min(len(forecasts), 2)
    num_rows = -(-len(forecasts) // width)
    figure = plotting.figure(WIDTH * width, 3.0 * num_rows)
    panels = figure.subplots(num_rows, width, squeeze=False).flat
    for forecast, axes in zip(forecasts, panels):
        draw_forecast(forecast, axes)
        plotting.tidy(axes)
    for axes in figure.axes[len(forecasts) :]:
        axes.remove()
    return figure


def _draw_predictions(comparison: Comparison) -> "Figure":
    """Draw held-out predictions of the saved model against the targets, and the PIT
    histogram; of several targets the first nine, and no histogram.
    """
    table, name = _best(comparison), str(comparison.data.targets[0].name)
    several = len(comparison.data.targets) > 1
    parts = (
        list(table.groupby("target", sort=False))[:9] if several else [(name, table)]
    )
    num_panels = len(parts) + (not several and "pit" in table)
    num_rows, width = -(-num_panels // 3), min(num_panels, 3)
    figure = plotting.figure(WIDTH * width, 3.6 * num_rows)
    panels = figure.subplots(num_rows, width, squeeze=False).flat
    for axes, (name, part) in zip(panels, parts):
        intervals = part[["lower_90", "upper_90"]]
        plotting.predicted_against_actual(
            part["true"], part["mean"], intervals=intervals, ax=axes
        )
        axes.set(
            xlabel=f"{name}, held-out rows",
            ylabel=f"{name}, predicted ({comparison.best})",
        )
    for axes in figure.axes[len(parts) : num_panels]:
        plotting.pit_histogram(table["pit"], ax=axes)
    for axes in figure.axes[num_panels:]:
        axes.remove()
    return figure


def _draw_classes(comparison: Comparison) -> "Figure":
    """Draw the reliability diagram and the confusion matrix of held-out predictions."""
    table = _best(comparison)
    figure = plotting.figure(2 * WIDTH, 3.8)
    left, right = figure.subplots(1, 2)
    plotting.reliability(*class_indices(table), ax=left)
    labels, predicted = (
        table[name].astype(str).to_numpy() for name in ("true", "predicted")
    )
    plotting.confusion_matrix(labels, predicted, ax=right)
    return figure


def _draw_fit(comparison: Comparison) -> "Figure":
    """Draw the model of all rows along its one input."""
    X, y, pipeline = comparison.data.X, comparison.data.y, comparison.model
    assert pipeline is not None
    (name,) = X
    low, high = X[name].min(), X[name].max()
    margin = 0.1 * (high - low)
    grid = pd.DataFrame({name: np.linspace(low - margin, high + margin, 200)})
    curve = predictions(pipeline[-1], pipeline[:-1].transform(grid), False)
    figure = plotting.figure(WIDTH, 3.0)
    axes = figure.subplots()
    (inducing,) = plotting.inducing_points_of(pipeline[-1])
    plotting.regression_1d(
        grid[name],
        curve["mean"],
        curve["sd"],
        data={"rows": (X[name].to_numpy(), y.to_numpy())},
        inducing=inducing,
        ax=axes,
    )
    axes.set(xlabel=str(name), ylabel=str(y.name))
    return figure


def _draw_details(comparison: Comparison) -> "Figure":
    """Draw how much each input matters to held-out predictions, and the learning curve
    if there is one.
    """
    details, metric = comparison.details, comparison.metrics[0]
    assert details is not None and details.importance is not None
    rows = details.importance.head(20)[::-1]
    has_curve = len(details.learning) > 1
    columns = 2 if has_curve else 1
    figure = plotting.figure(columns * WIDTH, max(2.8, 1.2 + 0.26 * len(rows)))
    panels = figure.subplots(1, columns, squeeze=False)[0]
    left = panels[0]
    left.barh(
        list(map(str, rows.index)),
        rows["mean"],
        xerr=rows["error"],
        color="C0",
        alpha=0.8,
    )
    left.set(xlabel=f"{metric.heading}: how much worse if permuted")
    if not has_curve:
        return figure
    right = panels[1]
    numbers, tables = list(details.learning), list(details.learning.values())
    curve = [scores(table)[metric.name] for table in tables]
    errors = np.nan_to_num(
        [difference_over_rows(metric, t, tables[-1]).error for t in tables]
    )
    right.errorbar(numbers, curve, errors, marker="o", capsize=3)
    right.set(xscale="log", xlabel="training rows", ylabel=metric.heading)
    right.set_xticks(numbers, list(map(str, numbers)))
    right.minorticks_off()
    return figure


def _has_one_input(X: pd.DataFrame) -> bool:
    is_number = all(map(pd.api.types.is_numeric_dtype, X.dtypes))
    return X.shape[1] == 1 and is_number and not X.isna().any(axis=None)


def figures(comparison: Comparison) -> dict[str, Callable[[Comparison], "Figure"]]:
    """Find the figures that suit a comparison, by name."""
    model, numbers = comparison.model, comparison.data.kind == "numbers"
    single, details = len(comparison.data.targets) == 1, comparison.details
    suits: dict[Callable[[Comparison], Figure], bool] = {
        _draw_forecast: (
            numbers
            and comparison.best is not None
            and comparison.settings.time_column is not None
        ),
        _draw_scores: (
            comparison.best is not None
            and any(
                alpha == alpha and not comparison.num_failed(name)
                for name, alpha in comparison.candidates.items()
            )
        ),
        _draw_predictions: numbers and model is not None,
        _draw_classes: not numbers and comparison.best is not None,
        _draw_fit: (
            numbers
            and single
            and model is not None
            and _has_one_input(comparison.data.X)
        ),
        _draw_details: (details is not None and details.importance is not None),
    }
    return {draw.__name__.removeprefix("_draw_"): draw for draw in suits if suits[draw]}
