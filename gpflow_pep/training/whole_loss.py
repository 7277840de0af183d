"""The loss of a model on all its rows as SciPy's optimisers take it, compiled once."""

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.models import GPModel

from ..checks import check_choice, refusal
from ..covariances.evaluate import is_plain
from ..models import PEP, PEPRegression
from ..ops.graphs import OneUseGraphs
from . import checks
from .model_state import state_of

#: What a model can be trained by: log Z, or log Z and the leave-one-out log density of all rows.
OBJECTIVES = "evidence", "evidence+loo"


class WholeLoss:
    """
    The training loss of a model, and its gradient in the trainable parameters.

    The first evaluation compiles it.

    :param optimizer: GPflow's, which keeps the compiled loss; None: it is let go of with this.
    :param objective: See :func:`~gpflow_pep.training.full_batch.maximise`.
    :raises ValueError: If the model does not hold its data, has nothing to train, or does not have
        the objective.
    """

    def __init__(
        self,
        model: GPModel,
        optimizer: gpflow.optimizers.Scipy | None = None,
        objective: str = "evidence",
    ) -> None:
        self.model, self.objective = model, objective
        self.variables = checks.check_holds_data(model)
        loss = _training_loss(model, objective)
        self.state = state_of(model)
        graphs = OneUseGraphs()
        closure = loss if optimizer else graphs.tracked(loss)
        optimizer = optimizer or gpflow.optimizers.Scipy()
        options = {"autograph": not is_plain(model)}
        self._evaluate = optimizer.eval_func(closure, self.variables, options)
        graphs.release_with_owner(self._evaluate)

    def num_rows(self) -> int:
        """Count the rows that the model has now."""
        some = tf.nest.flatten(self.model.data)[0]
        return int(some.shape[0] or tf.shape(some)[0])

    def parameters(self) -> AnyNDArray:
        """Read the trainable parameters, unconstrained, in one vector."""
        packed = gpflow.optimizers.Scipy.initial_parameters(self.variables)
        return np.array(packed, dtype=np.float64)

    def __call__(self, x: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Assign the trainable parameters and compute loss and gradient."""
        loss, gradient = self._evaluate(x)
        return loss, gradient

    def settle(self) -> float | None:
        """
        Compute the objective with sites as exact as those of predictions, which would bring them
        there otherwise, outside a graph, and warn where they do not converge; None for models
        without an inner loop. See ``training_gap`` of :class:`~gpflow_pep.models.PEP`.
        """
        if not isinstance(self.model, PEP):
            return None
        tolerance = self.model.training_gap.numpy()
        self.model.training_gap.assign(0.0)
        try:
            return -float(self(self.parameters())[0])
        finally:
            self.model.training_gap.assign(tolerance)


def _training_loss(model: GPModel, objective: str) -> Callable[[], tf.Tensor]:
    check_choice("objective", objective, OBJECTIVES, "Leave it out if in doubt.")
    if objective == "evidence":
        loss: Callable[[], tf.Tensor] = model.training_loss
        return loss
    if not isinstance(model, PEPRegression) or model.has_blocks or model.neighbours:
        got = f"{objective!r} with {type(model).__name__}"
        expected = "PEPRegression without blocks and neighbours"
        raise refusal("objective", got, expected, "Train by the evidence.")

    @tf.autograph.experimental.do_not_convert
    def evidence_and_left_out() -> tf.Tensor:
        log_z, left_out = model.evidence_and_left_out()
        return -(log_z + left_out + model.log_prior_density())

    return evidence_and_left_out
