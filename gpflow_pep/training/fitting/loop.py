"""Training with minibatches: with held-out evaluation, early stopping, checkpoints and
TensorBoard.

:func:`fit` is a loop of compiled steps: the next batch, the gradient of its estimate of
the training loss, and a step of the optimiser. If a checkpoint directory is given, it
has the whole state of the loop. If the process is killed, the same call continues and
gives the same numbers.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras
from gpflow.base import RegressionData
from gpflow.models import GPModel
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin

from ...engine.checks import (
    as_code,
    as_pair,
    check_callable,
    check_positive,
    check_real,
    check_seed,
    counted,
    reason,
    refusal,
    require_finite,
)
from ...engine.numerics.chunks import Epochs, shuffled_rows
from ...engine.numerics.graphs import without_collector
from ...engine.prior.evaluate import is_plain
from ...models import PEP
from ...models.minibatch import BatchLoss
from .distributed import Replicas
from .full_batch import bar
from .history import EarlyStopping, Evaluation, FitRecord, History, resumed, scalars
from .natural import Length, NaturalGradients, natural_training
from .objectives import assign, state_of, variables_of_optimizer

ADVICE = "The step was too long, or started from parameters that the data contradict."
REMEDY = (
    "The optimizer did not make this step. Lower the learning rate, clip gradients"
    " (the optimizer's clipnorm), or start from other parameters; look at the batch"
    " if its data are at fault."
)


def shuffled_batches(data: RegressionData, batch_size: int, *, seed: int) -> Epochs:
    """Make batches for :func:`fit` from rows in memory, in another order in each epoch.

    :param data: X [N, D] and Y [N, P].
    :param batch_size: The number of rows in a batch. Rows that do not fill a batch wait
        for another epoch.
    :param seed: Seed of the batches: the same seed gives the same batches, in any
        process.
    :return: A function of the number of the epoch.
    :raises ValueError: If the batch size is not a positive integer, or if it is larger
        than the number of rows.
    """
    X, Y = as_pair(data)
    check_positive("batch_size", batch_size)
    check_seed(seed)
    if 0 in (X.shape.rank, Y.shape.rank) or not batch_size <= len(X) == len(Y):
        got = (
            f"X of shape {tuple(X.shape)} and Y of shape {tuple(Y.shape)} for"
            " batches of"
        )
        got += f" {counted(batch_size, 'row')}"
        remedy = "Pass X and Y of the same rows, or a smaller batch_size."
        raise refusal(
            "data",
            got,
            "the same number of rows in both, and at least one batch",
            remedy,
        )
    rows = shuffled_rows(len(X), batch_size, seed)

    @tf.autograph.experimental.do_not_convert
    def gathered(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(X, index), tf.gather(Y, index)

    return lambda number: rows(number).map(gathered)


def fit(
    model: GPModel,
    batches: tf.data.Dataset | Epochs | BatchLoss,
    *,
    num_steps: int,
    optimizer: tf_keras.optimizers.Optimizer,
    natural_gradient: bool | Length | gpflow.optimizers.NaturalGradient | None = None,
    evaluate: Callable[[GPModel], Mapping[str, float]] | None = None,
    evaluate_every: int = 100,
    early_stopping: EarlyStopping | None = None,
    checkpoint_dir: str | PathLike[str] | None = None,
    checkpoint_every: int = 100,
    log_dir: str | PathLike[str] | None = None,
    log_every: int = 10,
    progress: bool = True,
    strategy: tf.distribute.Strategy | None = None,
) -> FitRecord:
    """Train a model with minibatches::

        batches = pep.training.shuffled_batches((X, Y), 200, seed=0)
        optimizer = tf_keras.optimizers.Adam(0.01)
        record = pep.training.fit(model, batches, num_steps=2000, optimizer=optimizer)

    :param model: A model that gets its data in batches, such as ``ARPEP`` or
        ``gpflow.models.SVGP``; or ``PEP``; or ``PEPRegression`` with near rows.
    :param batches: The batches; each step uses one. For ``PEP`` pass its
        ``minibatch_training_loss_closure``; for ``PEP`` and ``PEPRegression`` with near
        rows, their ``near_row_training_loss_closure``. For other models pass a
        ``tf.data.Dataset`` of batches (X, Y), which is read again when it ends, or a
        function that returns the dataset of an epoch by its number, such as
        :func:`shuffled_batches`. A run that resumes reads its epoch again and skips the
        batches it had: the numbers are the same if the batches are.
    :param num_steps: The total number of steps, including those before resuming.
    :param optimizer: Any optimizer of ``tf_keras.optimizers``, with a learning rate or
        a schedule.
    :param natural_gradient: How ``q_mu`` and ``q_sqrt`` are trained in models that have
        such parameters; the optimiser trains the other parameters. A number in (0, 1],
        or a schedule of it, is the length of a step along the natural gradient, which
        is shortened if q would become improper or move too far
        (:func:`gpflow_pep.training.fitting.natural.natural_step`). This step uses the
        gradient of the optimiser's step and costs little. True selects 0.1. GPflow's
        ``NaturalGradient`` makes a step before each step of the optimiser, with a
        separate gradient; if q would become improper, training stops.
    :param evaluate: A function of the model that computes held-out metrics. Its changes
        to the model are undone.
    :param evaluate_every: The number of steps between evaluations.
    :param early_stopping: When to stop; it needs ``evaluate``. In the end the model
        gets the parameters of the best evaluation, whether or not training stopped
        early.
    :param checkpoint_dir: The folder for the state of the run. If it has a checkpoint,
        the run resumes: the model and the optimiser get its values.
    :param checkpoint_every: The number of steps between checkpoints; the last step also
        writes one.
    :param log_dir: The folder for scalars of TensorBoard: loss, seconds of a step,
        metrics.
    :param log_every: The number of steps between scalars of the loss.
    :param progress: Whether to show a progress bar on stderr.
    :param strategy: A ``tf.distribute.MirroredStrategy`` or
        ``MultiWorkerMirroredStrategy``, under whose ``scope()`` the model and the
        optimiser were made. Each replica computes its share of the rows of every batch,
        and a step equals the step of one process with the whole batch. All processes
        make the same call; only the chief writes files, and its metrics are used.
    :raises ValueError: If a number is not a positive integer, if the model cannot be
        trained in batches or has nothing to train, or if an argument is of another
        kind; also if the loss, a gradient or a metric becomes NaN or infinite, or if
        the model refuses a batch. The message gives the step.
    :raises OSError: If a checkpoint or scalars cannot be written. The model has the
        parameters of the newest step, and earlier checkpoints are kept.
    :raises RuntimeError: If another process of the strategy stopped.

    An interrupt (Ctrl-C) ends training after the running step. The model keeps the
    parameters of the newest step, and if there is a checkpoint directory, a checkpoint
    has them too.
    """
    every = _Every(evaluate_every, checkpoint_every, log_every)
    check_positive("num_steps", num_steps)
    every.check()
    check_callable(
        "evaluate", evaluate, "Pass a function of the model that returns metrics."
    )
    _check_stopping(early_stopping, evaluate, num_steps, evaluate_every)
    if not isinstance(optimizer, tf_keras.optimizers.Optimizer):
        expected = "one of tf_keras.optimizers (neither legacy nor of Keras 3)"
        remedy = "Pass tf_keras.optimizers.Adam(0.01), for example."
        raise refusal("optimizer", repr(optimizer), expected, remedy)
    loss, epochs = _loss_and_epochs(model, batches)
    natural = natural_training(model, natural_gradient)
    variables = variables_of_optimizer(model, natural.variables_of_q)
    if strategy is not None:
        _check_strategy(strategy, model, optimizer, batches, natural_gradient)
    replicas = Replicas(strategy)
    with replicas.scope():
        optimizer.build(variables)
    run = _Run(model, num_steps, early_stopping, replicas)
    history = run.history
    checkpoint = tf.train.Checkpoint(
        model=model,
        optimizer=optimizer,
        history=history,
        best=run.best,
        sums=batches.state if isinstance(batches, BatchLoss) else [],
    )
    save = resumed(checkpoint, checkpoint_dir if replicas.is_chief else None, history)
    if checkpoint_dir is not None:
        state = [*model.variables, *optimizer.variables, *run.best]
        replicas.copy_chief(state, history)

    def step(batch: Any) -> tf.Tensor:
        return _step(loss, batch, optimizer, variables, natural, replicas)

    take_step = tf.function(
        without_collector(lambda batch: replicas.run(lambda: step(batch))),
        input_signature=[epochs(history.epoch).element_spec],
        autograph=not is_plain(model),
    )
    stream = _stream(epochs, history.epoch, history.batches)
    with (
        scalars(log_dir if replicas.is_chief else None) as log,
        bar(progress and replicas.is_chief, num_steps) as show,
        replicas.waiting(),
        _saved_if_interrupted(save),
    ):
        if not run.is_over():
            # an interrupt during a step would wait for seconds
            take_step.get_concrete_function()
        run.take_steps(take_step, stream, every, evaluate, _Outputs(log, show, save))
    return run.finish()


class _Every(NamedTuple):
    """The numbers of steps between repetitions."""

    evaluate: int
    checkpoint: int
    log: int

    def check(self) -> None:
        for name, steps in self._asdict().items():
            check_positive(f"{name}_every", steps)


class _Outputs(NamedTuple):
    """The outputs of a run: scalars for TensorBoard, the progress bar, checkpoints."""

    log: Callable[[int, Mapping[str, float]], None]
    show: Callable[[int, Mapping[str, float]], None]
    save: Callable[[], None]


class _Run:
    """The state of :func:`fit`: the model, the history, and the rule for stopping."""

    def __init__(
        self,
        model: GPModel,
        num_steps: int,
        early_stopping: EarlyStopping | None,
        replicas: Replicas,
    ) -> None:
        self.model = model
        self.num_steps = num_steps
        self.replicas = replicas
        self.early_stopping = early_stopping
        self.history = History()
        self.state = state_of(model)
        state = self.state if early_stopping else ()
        self.best = [
            tf.Variable(tf.identity(v), trainable=False, shape=v.shape) for v in state
        ]

    @property
    def step(self) -> int:
        return self.history.num_steps

    def is_over(self) -> bool:
        return self.step >= self.num_steps or self.history.is_over(self.early_stopping)

    def take_steps(
        self,
        take_step: Callable[[Any], tf.Tensor],
        stream: Iterator[Any],
        every: _Every,
        evaluate: Callable[[GPModel], Mapping[str, float]] | None,
        outputs: _Outputs,
    ) -> None:
        """Take all steps, with evaluations, scalars and checkpoints between them."""
        history = self.history
        while True:
            if evaluate is not None and history.lacks_evaluation(every.evaluate):
                metrics = self.evaluate(evaluate)
                held_out = {f"held_out/{name}": m for name, m in metrics.items()}
                outputs.log(self.step, held_out)
            if history.losses:
                newest = history.evaluations[-1].metrics if history.evaluations else {}
                outputs.show(self.step, {"loss": history.losses[-1], **newest})
            if self.is_over():
                break
            if self.step % every.checkpoint == 0:
                outputs.save()
            seconds = self.advance(take_step, stream)
            if self.step % every.log == 0:
                scalars_of_step = {"loss": history.losses[-1], "step_seconds": seconds}
                outputs.log(self.step, scalars_of_step)
        outputs.save()

    def advance(
        self,
        take_step: Callable[[Any], tf.Tensor],
        stream: Iterator[tuple[Any, int, int]],
    ) -> float:
        """Take the next step, and return its time in seconds."""
        started = time.perf_counter()
        history = self.history
        batch, *place = next(stream)
        with _delay_interrupts():  # the variables and the history must stay consistent
            history.losses.append(_checked_loss(take_step, batch, self.step + 1))
            history.epoch, history.batches = place
            step_seconds = time.perf_counter() - started
            history.seconds += step_seconds
        return step_seconds

    def evaluate(
        self, evaluate: Callable[[GPModel], Mapping[str, float]]
    ) -> dict[str, float]:
        """Compute held-out metrics, and keep the parameters if they are the best so
        far.
        """
        started = time.perf_counter()
        history = self.history
        # Predictions of PEP move its sites. This must not change training.
        before = [tf.identity(variable) for variable in self.state]
        try:
            returned = evaluate(self.model)
        finally:
            with _delay_interrupts():
                assign(self.state, before)
        metrics = _as_metrics(returned, self.step, self.early_stopping)
        metrics = dict(zip(metrics, self.replicas.from_chief([*metrics.values()])))
        with _delay_interrupts():
            history.evaluations.append(Evaluation(self.step, metrics))
            if (
                self.early_stopping
                and history.best_step(self.early_stopping) == self.step
            ):
                assign(self.best, self.state)
            history.seconds += time.perf_counter() - started
        return metrics

    def finish(self) -> FitRecord:
        """Assign the best parameters to the model, if there is early stopping, and make
        the record.
        """
        history = self.history
        rule = self.early_stopping
        if rule and history.evaluations:
            assign(self.state, self.best)
        end = history.evaluations, history.best_step(rule), history.is_over(rule)
        return FitRecord(self.step, history.seconds, np.array(history.losses), *end)


def _stream(
    epochs: Epochs, epoch: int, num_read: int
) -> Iterator[tuple[Any, int, int]]:
    """Yield the batches of all epochs, each with its epoch and its number in the epoch
    (from 1).

    :param num_read: The number of batches of the first epoch that were used before and
        are skipped.
    """
    while True:
        for batch in epochs(epoch).skip(num_read).prefetch(tf.data.AUTOTUNE):
            num_read += 1
            yield batch, epoch, num_read
        if num_read == 0:
            remedy = "Check how the dataset is made."
            raise refusal(
                "batches", f"no batch in epoch {epoch}", "at least one", remedy
            )
        epoch = epoch + 1
        num_read = 0


def _step(
    loss: Callable[[Any], tf.Tensor],
    batch: Any,
    optimizer: tf_keras.optimizers.Optimizer,
    variables: Sequence[tf.Variable],
    natural: NaturalGradients,
    replicas: Replicas,
) -> tf.Tensor:
    """Take one step with one batch, and return the loss before the step."""
    natural.step_before(lambda: require_finite(loss(batch), "training loss", ADVICE))
    trained = [*variables, *natural.variables]
    share, weight = replicas.share(batch)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(trained)
        value = loss(share)
        value *= tf.cast(weight, value.dtype)
    gradients = tape.gradient(
        value, trained, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    # All replicas check the sums, with the same result.
    value, *gradients = replicas.total([value, *map(tf.convert_to_tensor, gradients)])
    value = require_finite(value, "training loss", ADVICE)
    finite = [
        require_finite(gradient, f"gradient of {variable.name}", ADVICE)
        for gradient, variable in zip(gradients, trained)
    ]
    # All gradients are checked before any variable changes.
    with tf.control_dependencies([value, *finite]):
        natural.step_beside(finite[len(variables) :], optimizer.iterations)
        if not variables:  # otherwise the optimizer would not count the step
            optimizer.iterations.assign_add(1)
        optimizer.apply_gradients(
            [(tf.identity(g), v) for g, v in zip(finite, variables)],
            skip_gradients_aggregation=True,
        )
    return value


def _checked_loss(
    take_step: Callable[[Any], tf.Tensor], batch: Any, step: int
) -> float:
    """Take a step and return its loss, or raise an error with the reason and the number
    of the step.
    """
    try:
        return float(take_step(batch))
    except tf.errors.InvalidArgumentError as error:
        cause = reason(error)
    raise ValueError(f"Training stopped at step {step}. {cause.rstrip('. ')}. {REMEDY}")


@contextmanager
def _delay_interrupts() -> Iterator[None]:
    """Delay an interrupt (Ctrl-C) until the block is left. A second interrupt is not
    delayed.

    Only the main thread gets interrupts. A handler of the user stays in place.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if received:
        raise KeyboardInterrupt


def _check_stopping(
    rule: EarlyStopping | None, evaluate: Any, num_steps: int, evaluate_every: int
) -> None:
    """Refuse early stopping that would have no effect."""
    if rule is None:
        return
    if not isinstance(rule, EarlyStopping):
        remedy = "Pass EarlyStopping('nlpd', patience=5), for example."
        expected = "gpflow_pep.training.EarlyStopping or None"
        raise refusal("early_stopping", repr(rule), expected, remedy)
    if evaluate is None or evaluate_every > num_steps:
        got = "no evaluate" if evaluate is None else f"evaluate_every={evaluate_every}"
        got += f" with {counted(num_steps, 'step')}"
        remedy = "Pass evaluate, and evaluate_every of at most num_steps."
        raise refusal(
            "early_stopping", got, "evaluations, which early stopping uses", remedy
        )
    check_positive("early_stopping.patience", rule.patience)
    check_real(
        "early_stopping.min_delta",
        rule.min_delta,
        "[0, inf]",
        "0 accepts any improvement.",
    )


def _as_metrics(
    returned: Any, step: int, rule: EarlyStopping | None
) -> dict[str, float]:
    """Convert metrics that a function of the user returned to numbers by name; refuse
    other results.
    """
    try:
        metrics = {str(name): float(value) for name, value in returned.items()}
    except (AttributeError, TypeError, ValueError) as error:
        got = f"a function that returned {as_code(returned)}"
        expected = "numbers by name"
        raise refusal(
            "evaluate", got, expected, "Return {'nlpd': 0.7}, for example."
        ) from error
    for name, value in metrics.items():
        if not np.isfinite(value):
            name = f"Training stopped at step {step}. Metric '{name}'"
            remedy = (
                "Look at the predictions of the held-out rows, or lower the learning"
                " rate."
            )
            raise refusal(name, value, "a finite number", remedy)
    if rule and rule.metric not in metrics:
        got = f"the metric '{rule.metric}'"
        expected = f"a metric that evaluate returns: {', '.join(metrics) or 'none'}"
        raise refusal("early_stopping", got, expected, "Choose one of them.")
    return metrics


def _loss_and_epochs(
    model: GPModel, batches: tf.data.Dataset | Epochs | BatchLoss
) -> tuple[Callable[[Any], tf.Tensor], Epochs]:
    """Find the training loss of a batch, and the batches of each epoch."""
    if isinstance(batches, BatchLoss):
        if batches.model is not model:
            got = "the minibatch loss of another model"
            remedy = "Call this model's minibatch_training_loss_closure."
            raise refusal("batches", got, "the minibatch loss of this model", remedy)
        return batches.of_batch, batches.epoch
    if not isinstance(model, ExternalDataTrainingLossMixin):
        remedy = "Train it with gpflow_pep.training.maximise."
        if isinstance(model, PEP):
            remedy = (
                "Pass model.minibatch_training_loss_closure(batch_size, seed=0) as"
                " batches."
            )
        got = f"{type(model).__name__}, which holds its data, with batches of data"
        raise refusal("model", got, "a model that gets its data with each call", remedy)
    if isinstance(batches, tf.data.Dataset):
        dataset = batches
        return model.training_loss, lambda number: dataset
    if not callable(batches):
        expected = "a tf.data.Dataset or a function of the epoch that returns one"
        remedy = "gpflow_pep.training.shuffled_batches makes one of arrays."
        raise refusal("batches", type(batches).__name__, expected, remedy)
    return model.training_loss, batches


def _check_strategy(
    strategy: Any, model: GPModel, optimizer: Any, batches: Any, natural_gradient: Any
) -> None:
    """Refuse a model, optimizer or batches that a strategy does not mirror over its
    replicas.
    """
    kinds = tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy
    if not isinstance(strategy, kinds):
        expected = (
            "tf.distribute.MirroredStrategy or"
            " tf.distribute.MultiWorkerMirroredStrategy"
        )
        raise refusal(
            "strategy", type(strategy).__name__, expected, "Pass one of them, or None."
        )
    if isinstance(batches, BatchLoss):
        got = "a strategy for minibatches of PEP, whose sites belong to one process"
        remedy = "Train ARPEP, APEP or RPAPEP."
        raise refusal(
            "strategy", got, "a model that gets its data with each call", remedy
        )
    if natural_gradient is not None:
        expected = (
            "None, because each replica would assign q_mu and q_sqrt, which variables"
            " of a strategy refuse"
        )
        raise refusal(
            "natural_gradient",
            "a natural gradient under a strategy",
            expected,
            "Leave it out.",
        )
    if getattr(model, "num_data", 0) is None:
        got = f"{type(model).__name__} with num_data=None under a strategy"
        expected = (
            "the number of rows of the whole data set: a replica sees a share of a"
            " batch"
        )
        raise refusal("model", got, expected, "Pass num_data.")
    _check_scope(strategy, model, optimizer)


def _check_scope(strategy: Any, model: GPModel, optimizer: Any) -> None:
    """Refuse variables of a model or an optimizer that a strategy does not mirror."""
    created_in_scope = strategy.extended.variable_created_in_scope
    for name, variables in (
        ("model", model.variables),
        ("optimizer", optimizer.variables),
    ):
        if not all(map(created_in_scope, variables)):
            raise refusal(
                name,
                "an object made outside the strategy",
                "a model and an optimizer made in its scope",
                "Make the model and the optimizer under `with strategy.scope():`.",
            )
    for variable in model.variables:
        # GPflow records it in a way that variables of a strategy ignore.
        if vars(variable).get("_trainable", variable.trainable) != variable.trainable:
            raise refusal(
                "model",
                f"set_trainable on {variable.name}",
                "a parameter made with trainable=False, because set_trainable has no"
                " effect under a strategy",
                "Replace the parameter, under the scope: kernel.variance ="
                " gpflow.Parameter(kernel.variance, trainable=False).",
            )


@contextmanager
def _saved_if_interrupted(save: Callable[[], None]) -> Iterator[None]:
    """Write a checkpoint if an interrupt leaves the block."""
    try:
        yield
    except KeyboardInterrupt:
        save()
        raise
