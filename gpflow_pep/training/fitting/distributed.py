"""The replicas of a ``tf.distribute`` strategy, which share the rows of a batch.

See the ``strategy`` of :func:`fit <gpflow_pep.training.fitting.loop.fit>`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from ...engine.checks import message, require
from .history import History


def _local_replicas(strategy: tf.distribute.Strategy) -> list[int]:
    """Find the numbers of the replicas in this process among all replicas; also in a
    graph.
    """
    with tf.init_scope():
        numbers = strategy.experimental_distribute_values_from_function(
            lambda context: context.replica_id_in_sync_group
        )
        return list(map(int, strategy.experimental_local_results(numbers)))


class Replicas:
    """The replicas of a ``tf.distribute`` strategy; without one, this process alone.

    Each replica gets its share of the rows of a batch. A training loss is a mean over
    rows plus terms that are the same for all rows. Therefore the mean of the replicas'
    losses and gradients, weighted by their numbers of rows, is the loss and gradient of
    the joint batch.

    :param strategy: Mirrored or MultiWorkerMirrored, or None.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None) -> None:
        self._strategy = strategy
        local = [0] if strategy is None else _local_replicas(strategy)
        self._several_processes = strategy is not None and len(local) < self._count
        self.is_chief = 0 in local
        """Whether this process writes files."""

    @property
    def _count(self) -> int:
        return 1 if self._strategy is None else int(self._strategy.num_replicas_in_sync)

    def scope(self) -> AbstractContextManager[Any]:
        """Enter the scope in which replicas mirror new variables."""
        return nullcontext() if self._strategy is None else self._strategy.scope()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for other processes. If one has stopped, raise an error with a
        remedy.
        """
        try:
            yield
        except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            if not self._several_processes:
                raise
            got = "no answer from another process"
            remedy = (
                "The message of that process, or its host, gives the reason. Start"
                " all processes again; with"
            )
            remedy += " checkpoint_dir the run resumes."
            text = message("strategy", got, "that all of them train on", remedy)
            raise RuntimeError(text) from error

    def run(self, function: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Run a function that has the same result in all replicas."""
        if self._strategy is None:
            return function()
        return self._strategy.experimental_local_results(self._strategy.run(function))[
            0
        ]

    def share(self, batch: Any) -> tuple[Any, tf.Tensor | float]:
        """Select the rows of a batch for the present replica, and compute their
        fraction of all rows.
        """
        if self._strategy is None:
            return batch, 1.0
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        size = tf.shape(tf.nest.flatten(batch)[0])[0]
        got = f"a batch with fewer rows than the {self._count} replicas"
        text = message(
            "batches", got, "at least one row for each replica", "Make larger batches."
        )
        with tf.control_dependencies(require(size >= self._count, text)):
            start, stop = (size * k // self._count for k in (replica, replica + 1))
        share = tf.nest.map_structure(lambda values: values[start:stop], batch)
        return share, tf.cast(stop - start, tf.float64) / tf.cast(size, tf.float64)

    def total(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sum over replicas."""
        if self._strategy is None:
            return list(tensors)
        return list(
            tf.distribute.get_replica_context().all_reduce("SUM", list(tensors))
        )

    def from_chief(self, values: Sequence[Any]) -> list[Any]:
        """Send the chief's numbers to all processes. All of them pass numbers of the
        same shapes.
        """
        if not self._several_processes:
            return list(values)
        # TensorFlow reads Python's floats as float32.
        tensors = [
            tf.convert_to_tensor(
                np.float64(value) if isinstance(value, float) else value
            )
            for value in values
        ]

        def chosen() -> list[tf.Tensor]:
            is_chief = tf.equal(
                tf.distribute.get_replica_context().replica_id_in_sync_group, 0
            )
            terms = [
                tf.where(is_chief, value, tf.zeros_like(value)) for value in tensors
            ]
            # One at a time, because each has its own type.
            return [self.total([term])[0] for term in terms]

        def on_all() -> list[tf.Tensor]:
            assert self._strategy is not None  # for mypy
            results = self._strategy.run(chosen)
            return [
                self._strategy.experimental_local_results(result)[0]
                for result in results
            ]

        results = [result.numpy() for result in tf.function(on_all, autograph=False)()]
        return [result if result.shape else result.item() for result in results]

    def copy_chief(self, variables: Sequence[tf.Variable], history: History) -> None:
        """Copy the values that the chief read from its checkpoint to all processes."""
        if not self._several_processes:
            return
        for variable, value in zip(variables, self.from_chief(variables), strict=True):
            variable.assign(value)
        record = np.frombuffer(history.serialize(), np.uint8).astype(np.int32)
        (size,) = self.from_chief([len(record)])
        (content,) = self.from_chief([np.resize(record, size)])
        history.deserialize(content.astype(np.uint8).tobytes())
