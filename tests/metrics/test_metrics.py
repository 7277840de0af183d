"""Metrics against numbers worked out by hand and against scikit-learn's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from check_shapes.exceptions import ShapeMismatchError
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.calibration import calibration_curve
from sklearn.metrics import r2_score, zero_one_loss

from gpflow_pep import metrics

Y = np.array([1.0, 2.0, 4.0, 5.0])  # mean 3, variance 2.5
COLUMNS = np.stack([Y, 1000.0 * Y[[2, 0, 3, 1]] - 7.0], axis=1)
MEANS = COLUMNS + np.array([[1.0, 200.0], [0.0, -900.0], [-2.0, 10.0], [0.5, 0.0]])
RNG = np.random.default_rng(0)


def log_density(Y: Any, mean: Any, variance: Any) -> Any:
    return norm.logpdf(Y, mean, np.sqrt(variance))


FIVE = np.array([0.0, 3.28, -3.28, 3.30, -3.30]), np.zeros(5), np.full(5, 4.0)
BY_HAND: dict[str, tuple[Callable[[], Any], Any]] = {
    # Squared errors 0, 1, 0, 4.
    "smse": (lambda: metrics.smse(Y, np.array([1.0, 3.0, 4.0, 3.0])), 1.25 / 2.5),
    "smse of the truth": (lambda: metrics.smse(Y, Y), 0.0),
    "smse of the mean": (lambda: metrics.smse(Y, np.full(4, 3.0)), 1.0),
    "smse of columns": (
        lambda: metrics.smse(COLUMNS, MEANS),
        np.mean([metrics.smse(COLUMNS[:, p], MEANS[:, p]) for p in range(2)]),
    ),
    "smse of columns' means": (
        lambda: metrics.smse(COLUMNS, np.tile(COLUMNS.mean(axis=0), (4, 1))),
        1.0,
    ),
    "mean nlpd": (lambda: metrics.mean_nlpd(np.array([-1.0, -5.0, 0.0])), 2.0),
    # Trivial loss at y = 3: log(2 pi 2.5) / 2. Ours: unit variance, one away: (log 2 pi
    # + 1) / 2.
    "smll": (
        lambda: metrics.smll(
            np.array([3.0]), log_density(np.array([3.0]), 2.0, 1.0), Y
        ),
        0.5 - 0.5 * np.log(2.5),
    ),
    "smll of the trivial model": (
        lambda: metrics.smll(Y[:2], log_density(Y[:2], 3.0, 2.5), Y),
        0.0,
    ),
    # 90% of N(0, 4) lies within 3.2897 of 0.
    "coverage": (lambda: metrics.coverage(*FIVE), 0.6),
    "coverage of 91%": (lambda: metrics.coverage(*FIVE, level=0.91), 1.0),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name: str) -> None:
    call, expected = BY_HAND[name]
    assert_allclose(call(), expected, rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("shape", [(30,), (30, 1), (30, 3)])
def test_smse_is_one_minus_r2(shape: tuple[int, ...]) -> None:
    targets, mean = RNG.normal(size=(2, *shape))
    assert_allclose(metrics.smse(targets, mean), 1.0 - r2_score(targets, mean))


def test_smll_of_columns_is_the_sum_of_theirs_and_has_no_units() -> None:
    held_out = COLUMNS[:2] + np.array([0.3, 60.0])
    mean = COLUMNS[:2]
    density = log_density(held_out, mean, np.array([0.5, 2e5]))
    whole = metrics.smll(held_out, density, COLUMNS)
    each = [
        metrics.smll(held_out[:, p], density[:, p], COLUMNS[:, p]) for p in range(2)
    ]
    assert_allclose(whole, np.sum(each))
    assert_allclose(metrics.smll(held_out, np.sum(density, axis=1), COLUMNS), whole)
    scaled = metrics.smll(10 * held_out, density - np.log(10), 10 * COLUMNS)
    assert_allclose(scaled, whole)
    trivial = log_density(held_out, COLUMNS.mean(axis=0), COLUMNS.var(axis=0))
    assert_allclose(metrics.smll(held_out, trivial, COLUMNS), 0.0, atol=1e-15)


@pytest.mark.parametrize("dtype", [int, str])
def test_error_rate(dtype: type) -> None:
    labels, predicted = (
        np.array(row).astype(dtype) for row in ([0, 1, 2, 2, 1], [0, 1, 1, 2, 0])
    )
    assert (
        metrics.error_rate(labels, predicted) == 0.4 == zero_one_loss(labels, predicted)
    )


def test_calibration_by_hand() -> None:
    probability = np.array(
        [[0.9, 0.1], [0.96, 0.04], [0.35, 0.65], [0.0, 1.0], [0.62, 0.38]]
    )
    found = metrics.calibration(np.array([0, 1, 1, 1, 1]), probability)
    # 0.65 and 0.62, one of them right; 0.9, 0.96 and 1, two of them right.
    expected = [0.635, 2.86 / 3], [0.5, 2 / 3], [2, 3]
    assert_allclose((found.confidence, found.accuracy, found.count), expected)
    assert_allclose(found.error, (2 * 0.135 + 3 * (2.86 / 3 - 2 / 3)) / 5)


def test_calibration_is_scikit_learns_curve() -> None:
    probability = RNG.dirichlet([1.0, 2.0, 0.5], size=200)
    labels = RNG.integers(0, 3, 200)
    found = metrics.calibration(labels, probability, num_bins=7)
    right = np.argmax(probability, axis=1) == labels
    expected = calibration_curve(right, np.max(probability, axis=1), n_bins=7)
    assert_allclose((found.accuracy, found.confidence), expected)


NAN = np.array([1.0, np.nan, 4.0, np.inf])
EMPTY = np.zeros(0)
ZERO = np.zeros(4)
ONE_FLAT = np.stack([Y, ZERO], axis=1), np.stack([Y, Y], axis=1)
BAD_VALUES: dict[str, Callable[[], Any]] = {
    "Y: got NaN or infinity in 2.*finite.*Remove those rows": lambda: metrics.smse(
        NAN, Y
    ),
    "mean: got NaN or infinity in 2.*finite.*look at the fit": lambda: metrics.smse(
        Y, NAN
    ),
    "Y: got no values.*at least one row.*Pass held-out": lambda: metrics.smse(
        EMPTY, EMPTY
    ),
    r"zero variance \(4 rows.*that vary.*needs more rows": lambda: metrics.smse(
        ZERO, Y
    ),
    r"column 1 of Y: got zero variance \(4 rows.*needs more": lambda: metrics.smse(
        *ONE_FLAT
    ),
    "Y_train: got zero.*that vary.*needs more rows": lambda: metrics.smll(Y, Y, ZERO),
    "log_density: got NaN.*finite.*Remove those rows": lambda: metrics.smll(Y, NAN, Y),
    "log_density: got NaN.*finite.*Remove those": lambda: metrics.mean_nlpd(NAN),
    "Y: got NaN or infinity in 2.*finite.*Remove": lambda: metrics.coverage(NAN, Y, Y),
    r"variance: got 0\.0.*positive.*predict_y": lambda: metrics.coverage(Y, Y, ZERO),
    r"level: got 90\.0.*\(0, 1\).*Pass 0\.9": lambda: metrics.coverage(Y, Y, Y, 90.0),
    "labels: got no values.*at least.*Pass": lambda: metrics.calibration(
        EMPTY, EMPTY[:, None]
    ),
    "probability: got NaN.*finite.*Remove": lambda: metrics.calibration(
        ZERO, NAN[:, None]
    ),
    r"probability: got values from -3\.0 to 1\.5.*not their logarithms": lambda: (
        metrics.calibration(np.array([0, 1]), np.array([1.5, -3.0]))
    ),
    r"labels: got 7\.0.*whole numbers from 0 to 1.*Encode": lambda: metrics.calibration(
        np.array([7, 1]), np.array([0.5, 0.5])
    ),
    "num_bins: got 0.*at least 1.*10": lambda: metrics.calibration(ZERO, Y[:, None], 0),
    "labels: got no.*at least.*Pass held-out": lambda: metrics.error_rate(EMPTY, EMPTY),
    "labels: got 1 missing.*label for each.*out": lambda: metrics.error_rate(NAN, Y),
}


@pytest.mark.parametrize("message", BAD_VALUES)
def test_bad_values(message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        BAD_VALUES[message]()


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


#: Of targets or labels and what was predicted for them: small whole numbers.
WHOLE: dict[str, Any] = {
    "smse": lambda Y, other: metrics.smse(Y, other),
    "mean_nlpd": lambda Y, other: metrics.mean_nlpd(other),
    "smll": lambda Y, other: metrics.smll(Y, other, Y),
    "coverage": lambda Y, other: metrics.coverage(
        Y, other, np.where(other > 0, other, 1)
    ),
    "error_rate": lambda Y, other: metrics.error_rate(Y, other),
    "calibration": lambda Y, other: metrics.calibration(Y > 0, other > 0).error,
}


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint64", "bool", "object"])
@pytest.mark.parametrize("name", WHOLE)
def test_types_of_whole_numbers(name: str, kind: str) -> None:
    """They are computed in floats: differences of small types would overflow."""
    most = 1 if kind == "bool" else 120
    Y = np.array([0, most, 0, most, 0])
    other = np.array([most, 0, 0, most, most])
    expected = WHOLE[name](Y.astype(float), other.astype(float))
    assert WHOLE[name](Y.astype(kind), other.astype(kind)) == pytest.approx(expected)
