"""The loss of a model on all its rows as SciPy's optimisers take it, compiled once."""

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.models import GPModel

from ..covariances.evaluate import is_plain
from ..models import PEP
from ..ops.graphs import OneUseGraphs
from . import checks
from .model_state import state_of


class WholeLoss:
    """
    The training loss of a model, and its gradient in the trainable parameters.

    The first evaluation compiles it.

    :param model: One that holds its data.
    :param optimizer: GPflow's, which keeps the compiled loss; None: it is let go of with this.
    :raises ValueError: If the model does not hold its data, or has nothing to train.
    """

    def __init__(self, model: GPModel, optimizer: gpflow.optimizers.Scipy | None = None) -> None:
        self.model = model
        self.variables = checks.check_holds_data(model)
        self.state = state_of(model)
        graphs = OneUseGraphs()
        closure = model.training_loss if optimizer else graphs.tracked(model.training_loss)
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
        """
        Assign the trainable parameters and compute loss and gradient.

        :param x: As :meth:`parameters` gives them.
        """
        loss, gradient = self._evaluate(x)
        return loss, gradient

    def settle(self) -> float | None:
        """
        Compute the objective with sites as exact as those of predictions, which would bring them
        there otherwise, outside a graph; None where training has them so: see ``training_gap`` of
        :class:`~gpflow_pep.models.PEP`.
        """
        gap = self.model.training_gap.numpy() if isinstance(self.model, PEP) else 0.0
        if not gap:
            return None
        self.model.training_gap.assign(0.0)
        try:
            return -float(self(self.parameters())[0])
        finally:
            self.model.training_gap.assign(gap)
