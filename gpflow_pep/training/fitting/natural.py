"""Natural gradients: steps on the Gaussian q of a model, beside an optimiser's on all else."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import tensorflow as tf
import tf_keras
from gpflow import Parameter
from gpflow.optimizers import NaturalGradient

from ...engine.numerics.natural import natural_step

#: Of each step where none is given.
DEFAULT_LENGTH = 0.1
Length: TypeAlias = float | tf_keras.optimizers.schedules.LearningRateSchedule


class VariationalParameters(NamedTuple):
    """q of a model: mean [M, L], and lower triangular square roots [L, M, M]."""

    q_mu: Parameter
    q_sqrt: Parameter

    @property
    def variables(self) -> list[tf.Variable]:
        return [part.unconstrained_variable for part in self]


class NaturalGradients(NamedTuple):
    """How :func:`~gpflow_pep.training.fit` trains q: by our steps, GPflow's, or none."""

    q: VariationalParameters | None = None

    length: Length | None = None
    """Of steps by the gradient that the optimiser gets too."""

    gpflow: NaturalGradient | None = None
    """Takes steps of its own before the optimiser's."""

    @property
    def variables(self) -> list[tf.Variable]:
        """The variables of q in which a step needs the gradient of the loss."""
        return [] if self.q is None or self.length is None else self.q.variables

    def step_before(self, loss: Callable[[], tf.Tensor]) -> None:
        """Take GPflow's step, if it is GPflow that trains q."""
        if self.gpflow is not None and self.q is not None:
            self.gpflow.minimize(loss, [(self.q.q_mu, self.q.q_sqrt)])

    def step_beside(self, gradients: Sequence[tf.Tensor], step: tf.Variable) -> None:
        """Take a step by the gradients in :attr:`variables`; a schedule depends on its number."""
        if self.q is None or self.length is None:
            return
        by_mean, by_root = gradients
        if self.q.q_sqrt.transform is not None:
            by_root = self.q.q_sqrt.transform.forward(by_root)  # from a vector: it is linear
        mean, root = map(tf.convert_to_tensor, self.q)
        gamma = tf.cast(self.length(step), mean.dtype) if callable(self.length) else self.length
        after = natural_step(mean, root, by_mean, by_root, gamma)
        self.q.q_mu.assign(after.mean)
        self.q.q_sqrt.assign(after.root)
