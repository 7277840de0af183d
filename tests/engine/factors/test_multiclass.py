"""The two rules of RobustMax: even nodes where all rates are moderate, else panels of
each row.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from helpers import (
    assert_all_close,
    assert_close,
    assert_gradients,
    value_and_gradients,
)
from scipy.special import ndtr
from scipy.stats import norm

from gpflow_pep.engine.factors import multiclass
from gpflow_pep.engine.factors.multiclass import prob_above_all, prob_is_largest

Array = npt.NDArray[np.float64]
N = 60
#: One more row of it makes all rows take panels.
STEEP = 30.0
#: The sums of cubes up to which each number of even nodes is used.
LIMITS = [multiclass._most_cubes(number) for number in multiclass._RULE.num_even]


def _integrals(margin: Array, rate: Array) -> "tuple[Array, Array, Array]":
    """P and its derivatives by Gauss-Legendre nodes between many ends on every rise,
    [K, N].
    """
    levels = np.array([-7.5, -5.0, -3.0, -1.5, 0.0, 1.5, 3.0, 5.0, 7.5])
    rises = ((levels[:, None, None] - margin) / rate).reshape(-1, margin.shape[1])
    even = np.linspace(-9.0, 9.5, 13)[:, None] * np.ones(margin.shape[1])
    ends = np.sort(np.clip(np.vstack([rises, even]), -9.0, 9.5), 0)
    places, sizes = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(ends, axis=0)[:, None]
    t = np.concatenate(ends[:-1, None] + half * (1.0 + places[:, None]))
    weights = np.concatenate(half * sizes[:, None]) * norm.pdf(t)
    x = margin[:, None, :] + rate[:, None, :] * t
    cdf = ndtr(x)
    others = [np.prod(np.delete(cdf, k, axis=0), axis=0) for k in range(len(margin))]
    derivative = weights * norm.pdf(x) * np.stack(others)  # [K, Q, N]
    value = np.sum(weights * np.prod(cdf, axis=0), axis=0)
    return value, np.sum(derivative, axis=1), np.sum(derivative * t, axis=1)


def _value_and_derivatives(margin: Any, rate: Any) -> "list[Array]":
    both = tf.constant(margin), tf.constant(rate)
    value, by_both = value_and_gradients(lambda: prob_above_all(*both), both)
    return [value.numpy(), *(part.numpy() for part in by_both)]


def _rows(num_others: int, cubes: float, seed: int = 0) -> "tuple[Array, Array]":
    """Margins of many sizes, and rates whose cubes sum to a number in each row."""
    rng = np.random.default_rng(seed)
    rate = rng.uniform(0.2, 1.0, (num_others, N))
    rate[:, : N // 3] = 1.0
    rate *= (cubes / np.sum(rate**3, axis=0)) ** (1.0 / 3.0)
    centre = rng.choice([-6.0, 0.0, 4.0], N)
    return (
        centre + rng.choice([0.0, 0.5, 3.0], N) * rng.standard_normal((num_others, N)),
        rate,
    )


def _with_steep_row(margin: Array, rate: Array) -> "tuple[Array, Array]":
    one = np.ones((len(margin), 1))
    return np.hstack([margin, 0.0 * one]), np.hstack([rate, STEEP * one])


def _assert_accurate(actual: Any, margin: Array, rate: Array) -> None:
    expected = _integrals(margin, rate)
    # Relative to the probability beside the error rate of a label.
    size = expected[0] + 1e-3 / len(margin)
    assert_close(actual[0] / size, expected[0] / size, rtol=1e-10, scale=1.0)
    for one, other in zip(actual[1:], expected[1:]):
        assert_close(one / size, other / size, rtol=2e-9, scale=1.0)


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch) -> "list[None]":
    calls: list[None] = []
    original: Any = multiclass._over_panels
    monkeypatch.setattr(
        multiclass,
        "_over_panels",
        lambda *parts: calls.append(None) or original(*parts),
    )
    return calls


@pytest.mark.near_copies("*-1", "*-2", "*-5", "3.0-12", "3.0-19")
@pytest.mark.parametrize("num_others", [1, 2, 5, 12, 19])
@pytest.mark.parametrize("cubes", [0.01, 3.0, *LIMITS])
def test_even_nodes(num_others: int, cubes: float, panels: "list[None]") -> None:
    """Up to the limit; beyond it, and with one steep row, all have panels, as
    accurate.
    """
    rows = _rows(num_others, cubes * (1.0 - 1e-9))
    _assert_accurate(_value_and_derivatives(*rows), *rows)
    assert not panels
    if num_others < 12:
        beyond = rows[0], rows[1] * (1.0 + 1e-9)
        for more in (_with_steep_row(*rows), *[beyond] * (cubes == LIMITS[-1])):
            panels.clear()
            _assert_accurate(_value_and_derivatives(*more), *more)
            assert panels


@pytest.mark.near_copies("0.0-[1235]", "0.0-12")
@pytest.mark.parametrize("num_others", [1, 2, 3, 5, 12, 19])
@pytest.mark.parametrize("spread", [0.0, 1.0, 100.0])
def test_rates_of_any_size(
    num_others: int, spread: float, panels: "list[None]"
) -> None:
    """Rises that are steep and not, at about one place and anywhere: probabilities from
    1e-17.
    """
    rng = np.random.default_rng(num_others)
    rate = 10.0 ** rng.uniform(-3.0, 6.0, (num_others, 100))
    rate[:, :20] = rate[:1, :20]
    margin = spread * rng.standard_normal(rate.shape) - rate * rng.uniform(
        -9.0, 9.0, 100
    )
    actual = _value_and_derivatives(margin, rate)
    assert panels
    _assert_accurate(actual, margin, rate)


@pytest.mark.parametrize("compiled", [False, True])
def test_rows_without_numbers_hold_nothing_up(compiled: bool) -> None:
    """In a graph the rule is chosen by the numbers of each call, not by those of the
    trace.
    """
    unknown = [tf.TensorSpec([3, None], tf.float64)] * 2
    function = (
        tf.function(prob_above_all, input_signature=unknown)
        if compiled
        else prob_above_all
    )
    rows = _rows(3, 2.0)
    even = function(*map(tf.constant, rows)).numpy()
    margin, rate = _with_steep_row(*rows)
    expected = function(tf.constant(margin), tf.constant(rate)).numpy()
    assert_close(even, _integrals(*rows)[0], rtol=1e-10)
    assert_close(expected[:-1], even, rtol=1e-10)
    assert np.any(expected[:-1] != even)
    margin[0, 0], margin[1, 1], rate[0, 2], rate[2, 3] = np.nan, np.inf, np.inf, np.nan
    actual = function(tf.constant(margin), tf.constant(rate)).numpy()
    assert np.isnan(actual[[0, 3]]).all()
    assert_close(actual[4:], expected[4:], rtol=1e-12)


@pytest.mark.parametrize("variance", [0.0, 1e-42, 1e-20, 1e-13])
@pytest.mark.parametrize("of_label", [False, True])
def test_one_class_without_variance(of_label: bool, variance: float) -> None:
    """By the heat equation the derivative in the variance is half of the second one in
    the mean.
    """
    known = 0.4
    mean = np.array([0.9, -0.2])
    v = np.array([1.3, 0.6])
    x = (known - mean) / np.sqrt(v)
    density = norm.pdf(x) / np.sqrt(v)
    cdf = norm.cdf(x)
    slope = -x / np.sqrt(v) * density
    value = np.prod(cdf)
    first = density @ cdf[::-1]
    second = slope @ cdf[::-1] + 2.0 * np.prod(density)
    if not of_label:  # the first of the two others is the label
        value = norm.cdf((mean[0] - mean[1]) / np.sqrt(v.sum())) - _below(
            known, mean, v
        )
        first = -density[0] * cdf[1]
        second = -slope[0] * cdf[1] - np.prod(density)
    label = tf.constant([0 if of_label else 1])
    moments = ([known, *mean], [variance, *v])
    m, s = (tf.constant([row], tf.float64) for row in moments)
    others = prob_is_largest(label, m, s)[1]
    actual, by = value_and_gradients(lambda: prob_is_largest(label, m, s)[0], [m, s])
    assert_close([actual[0], others[0]], [value, 1.0 - value], rtol=1e-9)
    assert_close(by[0][0, 0], first, rtol=1e-8)
    assert_close(2.0 * by[1][0, 0], second, rtol=1e-3)


def _below(known: float, mean: Array, v: Array) -> float:
    """The probability that the first of two is above the other but below what
    is known.
    """
    places, sizes = np.polynomial.legendre.leggauss(200)
    half = 0.5 * (known + 12.0)
    f = known + half * (places - 1.0)
    integrand = norm.pdf(f, mean[0], np.sqrt(v[0])) * ndtr(
        (f - mean[1]) / np.sqrt(v[1])
    )
    return float(half * sizes @ integrand)


def test_panels_of_special_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nowhere above; few digits; and XLA's, which has no sizes that depend on data."""
    margin = np.array([[-1e5, 0.3]])
    rate = np.array([[1e3, STEEP]])
    value, by_margin, by_rate = _value_and_derivatives(margin, rate)
    assert value[0] == by_margin[0, 0] == by_rate[0, 0] == 0.0
    assert_close(value[1], ndtr(0.3 / np.hypot(1.0, STEEP)), rtol=1e-11)
    margin, rate = (x.astype(np.float32) for x in _with_steep_row(*_rows(3, 2.0)))
    actual = _value_and_derivatives(margin, rate)
    assert all(part.dtype == np.float32 for part in actual)
    expected = _integrals(margin.astype(np.float64), rate.astype(np.float64))
    assert_all_close(actual, expected, rtol=1e-5, scale=1.0)
    rows = _with_steep_row(*_rows(3, 12.0))
    expected = _value_and_derivatives(*rows)
    monkeypatch.setattr(
        multiclass, "positions", lambda condition: tf.range(len(condition))
    )
    assert_all_close(_value_and_derivatives(*rows), expected, rtol=1e-13)


@pytest.mark.parametrize("steep, compiled", [(False, True), (True, False)])
def test_second_derivatives_equal_finite_differences(
    steep: bool, compiled: bool
) -> None:
    rng = np.random.default_rng(1)
    start = np.stack([rng.standard_normal((2, 3)), rng.uniform(0.3, 1.2, (2, 3))])
    start[1, :, -1] *= 3.0 if steep else 1.0
    both = tf.Variable(start)

    def slopes() -> tf.Tensor:
        (by_both,) = value_and_gradients(
            lambda: prob_above_all(*tf.unstack(both)), [both]
        )[1]
        return tf.reduce_sum(tf.sin(3.0 * by_both))

    function = tf.function(slopes, autograph=False) if compiled else slopes
    assert_gradients(function, [both], rtol=1e-7)
