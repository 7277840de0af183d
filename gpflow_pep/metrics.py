"""
How good predictions of held-out rows are. Standardised scores follow section 2.5 of Rasmussen and
Williams, *Gaussian Processes for Machine Learning*, MIT Press, 2006.
"""

from typing import NamedTuple

import numpy as np
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from scipy.stats import norm


def _check_values(**arrays: AnyNDArray) -> None:
    for name, array in arrays.items():
        array = np.asarray(array)
        if array.size == 0:
            raise ValueError(f"{name} is empty, expected at least one row: pass held-out rows.")
        if array.dtype.kind in "fc" and not np.all(np.isfinite(array)):
            count = int(np.sum(~np.isfinite(array)))
            raise ValueError(
                f"{name} has {count} values that are NaN or infinite, expected finite numbers:"
                " remove those rows, or look at the fit that predicted them."
            )


def _positive_variance(name: str, Y: AnyNDArray) -> float:
    if np.ptp(Y) == 0.0:
        raise ValueError(
            f"{name} has zero variance ({np.size(Y)} rows, all {np.ravel(Y)[0]}), expected targets"
            " that differ: a standardised score needs more rows."
        )
    return float(np.var(Y))


@check_shapes("Y: [shape...]", "mean: [shape...]")
def smse(Y: AnyNDArray, mean: AnyNDArray) -> float:
    """
    Standardised mean squared error, mean((Y − mean)²) / var(Y): 0 is perfect, 1 is as good as
    predicting the mean of Y everywhere.

    :param Y: held-out targets.
    :param mean: predicted means, in the units of `Y`.
    :raises ValueError: if an array is empty or not finite, or all targets are equal.
    """
    _check_values(Y=Y, mean=mean)
    return float(np.mean(np.square(Y - mean))) / _positive_variance("Y", Y)


@check_shapes("log_density: [shape...]")
def mean_nlpd(log_density: AnyNDArray) -> float:
    """
    Mean negative log predictive density, −mean(log p(yₙ)): in nats, lower is better.

    :param log_density: log p(yₙ | training data) of each held-out row.
    :raises ValueError: if `log_density` is empty or not finite.
    """
    _check_values(log_density=log_density)
    return -float(np.mean(log_density))


@check_shapes("Y: [shape...]", "log_density: [shape...]", "Y_train: [train_shape...]")
def smll(Y: AnyNDArray, log_density: AnyNDArray, Y_train: AnyNDArray) -> float:
    """
    Standardised mean log loss: :func:`mean_nlpd` minus that of the trivial model, a Gaussian with
    the mean and the variance of the training targets. 0 is as good as the trivial model, negative
    is better. It does not depend on the units of Y as long as all three arguments share them.

    :param Y: held-out targets.
    :param log_density: log p(yₙ | training data) of each held-out row, a density in the units of
        `Y`.
    :param Y_train: training targets.
    :raises ValueError: if an array is empty or not finite, or all training targets are equal.
    """
    _check_values(Y=Y, log_density=log_density, Y_train=Y_train)
    trivial = norm(np.mean(Y_train), np.sqrt(_positive_variance("Y_train", Y_train)))
    return mean_nlpd(log_density) - mean_nlpd(trivial.logpdf(Y))


@check_shapes("mean: [shape...]", "variance: [shape...]", "return[0]: [shape...]")
def central_interval(
    mean: AnyNDArray, variance: AnyNDArray, level: float = 0.9
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Lower and upper end of the central interval that holds a fraction `level` of N(mean, variance).

    :param mean: predicted means.
    :param variance: predicted variances, positive.
    :param level: a number in (0, 1).
    :raises ValueError: if an array is empty or not finite, a variance is not positive, or `level`
        is outside (0, 1).
    """
    _check_values(mean=mean, variance=variance)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}, expected a number in (0, 1), as 0.9 for 90%.")
    if np.min(variance) <= 0.0:
        raise ValueError(
            f"the smallest variance is {np.min(variance)}, expected positive numbers: pass the"
            " variance of y (predict_y), which includes the noise."
        )
    half_width = norm.ppf(0.5 + 0.5 * level) * np.sqrt(variance)
    return mean - half_width, mean + half_width


@check_shapes("Y: [shape...]", "mean: [shape...]", "variance: [shape...]")
def coverage(Y: AnyNDArray, mean: AnyNDArray, variance: AnyNDArray, level: float = 0.9) -> float:
    """
    Fraction of targets inside their :func:`central_interval`; close to `level` if the predictive
    variances are right.

    :param Y: held-out targets.
    :param mean: predicted means of y.
    :param variance: predicted variances of y, noise included.
    :param level: a number in (0, 1).
    :raises ValueError: as :func:`central_interval`, or if `Y` is not finite.
    """
    _check_values(Y=Y)
    lower, upper = central_interval(mean, variance, level)
    return float(np.mean((lower <= Y) & (upper >= Y)))


@check_shapes("labels: [shape...]", "predicted: [shape...]")
def error_rate(labels: AnyNDArray, predicted: AnyNDArray) -> float:
    """
    Fraction of labels that were predicted wrongly.

    :param labels: held-out labels.
    :param predicted: predicted labels.
    :raises ValueError: if an array is empty or not finite.
    """
    _check_values(labels=labels, predicted=predicted)
    return float(np.mean(np.not_equal(labels, predicted)))


class Calibration(NamedTuple):
    """What :func:`calibration` found: one number for each bin that is not empty, and the error."""

    confidence: AnyNDArray
    """Mean probability of the predicted class, increasing."""

    accuracy: AnyNDArray
    """Fraction of rows whose class is the predicted one."""

    count: AnyNDArray
    """Number of rows."""

    error: float
    """The expected calibration error, the mean distance of the two weighted by the counts."""


@check_shapes("labels: [N]", "probability: [N, C]")
def calibration(labels: AnyNDArray, probability: AnyNDArray, num_bins: int = 10) -> Calibration:
    """
    Whether predictions that claim a probability come true as often.

    Rows are sorted into bins of equal width by the probability of the class that is predicted for
    them, the most probable one; in each bin that mean probability is compared with how often the
    prediction is right (Naeini, Cooper and Hauskrecht, *Obtaining well calibrated probabilities
    using Bayesian binning*, AAAI 2015).

    :param labels: the held-out classes, whole numbers from 0.
    :param probability: the probability of each class.
    :param num_bins: bins from 0 to 1, at least 1.
    :raises ValueError: if an array is empty or not finite, or there is no bin.
    """
    _check_values(labels=labels, probability=probability)
    if num_bins < 1:
        raise ValueError(f"num_bins is {num_bins}, expected at least 1, as 10.")
    confidence = np.max(probability, axis=1)
    right = np.argmax(probability, axis=1) == labels
    bins = np.clip((confidence * num_bins).astype(int), 0, num_bins - 1)
    count = np.bincount(bins, minlength=num_bins)
    used = count > 0
    mean_confidence, accuracy = (
        np.bincount(bins, weights=values, minlength=num_bins)[used] / count[used]
        for values in (confidence, right)
    )
    gap = np.abs(accuracy - mean_confidence)
    error = float(np.average(gap, weights=count[used]))
    return Calibration(mean_confidence, accuracy, count[used], error)
