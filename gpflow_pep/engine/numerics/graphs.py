"""Functions that are compiled.

TensorFlow and TensorFlow Probability keep each graph that is ever made, until the
process ends: their tables of the gradients of ``tf.custom_gradient`` and of the values
of transforms refer to it.
"""

import functools
import gc
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from .chunks import sizes_may_vary

Function = TypeVar("Function", bound=Callable[..., Any])


def without_collector(function: Function) -> Function:
    """Pause Python's search for garbage while a function is traced.

    A graph has tens of thousands of objects, none of which is garbage. But so many new
    objects start a search through all objects of the process, with TensorFlow's, which
    takes about as long as the tracing. Older objects are searched before, so that the
    objects of the graph stay young for some time afterwards, while the gradient is
    traced.
    """

    @functools.wraps(function)
    def paused(*arguments: Any, **options: Any) -> Any:
        if not gc.isenabled():
            return function(*arguments, **options)
        gc.collect(1)
        gc.disable()
        try:
            return function(*arguments, **options)
        finally:
            gc.enable()

    return paused  # type: ignore[return-value]


def positions(condition: tf.Tensor) -> tf.Tensor:
    """List the rows where a condition [N] holds; all rows for XLA, where sizes are
    static.
    """
    if sizes_may_vary():
        return tf.cast(tf.squeeze(tf.where(condition), axis=1), tf.int32)
    return tf.range(tf.shape(condition)[0])


def compiled(function: Function, **options: Any) -> Any:
    """Compile a function without autograph; see this module for how long its graph
    stays.
    """
    return tf.function(without_collector(function), autograph=False, **options)
