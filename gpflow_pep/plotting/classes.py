"""Pictures of predicted classes."""

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import sklearn.metrics
from gpflow.base import AnyNDArray
from scipy.stats import binomtest

from .. import metrics
from ..engine.checks import (
    as_code,
    as_labels,
    check_level,
    counted,
    refusal,
    require_same_length,
)
from ..engine.factors import class_probabilities, num_classes
from . import canvas
from .canvas import FIT, INK, SMALL, as_columns, as_names
from .models import Inducing, inducing_points_of

#: The number of points of the grid along each axis.
GRID = 120
#: With more classes than this, only some have their name on the axes, and cells have no
#: counts.
MOST_NAMED = 20
#: Marks of classes, one for each colour, for prints in grey.
MARKERS = ("o", "^", "s", "D", "v", "P", "X")


@canvas.picture(5.0, 5.0)
def reliability(
    labels: Any,
    probability: Any,
    *,
    num_bins: int = 10,
    level: float = 0.95,
    ax: Any = None,
) -> None:
    """Draw how often predicted classes are right against their predicted probability,
    with Wilson intervals and the number of rows in each bin.

    :param labels: The observed classes, [N]: whole numbers from 0; or, for the
        probability of one event, 1 if it occurred and 0 if not.
    :param probability: The probability of each class, [N, C], where the most probable
        class is the prediction; or the probability of the event, [N].
    :param num_bins: The number of bins of equal width from 0 to 1.
    :param level: The level of the intervals.
    :raises ValueError: If labels or probabilities have other values or shapes.
    """
    level = check_level(level)
    event = np.ndim(probability) == 1
    P = _probability(probability, event)
    labels = as_columns("labels", labels, 1)[:, 0]
    require_same_length("labels", labels, "probability", P)
    of_rows = metrics.calibration(labels, P[:, 0] if event else P, num_bins)
    confidence, accuracy, counts, error = of_rows
    pairs = zip(np.rint(accuracy * counts).astype(int), map(int, counts))
    ends = [binomtest(int(k), n).proportion_ci(level, "wilson") for k, n in pairs]
    lower, upper = np.transpose(ends)
    ax.plot([0.0, 1.0], [0.0, 1.0], color=INK, linewidth=1, linestyle=(0, (4, 3)))
    ax.vlines(confidence, lower, upper, color=FIT, alpha=0.45, linewidth=2.0)
    ax.plot(confidence, accuracy, "o-", color=FIT, linewidth=1.0, markersize=5)
    # Counts are drawn as bars in a strip below 0.
    heights = 0.12 * counts / counts.max()
    bars = ax.bar(
        confidence, heights, bottom=-0.2, width=0.05, color=canvas.FAINT, zorder=0
    )
    texts = map(canvas.count, map(int, counts))
    ax.bar_label(bars, [*texts], padding=1.0, fontsize=SMALL - 2.0, color=INK)
    ax.set(ylim=(-0.2, 1.03), xlim=(-0.03, 1.03), yticks=np.linspace(0.0, 1.0, 6))
    canvas.note(ax, f"calibration error {error:.3f}; {level:.0%} intervals; grey: rows")
    ax.set_xlabel("probability" if event else "probability of the predicted class")
    ax.set_ylabel("fraction that occurred" if event else "fraction that is right")


@canvas.picture(5.0, 4.6)
def confusion_matrix(
    labels: Any, predicted: Any, names: Sequence[Any] | None = None, *, ax: Any = None
) -> None:
    """
    Draw how many rows of each class were predicted to be of each class; the shade is
    the fraction of the row's true class.

    :param labels: The observed classes, [N]: numbers or words.
    :param predicted: The predicted classes, [N].
    :param names: The names of all classes in their sorted order; by default the labels
        themselves. If labels are whole numbers from 0, one name for each number.
    :raises ValueError: If the numbers of labels and predictions differ, or the numbers
        of names and classes.
    """
    labels = as_labels("labels", labels)
    predicted = as_labels("predicted", predicted)
    require_same_length("predicted", predicted, "labels", labels)
    classes = np.unique(np.concatenate([labels, predicted]))
    if (
        names is not None
        and classes.dtype.kind in "iuf"
        and set(classes) <= set(range(len(names)))
    ):
        classes = np.arange(len(names))
    size = len(classes)
    texts = as_names("class", classes if names is None else names, size)
    counts = sklearn.metrics.confusion_matrix(labels, predicted, labels=classes)
    fractions = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    few = size <= MOST_NAMED
    style: dict[str, Any] = {"im_kw": {"vmin": 0.0, "vmax": 1.0}, "cmap": "Blues"}
    style["text_kw"] = {"fontsize": min(11.0, 90.0 / size)}
    style["xticks_rotation"] = 90.0 if size * max(map(len, texts)) > 45 else 0.0
    display = sklearn.metrics.ConfusionMatrixDisplay(fractions, display_labels=texts)
    display.plot(include_values=few, ax=ax, colorbar=False, **style)
    for cell, count in zip(display.text_.flat if few else (), counts.flat):
        cell.set_text(canvas.count(int(count)) if count else "")
    shown = range(0, size, 1 if few else -(-size // 8))
    ax.set(xticks=shown, xticklabels=texts[:: shown.step])
    ax.set(yticks=shown, yticklabels=texts[:: shown.step])
    ax.set(xlabel="predicted", ylabel="actual")
    title = f"{np.trace(counts) / len(labels):.1%} of {canvas.count(len(labels))} right"
    ax.set_title(title, fontsize="medium")


@canvas.picture(5.6, 5.0)
def decision_boundary(
    X: Any,
    labels: Any,
    classifier: Any,
    *,
    names: Sequence[Any] | None = None,
    inducing: Sequence[Inducing] | None = None,
    ax: Any = None,
) -> None:
    """Draw the probability of classes over two inputs, rows on it, and inducing inputs
    with their blur (an ellipse of one standard deviation).

    With two classes the shade shows the probability, with lines at 0.1, 0.5 and 0.9.
    With more classes it shows the probability of the most probable class, with lines
    where this class changes.

    :param X: Rows, [N, 2].
    :param labels: The classes of the rows, [N].
    :param classifier: An estimator with ``predict_proba``, a trained model with a
        likelihood of classes (labels are then 0 to C - 1), or a function from inputs
        [G, 2] to probabilities [G, C].
    :param names: The names of the classes, in the order of the probabilities.
    :param inducing: The points to draw instead of the inducing points of `classifier`;
        ``()`` draws none.
    :raises ValueError: If there are not two inputs, or if labels or classifier are of
        another kind.
    """
    table = type(X)
    columns = getattr(X, "columns", None)
    if np.ndim(X) == 2 and np.shape(X)[1] != 2:
        remedy = (
            "Pass two columns, and as classifier a function that fills in the others."
        )
        raise refusal(
            "X", counted(np.shape(X)[1], "input"), "2, one for each axis", remedy
        )
    X = as_columns("X", X, 2)
    labels = as_labels("labels", labels)
    require_same_length("labels", labels, "X", X)
    predict = predictor(classifier)
    if inducing is None:
        try:
            inducing = inducing_points_of(classifier)
        except ValueError:  # no inducing points, or points without inputs
            inducing = ()
    margin = 0.08 * np.maximum(np.ptp(X, axis=0), 1e-9)
    low = X.min(axis=0) - margin
    high = X.max(axis=0) + margin
    high[1] += 0.1 * (high[1] - low[1])  # this makes room for the legend
    grid = np.meshgrid(*np.linspace(low, high, GRID).T)
    inputs: Any = np.column_stack([axis.ravel() for axis in grid])
    if (
        columns is not None
        and getattr(classifier, "feature_names_in_", None) is not None
    ):
        inputs = table(inputs, columns=columns)
    P = _probability(predict(inputs), False)
    classes = _classes_of(classifier, labels, P.shape[1])
    texts = as_names("class", classes if names is None else names, len(classes))
    _draw_probability(ax, grid, P)
    style: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.5}
    style |= {"markersize": 5.0} if len(X) < 1000 else {"markersize": 2.5, "alpha": 0.5}
    for place, label in enumerate(classes):
        color = canvas.color_of(place)
        marker = MARKERS[place % len(MARKERS)]
        rows = X[labels == label].T
        ax.plot(
            *rows, marker, color=color, label=texts[place], rasterized=True, **style
        )
    for points in inducing:
        _draw_inducing(ax, points)
    axes = as_names("input", None if columns is None else list(columns), 2)
    ax.set(
        xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel=axes[0], ylabel=axes[1]
    )
    ax.legend(
        loc="upper left", ncols=4, framealpha=0.85, edgecolor="none", **canvas.LEGEND
    )


def predictor(classifier: Any) -> Callable[[AnyNDArray], Any]:
    """Find the function from inputs [G, D] to the probability of each class [G, C].

    :param classifier: See :func:`decision_boundary`.
    :raises ValueError: If it does not predict classes.
    """
    if hasattr(classifier, "predict_proba"):
        return classifier.predict_proba
    if hasattr(classifier, "predict_f"):
        likelihood = classifier.likelihood
        size = num_classes(classifier.likelihood)

        def probabilities(X: AnyNDArray) -> AnyNDArray:
            X = np.asarray(X, gpflow.default_float())
            mean, variance = classifier.predict_f(X)
            return class_probabilities(likelihood, X, mean, variance, size).numpy()

        return probabilities
    if callable(classifier):
        return classifier
    expected = (
        "an estimator with predict_proba, a model with a likelihood of classes, or a"
    )
    expected += " function from inputs to probabilities"
    raise refusal("classifier", type(classifier).__name__, expected, "Pass one.")


def _classes_of(classifier: Any, labels: AnyNDArray, size: int) -> AnyNDArray:
    """Find the label of each column of the probabilities."""
    numbers = (
        np.arange(size) if np.isin(labels, np.arange(size)).all() else np.unique(labels)
    )
    classes: AnyNDArray = np.asarray(getattr(classifier, "classes_", numbers))
    unknown = labels[~np.isin(labels, classes)]
    if unknown.size or len(classes) != size:
        got = as_code(unknown[0]) if unknown.size else counted(len(classes), "class")
        expected = f"{size} classes, one for each column of the probabilities:"
        expected += f" {as_code(list(classes))}"
        raise refusal(
            "labels",
            got,
            expected,
            "Pass the classes of training, or their numbers from 0.",
        )
    return classes


def _draw_probability(ax: Any, grid: Sequence[AnyNDArray], P: AnyNDArray) -> None:
    """Draw shades and boundaries."""
    from matplotlib.colors import to_rgb

    shape = grid[0].shape
    size = P.shape[1]
    extent = (grid[0].min(), grid[0].max(), grid[1].min(), grid[1].max())
    colors = np.array([to_rgb(canvas.color_of(place)) for place in range(size)])
    # The highest probability of C classes is at least 1 / C, which is white.
    strength = 0.45 * (P.max(axis=1, keepdims=True) - 1.0 / size) / (1.0 - 1.0 / size)
    image = 1.0 - np.clip(strength, 0.0, 1.0) * (1.0 - colors[np.argmax(P, axis=1)])
    image = image.reshape(*shape, 3)
    ax.imshow(
        image, origin="lower", extent=extent, aspect="auto", interpolation="bilinear"
    )
    for place in range(size if size > 2 else 1):
        lead = (P[:, place] - np.delete(P, place, axis=1).max(axis=1)).reshape(shape)
        ax.contour(*grid, lead, levels=[0.0], colors=[INK], linewidths=1.4)
    if size == 2:
        style: dict[str, Any] = {
            "colors": [INK],
            "linewidths": 0.7,
            "linestyles": "dashed",
        }
        lines = ax.contour(*grid, P[:, 1].reshape(shape), levels=[0.1, 0.9], **style)
        ax.clabel(lines, fmt="%g", fontsize=SMALL - 1.5)


def _draw_inducing(ax: Any, inducing: Inducing) -> None:
    """Draw a set of inducing inputs, and an ellipse of one standard deviation for their
    blur.
    """
    from matplotlib.collections import EllipseCollection

    label = "inducing inputs"
    Z = inducing.Z
    if inducing.covariance is not None:
        label += ", blur ± 1 std"
        values, vectors = np.linalg.eigh(inducing.covariance)
        short, long = 2.0 * np.sqrt(np.maximum(values, 0.0)).T
        angles = np.degrees(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1]))
        place: dict[str, Any] = {
            "units": "xy",
            "offsets": Z,
            "offset_transform": ax.transData,
        }
        place |= {"facecolor": "none", "edgecolor": "black", "linewidth": 1.1}
        ax.add_collection(EllipseCollection(long, short, angles, **place))
    style: dict[str, Any] = {"markersize": 8, "markeredgewidth": 1.6, "zorder": 6}
    ax.plot(*Z.T, "+", color="black", label=label, path_effects=canvas.halo(), **style)


def _probability(probability: Any, event: bool) -> AnyNDArray:
    P = as_columns("probability", probability)
    low = np.min(P)
    high = np.max(P)
    total = P.sum(axis=1)
    if (
        low < -1e-6
        or high > 1.0 + 1e-6
        or not (event or np.allclose(total, 1.0, atol=1e-3))
    ):
        got = f"numbers from {low:g} to {high:g}"
        got += f" and rows that sum to {np.min(total):g} to {np.max(total):g}"
        expected = (
            "probabilities of the classes, which sum to 1, or a vector of"
            " probabilities of one event"
        )
        raise refusal("probability", got, expected, "Pass the result of predict_proba.")
    return np.clip(P, 0.0, 1.0)
