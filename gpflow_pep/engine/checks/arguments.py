"""Checks of data and of the parts of a model."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, Module, RegressionData
from gpflow.config import default_float, default_likelihood_positive_minimum
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood

from ..refusals import refusal
from ..refusals.arrays import refuse_masked, require_finite_rows
from ..refusals.numbers import check_positive, check_real


def check_data(
    data: RegressionData, *, missing_targets: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """Check training data and convert them to tensors; variables stay variables.

    :param data: A pair of X [N, D] and Y [N, P] with finite numbers of GPflow's default
        float type.
    :param missing_targets: Whether Y may have NaN for missing targets.
    """
    X, Y = as_pair(data)
    for name, value, axes in (("X", X, "[N, D]"), ("Y", Y, "[N, P]")):
        if value.dtype != default_float():
            raise refusal(
                name,
                f"dtype {value.dtype.name}",
                f"{np.dtype(default_float()).name}, GPflow's default float",
                f"Cast it, for instance {name}.astype(gpflow.default_float()), or"
                " change the default by gpflow.config.set_default_float before the"
                " model's parts are created.",
            )
        if value.shape.rank != 2:
            remedy = f"A single column is {name}[:, None]."
            raise refusal(name, f"shape {_shape(value)}", f"two axes ({axes})", remedy)
    num_X = X.shape[0]
    num_Y = Y.shape[0]
    if tf.executing_eagerly():
        num_X = tf.shape(X).numpy()[0]
        num_Y = tf.shape(Y).numpy()[0]
    if num_X is not None and num_Y is not None and num_X != num_Y:
        got = f"{num_X} and {num_Y} rows"
        expected = "the same number of rows in both"
        raise refusal(
            "X and Y", got, expected, "Check that X and Y come from the same rows."
        )
    if num_X == 0 or X.shape[1] == 0 or Y.shape[1] == 0:
        got = f"X of shape {_shape(X)} and Y of shape {_shape(Y)}"
        expected = "at least one row and one column in each"
        raise refusal("data", got, expected, "Check how the data were read.")
    check_finite("X", X)
    check_finite(
        "Y", tf.where(tf.math.is_nan(Y), tf.zeros_like(Y), Y) if missing_targets else Y
    )
    return X, Y


def check_incomplete_data(data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
    """Check training data whose Y may have NaN for missing targets, but must have at
    least one target.
    """
    X, Y = check_data(data, missing_targets=True)
    if tf.executing_eagerly() and np.isnan(Y).all():
        raise refusal(
            "Y",
            "NaN alone",
            "at least one target that is not missing",
            "Check how Y was read.",
        )
    return X, Y


def as_pair(data: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Convert a pair of arrays to tensors."""
    if isinstance(data, tf.data.Dataset):
        remedy = "Pass (X, Y), or train ARPEP on the data set by training.fit."
        raise refusal("data", "a tf.data.Dataset", "a pair of arrays", remedy)
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise refusal("data", type(data).__name__, "a pair of arrays", "Pass (X, Y).")
    return _as_tensor("X", data[0]), _as_tensor("Y", data[1])


def _as_tensor(name: str, value: Any) -> tf.Tensor:
    """Convert an array, a table or lists of numbers to a tensor. Tensors and variables
    are not changed.
    """
    if tf.is_tensor(value):
        return value
    if np.ma.isMA(value):
        refuse_masked(name, value)
    try:
        if isinstance(value, (list, tuple)):
            value = np.asarray(value, dtype=default_float())
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        got = f"{type(value).__name__} that is not an array of numbers ({error})"
        remedy = "Convert it, for instance with numpy.asarray(..., dtype=float)."
        raise refusal(name, got, "a matrix of numbers", remedy) from error


def check_new_inputs(Xnew: Any, num_columns: int | None, dtype: tf.DType) -> tf.Tensor:
    """Check inputs of rows to predict, [..., N, D], and convert them to a tensor.

    Inside a graph there is no value to check yet; the prediction of a row with NaN is
    then NaN.
    """
    Xnew = _as_tensor("Xnew", Xnew)
    if Xnew.dtype != dtype:
        got = f"dtype {Xnew.dtype.name}"
        remedy = f"Cast it, for instance Xnew.astype(numpy.{dtype.name})."
        raise refusal(
            "Xnew", got, f"{dtype.name}, the type of the data of the model", remedy
        )
    known = (
        None not in (num_columns, Xnew.shape.rank)
        and Xnew.shape[-1:].is_fully_defined()
    )
    if Xnew.shape.rank in (0, 1) or (known and Xnew.shape[-1] != num_columns):
        got = f"shape {_shape(Xnew)}"
        expected = (
            f"[N, {num_columns or 'D'}], the columns of the data that the model was"
            " made of"
        )
        raise refusal(
            "Xnew", got, expected, "Pass these columns; a single row is Xnew[None, :]."
        )
    check_finite("Xnew", Xnew)
    return Xnew


def check_finite(name: str, value: tf.Tensor) -> None:
    """Refuse data with NaN or infinity. Inside a graph there is no value to check
    yet.
    """
    if tf.executing_eagerly() and not np.isfinite(value).all():
        remedy = "Remove those rows or fill in the missing values."
        require_finite_rows(name, np.asarray(value), remedy)


def check_mean_function(mean_function: Any) -> None:
    """Refuse objects that are neither None nor a mean function of GPflow."""
    is_function = isinstance(mean_function, Module) and callable(mean_function)
    if mean_function is not None and not is_function:
        got = type(mean_function).__name__
        remedy = "Pass gpflow.functions.Constant(), for example."
        raise refusal(
            "mean_function", got, "a function of gpflow.functions, or None", remedy
        )


def check_kernel(kernel: Any) -> None:
    """Refuse objects that are not kernels of GPflow."""
    if not isinstance(kernel, Kernel):
        raise refusal(
            "kernel", type(kernel).__name__, "a gpflow.kernels.Kernel", "Pass one."
        )


def check_single_output(kernel: Any) -> None:
    """Refuse objects that are not kernels, and kernels with several outputs."""
    check_kernel(kernel)
    if isinstance(kernel, MultioutputKernel):
        raise refusal(
            "kernel",
            f"the multi-output kernel {type(kernel).__name__}",
            "a kernel of one output",
            "Regression shares one kernel among all columns of Y: pass that kernel"
            " itself (PEPRegression also accepts SharedIndependent), use"
            " LinearCoregionalization for mixed outputs, or make one model for each"
            " output.",
        )


def check_likelihood(likelihood: Any) -> None:
    """Refuse objects that are not likelihoods of GPflow."""
    if not isinstance(likelihood, Likelihood):
        got = type(likelihood).__name__
        raise refusal(
            "likelihood", got, "a likelihood of gpflow.likelihoods", "Pass one."
        )


def check_noise_variance(noise_variance: Any) -> None:
    """Refuse values that are not a variance of Gaussian noise. GPflow has already
    checked a parameter.

    :param noise_variance: One number above GPflow's smallest variance, or a parameter.
    """
    if isinstance(noise_variance, Parameter) or tf.is_tensor(noise_variance):
        return
    values = np.ravel(noise_variance).tolist()
    remedy = (
        "Pass 0.1 times the variance of Y, for example. Error bars of rows are a column"
        " of X: see 'What is known of each row' on the page on likelihoods."
    )
    if len(values) != 1:
        raise refusal("noise_variance", f"{len(values)} numbers", "one", remedy)
    least = default_likelihood_positive_minimum()
    check_real("noise_variance", values[0], f"({least:g}, inf)", remedy)


def check_loop(max_sweeps: Any, tolerance: Any, dtype: tf.DType) -> tuple[int, float]:
    """Check the limits of the inner loop. The tolerance is raised to what the float
    type can reach.
    """
    tolerance = check_real(
        "tolerance", tolerance, "(0, inf)", "Pass 1e-6, for example."
    )
    # The residual of the inner loop that is due to rounding, in units of the float's
    # epsilon.
    reachable = 500.0 * float(np.finfo(dtype.as_numpy_dtype).eps)
    return check_positive("max_sweeps", max_sweeps), max(tolerance, reachable)


def check_same_float(dtype: tf.DType, **parts: Module) -> None:
    """Refuse parts that have a floating parameter of another type than the data."""
    for name, part in parts.items():
        for variable in part.variables:
            if variable.dtype.is_floating and variable.dtype != dtype:
                got = f"a parameter of {variable.dtype.name} ({variable.name})"
                remedy = "Create all parts under one gpflow.config.default_float()."
                raise refusal(name, got, f"{dtype.name}, the type of the data", remedy)


def check_blocks(blocks: Any, num_rows: int | None) -> AnyNDArray:
    """Refuse labels of blocks that are not integers, one for each row."""
    labels: AnyNDArray = np.asarray(blocks)
    if not np.issubdtype(labels.dtype, np.integer):
        got = f"dtype {labels.dtype}"
        remedy = (
            "Convert the labels, for instance with numpy.unique(...,"
            " return_inverse=True)."
        )
        raise refusal("blocks", got, "integers: the label of each row's block", remedy)
    if labels.ndim != 1 or num_rows is None or labels.shape[0] != num_rows:
        rows = "unknown number of" if num_rows is None else num_rows
        got = f"shape {labels.shape}"
        expected = f"one label for each of the {rows} rows"
        raise refusal(
            "blocks",
            got,
            expected,
            "Pass data of a known length and one label for each row.",
        )
    return labels


def check_num_outputs(num_latent_gps: int | None, Y: tf.Tensor) -> int | None:
    """Check the number of latent functions of a model that has one for each column of
    Y.
    """
    num_outputs = Y.shape[1]
    if num_latent_gps is None or num_outputs is None or num_latent_gps == num_outputs:
        return num_latent_gps or num_outputs
    expected = f"{num_outputs}, one for each column of Y"
    raise refusal("num_latent_gps", num_latent_gps, expected, "Leave it out.")


def _shape(value: tf.Tensor) -> str:
    return str(tuple(value.shape))
