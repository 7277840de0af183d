"""A kernel as a function of NumPy arrays, compiled once: a selection calls it very often."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from ..checks import refusal
from ..covariances import check_kernel_at_row, evaluate
from ..ops.graphs import compiled

#: Numbers in a matrix that is computed at a time (4 MiB in float64).
CHUNK_ELEMENTS = 2**19


class CompiledKernel:
    """
    Prior covariances of rows, in float64.

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

        self._between = compiled(between, owner=self, input_signature=[rows, rows])
        self._variances = compiled(variances, owner=self, input_signature=[rows])

    def between(self, X: AnyNDArray, X2: AnyNDArray) -> AnyNDArray:
        """[N, N2], the covariances of two sets of rows."""
        value: AnyNDArray = self._between(X, X2).numpy()
        return value

    def variances(self, X: AnyNDArray) -> AnyNDArray:
        """
        [N], the variances of rows.

        :raises ValueError: If they are not all finite.
        """
        parts = [self._variances(X[part]).numpy() for part in chunks(len(X), X.shape[1])]
        values = np.concatenate(parts)
        if not np.all(np.isfinite(values)):
            got = "a variance of NaN or infinity at some row"
            raise refusal("kernel", got, "finite numbers", "Check the kernel's parameters.")
        return values


def chunks(num_rows: int, width: int) -> Iterator[slice]:
    """Rows at a time, for matrices of `width` numbers a row."""
    step = max(1, CHUNK_ELEMENTS // width)
    return (slice(start, start + step) for start in range(0, num_rows, step))
