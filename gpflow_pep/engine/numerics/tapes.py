"""What tapes record, and what they do not.

In eager mode a tape keeps what it has recorded until it is gone. So a loop that runs
inside of one takes the memory of all its turns, although its results are constants,
unless nothing is recorded meanwhile. TensorFlow stops all tapes of a thread at once:
also those that are opened later, by which the loop itself differentiates, as it does
the tilted integrals. These have to be opened by :func:`own_tape`.
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
#: Whether something may be differentiated that is computed now.
_DERIVATIVES: ContextVar[bool] = ContextVar("_DERIVATIVES", default=True)


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """Stop all tapes in eager mode, but for what is :func:`recorded`. Graphs keep
    nothing, and stay as they are.
    """
    if not tf.executing_eagerly():
        yield
        return
    with record.stop_recording():
        yield


def are_stopped() -> bool:
    """Whether tapes do not record here, in eager mode."""
    return tf.executing_eagerly() and bool(pywrap_tfe.TFE_Py_TapeSetIsStopped())


@contextlib.contextmanager
def recorded() -> Iterator[None]:
    """Let tapes record in eager mode, also where they were stopped."""
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
    """Open a tape that watches some sources alone, also where tapes are stopped.

    :param sources: Tensors and variables.
    :param persistent: Whether more than one gradient is wanted.
    """
    tape = tf.GradientTape(persistent, watch_accessed_variables=False)
    with recorded(), tape, _derivatives_taken(True):
        tape.watch(list(sources))
        yield tape


def constant(function: Function) -> Function:
    """Decorate a function whose results are constants for differentiation, and that
    opens no tape.

    No tape sees what it computes, which ``tf.stop_gradient`` does not achieve: where
    two of them watch, TensorFlow prepares derivatives of all loops while it traces.
    """

    @functools.wraps(function)
    def stopped(*arguments: Any, **options: Any) -> Any:
        with record.stop_recording():
            return function(*arguments, **options)

    return stopped  # type: ignore[return-value]


def without_gradient(function: Callable[[], Tensors]) -> Tensors:
    """Call a function whose results are constants for differentiation, without any
    record of how they came about: what it computes on the way is freed at once, in
    eager mode too.
    """
    with unrecorded(), _derivatives_taken(False):
        return tf.nest.map_structure(tf.stop_gradient, function())


@contextlib.contextmanager
def _derivatives_taken(taken: bool) -> Iterator[None]:
    """Note whether something is differentiated that is computed meanwhile."""
    token = _DERIVATIVES.set(taken)
    try:
        yield
    finally:
        _DERIVATIVES.reset(token)


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate as ``tf.custom_gradient`` does a function of tensors that gives a value
    and its gradient. Where no derivative is taken (:func:`without_gradient`) this adds
    no operations.
    """
    differentiable = tf.custom_gradient(function)

    @functools.wraps(function)
    def chosen(*arguments: tf.Tensor) -> Any:
        if _DERIVATIVES.get():
            return differentiable(*arguments)
        return function(*arguments)[0]

    return chosen
