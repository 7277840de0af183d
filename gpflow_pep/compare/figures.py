"""Figures of a comparison. They need matplotlib, see :mod:`gpflow_pep.plotting`.

Scores and held-out predictions are those of the saved model, and raise an error where all models
failed. Fit, relevance and training show the model of all rows, and raise one where there is none.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .. import plotting
from ..engine.refusals import refusal
from .candidates import label_of
from .findings import summarise
from .predicting import predictions
from .run import Comparison
from .scores import class_indices, scores, without_limits

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _best(comparison: Comparison) -> pd.DataFrame:
    _check(comparison.best is not None, "every model failed", "Its fits' messages give the reason.")
    return without_limits(comparison.held_out[str(comparison.best)])


def _model(comparison: Comparison) -> Any:
    remedy = "Its fit failed; the message gives the reason."
    _check(comparison.model is not None, "no model of all rows", remedy)
    return comparison.model


def _check(can_be_drawn: bool, got: str, remedy: str) -> None:
    if not can_be_drawn:
        raise refusal("comparison", got, "one that has what is drawn", remedy)


def scores_figure(comparison: Comparison) -> "Figure":
    """Draw each metric against alpha, with standard errors, beside the default and the baselines.

    Of several kernels or numbers of points, those of the best single model are drawn.
    """
    _best(comparison)
    table, best = summarise(comparison), comparison.candidates[str(comparison.best)]
    table = table[table["failed"] == 0]
    powers, others = table[table["alpha"].notna()], table[table["alpha"].isna()]
    if len(powers):
        labels = powers.index.map(label_of)
        lowest = powers[comparison.metrics[0].name].map(comparison.metrics[0].loss).argmin()
        powers = powers[labels == labels[lowest]]
    metrics = comparison.metrics
    figure = plotting.figure(9.6, 3.4 * ((len(metrics) + 1) // 2))
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


def predictions_figure(comparison: Comparison) -> "Figure":
    """Draw held-out predictions of the saved model against the targets, and their PIT histogram."""
    if len(comparison.data.targets) > 1:
        return _predictions_by_target(comparison)
    table, target = _best(comparison), comparison.data.y.name
    has_pit = "pit" in table
    figure = plotting.figure(10.5 if has_pit else 5.0, 4.6)
    axes = figure.subplots(1, 2 if has_pit else 1, squeeze=False)[0]
    _draw_predictions(table, axes[0])
    axes[0].set(
        xlabel=f"{target}, held-out rows", ylabel=f"{target}, predicted ({comparison.best})"
    )
    if has_pit:
        plotting.pit_histogram(table["pit"], ax=axes[1])
    return figure


def _draw_predictions(table: pd.DataFrame, axes: Any) -> None:
    intervals = table[["lower_90", "upper_90"]]
    plotting.predicted_against_actual(table["true"], table["mean"], intervals=intervals, ax=axes)


def _predictions_by_target(comparison: Comparison) -> "Figure":
    """Draw held-out predictions of each of several targets, of the first nine if they are many."""
    parts = list(_best(comparison).groupby("target", sort=False))[:9]
    num_rows = -(-len(parts) // 3)
    figure = plotting.figure(10.5, 3.6 * num_rows)
    for axes, (name, part) in zip(figure.subplots(num_rows, 3, squeeze=False).flat, parts):
        _draw_predictions(part, axes)
        axes.set(xlabel=f"{name}, held-out rows", ylabel=f"{name}, predicted")
    for axes in figure.axes[len(parts) :]:
        axes.remove()
    return figure


def classes_figure(comparison: Comparison) -> "Figure":
    """Draw the reliability diagram and the confusion matrix of held-out predictions."""
    table = _best(comparison)
    figure = plotting.figure(10.0, 4.8)
    left, right = figure.subplots(1, 2)
    plotting.reliability(*class_indices(table), ax=left)
    labels, predicted = (table[name].astype(str).to_numpy() for name in ("true", "predicted"))
    plotting.confusion_matrix(labels, predicted, ax=right)
    return figure


def fit_figure(comparison: Comparison) -> "Figure":
    """Draw the model of all rows along its one input."""
    X, y, pipeline = comparison.data.X, comparison.data.y, _model(comparison)
    names = f"the inputs {', '.join(map(str, X))}, and not a number"
    _check(_has_one_input(X), names, "Call predictions_figure.")
    (name,) = X
    low, high = X[name].min(), X[name].max()
    margin = 0.1 * (high - low)
    grid = pd.DataFrame({name: np.linspace(low - margin, high + margin, 200)})
    curve = predictions(pipeline[-1], pipeline[:-1].transform(grid), False)
    figure = plotting.figure(8.0, 4.2)
    axes = figure.subplots()
    (inducing,) = plotting.inducing_points_of(pipeline[-1])
    plotting.regression_1d(
        grid[name], curve["mean"], curve["sd"],
        data={"rows": (X[name].to_numpy(), y.to_numpy())}, inducing=inducing, ax=axes,
    )  # fmt: skip
    axes.set(xlabel=str(name), ylabel=str(y.name))
    return figure


def relevance_figure(comparison: Comparison) -> "Figure":
    """Draw the relevance of each input to the model of all rows: one over its lengthscale."""
    pipeline = _model(comparison)
    names = pipeline[:-1].get_feature_names_out()
    figure = plotting.figure(6.5, 1.3 + 0.26 * min(max(len(names), 4), 30))
    plotting.relevance(pipeline[-1].kernel_, names, ax=figure.subplots())
    return figure


def details_figure(comparison: Comparison) -> "Figure":
    """Draw how much each input matters to held-out predictions, and the learning curve."""
    details, metric = comparison.details, comparison.metrics[0]
    remedy = "Compare with details=True; warnings name the fits that failed."
    _check(_has_details(comparison), "no details", remedy)
    assert details is not None and details.importance is not None
    rows = details.importance.head(20)[::-1]
    figure = plotting.figure(9.6, max(3.2, 1.2 + 0.26 * len(rows)))
    left, right = figure.subplots(1, 2)
    left.barh(list(map(str, rows.index)), rows["mean"], xerr=rows["error"], color="C0", alpha=0.8)
    left.set(xlabel=f"loss of {metric.heading} where the input is permuted")
    numbers = list(details.learning)
    curve = [scores(table)[metric.name] for table in details.learning.values()]
    right.plot(numbers, curve, marker="o")
    right.set(xscale="log", xlabel="training rows", ylabel=metric.label)
    right.set_xticks(numbers, list(map(str, numbers)))
    right.minorticks_off()
    return figure


def training_figure(comparison: Comparison) -> "Figure":
    """Draw how the objective of the model of all rows rose."""
    figure = plotting.figure(6.5, 3.6)
    plotting.objective_trace(_model(comparison)[-1].record_, ax=figure.subplots())
    return figure


def _has_one_input(X: pd.DataFrame) -> bool:
    is_number = all(map(pd.api.types.is_numeric_dtype, X.dtypes))
    return X.shape[1] == 1 and is_number and not X.isna().any(axis=None)


def _has_details(comparison: Comparison) -> bool:
    details = comparison.details
    return details is not None and details.importance is not None and len(details.learning) > 1


def figures(comparison: Comparison) -> dict[str, Callable[[Comparison], "Figure"]]:
    """Find the figures that suit a comparison, by name.

    They are ``scores``, if a power was trained; ``predictions`` of a number, or ``classes``; and of
    the model of all rows ``fit``, if there is one input, ``details``, ``relevance`` of the inputs,
    and ``training``; of several targets ``scores``, ``predictions`` and ``details`` alone.
    """
    model, numbers = comparison.model, comparison.data.kind == "numbers"
    single = len(comparison.data.targets) == 1
    suits: dict[Callable[[Comparison], Figure], bool] = {
        scores_figure: any(
            alpha == alpha and not comparison.num_failed(name)
            for name, alpha in comparison.candidates.items()
        ),
        predictions_figure: numbers and model is not None,
        classes_figure: not numbers,
        fit_figure: numbers and single and model is not None and _has_one_input(comparison.data.X),
        details_figure: _has_details(comparison),
        relevance_figure: single and model is not None and model[-1].n_features_in_ > 1,
        training_figure: single and model is not None and model[-1].record_ is not None,
    }
    return {draw.__name__.removesuffix("_figure"): draw for draw in suits if suits[draw]}
