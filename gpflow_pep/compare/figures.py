"""Pictures of a comparison. They need matplotlib, see :mod:`gpflow_pep.plotting`.

Scores and held-out predictions come from the saved model. The picture of the fit shows
the model that was trained on all rows.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from .. import plotting
from ..plotting.canvas import SMALL
from ..plotting.regression import FEW
from .findings import named, summarise
from .folder import MOST_TARGETS
from .forecasts import draw_forecast, latest_forecasts
from .losses import Difference, Metric, by_target, without_limits
from .predicting import predictions
from .run import Comparison
from .scores import class_indices, difference_over_rows, scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Width in inches. On a phone a picture of this width has letters of the size of the
#: text.
WIDTH = 3.8
#: Width in inches of a picture that takes the whole width of a page.
WHOLE = 7.8
#: Height in inches of a line of a dot plot or of a bar, and of the axis below the
#: lines.
LINE = 0.26
FOOT = 0.8
#: The number of best models in the dot plot, and the number of most important inputs
#: with a bar.
MOST_LINES = 20
#: The axis of the dot plot ends at this multiple of the median reach of a model, which
#: is its difference plus its error. Otherwise a model that is far worse would squeeze
#: the others.
FAR = 3.0
#: The largest number of letters of a name in a picture. A longer name would leave no
#: room for the axes.
LONGEST = 22


class Picture(NamedTuple):
    """A picture of a comparison."""

    draw: "Callable[[Axes], object]"
    alt: str  #: The content of the picture, for readers who do not see it.
    caption: str  #: How to read the picture.
    height: float = 3.4  #: Height in inches.
    whole: bool = False  #: Whether the picture takes the whole width of a page.

    def figure(self, width: float) -> "Figure":
        """Draw the picture.

        :param width: The width in inches.
        :raises ImportError: If matplotlib is not installed.
        """
        figure = plotting.figure(width, self.height)
        axes = figure.subplots()
        self.draw(axes)
        plotting.tidy(axes)
        return figure


def pictures(comparison: Comparison) -> dict[str, Picture]:
    """Find the pictures that suit a comparison, by the names of their files."""
    if comparison.best is None:
        return {}
    numbers = comparison.data.kind == "numbers"
    found: dict[str, Picture] = {}
    if numbers and comparison.settings.time_column is not None:
        found |= _of_forecasts(comparison)
    found |= dict(_of_scores(comparison))
    if not numbers:
        found |= _of_classes(comparison)
    elif comparison.model is not None:
        found |= _of_numbers(comparison)
    return found | dict(_of_details(comparison))


def _short(name: object) -> str:
    """Shorten a name that is too long for a picture."""
    text = str(name)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _of_forecasts(comparison: Comparison) -> dict[str, Picture]:
    """Make a picture over time for each of the largest series."""
    forecasts = latest_forecasts(comparison)
    found = {}
    for place, forecast in enumerate(forecasts, start=1):
        name = "forecast" if place == 1 else f"forecast_{place}"
        caption = f"{forecast.name}: the latest window, drawn in the same way."
        if place == 1:
            caption = (
                f"{forecast.name}: the latest window. The median and the central 50%"
                f" and 90% intervals of {named(str(comparison.best))}, trained on all"
                " rows before, and what came. Rows of the same time and series are"
                " averaged."
            )
        found[name] = Picture(
            partial(draw_forecast, forecast),
            f"Lines over time: truth, median and intervals of {forecast.name}",
            caption,
            whole=len(forecasts) == 1,
        )
    return found


def _of_scores(comparison: Comparison) -> Iterator[tuple[str, Picture]]:
    """Make the dot plot of the decisive score, if there are models to compare."""
    heading = comparison.metrics[0].heading
    best = str(comparison.best)
    table = summarise(comparison).query("failed == 0").dropna(subset="difference")
    table = table.sort_values("difference", kind="stable").head(MOST_LINES)
    if len(table) < 2 or best not in table.index:
        return
    changes = {str(name): comparison.difference(name, best) for name in table.index}
    caption = (
        f"Which model is better? Each dot shows by how much the {heading} of a model is"
        f" worse than the {heading} of {named(best)}, which is saved, on the same"
        " held-out rows. Bars are 95% intervals of this difference: if a bar does not"
        " reach the dashed line, the model is clearly better (to the left of the line)"
        " or clearly worse (to the right)."
    )
    alt = f"Dot plot of the difference in {heading} between {best} and other models"
    draw = partial(_draw_scores, comparison.metrics[0], changes, best)
    yield "scores", Picture(draw, alt, caption, FOOT + LINE * len(changes))


def _draw_scores(
    metric: Metric, changes: dict[str, Difference], best: str, axes: "Axes"
) -> None:
    means = np.array([change.mean for change in changes.values()])
    # The error of a difference of areas under the ROC curve in one split is not known.
    halves = np.array(
        [
            change.limit * change.error if np.isfinite(change.error) else 0.0
            for change in changes.values()
        ]
    )
    low, high = _ends_of_differences(means, halves)
    for line, name in enumerate(changes):
        color = plotting.BEST if name == best else plotting.FIT
        if low <= means[line] <= high:
            axes.errorbar(
                means[line], line, xerr=halves[line], fmt="o", color=color, capsize=3
            )
        else:
            _write_far_difference(axes, line, means[line], metric)
    axes.axvline(0.0, color="black", linewidth=1.0, linestyle="--", zorder=0)
    axes.set(xlim=(low, high), xlabel=f"← better    {metric.heading}    worse →")
    _name_lines(axes, list(changes))


def _ends_of_differences(means: AnyNDArray, halves: AnyNDArray) -> tuple[float, float]:
    """Find limits of the axis of differences that show all dots and bars, except models
    that are far from the others.
    """
    reach = np.abs(means) + halves
    if not reach.any():
        return -1.0, 1.0
    most = FAR * np.median(reach[reach > 0.0])
    low = max(float(np.min(means - halves)), -most)
    high = min(float(np.max(means + halves)), most)
    margin = 0.05 * (high - low)
    return low - margin, high + margin


def _write_far_difference(
    axes: "Axes", line: int, difference: float, metric: Metric
) -> None:
    """Write a difference that is outside of the picture as a number, at the end on its
    side.
    """
    size = format(abs(difference), metric.form)
    place = 0.99
    side = "right"
    text = f"{size} worse →"
    if difference < 0.0:
        place = 0.01
        side = "left"
        text = f"← {size} better"
    style: Any = {"ha": side, "va": "center", "transform": axes.get_yaxis_transform()}
    axes.text(place, line, text, color=plotting.FIT, **style)


def _name_lines(axes: "Axes", names: list[str]) -> None:
    """Label the lines of a picture, the first one at the top."""
    texts = [_short(name) for name in names]
    axes.set_yticks(range(len(names)), texts, fontsize=SMALL)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _of_numbers(comparison: Comparison) -> dict[str, Picture]:
    """Make the pictures of numbers: predictions of each target, and if there is one
    target, the histogram and the fit along a single input.
    """
    table = without_limits(comparison.held_out_of_best)
    found = {}
    tables = by_target(table, comparison.data.target_names)
    for place, target in enumerate(list(tables)[:MOST_TARGETS], start=1):
        name = "predictions" if place == 1 else f"predictions_{place}"
        found[name] = _of_predictions(comparison, target, tables[target])
    if len(tables) > 1:
        return found
    if "pit" in table:
        found["histogram"] = _of_histogram(table["pit"])
    if _has_one_input(comparison.data.X):
        found["fit"] = _of_fit(comparison)
    return found


def _of_predictions(comparison: Comparison, target: str, rows: pd.DataFrame) -> Picture:
    points = "Lines are 90% intervals."
    if len(rows) > FEW:
        points = "Crowded rows are blue, and darker if there are more of them."
    caption = (
        f"Are predictions of '{target}' right? Predicted means of all held-out rows"
        f" against the true values. {points} A perfect prediction is on the diagonal."
    )
    return Picture(
        partial(_draw_predictions, target, rows),
        f"Scatter plot of predictions of '{target}' by {comparison.best} against the"
        " true values",
        caption,
        height=3.9,
    )


def _draw_predictions(target: str, rows: pd.DataFrame, axes: "Axes") -> None:
    plotting.predicted_against_actual(
        rows["true"], rows["mean"], intervals=rows[["lower_90", "upper_90"]], ax=axes
    )
    axes.set(
        xlabel=f"{_short(target)}, held-out rows", ylabel=f"{_short(target)}, predicted"
    )


def _of_histogram(pit: "pd.Series[float]") -> Picture:
    return Picture(
        lambda axes: plotting.pit_histogram(pit, ax=axes),
        "Histogram of the positions of targets in their predicted distributions",
        "Are intervals right? Where the target of each held-out row fell in its"
        " predicted distribution. Flat is right. High bars at both ends: the intervals"
        " are too narrow. High bars in the middle: they are too wide.",
        height=3.9,
    )


def _has_one_input(X: pd.DataFrame) -> bool:
    is_number = all(map(pd.api.types.is_numeric_dtype, X.dtypes))
    return X.shape[1] == 1 and is_number and not X.isna().any(axis=None)


def _of_fit(comparison: Comparison) -> Picture:
    (name,), target = comparison.data.X, comparison.data.y.name
    return Picture(
        partial(_draw_fit, comparison),
        f"Curve of predictions of '{target}' along '{name}', with the rows",
        f"The model of all rows along its input '{name}': the mean, and bands that"
        " contain 50% and 90% of the targets.",
        whole=True,
    )


def _draw_fit(comparison: Comparison, axes: "Axes") -> None:
    """Draw the model of all rows along its one input."""
    X = comparison.data.X
    y = comparison.data.y
    pipeline = comparison.model
    assert pipeline is not None
    (name,) = X
    low = X[name].min()
    high = X[name].max()
    margin = 0.1 * (high - low)
    grid = pd.DataFrame({name: np.linspace(low - margin, high + margin, 200)})
    curve = predictions(pipeline[-1], pipeline[:-1].transform(grid), False)
    (inducing,) = plotting.inducing_points_of(pipeline[-1])
    # The inducing inputs of an exact model are all rows, which would be a black stripe.
    is_exact = len(inducing.Z) >= X[name].nunique()
    plotting.regression_1d(
        grid[name],
        curve["mean"],
        curve["sd"],
        data={"rows": (X[name].to_numpy(), y.to_numpy())},
        inducing=None if is_exact else inducing,
        ax=axes,
    )
    axes.set(xlabel=str(name), ylabel=_short(y.name))


def _of_classes(comparison: Comparison) -> dict[str, Picture]:
    """Make the pictures of classes: calibration and confusion."""
    table = comparison.held_out_of_best
    part = comparison.settings.parts()
    return {
        "reliability": Picture(
            lambda axes: plotting.reliability(*class_indices(table), ax=axes),
            "Reliability diagram: how often predictions of a probability are right",
            "Are probabilities right? How often predictions of held-out rows are"
            " right, against their probability. If they are, the points are on the"
            " diagonal. The calibration error here is computed from all rows"
            f" together; ECE in the table is the mean over {part[0]}s.",
            height=3.9,
        ),
        "confusion": Picture(
            partial(_draw_confusion, table),
            "Confusion matrix: how many rows of each class get each class",
            "Which classes are confused? The numbers show how many held-out rows of"
            " each class are predicted to be in each class.",
            height=3.9,
        ),
    }


def _draw_confusion(table: pd.DataFrame, axes: "Axes") -> None:
    labels, predicted = (
        table[name].astype(str).to_numpy() for name in ("true", "predicted")
    )
    names = [_short(name) for name in np.unique(np.concatenate([labels, predicted]))]
    plotting.confusion_matrix(labels, predicted, names, ax=axes)


def _of_details(comparison: Comparison) -> Iterator[tuple[str, Picture]]:
    """Make the pictures of the importance of several inputs, and of training on fewer
    rows.
    """
    details = comparison.details
    if details is None:
        return
    metric = comparison.metrics[0]
    part = comparison.settings.parts()[0]
    importance = details.importance
    if importance is not None and len(importance) > 1:
        rows = importance.head(MOST_LINES)
        most = ""
        if len(importance) > len(rows):
            most = f", for the {MOST_LINES} most important ones"
        yield (
            "importance",
            Picture(
                partial(_draw_importance, metric, rows),
                f"Bars that show how much the {metric.heading} depends on each input",
                f"Which inputs matter? Bars show how much worse the {metric.heading}"
                f" of the held-out rows of the first {part} is if the values of an"
                f" input are permuted over the rows, with standard errors{most}.",
                height=FOOT + LINE * len(rows),
            ),
        )
    if len(details.learning) > 1:
        yield (
            "learning",
            Picture(
                partial(_draw_learning, metric, details.learning),
                f"Learning curve: the {metric.heading} after training on fewer rows",
                f"Would more rows help? The {metric.heading} of the held-out rows of"
                f" the first {part} after training on fewer rows. Bars are standard"
                " errors of the difference from training on all of them.",
            ),
        )


def _draw_importance(metric: Metric, rows: pd.DataFrame, axes: "Axes") -> None:
    lines = range(len(rows))
    axes.barh(lines, rows["mean"], xerr=rows["error"], color=plotting.FIT, alpha=0.8)
    # Long names can make the axes narrower than this text, which is then moved to the
    # left.
    axes.set_xlabel(f"{metric.heading}: how much worse", loc="right")
    _name_lines(axes, list(rows.index))


def _draw_learning(
    metric: Metric, learning: dict[int, pd.DataFrame], axes: "Axes"
) -> None:
    numbers = list(learning)
    tables = list(learning.values())
    curve = [scores(table)[metric.name] for table in tables]
    errors = np.nan_to_num(
        [difference_over_rows(metric, table, tables[-1]).error for table in tables]
    )
    axes.errorbar(numbers, curve, errors, fmt="none", ecolor=plotting.FIT, capsize=3)
    # A dot at the end of the axis, such as an AUC of 1, is not cut in half.
    axes.plot(numbers, curve, "o-", color=plotting.FIT, clip_on=False)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, metric.lowest), min(high, metric.highest))
    axes.set(xscale="log", xlabel="training rows", ylabel=metric.heading)
    axes.set_xticks(numbers, list(map(str, numbers)))
    axes.minorticks_off()
