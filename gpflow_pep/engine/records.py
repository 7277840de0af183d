"""Records of training by L-BFGS; no TensorFlow."""

from typing import NamedTuple

from .refusals.arrays import AnyNDArray

OVER = "The time ran out."


class Ascent(NamedTuple):
    """The result of training from one start."""

    objective: float  #: The highest value that was seen; -inf if there was none.
    iterations: int  #: The number of steps of L-BFGS.
    #: The number of evaluations of the objective and its gradient, failed ones
    #: included.
    evaluations: int
    #: The number of evaluations that raised an error or were not finite, after which
    #: the step was shortened.
    failures: int
    seconds: float  #: The time in seconds, without compilation.
    converged: bool
    message: str
    """How training ended. If it was given up because evaluations failed, the message
    has the last reason.
    """

    #: The training loss (minus the objective) at the start and after each step.
    losses: AnyNDArray


class PointsScore(NamedTuple):
    """How a model with some number of inducing points was trained, and how well it
    predicts left-out rows.
    """

    num_inducing: int
    log_density: float
    """The mean log density of left-out rows, in nats; NaN if training failed or the
    time ran out.
    """

    objective: float  #: The objective at the end of training.
    seconds: float  #: The time of training, with compilation.
    judging: float  #: The time of computing the log densities.


class MaximiseRecord(NamedTuple):
    """The record of :func:`~gpflow_pep.training.maximise`: the fields describe the
    start that ended best, and ``starts`` has all.
    """

    objective: float
    """The objective of the trained model, plus the log density of priors on its
    parameters. If training is less exact than predictions (``loss_tolerance`` of
    :class:`~gpflow_pep.models.PEP`), the objective is computed once more at the end, as
    exactly as for predictions, unless the time ran out.
    """

    iterations: int
    evaluations: int
    failures: int
    seconds: float
    converged: bool
    message: str
    losses: AnyNDArray
    compile_seconds: (
        float  #: The time of the first evaluation, which compiles once for all starts.
    )
    starts: tuple[Ascent, ...]
    points: tuple[PointsScore, ...] = ()
    """The numbers of inducing points that ``num_inducing="auto"`` tried, with their
    scores.
    """
