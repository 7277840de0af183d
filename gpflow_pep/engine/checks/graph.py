"""Checks that only a running graph can make: of values, and of requested derivatives.

Sites at their fixed point are computed without a record for differentiation. The energy
is stationary in the sites, so its first derivative does not need this record. All other
derivatives in a hyperparameter need it: derivatives of predictions, and higher
derivatives of the energy. Some are computed in another way
(:mod:`gpflow_pep.engine.sites.implicit`). All others raise an error when they are
requested, instead of being wrong.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from ..refusals import message, refusal


def require_finite(value: tf.Tensor, quantity: str, advice: str) -> tf.Tensor:
    """Return a value if it is finite; otherwise stop with a remedy, like
    :func:`require`.
    """
    finite = _all(tf.math.is_finite(value))
    if tf.executing_eagerly() and bool(finite):
        return tf.identity(value)
    text = message(quantity, "NaN or infinity", "finite numbers", advice)
    with tf.control_dependencies(require(finite, text)):
        return tf.identity(value)


def _all(condition: tf.Tensor) -> tf.Tensor:
    """Whether a condition holds everywhere."""
    return condition if condition.shape.rank == 0 else tf.reduce_all(condition)


def require(
    condition: tf.Tensor, message: str, *numbers: tf.Tensor
) -> list[tf.Operation]:
    """Stop with a message if a condition does not hold.

    :param message: The message: what was got, what was expected, and what to do.
    :param numbers: Tensors that are printed after the message, the first ten numbers of
        each.
    :return: The operations that a graph must run first.
    :raises ValueError: In eager mode; a compiled graph stops with TensorFlow's
        ``InvalidArgumentError`` and the same message. Under XLA there is no error.
    """
    if not tf.executing_eagerly():
        # tf.debugging.Assert makes a branch, so that numbers are copied only if it
        # stops.
        text = tf.constant(message)
        return [
            tf.raw_ops.Assert(condition=condition, data=[text, *numbers], summarize=10)
        ]
    if not bool(condition):
        printed = (", ".join(map(str, np.ravel(value)[:10])) for value in numbers)
        raise ValueError(" ".join([message, *printed]))
    return []


def read_powers(alpha: Parameter) -> tf.Tensor:
    """Read powers that may have been assigned without the check of the model; stop if
    one is wrong.
    """
    value = tf.convert_to_tensor(alpha)
    inside = _all((value >= 0.0) & (value <= 1.0))
    remedy = "Assign another power: model.alpha = 0.5. Got:"
    text = message("alpha", "a value outside [0, 1]", "none", remedy)
    with tf.control_dependencies(require(inside, text, value)):
        return tf.identity(value)


def check_alpha(alpha: Parameter, num_factors: Any, factor: str) -> tf.Tensor:
    """Check that there is one power, or one for each factor.

    :param num_factors: The number of factors; a tensor if a graph computes it.
    :param factor: The kind of factor, "row" or "block".
    :return: The power of each factor, or one power [1] for all.
    :raises ValueError: If there is another number of powers, or one is outside [0, 1];
        see :func:`require`.
    """
    value = read_powers(alpha)
    if value.shape.rank == 0:
        return tf.expand_dims(value, 0)
    known = tf.get_static_value(num_factors)
    if known is not None and value.shape == (known,):
        return value
    number = "one for each" if known is None else known
    expected = f"a number, or one for each {factor}: ({number},)"
    text = message(
        "alpha",
        f"shape {tuple(value.shape)}",
        expected,
        "Assign or pass a power for each.",
    )
    same = value.shape.rank == 1 and tf.equal(tf.shape(value)[0], num_factors)
    if value.shape.rank > 1 or (
        known is not None and value.shape[0] not in (None, known)
    ):
        raise ValueError(text)
    with tf.control_dependencies(require(same, text)):
        return tf.identity(value)


def refuse_derivatives(
    values: Any, sources: Sequence[TensorType], quantity: str
) -> Any:
    """Return constants that are functions of other tensors, with a gradient that raises
    an error.

    A tape calls this gradient whenever it watches a source, even if the user does not
    need it. The gradient of a compiled function is made for all results, and the
    incoming gradient is 0 for results that are not needed.

    :param sources: The variables or tensors on which the values depend.
    :raises ValueError: While a derivative is computed, in eager mode or in the graph of
        the values. The gradient of that graph stops like :func:`require`.
    """
    expected = (
        "no such derivative, because the movement of sites at their fixed point with"
        " hyperparameters is not differentiated"
    )
    where = _default_graph()
    error = _refusal(quantity, expected)

    def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
        here = _default_graph()
        if here is not None and (here is where or is_for_xla()):
            raise error
        unused = tf.reduce_all(
            [tf.reduce_all(tf.equal(part, 0.0)) for part in upstream]
        )
        with tf.control_dependencies(require(unused, str(error))):
            return [tf.zeros_like(source) for source in sources]

    return _with_gradient(values, sources, gradient)


def differentiable(
    values: Any,
    sources: Sequence[TensorType],
    quantity: str,
    gradients: Callable[..., list[tf.Tensor]],
) -> Any:
    """Return constants that are functions of other tensors, with a given gradient.
    Higher derivatives raise an error, like :func:`refuse_derivatives`.

    :param sources: Variables.
    :param gradients: A function from the gradients in the values, in the order of
        ``tf.nest.flatten``, to constant gradients in the sources.
    """

    def refuse(_: Any) -> NoReturn:
        raise _refusal(
            quantity,
            "experimental_use_pfor=False, which computes rows one after another",
        )

    where = _default_graph()

    def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
        here = _default_graph()
        if here is not where and type(here) not in (
            type(None),
            tf.__internal__.FuncGraph,
        ):
            raise _refusal(
                quantity, "a tape inside of the tf.cond or loop that computes it"
            )
        upstream = tuple(map(tf.identity, upstream))
        for part in filter(tf.is_symbolic_tensor, upstream):
            part.op.pfor_converter = (
                refuse  # GMRES may need another number of steps for each
            )
        of_gradient = f"the gradient of {quantity}"
        return refuse_derivatives(
            gradients(*upstream), [*sources, *upstream], of_gradient
        )

    return _with_gradient(values, sources, gradient)


def _refusal(quantity: str, expected: str) -> ValueError:
    return refusal(
        f"derivative of {quantity}",
        "a derivative in a hyperparameter",
        expected,
        "First derivatives of training_loss and derivatives in Xnew are exact; a tape"
        " for derivatives in Xnew only is"
        " tf.GradientTape(watch_accessed_variables=False), inside the tf.function,"
        " with tape.watch(Xnew). For other derivatives use finite differences, or"
        " gpflow_pep.models.PEPRegression if the noise is Gaussian.",
    )


def _with_gradient(
    values: Any, sources: Sequence[TensorType], gradient: Callable[..., list[tf.Tensor]]
) -> Any:
    """Return constants with a gradient in the sources."""

    @tf.custom_gradient
    def constant(*_: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        return [tf.identity(value) for value in tf.nest.flatten(values)], gradient

    inputs = list(map(tf.convert_to_tensor, sources))
    return tf.nest.pack_sequence_as(values, constant(*inputs)) if inputs else values


def once_differentiable(value: tf.Tensor, quantity: str) -> tf.Tensor:
    """Return a tensor whose first derivatives are right. Higher derivatives raise an
    error.
    """

    @tf.custom_gradient
    def same(value: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # The gradient depends on the same tensors as the value.
            unit = tf.ones_like(upstream)
            return upstream * refuse_derivatives(
                unit, [value], f"the gradient of {quantity}"
            )

        return tf.identity(value), gradient

    return same(value)


def _default_graph() -> tf.Graph | None:
    """Return the graph that is being made; None in eager mode."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def is_for_xla() -> bool:
    """Whether XLA compiles the computation. TensorFlow has no public function for
    this.
    """
    in_xla: bool = GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
    return in_xla


def reason(error: Exception) -> str:
    """Shorten an error's message; TensorFlow wraps messages of graphs in a trace."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    assertion = re.search(r"assertion failed: \[(.*?)\](?= \[|\n|$)", text, re.DOTALL)
    if assertion:
        return " ".join(assertion[1].replace("\\", "").split())
    if isinstance(error, tf.errors.OpError):
        text = [line for line in text.splitlines() if line[:1] not in ("", "\t", " ")][
            -1
        ]
        text = re.sub(r"\{\{.*?\}\}|\[Op:\w+\].*", "", text)
    return " ".join(text.split())
