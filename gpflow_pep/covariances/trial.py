"""Kernel and mean function tried at one row, so that one that does not suit the data says so."""

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf
from check_shapes.exceptions import CheckShapesError
from gpflow.base import TensorType
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.mean_functions import MeanFunction

from ..checks import reason, refusal
from .evaluate import covariance, mean

#: What code of users and TensorFlow raise for inputs of other columns.
_FAILURES = (tf.errors.OpError, CheckShapesError, ValueError, IndexError, TypeError)


def check_kernel_at_row(kernel: Kernel, X: TensorType) -> None:
    """
    Refuse a kernel that cannot be evaluated in the space of the data.

    Inside a graph nothing is tried.

    :raises ValueError: If it fails at the first row.
    """
    if not tf.executing_eagerly():
        return
    row = tf.convert_to_tensor(X[:1])
    for part in kernel.latent_kernels if isinstance(kernel, MultioutputKernel) else [kernel]:
        _evaluate("kernel", part, partial(covariance, part, row, row), row)


def check_mean_at_row(mean_function: MeanFunction, X: TensorType, num_latent: int | None) -> None:
    """
    Refuse a mean function that does not suit the data.

    Inside a graph nothing is tried.

    :raises ValueError: If it fails at the first row, or has other columns than one or one for each
        latent function.
    """
    if not tf.executing_eagerly():
        return
    row = tf.convert_to_tensor(X[:1])
    value = _evaluate("mean_function", mean_function, partial(mean, mean_function, row), row)
    expected = sorted({1, num_latent or 1})
    if value.shape.rank != 2 or value.shape[1] not in expected:
        raise refusal(
            "mean_function",
            f"{type(mean_function).__name__} with values of shape {tuple(value.shape)} at one row",
            f"{' or '.join(map(str, expected))} column(s), as there are {num_latent} latent"
            " function(s)",
            "Use a mean of as many outputs.",
        )


def _evaluate(name: str, part: Any, call: Callable[[], tf.Tensor], row: tf.Tensor) -> tf.Tensor:
    try:
        return call()
    except _FAILURES as error:
        raise refusal(
            name,
            f"{type(part).__name__}, which fails at a row of X with {row.shape[1]} column(s)",
            "one for such rows",
            f"Check its parameters' shapes and active_dims. It raises: {reason(error)[:300]}",
        ) from error
