"""Rows to choose from: checks of the input, rows that differ, a random choice, covariances."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorData
from gpflow.config import default_float
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from sklearn.utils import gen_batches

from ...engine import checks
from ...engine.numerics.graphs import compiled
from ...engine.prior import check_kernel_at_row, evaluate

#: Numbers in a matrix of covariances that is computed at a time (4 MiB in float64).
CHUNK_ELEMENTS = 2**19


def random_subset(X: TensorData, M: int, *, seed: int) -> InducingPoints:
    """
    Choose rows of the inputs X [N, D] at random.

    :raises ValueError: If fewer than M rows differ.
    """
    X = as_inputs(X)
    checks.check_number(M, len(X))
    checks.check_seed(seed)
    order = np.random.default_rng(seed).permutation(len(X))
    return InducingPoints(X[distinct_rows(X, order, M)])


def as_inputs(X: TensorData) -> AnyNDArray:
    """Convert inputs to a matrix of GPflow's default float, of finite numbers."""
    return checks.as_matrix("X", X, dtype=default_float())


def as_data(data: Any, *, missing_targets: bool = False) -> tuple[AnyNDArray, AnyNDArray]:
    """Convert inputs and targets to such matrices, with as many rows; Y may lack some targets."""
    if isinstance(data, (tuple, list)) and len(data) == 2:
        float_type = default_float()
        data = tuple(checks.as_numbers(name, part, float_type) for name, part in zip("XY", data))
    X, Y = checks.check_data(data, missing_targets=missing_targets)
    return X.numpy(), Y.numpy()


def key(row: AnyNDArray) -> bytes:
    """Give bytes that are the same for equal rows, where 0 equals -0."""
    return (row + 0.0).tobytes()


def distinct_rows(X: AnyNDArray, order: Iterable[int], at_least: int, limit: int = 0) -> AnyNDArray:
    """
    Take rows in some order, leaving out copies of rows taken before.

    :param limit: How many to take at most, if that is more than are needed.
    """
    first_places: dict[bytes, int] = {}
    for place in order:
        first_places.setdefault(key(X[place]), place)
        if len(first_places) == max(at_least, limit):
            break
    if len(first_places) < at_least:
        raise too_few_distinct(at_least, len(first_places))
    return np.fromiter(first_places.values(), dtype=np.intp, count=len(first_places))


def too_few_distinct(wanted: int, num_distinct: int) -> ValueError:
    """Make the error for fewer rows that differ than are to be chosen."""
    expected = f"at most {num_distinct}, the number of rows of X that differ"
    return checks.refusal("M", wanted, expected, "Choose a smaller M.")


class CompiledKernel:
    """
    Prior covariances of rows, in float64, compiled once: a selection needs them very often.

    :param kernel: The kernel, of one output, with the hyperparameters it has at each call.
    :param like: Rows of the inputs' dtype and number of columns.
    :raises ValueError: If the kernel cannot be evaluated at such rows.
    """

    def __init__(self, kernel: Kernel, like: AnyNDArray) -> None:
        check_kernel_at_row(kernel, like)
        rows = tf.TensorSpec([None, like.shape[1]], like.dtype)

        def between(X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
            return tf.cast(evaluate.covariance(kernel, X, X2), tf.float64)

        def variances(X: tf.Tensor) -> tf.Tensor:
            return tf.cast(evaluate.variance(kernel, X), tf.float64)

        self._between = compiled(between, input_signature=[rows, rows])
        self._variances = compiled(variances, input_signature=[rows])

    def between(self, X: AnyNDArray, X2: AnyNDArray) -> AnyNDArray:
        """[N, N2], the covariances of two sets of rows."""
        return self._between(X, X2).numpy()

    def variances(self, X: AnyNDArray) -> AnyNDArray:
        """[N], the variances of rows, which must all be finite."""
        parts = [self._variances(X[part]).numpy() for part in chunks(len(X), X.shape[1])]
        values = np.concatenate(parts)
        if not np.all(np.isfinite(values)):
            got = "a variance of NaN or infinity at some row"
            raise checks.refusal("kernel", got, "finite numbers", "Check the kernel's parameters.")
        return values


def chunks(num_rows: int, width: int) -> Iterator[slice]:
    """Rows at a time, for matrices of `width` numbers a row."""
    return gen_batches(num_rows, max(1, CHUNK_ELEMENTS // width))
