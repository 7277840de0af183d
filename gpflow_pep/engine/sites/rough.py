"""Integrals that are rough while the residual is far above their errors.

A phase begins with rough integrals, where these take less time, until the mean square residual is
small, a proposal is refused, or there were many sweeps. Those of the sites that come back are
accurate: a run of few sweeps has no others, and in all others some are accepted before the end.
"""

import tensorflow as tf

from ..numerics.chunks import sizes_may_vary
from .phases import Phase
from .record import RunLimits
from .steps import State

#: Integrals are rough above this mean square residual, for so many sweeps of a phase, in runs of at
#: least twice as many.
_RESIDUAL, _SWEEPS = 1e-5, 10


def is_worth(limits: RunLimits) -> bool:
    """Whether a run is long enough for rough integrals."""
    return limits.max_sweeps >= 2 * _SWEEPS and sizes_may_vary()


def is_next_rough(state: State, phase: Phase) -> tf.Tensor:
    """Decide whether the integrals of the next evaluation are rough, []."""
    early = (state.mean_square > _RESIDUAL) & (state.phase_sweep < _SWEEPS) & (state.retry == 0)
    return state.rough & early & (phase.is_newton == 0)


def propose_again(
    state: State, proposal: tf.Tensor, rough: tf.Tensor
) -> tuple[tf.Tensor, State, tf.Tensor]:
    """
    Propose sites again that are close from the start, until more is known of them than is rough.

    :param rough: See :func:`is_next_rough`.
    :return: The sites, the state, and whether integrals become accurate: merits of two rules are
        not compared.
    """
    refined = state.rough & ~rough
    again = refined & (state.phase_sweep == 1)
    state = state._replace(nothing_accepted=state.nothing_accepted | again)
    return tf.where(again, state.x, proposal), state, refined
