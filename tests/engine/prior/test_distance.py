"""Which rows are near: scales of inputs, and both ways to find the nearest rows."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close

from gpflow_pep.engine.numerics import chunks
from gpflow_pep.engine.numerics.nearest_in_numpy import nearest_rows
from gpflow_pep.engine.prior import input_scales, nearest_by_products

k = gpflow.kernels
X = np.random.default_rng(0).standard_normal([50, 3]) * [1.0, 10.0, 0.1] + [0.0, 3.0, 1e3]
STD = X.std(axis=0)
EACH = k.Matern32(lengthscales=[1.0, 2.0, 3.0])
CASES: list[tuple[k.Kernel, Any]] = [
    (k.RBF(lengthscales=0.7), [0.7, 0.7, 0.7]),
    (EACH, [1.0, 2.0, 3.0]),
    (EACH + k.RationalQuadratic(lengthscales=1.5), [1.0, 1.5, 1.5]),  # the smallest
    (
        k.RBF(lengthscales=[0.5, 0.2], active_dims=[2, 0]) + k.Constant() + k.White(),
        [0.2, np.inf, 0.5],
    ),
    (k.RBF(lengthscales=0.3, active_dims=slice(1, 3)), [np.inf, 0.3, 0.3]),
    (
        k.RBF(lengthscales=0.5, active_dims=[0]) * k.Linear(active_dims=[0, 1]),
        [0.5, STD[1], np.inf],
    ),
    (k.Linear() + k.Constant(), STD),  # no lengthscale
    (k.Periodic(k.RBF(lengthscales=0.5)), STD),
    (
        k.ChangePoints([k.Matern32(lengthscales=2.0), k.Matern32(lengthscales=0.4)], [0.0]),
        [0.4] * 3,
    ),
]


@pytest.mark.parametrize("kernel, expected", CASES)
def test_scales(kernel: k.Kernel, expected: Any) -> None:
    np.testing.assert_allclose(input_scales(kernel, tf.constant(X)), expected, rtol=1e-12)


def test_an_input_that_never_changes() -> None:
    constant = np.where([True, False, True], X, 4.0)
    assert_close(input_scales(k.Linear(), tf.constant(constant)), [STD[0], 1.0, STD[2]])


@pytest.mark.parametrize("m", [0, 1, 4, 50])
def test_nearest(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", 150)
    scaled, rows = X / STD, tf.constant(X / STD)
    new = scaled[:7] + 0.3 * np.random.default_rng(1).standard_normal([7, 3])
    squares = np.sum((new[:, None] - scaled[None]) ** 2, axis=-1)
    expected = np.argsort(squares, axis=1)[:, :m]
    spec = [tf.TensorSpec([None, 3], tf.float64)]
    unknown = tf.function(lambda Xnew: nearest_by_products(rows, Xnew, m), input_signature=spec)
    for num_new in (0, 1, 7):
        some = tf.constant(new[:num_new])
        for actual in (
            nearest_rows(scaled)(new[:num_new], m),
            nearest_by_products(rows, some, m),
            unknown(some),
        ):
            np.testing.assert_array_equal(actual, expected[:num_new])


def test_more_than_there_are() -> None:
    with pytest.raises(ValueError, match="near: got 51"):
        nearest_by_products(tf.constant(X), tf.constant(X), 51)
