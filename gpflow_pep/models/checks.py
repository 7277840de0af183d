"""Checks of what users pass to models: what was got, what was expected, what to do."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, Module, RegressionData
from gpflow.config import default_float
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood
from gpflow.models.util import data_input_to_tensor, inducingpoint_wrapper

from ..covariances import BlurredInducingPoints, NoisyInducingVariables, sum_of_products
from ..ops import replicas


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


def check_single_output(kernel: Kernel) -> None:
    """
    Refuse kernels of several outputs.

    :raises ValueError: If it is one.
    """
    if isinstance(kernel, MultioutputKernel):
        raise ValueError(
            f"kernel: got the multi-output kernel {type(kernel).__name__}, expected a kernel of one"
            " output. Regression here shares one kernel among all columns of Y: pass that kernel"
            " itself, or use one model for each output."
        )


def check_inducing_variable(
    inducing_variable: Any, kernel: Kernel, X: tf.Tensor | None
) -> InducingVariables:
    """
    Check inducing variables against the kernel and the data; wrap an array of points.

    :param inducing_variable: GPflow inducing variables, or an array [M, D].
    :param kernel: The kernel.
    :param X: The training inputs, or None where they come later.
    :raises ValueError: If there are none, if they have other columns than X, or if GPflow's
        dispatchers know no covariance of these inducing variables under this kernel.
    """
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"kernel: got {type(kernel).__name__}, expected a gpflow.kernels.Kernel. Pass one."
        )
    if not isinstance(inducing_variable, InducingVariables) and np.ndim(inducing_variable) != 2:
        raise ValueError(
            f"inducing_variable: got shape {np.shape(inducing_variable)}, expected two axes [M, D]."
            " Give a matrix with one row for each inducing input."
        )
    inducing_variable = inducingpoint_wrapper(inducing_variable)
    if (inducing_variable.shape or (None,))[0] == 0:
        raise ValueError(
            "inducing_variable: got 0 inducing variables, expected at least 1. Give more rows."
        )
    if X is not None:
        check_columns(inducing_variable, X)
    types = type(inducing_variable), type(kernel)
    if Kuu.dispatch(*types) is None or Kuf.dispatch(*types, tf.Tensor) is None:
        raise ValueError(
            f"inducing_variable and kernel: got {types[0].__name__} with {types[1].__name__}, for"
            " which no covariance is registered with gpflow.covariances.Kuu and Kuf. Expected a"
            " pair that GPflow knows. Use inducing points: they know every kernel."
        )
    if isinstance(inducing_variable, BlurredInducingPoints):
        sum_of_products(kernel)  # refuses a kernel that has no closed form
    if isinstance(inducing_variable, NoisyInducingVariables):
        check_inducing_variable(inducing_variable.inducing_variable, kernel, X)
    return inducing_variable


def check_columns(inducing_variable: InducingVariables, X: tf.Tensor) -> None:
    """
    Check that inducing inputs are in the space of the data.

    :raises ValueError: If they have other columns than X.
    """
    num_columns = (*(inducing_variable.shape or ()), None, None)[1]
    if None not in (num_columns, X.shape[1]) and num_columns != X.shape[1]:
        raise ValueError(
            f"inducing_variable: got {num_columns} column(s), expected {X.shape[1]}, as in X."
            " Give inducing inputs in the space of X."
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


def check_alpha(alpha: Parameter, num_factors: int | None, factor: str) -> None:
    """
    Check that there is one power, or one for each factor.

    :param alpha: The power(s).
    :param num_factors: How many factors there are, or None where that is unknown.
    :param factor: What a factor is, "row" or "block".
    :raises ValueError: If there is another number of them.
    """
    shape = tuple(alpha.shape)
    if len(shape) > 1 or (len(shape) == 1 and num_factors not in (None, shape[0])):
        raise ValueError(
            f"alpha: got shape {shape}, expected a number, or one for each {factor}:"
            f" ({num_factors},). Assign or pass as many."
        )


def check_loop(max_sweeps: Any, tolerance: Any) -> tuple[int, float]:
    """
    Check the limits of the inner loop.

    :raises ValueError: If there is not at least one sweep, or the tolerance is not positive.
    """
    if isinstance(max_sweeps, bool) or not isinstance(max_sweeps, (int, np.integer)):
        raise ValueError(f"max_sweeps: got {max_sweeps!r}, expected a positive integer. Give one.")
    if max_sweeps < 1:
        raise ValueError(f"max_sweeps: got {max_sweeps}, expected at least 1. 200 is usual.")
    if not isinstance(tolerance, (int, float, np.floating)) or not 0.0 < tolerance < np.inf:
        raise ValueError(f"tolerance: got {tolerance!r}, expected a positive number, such as 1e-6.")
    return int(max_sweeps), float(tolerance)


def check_chunk_size(chunk_size: Any) -> int | None:
    """
    Check the most rows that are worked on at a time.

    :raises ValueError: If it is neither None nor a positive integer.
    """
    if chunk_size is None:
        return None
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, (int, np.integer)):
        raise ValueError(
            f"chunk_size: got {chunk_size!r}, expected a positive integer. Pass one, or None."
        )
    if chunk_size < 1:
        raise ValueError(f"chunk_size: got {chunk_size}, expected at least 1. Pass more, or None.")
    return int(chunk_size)


def check_not_sharded(what: str, remedy: str) -> None:
    """
    Refuse what has no meaning where each process holds a shard of the rows.

    :param what: What was asked for.
    :param remedy: What to do instead.
    :raises ValueError: Inside of :func:`gpflow_pep.distributed.sharded`.
    """
    if replicas.count() > 1:
        raise ValueError(
            f"{what}: got it where {replicas.count()} processes hold a shard of the rows each,"
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


def require(condition: tf.Tensor, message: str) -> list[tf.Operation]:
    """
    Stop with a message where a condition does not hold.

    :param condition: A truth value.
    :param message: What was got, what was expected, what to do.
    :return: What a graph must run first.
    :raises ValueError: In eager mode; a compiled graph stops with TensorFlow's
        ``InvalidArgumentError`` and the same message. XLA cannot stop: there it passes.
    """
    if not tf.executing_eagerly():
        return [tf.debugging.Assert(condition, [message])]
    if not bool(condition):
        raise ValueError(message)
    return []


def _show(value: tf.Tensor) -> str:
    return str(tuple(value.shape))
