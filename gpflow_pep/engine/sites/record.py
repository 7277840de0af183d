"""Settings and results of a run of the inner loop."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from .posterior import Marginals, Sites

#: What a run tries until something has converged, see
#: :mod:`gpflow_pep.engine.sites.fixed_point`. "continuation": easier problems, each
#: from the sites of the one before. "clipped": the net. It goes towards sites whose
#: precision is not negative and which match the tilted mean alone where theirs would
#: be. That nearly always ends at a point that depends smoothly on the parameters, but
#: it is not a fixed point of Power EP, and the record shows that it did not converge,
#: unless no precision was clipped in the end.
FALLBACKS = ("", "continuation", "clipped")
CONTINUATION = 1
CLIPPED = 2


class ConvergenceWarning(UserWarning):
    """The sites did not reach their fixed point."""


class Stage(NamedTuple):
    """A problem that a run solves on its way, given by numbers, or by tensors [] for
    the present stage.

    The first three fields are floats, the others are integers.
    """

    power_shift: Any = 0.0
    """From 0 to 1: powers are at least as large as that; or down to -1: smaller by that
    part; None: as they are.
    """
    prior_scale: Any = (
        1.0  #: By which the prior's variance is multiplied; None: as it is.
    )
    mean_square: Any = 0.0
    """Below which the next stage begins, with the same sites; 0: the goal of the run
    counts. One with another number is a *warm-up*: it serves but to begin the next one.
    """
    sweeps: Any = 0  #: The most of them.
    is_newton: Any = 0  #: 1 where Newton's method takes the steps, else 0.
    otherwise: Any = (
        1  #: How many places further the run goes on where the stage has not settled.
    )
    fallback: Any = 0  #: A place in :data:`FALLBACKS`.


#: The problem that is meant.
TARGET = Stage(None, None)


class SweepEvaluation(NamedTuple):
    r"""What the inner loop needs of some sites, which it keeps as two numbers each.

    These are :math:`(\nu, \tau)`, and both move by one step; or, where it is coupled,
    :math:`\tau` and a first number whose target was found for all sites together, and
    does not depend on :math:`\tau`: all first numbers then move by one step, and each
    :math:`\tau` by its own.
    """

    marginals: Marginals  #: Moments of h under the q that has these sites.
    target: Sites  #: The target of the two numbers: x*.
    limited: Sites  #: The same with precisions that are not negative.
    #: [2, N, L], see :func:`~gpflow_pep.engine.sites.posterior.scaled_error`.
    error: tf.Tensor
    proper: tf.Tensor
    """[], bool: B is positive definite, all cavities are proper and all numbers
    finite.
    """
    merit: tf.Tensor
    """[], what no step may make smaller; a constant where there is nothing of the
    kind.
    """
    #: What else the caller wants to have of the sites where the run ends: tensors.
    extra: Any = ()


class Goal(NamedTuple):
    """A run has converged if one of these conditions is met."""

    tolerance: float  #: The residual is below it: all sites are at their targets.
    mean_square_residual: tf.Tensor | float = 0.0
    """The mean square residual is below it: half the sum of squares of a row's errors,
    on average over rows, in nats. The energy's error was seen to be up to some thirty
    times as much, so that this is enough to optimise it. After a long step of an
    optimiser, across which the energy changes by far more, up to a hundred times this
    is: a tenth of what the run began with.
    """


@dataclass(frozen=True)
class Solver:
    """The settings of a run."""

    goal: Goal
    max_sweeps: int
    """The most evaluations, at least 1; as many again for each fallback, and twice that
    on the continuation from power 0.
    """
    damping: float = 1.0  #: The largest step.
    fall_back: bool = True  #: Whether fallbacks follow where the run has not converged.
    # What is tried, see the schedule.
    larger_powers: tuple[float, ...] = (1.0, 0.5)
    """Shifts of a run without sites, from 1 to 0, the problem that is meant."""
    warm_up_mean_square: float = 3e-3
    """Each of them, and each narrower prior, is left for the next one below it."""
    warm_up_sweeps: int = 30  #: Each of them is left after so many.
    many: int = (
        10  #: Runs of fewer sweeps try nothing easier, which has a part of them.
    )
    num_powers: int = 20  #: On the continuation from power 0.
    power_mean_square: float = 1e-4  #: Each of them is left below it.
    power_part: float = 0.1
    """Of ``max_sweeps``. Longer ones were seen to lose the way where sites jump."""
    newton_mean_square: float = 1e-6
    newton_part: float = 0.3  #: The same where Newton's method takes the steps.
    nearly_zero: float = 0.1  #: A power, below which smaller ones are the same problem.
    first_variance: float = 10.0  #: The most of the narrowest prior.
    prior_factor: float = 2.0**0.125
    """Of its variance, between one prior and the next: with longer steps one cell of
    1440 fewer converges (examples/benchmarks/stress.py, near-duplicates at variance
    1e4).
    """
    num_priors: int = 160
    # What is close, or far.
    close: float = 0.05  #: A residual below which the run is close.
    far: float = 0.1
    """A run that begins with a mean square above this had no sites, or those of other
    data.
    """
    of_first: float = 0.1
    largest_factor: float = 100.0  #: See :class:`Goal`.
    # The step of each site.
    min_step: float = 0.01
    """Without steps of their own 5 cells of 1440 fewer converge
    (examples/benchmarks/stress.py; probit, Student-t), at 10% more sweeps in all.
    """
    shrink_step: float = 0.5
    grow_step: float = 1.2
    shrink_cap: float = 0.7
    grow_cap: float = 1.05  #: 1.15 was seen to cycle, RobustMax at alpha 1.
    cap_from_far: float = 0.4
    """The largest cap of a coupled run that began far away: means and precisions turn
    around each other, and longer steps took hundreds of sweeps at long lengthscales.
    """
    refused_cap: float = 0.5
    min_cap: float = 1e-3
    restart_cap: float = 0.1
    early: float = 0.1
    """Above this mean square a coupled step leaves precisions whose target is negative
    at 0: most do not later.
    """
    tries: tuple[tuple[float, float, float], ...] = (
        (1.0, 1.0, 1.0),
        (1.0, 1.0, 1.0),
        (0.5, 1.0, 0.5),
        (0.1, 1.0, 0.25),
        (0.0, 1.0, 0.1),
        (0.0, 0.5, 0.03),
        (0.0, 0.0, 0.0),
    )
    """At first and after each refusal: what negative precisions and the step are
    multiplied by where something was improper; and the step, the same for all sites,
    where only the merit fell. Without the latter 2 cells of 1440 fewer converge
    (examples/benchmarks/stress.py), of the probit. The last try stays, except that no
    precision is negative: at the start of the loop that is no sites at all, which is
    always proper; later the cap is made small.
    """

    # Acceleration, and Newton's method.
    accelerate_below: float = (
        0.5  #: A residual, above which no differences are remembered.
    )
    largest_jump: float = (
        2.0  #: They are forgotten where the norm of the residual grows by more.
    )
    depth: int = 16
    small_depth: int = 4
    deep_sites: int = 200_000  #: How many differences: few where there are more sites.
    unexplained: float = 0.6
    """The part, or more, that a coupled run takes of what the differences do not
    explain of F. By .9 of it RobustMax at alpha 1 takes up to 560 sweeps where plain
    steps overshoot (in the grid of examples/benchmarks/stress.py), by .8 or .5 up to
    100, by .6 at most 64.
    """
    newton_left: float = 0.1
    """Newton's equations are solved to this part of F: fewer products, and one or two
    more steps.
    """
    newton_sufficient: float = 0.1
    """A step is taken that makes F smaller by this part of what it would be if F were
    linear.
    """


@dataclass(frozen=True)
class Features:
    """What is known of a problem, by which a run chooses its steps and what
    it tries.
    """

    coupled: bool = (
        False  #: What the numbers of a site are, see :class:`SweepEvaluation`.
    )
    largest_power: tf.Tensor | None = None  #: Of a row; None: not small.
    warm_up: tf.Tensor | None = (
        None  #: Whether to begin with larger powers; None: never.
    )
    by_newton: bool = False
    """Whether the fallback through smaller powers takes steps of Newton's method."""
    largest_variance: tf.Tensor | None = None
    """Of the prior at the rows; None: there is no fallback from smaller ones."""


class SiteUpdateInfo(NamedTuple):
    """The record of a run of the inner loop."""

    #: The number of evaluations of all sites, refused ones included, an int [].
    num_sweeps: tf.Tensor
    residual: tf.Tensor
    r"""[], the largest of :math:`|\sqrt{s} (F_\nu - m F_\tau)|` and :math:`|s F_\tau|`
    over sites, with the undamped F: how far, in standard deviations of q, the sites are
    from their targets. Infinite where a rate's expected log density is so low that no
    nat of log Z is known.
    """
    converged: tf.Tensor
    """Whether the run met its :class:`Goal`, a bool []: the residual is below the
    tolerance, or its mean is small enough for a run that only computes the objective.
    """
    num_rejected: tf.Tensor  #: The number of proposals that were refused, an int [].
    fallback: tf.Tensor | str
    """The last of :data:`FALLBACKS` that was tried; in a graph, its place among
    them.
    """

    @property
    def no_fixed_point_found(self) -> bool:
        """
        Whether all fallbacks were tried, including smaller powers if there are any, and
        none of them ended at a fixed point.

        In this case there may be no fixed point. At power 0 there always is one, but
        log Z may be too large for a float there. Only available outside of graphs.
        """
        return not self.converged and self.fallback in ("clipped", CLIPPED)


class FixedPoint(NamedTuple):
    """The end of a run of the inner loop, a constant for differentiation."""

    sites: Sites
    marginals: Marginals  #: Moments of h under the q that has these sites.
    extra: Any  #: See :class:`SweepEvaluation`.
    info: SiteUpdateInfo
