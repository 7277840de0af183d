"""Training of a model that holds its data, by L-BFGS on all rows.

:func:`maximise` is ``gpflow.optimizers.Scipy`` with settings that serve sparse Gaussian
processes, and never loses the best parameters. If the model raises an error or its loss
is not finite, the step is shortened. At the end the model has the best parameters that
were seen, in any case.
"""

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import gpflow
import numpy as np
import scipy.optimize
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.models import GPModel
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from ...engine.checks import (
    check_callable,
    check_positive,
    check_real,
    check_seed,
    reason,
    refusal,
)
from ...engine.numerics.linalg import warnings_of_graphs_dropped
from ...engine.numerics.threads import one_blas_thread
from ...engine.records import OVER, Ascent, MaximiseRecord
from ...models.base import NO_FACTOR, TrialWarning
from .objectives import FAILURES, Objective, WholeLoss, assign, assigned_at_exit
from .points import add_points, check_grows, leave_rows_out

#: The number of steps in the memory of L-BFGS. With SciPy's 10, training of inducing
#: points needs more steps.
MEMORY = 50
NO_STEP = "The line search found no step that raises the objective."


class _Point(NamedTuple):
    """A point at which the loss per row was evaluated, with value and gradient."""

    x: AnyNDArray
    loss: float
    gradient: AnyNDArray
    values: list[AnyNDArray]  #: The values of the model's state.


class _Limits(NamedTuple):
    """When to stop; see :func:`maximise`."""

    tolerance: float
    window: int
    max_iterations: int

    def check(self) -> None:
        check_positive("window", self.window)
        check_positive("max_iterations", self.max_iterations)
        remedy = "The unit is nats per row; 1e-6 is fine."
        check_real("tolerance", self.tolerance, "[0, inf)", remedy)


class _Halt(Exception):
    """An exception that leaves SciPy's optimiser, with the reason."""

    def __init__(self, message: str, converged: bool = False) -> None:
        super().__init__(message)
        self.converged = converged


@dataclass
class _Run:
    """The loss per row for L-BFGS, and the points that one run has seen."""

    loss: WholeLoss
    first: _Point
    num_rows: int
    limits: _Limits
    deadline: float
    report: Callable[[int, float], None]
    losses: list[float] = field(default_factory=list)
    evaluations: int = 0
    failures: int = 0
    trouble: str = ""
    best: _Point | None = None

    def ascend(self) -> Ascent:
        """Run L-BFGS from the model's parameters."""
        began = time.perf_counter()
        options = {
            "maxcor": MEMORY,
            "maxiter": self.limits.max_iterations,
            # A step needs fewer evaluations.
            "maxfun": 100 * self.limits.max_iterations,
            "ftol": 0.0,  # the run has its own rule
            # L-BFGS stops if no derivative of the objective per row is larger.
            "gtol": min(10.0 * self.limits.tolerance, 1e-5),
        }
        try:
            start = self.loss.parameters()
            how = {"method": "L-BFGS-B", "options": options}
            outcome = scipy.optimize.minimize(
                self, start, jac=True, callback=self.step, **how
            )
            converged = bool(outcome.success)
            message = str(outcome.message).strip()
            # Mostly this is rounding, because the objective is flat.
            if message.startswith("ABNORMAL"):
                message = NO_STEP
            if converged and len(self.losses) <= 1:
                stayed = (
                    "No step was made, because the objective is nearly flat where"
                    " training began."
                )
                message = f"{stayed} {message}"
        except _Halt as halt:
            converged = halt.converged
            message = str(halt)
        # A line search may end at a jump. SciPy reports this as convergence.
        if self.loss.unsettled:
            last = f"last evaluation(s) of the loss: {self.loss.unsettled}."
            converged = False
            message = f"The sites did not converge at the {last} {message}"
        if self.trouble and not converged and self.trouble != message:
            message = f"{message} The last evaluation that failed: {self.trouble}"
        objective = -np.inf if self.best is None else -self.num_rows * self.best.loss
        numbers = max(len(self.losses) - 1, 0), self.evaluations, self.failures
        end = time.perf_counter() - began, converged, message
        return Ascent(objective, *numbers, *end, self.num_rows * np.array(self.losses))

    def __call__(self, x: AnyNDArray) -> tuple[float, AnyNDArray]:
        is_over = time.perf_counter() > self.deadline
        if self.losses and is_over:
            raise _Halt(OVER)
        self.evaluations += 1
        try:
            # A second evaluation of the first point improves the sites, unless the time
            # is over.
            known = is_over and np.array_equal(x, self.first.x)
            self.newest = (
                self.first if known else _evaluate(self.loss, x, self.num_rows)
            )
        except FAILURES as error:
            self.failures = self.failures + 1
            self.trouble = reason(error)
            return self._too_far(x)
        if self.best is None or self.newest.loss < self.best.loss:
            self.best = self.newest
        if not self.losses:
            self._accept()
        return self.newest.loss, self.newest.gradient

    def step(self, x: AnyNDArray) -> None:
        """Record a step to the newest point, and stop if steps gain too little."""
        self._accept()
        iterations = len(self.losses) - 1
        self.report(iterations, -self.num_rows * self.newest.loss)
        tolerance, window, _ = self.limits
        if iterations >= window:
            gain = (self.losses[-1 - window] - self.losses[-1]) / window
            if gain < tolerance:
                raise _Halt(
                    f"Steps gained less than {tolerance:g} nats for each row.", True
                )

    def _accept(self) -> None:
        self.losses.append(self.newest.loss)
        self.line_start = self.newest

    def _too_far(self, x: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Make up a loss and a gradient at a point where they cannot be computed, so
        that the line search goes back.

        They belong to the parabola along the line that has the loss and the slope at
        the start of the line, and its minimum after a quarter of the step. The line
        search tries this minimum next. With a huge loss it would go back nearly all the
        way, and with a gradient of zero it would stay.
        """
        if not self.losses:
            raise _Halt(self.trouble)
        start = self.line_start
        # The sites of PEP may be far from their fixed point.
        assign(self.loss.state, start.values)
        fall = abs(float(start.gradient @ (x - start.x)))
        return start.loss + fall, -3.0 * start.gradient


def _evaluate(loss: WholeLoss, x: AnyNDArray, num_rows: int) -> _Point:
    """Evaluate the loss per row; refuse values that are not finite."""
    value, gradient = (quantity / num_rows for quantity in loss(x))
    if value == np.inf:
        raise ValueError(NO_FACTOR)
    if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
        bad = np.sum(~np.isfinite(gradient))
        got = f"{value} and a gradient with {bad} entries that are not finite"
        remedy = (
            "Start from other parameters, standardise the data, or look for outliers."
        )
        raise refusal("training loss", got, "finite numbers", remedy)
    values = [variable.numpy() for variable in loss.state]
    return _Point(x.copy(), float(value), gradient, values)


_LOGGER = logging.getLogger(__name__)


class Step(NamedTuple):
    """The argument of a callback after each step of L-BFGS."""

    start: int  #: The number of the start, from 0.
    iteration: int  #: The number of steps from this start.
    objective: float


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
    """Train a model on all its rows::

        record = pep.training.maximise(model)
        print(record.objective, record.message)

    L-BFGS maximises the objective, log Z plus the log density of priors, over all
    trainable parameters. The model ends with the best parameters that were seen, also
    after an interrupt or an error, so it is never worse than before. If the objective
    cannot be computed after a step, the step is shortened.

    Each call compiles a graph of 5 to 10 MB, which TensorFlow keeps until the process
    ends. For many models see *Memory* in :ref:`reliability`.

    :param model: A model that holds its data: ``PEPRegression``, ``PEP``,
        ``PEPClassification``, or GPflow's ``SGPR``, ``GPR``, ``GPRFITC`` or ``VGP``; or
        the :class:`~gpflow_pep.training.fitting.objectives.WholeLoss` of such a model,
        which further runs do not compile again.
    :param objective: What is maximised. ``"evidence"`` is log Z. ``"loo"``, for ``PEP``
        and ``PEPRegression`` without blocks, is the sum over rows of the leave-one-out
        log density; it does not prevent inducing inputs from fitting single rows. A
        function of the model computes another number, in TensorFlow. See
        :func:`~gpflow_pep.training.training_loss`, and :ref:`derivatives-of-sites`. A
        ``WholeLoss`` has its objective already.
    :param num_inducing: ``"auto"`` doubles the inducing points of the model and trains
        it again, as long as this improves predictions of left-out rows
        (:mod:`gpflow_pep.training.fitting.points`); the model then has a new
        ``inducing_variable``. Start with few points, for example 25. It cannot be used
        with a ``WholeLoss`` or an optimizer. None keeps the inducing points.
    :param tolerance: The improvement of the objective, in nats per row, below which
        training stops; at least 0. Training also stops when no derivative of the
        objective per row exceeds ten times the tolerance, or 1e-5.
    :param window: The number of steps over which the improvement is averaged, at least
        1. With several steps, a single poor step does not stop training, and a larger
        tolerance makes sense: see :doc:`/training`.
    :param max_iterations: The largest number of steps from each start, at least 1.
    :param seconds: The time limit in seconds, including compilation and all starts;
        positive. The running evaluation is completed, and each start that has begun
        makes at least one.
    :param starts: The number of starts, at least 1. The first start is at the present
        parameters; the others add random perturbations with standard deviation 0.5 to
        GPflow's unconstrained parameters. Alternatively, functions: each one gets the
        model with the initial parameters and assigns others, for one more start after
        the first. The best result is kept.
    :param seed: Seed of the perturbations: the same seed gives the same perturbations.
    :param callback: A function that is called after each step, when the model has the
        parameters of that step.
    :param progress: Whether to show a progress bar on stderr.
    :param optimizer: An optimizer of GPflow. If you pass the same one again, further
        runs of the same model do not compile. Data that change between runs must be
        ``tf.Variable``. It cannot be used with a ``WholeLoss``.

    If the sites of a model did not converge at the last evaluations of the loss, the
    record has ``converged=False``, whatever SciPy reports, and there is one
    :class:`~gpflow_pep.models.ConvergenceWarning`, after three such evaluations or at
    the end.

    :raises ValueError: If the model does not hold its data or has nothing to train, if
        a limit or a start is not valid, or if the objective or its gradient is not
        finite at the initial parameters. Errors of a callback are passed on.
    """
    limits = _Limits(tolerance, window, max_iterations)
    limits.check()
    if seconds is not None:
        check_real("seconds", seconds, "(0, inf]", "None sets no limit.")
    check_seed(seed)
    check_callable("callback", callback, "Pass a function of a Step.")
    if num_inducing is not None:
        _check_may_grow(model, num_inducing, optimizer)
        train = partial(
            maximise,
            objective=objective,
            **limits._asdict(),
            starts=starts,
            seed=seed,
            callback=callback,
            progress=progress,
        )
        return _with_more_points(model, train, seconds, seed)
    loss = _loss_of(model, objective, optimizer)
    model = loss.model
    moves = _moves(starts, loss.variables, seed)
    loss.begin()
    began = time.perf_counter()
    with warnings_of_graphs_dropped():
        try:
            start = _evaluate(loss, loss.parameters(), loss.num_rows())
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(reason(error)) from error
    compile_seconds = time.perf_counter() - began
    deadline = np.inf if seconds is None else began + seconds

    ascents = _ascend_from_all(loss, start, moves, limits, deadline, callback, progress)
    best = max(ascents, key=lambda ascent: ascent.objective)
    final = best.objective
    if time.perf_counter() < deadline:
        final = _settled(loss, final)
    loss.warn_after(1)
    text = "%s: objective %.6g after %d steps in %.3g s from %d start(s): %s"
    numbers = final, best.iterations, best.seconds, len(ascents)
    _LOGGER.info(text, type(model).__name__, *numbers, best.message)
    return MaximiseRecord(final, *best[1:], compile_seconds, tuple(ascents))


def _check_may_grow(model: Any, num_inducing: Any, optimizer: Any) -> None:
    """Refuse a model to which :func:`maximise` cannot add inducing points."""
    is_compiled = isinstance(model, WholeLoss) or optimizer is not None
    if num_inducing != "auto" or is_compiled:
        got = f"{num_inducing!r} for {type(model).__name__} with"
        got += f" optimizer={optimizer!r}"
        expected = "None, or 'auto' for a model without an optimizer argument"
        raise refusal("num_inducing", got, expected, "Leave it out if in doubt.")
    check_grows(model)


def _with_more_points(
    model: Any,
    train: Callable[..., MaximiseRecord],
    seconds: float | None,
    seed: int,
) -> MaximiseRecord:
    """Add inducing points as long as predictions of left-out rows improve; then train
    with all rows.
    """
    deadline = time.perf_counter() + (np.inf if seconds is None else seconds)

    def train_until(model: GPModel, ends: float = deadline) -> MaximiseRecord:
        return train(model, seconds=max(ends - time.perf_counter(), 1e-3))

    trained_on, rows = leave_rows_out(model, seed)
    left_out: Any = tuple(np.asarray(array)[rows] for array in model.data)
    points, _ = add_points(
        trained_on, train_until, left_out, seed=seed, deadline=deadline
    )
    model.inducing_variable = trained_on.inducing_variable
    return train_until(model)._replace(points=points)


def _loss_of(
    model: GPModel | WholeLoss,
    objective: Objective,
    optimizer: gpflow.optimizers.Scipy | None,
) -> WholeLoss:
    """Compile the loss of a model. A loss that was compiled before keeps its
    settings.
    """
    if not isinstance(model, WholeLoss):
        return WholeLoss(model, optimizer, objective)
    if optimizer is not None:
        got = f"{optimizer!r} with a WholeLoss, which is compiled already"
        raise refusal("optimizer", got, "None", "Leave it out, or pass the model.")
    if objective not in ("evidence", model.objective):
        got = f"{objective!r} with a WholeLoss of {model.objective!r}"
        remedy = "Leave it out, or pass the model."
        raise refusal("objective", got, "the objective of the loss", remedy)
    return model


def _ascend_from_all(
    loss: WholeLoss,
    first: _Point,
    moves: Sequence[Callable[[GPModel], None]],
    limits: _Limits,
    deadline: float,
    callback: Callable[[Step], None] | None,
    progress: bool,
) -> list[Ascent]:
    """Run L-BFGS from each start; the model ends with the best parameters of all."""
    runs: list[_Run] = []
    ascents: list[Ascent] = []

    def best_values() -> list[AnyNDArray]:
        points = [run.best for run in runs if run.best is not None]
        return min(points, key=lambda point: point.loss, default=first).values

    with (
        warnings_of_graphs_dropped(),
        assigned_at_exit(loss.state, best_values),
        one_blas_thread(),
    ):
        for start, move in enumerate(moves):
            if runs and time.perf_counter() > deadline:
                break
            assign(loss.state, first.values)
            move(loss.model)
            with bar(progress, limits.max_iterations) as show:
                report = _reporter(start, show, callback)
                run = _Run(loss, first, loss.num_rows(), limits, deadline, report)
                runs.append(run)
                ascents.append(run.ascend())
    if any(run.trouble == NO_FACTOR for run in runs):
        warnings.warn(NO_FACTOR, TrialWarning, stacklevel=3)
    return ascents


def _reporter(
    start: int,
    show: Callable[[int, Mapping[str, float]], None],
    callback: Callable[[Step], None] | None,
) -> Callable[[int, float], None]:
    """Make the function that a run calls after each step, with the number of steps and
    the objective.
    """

    def report(step: int, value: float) -> None:
        show(step, {"objective": value})
        if callback is not None:
            callback(Step(start, step, value))

    return report


def _settled(loss: WholeLoss, objective: float) -> float:
    """Make the sites, if there are any, as exact as for predictions."""
    values = [variable.numpy() for variable in loss.state]
    try:
        settled = loss.settle()
    except FAILURES:
        assign(loss.state, values)
        return objective
    return objective if settled is None else settled


def _moves(
    starts: int | Sequence[Callable[[GPModel], None]],
    variables: Sequence[tf.Variable],
    seed: int,
) -> list[Callable[[GPModel], None]]:
    """Make functions that change the model before each start; the first changes
    nothing.
    """
    random = np.random.default_rng(seed)

    def perturb(model: GPModel) -> None:
        for variable in variables:
            # This changes the unconstrained value.
            change = 0.5 * random.standard_normal(variable.numpy().shape)
            variable.assign_add(change.astype(variable.dtype.as_numpy_dtype))

    if not isinstance(starts, Sequence):
        starts = [perturb] * (check_positive("starts", starts) - 1)
    elif isinstance(starts, str) or not all(map(callable, starts)):
        expected = "a number, or functions of the model that assign its parameters"
        remedy = "Pass [lambda model: model.kernel.variance.assign(2.0)], for example."
        raise refusal("starts", repr(starts), expected, remedy)
    return [lambda model: None, *starts]


@contextmanager
def bar(
    progress: bool, num_steps: int
) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """Show the number of steps and some values on stderr."""
    columns = (
        TextColumn("step"),
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(
        *columns, console=Console(stderr=True), disable=not progress
    ) as display:
        task = display.add_task("", total=num_steps)

        def show(step: int, values: Mapping[str, float]) -> None:
            text = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
            display.update(task, completed=step, description=text)

        yield show
