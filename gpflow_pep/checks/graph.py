"""Checks of values that only a running graph knows."""

import re
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter

from ..refusals import message

_OUTSIDE = message(
    "alpha", "a value outside [0, 1]", "none", "Assign others: model.alpha = 0.5. Got:"
)


def require_finite(value: tf.Tensor, quantity: str, advice: str) -> tf.Tensor:
    """
    Let a value pass if it is finite, else stop with a message that says what to do.

    :raises ValueError: See :func:`require`.
    """
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
        return [tf.debugging.Assert(condition, [message, *numbers], summarize=10)]
    if not bool(condition):
        printed = (", ".join(map(str, np.ravel(part)[:10])) for part in numbers)
        raise ValueError(" ".join([message, *printed]))
    return []


def read_powers(alpha: Parameter) -> tf.Tensor:
    """
    Read powers that may have been assigned past the check of the model.

    :raises ValueError: If one is outside [0, 1] or NaN; see :func:`require`.
    """
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
        return value[None]
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
