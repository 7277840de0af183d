"""
Training of a model that holds its data, by L-BFGS on all rows.

:func:`maximise` is ``gpflow.optimizers.Scipy`` with settings that serve sparse Gaussian processes,
and never loses what it has found: where the model raises or its loss is not finite, the step is
shortened, and however the run ends, the model has the best parameters that were seen.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import gpflow
import numpy as np
import scipy.optimize
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.models import GPModel

from ..checks import check_callable, check_seed, reason
from . import checks
from .model_state import assign
from .outputs import bar
from .starts import moves
from .threads import one_blas_thread
from .whole_loss import WholeLoss

#: How many steps L-BFGS remembers. SciPy's 10 takes more steps for inducing points.
MEMORY = 50
#: Stop where no derivative of the objective for each row is larger.
FLAT = 1e-5
#: After so many steps from each start the neighbours of a model that has some are found anew.
REFRESHES = 10, 30, 100
#: What SciPy calls abnormal: mostly rounding, where the objective is all but flat.
ABNORMAL, NO_STEP = "ABNORMAL", "The line search found no step that raises the objective."
#: What says that a loss cannot be computed for these parameters. Others stop the run.
FAILURES = tf.errors.InvalidArgumentError, ValueError, ArithmeticError


class Step(NamedTuple):
    """What a callback is told after each step of L-BFGS."""

    start: int
    """Which start, from 0."""

    iteration: int
    """How many steps were taken from this start."""

    objective: float


class Ascent(NamedTuple):
    """What came of one start."""

    objective: float
    """The highest value that was seen; -inf if there was none."""

    iterations: int
    """Steps of L-BFGS."""

    evaluations: int
    """Of the objective and its gradient, those that failed counted."""

    failures: int
    """Evaluations that raised, or were not finite. The step was shortened then."""

    seconds: float
    """Without the compilation."""

    converged: bool
    message: str
    """How it ended; where it was given up because evaluations failed, with the newest reason."""

    losses: AnyNDArray
    """The training loss (minus the objective) at the start and after each step, and once more where
    neighbours have been found anew."""


class MaximiseRecord(NamedTuple):
    """What :func:`maximise` did: the fields of the start that ended best, and all of them."""

    objective: float
    """log Z of the model as it is now, plus the log density of priors on its parameters. Where
    training is less exact than predictions (``training_gap`` of
    :class:`~gpflow_pep.models.PEP`), it was computed once more at the end, as exactly as those."""

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


def maximise(
    model: GPModel | WholeLoss,
    *,
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

    The neighbours of a model that has some, see :doc:`/neighbours`, are found anew after 10, 30 and
    100 steps from each start (:data:`REFRESHES`), and L-BFGS begins again with another objective.
    The model ends with the highest one, and with the parameters and neighbours that it had.

    :param model: One that holds its data: ``PEPRegression``, ``PEP``, ``PEPClassification``, or
        GPflow's ``SGPR``, ``GPR``, ``GPRFITC``, ``VGP``. Or the
        :class:`~gpflow_pep.training.whole_loss.WholeLoss` of one, which further runs do not compile
        again.
    :param tolerance: Stop when a step improves the objective by less than this for each row, in
        nats; at least 0. Or when no derivative of the objective for each row exceeds ten times
        that, or :data:`FLAT`.
    :param window: The improvement is the mean of as many steps, at least 1. With several, a single
        poor step stops nothing, and a larger tolerance makes sense: see :doc:`/training`.
    :param max_iterations: The most steps from each start, at least 1.
    :param seconds: The most seconds, of all starts together and without the compilation; positive.
        The evaluation under way is waited for, and each start that was begun has one.
    :param starts: How many, at least 1: the first is the parameters as they are, the others are
        those with random perturbations, of standard deviation
        :data:`~gpflow_pep.training.starts.PERTURBATION` in GPflow's unconstrained parameters. Or
        functions: each gets the model with the parameters as they were and assigns others, for one
        more start after the first. The best end counts.
    :param seed: The same seed gives the same perturbations.
    :param callback: Called after each step, when the model has that step's parameters.
    :param progress: Whether to show a bar on stderr.
    :param optimizer: GPflow's: with the same one, further runs of the same model compile nothing.
        Data that change in between must be ``tf.Variable``. Not for a ``WholeLoss``.
    :raises ValueError: If an argument is not as said here, or if the objective or its gradient is
        not finite at the parameters as they are. What a callback raises goes through.
    """
    if isinstance(model, WholeLoss) and optimizer is not None:
        raise ValueError(
            f"optimizer: got {optimizer!r} with a WholeLoss, which is compiled already; expected"
            " None. Leave it out, or pass the model."
        )
    loss = model if isinstance(model, WholeLoss) else WholeLoss(model, optimizer)
    model, state, num_rows = loss.model, loss.state, loss.num_rows()
    checks.check_limits(tolerance, window, max_iterations, seconds)
    check_seed(seed)
    check_callable("callback", callback, "Pass a function of a Step.")
    starting = moves(starts, loss.variables, seed)
    limits = _Limits(tolerance, window, max_iterations)
    began = time.perf_counter()
    first = _first_point(loss, num_rows)
    compiled = time.perf_counter()
    deadline = np.inf if seconds is None else compiled + seconds
    runs: list[_Run] = []
    ascents: list[Ascent] = []
    with _best_in_the_end(state, runs, first), one_blas_thread():
        for number, move in enumerate(starting):
            if runs and time.perf_counter() > deadline:
                break
            assign(state, first.values)
            move(model)
            with bar(progress, max_iterations) as show:
                tell = _teller(number, num_rows, show, callback)
                rounds: list[Ascent] = []
                for steps in _steps_of_rounds(model, max_iterations):
                    if rounds and not _refresh(model, runs[-1]):
                        break
                    told = partial(tell, sum(ascent.iterations for ascent in rounds))
                    few = limits._replace(max_iterations=steps)
                    runs.append(_Run(loss, num_rows, few, deadline, told))
                    rounds.append(_ascend(runs[-1]))
                ascents.append(_joined(rounds))
    best = max(ascents, key=lambda ascent: ascent.objective)
    objective = _settled(loss, best.objective)
    return MaximiseRecord(objective, *best[1:], compiled - began, tuple(ascents))


class _Point(NamedTuple):
    """Where the loss was evaluated, and what came of it."""

    x: AnyNDArray
    loss: float
    gradient: AnyNDArray
    values: list[AnyNDArray]
    """Of the model's state."""


class _Limits(NamedTuple):
    """When to stop, see :func:`maximise`."""

    tolerance: float
    window: int
    max_iterations: int


class _Halt(Exception):
    """Why SciPy is left."""

    def __init__(self, message: str, converged: bool = False) -> None:
        super().__init__(message)
        self.converged = converged


class _Run:
    """The loss of a row as L-BFGS evaluates it from one start, and what was seen so far."""

    def __init__(
        self,
        loss: WholeLoss,
        num_rows: int,
        limits: _Limits,
        deadline: float,
        tell: Callable[[int, float], None],
    ) -> None:
        self.loss, self.num_rows, self.tell = loss, num_rows, tell
        self.limits, self.deadline = limits, deadline
        self.losses: list[float] = []
        self.evaluations = self.failures = 0
        self.trouble = ""
        self.best: _Point | None = None

    def __call__(self, x: AnyNDArray) -> tuple[float, AnyNDArray]:
        if self.losses and time.perf_counter() > self.deadline:
            raise _Halt("The time was over.")
        self.evaluations += 1
        try:
            self.newest = _point(self.loss, x, self.num_rows)
        except FAILURES as error:
            self.failures, self.trouble = self.failures + 1, reason(error)
            return self._too_far(x)
        if self.best is None or self.newest.loss < self.best.loss:
            self.best = self.newest
        if not self.losses:
            self._accept()
        return self.newest.loss, self.newest.gradient

    def step(self, x: AnyNDArray) -> None:
        """Take note of a step, which is to the newest point; stop if steps gain too little."""
        self._accept()
        iterations = len(self.losses) - 1
        self.tell(iterations, self.newest.loss)
        tolerance, window, _ = self.limits
        if iterations >= window:
            gain = (self.losses[-1 - window] - self.losses[-1]) / window
            if gain < tolerance:
                raise _Halt(f"Steps gained less than {tolerance:g} nats for each row.", True)

    def _accept(self) -> None:
        self.losses.append(self.newest.loss)
        self.line_start = self.newest

    def _too_far(self, x: AnyNDArray) -> tuple[float, AnyNDArray]:
        """
        Make up a loss and a gradient where there are none, so that the line search goes back.

        They are those of the parabola along the line which fits loss and slope at its start and
        has its minimum after a quarter of the step. The line search tries that next. A huge loss
        would make it go back nearly all the way, and a gradient of zero would let it stay.
        """
        if not self.losses:
            raise _Halt(self.trouble)
        start = self.line_start
        assign(self.loss.state, start.values)  # the sites of PEP may be far off
        fall = abs(float(start.gradient @ (x - start.x)))
        return start.loss + fall, -3.0 * start.gradient


def _point(of_model: WholeLoss, x: AnyNDArray, num_rows: int) -> _Point:
    loss, gradient = (part / num_rows for part in of_model(x))
    if not (np.isfinite(loss) and np.all(np.isfinite(gradient))):
        raise ValueError(
            f"training loss: got {loss} and a gradient with"
            f" {np.sum(~np.isfinite(gradient))} entries that are not finite, expected finite"
            " numbers. Start from other parameters, standardise the data, or look for outliers."
        )
    values = [variable.numpy() for variable in of_model.state]
    return _Point(x.copy(), float(loss), gradient, values)


def _first_point(loss: WholeLoss, num_rows: int) -> _Point:
    try:
        return _point(loss, loss.parameters(), num_rows)
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(reason(error)) from error


def _ascend(run: _Run) -> Ascent:
    began, num_rows = time.perf_counter(), run.num_rows
    x = run.loss.parameters()
    options = {
        "maxcor": MEMORY,
        "maxiter": run.limits.max_iterations,
        "maxfun": 100 * run.limits.max_iterations,  # a step takes fewer
        "ftol": 0.0,  # the run has a rule of its own
        "gtol": min(10.0 * run.limits.tolerance, FLAT),
    }
    try:
        outcome = scipy.optimize.minimize(
            run, x, jac=True, method="L-BFGS-B", callback=run.step, options=options
        )
        converged, message = bool(outcome.success), str(outcome.message).strip()
        message = NO_STEP if message.startswith(ABNORMAL) else message
    except _Halt as halt:
        converged, message = halt.converged, str(halt)
    if run.trouble and not converged and run.trouble != message:
        message = f"{message} The newest evaluation that failed: {run.trouble}"
    return Ascent(
        -np.inf if run.best is None else -num_rows * run.best.loss,
        max(len(run.losses) - 1, 0),
        run.evaluations,
        run.failures,
        time.perf_counter() - began,
        converged,
        message,
        num_rows * np.array(run.losses),
    )


def _steps_of_rounds(model: GPModel, max_iterations: int) -> list[int]:
    """Find how many steps to take before each time that neighbours are found anew, and after."""
    ends = REFRESHES if getattr(model, "neighbours", 0) else ()
    return np.diff([0, *(end for end in ends if end < max_iterations), max_iterations]).tolist()


def _refresh(model: GPModel, run: _Run) -> bool:
    """Find neighbours anew at the best that a run has seen; False where there is no use in it."""
    if run.best is None or time.perf_counter() > run.deadline:
        return False
    assign(run.loss.state, run.best.values)
    model.refresh_neighbours()
    return True


def _joined(rounds: Sequence[Ascent]) -> Ascent:
    """Make one record of the rounds from one start, which ended as the last of them did."""
    return rounds[-1]._replace(
        objective=max(ascent.objective for ascent in rounds),
        iterations=sum(ascent.iterations for ascent in rounds),
        evaluations=sum(ascent.evaluations for ascent in rounds),
        failures=sum(ascent.failures for ascent in rounds),
        seconds=sum(ascent.seconds for ascent in rounds),
        losses=np.concatenate([ascent.losses for ascent in rounds]),
    )


def _settled(loss: WholeLoss, found: float) -> float:
    """Make the sites, where there are any, as exact as predictions need them."""
    values = [variable.numpy() for variable in loss.state]
    try:
        objective = loss.settle()
    except FAILURES:
        assign(loss.state, values)
        return found
    return found if objective is None else objective


@contextmanager
def _best_in_the_end(
    state: Sequence[tf.Variable], runs: Sequence[_Run], first: _Point
) -> Iterator[None]:
    """Give the model the best parameters that any run has seen, whatever happens."""
    try:
        yield
    finally:
        seen = [run.best for run in runs if run.best is not None]
        assign(state, min(seen, key=lambda point: point.loss, default=first).values)


def _teller(
    start: int,
    num_rows: int,
    show: Callable[[int, dict[str, float]], None],
    callback: Callable[[Step], None] | None,
) -> Callable[[int, int, float], None]:
    """Tell the bar and the callback of a step, counted from the steps taken before."""

    def tell(before: int, iteration: int, loss: float) -> None:
        iteration, objective = before + iteration, -num_rows * loss
        show(iteration, {"objective": objective})
        if callback is not None:
            callback(Step(start, iteration, objective))

    return tell
