"""The state and the output of a training run: record, checkpoints and scalars."""

import dataclasses
import importlib.util
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ...engine.checks import message, reason, refusal


class EarlyStopping(NamedTuple):
    """Stop when a held-out metric does not improve, and keep the best parameters."""

    metric: str  #: The name of the metric in the result of ``evaluate``.
    #: The number of evaluations without a better value after which training stops.
    patience: int
    min_delta: float = 0.0  #: By how much a value must be better to count.
    larger_is_better: bool = (
        #: Whether larger values are better, as for an accuracy; for a loss smaller
        #: values are.
        False
    )


class Evaluation(NamedTuple):
    """Held-out metrics, and the number of steps after which they were computed."""

    step: int
    metrics: dict[str, float]


class FitRecord(NamedTuple):
    """The record of :func:`fit`, including earlier runs if it resumed."""

    num_steps: int
    seconds: float
    losses: AnyNDArray  #: The batch's estimate of the training loss at each step.
    evaluations: list[Evaluation]
    #: The number of steps after which the model had its parameters, with early
    #: stopping.
    best_step: int | None
    stopped_early: bool


@dataclasses.dataclass(eq=False)
class History(tf.train.experimental.PythonState):
    """The history of a run and its position in the batches; part of a checkpoint."""

    epoch: int = 0
    batches: int = 0  #: The number of batches of this epoch that were used.
    seconds: float = 0.0
    losses: list[float] = dataclasses.field(default_factory=list)
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list)

    @property
    def num_steps(self) -> int:
        return len(self.losses)

    def serialize(self) -> bytes:
        fields = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self)
        }
        return json.dumps(fields).encode()

    def deserialize(self, string_value: bytes) -> None:
        for name, value in json.loads(string_value).items():
            setattr(self, name, value)
        self.evaluations = [Evaluation(*evaluation) for evaluation in self.evaluations]

    def lacks_evaluation(self, every: int) -> bool:
        """Whether an evaluation is due after this step and has not been done yet."""
        due = self.num_steps > 0 and self.num_steps % every == 0
        return due and not (
            self.evaluations and self.evaluations[-1].step == self.num_steps
        )

    def _best(self, rule: EarlyStopping) -> int | None:
        """
        Find the index of the best evaluation: the last one that was better than the
        best one before it by the required difference. None if there are no evaluations.
        """
        sign = -1.0 if rule.larger_is_better else 1.0
        best = None
        lowest = np.inf
        for index, evaluation in enumerate(self.evaluations):
            value = sign * evaluation.metrics[rule.metric]
            if best is None or value < lowest - rule.min_delta:
                best = index
                lowest = value
        return best

    def best_step(self, rule: EarlyStopping | None) -> int | None:
        """Count the steps before the best evaluation."""
        best = self._best(rule) if rule else None
        return None if best is None else self.evaluations[best].step

    def is_over(self, rule: EarlyStopping | None) -> bool:
        """Whether training has to stop because evaluations do not improve."""
        best = self._best(rule) if rule else None
        if rule is None or best is None:
            return False
        return len(self.evaluations) > best + rule.patience


def resumed(
    checkpoint: tf.train.Checkpoint,
    directory: str | PathLike[str] | None,
    history: History,
) -> Callable[[], None]:
    """Restore the newest checkpoint if there is one. Return a function that writes the
    next one.
    """
    if directory is None:
        return lambda: None
    _check_writable("checkpoint_dir", directory)
    for name in tf.io.gfile.listdir(str(directory)):
        # A folder that TensorFlow was still writing when a run was killed. On some file
        # systems its name ends with a slash.
        unfinished = os.path.join(str(directory), name)
        if re.fullmatch(r"ckpt-\d+_temp/?", name) and tf.io.gfile.isdir(unfinished):
            tf.io.gfile.rmtree(unfinished)
    manager = tf.train.CheckpointManager(checkpoint, str(directory), max_to_keep=2)
    if manager.latest_checkpoint:
        try:
            checkpoint.restore(
                manager.latest_checkpoint
            ).assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            got = (
                f"{manager.latest_checkpoint}, which does not fit"
                f" ({str(error).splitlines()[0]})"
            )
            expected = (
                "a checkpoint of the same model, optimizer, kind of batches and early"
                " stopping"
            )
            remedy = "Choose another directory to start from the beginning."
            raise refusal("checkpoint_dir", got, expected, remedy) from error

    def save() -> None:
        step = history.num_steps
        newest = manager.latest_checkpoint or ""
        if step == 0 or newest.endswith(f"-{step}"):
            return
        with _written("checkpoint_dir", directory):
            manager.save(checkpoint_number=step)

    return save


def _check_writable(name: str, directory: str | PathLike[str]) -> None:
    """Refuse a folder that cannot be written, before training and not after hours of
    it.
    """
    probe = f"{directory}/.gpflow_pep-{uuid.uuid4().hex}"
    try:
        tf.io.gfile.makedirs(str(directory))
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("x")
        tf.io.gfile.remove(probe)
    except tf.errors.OpError as error:
        got = f"{directory}, which cannot be written to ({reason(error)})"
        expected = "a folder, or the name of a new one"
        raise refusal(
            name, got, expected, "Choose another folder, or free some space."
        ) from error


@contextmanager
def scalars(
    directory: str | PathLike[str] | None,
) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """Write scalars for TensorBoard."""
    if directory is None:
        yield lambda step, values: None
        return
    if importlib.util.find_spec("tensorboard") is None:
        expected = "tensorboard, with which TensorFlow writes scalars"
        raise refusal(
            "log_dir", directory, expected, "Install tensorboard, or leave out log_dir."
        )
    _check_writable("log_dir", directory)
    writer = tf.summary.create_file_writer(str(directory))

    def write(step: int, values: Mapping[str, float]) -> None:
        with _written("log_dir", directory), writer.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    try:
        yield write
    finally:
        with _written("log_dir", directory):
            writer.close()


@contextmanager
def _written(name: str, directory: str | PathLike[str]) -> Iterator[None]:
    """Convert errors of TensorFlow in writing to OSErrors with a remedy."""
    try:
        yield
    except tf.errors.OpError as error:
        text = message(
            name,
            f"an error when writing to {directory} ({reason(error)})",
            "a folder with space to write into",
            "The model has the parameters of the newest step, and earlier files are"
            " kept. Free some space, or choose another directory.",
        )
        raise OSError(text) from error
