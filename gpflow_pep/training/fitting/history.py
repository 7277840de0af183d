"""What happened in training: the record, and what a run keeps to go on."""

import dataclasses
import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray


class EarlyStopping(NamedTuple):
    """Stop when a held-out metric gets no better, and keep the parameters that were best."""

    metric: str
    """Its name among those that ``evaluate`` returns."""

    patience: int
    """Stop after as many evaluations without a better value."""

    min_delta: float = 0.0
    """By how much a value must be better to count."""

    larger_is_better: bool = False
    """As for an accuracy; a loss is better where it is smaller."""


class Evaluation(NamedTuple):
    """Held-out metrics, and the number of steps after which they were computed."""

    step: int
    metrics: dict[str, float]


class FitRecord(NamedTuple):
    """The record of :func:`fit`, with that of the runs before where it resumed."""

    num_steps: int
    seconds: float
    losses: AnyNDArray
    """The batch's estimate of the training loss at each step."""

    evaluations: list[Evaluation]
    best_step: int | None
    """The steps that the model's parameters are of, with early stopping."""

    stopped_early: bool


def best_evaluation(evaluations: Sequence[Evaluation], rule: EarlyStopping) -> int | None:
    """
    Find the index of the evaluation that counts as the best, the last that was better than the one
    before it that was; None where there are none.
    """
    sign = -1.0 if rule.larger_is_better else 1.0
    best, lowest = None, np.inf
    for index, evaluation in enumerate(evaluations):
        value = sign * evaluation.metrics[rule.metric]
        if best is None or value < lowest - rule.min_delta:
            best, lowest = index, value
    return best


@dataclasses.dataclass(eq=False)
class History(tf.train.experimental.PythonState):
    """What happened so far, and where the batches are; part of a checkpoint."""

    epoch: int = 0
    batches: int = 0
    """Of this epoch, taken."""

    seconds: float = 0.0
    losses: list[float] = dataclasses.field(default_factory=list)
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list)

    @property
    def num_steps(self) -> int:
        return len(self.losses)

    def serialize(self) -> bytes:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return json.dumps(fields).encode()

    def deserialize(self, string_value: bytes) -> None:
        for name, value in json.loads(string_value).items():
            setattr(self, name, value)
        self.evaluations = [Evaluation(*evaluation) for evaluation in self.evaluations]

    def lacks_evaluation(self, every: int) -> bool:
        """Whether an evaluation is due after this step, and was not done yet."""
        due = self.num_steps > 0 and self.num_steps % every == 0
        return due and not (self.evaluations and self.evaluations[-1].step == self.num_steps)

    def best_step(self, rule: EarlyStopping | None) -> int | None:
        """Count the steps before the best evaluation."""
        best = best_evaluation(self.evaluations, rule) if rule else None
        return None if best is None else self.evaluations[best].step

    def is_over(self, rule: EarlyStopping | None) -> bool:
        """Whether patience is at an end."""
        best = best_evaluation(self.evaluations, rule) if rule else None
        if rule is None or best is None:
            return False
        return len(self.evaluations) > best + rule.patience
