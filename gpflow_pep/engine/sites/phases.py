"""What a run of the inner loop tries: attempts, each a list of phases.

A phase has a problem, as easy as the one that is meant or easier, and ends where that has
converged, or after so many sweeps. All attempts are listed in
:mod:`gpflow_pep.engine.sites.fixed_point`: a new one is an entry there, and a function in a module
of its own that returns an :class:`Attempt`. Nothing else knows of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from .steps import State

#: For the phase after which there is nothing left to try.
NONE_FOLLOWS = 1_000_000


class Phase(NamedTuple):
    """Three floats, then integers; or tensors [] of the phase that a run is in."""

    power_shift: Any = 0.0
    """See :class:`~gpflow_pep.engine.sites.record.Easier`."""
    prior_part: Any = 1.0
    """See :class:`~gpflow_pep.engine.sites.record.Easier`."""
    mean_square: Any = 0.0
    """Below which the next phase begins, with the same sites; 0: the goal of the run counts. One
    with another number is a *warm-up*: it serves but to begin the next one."""
    sweeps: Any = 0
    """The most of them."""
    is_newton: Any = 0
    """1 where Newton's method takes the steps, see :mod:`gpflow_pep.engine.sites.newton`, else
    0."""
    following: Any = 1
    """How many places further the run goes on where the phase has not settled."""
    fallback: Any = 0
    """That of the attempt."""


class Turn(NamedTuple):
    """The end of a sweep, where a run may leave its phase."""

    state: State
    phase: Phase
    is_warm_up: tf.Tensor
    settled: tf.Tensor
    """[], whether the phase has reached what it can reach."""
    over: tf.Tensor
    """[], whether the run leaves the phase."""
    following: State
    """What comes next if it does."""


@dataclass(frozen=True)
class Attempt:
    """A list of phases, tried where the attempts before it have not converged."""

    phases: Sequence[Phase]
    fallback: int = 0
    """What the record calls it: a place in :data:`~gpflow_pep.engine.sites.record.FALLBACKS`."""
    is_tried: Callable[[State, Phase], tf.Tensor] | None = None
    """Whether it is tried after a phase that ended with a state; None: always."""
    first: Callable[[State], tf.Tensor] | None = None
    """Which of its phases then comes first; None: the first one."""
    turn: Callable[[Turn, int], Turn] | None = None
    """What it changes where a run may leave a phase, whichever, with the place of the attempt's
    first phase: at once for its own phases, or with what to begin the next; None: nothing."""
