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

    The ten thousands of objects of a graph stay, but so many new ones start a search
    through all that is loaded, TensorFlow too, which takes about as long as tracing
    does. What came before is searched first, so that those of the graph are young for
    some time after it: their gradient is traced then.
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
    """List where a condition [N] holds; for XLA, whose sizes are static, everywhere."""
    if sizes_may_vary():
        return tf.cast(tf.squeeze(tf.where(condition), axis=1), tf.int32)
    return tf.range(tf.shape(condition)[0])


def compiled(function: Function, **options: Any) -> Any:
    """Compile a function without autograph; see this module for how long its graph
    stays.
    """
    return tf.function(without_collector(function), autograph=False, **options)
