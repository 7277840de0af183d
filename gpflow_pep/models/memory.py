"""The memory of a model, a summary that replaces rows that the model no longer has."""

from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, Module, TensorData
from gpflow.inducing_variables import InducingPoints, InducingVariables

from ..engine import checks
from ..engine.prior import evaluate, inducing_inputs, project_points, split_outputs
from ..engine.sites.memory import Memory, memory_of, memory_terms
from ..engine.sites.posterior import MemoryTerms
from .arguments import FixedParameter
from .rows import match_rows

_POWER = "None selects the power of the model that gets the memory."


def remember(model: Any, alpha: TensorData | None) -> Memory:
    """See :meth:`~gpflow_pep.models.base.InternalDataModel.remember`."""
    alpha = _check_power(alpha)
    Z = inducing_inputs(model.inducing_variable, "remember")
    W = model._parts.whiten().W
    log_z = model.pep_log_marginal_likelihood()
    natural = model.natural_of_v()
    mean = _mean_at(model.mean_function, Z, natural.b.shape[0])
    return memory_of(W, natural, log_z, Z, mean)._replace(alpha=alpha)


class AttachedMemory(Module):
    """A memory as constants of a model, which are saved with it and never trained.

    :param model: The model, complete except for the memory.
    :raises ValueError: If model and memory do not fit together.
    """

    Z: FixedParameter
    weights: FixedParameter
    first: FixedParameter
    mean: FixedParameter
    log_constant: FixedParameter
    kept: FixedParameter
    """1 if an inducing point of the model is an inducing point of the memory, [K, M,
    R]. Checkpoints use this name.
    """

    def __init__(self, memory: Memory, model: Any) -> None:
        super().__init__()
        dtype = model.data[0].dtype
        arrays = _check_memory(memory, dtype, model.num_latent_gps)
        num_columns = model.data[0].shape[1]
        num_inducing = arrays["Z"].shape[2]
        expected = f"{num_columns}, as in X"
        got = f"inducing points of {num_inducing} column(s)"
        remedy = "Pass rows with the columns of the"
        _require(
            num_inducing == num_columns, got, expected, f"{remedy} summarised ones."
        )
        for name, value in arrays.items():
            setattr(self, name, FixedParameter(value, dtype=dtype))
        self.kept = FixedParameter(
            _same_point(arrays["Z"], model.inducing_variable), dtype=dtype
        )
        self.alpha = _check_power(memory.alpha)
        self._power(model)

    def read(self) -> Memory:
        """Return the memory as tensors."""
        fields = self.Z, self.weights, self.first, self.mean, self.log_constant
        Z, weights, first, mean, log_constant = map(tf.convert_to_tensor, fields)
        return Memory(Z, weights, first, mean, log_constant, self.alpha)

    def terms(self, model: Any, W: tf.Tensor) -> MemoryTerms:
        """Compute the contribution of the memory for the present parameters of the
        model.
        """
        memory = self.read()
        same_point = tf.convert_to_tensor(self.kept)
        if same_point.shape[1] != W.shape[-1]:
            got = (
                f"{W.shape[-1]} for a memory that was passed to a model with"
                f" {same_point.shape[1]}"
            )
            expected = "as many"
            raise checks.refusal(
                "inducing_variable",
                got,
                expected,
                "Make a new model for other inducing variables.",
            )
        parts = model.inducing_variable, model.kernel
        projection = project_points(W, *parts, memory.Z, same_point)
        mean = _mean_at(model.mean_function, memory.Z, memory.first.shape[0])
        return memory_terms(memory, projection, mean, self._power(model))

    def _power(self, model: Any) -> tf.Tensor:
        alpha = tf.convert_to_tensor(model.alpha)
        if self.alpha is not None:
            return tf.constant(self.alpha, alpha.dtype)
        if alpha.shape.rank != 0:
            got = f"no power of its own, with {alpha.shape[0]} powers of the rows"
            remedy = (
                "Make it with remember(alpha=...), or set it with"
                " memory._replace(alpha=...)."
            )
            raise checks.refusal(
                "memory",
                got,
                "a power, because the memory is a factor like each row",
                remedy,
            )
        return alpha


@check_shapes("Z: [broadcast L, R, D]", "return: [broadcast L, R]")
def _mean_at(mean_function: Any, Z: tf.Tensor, num_latent: int) -> tf.Tensor:
    """Compute the mean function at inducing points of each latent function."""
    mean = evaluate.mean(mean_function, tf.reshape(Z, [-1, Z.shape[-1]]))
    by_points = tf.reshape(mean, [Z.shape[0], -1, mean.shape[-1]])  # [K, R, L or 1]
    if Z.shape[0] == 1 or mean.shape[-1] == 1:
        return tf.transpose(by_points[0]) if Z.shape[0] == 1 else by_points[..., 0]
    return tf.stack([by_points[latent, :, latent] for latent in range(num_latent)])


def _same_point(Z: AnyNDArray, inducing_variable: InducingVariables) -> AnyNDArray:
    """Mark the inducing points that are equal to points in Z, [K, M, R]."""
    variables = split_outputs(inducing_variable)
    size = int(variables[0].num_inducing)
    same = np.zeros([max(len(variables), len(Z)), size, Z.shape[1]])
    for latent, marks in enumerate(same):
        points = variables[latent if len(variables) > 1 else 0]
        if isinstance(points, InducingPoints):
            index = match_rows(Z[latent if len(Z) > 1 else 0], np.asarray(points.Z))
            marks[np.flatnonzero(index >= 0), index[index >= 0]] = 1.0
    return same


def _require(condition: bool, got: str, expected: str, remedy: str) -> None:
    if not condition:
        raise checks.refusal("memory", got, expected, remedy)


def _check_memory(
    memory: Any, dtype: tf.DType, num_latent: int
) -> dict[str, AnyNDArray]:
    """Check a memory, except its power."""
    remedy = "Pass the result of remember() of another model."
    is_memory = isinstance(memory, Memory)
    _require(is_memory, type(memory).__name__, "a gpflow_pep.models.Memory", remedy)
    arrays: dict[str, AnyNDArray] = {
        name: np.asarray(value)
        for name, value in memory._asdict().items()
        if name != "alpha"
    }
    ranks = {"Z": 3, "weights": 3, "first": 2, "mean": 2, "log_constant": 0}
    cast = "Cast the parts of the memory, or use one float for all models."
    anew = "Make it again, from a model whose log marginal likelihood is finite."
    for name, value in arrays.items():
        same_float = value.dtype == dtype.as_numpy_dtype
        _require(
            same_float,
            f"{name} of {value.dtype}",
            f"{dtype.name}, the type of the data",
            cast,
        )
        rank = ranks[name]
        got = f"{name} of shape {value.shape}"
        _require(value.ndim == rank, got, f"{rank} axes", remedy)
        finite = bool(np.isfinite(value).all())
        _require(finite, f"NaN or infinity in {name}", "finite numbers", anew)
    Z, weights, first, mean = (
        arrays[name] for name in ("Z", "weights", "first", "mean")
    )
    got = f"{len(first)} latent function(s)"
    expected = f"{num_latent}, the number in the model"
    _require(
        len(first) == num_latent,
        got,
        expected,
        "Pass it to a model with the same outputs.",
    )
    same = (
        Z.shape[1] == weights.shape[2] == first.shape[1] and first.shape == mean.shape
    )
    same &= {len(Z), len(weights)} <= {1, num_latent}
    got = (
        f"Z, weights, first and mean of shapes {Z.shape}, {weights.shape},"
        f" {first.shape} and"
    )
    expected = "[K, M, D], [K, R, M], [L, M] and [L, M] with K of 1 or L"
    _require(same, f"{got} {mean.shape}", expected, remedy)
    return arrays


def _check_power(alpha: Any) -> float | None:
    power = np.asarray(alpha).tolist()
    return (
        None if alpha is None else checks.check_real("alpha", power, "[0, 1]", _POWER)
    )
