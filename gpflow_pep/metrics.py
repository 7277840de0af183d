"""Scores of predictions of held-out rows.

Standardised scores follow section 2.5 of Rasmussen and Williams, *Gaussian Processes
for Machine Learning*, MIT Press, 2006. Each column of several targets is standardised
by itself.
"""

from typing import NamedTuple

import numpy as np
from check_shapes import check_shape, check_shapes
from gpflow.base import AnyNDArray
from scipy.stats import norm

from .engine import checks


def _as_floats(**arrays: AnyNDArray) -> list[AnyNDArray]:
    """Check arrays and convert them to double precision, because differences and
    squares of small integers overflow, and truth values have no differences.
    """
    _check_rows(**arrays)
    remedy = "Remove those rows, or look at the fit that predicted them."
    floats = []
    for name, values in arrays.items():
        numbers = np.asarray(checks.as_numbers(name, values), dtype=np.float64)
        checks.require_finite_rows(name, numbers, remedy)
        floats.append(numbers)
    return floats


def _check_rows(**arrays: AnyNDArray) -> None:
    for name, values in arrays.items():
        if np.size(values) == 0:
            raise checks.refusal(
                name, "no values", "at least one row", "Pass held-out rows."
            )


def _check_labels(labels: AnyNDArray, num_classes: int) -> None:
    values = checks.as_numbers("labels", labels)
    inside = np.isin(values, np.arange(num_classes))
    if not inside.all():
        expected = f"whole numbers from 0 to {num_classes - 1}"
        remedy = (
            "Encode the classes in the order of the columns of their probabilities."
        )
        raise checks.refusal("labels", values[~inside].flat[0], expected, remedy)


def _columns(values: AnyNDArray) -> AnyNDArray:
    """Convert targets to columns, [N, P]. Targets of shape [N] become one column."""
    return np.reshape(values, (len(values), -1))


def _positive_variance(name: str, Y: AnyNDArray) -> AnyNDArray:
    """Compute the variance of each column."""
    for number, column in enumerate(Y.T):
        if np.ptp(column) == 0.0:
            name = name if Y.shape[1] == 1 else f"column {number} of {name}"
            got = f"zero variance ({len(column)} rows, all {column[0]})"
            remedy = "A standardised score needs more rows."
            raise checks.refusal(name, got, "targets that vary", remedy)
    variance: AnyNDArray = np.var(Y, axis=0)
    return variance


@check_shapes("Y: [N, columns...]", "mean: [N, columns...]")
def smse(Y: AnyNDArray, mean: AnyNDArray) -> float:
    """Compute the standardised mean squared error.

    The error of a column is mean((Y − mean)²) / var(Y), and the result is its mean over
    columns: 0 is perfect, 1 is as good as predicting the mean of each column
    everywhere. It does not depend on the unit of any column.

    :param Y: Held-out targets, [N] or a column for each output.
    :param mean: Predicted means, in the units of `Y`.
    :raises ValueError: If an array is empty or not finite, or all targets of a column
        are equal.
    """
    Y, mean = _as_floats(Y=Y, mean=mean)
    targets = _columns(Y)
    squared = np.mean(np.square(targets - _columns(mean)), axis=0)
    return float(np.mean(squared / _positive_variance("Y", targets)))


@check_shapes("log_density: [shape...]")
def mean_nlpd(log_density: AnyNDArray) -> float:
    """Compute the mean negative log density, −mean(log p(yₙ)), in nats; lower is
    better.

    :param log_density: log p(yₙ | training data) of each held-out row.
    :raises ValueError: If `log_density` is empty or not finite.
    """
    (log_density,) = _as_floats(log_density=log_density)
    return -float(np.mean(log_density))


@check_shapes(
    "Y: [N, columns...]",
    "log_density: [N, densities...]",
    "Y_train: [N_train, columns...]",
)
def smll(Y: AnyNDArray, log_density: AnyNDArray, Y_train: AnyNDArray) -> float:
    """Compute the standardised mean log loss.

    The loss is the mean negative log density of a row minus the mean negative log
    density under the trivial model. In the trivial model each column is a separate
    Gaussian with the mean and the variance of its training targets. The log density of
    a row is the sum over its columns. 0 is as good as the trivial model, negative is
    better. It does not depend on the units of Y if all three arguments share them.

    :param Y: Held-out targets, [N] or a column for each output.
    :param log_density: log p(yₙ | training data) of each held-out row [N], a density in
        the units of `Y`; or of each target, in the shape of `Y`, to be summed over the
        columns.
    :param Y_train: Training targets.
    :raises ValueError: If an array is empty or not finite, or all training targets of a
        column are equal.
    """
    if np.ndim(log_density) > 1:
        check_shape(log_density, "[N, columns...]")
    Y, log_density, Y_train = _as_floats(Y=Y, log_density=log_density, Y_train=Y_train)
    train = _columns(Y_train)
    trivial = norm(
        np.mean(train, axis=0), np.sqrt(_positive_variance("Y_train", train))
    )
    trivial_density = np.sum(trivial.logpdf(_columns(Y)), axis=1)
    return mean_nlpd(np.sum(_columns(log_density), axis=1)) - mean_nlpd(trivial_density)


@check_shapes("Y: [shape...]", "mean: [shape...]", "variance: [shape...]")
def coverage(
    Y: AnyNDArray, mean: AnyNDArray, variance: AnyNDArray, level: float = 0.9
) -> float:
    """Compute the fraction of targets inside the central intervals of N(mean,
    variance).

    It is close to `level` if the predictive variances are right.

    :param Y: Held-out targets.
    :param mean: Predicted means of y.
    :param variance: Predicted variances of y, noise included.
    :param level: The probability that an interval contains, a number in (0, 1).
    :raises ValueError: If an array is empty or not finite, a variance is not positive,
        or `level` is outside (0, 1).
    """
    Y, mean, variance = _as_floats(Y=Y, mean=mean, variance=variance)
    checks.check_level(level)
    if np.min(variance) <= 0.0:
        remedy = "Pass the variance of y (predict_y), which includes the noise."
        raise checks.refusal("variance", np.min(variance), "positive numbers", remedy)
    lower, upper = norm.interval(level, mean, np.sqrt(variance))
    return float(np.mean((lower <= Y) & (upper >= Y)))


@check_shapes("labels: [shape...]", "predicted: [shape...]")
def error_rate(labels: AnyNDArray, predicted: AnyNDArray) -> float:
    """Compute the fraction of labels that were predicted wrongly.

    :param labels: Held-out labels.
    :param predicted: Predicted labels.
    :raises ValueError: If there are no labels, or one is missing.
    """
    _check_rows(labels=labels, predicted=predicted)
    checks.as_labels("labels", np.ravel(labels))
    checks.as_labels("predicted", np.ravel(predicted))
    return float(np.mean(np.not_equal(labels, predicted)))


class Calibration(NamedTuple):
    """The result of :func:`calibration`: a number for each bin that is not empty, and
    the error.
    """

    #: Mean probability of the predicted class, or of the event, increasing.
    confidence: AnyNDArray
    #: Fraction of rows whose class is the predicted one, or with the event.
    accuracy: AnyNDArray
    count: AnyNDArray  #: Number of rows.
    #: The expected calibration error: the mean distance between both, weighted by the
    #: counts.
    error: float


@check_shapes("labels: [N]", "probability: [N, classes...]")
def calibration(
    labels: AnyNDArray, probability: AnyNDArray, num_bins: int = 10
) -> Calibration:
    """Compare the probability of predictions with how often they are right.

    Rows are sorted into bins of equal width by the probability of their predicted
    class, which is the most probable one, or by the probability of the event. In each
    bin the mean of this probability is compared with how often the prediction is right,
    or the event occurs (Naeini, Cooper and Hauskrecht, *Obtaining well calibrated
    probabilities using Bayesian binning*, AAAI 2015).

    :param labels: The held-out classes, whole numbers from 0; or 1 if an event
        occurred, otherwise 0.
    :param probability: The probability of each class, [N, C], or of an event, such as a
        class, [N].
    :param num_bins: The number of bins from 0 to 1, at least 1.
    :raises ValueError: If an array is empty or not finite, a probability is outside [0,
        1], a label is not one of the classes, or there is no bin.
    """
    checks.check_positive("num_bins", num_bins, "Pass 10, for example.")
    labels, probability = _as_floats(labels=labels, probability=probability)
    if np.min(probability) < 0.0 or np.max(probability) > 1.0 + 1e-6:
        got = f"values from {np.min(probability)} to {np.max(probability)}"
        remedy = "Pass probabilities, not their logarithms or counts."
        raise checks.refusal("probability", got, "numbers from 0 to 1", remedy)
    of_event = np.ndim(probability) == 1
    _check_labels(labels, 2 if of_event else probability.shape[1])
    confidence = probability if of_event else np.max(probability, axis=1)
    right = labels if of_event else np.argmax(probability, axis=1) == labels
    bins = np.clip((confidence * num_bins).astype(int), 0, num_bins - 1)
    count = np.bincount(bins, minlength=num_bins)
    used = count > 0
    mean_confidence, accuracy = (
        np.bincount(bins, weights=values, minlength=num_bins)[used] / count[used]
        for values in (confidence, right)
    )
    distance = np.abs(accuracy - mean_confidence)
    error = float(np.average(distance, weights=count[used]))
    return Calibration(mean_confidence, accuracy, count[used], error)
