"""Metrics against numbers worked out by hand and against scikit-learn's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from check_shapes.exceptions import ShapeMismatchError
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.calibration import calibration_curve
from sklearn.metrics import r2_score, zero_one_loss

from gpflow_pep import metrics

Y = np.array([1.0, 2.0, 4.0, 5.0])  # mean 3, variance 2.5


def normal_log_density(Y: Any, mean: Any, variance: Any) -> Any:
    return -0.5 * (np.log(2 * np.pi * variance) + (Y - mean) ** 2 / variance)


def test_smse_by_hand() -> None:
    mean = np.array([1.0, 3.0, 4.0, 3.0])  # squared errors 0, 1, 0, 4
    assert_allclose(metrics.smse(Y, mean), 1.25 / 2.5)
    assert metrics.smse(Y, Y) == 0.0
    assert_allclose(metrics.smse(Y, np.full(4, 3.0)), 1.0)


def test_smse_is_one_minus_r2() -> None:
    rng = np.random.default_rng(0)
    targets, mean = rng.normal(size=(2, 30, 1))
    assert_allclose(metrics.smse(targets, mean), 1.0 - r2_score(targets, mean))


COLUMNS = np.stack([Y, 1000.0 * Y[[2, 0, 3, 1]] - 7.0], axis=1)


def test_smse_of_columns_is_the_mean_of_theirs() -> None:
    mean = COLUMNS + np.array([[1.0, 200.0], [0.0, -900.0], [-2.0, 10.0], [0.5, 0.0]])
    each = [metrics.smse(COLUMNS[:, p], mean[:, p]) for p in range(2)]
    assert_allclose(metrics.smse(COLUMNS, mean), np.mean(each))
    assert_allclose(metrics.smse(COLUMNS, mean), 1.0 - r2_score(COLUMNS, mean))
    # As good as the mean of each column.
    assert_allclose(metrics.smse(COLUMNS, np.tile(COLUMNS.mean(axis=0), (4, 1))), 1.0)


def test_smll_of_columns_is_the_sum_of_theirs() -> None:
    held_out, mean = COLUMNS[:2] + np.array([0.3, 60.0]), COLUMNS[:2]
    density = normal_log_density(held_out, mean, np.array([0.5, 2e5]))
    each = [metrics.smll(held_out[:, p], density[:, p], COLUMNS[:, p]) for p in range(2)]
    assert_allclose(metrics.smll(held_out, density, COLUMNS), np.sum(each))
    assert_allclose(metrics.smll(held_out, np.sum(density, axis=1), COLUMNS), np.sum(each))
    trivial = normal_log_density(held_out, COLUMNS.mean(axis=0), COLUMNS.var(axis=0))
    assert_allclose(metrics.smll(held_out, trivial, COLUMNS), 0.0, atol=1e-15)


def test_mean_nlpd_by_hand() -> None:
    assert metrics.mean_nlpd(np.array([-1.0, -2.0, 0.0])) == 1.0


def test_smll_of_the_trivial_model_is_zero() -> None:
    held_out = np.array([0.0, 7.0])
    trivial = normal_log_density(held_out, 3.0, 2.5)
    assert_allclose(metrics.smll(held_out, trivial, Y), 0.0, atol=1e-15)


def test_smll_by_hand() -> None:
    # Trivial loss at y = 3: ½ log(2π 2.5). Ours: unit variance, one away: ½ log 2π + ½.
    held_out = np.array([3.0])
    ours = normal_log_density(held_out, 2.0, 1.0)
    assert_allclose(metrics.smll(held_out, ours, Y), 0.5 - 0.5 * np.log(2.5))


def test_smll_has_no_units() -> None:
    held_out = np.array([2.0, 3.5])
    log_density = normal_log_density(held_out, 2.5, 1.5)
    assert_allclose(
        metrics.smll(10 * held_out, log_density - np.log(10), 10 * Y),
        metrics.smll(held_out, log_density, Y),
    )


def test_coverage_by_hand() -> None:
    # 90% of N(0, 4) lies within ±3.2897.
    targets = np.array([0.0, 3.28, -3.28, 3.30, -3.30])
    mean, variance = np.zeros(5), np.full(5, 4.0)
    assert metrics.coverage(targets, mean, variance) == 0.6
    assert metrics.coverage(targets, mean, variance, level=0.91) == 1.0


def test_central_interval_by_hand() -> None:
    lower, upper = metrics.central_interval(np.array([1.0]), np.array([4.0]), level=0.95)
    assert_allclose([lower[0], upper[0]], [1 - 3.919928, 1 + 3.919928], rtol=1e-6)


@pytest.mark.parametrize("dtype", [int, str])
def test_error_rate(dtype: type) -> None:
    labels = np.array([0, 1, 2, 2, 1]).astype(dtype)
    predicted = np.array([0, 1, 1, 2, 0]).astype(dtype)
    assert metrics.error_rate(labels, predicted) == 0.4
    assert_allclose(metrics.error_rate(labels, predicted), zero_one_loss(labels, predicted))


def test_calibration_by_hand() -> None:
    probability = np.array([[0.9, 0.1], [0.96, 0.04], [0.35, 0.65], [0.0, 1.0], [0.62, 0.38]])
    labels = np.array([0, 1, 1, 1, 1])
    found = metrics.calibration(labels, probability)
    # 0.65 and 0.62, one of them right; 0.9, 0.96 and 1, two of them right.
    assert_allclose(found.confidence, [0.635, 2.86 / 3])
    assert_allclose(found.accuracy, [0.5, 2 / 3])
    assert_array_equal(found.count, [2, 3])
    assert_allclose(found.error, (2 * 0.135 + 3 * (2.86 / 3 - 2 / 3)) / 5)


def test_calibration_is_scikit_learns_curve() -> None:
    rng = np.random.default_rng(0)
    probability = rng.dirichlet([1.0, 2.0, 0.5], size=200)
    labels = rng.integers(0, 3, 200)
    found = metrics.calibration(labels, probability, num_bins=7)
    right = np.argmax(probability, axis=1) == labels
    accuracy, confidence = calibration_curve(right, np.max(probability, axis=1), n_bins=7)
    assert_allclose(found.accuracy, accuracy)
    assert_allclose(found.confidence, confidence)


NAN = np.array([1.0, np.nan, 4.0, np.inf])
EMPTY = np.zeros(0)
ZERO = np.zeros(4)


@pytest.mark.parametrize(
    "call, got, expected, remedy",
    [
        (
            lambda: metrics.smse(NAN, Y),
            "Y: got NaN or infinity in 2",
            "finite",
            "Remove those rows",
        ),
        (
            lambda: metrics.smse(Y, NAN),
            "mean: got NaN or infinity in 2",
            "finite",
            "look at the fit",
        ),
        (
            lambda: metrics.smse(EMPTY, EMPTY),
            "Y: got no values",
            "at least one row",
            "Pass held-out",
        ),
        (lambda: metrics.smse(ZERO, Y), "zero variance (4 rows", "differ", "needs more rows"),
        (
            lambda: metrics.smse(np.stack([Y, ZERO], axis=1), np.stack([Y, Y], axis=1)),
            "column 1 of Y: got zero variance (4 rows",
            "differ",
            "needs more rows",
        ),
        (lambda: metrics.smll(Y, Y, ZERO), "Y_train: got zero", "differ", "needs more rows"),
        (lambda: metrics.smll(Y, NAN, Y), "log_density: got NaN", "finite", "Remove those rows"),
        (lambda: metrics.mean_nlpd(NAN), "log_density: got NaN", "finite", "Remove those rows"),
        (
            lambda: metrics.coverage(NAN, Y, Y),
            "Y: got NaN or infinity in 2",
            "finite",
            "Remove those rows",
        ),
        (lambda: metrics.coverage(Y, Y, ZERO), "variance: got 0.0", "positive", "predict_y"),
        (lambda: metrics.coverage(Y, Y, Y, 90.0), "level: got 90.0", "(0, 1)", "Pass 0.9"),
        (
            lambda: metrics.calibration(EMPTY, EMPTY[:, None]),
            "labels: got no values",
            "at least",
            "Pass",
        ),
        (
            lambda: metrics.calibration(ZERO, NAN[:, None]),
            "probability: got NaN",
            "finite",
            "Remove",
        ),
        (
            lambda: metrics.calibration(np.array([0, 1]), np.array([1.5, -3.0])),
            "probability: got values from -3.0 to 1.5",
            "numbers from 0 to 1",
            "not their logarithms",
        ),
        (
            lambda: metrics.calibration(np.array([7, 1]), np.array([0.5, 0.5])),
            "labels: got 7.0",
            "whole numbers from 0 to 1",
            "Encode",
        ),
        (lambda: metrics.calibration(ZERO, Y[:, None], 0), "num_bins: got 0", "at least 1", "10"),
        (lambda: metrics.error_rate(EMPTY, EMPTY), "labels: got no", "at least", "Pass held-out"),
        (lambda: metrics.error_rate(NAN, Y), "labels: got 1 missing", "label for each", "out"),
    ],
)
def test_bad_values(call: Callable[[], float], got: str, expected: str, remedy: str) -> None:
    with pytest.raises(ValueError) as error:
        call()
    for part in (got, expected, remedy):
        assert part in str(error.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.smse(Y, Y[:, None]),
        lambda: metrics.smll(Y, Y[:, None], Y),
        lambda: metrics.coverage(Y, Y, np.array(1.0)),
        lambda: metrics.error_rate(Y, Y[:3]),
    ],
)
def test_arrays_of_other_shapes_are_not_broadcast(call: Callable[[], float]) -> None:
    with pytest.raises(ShapeMismatchError):
        call()
