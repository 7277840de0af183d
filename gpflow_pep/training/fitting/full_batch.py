"""
Training of a model that holds its data, by L-BFGS on all rows.

:func:`maximise` is ``gpflow.optimizers.Scipy`` with settings that serve sparse Gaussian processes,
and never loses the best parameters: where the model raises or its loss is not finite, the step is
shortened, and however the run ends, the model has the best parameters that were seen.
"""

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.models import GPModel

from ...engine.checks import check_callable, check_positive, check_seed, reason, refusal
from ...engine.numerics.linalg import warnings_of_graphs_dropped
from ...models.base import NO_FACTOR, TrialWarning
from . import checks
from .ascent import FAILURES, Ascent, Limits, Point, Run, evaluate
from .model_state import assign, assigned_at_exit
from .objectives import Objective
from .outputs import bar
from .points import PointsScore, add_points
from .threads import one_blas_thread
from .whole_loss import WholeLoss

_LOGGER = logging.getLogger(__name__)
#: The standard deviation of random starts, in GPflow's unconstrained parameters.
PERTURBATION = 0.5


class Step(NamedTuple):
    """What a callback gets after each step of L-BFGS."""

    start: int
    """Which start, from 0."""

    iteration: int
    """How many steps were taken from this start."""

    objective: float


class MaximiseRecord(NamedTuple):
    """What :func:`maximise` did: the fields of the start that ended best, and all of them."""

    objective: float
    """That of the model as it is now, plus the log density of priors on its parameters. Where
    training is less exact than predictions (``training_gap`` of
    :class:`~gpflow_pep.models.PEP`), it was computed once more at the end, as exactly as those,
    unless the time was over."""

    iterations: int
    evaluations: int
    failures: int
    seconds: float
    converged: bool
    message: str
    losses: AnyNDArray
    compile_seconds: float
    """The first evaluation, which compiles, once for all starts."""

    starts: tuple[Ascent, ...]
    points: tuple[PointsScore, ...] = ()
    """The numbers of inducing points that ``num_inducing="auto"`` tried, with their scores."""


def maximise(
    model: GPModel | WholeLoss,
    *,
    objective: Objective = "evidence",
    num_inducing: str | None = None,
    tolerance: float = 1e-6,
    window: int = 1,
    max_iterations: int = 1000,
    seconds: float | None = None,
    starts: int | Sequence[Callable[[GPModel], None]] = 1,
    seed: int = 0,
    callback: Callable[[Step], None] | None = None,
    progress: bool = True,
    optimizer: gpflow.optimizers.Scipy | None = None,
) -> MaximiseRecord:
    """
    Train a model on all its rows::

        record = pep.training.maximise(model)
        print(record.objective, record.message)

    L-BFGS maximises the objective, log Z plus the log density of priors, over all trainable
    parameters. The model ends with the best of them that were seen, also after an interrupt or an
    error, and so never worse than it was. Where it cannot be computed, the step is shortened.

    Each call compiles a graph of 5 to 10 MB, which TensorFlow keeps until the process ends: for
    many models see *Memory* in :doc:`/reliability`.

    :param model: One that holds its data: ``PEPRegression``, ``PEP``, ``PEPClassification``, or
        GPflow's ``SGPR``, ``GPR``, ``GPRFITC``, ``VGP``. Or the
        :class:`~gpflow_pep.training.fitting.whole_loss.WholeLoss` of one, which further runs do not
        compile again.
    :param objective: ``"evidence"``: log Z. ``"evidence+loo"``, for ``PEP`` and ``PEPRegression``
        without blocks: log Z plus the sum over rows of the leave-one-out log
        density. At powers above 0 log Z alone can make the noise too small, which left-out rows
        punish; and their density alone, ``"loo"``, does not keep inducing inputs from fitting
        single rows. Or a function of the model that computes a number to maximise, in TensorFlow.
        See :func:`~gpflow_pep.training.training_loss`, and
        :doc:`/derivatives_of_sites`. Not for a ``WholeLoss``, which has one.
    :param num_inducing: ``"auto"``: the inducing points of the model are doubled, and the model is
        trained again, as long as that raises the score of
        :mod:`gpflow_pep.training.fitting.points`; its ``inducing_variable`` is another one then.
        Start with few, 25 for example. Not for a ``WholeLoss`` or with an optimizer. None: those
        that it has.
    :param tolerance: Stop when a step improves the objective by less than this for each row, in
        nats; at least 0. Or when no derivative of the objective for each row exceeds ten times
        that, or :data:`FLAT`.
    :param window: The improvement is the mean of as many steps, at least 1. With several, a single
        poor step stops nothing, and a larger tolerance makes sense: see :doc:`/training`.
    :param max_iterations: The most steps from each start, at least 1.
    :param seconds: The most seconds, of all starts together and without the compilation; positive.
        The evaluation under way is waited for, and each start that was begun has one; none comes
        after it.
    :param starts: How many, at least 1: the first is the parameters as they are, the others are
        those with random perturbations of standard deviation :data:`PERTURBATION` in GPflow's
        unconstrained parameters. Or functions: each gets the model with the parameters as they were
        and assigns others, for one more start after the first. The best end counts.
    :param seed: The same seed gives the same perturbations.
    :param callback: Called after each step, when the model has that step's parameters.
    :param progress: Whether to show a bar on stderr.
    :param optimizer: GPflow's: with the same one, further runs of the same model compile nothing.
        Data that change in between must be ``tf.Variable``. Not for a ``WholeLoss``.

    Where the sites of a model did not converge at the last evaluations of the loss, the record says
    that training did not either, whatever SciPy says, and there is one
    :class:`~gpflow_pep.models.ConvergenceWarning`, after three such evaluations or at the end.

    :raises ValueError: If the model does not hold its data or has nothing to train, a limit or a
        start is none, or the objective or its gradient is not finite at the parameters as they are.
        What a callback raises goes through.
    """
    if isinstance(model, WholeLoss) and optimizer is not None:
        got = f"{optimizer!r} with a WholeLoss, which is compiled already"
        raise refusal("optimizer", got, "None", "Leave it out, or pass the model.")
    if isinstance(model, WholeLoss) and objective not in ("evidence", model.objective):
        got = f"{objective!r} with a WholeLoss of {model.objective!r}"
        raise refusal("objective", got, "that of the loss", "Leave it out, or pass the model.")
    if num_inducing is not None:
        if num_inducing != "auto" or isinstance(model, WholeLoss) or optimizer is not None:
            got = f"{num_inducing!r} for {type(model).__name__} with optimizer={optimizer!r}"
            expected = "None, or 'auto' for a model without an optimizer of your own"
            raise refusal("num_inducing", got, expected, "Leave it out if in doubt.")
        checks.check_limits(tolerance, window, max_iterations, seconds)
        deadline = time.perf_counter() + (np.inf if seconds is None else seconds)

        def train(model: GPModel) -> MaximiseRecord:
            return maximise(
                model,
                objective=objective,
                tolerance=tolerance,
                window=window,
                max_iterations=max_iterations,
                seconds=None if seconds is None else max(deadline - time.perf_counter(), 1e-3),
                starts=starts,
                seed=seed,
                callback=callback,
                progress=progress,
            )

        points, record = add_points(model, train, seed=seed, deadline=deadline)
        return record._replace(points=points)
    loss = model if isinstance(model, WholeLoss) else WholeLoss(model, optimizer, objective)
    model, state, num_rows = loss.model, loss.state, loss.num_rows()
    checks.check_limits(tolerance, window, max_iterations, seconds)
    check_seed(seed)
    check_callable("callback", callback, "Pass a function of a Step.")
    starting = _moves(starts, loss.variables, seed)
    limits = Limits(tolerance, window, max_iterations)
    loss.begin()
    began = time.perf_counter()
    with warnings_of_graphs_dropped():
        first = _first_point(loss, num_rows)
    compiled = time.perf_counter()
    deadline = np.inf if seconds is None else compiled + seconds
    runs: list[Run] = []
    ascents: list[Ascent] = []
    best_values = assigned_at_exit(state, lambda: _best_point(runs, first).values)
    with warnings_of_graphs_dropped(), best_values, one_blas_thread():
        for number, move in enumerate(starting):
            if runs and time.perf_counter() > deadline:
                break
            assign(state, first.values)
            move(model)
            with bar(progress, max_iterations) as show:

                def report(step: int, value: float, start: int = number, show: Any = show) -> None:
                    show(step, {"objective": value})
                    if callback is not None:
                        callback(Step(start, step, value))

                runs.append(Run(loss, first, num_rows, limits, deadline, report))
                ascents.append(runs[-1].ascend())
    if any(run.trouble == NO_FACTOR for run in runs):
        warnings.warn(NO_FACTOR, TrialWarning, stacklevel=2)
    best = max(ascents, key=lambda ascent: ascent.objective)
    final = best.objective
    if time.perf_counter() < deadline:
        final = _settled_objective(loss, final)
    loss.warn_after(1)
    text = "%s: objective %.6g after %d steps in %.3g s from %d start(s): %s"
    numbers = final, best.iterations, best.seconds, len(ascents)
    _LOGGER.info(text, type(model).__name__, *numbers, best.message)
    return MaximiseRecord(final, *best[1:], compiled - began, tuple(ascents))


def _moves(
    starts: int | Sequence[Callable[[GPModel], None]], variables: Sequence[tf.Variable], seed: int
) -> list[Callable[[GPModel], None]]:
    """Make functions that change the model before each start; the first changes nothing."""
    random = np.random.default_rng(seed)

    def perturb(model: GPModel) -> None:
        for variable in variables:
            change = PERTURBATION * random.standard_normal(variable.numpy().shape)
            variable.assign_add(change.astype(variable.dtype.as_numpy_dtype))

    if not isinstance(starts, Sequence):
        starts = [perturb] * (check_positive("starts", starts) - 1)
    elif isinstance(starts, str) or not all(map(callable, starts)):
        expected = "a number, or functions of the model that assign its parameters"
        remedy = "Pass [lambda model: model.kernel.variance.assign(2.0)], for example."
        raise refusal("starts", repr(starts), expected, remedy)
    return [lambda model: None, *starts]


def _first_point(loss: WholeLoss, num_rows: int) -> Point:
    try:
        return evaluate(loss, loss.parameters(), num_rows)
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(reason(error)) from error


def _best_point(runs: Sequence[Run], first: Point) -> Point:
    points = [run.best for run in runs if run.best is not None]
    return min(points, key=lambda point: point.loss, default=first)


def _settled_objective(loss: WholeLoss, objective: float) -> float:
    """Make the sites, where there are any, as exact as predictions need them."""
    values = [variable.numpy() for variable in loss.state]
    try:
        settled = loss.settle()
    except FAILURES:
        assign(loss.state, values)
        return objective
    return objective if settled is None else settled
