"""The loss of a model on all its rows as SciPy's optimisers take it, compiled once."""

import warnings

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.models import GPModel

from ...engine.factors import traits
from ...engine.numerics.graphs import without_collector
from ...engine.numerics.linalg import warnings_of_graphs_dropped
from ...engine.prior.evaluate import is_plain
from ...engine.sites.record import ConvergenceWarning
from ...models import PEP
from ...models.base import ADVICE, InternalDataModel
from . import checks
from .model_state import state_of
from .objectives import Objective, training_loss

#: A loss between optima may be so for an evaluation or two, where a line search goes far.
_FEW = 3


class WholeLoss:
    """
    The training loss of a model, and its gradient in the trainable parameters.

    The first evaluation compiles it, which keeps 5 to 10 MB until the process ends.

    :param optimizer: GPflow's, which keeps the compiled loss; None: a new one.
    :param objective: See :func:`~gpflow_pep.training.training_loss`.
    :raises ValueError: If the model does not hold its data, has nothing to train, or does not have
        the objective.
    """

    def __init__(
        self,
        model: GPModel,
        optimizer: gpflow.optimizers.Scipy | None = None,
        objective: Objective = "evidence",
    ) -> None:
        self.model, self.objective = model, objective
        self.unsettled, self._has_warned = 0, False
        self.variables = checks.check_holds_data(model)
        loss = training_loss(model, objective)
        self.state = state_of(model)
        if optimizer is None:
            loss, optimizer = without_collector(loss), gpflow.optimizers.Scipy()
        options = {"autograph": not is_plain(model)}
        self._evaluate = optimizer.eval_func(loss, self.variables, options)

    def num_rows(self) -> int:
        """Count the rows that the model has now."""
        known = self.model.rows.num_rows if isinstance(self.model, InternalDataModel) else None
        if known is not None:
            return known
        some = tf.nest.flatten(self.model.data)[0]
        return int(some.shape[0] or tf.shape(some)[0])

    def parameters(self) -> AnyNDArray:
        """Read the trainable parameters, unconstrained, in one vector."""
        packed = gpflow.optimizers.Scipy.initial_parameters(self.variables)
        return np.array(packed, dtype=np.float64)

    def __call__(self, x: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Assign the trainable parameters and compute loss and gradient."""
        loss, gradient = self._evaluate(x)
        has_converged = not isinstance(self.model, PEP) or self.model.last_inference.converged
        self.unsettled = 0 if has_converged else self.unsettled + 1
        self.warn_after(_FEW)
        return loss, gradient

    def begin(self) -> None:
        """Begin a training: nothing was evaluated, and nothing warned of."""
        self.unsettled, self._has_warned = 0, False

    def warn_after(self, number: int) -> None:
        """Warn, once in a training, where sites did not converge at so many newest evaluations."""
        if self.unsettled < number or self._has_warned:
            return
        self._has_warned = True
        advice = ADVICE + traits(self.model.likelihood).advice
        text = f"The sites did not converge at the last {self.unsettled} evaluation(s) of the loss."
        warnings.warn(f"{text} {advice}", ConvergenceWarning, stacklevel=2)

    def settle(self) -> float | None:
        """
        Compute the objective with sites as exact as those of predictions, which would bring them
        there otherwise, outside a graph; None for models without an inner loop. See
        ``training_gap`` of :class:`~gpflow_pep.models.PEP`.
        """
        if not isinstance(self.model, PEP):
            return None
        tolerance = self.model.training_gap.numpy()
        self.model.training_gap.assign(0.0)
        try:
            with warnings_of_graphs_dropped():  # they would not say when
                return -float(self(self.parameters())[0])
        finally:
            self.model.training_gap.assign(tolerance)
