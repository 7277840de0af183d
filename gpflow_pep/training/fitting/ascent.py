"""One run of L-BFGS, which keeps the best point that it saw and goes back where a model fails."""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.optimize
import tensorflow as tf
from gpflow.base import AnyNDArray

from ...engine.checks import reason, refusal
from ...models.base import NO_FACTOR
from .model_state import assign
from .whole_loss import WholeLoss

#: How many steps L-BFGS remembers. SciPy's 10 takes more steps for inducing points.
MEMORY = 50
#: Stop where no derivative of the objective for each row is larger.
FLAT = 1e-5
#: What SciPy calls abnormal: mostly rounding, where the objective is all but flat.
ABNORMAL, NO_STEP = "ABNORMAL", "The line search found no step that raises the objective."
OVER = "The time was over."
NOT_SETTLED = "The sites did not converge at the last evaluation(s) of the loss: {}."
STAYED = "No step was taken, as the objective is all but flat where training began."
#: What says that a loss cannot be computed for these parameters. Others stop the run.
FAILURES = tf.errors.InvalidArgumentError, ValueError, ArithmeticError


class Ascent(NamedTuple):
    """The outcome of one start."""

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
    """The training loss (minus the objective) at the start and after each step."""


class Point(NamedTuple):
    """Where the loss of a row was evaluated, and its value and gradient there."""

    x: AnyNDArray
    loss: float
    gradient: AnyNDArray
    values: list[AnyNDArray]
    """Of the model's state."""


class Limits(NamedTuple):
    """When to stop, see :func:`maximise`."""

    tolerance: float
    window: int
    max_iterations: int


class _Halt(Exception):
    """Raised to leave SciPy's optimiser, with the reason."""

    def __init__(self, message: str, converged: bool = False) -> None:
        super().__init__(message)
        self.converged = converged


class Run:
    """The loss of a row as L-BFGS evaluates it, and the points that one run of it has seen."""

    def __init__(
        self,
        loss: WholeLoss,
        first: Point,
        num_rows: int,
        limits: Limits,
        deadline: float,
        report: Callable[[int, float], None],
    ) -> None:
        self.loss, self.num_rows, self.report = loss, num_rows, report
        self.first = first
        self.limits, self.deadline = limits, deadline
        self.losses: list[float] = []
        self.evaluations = self.failures = 0
        self.trouble = ""
        self.best: Point | None = None

    def ascend(self) -> Ascent:
        """Run L-BFGS from the model's parameters."""
        began = time.perf_counter()
        options = {
            "maxcor": MEMORY,
            "maxiter": self.limits.max_iterations,
            "maxfun": 100 * self.limits.max_iterations,  # a step takes fewer
            "ftol": 0.0,  # the run has a rule of its own
            "gtol": min(10.0 * self.limits.tolerance, FLAT),
        }
        try:
            outcome = scipy.optimize.minimize(
                self,
                self.loss.parameters(),
                jac=True,
                method="L-BFGS-B",
                callback=self.step,
                options=options,
            )
            converged, message = bool(outcome.success), str(outcome.message).strip()
            message = NO_STEP if message.startswith(ABNORMAL) else message
            message = f"{STAYED} {message}" if converged and len(self.losses) <= 1 else message
        except _Halt as halt:
            converged, message = halt.converged, str(halt)
        if self.loss.unsettled:  # a line search may end at a jump, which SciPy calls convergence
            converged, message = False, f"{NOT_SETTLED.format(self.loss.unsettled)} {message}"
        if self.trouble and not converged and self.trouble != message:
            message = f"{message} The newest evaluation that failed: {self.trouble}"
        return Ascent(
            -np.inf if self.best is None else -self.num_rows * self.best.loss,
            max(len(self.losses) - 1, 0),
            self.evaluations,
            self.failures,
            time.perf_counter() - began,
            converged,
            message,
            self.num_rows * np.array(self.losses),
        )

    def __call__(self, x: AnyNDArray) -> tuple[float, AnyNDArray]:
        is_over = time.perf_counter() > self.deadline
        if self.losses and is_over:
            raise _Halt(OVER)
        self.evaluations += 1
        try:
            # A second evaluation of the first point brings sites closer: not where time is over.
            known = is_over and np.array_equal(x, self.first.x)
            self.newest = self.first if known else evaluate(self.loss, x, self.num_rows)
        except FAILURES as error:
            self.failures, self.trouble = self.failures + 1, reason(error)
            return self._too_far(x)
        if self.best is None or self.newest.loss < self.best.loss:
            self.best = self.newest
        if not self.losses:
            self._accept()
        return self.newest.loss, self.newest.gradient

    def step(self, x: AnyNDArray) -> None:
        """Record a step, which is to the newest point; stop if steps gain too little."""
        self._accept()
        iterations = len(self.losses) - 1
        self.report(iterations, -self.num_rows * self.newest.loss)
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


def evaluate(loss: WholeLoss, x: AnyNDArray, num_rows: int) -> Point:
    """Evaluate the loss of a row; refuse what is not finite."""
    value, gradient = (part / num_rows for part in loss(x))
    if value == np.inf:
        raise ValueError(NO_FACTOR)
    if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
        bad = np.sum(~np.isfinite(gradient))
        got = f"{value} and a gradient with {bad} entries that are not finite"
        remedy = "Start from other parameters, standardise the data, or look for outliers."
        raise refusal("training loss", got, "finite numbers", remedy)
    values = [variable.numpy() for variable in loss.state]
    return Point(x.copy(), float(value), gradient, values)
