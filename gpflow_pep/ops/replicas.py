"""Sums over the rows of all processes, where each process holds a shard of them.

Inside :func:`reducing` the sums, maxima and conditions of this module are those of all processes
of a ``tf.distribute`` strategy, by its collective operations; elsewhere they are those of this
process. All processes must compute the same in the same order: whatever decides how a computation
goes on has to be reduced before.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import tensorflow as tf


class _Processes(NamedTuple):
    strategy: tf.distribute.Strategy
    size: int
    number: int


_current: ContextVar[_Processes | None] = ContextVar("_current", default=None)


def local_replicas(strategy: tf.distribute.Strategy) -> list[int]:
    """
    Numbers of the replicas in this process, among those of all processes.

    :param strategy: A strategy, also inside a graph.
    """
    with tf.init_scope():
        numbers = strategy.experimental_distribute_values_from_function(
            lambda context: context.replica_id_in_sync_group
        )
        return list(map(int, strategy.experimental_local_results(numbers)))


@contextmanager
def reducing(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """
    Compute over the shards of all processes.

    :param strategy: A strategy with one replica in each process.
    """
    (number,) = local_replicas(strategy)
    size = int(strategy.num_replicas_in_sync)
    token = _current.set(_Processes(strategy, size, number) if size > 1 else None)
    try:
        yield
    finally:
        _current.reset(token)


def count() -> int:
    """How many processes hold a shard; 1 outside of :func:`reducing`."""
    processes = _current.get()
    return processes.size if processes else 1


def total(tensors: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
    """
    Sum tensors over processes; all in one message.

    The gradient is that of the sum over processes of what each computes from the totals: what
    arrives from above is summed over processes too.

    :param tensors: Of one float, with the same shapes in all processes.
    """
    processes = _current.get()
    if processes is None:
        return tuple(tensors)

    @tf.custom_gradient
    def summed(*tensors: tf.Tensor) -> tuple[Sequence[tf.Tensor], Callable[..., Any]]:
        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)
        sums = tf.split(
            processes.strategy.reduce("SUM", flat, axis=None), [tf.size(t) for t in tensors]
        )
        return [
            tf.ensure_shape(tf.reshape(part, tf.shape(tensor)), tensor.shape)
            for part, tensor in zip(sums, tensors, strict=True)
        ], lambda *upstream: summed(*upstream)

    return tuple(summed(*tensors))


def largest(values: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
    """
    Find the largest over processes of each of some numbers; not for differentiation.

    :param values: Numbers [] of one float, infinity included.
    """
    processes = _current.get()
    if processes is None:
        return tuple(values)
    # A strategy has no maximum, but a sum: each process has a column of its own in it.
    own = tf.one_hot(processes.number, processes.size, True, False, dtype=tf.bool)
    column = tf.stack(values)[:, None]
    (table,) = total([tf.where(own, column, tf.zeros_like(column))])
    return tuple(tf.unstack(tf.stop_gradient(tf.reduce_max(table, axis=1)), len(values)))


def everywhere(condition: tf.Tensor) -> tf.Tensor:
    """
    Whether a condition [] holds in all processes.

    :param condition: A truth value.
    """
    (violations,) = total([tf.cast(~condition, tf.float32)])
    return tf.equal(tf.stop_gradient(violations), 0.0)


def known_total(size: int | None) -> float:
    """
    Sum a number that is known before a graph runs over processes; infinity where one is not.

    :param size: The number of this process, or None where it is not known.
    """
    own = math.inf if size is None else float(size)
    if _current.get() is None:
        return own
    with tf.init_scope():
        return float(total([tf.constant(own, tf.float64)])[0])
