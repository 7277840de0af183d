"""Control of which operations gradient tapes record.

In eager mode a tape keeps everything that it has recorded until the tape is deleted. A
loop inside of a tape therefore takes memory for all its iterations, although its
results are constants, unless recording is stopped. TensorFlow stops all tapes of a
thread at once, including tapes that are opened later. The loop itself needs such tapes
to differentiate the tilted integrals; they have to be opened by :func:`own_tape`.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import record

Function = TypeVar("Function", bound=Callable[..., Any])
#: Tensors, in any structure that ``tf.nest`` takes.
Tensors = Any
#: Whether the present computations may be differentiated.
_DERIVATIVES: ContextVar[bool] = ContextVar("_DERIVATIVES", default=True)


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """Stop all tapes in eager mode, except inside :func:`recorded`. Graphs do not
    change, because they keep nothing.
    """
    if not tf.executing_eagerly():
        yield
        return
    with record.stop_recording():
        yield


def are_stopped() -> bool:
    """Whether tapes do not record here."""
    return bool(pywrap_tfe.TFE_Py_TapeSetIsStopped())


@contextlib.contextmanager
def recorded() -> Iterator[None]:
    """Let tapes record, even if they were stopped."""
    if not are_stopped():
        yield
        return
    pywrap_tfe.TFE_Py_TapeSetRestartOnThread()
    try:
        yield
    finally:
        pywrap_tfe.TFE_Py_TapeSetStopOnThread()


@contextlib.contextmanager
def own_tape(
    sources: Sequence[Any], *, persistent: bool = False
) -> Iterator[tf.GradientTape]:
    """Open a tape that watches only some sources, even if tapes are stopped.

    :param sources: Tensors and variables.
    :param persistent: Whether more than one gradient will be computed.
    """
    tape = tf.GradientTape(persistent, watch_accessed_variables=False)
    with recorded(), tape, _derivatives_taken(True):
        tape.watch(list(sources))
        yield tape


def constant(function: Function) -> Function:
    """Decorate a function whose results are constants for differentiation, and that
    opens no tape.

    No tape records its operations. ``tf.stop_gradient`` would not be enough: if two
    tapes watch, TensorFlow prepares derivatives of all loops while it traces.
    """

    @functools.wraps(function)
    def stopped(*arguments: Any, **options: Any) -> Any:
        with record.stop_recording():
            return function(*arguments, **options)

    return stopped  # type: ignore[return-value]


def without_gradient(function: Callable[[], Tensors]) -> Tensors:
    """Call a function whose results are constants for differentiation, without any
    record of its operations. Intermediate tensors are freed at once in eager mode, and
    in a graph TensorFlow does not prepare derivatives of loops if two tapes watch.
    """
    with record.stop_recording(), _derivatives_taken(False):
        return tf.nest.map_structure(tf.stop_gradient, function())


@contextlib.contextmanager
def _derivatives_taken(taken: bool) -> Iterator[None]:
    """Set whether the computations in this context may be differentiated."""
    token = _DERIVATIVES.set(taken)
    try:
        yield
    finally:
        _DERIVATIVES.reset(token)


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function of tensors that returns a value and its gradient, like
    ``tf.custom_gradient``. If no derivative is taken (:func:`without_gradient`), this
    adds no operations.
    """
    differentiable = tf.custom_gradient(function)

    @functools.wraps(function)
    def chosen(*arguments: tf.Tensor) -> Any:
        if _DERIVATIVES.get():
            return differentiable(*arguments)
        return function(*arguments)[0]

    return chosen
