"""Settings and results of a run of the inner loop."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from .posterior import Marginals, Sites

#: The fallbacks that a run tries, in this order, until it has converged; see
#: :mod:`gpflow_pep.engine.sites.fixed_point`. "continuation" solves easier problems,
#: each from the sites of the problem before. "clipped" sets negative precisions of
#: target sites to 0; these sites match only the tilted mean. It nearly always ends at a
#: point that depends smoothly on the parameters. Unless no precision was clipped in the
#: end, that point is not a fixed point of Power EP, and the record of the run shows
#: that it did not converge.
FALLBACKS = ("", "continuation", "clipped")
CONTINUATION = 1
CLIPPED = 2


class ConvergenceWarning(UserWarning):
    """The sites did not reach their fixed point."""


class Stage(NamedTuple):
    """A problem that a run solves on its way. Fields are numbers, or tensors [] for the
    present stage.

    The first three fields are floats, the others are integers.
    """

    power_shift: Any = 0.0
    """The change of the powers. From 0 to 1 it is the least power of a row; from -1 to
    0 each power is multiplied by 1 plus this number. None does not change powers.
    """
    #: The factor of the prior's variance; None does not change the prior.
    prior_scale: Any = 1.0
    mean_square: Any = 0.0
    """The mean square residual below which the next stage begins, with the same sites.
    If it is 0, the goal of the run counts instead. Otherwise the stage is a *warm-up*,
    whose only purpose is the start of the next stage.
    """
    sweeps: Any = 0  #: The largest number of sweeps.
    is_newton: Any = 0  #: 1 if the steps are steps of Newton's method, otherwise 0.
    #: The number of places to the next stage if this stage has not settled.
    otherwise: Any = 1
    fallback: Any = 0  #: The index of the fallback in :data:`FALLBACKS`.


#: The stage of the model's own problem.
TARGET = Stage(None, None)


class SweepEvaluation(NamedTuple):
    r"""The result of a sweep for the inner loop, which keeps two numbers for each site.

    These are :math:`(\nu, \tau)`, and both move by one step. In a coupled run they are
    :math:`\tau` and a first number whose target was found for all sites together and
    does not depend on :math:`\tau`: all first numbers then move by one step, and each
    :math:`\tau` by a separate step.
    """

    marginals: Marginals  #: Moments of h under q with these sites.
    target: Sites  #: The target of the two numbers: x*.
    limited: Sites  #: The target with precisions that are not negative.
    #: [2, N, L], see :func:`~gpflow_pep.engine.sites.posterior.scaled_error`.
    error: tf.Tensor
    proper: tf.Tensor
    """[], bool: B is positive definite, all cavities are proper and all numbers
    finite.
    """
    merit: tf.Tensor
    """[], a number that no step may make smaller; a constant if there is no such
    number.
    """
    #: Further tensors that the caller needs for the final sites.
    extra: Any = ()


class Goal(NamedTuple):
    """A run has converged if one of these conditions is met."""

    tolerance: float  #: The residual is below it: all sites are at their targets.
    mean_square_residual: tf.Tensor | float = 0.0
    """The mean square residual is below it: half the sum of squares of a row's errors,
    on average over rows, in nats. The error of the energy was at most about thirty
    times as large, which is small enough for an optimiser. After a long step of an
    optimiser the energy changes by far more; the limit is then a tenth of the mean
    square residual at the start of the run, but at most a hundred times this number.
    """


@dataclass(frozen=True)
class Solver:
    """The settings of a run."""

    goal: Goal
    max_sweeps: int
    """The largest number of evaluations, at least 1. Each fallback may take the same
    number again, and the continuation from power 0 twice the number.
    """
    damping: float = 1.0  #: The largest step.
    fall_back: bool = True  #: Whether fallbacks follow if the run has not converged.
    # The stages, see the schedule.
    larger_powers: tuple[float, ...] = (1.0, 0.5)
    """The shifts of the powers before the model's own problem, in a run that begins
    without sites."""
    warm_up_mean_square: float = 3e-3
    """The mean square residual at which a larger power or a narrower prior is left for
    the next one."""
    #: The number of sweeps after which a larger power is left for the next one.
    warm_up_sweeps: int = 30
    #: The least ``max_sweeps`` with which easier problems are tried: each of them gets
    #: only a part of the sweeps.
    many: int = 10
    num_powers: int = 20  #: The number of powers in the continuation from power 0.
    #: The mean square residual at which a power of the continuation is left.
    power_mean_square: float = 1e-4
    power_part: float = 0.1
    """The part of ``max_sweeps`` for each power of the continuation. With more sweeps
    some runs lost the way where sites jump."""
    #: ``power_mean_square`` and ``power_part`` for steps of Newton's method.
    newton_mean_square: float = 1e-6
    newton_part: float = 0.3
    #: The power below which the continuation from power 0 is not tried.
    nearly_zero: float = 0.1
    first_variance: float = 10.0  #: The largest variance of the narrowest prior.
    prior_factor: float = 2.0**0.125
    """The factor between the variances of one narrower prior and the next. With a
    larger factor one cell of 1440 fewer converges (examples/benchmarks/stress.py,
    near-duplicates at variance 1e4).
    """
    num_priors: int = 160  #: The number of narrower priors.
    # Limits for runs that are close to their goal, or far from it.
    close: float = 0.05  #: The residual below which the run is close.
    far: float = 0.1
    """A run that begins with a mean square residual above this had no sites, or sites
    of other data.
    """
    of_first: float = 0.1
    largest_factor: float = 100.0  #: See :class:`Goal`.
    # The step of each site.
    min_step: float = 0.01
    """With one step for all sites 5 cells of 1440 fewer converge
    (examples/benchmarks/stress.py; probit, Student-t), in 10% more sweeps.
    """
    shrink_step: float = 0.5
    grow_step: float = 1.2
    shrink_cap: float = 0.7
    grow_cap: float = 1.05  #: With 1.15 RobustMax at alpha 1 cycled.
    cap_from_far: float = 0.4
    """The largest cap of a coupled run that began far away. Means and precisions turn
    around each other there, and longer steps took hundreds of sweeps at long
    lengthscales.
    """
    refused_cap: float = 0.5
    min_cap: float = 1e-3
    restart_cap: float = 0.1
    early: float = 0.1
    """Above this mean square residual a coupled step sets precisions whose target is
    negative to 0. Most of these targets are not negative later.
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
    """The tries for one step: the first proposal, and a proposal after each refusal.
    The three numbers of a try are the factors of negative precisions and of the step if
    a refused proposal was improper, and the step of all sites if only the merit fell.
    Without the third number 2 cells of 1440 fewer converge
    (examples/benchmarks/stress.py, probit). The last try only sets negative precisions
    to 0. At the start of the loop that means no sites, which is always proper; later
    the cap is made small.
    """

    # Acceleration, and Newton's method.
    #: The residual above which no differences are remembered.
    accelerate_below: float = 0.5
    #: Differences are forgotten if the norm of the residual grows by a larger factor.
    largest_jump: float = 2.0
    depth: int = 16  #: The number of differences.
    small_depth: int = 4  #: The number of differences if there are more sites.
    #: The largest number of sites for which there are ``depth`` differences.
    deep_sites: int = 200_000
    unexplained: float = 0.6
    """The least fraction that a coupled run takes of the part of F that the differences
    do not explain. With .9 RobustMax at alpha 1 takes up to 560 sweeps where plain
    steps overshoot (in the grid of examples/benchmarks/stress.py), with .8 or .5 up to
    100, with .6 at most 64.
    """
    newton_left: float = 0.1
    """Newton's equations are solved until the rest is this fraction of F. That needs
    fewer products, and one or two more steps.
    """
    newton_sufficient: float = 0.1
    """A step of Newton's method is accepted if F shrinks by at least this fraction of
    the decrease for a linear F.
    """


@dataclass(frozen=True)
class Features:
    """Properties of a problem, by which a run chooses its steps and its stages."""

    #: Whether the run is coupled, see :class:`SweepEvaluation`.
    coupled: bool = False
    #: The largest power of a row; None if it is not small.
    largest_power: tf.Tensor | None = None
    #: Whether to begin with larger powers; None for never.
    warm_up: tf.Tensor | None = None
    by_newton: bool = False
    """Whether the fallback through smaller powers takes steps of Newton's method."""
    largest_variance: tf.Tensor | None = None
    """The largest prior variance at the rows; None if narrower priors are not tried."""


class SiteUpdateInfo(NamedTuple):
    """The record of a run of the inner loop."""

    #: The number of evaluations of all sites, refused ones included, an int [].
    num_sweeps: tf.Tensor
    residual: tf.Tensor
    r"""[], the largest of :math:`|\sqrt{s} (F_\nu - m F_\tau)|` and :math:`|s F_\tau|`
    over sites, with the undamped F: the distance of the sites from their targets, in
    standard deviations of q. It is infinite if the expected log density of a row is so
    large in size that log Z is not known to within a nat.
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
