"""Checks that kernels, inducing variables and mean functions fit together and suit the
data.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes.exceptions import CheckShapesError
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    InducingPatches,
    InducingPoints,
    InducingVariables,
    MultioutputInducingVariables,
)
from gpflow.kernels import (
    Kernel,
    MultioutputKernel,
    SeparateIndependent,
    SharedIndependent,
)
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import inducingpoint_wrapper

from .. import checks
from .blurred import BlurredInducingPoints, sum_of_products
from .evaluate import (
    covariance,
    is_plain,
    is_stationary,
    kuf,
    latent_kernels,
    mean,
    split_outputs,
    variance,
)

#: The number of rows at which a kernel is evaluated for the check.
_ROWS_TRIED = 5
#: The errors of users' code and of TensorFlow for inputs with other columns.
_FAILURES = (tf.errors.OpError, CheckShapesError, ValueError, IndexError, TypeError)


def check_inducing_variable(
    inducing_variable: Any, kernel: Kernel, X: tf.Tensor | None
) -> InducingVariables:
    """Check inducing variables against the kernel and the data; wrap an array of
    points.

    :param inducing_variable: GPflow inducing variables, or an array [M, D].
    :param X: The training inputs, or None if they come later.
    :raises ValueError: If there are no inducing variables, if they have other columns
        than X, if latent functions have different numbers of them, or if GPflow has no
        covariance of these inducing variables under this kernel.
    """
    checks.check_kernel(kernel)
    if not isinstance(inducing_variable, InducingVariables):
        _check_points(inducing_variable)
    inducing_variable = inducingpoint_wrapper(inducing_variable)
    numbers = {
        int(of_latent.num_inducing) for of_latent in split_outputs(inducing_variable)
    }
    if len(numbers) > 1:
        got = (
            f"{', '.join(map(str, sorted(numbers)))} inducing variables for different"
            " latent"
        )
        expected = "the same number for each, because GPflow stacks them in one tensor"
        remedy = "Give each latent function the same number."
        raise checks.refusal("inducing_variable", f"{got} functions", expected, remedy)
    if numbers == {0}:
        raise checks.refusal(
            "inducing_variable",
            "0 inducing variables",
            "at least 1",
            "Pass at least one row.",
        )
    if X is not None:
        check_columns(inducing_variable, X)
    types = type(inducing_variable), type(kernel)
    if Kuu.dispatch(*types) is None or Kuf.dispatch(*types, tf.Tensor) is None:
        raise checks.refusal(
            "inducing_variable and kernel",
            f"{types[0].__name__} with {types[1].__name__}, for which no covariance is"
            " registered with gpflow.covariances.Kuu and Kuf",
            "a pair with a covariance in GPflow",
            "Use inducing points, which suit every kernel.",
        )
    pairs = itertools.product(split_outputs(inducing_variable), latent_kernels(kernel))
    for variables, of_latent in pairs:
        if isinstance(variables, BlurredInducingPoints):
            sum_of_products(of_latent)  # refuses a kernel that has no closed form
    return inducing_variable


def _check_points(Z: Any) -> None:
    """Refuse values that are not a matrix of finite numbers."""
    remedy = "Pass a matrix with one row for each inducing input."
    try:
        points = np.asarray(Z)
        if points.dtype.kind not in "fiub":
            raise ValueError(f"numbers of type {points.dtype}")
    except ValueError as error:
        got = f"{type(Z).__name__} that is not a matrix of real numbers ({error})"
        expected = "[M, D], or gpflow.inducing_variables"
        raise checks.refusal("inducing_variable", got, expected, remedy) from error
    if points.ndim != 2:
        got = f"shape {points.shape}"
        expected = "two axes [M, D]"
        raise checks.refusal("inducing_variable", got, expected, remedy)
    if points.size:
        checks.check_finite("inducing_variable", points)


def count_columns(inducing_variable: InducingVariables) -> int | None:
    """Return the number of columns of X according to the inducing variables; None for
    patches, which have other columns.
    """
    of_latent = split_outputs(inducing_variable)[0]
    shape = of_latent.shape
    if isinstance(of_latent, InducingPatches) or shape is None or len(shape) < 2:
        return None
    return shape[1]


def example_inputs(inducing_variable: InducingVariables) -> tf.Tensor | None:
    """Return example inputs if there are no data yet: inducing inputs, or one row of
    zeros.
    """
    num_columns = count_columns(inducing_variable)
    if num_columns is None:
        return None
    Z = getattr(
        split_outputs(inducing_variable)[0],
        "Z",
        tf.zeros([1, num_columns], default_float()),
    )
    return tf.convert_to_tensor(Z)


def check_columns(inducing_variable: InducingVariables, X: tf.Tensor) -> None:
    """Refuse inducing inputs that have other columns than X."""
    num_columns = count_columns(inducing_variable)
    if None not in (num_columns, X.shape[1]) and num_columns != X.shape[1]:
        got = f"{num_columns} column(s)"
        expected = f"{X.shape[1]}, as in X"
        remedy = "Pass inducing inputs in the space of X."
        raise checks.refusal("inducing_variable", got, expected, remedy)


def mixes_outputs(kernel: Kernel, inducing_variable: InducingVariables) -> bool:
    """Whether q of these inducing variables correlates the latent functions of a
    kernel.
    """
    independent = isinstance(kernel, (SharedIndependent, SeparateIndependent))
    several = isinstance(inducing_variable, MultioutputInducingVariables)
    return isinstance(kernel, MultioutputKernel) and not (independent and several)


def check_independent(
    kernel: Kernel,
    inducing_variable: InducingVariables,
    num_latent: int,
    *,
    shared: bool = False,
) -> None:
    """Refuse latent functions that are not independent a priori, or a wrong number of
    them.

    :param kernel: A kernel of one output, shared by all; ``SharedIndependent``; or
        ``SeparateIndependent``.
    :param inducing_variable: Inducing variables of one output, shared by all; or
        wrapped as shared or separate independent ones.
    :param shared: Whether all must have the same inducing variables.
    :raises ValueError: If the kernel mixes latent functions, or the numbers do not
        agree.
    """
    several = isinstance(kernel, MultioutputKernel)
    if several and not isinstance(kernel, (SharedIndependent, SeparateIndependent)):
        got = f"{type(kernel).__name__}, which mixes latent functions"
        expected = "latent functions that are independent a priori"
        remedy = "Use gpflow.kernels.SharedIndependent or SeparateIndependent."
        raise checks.refusal("kernel", got, expected, remedy)
    if several != isinstance(inducing_variable, MultioutputInducingVariables):
        raise checks.refusal(
            "kernel and inducing_variable",
            f"{type(kernel).__name__} with {type(inducing_variable).__name__}",
            "both of one output or both of several",
            "Wrap the kernel in gpflow.kernels.SharedIndependent, or the inducing"
            " variables in"
            " gpflow.inducing_variables.SharedIndependentInducingVariables.",
        )
    separate = isinstance(
        inducing_variable, FallbackSeparateIndependentInducingVariables
    )
    if shared and separate:
        remedy = (
            "Use gpflow.inducing_variables.SharedIndependentInducingVariables, or one"
            " model"
        )
        remedy += " for each output."
        got = type(inducing_variable).__name__
        expected = "one set of inducing variables for all latent functions"
        raise checks.refusal("inducing_variable", got, expected, remedy)
    numbers = {}
    if several:
        numbers["kernel"] = int(kernel.num_latent_gps)
    if separate:
        numbers["inducing_variable"] = len(inducing_variable.inducing_variable_list)
    for name, count in numbers.items():
        if count != num_latent:
            got = f"{count} of one output each"
            expected = f"{num_latent}, one for each latent"
            raise checks.refusal(name, got, f"{expected} function", "Give as many.")


def check_kernel_at_row(kernel: Kernel, X: TensorType) -> None:
    """Refuse a kernel that fails at the first rows of the data, and a kernel of the
    user if its ``K_diag`` is not the diagonal of its ``K`` there. In a graph nothing is
    checked.
    """
    if not tf.executing_eagerly():
        return
    rows = tf.convert_to_tensor(X[:_ROWS_TRIED])
    eps = np.finfo(rows.dtype.as_numpy_dtype).eps
    # Of single rows, because GPflow's stationary kernels then have distance 0; that of
    # others, from products, may be as large as the root of a rounding error.
    rounding = (
        np.sqrt(eps) * (1.0 + np.abs(rows).max(initial=0.0))
        if [*_others(kernel)]
        else 0.0
    )
    least = max(1e-6, 100.0 * eps, rounding)
    for latent in latent_kernels(kernel):
        _evaluate(
            "kernel", latent, partial(kuf, InducingPoints(rows), latent, rows), rows
        )
        # What follows takes a third of the time in which a model is made.
        if is_plain(latent):
            continue
        single = [rows[n : n + 1] for n in range(len(rows))]
        K = [
            _evaluate("kernel", latent, partial(covariance, latent, row), row)
            for row in single
        ]
        of_K = np.ravel(K)
        variances = variance(latent, rows).numpy()
        if np.any(np.abs(variances - of_K) > least * np.abs(of_K).max(initial=0.0)):
            raise checks.refusal(
                "kernel",
                f"{type(latent).__name__} with K_diag {variances} where the diagonal of"
                f" K is {of_K}",
                "the same variances",
                "Correct its K_diag: predictions would have negative variances.",
            )


def check_mean_at_row(
    mean_function: MeanFunction, X: TensorType, num_latent: int | None
) -> None:
    """Refuse a mean function that fails at the first row, or that does not have one
    column or one for each latent function. In a graph nothing is checked.
    """
    if not tf.executing_eagerly():
        return
    row = tf.convert_to_tensor(X[:1])
    value = _evaluate(
        "mean_function", mean_function, partial(mean, mean_function, row), row
    )
    expected = sorted({1, num_latent or 1})
    if value.shape.rank != 2 or value.shape[1] not in expected:
        raise checks.refusal(
            "mean_function",
            f"{type(mean_function).__name__} with values of shape {tuple(value.shape)}"
            " at one row",
            f"{' or '.join(map(str, expected))} column(s), as there are {num_latent}"
            " latent function(s)",
            "Use a mean function with this number of outputs.",
        )


def _evaluate(
    name: str, part: Any, call: Callable[[], tf.Tensor], row: tf.Tensor
) -> tf.Tensor:
    try:
        with tf.device("CPU:0"):  # GPUs take 0 for columns that are not there
            return call()
    except _FAILURES as error:
        got = (
            f"{type(part).__name__}, which fails at a row of X with {row.shape[1]}"
            " column(s)"
        )
        reason = checks.reason(error)[:300]
        remedy = f"Check its parameters' shapes and active_dims. It raises: {reason}"
        raise checks.refusal(
            name, got, "a function that can be computed at such rows", remedy
        ) from error


def inducing_inputs(inducing_variable: InducingVariables, name: str) -> tf.Tensor:
    """
    Return the locations of inducing points, [K, M, D]; K is 1 if all latent functions
    share them. Refuse other inducing variables.
    """
    by_latent = split_outputs(inducing_variable)
    for of_latent in by_latent:
        if not isinstance(of_latent, InducingPoints):
            raise checks.refusal(
                name,
                f"inducing variables of type {type(of_latent).__name__}",
                "inducing points: only their covariance with those of a later model is"
                " known for every kernel",
                "Use gpflow.inducing_variables.InducingPoints.",
            )
    return tf.stack([tf.convert_to_tensor(of_latent.Z) for of_latent in by_latent])


def _others(kernel: Kernel) -> Iterator[Kernel]:
    """List parts that compute from inputs as they are, and not from their
    differences.
    """
    terms = getattr(kernel, "kernels", None) or getattr(kernel, "latent_kernels", None)
    if terms:
        for term in terms:
            yield from _others(term)
    elif not is_stationary(type(kernel)):
        yield kernel


def _is_of_differences(kernel: Kernel, rows: tf.Tensor) -> bool:
    """Whether a kernel is the same for inputs near 0, up to less than half of its
    digits.
    """
    try:
        K = covariance(kernel, rows).numpy()
        near = covariance(kernel, rows - rows[:1]).numpy()
    except _FAILURES:
        return False
    return bool(
        np.all(np.abs(K - near) <= np.sqrt(np.finfo(K.dtype).eps) * np.abs(near).max())
    )


def check_near_origin(kernel: Kernel, X: TensorType) -> None:
    """
    Refuse inputs so far from 0 that a kernel that is not stationary would lose half of
    its digits: it multiplies inputs, and of products of size s² with differences of
    size r² each has a relative error of s² / r² times the float's. A function that is
    the same near 0 loses none. In a graph nothing is checked.
    """
    if not tf.executing_eagerly():
        return
    X = tf.convert_to_tensor(X)
    limit = np.finfo(X.dtype.as_numpy_dtype).eps ** -0.25
    for other in _others(kernel):
        columns = other.slice(X, None)[0].numpy()
        size = np.abs(columns).max(axis=0)
        width = np.ptp(columns, axis=0)
        far = np.flatnonzero((width > 0.0) & (size > limit * width))
        if len(far) and not _is_of_differences(other, X[:_ROWS_TRIED]):
            got = (
                f"an input of size {size[far[0]]:g} that changes by {width[far[0]]:g}"
                " only"
            )
            raise checks.refusal(
                "X",
                f"{got}, with {type(other).__name__}",
                "inputs nearer to 0, because a kernel that is not stationary would"
                " lose digits",
                "Subtract the same number, for example the mean, from the input in"
                " all rows, also in new rows.",
            )
