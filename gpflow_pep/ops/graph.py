"""Graphs traced without AutoGraph, whose conversion of Python code takes most of the time.

The package needs none of it, nor do GPflow and its bijectors. A user's own kernel or mean function
may.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

Function = TypeVar("Function", bound=Callable[..., Any])

_NEED_NONE = ("gpflow", "gpflow_pep", "tensorflow_probability")


def unconverted(function: Function) -> Function:
    """Decorate a function that AutoGraph is to leave alone, with all that it calls."""
    decorated: Function = tf.autograph.experimental.do_not_convert(function)
    return decorated


def converted_for(parts: Sequence[Any], function: Function) -> Function:
    """
    Bring AutoGraph back where the code of parts of the model may need it: where one of them, or a
    part of it, is neither GPflow's nor of this package.

    :param parts: Kernels, mean functions, likelihoods, inducing variables.
    :param function: A function that calls them; defined at the top of a module.
    """
    if tf.executing_eagerly() or all(map(needs_none, parts)):
        return function
    converted: Function = tf.autograph.to_graph(function)
    return converted


def needs_none(part: Any) -> bool:
    """
    Whether a part of a model, or a whole one, is GPflow's or of this package with all that it has.

    :param part: Anything; the parts of a ``tf.Module`` are looked at as well.
    """
    parts = (part, *part.submodules) if isinstance(part, tf.Module) else (part,)
    return all(type(one).__module__.partition(".")[0] in _NEED_NONE for one in parts)
