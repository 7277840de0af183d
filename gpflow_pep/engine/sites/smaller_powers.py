"""Sites reached from those of power 0 by those of larger and larger powers.

Where the likelihood lets sites repel updates, Newton's method takes the steps, see
:mod:`gpflow_pep.engine.sites.newton`.
"""

import tensorflow as tf

from .phases import Attempt, Phase
from .record import CONTINUATION, Features, RunLimits
from .steps import State

#: How far below the problem that is meant those of the continuation are, from -1, power 0, to 0.
POWER_SHIFTS = tuple(-k / 20 for k in range(20, 0, -1))
#: The mean square residual at which each of these ends, and its part of the sweeps that the problem
#: that is meant has. Longer ones were seen to lose the way where sites jump.
_RESIDUAL, _PART = 1e-4, 0.1
#: The same where Newton's method takes the steps.
_NEWTON_RESIDUAL, _NEWTON_PART = 1e-6, 0.3
#: A power, below which smaller ones are the same problem.
_NEARLY_ZERO = 0.1


def smaller_powers(features: Features, limits: RunLimits) -> Attempt:
    """
    Follow the fixed point from power 0.

    It is of no use where not even no sites are proper, nor where the run is close: then only
    Newton's method goes on, at the power that is meant.
    """
    by_newton, last = features.by_newton, len(POWER_SHIFTS)
    residual = _NEWTON_RESIDUAL if by_newton else _RESIDUAL
    few = int((_NEWTON_PART if by_newton else _PART) * limits.max_sweeps)
    has_smaller = tf.constant(True)
    if features.largest_power is not None:
        has_smaller = features.largest_power > _NEARLY_ZERO

    def is_tried(state: State, _: Phase) -> tf.Tensor:
        useful = ~state.nothing_accepted & has_smaller
        return useful | state.is_close if by_newton else useful & ~state.is_close

    phases = []
    for place, shift in enumerate(POWER_SHIFTS):
        # From no sites Newton's method may diverge. Where it does not reach a power, only the last
        # one is tried after it.
        steps = int(by_newton and place > 0)
        following = last - place if steps else 1
        phases.append(Phase(shift, 1.0, residual, few, steps, following))
    phases.append(Phase(sweeps=limits.max_sweeps, is_newton=int(by_newton)))
    first = (lambda state: tf.where(state.is_close, last, 0)) if by_newton else None
    return Attempt(phases, CONTINUATION, is_tried, first)
