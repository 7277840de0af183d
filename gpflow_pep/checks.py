"""Checks of what users pass: what was got, what was expected, what to do."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, Module, RegressionData
from gpflow.config import default_float
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from gpflow.models.util import data_input_to_tensor

#: The residual of the inner loop that rounding leaves, in units of the float's epsilon.
_REACHABLE = 500.0
#: What q(f | u) may be: the prior's p(f | u), or that with its covariance scaled.
CONDITIONALS = ("prior", "scaled")


def check_data(data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Check training data and convert them to tensors; variables stay variables.

    :param data: A pair of X [N, D] and Y [N, P], finite, of GPflow's default float.
    :raises ValueError: If they are not.
    """
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ValueError(
            f"data: got {type(data).__name__}, expected a pair of arrays. Pass (X, Y)."
        )
    X, Y = data_input_to_tensor(tuple(data))
    for name, value in (("X", X), ("Y", Y)):
        if value.dtype != default_float():
            raise ValueError(
                f"{name}: got dtype {value.dtype.name}, expected {np.dtype(default_float()).name},"
                f" GPflow's default float. Cast it, for instance"
                f" {name}.astype(gpflow.default_float()), or change the default by"
                " gpflow.config.set_default_float before the model's parts are created."
            )
        if value.shape.rank != 2:
            raise ValueError(
                f"{name}: got shape {_show(value)}, expected two axes"
                f" ({'[N, D]' if name == 'X' else '[N, P]'})."
                f" A single column is {name}[:, None]."
            )
    num_X, num_Y = X.shape[0], Y.shape[0]
    if tf.executing_eagerly():
        num_X, num_Y = tf.shape(X).numpy()[0], tf.shape(Y).numpy()[0]
    if num_X is not None and num_Y is not None and num_X != num_Y:
        raise ValueError(
            f"X and Y: got {num_X} and {num_Y} rows, expected as many of one as of the other."
            " Check that X and Y come from the same rows."
        )
    if num_X == 0 or X.shape[1] == 0 or Y.shape[1] == 0:
        raise ValueError(
            f"data: got X of shape {_show(X)} and Y of shape {_show(Y)}, expected at least one row"
            " and one column in each. Check how the data were read."
        )
    for name, value in (("X", X), ("Y", Y)):
        check_finite(name, value)
    return X, Y


def check_finite(name: str, value: tf.Tensor) -> None:
    """
    Refuse data with NaN or infinity in them. Inside a graph there is no value to check yet.

    :raises ValueError: With the number of bad rows and the first of them.
    """
    if not tf.executing_eagerly():
        return
    bad = np.flatnonzero(~np.isfinite(np.asarray(value)).all(axis=1))
    if bad.size:
        raise ValueError(
            f"{name}: got NaN or infinity in {bad.size} row(s), the first at index {bad[0]},"
            " expected finite numbers. Remove those rows or fill in the missing values."
        )


def check_kernel(kernel: Any) -> None:
    """
    Refuse what is no kernel.

    :raises ValueError: If it is none of GPflow's kind.
    """
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"kernel: got {type(kernel).__name__}, expected a gpflow.kernels.Kernel. Pass one."
        )


def check_single_output(kernel: Any) -> None:
    """
    Refuse what is no kernel, and kernels of several outputs.

    :raises ValueError: If it is one.
    """
    check_kernel(kernel)
    if isinstance(kernel, MultioutputKernel):
        raise ValueError(
            f"kernel: got the multi-output kernel {type(kernel).__name__}, expected a kernel of one"
            " output. Regression here shares one kernel among all columns of Y: pass that kernel"
            " itself (PEPRegression also takes it in SharedIndependent), or use one model for each"
            " output."
        )


def check_same_float(dtype: tf.DType, **parts: Module) -> None:
    """
    Refuse a mixture of float32 and float64.

    :param dtype: Of the data.
    :param parts: The model's parts by name.
    :raises ValueError: If a part has a floating parameter of another type.
    """
    for name, part in parts.items():
        for variable in part.variables:
            if variable.dtype.is_floating and variable.dtype != dtype:
                raise ValueError(
                    f"{name}: got a parameter of {variable.dtype.name} ({variable.name}), expected"
                    f" {dtype.name}, as the data. Create all parts under one"
                    " gpflow.config.default_float()."
                )


def check_blocks(blocks: Any, num_rows: int | None) -> AnyNDArray:
    """
    Check the block labels of rows.

    :param blocks: An integer for each row.
    :param num_rows: N, or None where it is unknown.
    :raises ValueError: If they are not integers, one for each row.
    """
    labels: AnyNDArray = np.asarray(blocks)
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"blocks: got dtype {labels.dtype}, expected integers: the label of each row's block."
            " Convert the labels, for instance with numpy.unique(..., return_inverse=True)."
        )
    if labels.ndim != 1 or num_rows is None or labels.shape[0] != num_rows:
        raise ValueError(
            f"blocks: got shape {labels.shape}, expected one label for each of the"
            f" {'unknown number of' if num_rows is None else num_rows} rows. Give data of a known"
            " length and as many labels."
        )
    return labels


def check_likelihood(likelihood: Any) -> None:
    """
    Refuse what is no likelihood.

    :raises ValueError: If it is none of GPflow's kind.
    """
    if not isinstance(likelihood, Likelihood):
        raise ValueError(
            f"likelihood: got {type(likelihood).__name__}, expected"
            " one of gpflow.likelihoods. Pass one."
        )


def check_alpha(alpha: Parameter, num_factors: Any, factor: str) -> tf.Tensor:
    """
    Check that there is one power, or one for each factor.

    :param alpha: The power(s).
    :param num_factors: How many factors there are; a tensor where a graph will know.
    :param factor: What a factor is, "row" or "block".
    :return: The power of each factor, or of all [1], once they are found to be as many.
    :raises ValueError: If there is another number of them; see :func:`require`.
    """
    value = tf.convert_to_tensor(alpha)
    if value.shape.rank == 0:
        return value[None]
    known = tf.get_static_value(num_factors)
    message = (
        f"alpha: got shape {tuple(value.shape)}, expected a number, or one for each {factor}:"
        f" ({'as many as there are' if known is None else known},). Assign or pass as many."
    )
    same = value.shape.rank == 1 and tf.equal(tf.shape(value)[0], num_factors)
    if value.shape.rank > 1 or (known is not None and value.shape[0] not in (None, known)):
        raise ValueError(message)
    with tf.control_dependencies(require(same, message)):
        return tf.identity(value)


def check_no_neighbours(neighbours: Any) -> None:
    """
    Refuse neighbours for a model with a site for each row.

    :param neighbours: How many were asked for.
    :raises ValueError: If it is not 0.
    """
    if neighbours:
        raise ValueError(
            f"neighbours: got {neighbours!r}, expected 0: what is left of near rows given u ties"
            " their likelihoods together, and a site for each row cannot say that. Use"
            " PEPRegression if the noise is Gaussian, or more inducing variables."
        )


def check_conditional(conditional: Any) -> str:
    """
    Refuse what is no name of a conditional of f given u.

    :param conditional: The name.
    :raises ValueError: If it is none of them.
    """
    if not isinstance(conditional, str) or conditional not in CONDITIONALS:
        raise ValueError(
            f"conditional: got {conditional!r}, expected one of"
            f" {', '.join(map(repr, CONDITIONALS))}. Pass one, or leave it out."
        )
    return conditional


def check_loop(max_sweeps: Any, tolerance: Any, dtype: tf.DType) -> tuple[int, float]:
    """
    Check the limits of the inner loop.

    :param max_sweeps: The most sweeps.
    :param tolerance: Of the residual; raised to what the float can reach.
    :param dtype: Of the sites.
    :raises ValueError: If there is not at least one sweep, or the tolerance is not positive.
    """
    if not isinstance(tolerance, (int, float, np.floating)) or not 0.0 < tolerance < np.inf:
        raise ValueError(f"tolerance: got {tolerance!r}, expected a positive number, such as 1e-6.")
    reachable = _REACHABLE * float(np.finfo(dtype.as_numpy_dtype).eps)
    return check_positive("max_sweeps", max_sweeps), max(float(tolerance), reachable)


def check_positive(name: str, value: Any) -> int:
    """
    Refuse what is no positive integer.

    :param name: What it is.
    :param value: The number.
    :raises ValueError: If it is none.
    """
    numbers = (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, numbers) or value % 1 or value < 1:
        raise ValueError(
            f"{name}: got {value!r}, expected a positive integer, a whole number of at least 1."
            " Pass one."
        )
    return int(value)


def check_number(M: Any, num_rows: int, name: str = "M") -> None:
    """
    Check a number of rows to choose.

    :param M: The number.
    :param num_rows: How many rows there are.
    :param name: What it is.
    :raises ValueError: If it is not an integer between 1 and N.
    """
    if isinstance(M, bool) or not isinstance(M, (int, np.integer)) or not 1 <= M <= num_rows:
        raise ValueError(
            f"{name}: got {M!r}, expected an integer from 1 to {num_rows}, the number of rows."
            " Choose another number."
        )


def check_num_data(num_data: Any) -> int:
    """
    Check the number of rows of the whole data set.

    :param num_data: The number.
    :raises ValueError: If it is missing or no positive whole number.
    """
    try:
        return check_positive("num_data", num_data)
    except ValueError:
        raise ValueError(
            f"num_data: got {num_data!r}, expected the number of rows of the whole data set, at"
            " least 1. Pass num_data=len(X), of all rows and not of a batch."
        ) from None


def check_not_sharded(num_processes: int, what: str, remedy: str) -> None:
    """
    Refuse what has no meaning where each process holds a shard of the rows.

    :param num_processes: How many do.
    :param what: What was asked for.
    :param remedy: What to do instead.
    :raises ValueError: If they are several.
    """
    if num_processes > 1:
        raise ValueError(
            f"{what}: got it where {num_processes} processes hold a shard of the rows each,"
            f" expected one process with all of them. {remedy}"
        )


def require_finite(value: tf.Tensor, quantity: str, advice: str) -> tf.Tensor:
    """
    Let a value pass if it is finite, else stop with a message that says what to do.

    :param value: Any tensor.
    :param quantity: What it is.
    :param advice: Likely cause and what to try.
    :raises ValueError: See :func:`require`.
    """
    message = f"{quantity}: got NaN or infinity, expected finite numbers. {advice}"
    with tf.control_dependencies(require(tf.reduce_all(tf.math.is_finite(value)), message)):
        return tf.identity(value)


def require(condition: tf.Tensor, message: str, *numbers: tf.Tensor) -> list[tf.Operation]:
    """
    Stop with a message where a condition does not hold.

    :param condition: A truth value.
    :param message: What was got, what was expected, what to do.
    :param numbers: What is said after it; the first ten of each.
    :return: What a graph must run first.
    :raises ValueError: In eager mode; a compiled graph stops with TensorFlow's
        ``InvalidArgumentError`` and the same message. XLA cannot stop: there it passes.
    """
    if not tf.executing_eagerly():
        return [tf.debugging.Assert(condition, [message, *numbers], summarize=10)]
    if not bool(condition):
        said = (", ".join(map(str, np.ravel(part)[:10])) for part in numbers)
        raise ValueError(" ".join([message, *said]))
    return []


def require_same_rows(
    X: tf.Tensor, data: tuple[tf.Tensor, tf.Tensor], version: tf.Variable
) -> tf.Tensor:
    """
    Stop a graph, which keeps the rows it was traced with, where these were replaced.

    :param X: Inputs of the rows.
    :param data: The model's X and Y.
    :param version: How often they were replaced.
    """
    if tf.executing_eagerly():
        return X
    with tf.init_scope():
        traced = version.value() if tf.executing_eagerly() else None
    if traced is None:  # inside a graph that is no tf.function
        return X
    or_variables = ", or make the data tf.Variables of shape [None, D]"
    same = require(
        tf.equal(version, int(traced)),
        "data: got a function that was compiled for rows, or powers of rows, that have been"
        " replaced, expected one of the present ones. Compile it anew (with another"
        " gpflow.optimizers.Scipy())"
        f"{'' if isinstance(data[0], tf.Variable) else or_variables}.",
    )
    with tf.control_dependencies(same):
        return tf.identity(X)


def _show(value: tf.Tensor) -> str:
    return str(tuple(value.shape))
