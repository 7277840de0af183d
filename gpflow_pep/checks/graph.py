"""
Checks of what only a running graph knows: values, and which derivatives are asked for.

Sites at their fixed point are computed without a record for differentiation. The energy is
stationary in them, so that its first derivative needs none. Every other derivative in a
hyperparameter does: that of predictions, and all higher ones of the energy. Some are known
(:mod:`gpflow_pep.sites.implicit`); all others are refused where they are asked for, instead of
being wrong.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType

from ..refusals import message, refusal

_UNKNOWN = "none: how sites at their fixed point move with hyperparameters is not differentiated"
_UNKNOWN_ELSEWHERE = (
    "one in eager mode or in the graph that computes it (tape.jacobian needs"
    " experimental_use_pfor=False)"
)
_OUTSIDE = message(
    "alpha", "a value outside [0, 1]", "none", "Assign others: model.alpha = 0.5. Got:"
)


def require_finite(value: tf.Tensor, quantity: str, advice: str) -> tf.Tensor:
    """Let a value pass if it is finite, else stop, as :func:`require` does, and say what to do."""
    finite = tf.reduce_all(tf.math.is_finite(value))
    if tf.executing_eagerly() and bool(finite):
        return tf.identity(value)
    text = message(quantity, "NaN or infinity", "finite numbers", advice)
    with tf.control_dependencies(require(finite, text)):
        return tf.identity(value)


def require(condition: tf.Tensor, message: str, *numbers: tf.Tensor) -> list[tf.Operation]:
    """
    Stop with a message where a condition does not hold.

    :param message: What was got, what was expected, what to do.
    :param numbers: They are printed after the message, the first ten of each.
    :return: What a graph must run first.
    :raises ValueError: In eager mode; a compiled graph stops with TensorFlow's
        ``InvalidArgumentError`` and the same message. XLA cannot stop: there it passes.
    """
    if not tf.executing_eagerly():
        # tf.debugging.Assert makes a branch of it, to copy the numbers only where it stops.
        text = tf.constant(message)
        return [tf.raw_ops.Assert(condition=condition, data=[text, *numbers], summarize=10)]
    if not bool(condition):
        printed = (", ".join(map(str, np.ravel(part)[:10])) for part in numbers)
        raise ValueError(" ".join([message, *printed]))
    return []


def read_powers(alpha: Parameter) -> tf.Tensor:
    """Read powers that may have been assigned past the check of the model; stop if one is wrong."""
    value = tf.convert_to_tensor(alpha)
    inside = tf.reduce_all((value >= 0.0) & (value <= 1.0))
    with tf.control_dependencies(require(inside, _OUTSIDE, value)):
        return tf.identity(value)


def check_alpha(alpha: Parameter, num_factors: Any, factor: str) -> tf.Tensor:
    """
    Check that there is one power, or one for each factor.

    :param num_factors: How many factors there are; a tensor where a graph will know.
    :param factor: What a factor is, "row" or "block".
    :return: The power of each factor, or of all [1].
    :raises ValueError: If there is another number of them, or one is outside [0, 1]; see
        :func:`require`.
    """
    value = read_powers(alpha)
    if value.shape.rank == 0:
        return tf.expand_dims(value, 0)
    known = tf.get_static_value(num_factors)
    if known is not None and value.shape == (known,):
        return value
    number = "as many as there are" if known is None else known
    expected = f"a number, or one for each {factor}: ({number},)"
    text = message("alpha", f"shape {tuple(value.shape)}", expected, "Assign or pass as many.")
    same = value.shape.rank == 1 and tf.equal(tf.shape(value)[0], num_factors)
    if value.shape.rank > 1 or (known is not None and value.shape[0] not in (None, known)):
        raise ValueError(text)
    with tf.control_dependencies(require(same, text)):
        return tf.identity(value)


def refuse_derivatives(values: Any, sources: Sequence[TensorType], quantity: str) -> Any:
    """
    Let constants pass that are functions of others, with a gradient that refuses.

    A tape calls the gradient functions of all that it has recorded, whatever its user asks for. An
    error is raised where that is a derivative in one of the sources. It is not known yet where
    TensorFlow prepares the gradient of a compiled function: there the derivative in them is NaN.

    :param sources: What they depend on: variables, or tensors, in which the derivative is NaN where
        another one may be asked for.
    :raises ValueError: While a derivative in one of the sources is computed.
    """
    return _with_gradient(values, sources, lambda _: _refuse(quantity, _UNKNOWN))


def differentiable(
    values: Any,
    sources: Sequence[TensorType],
    quantity: str,
    gradients: Callable[..., list[tf.Tensor]],
) -> Any:
    """
    Let constants pass that are functions of others, with their gradient. Higher derivatives are
    refused, as :func:`refuse_derivatives` does, and NaN where it is not known which are asked for.

    :param sources: Variables.
    :param gradients: From the gradients in the values, in the order of ``tf.nest.flatten``, to
        those in the sources, constant; called where one of these is asked for.
    :raises ValueError: While a derivative is computed that is not known.
    """

    where = _default_graph()

    def gradient(upstream: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        if _default_graph() is not where:
            _refuse(quantity, _UNKNOWN_ELSEWHERE)
        sources_and_upstream = [*sources, *upstream]
        return refuse_derivatives(
            gradients(*upstream), sources_and_upstream, f"the gradient of {quantity}"
        )

    return _with_gradient(values, sources, gradient)


def _refuse(quantity: str, expected: str) -> NoReturn:
    raise refusal(
        f"derivative of {quantity}",
        "one in a hyperparameter",
        expected,
        "First derivatives of training_loss and derivatives in Xnew are exact. For others use"
        " finite differences, or gpflow_pep.models.PEPRegression where the noise is Gaussian.",
    )


def _with_gradient(
    values: Any,
    sources: Sequence[TensorType],
    gradients: Callable[[Sequence[tf.Tensor]], list[tf.Tensor]],
) -> Any:
    """Let constants pass with a gradient that is called where a derivative is asked for."""

    @tf.custom_gradient
    def constant(*inputs: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            is_asked = _is_asked_for(sources, inputs)
            if is_asked:
                return list(gradients(upstream))
            # A compiled function may have other results: zero arrives for those that nobody asks
            # for. Differentiation forwards makes use of how this depends on upstream.
            total = tf.add_n([tf.reduce_sum(tf.abs(part)) for part in upstream])
            unknown = tf.where(tf.equal(total, 0.0), total, np.nan * total)
            return [
                None if is_asked is False and isinstance(source, tf.Variable) else unknown + 0.0 * x
                for source, x in zip(sources, inputs, strict=True)
            ]

        return [tf.identity(value) for value in tf.nest.flatten(values)], gradient

    inputs = list(map(tf.convert_to_tensor, sources))
    return tf.nest.pack_sequence_as(values, constant(*inputs)) if inputs else values


def once_differentiable(
    value: tf.Tensor, sources: Sequence[TensorType], quantity: str
) -> tf.Tensor:
    """Let a tensor pass whose first derivatives are right, and refuse all higher ones."""

    @tf.custom_gradient
    def same(value: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            unit = tf.ones_like(upstream)
            return upstream * refuse_derivatives(unit, sources, f"the gradient of {quantity}")

        return tf.identity(value), gradient

    return same(value)


def _is_asked_for(sources: Sequence[TensorType], inputs: Sequence[tf.Tensor]) -> bool | None:
    """Find out whether the derivative being computed is one in the sources; None: not known."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is tf.GradientTape.gradient.__code__:
            asked_for = tf.nest.flatten(frame.f_locals["sources"])
            if any(asked is source for asked in asked_for for source in sources):
                return True
            break
    else:  # tf.gradients, which asks for what it needs and no more, or a function's gradient
        return True if _same_graph(inputs) else None
    # The gradient of a function is kept, for others who ask for more.
    return False if _same_graph(inputs) or tf.executing_eagerly() else None


def _default_graph() -> tf.Graph | None:
    """Find the graph that is being made; None in eager mode."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _same_graph(tensors: Sequence[tf.Tensor]) -> bool:
    graph = getattr(tensors[0], "graph", None) if tf.is_symbolic_tensor(tensors[0]) else None
    return graph is tf.compat.v1.get_default_graph()


def reason(error: Exception) -> str:
    """Shorten what an error says; TensorFlow wraps what checks in a graph say in a trace."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    assertion = re.search(r"assertion failed: \[(.*?)\](?= \[|\n|$)", text, re.DOTALL)
    if assertion:
        return " ".join(assertion[1].replace("\\", "").split())
    if isinstance(error, tf.errors.OpError):
        text = [line for line in text.splitlines() if line[:1] not in ("", "\t", " ")][-1]
        text = re.sub(r"\{\{.*?\}\}|\[Op:\w+\].*", "", text)
    return " ".join(text.split())
