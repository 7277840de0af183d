"""The two rules of RobustMax: even nodes where all rates are moderate, else stretched ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from helpers import assert_close
from scipy.special import ndtr

from gpflow_pep.tilted import multiclass
from gpflow_pep.tilted.multiclass import prob_above_all

Array = npt.NDArray[np.float64]
N = 60
#: One more row of it makes all rows take the stretched nodes.
STEEP = 30.0
#: The sums of cubes up to which each number of even nodes is used.
LIMITS = [multiclass._most_cubes(number) for number in multiclass._NUM_EVEN]


def _integrals(margin: Array, rate: Array) -> "tuple[Array, Array, Array]":
    """P and its derivatives by a sum over many nodes, for rates that are not steep."""
    t = np.linspace(-9.5, 9.5, 4001)
    weights = np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi) * (t[1] - t[0])
    x = margin[:, None, :] + rate[:, None, :] * t[:, None]
    cdf, density = ndtr(x), np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi)
    others = np.stack(
        [np.prod(np.delete(cdf, k, axis=0), axis=0) for k in range(len(margin))]
    )  # [K, Q, N]
    derivative = density * others
    return (
        np.einsum("q,qn->n", weights, np.prod(cdf, axis=0)),
        np.einsum("q,kqn->kn", weights, derivative),
        np.einsum("q,kqn->kn", weights * t, derivative),
    )


def _value_and_derivatives(margin: Any, rate: Any) -> "tuple[Array, Array, Array]":
    margin, rate = tf.constant(margin), tf.constant(rate)
    with tf.GradientTape() as tape:
        tape.watch((margin, rate))
        value = prob_above_all(margin, rate)
    return value.numpy(), *(part.numpy() for part in tape.gradient(value, (margin, rate)))


def _rows(num_others: int, cubes: float, seed: int = 0) -> "tuple[Array, Array]":
    """Margins of many sizes, and rates whose cubes sum to a number in each row."""
    rng = np.random.default_rng(seed)
    rate = rng.uniform(0.2, 1.0, (num_others, N))
    rate[:, : N // 3] = 1.0
    rate *= (cubes / np.sum(rate**3, axis=0)) ** (1.0 / 3.0)
    centre = rng.choice([-6.0, 0.0, 4.0], N)
    return centre + rng.choice([0.0, 0.5, 3.0], N) * rng.standard_normal((num_others, N)), rate


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
def stretched(monkeypatch: pytest.MonkeyPatch) -> "list[None]":
    """One entry for each time that stretched nodes are used, eagerly."""
    calls: list[None] = []
    original: Callable[..., Any] = multiclass._stretched_nodes

    def counted(*arguments: tf.Tensor) -> Any:
        calls.append(None)
        return original(*arguments)

    monkeypatch.setattr(multiclass, "_stretched_nodes", counted)
    return calls


@pytest.mark.parametrize("num_others", [1, 2, 5, 12, 19])
@pytest.mark.parametrize("cubes", [0.01, 3.0, *LIMITS])
def test_even_nodes(num_others: int, cubes: float, stretched: "list[None]") -> None:
    rows = _rows(num_others, cubes * (1.0 - 1e-9))
    _assert_accurate(_value_and_derivatives(*rows), *rows)
    assert not stretched


@pytest.mark.parametrize("num_others", [1, 2, 5])
@pytest.mark.parametrize("cubes", [0.01, 3.0, 12.0])
def test_one_steep_row_stretches_the_nodes_of_all(
    num_others: int, cubes: float, stretched: "list[None]"
) -> None:
    margin, rate = _rows(num_others, cubes)
    actual = _value_and_derivatives(*_with_steep_row(margin, rate))
    assert stretched
    _assert_accurate([part[..., :-1] for part in actual], margin, rate)
    # A step at the mean for all of them, nearly.
    steep = _integrals(np.zeros((num_others, 1)), np.full((num_others, 1), STEEP))
    for one, other in zip(actual, steep):
        assert_close(one[..., -1:], other, rtol=1e-8, scale=1.0)


@pytest.mark.parametrize("limit", LIMITS)
def test_rules_agree_where_they_meet(limit: float, stretched: "list[None]") -> None:
    for num_others in (1, 2, 5):
        margin, rate = _rows(num_others, limit * (1.0 - 1e-12))
        below = _value_and_derivatives(margin, rate)
        assert not stretched
        above = _value_and_derivatives(margin, rate * (1.0 + 1e-12))
        assert bool(stretched) == (limit == LIMITS[-1])
        for one, other in zip(below, above):
            assert_close(one, other, rtol=1e-10, scale=1.0)
        stretched.clear()


@pytest.mark.parametrize("steep, compiled", [(False, True), (True, False)])
def test_second_derivatives_equal_finite_differences(steep: bool, compiled: bool) -> None:
    rng = np.random.default_rng(1)
    start, direction = rng.standard_normal((2, 2, 2, 3))
    start[1] = rng.uniform(0.3, 1.2, (2, 3))
    start[1, :, -1] *= 3.0 if steep else 1.0

    def slopes(both: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(both)
            value = prob_above_all(both[0], both[1])
        return tf.reduce_sum(tf.sin(3.0 * tape.gradient(value, both)))

    def along(both: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(both)
            value = slopes(both)
        return tf.reduce_sum(tape.gradient(value, both) * direction)

    actual = (tf.function(along) if compiled else along)(tf.constant(start))
    high, low = (slopes(tf.constant(start + step * direction)) for step in (1e-4, -1e-4))
    assert_close(actual, (high - low) / 2e-4, rtol=1e-7)


def test_one_choice_for_a_compiled_function() -> None:
    """The rule is chosen by the numbers of each call, not by those of the trace."""
    margin, rate = _rows(2, 3.0)
    unknown = [tf.TensorSpec([2, None], tf.float64)] * 2
    compiled = tf.function(prob_above_all, input_signature=unknown)
    even = compiled(margin, rate).numpy()
    mixed = compiled(*_with_steep_row(margin, rate)).numpy()
    assert_close(even, _integrals(margin, rate)[0], rtol=1e-10)
    assert_close(mixed[:-1], even, rtol=1e-10)
    assert np.any(mixed[:-1] != even)
