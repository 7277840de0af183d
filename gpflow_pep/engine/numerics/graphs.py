"""
Graphs that are compiled for one use, and let go of after it.

Two tables of the process have entries for each graph that is ever made, and keep all of it: that of
TensorFlow, of the gradients of ``tf.custom_gradient``, and that of TensorFlow Probability, of the
values of transforms. A graph takes one to six megabytes, and a program that trains models in a loop
makes thousands.
"""

import functools
import gc
import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow.python.eager import record
from tensorflow.python.framework import ops

from .chunks import sizes_may_vary

Function = TypeVar("Function", bound=Callable[..., Any])

#: The beginning of names of gradients to which only their graph refers.
_ONE_USE = "CustomGradient-"


def without_collector(function: Function) -> Function:
    """
    Pause Python's search for garbage while a function is traced.

    The ten thousands of objects of a graph stay, but so many new ones start a search through all
    that is loaded, TensorFlow too, which takes about as long as tracing does. What came before is
    searched first, so that those of the graph are young for some time after it: their gradient is
    traced then.
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


def constant(function: Function) -> Function:
    """
    Decorate a function whose results are constants for differentiation.

    No tape sees what it computes, which ``tf.stop_gradient`` does not achieve: where two of them
    watch, TensorFlow prepares derivatives of all loops while it traces.
    """

    @functools.wraps(function)
    def unrecorded(*arguments: Any, **options: Any) -> Any:
        with record.stop_recording():
            return function(*arguments, **options)

    return unrecorded  # type: ignore[return-value]


def positions(condition: tf.Tensor) -> tf.Tensor:
    """List where a condition [N] holds; for XLA, which knows no sizes of data, everywhere."""
    everywhere = tf.range(tf.shape(condition)[0])
    return tf.boolean_mask(everywhere, condition) if sizes_may_vary() else everywhere


class OneUseGraphs:
    """
    The graphs of some functions, none of which is differentiated from outside of its graph::

        with OneUseGraphs() as graphs:
            compiled = tf.function(graphs.tracked(function))

    They are released in the end, or with what has the functions: :meth:`release_with_owner`.
    """

    def __init__(self) -> None:
        self._graphs: list[tf.Graph] = []

    def __enter__(self) -> "OneUseGraphs":
        return self

    def __exit__(self, *_: Any) -> None:
        self.release()

    def tracked(self, function: Function) -> Function:
        """Wrap what is to be compiled, and to be called in no graph that outlives these."""

        def of_graph(*arguments: Any) -> Any:
            self._note()
            return function(*arguments)

        return without_collector(of_graph)  # type: ignore[return-value]

    @tf.autograph.experimental.do_not_convert
    def _note(self) -> None:
        self._graphs.append(tf.compat.v1.get_default_graph())

    def release(self) -> None:
        """
        Take the graphs out of both tables.

        The functions can be called on, but their gradients no longer be taken. Functions that
        others have compiled and that were called, such as those of a user's kernel, keep theirs.
        """
        try:
            gradients = ops.gradient_registry._registry
            values = tfp.bijectors.Bijector._cache.storage
        except AttributeError:  # other versions, which may not need this
            return
        for name, entry in list(gradients.items()):
            if name.startswith(_ONE_USE) and self._has(_result(entry)):
                gradients.pop(name, None)
        for key in list(values):
            if self._has(key()):
                key.cancel()
                values.pop(key, None)
        self._graphs.clear()

    def release_with_owner(self, owner: object) -> None:
        """Release them when an object is collected, to which the functions do not refer."""
        weakref.finalize(owner, self.release).atexit = False

    def _has(self, tensors: Any) -> bool:
        """Whether they are of these graphs, of branches and loops in them or of their gradients."""
        graph = getattr(next(_symbolic(tensors), None), "graph", None)
        while graph is not None:
            if self._knows(graph):
                return True
            if type(graph) is tf.Graph:
                return False
            if type(graph) is tf.__internal__.FuncGraph:  # a function's own
                # That of the gradient of a function takes what it needs from the function's graph.
                return any(
                    self._knows(tensor.graph) for tensor in _symbolic(graph.external_captures)
                )
            graph = graph.outer_graph
        return False

    def _knows(self, graph: tf.Graph) -> bool:
        return any(graph is known for known in self._graphs)


def compiled(function: Function, owner: object = None, **options: Any) -> Any:
    """
    Compile a function without autograph, and release its graphs with their owner.

    :param owner: What has the function and is not part of its closure; None: the result itself.
    :param options: Of ``tf.function``.
    """
    graphs = OneUseGraphs()
    result = tf.function(graphs.tracked(function), autograph=False, **options)
    graphs.release_with_owner(result if owner is None else owner)
    return result


def _symbolic(tensors: Any) -> Iterator[tf.Tensor]:
    return (part for part in tf.nest.flatten(tensors) if tf.is_symbolic_tensor(part))


def _result(entry: Any) -> Any:
    """Find the result of the function whose gradient an entry of TensorFlow's table is."""
    result = entry.get("type")
    for name in ("tape_grad_fn", "result"):
        if not inspect.isfunction(result):
            return None
        free = zip(result.__code__.co_freevars, result.__closure__ or ())
        result = {key: cell.cell_contents for key, cell in free}.get(name)
    return result
