"""Full-batch models of which each process holds a shard of the rows.

The energies of :class:`~gpflow_pep.models.PEPRegression` and :class:`~gpflow_pep.models.PEP` need
the rows by sums only. So each process of a ``tf.distribute.MultiWorkerMirroredStrategy`` makes the
same model of other rows, and TensorFlow's collective operations add the sums up: log Z, gradient
and q(u) are those of one process with all rows, whose data no machine has to hold::

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # reads TF_CONFIG
    model = pep.models.PEPRegression(rows_of_this_process, kernel, Z)
    loss = pep.training.sharded_training_loss(model, strategy)
    gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables)
    with pep.training.sharded(model, strategy):
        posterior = model.posterior()

Training by minibatches is another matter, see the ``strategy`` of
:func:`fit <gpflow_pep.training.fitting.loop.fit>`.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from zlib import crc32

import numpy as np
import tensorflow as tf

from ...engine.checks import message, refusal, require
from ...engine.numerics.chunks import LOCAL, Reduction, Tensors, without_gradient
from ...models.base import InternalDataModel
from .history import History


def _local_replicas(strategy: tf.distribute.Strategy) -> list[int]:
    """Find the numbers of the replicas in this process, among those of all; also in a graph."""
    with tf.init_scope():
        numbers = strategy.experimental_distribute_values_from_function(
            lambda context: context.replica_id_in_sync_group
        )
        return list(map(int, strategy.experimental_local_results(numbers)))


class Shards(Reduction):
    """The sums of all processes of a strategy, by its collective operations."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        self.count = int(strategy.num_replicas_in_sync)
        (self._number,) = _local_replicas(strategy)

    def total(self, tensors: Tensors) -> Tensors:

        @tf.custom_gradient
        def summed(*tensors: tf.Tensor) -> tuple[Sequence[tf.Tensor], Callable[..., Any]]:
            flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)
            sums = tf.split(
                self._strategy.reduce("SUM", flat, axis=None), [tf.size(t) for t in tensors]
            )
            return [
                tf.ensure_shape(tf.reshape(part, tf.shape(tensor)), tensor.shape)
                for part, tensor in zip(sums, tensors, strict=True)
            ], lambda *upstream: summed(*upstream)

        values = list(map(tf.convert_to_tensor, tf.nest.flatten(tensors)))
        return tf.nest.pack_sequence_as(tensors, list(summed(*values)))

    def largest(self, values: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        # A strategy has no maximum, but a sum: each process has a column of its own in it.
        here = tf.one_hot(self._number, self.count, True, False, dtype=tf.bool)
        column = tf.stack(values)[:, None]
        table = self.total(tf.where(here, column, tf.zeros_like(column)))
        return tf.unstack(tf.stop_gradient(tf.reduce_max(table, axis=1)), len(values))

    def all(self, condition: tf.Tensor) -> tf.Tensor:
        violations = self.total(tf.cast(~condition, tf.float32))
        return tf.equal(tf.stop_gradient(violations), 0.0)

    def known_total(self, size: int | None) -> float:
        with tf.init_scope():
            return float(self.total(tf.constant(super().known_total(size), tf.float64)))


@contextmanager
def sharded(model: InternalDataModel, strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Let a model compute with the rows of all processes; outside, it uses its own rows only.

    All processes must do the same inside, in the same order: each waits for the others. Functions
    compiled outside keep to the rows of their process, those compiled inside to the rows of all.
    What needs sums over rows works: log Z, ``predict_f`` and other predictions, ``posterior``,
    ``compute_qu``, ``surrogate``, ``upper_bound``, ``update_sites``; also ``loo_log_density``,
    which gives the values of the process's own rows. Minibatches do not. A posterior may be used
    outside, too, as long as its cache is not updated there.

    :param model: The model of this process.
    :param strategy: A ``tf.distribute.MultiWorkerMirroredStrategy`` with one device in each
        process.
    :raises ValueError: If it is no strategy, or there are several replicas in this process.
    """
    if not isinstance(strategy, tf.distribute.Strategy):
        expected = "a tf.distribute.MultiWorkerMirroredStrategy"
        remedy = "Pass one, or train without: gpflow_pep.training.maximise."
        raise refusal("strategy", repr(strategy), expected, remedy)
    local = _local_replicas(strategy)
    if len(local) != 1:
        got = f"{type(strategy).__name__} with {len(local)} replicas in this process"
        remedy = "Use tf.distribute.MultiWorkerMirroredStrategy and start a process for each device"
        remedy += " with tf.config.set_visible_devices; devices of one process need no shards."
        raise refusal("strategy", got, "one, because a model holds one shard of the rows", remedy)
    before = model.reduction
    model.reduction = Shards(strategy) if strategy.num_replicas_in_sync > 1 else LOCAL
    try:
        yield
    finally:
        model.reduction = before


def sharded_training_loss(
    model: InternalDataModel, strategy: tf.distribute.Strategy
) -> Callable[[], tf.Tensor]:
    """Create the training loss of the rows of all processes.

    It is what ``model.training_loss`` is for one process that has them all. Value and gradient are
    the same numbers in all processes, so that each runs the same optimiser on the same numbers,
    such as ``gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables)``, and ends with
    the same parameters. It is differentiable once, in the model's trainable variables.

    :param model: A ``PEPRegression``, ``PEP`` or ``PEPClassification`` with the rows of this
        process. All processes must have the same parameters; ``alpha`` for each row, ``blocks``
        and near rows are of their own, a block whole in one process.
    :param strategy: See :func:`sharded`.
    :raises ValueError: If the model holds no rows or has other parameters than those of another
        process, or the strategy has several replicas in this process.
    """
    if not isinstance(model, InternalDataModel):
        expected = "PEPRegression, PEP or PEPClassification, which hold their rows"
        remedy = "Train models that take batches with gpflow_pep.training.fit(strategy=...)."
        raise refusal("model", type(model).__name__, expected, remedy)
    with sharded(model, strategy):
        _check_same_class(model)
        _check_same_parameters(model)

    def value_and_gradient() -> list[tf.Tensor]:
        variables = model.trainable_variables
        with sharded(model, strategy):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                # What follows from the sums is computed in each process: a share of it in each.
                share = model.training_loss() / model.reduction.count
            gradient = tape.gradient(
                share, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            totals = model.reduction.total([share, *map(tf.convert_to_tensor, gradient)])
            return list(map(tf.stop_gradient, totals))

    @tf.autograph.experimental.do_not_convert
    def loss() -> tf.Tensor:
        eager = tf.executing_eagerly()
        function = value_and_gradient if eager else _traced_apart(value_and_gradient)
        value, *gradient = without_gradient(function)

        @tf.custom_gradient
        def with_gradient(*_: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
            return value, lambda upstream: [upstream * part for part in gradient]

        return with_gradient(*map(tf.convert_to_tensor, model.trainable_variables))

    return loss


def _traced_apart(function: Callable[[], list[tf.Tensor]]) -> Callable[[], list[tf.Tensor]]:
    """Trace a function in a thread of its own, which the tapes of this one do not see: where two of
    them watch, TensorFlow prepares gradients of all loops, and compiling takes ten times as long.
    """
    with ThreadPoolExecutor(1) as thread:
        compiled = tf.function(function, autograph=False)
        traced: Callable[[], list[tf.Tensor]] = thread.submit(
            compiled.get_concrete_function
        ).result()
    return traced


def _check_same_class(model: InternalDataModel) -> None:
    """Models of missing targets have other sums: processes would add up what is not the same."""
    kind = f"{type(model).__name__} {type(model.latents).__name__} {model.rows.cut.num_gapped}"
    number = tf.constant(float(crc32(kind.encode())), tf.float64)
    most, fewest = model.reduction.largest([number, -number])
    if most + fewest != 0.0:
        got = f"{type(model).__name__}, of another kind than the model of another process"
        expected = "the same, as where targets are missing in some rows of each"
        remedy = "Where all targets are there in one process and some are missing in another, give"
        remedy += " that process one row more, without targets (NaN): it adds nothing."
        raise refusal("model", got, expected, remedy)


def _check_same_parameters(model: InternalDataModel) -> None:
    """With other numbers in one process, that one would stop earlier, and others wait for ever."""
    numbers = [
        tf.cast(tf.reshape(variable, [-1]), tf.float64) for variable in model.trainable_variables
    ]
    parameters = tf.concat([tf.zeros([0], tf.float64), *numbers], axis=0)
    size = tf.cast(tf.size(parameters), tf.float64)
    most, fewest = model.reduction.largest([size, -size])
    same = most + fewest == 0.0
    if same:
        total = model.reduction.total(parameters)
        mean = total / model.reduction.count
        tolerance = 1e-12 * tf.abs(mean)
        same = model.reduction.all(tf.reduce_all(tf.abs(parameters - mean) <= tolerance))
    if not same:
        got = "other trainable parameters than those of another process"
        remedy = "Start from the same numbers everywhere: the same inducing inputs, seeds and"
        remedy += " initial values, none of them computed from this process's rows alone."
        raise refusal("model", got, "the same", remedy)


class Replicas:
    """The replicas of a ``tf.distribute`` strategy; without one, this process alone.

    Each replica takes its share of the rows of a batch. A training loss is a mean over rows and
    terms that are the same for all rows, so that the mean of the replicas' losses and gradients,
    weighted by their rows, is that of the joint batch.

    :param strategy: Mirrored or MultiWorkerMirrored, or None.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None) -> None:
        self._strategy = strategy
        local = [0] if strategy is None else _local_replicas(strategy)
        self._several_processes = strategy is not None and len(local) < self._count
        self.is_chief = 0 in local
        """Whether it is this process that writes."""

    @property
    def _count(self) -> int:
        return 1 if self._strategy is None else int(self._strategy.num_replicas_in_sync)

    def scope(self) -> AbstractContextManager[Any]:
        """Where variables are made that replicas mirror."""
        return nullcontext() if self._strategy is None else self._strategy.scope()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for other processes; where one has stopped, the error has a remedy."""
        try:
            yield
        except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            if not self._several_processes:
                raise
            got = "no answer from another process"
            remedy = "Its own message, or its host, has the reason. Start all of them again; with"
            remedy += " checkpoint_dir the run resumes."
            text = message("strategy", got, "that all of them train on", remedy)
            raise RuntimeError(text) from error

    def run(self, function: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Run a function in all replicas, which gives the same in all."""
        if self._strategy is None:
            return function()
        return self._strategy.experimental_local_results(self._strategy.run(function))[0]

    def share(self, batch: Any) -> tuple[Any, tf.Tensor | float]:
        """Take the rows of a batch for the present replica, and their fraction of all."""
        if self._strategy is None:
            return batch, 1.0
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        size = tf.shape(tf.nest.flatten(batch)[0])[0]
        got = f"one of fewer rows than the {self._count} replicas"
        text = message("batches", got, "at least as many", "Make larger batches.")
        with tf.control_dependencies(require(size >= self._count, text)):
            start, stop = (size * k // self._count for k in (number, number + 1))
        share = tf.nest.map_structure(lambda part: part[start:stop], batch)
        return share, tf.cast(stop - start, tf.float64) / tf.cast(size, tf.float64)

    def total(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sum over replicas."""
        if self._strategy is None:
            return list(tensors)
        return list(tf.distribute.get_replica_context().all_reduce("SUM", list(tensors)))

    def from_chief(self, values: Sequence[Any]) -> list[Any]:
        """Send the chief's numbers to all processes, which pass numbers of the same shapes."""
        if not self._several_processes:
            return list(values)
        # TensorFlow takes Python's floats for float32.
        tensors = [
            tf.convert_to_tensor(np.float64(value) if isinstance(value, float) else value)
            for value in values
        ]

        def chosen() -> list[tf.Tensor]:
            first = tf.equal(tf.distribute.get_replica_context().replica_id_in_sync_group, 0)
            terms = [tf.where(first, value, tf.zeros_like(value)) for value in tensors]
            return [self.total([term])[0] for term in terms]  # one at a time: each has its own type

        def on_all() -> list[tf.Tensor]:
            assert self._strategy is not None  # for mypy
            results = self._strategy.run(chosen)
            return [self._strategy.experimental_local_results(result)[0] for result in results]

        results = [result.numpy() for result in tf.function(on_all, autograph=False)()]
        return [result if result.shape else result.item() for result in results]

    def copy_chief(self, variables: Sequence[tf.Variable], history: History) -> None:
        """Give all processes what the chief read from its checkpoint."""
        if not self._several_processes:
            return
        for variable, value in zip(variables, self.from_chief(variables), strict=True):
            variable.assign(value)
        record = np.frombuffer(history.serialize(), np.uint8).astype(np.int32)
        (size,) = self.from_chief([len(record)])
        (content,) = self.from_chief([np.resize(record, size)])
        history.deserialize(content.astype(np.uint8).tobytes())
