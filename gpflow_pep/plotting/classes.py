"""Pictures of predicted classes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gpflow
import numpy as np
from gpflow.base import AnyNDArray

from .. import metrics
from ..likelihoods import NoisyLabelBernoulli
from ..tilted import class_probabilities
from .arrays import labels_of, level_of, matrix, names_of, same_length
from .canvas import (
    FAINT,
    FIT,
    INK,
    MARKERS,
    PALETTE,
    SMALL,
    axes_for,
    count,
    halo,
    note,
    shades,
    tidy,
)
from .inducing import Inducing, draw_inducing, inducing_points_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Points of the grid along each axis.
GRID = 120
#: More classes than this are named by numbers at every other place only, and cells have no counts.
MOST_NAMED = 20


def reliability(
    labels: Any,
    probability: Any,
    *,
    num_bins: int = 10,
    level: float = 0.95,
    ax: "Axes | None" = None,
) -> "Axes":
    """
    Draw how often predictions of classes come true, against the probability they had, with Wilson
    intervals and the number of rows of each.

    :param labels: The classes that came, [N]: whole numbers from 0; or, for the probability of one
        event, 1 where it came and 0 where not.
    :param probability: Of each class, [N, C]: the most probable one is what is predicted. Or of the
        event, [N].
    :param num_bins: Bins from 0 to 1, of equal width.
    :param level: Of the intervals.
    :param ax: To draw on; a new figure of pyplot's if None.
    :return: `ax`.
    :raises ValueError: If these are no such labels and probabilities.
    :raises ImportError: If matplotlib is not installed.
    """
    level = level_of(level)
    event = np.ndim(probability) == 1
    P = _probability(probability, event)
    labels = matrix("labels", labels, 1)[:, 0]
    same_length("labels", labels, "probability", P)
    known = np.arange(2 if event else P.shape[1])
    if not np.isin(labels, known).all():
        raise ValueError(
            f"labels: got {labels[~np.isin(labels, known)][0]:g}, expected whole numbers from 0 to"
            f" {known[-1]}. Number the classes in the order of the columns of probability."
        )
    found = (
        metrics.event_calibration(labels, P[:, 0], num_bins)
        if event
        else metrics.calibration(labels.astype(int), P, num_bins)
    )
    ax = axes_for(ax, 5.0, 5.0)
    draw_calibration(ax, found, level)
    ax.set(
        xlabel="probability" if event else "probability of the predicted class",
        ylabel="fraction that came" if event else "fraction that is right",
    )
    return ax


def draw_calibration(axes: Any, found: metrics.Calibration, level: float = 0.95) -> None:
    """
    Draw how often predictions come true, against the probability they had; see :func:`reliability`.

    :param axes: Matplotlib's, to draw on.
    :param found: What :func:`gpflow_pep.metrics.calibration` found.
    :param level: Of the Wilson intervals.
    """
    lower, upper = metrics.wilson_interval(found.accuracy * found.count, found.count, level)
    axes.plot([0.0, 1.0], [0.0, 1.0], color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        "perfect", (0.5, 0.5), xytext=(6.0, -3.0), textcoords="offset points", va="top",
        fontsize=SMALL, color=INK, path_effects=halo(),
    )  # fmt: skip
    axes.vlines(found.confidence, lower, upper, color=FIT, alpha=0.45, linewidth=2.0)
    axes.plot(found.confidence, found.accuracy, "o-", color=FIT, linewidth=1.0, markersize=5)
    # Counts are bars on a strip below 0.
    heights = 0.12 * found.count / found.count.max()
    axes.bar(found.confidence, heights, bottom=-0.2, width=0.05, color=FAINT, zorder=0)
    for x, number, height in zip(found.confidence, found.count, heights):
        axes.annotate(
            count(int(number)), (x, -0.2 + height), xytext=(0.0, 1.0), textcoords="offset points",
            ha="center", va="bottom", fontsize=SMALL - 2.0, color=INK,
        )  # fmt: skip
    axes.set(ylim=(-0.2, 1.14), xlim=(-0.03, 1.03), yticks=np.linspace(0.0, 1.0, 6))
    note(
        axes,
        f"calibration error {found.error:.3f}\n{level:.0%} intervals; grey: rows",
    )
    tidy(axes)


def confusion_matrix(
    labels: Any, predicted: Any, names: Sequence[Any] | None = None, *, ax: "Axes | None" = None
) -> "Axes":
    """
    Draw how many rows of each class were predicted to be of each class; the shade is the fraction
    of the row's true class.

    :param labels: The classes that came, [N]: numbers or words.
    :param predicted: Those predicted, [N].
    :param names: Of all classes in their sorted order; by default the labels themselves. With
        labels that are whole numbers from 0, one name for each number.
    :param ax: To draw on; a new figure of pyplot's if None.
    :return: `ax`.
    :raises ValueError: If there are not as many of both, or not as many names as classes.
    :raises ImportError: If matplotlib is not installed.
    """
    labels, predicted = labels_of("labels", labels), labels_of("predicted", predicted)
    same_length("predicted", predicted, "labels", labels)
    classes = np.unique(np.concatenate([labels, predicted]))
    if names is not None and classes.dtype.kind in "iuf" and set(classes) <= set(range(len(names))):
        classes = np.arange(len(names))
    texts = [str(one) for one in classes] if names is None else names_of(
        "class", names, len(classes), "class"
    )  # fmt: skip
    size = len(classes)
    counts = np.zeros([size, size], int)
    np.add.at(counts, (np.searchsorted(classes, labels), np.searchsorted(classes, predicted)), 1)
    fractions = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax = axes_for(ax, 5.0, 4.6)
    ax.imshow(fractions, cmap=shades(least=0.0), vmin=0.0, vmax=1.0)
    if size <= MOST_NAMED:
        for row, column in np.argwhere(counts):
            ax.text(
                column, row, count(int(counts[row, column])), ha="center", va="center",
                color="white" if fractions[row, column] > 0.5 else INK,
                fontsize=min(11.0, 90.0 / size), fontweight="bold" if row == column else None,
            )  # fmt: skip
        ax.set_xticks(range(size), texts)
        if len(texts) * max(map(len, texts)) > 45:
            for label in ax.get_xticklabels():
                label.set(rotation=45, ha="right", rotation_mode="anchor")
        ax.set_yticks(range(size), texts)
    ax.set_xticks(np.arange(size + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(size + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=1.5 if size <= MOST_NAMED else 0.3)
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_visible(False)
    right = np.trace(counts) / len(labels)
    ax.set(xlabel="predicted", ylabel="actual")
    ax.set_title(f"{right:.1%} of {count(len(labels))} right", fontsize="medium")
    return ax


def decision_boundary(
    X: Any,
    labels: Any,
    classifier: Any,
    *,
    names: Sequence[Any] | None = None,
    inducing: Sequence[Inducing] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """
    Draw the probability of classes over two inputs, rows on it, and inducing inputs with their
    blur (an ellipse of one standard deviation).

    Of two classes the shade is the probability, lines are at 0.1, 0.5 and 0.9; of more it is that
    of the most probable class, lines are where this changes.

    :param X: Rows, [N, 2].
    :param labels: Their classes, [N].
    :param classifier: Anything with ``predict_proba``, a trained model with a likelihood of
        classes (labels are then 0 to C - 1), or a function from inputs [G, 2] to probabilities
        [G, C].
    :param names: Of the classes, in the order of the probabilities.
    :param inducing: What to draw instead of the inducing points of `classifier`; ``()`` for none.
    :param ax: To draw on; a new figure of pyplot's if None.
    :return: `ax`.
    :raises ValueError: If inputs are not two, or these are no such labels or classifier.
    :raises ImportError: If matplotlib is not installed.
    """
    columns = getattr(X, "columns", None)
    if np.ndim(X) == 2 and np.shape(X)[1] != 2:
        raise ValueError(
            f"X: got {np.shape(X)[1]} inputs, expected 2, one for each axis. Pass two columns, and"
            " as classifier a function that fills in the others."
        )
    X, labels = matrix("X", X, 2), labels_of("labels", labels)
    same_length("labels", labels, "X", X)
    predict = predictor(classifier, columns)
    if inducing is None:
        inducing = _inducing_of(classifier)
    ax = axes_for(ax, 5.6, 5.0)
    margin = 0.08 * np.maximum(np.ptp(X, axis=0), 1e-9)
    low, high = X.min(axis=0) - margin, X.max(axis=0) + margin
    high[1] += 0.1 * (high[1] - low[1])  # of the legend
    grid = np.meshgrid(*np.linspace(low, high, GRID).T)
    P = _probability(predict(np.column_stack([axis.ravel() for axis in grid])), False)
    num_classes = P.shape[1]
    classes = _classes_of(classifier, labels, num_classes)
    texts = names_of("class", classes if names is None else names, num_classes, "class")
    _draw_probability(ax, grid, P)
    for number, one in enumerate(classes):
        mine = labels == one
        ax.plot(
            *X[mine].T, MARKERS[number % len(MARKERS)], color=PALETTE[number % len(PALETTE)],
            markersize=5 if len(X) < 1000 else 2.5, markeredgecolor="white", markeredgewidth=0.5,
            alpha=1.0 if len(X) < 1000 else 0.5, label=texts[number], rasterized=len(X) > 2000,
        )  # fmt: skip
    for one in inducing:
        draw_inducing(ax, one, (0, 1), color="black", label="inducing inputs")
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    given = names_of("input", None if columns is None else list(columns), 2, "input")
    ax.set(xlabel=given[0], ylabel=given[1])
    ax.legend(
        loc="upper left", ncols=4, fontsize=SMALL, framealpha=0.85, edgecolor="none",
        handletextpad=0.3, columnspacing=1.0, borderaxespad=0.2,
    )  # fmt: skip
    return ax


def predictor(classifier: Any, columns: Any = None) -> Callable[[AnyNDArray], Any]:
    """
    Find the function from inputs [G, D] to the probability of each class [G, C].

    :param classifier: See :func:`decision_boundary`.
    :param columns: Names of the inputs, of an estimator that was trained on a table.
    :raises ValueError: If it predicts no classes.
    """
    if hasattr(classifier, "predict_proba"):
        if columns is None or getattr(classifier, "feature_names_in_", None) is None:
            return classifier.predict_proba
        from pandas import DataFrame

        return lambda X: classifier.predict_proba(DataFrame(X, columns=columns))
    if hasattr(classifier, "predict_f"):
        likelihood = classifier.likelihood
        num_classes = _num_classes(likelihood)

        def probabilities(X: AnyNDArray) -> AnyNDArray:
            X = np.asarray(X, gpflow.default_float())
            mean, variance = classifier.predict_f(X)
            return class_probabilities(likelihood, X, mean, variance, num_classes).numpy()

        return probabilities
    if callable(classifier):
        return classifier
    raise ValueError(
        f"classifier: got {type(classifier).__name__}, expected an estimator with predict_proba, a"
        " model with a likelihood of classes, or a function from inputs to probabilities."
        " Pass one."
    )


def _num_classes(likelihood: gpflow.likelihoods.Likelihood) -> int:
    if isinstance(likelihood, (gpflow.likelihoods.Bernoulli, NoisyLabelBernoulli)):
        return 2
    if isinstance(likelihood, (gpflow.likelihoods.MultiClass, gpflow.likelihoods.Softmax)):
        return int(likelihood.latent_dim or 0)
    raise ValueError(
        f"model: got the likelihood {type(likelihood).__name__}, expected one of classes, such as"
        " Bernoulli, MultiClass or Softmax. Leave this out, or score it otherwise."
    )


def _inducing_of(classifier: Any) -> Sequence[Inducing]:
    """Find inducing points where there are some: GPR has none, others have no inputs."""
    try:
        return inducing_points_of(classifier)
    except ValueError:
        return ()


def _classes_of(classifier: Any, labels: AnyNDArray, num_classes: int) -> AnyNDArray:
    """Find the label that each column of the probabilities is of."""
    classes: AnyNDArray = np.asarray(getattr(classifier, "classes_", np.arange(num_classes)))
    unknown = ~np.isin(labels, classes)
    if unknown.any() and not hasattr(classifier, "classes_"):
        classes, unknown = np.unique(labels), np.zeros(len(labels), bool)
    if unknown.any() or len(classes) != num_classes:
        got = labels[unknown][0] if unknown.any() else f"{len(classes)} classes"
        raise ValueError(
            f"labels: got {got!r}, expected {num_classes} classes, one for each column of the"
            f" probabilities{f': {list(classes)}' if unknown.any() else ''}. Pass labels that the"
            " classifier was trained on, or those in numbers from 0."
        )
    return classes


def _draw_probability(ax: "Axes", grid: Sequence[AnyNDArray], P: AnyNDArray) -> None:
    """Draw shades and boundaries."""
    from matplotlib.colors import to_rgb

    shape, num_classes = grid[0].shape, P.shape[1]
    extent = (grid[0].min(), grid[0].max(), grid[1].min(), grid[1].max())
    colors = np.array([to_rgb(PALETTE[c % len(PALETTE)]) for c in range(num_classes)])
    # Of C classes the least that the highest can have is 1 / C: white.
    strength = 0.45 * (P.max(axis=1, keepdims=True) - 1.0 / num_classes) / (1.0 - 1.0 / num_classes)
    image = 1.0 - np.clip(strength, 0.0, 1.0) * (1.0 - colors[np.argmax(P, axis=1)])
    ax.imshow(
        image.reshape(*shape, 3), origin="lower", extent=extent, aspect="auto",
        interpolation="bilinear",
    )  # fmt: skip
    for one in range(num_classes if num_classes > 2 else 1):
        others = np.delete(P, one, axis=1).max(axis=1)
        lead = (P[:, one] - others).reshape(shape)
        ax.contour(*grid, lead, levels=[0.0], colors=[INK], linewidths=1.4)
    if num_classes == 2:
        lines = ax.contour(
            *grid, P[:, 1].reshape(shape), levels=[0.1, 0.9], colors=[INK], linewidths=0.7,
            linestyles="dashed",
        )  # fmt: skip
        ax.clabel(lines, fmt="%g", fontsize=SMALL - 1.5)


def _probability(probability: Any, event: bool) -> AnyNDArray:
    P = matrix("probability", probability)
    total = P.sum(axis=1)
    if (
        np.min(P) < -1e-6
        or np.max(P) > 1.0 + 1e-6
        or not (event or np.allclose(total, 1, atol=1e-3))
    ):
        raise ValueError(
            f"probability: got numbers from {np.min(P):g} to {np.max(P):g} and rows that sum to"
            f" {np.min(total):g} to {np.max(total):g}, expected probabilities of the classes, which"
            " sum to 1; or a vector of those of one event. Pass what predict_proba returns."
        )
    clipped: AnyNDArray = np.clip(P, 0.0, 1.0)
    return clipped
