"""Which rows are near: scales of inputs, and both ways to find the nearest rows."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import (
    ChangePoints,
    Constant,
    Kernel,
    Linear,
    Matern32,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
    White,
)
from helpers import assert_close

from gpflow_pep.engine.numerics.nearest_in_numpy import nearest_rows
from gpflow_pep.engine.prior import input_scales, nearest_by_products

X = np.random.default_rng(0).standard_normal([50, 3]) * [1.0, 10.0, 0.1] + [0.0, 3.0, 1e3]
STD = X.std(axis=0)
CASES: dict[str, tuple[Kernel, Any]] = {
    "one for all": (SquaredExponential(lengthscales=0.7), [0.7, 0.7, 0.7]),
    "one for each": (Matern32(lengthscales=[1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]),
    "the smallest": (
        Matern32(lengthscales=[1.0, 2.0, 3.0]) + RationalQuadratic(lengthscales=1.5),
        [1.0, 1.5, 1.5],
    ),
    "active columns": (
        SquaredExponential(lengthscales=[0.5, 0.2], active_dims=[2, 0]) + Constant() + White(),
        [0.2, np.inf, 0.5],
    ),
    "a slice": (SquaredExponential(lengthscales=0.3, active_dims=slice(1, 3)), [np.inf, 0.3, 0.3]),
    "product with a linear part": (
        SquaredExponential(lengthscales=0.5, active_dims=[0]) * Linear(active_dims=[0, 1]),
        [0.5, STD[1], np.inf],
    ),
    "no lengthscale": (Linear() + Constant(), STD),
    "periodic": (Periodic(SquaredExponential(lengthscales=0.5)), STD),
    "change points": (
        ChangePoints([Matern32(lengthscales=2.0), Matern32(lengthscales=0.4)], [0.0]),
        [0.4, 0.4, 0.4],
    ),
}


@pytest.mark.parametrize("kernel, expected", CASES.values(), ids=CASES)
def test_scales(kernel: Kernel, expected: Any) -> None:
    np.testing.assert_allclose(input_scales(kernel, tf.constant(X)), expected, rtol=1e-12)


def test_an_input_that_never_changes() -> None:
    constant = np.where([True, False, True], X, 4.0)
    assert_close(input_scales(Linear(), tf.constant(constant)), [STD[0], 1.0, STD[2]])


@pytest.mark.parametrize("m", [0, 1, 4, 50])
@pytest.mark.parametrize("num_new", [0, 1, 7])
def test_nearest(m: int, num_new: int) -> None:
    scaled = X / STD
    new = scaled[:num_new] + 0.3 * np.random.default_rng(1).standard_normal([num_new, 3])
    squares = np.sum((new[:, None] - scaled[None]) ** 2, axis=-1)
    expected = np.argsort(squares, axis=1)[:, :m]
    rows, Xnew = tf.constant(scaled), tf.constant(new)
    for actual in (
        nearest_rows(scaled)(new, m),
        nearest_by_products(rows, Xnew, m),
        tf.function(nearest_by_products, autograph=False)(rows, Xnew, m),
    ):
        np.testing.assert_array_equal(actual, expected)


def test_many_rows_come_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gpflow_pep.engine.numerics.chunks.CHUNK_ELEMENTS", 150
    )  # three new rows at a time
    rows = tf.constant(X / STD)
    whole = nearest_rows(rows.numpy())(rows[:20].numpy(), 5)
    spec = [tf.TensorSpec([None, 3], tf.float64)] * 2
    unknown = tf.function(lambda X, Xnew: nearest_by_products(X, Xnew, 5), input_signature=spec)
    for find in (lambda X, Xnew: nearest_by_products(X, Xnew, 5), unknown):
        np.testing.assert_array_equal(find(rows, rows[:20]), whole)


def test_more_than_there_are() -> None:
    with pytest.raises(ValueError, match="near: got 51"):
        nearest_by_products(tf.constant(X), tf.constant(X), 51)
