"""What the inner loop asks for, and what it tells."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from ..numerics.chunks import LOCAL, Reduction
from .posterior import Marginals, Sites

#: What is tried until something has converged. "continuation": the problem of power 0 and those of
#: larger and larger ones, each from the sites of the one before; by Newton's method where the
#: likelihood lets sites repel updates, see :mod:`gpflow_pep.engine.sites.newton`.
#: At power 0, where there are no smaller ones, it is that from the best sites of the run, see
#: :mod:`gpflow_pep.engine.sites.climbing`, or, as for any power
#: of some likelihoods, that from narrower priors, see
#: :mod:`gpflow_pep.engine.sites.smaller_priors`. "limited", where it is not close even then:
#: towards sites whose precision is not negative and which match the tilted mean alone where theirs
#: would be. That nearly always ends at a point that depends smoothly on the parameters, but it is
#: not a fixed point of Power EP, and the record says that it did not converge, unless no precision
#: was limited in the end.
FALLBACKS = ("", "continuation", "limited")
CONTINUATION, LIMITED = 1, 2


class ConvergenceWarning(UserWarning):
    """The sites did not reach their fixed point."""


class Easier(NamedTuple):
    """How a problem whose sites are evaluated differs from the one that is meant."""

    power_shift: tf.Tensor | None = None
    """From 0 to 1: powers are at least as large as that; or down to -1: smaller by that part."""
    prior_part: tf.Tensor | None = None
    """By which the prior's variance is multiplied, see
    :mod:`gpflow_pep.engine.sites.smaller_priors`."""
    rough: tf.Tensor | None = None
    """Whether integrals may have errors of 1e-4."""


#: The problem that is meant.
MEANT = Easier()


class SweepEvaluation(NamedTuple):
    r"""
    What the inner loop needs to know of some sites, which it holds as two numbers each.

    These are :math:`(\nu, \tau)`, and both move by one step; or, where it is coupled, :math:`\tau`
    and a first number whose target was found for all sites together, and does not depend on
    :math:`\tau`: all first numbers then move by one step, and each :math:`\tau` by its own.
    """

    marginals: Marginals
    """Moments of h under the q that has these sites."""

    target: Sites
    """Where the two numbers want to be: x*."""

    limited: Sites
    """The same with precisions that are not negative."""

    error: tf.Tensor
    """[2, N, L], see :func:`~gpflow_pep.engine.sites.posterior.scaled_error`."""

    proper: tf.Tensor
    """[], bool: B is positive definite, all cavities are proper and all numbers finite."""

    merit: tf.Tensor
    """[], what no step may make smaller; a constant where there is nothing of the kind."""

    extra: Any = ()
    """What else the caller wants to have of the sites where the run ends: tensors."""


class Goal(NamedTuple):
    """Where a run has converged: where one of these is met."""

    tolerance: float
    """The residual is below it: all sites are where they want to be."""

    mean_square_residual: tf.Tensor | float = 0.0
    """The mean square residual is below it: half the sum of squares of a row's errors, on average
    over rows, in nats. The energy's error was seen to be up to some thirty times as much, so that
    this is enough to optimise it. After a long step of an optimiser, across which the energy
    changes by far more, up to a hundred times this is: a tenth of what the run began with."""


@dataclass(frozen=True)
class RunLimits:
    """How far a run goes."""

    goal: Goal
    max_sweeps: int
    """The most evaluations, at least 1; as many again for each fallback, and twice that on the
    continuation from power 0."""
    damping: float = 1.0
    """The largest step."""
    fall_back: bool = True
    """Whether fallbacks follow where the run has not converged."""


@dataclass(frozen=True)
class Features:
    """What is known of a problem, by which a run chooses its steps and what it tries."""

    coupled: bool = False
    """What the numbers of a site are, see :class:`SweepEvaluation`."""
    largest_power: tf.Tensor | None = None
    """Of a row; None: not small."""
    warm_up: tf.Tensor | None = None
    """Whether to begin with larger powers, see :mod:`gpflow_pep.engine.sites.larger_powers`; None:
    never."""
    climbs: bool = False
    """Whether sites climb to one of several optima at power 0, where merits tell which one is
    better, see :mod:`gpflow_pep.engine.sites.climbing`; only with ``warm_up``."""
    by_newton: bool = False
    """Whether the fallback through smaller powers takes steps of Newton's method."""
    largest_variance: tf.Tensor | None = None
    """Of the prior at the rows; None: there is no fallback from smaller ones."""
    has_rough: bool = False
    """Whether integrals that are rough take less time."""
    reduction: Reduction = LOCAL
    """Over processes, each of which holds a shard of the rows."""


class SiteUpdateInfo(NamedTuple):
    """A truthful record of a run of the inner loop."""

    num_sweeps: tf.Tensor
    """[], int: evaluations of all sites, refused ones included."""

    residual: tf.Tensor
    r"""[], the largest of :math:`|\sqrt{s} (F_\nu - m F_\tau)|` and :math:`|s F_\tau|` over sites,
    with the undamped F: how far, in standard deviations of q, the sites are from their targets.
    Infinite where a rate's expected log density is so low that no nat of log Z is known."""

    converged: tf.Tensor
    """[], bool: whether the run met its :class:`Goal`: the residual is below the tolerance, or its
    mean is small enough for a run that only serves the objective."""

    num_rejected: tf.Tensor
    """[], int: how many proposals were refused."""

    fallback: tf.Tensor | str
    """The last of :data:`FALLBACKS` that was tried, or its place among them in a graph."""

    @property
    def no_fixed_point_found(self) -> bool:
        """
        Whether all fallbacks were tried, smaller powers too where there are some, and none of them
        ended at a fixed point.

        There may be no fixed point then. At a power of 0 there always is one, but log Z may be
        beyond what a float can state there. Outside of graphs only.
        """
        return not self.converged and self.fallback in ("limited", LIMITED)


class FixedPoint(NamedTuple):
    """Where a run of the inner loop ended, constant for differentiation."""

    sites: Sites

    marginals: Marginals
    """Moments of h under the q that has these sites."""

    extra: Any
    """See :class:`SweepEvaluation`."""

    info: SiteUpdateInfo
