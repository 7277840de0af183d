"""The objectives of training, the variables that it changes, and the loss for
optimisers.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.models import GPModel
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin

from ...engine.checks import check_choice, check_real, refusal
from ...engine.factors import traits
from ...engine.numerics.graphs import without_collector
from ...engine.numerics.linalg import warnings_of_graphs_dropped
from ...engine.prior import latent_kernels
from ...engine.prior.evaluate import is_plain
from ...engine.sites.record import ConvergenceWarning
from ...models import PEP, PEPRegression
from ...models.arguments import unknown_log_z
from ...models.base import ADVICE, InternalDataModel

Module = TypeVar("Module", bound=tf.Module)


def copy_of(module: Module) -> Module:
    """Copy a model or a part of a model. Other threads may do so at the same time.

    GPflow's function clears the cache of transforms in TensorFlow Probability, which
    belongs to the process. It fails if another thread changes the cache at that time.
    """
    for _ in range(100):  # tried again if another thread changed the cache
        try:
            return gpflow.utilities.deepcopy(module)
        except (KeyError, RuntimeError):
            continue
    return gpflow.utilities.deepcopy(module)


def state_of(model: GPModel) -> list[tf.Variable]:
    """List the variables that training and predictions change."""
    state = [parameter.unconstrained_variable for parameter in model.parameters]
    if isinstance(model, PEP):
        state.append(model.sites.version)
    return list({id(v): v for v in (*state, *model.trainable_variables)}.values())


def assign(variables: Sequence[tf.Variable], values: Sequence[Any]) -> None:
    """Put a value into each variable."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


@contextmanager
def assigned_at_exit(
    variables: Sequence[tf.Variable], values: Callable[[], Sequence[Any]]
) -> Iterator[None]:
    """Put values into variables when the block is left, also by an error or an
    interrupt.
    """
    try:
        yield
    finally:
        assign(variables, values())


def assign_same(model: GPModel, other: GPModel) -> None:
    """Assign the trainable parameters of another model that have the same path and
    shape.
    """
    parameters = gpflow.utilities.parameter_dict(model)
    for path, value in gpflow.utilities.parameter_dict(other).items():
        parameter = parameters.get(path)
        if (
            parameter is not None
            and parameter.trainable
            and parameter.shape == value.shape
        ):
            parameter.assign(value)


#: Objectives that have a name.
NAMES = "evidence", "loo"
#: One of :data:`NAMES`, or a function of a model that computes a number to maximise.
Objective = str | Callable[[Any], tf.Tensor]


def training_loss(
    model: GPModel, objective: Objective = "evidence"
) -> Callable[[], tf.Tensor]:
    """Make the loss of a model that holds its data, for GPflow's and Keras's
    optimisers::

        loss = pep.training.training_loss(model, "loo")
        gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables)

    The loss is minus the objective minus the log density of priors on parameters.

    :param objective: What is maximised. ``"evidence"`` is log Z, for any model.
        ``"loo"`` is the sum over rows of the leave-one-out log density, for ``PEP`` and
        for ``PEPRegression`` without blocks. A function computes a number from the
        model, in TensorFlow; it must use its argument, which may be a copy of the
        model.
    :raises ValueError: If the model does not have the objective.
    """
    if callable(objective):
        return _of_function(model, objective)
    remedy = "Pass a name or a function of the model; leave it out if in doubt."
    check_choice("objective", objective, NAMES, remedy)
    if objective == "evidence":
        return model.training_loss
    ours = isinstance(model, (PEP, PEPRegression))
    if not ours or getattr(model, "has_blocks", False):
        got = f"{objective!r} with {type(model).__name__}"
        expected = "PEP, or PEPRegression without blocks"
        raise refusal("objective", got, expected, "Train by the evidence.")
    return _of_function(model, lambda model: model.total_loo_log_density())


@cache
def near_lengthscales(spread: float) -> Callable[[GPModel], tf.Tensor]:
    r"""Make an objective: log Z with a prior under which the lengthscales of a kernel
    are similar,

    .. math::

        \log Z - \frac{1}{2 s^2} \sum_d (\log l_d - \overline{\log l})^2.

    With :math:`s \to 0` there is one lengthscale for all inputs. If there are many
    inputs and few rows, the evidence alone, :math:`s \to \infty`, fits lengthscales to
    single rows. If the kernel is a sum, the prior is on the lengthscales of its first
    term; ``kernel="additive"`` and ``time`` of the estimators add other terms.

    :param spread: The standard deviation s, above 0. The same number gives the same
        function.
    """
    check_real("spread", spread, "(0, inf)", "0.7 is usual.")

    @tf.autograph.experimental.do_not_convert
    def objective(model: GPModel) -> tf.Tensor:
        value = model.maximum_log_likelihood_objective()
        for kernel in latent_kernels(model.kernel):
            main = getattr(kernel, "kernels", [kernel])[0]
            logs = tf.math.log(main.lengthscales)
            value -= tf.reduce_sum((logs - tf.reduce_mean(logs)) ** 2) / (
                2.0 * spread**2
            )
        return value

    return objective


def _of_function(
    model: Any, objective: Callable[[Any], tf.Tensor]
) -> Callable[[], tf.Tensor]:
    @tf.autograph.experimental.do_not_convert
    def loss() -> tf.Tensor:
        value = tf.convert_to_tensor(objective(model))
        if value.shape.rank != 0:
            got = f"a function with a result of shape {value.shape}"
            raise refusal(
                "objective", got, "a number", "Sum over rows with tf.reduce_sum."
            )
        return -(value + model.log_prior_density())

    return loss


#: Errors of a loss that cannot be computed for these parameters. Others stop the run.
FAILURES = tf.errors.InvalidArgumentError, ValueError, ArithmeticError


class WholeLoss:
    """The training loss of a model, and its gradient in the trainable parameters.

    The first evaluation compiles it, which keeps 5 to 10 MB until the process ends.

    :param optimizer: An optimizer of GPflow, which keeps the compiled loss; None makes
        a new one.
    :param objective: See :func:`~gpflow_pep.training.training_loss`.
    :raises ValueError: If the model does not hold its data, has nothing to train, or
        does not have the objective.
    """

    def __init__(
        self,
        model: GPModel,
        optimizer: gpflow.optimizers.Scipy | None = None,
        objective: Objective = "evidence",
    ) -> None:
        self.model = model
        self.objective = objective
        self.unsettled = 0
        self._has_warned = False
        self.variables = _check_holds_data(model)
        loss = training_loss(model, objective)
        self.state = state_of(model)
        if optimizer is None:
            loss = without_collector(loss)
            optimizer = gpflow.optimizers.Scipy()
        options = {"autograph": not is_plain(model)}
        self._evaluate = optimizer.eval_func(loss, self.variables, options)

    def num_rows(self) -> int:
        """Count the present rows of the model."""
        known = (
            self.model.rows.num_rows
            if isinstance(self.model, InternalDataModel)
            else None
        )
        if known is not None:
            return known
        array = tf.nest.flatten(self.model.data)[0]
        return int(array.shape[0] or tf.shape(array)[0])

    def parameters(self) -> AnyNDArray:
        """Read the trainable parameters, unconstrained, in one vector."""
        packed = gpflow.optimizers.Scipy.initial_parameters(self.variables)
        return np.array(packed, dtype=np.float64)

    def __call__(self, x: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Assign the trainable parameters and compute loss and gradient."""
        loss, gradient = self._evaluate(x)
        has_converged = (
            not isinstance(self.model, PEP) or self.model.last_inference.converged
        )
        self.unsettled = 0 if has_converged else self.unsettled + 1
        self.warn_after(3)  # a line search may go far in one or two evaluations
        return loss, gradient

    def begin(self) -> None:
        """Begin a training: reset the counts of evaluations and warnings."""
        self.unsettled = 0
        self._has_warned = False

    def warn_after(self, number: int) -> None:
        """Warn, once in a training, if sites did not converge at this number of latest
        evaluations.
        """
        if self.unsettled < number or self._has_warned:
            return
        self._has_warned = True
        text = (
            f"The sites did not converge at the last {self.unsettled} evaluation(s) of"
            " the loss."
        )
        if np.isinf(self.model.last_inference.residual):
            advice = f"There {unknown_log_z(self.model.loss_tolerance.dtype)}"
        else:
            advice = ADVICE + traits(self.model.likelihood).advice
        warnings.warn(f"{text} {advice}", ConvergenceWarning, stacklevel=2)

    def settle(self) -> float | None:
        """Compute the objective with sites as exact as for predictions; otherwise the
        first prediction would update them, outside of a graph. None for models without
        an inner loop. See ``loss_tolerance`` of :class:`~gpflow_pep.models.PEP`.
        """
        if not isinstance(self.model, PEP):
            return None
        tolerance = self.model.loss_tolerance.numpy()
        self.model.loss_tolerance.assign(0.0)
        try:
            # The warnings would not have the number of a step.
            with warnings_of_graphs_dropped():
                return -float(self(self.parameters())[0])
        finally:
            self.model.loss_tolerance.assign(tolerance)


def _check_holds_data(model: Any) -> list[tf.Variable]:
    """Return the trainable variables of a model that holds all its rows; refuse other
    models.
    """
    has_data = hasattr(model, "training_loss") and hasattr(model, "data")
    if isinstance(model, ExternalDataTrainingLossMixin) or not has_data:
        expected = (
            "a model that holds its data, such as PEPRegression, PEP or"
            " gpflow.models.SGPR"
        )
        remedy = (
            "Train a model that gets its data in batches with gpflow_pep.training.fit."
        )
        raise refusal("model", type(model).__name__, expected, remedy)
    return variables_of_optimizer(model)


def variables_of_optimizer(
    model: GPModel, variables_of_q: Sequence[tf.Variable] = ()
) -> list[tf.Variable]:
    """Find the trainable variables except the variables of q, which natural gradients
    train.
    """
    not_trained = set(map(id, variables_of_q))
    variables = [v for v in model.trainable_variables if id(v) not in not_trained]
    if not variables and not not_trained:
        raise refusal(
            "model",
            "no trainable parameter",
            "at least one for the optimizer to train",
            "Use gpflow.set_trainable(model, True).",
        )
    return variables
