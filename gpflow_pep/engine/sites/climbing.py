r"""What a run of the inner loop does where its merit tells which of several optima is better.

At power 0 the energy is a bound of log Z, whatever the sites are, and that of several classes has
several optima. Which one sites climb to depends on where they start, and some are worse than
guessing. So, where a run did not begin with larger powers by itself,

* it begins again with these, from no sites, where its initial sites are far from where they want to
  be, or where it did not converge;
* it goes back to the sites of the largest merit that some phase ended with, and on from there,
  where it has converged to a smaller one, or not converged from where it began.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .phases import NONE_FOLLOWS, Attempt, Phase, Turn
from .record import CONTINUATION, LIMITED, Features, RunLimits
from .steps import FAR, State, chosen

#: Merits that differ by a smaller part are those of the same optimum.
_SAME = 1e-6


class Best(NamedTuple):
    """The sites of the largest merit that some phase ended with."""

    x: tf.Tensor
    """[2, N, L]"""

    merit: tf.Tensor
    """[]; infinitely small before a phase has ended."""


def no_best(x: tf.Tensor) -> Best:
    """Before any sites were evaluated, [2, N, L]."""
    return Best(tf.zeros_like(x), tf.constant(-np.inf, x.dtype))


def best_sites(features: Features, limits: RunLimits) -> Attempt:
    """Go on from the best sites; nothing but merits leads to that."""
    power = features.largest_power
    has_merit = tf.constant(False) if power is None else power == 0.0

    def turn(turn: Turn, start: int) -> Turn:
        state, best, over, fallback = turn.state, turn.state.best, turn.over, turn.phase.fallback
        compares = has_merit & ~turn.is_warm_up & ~state.nothing_accepted
        is_far = (state.sweep == 1) & (state.first_mean_square > FAR)
        begins_again = is_far | (over & ~state.is_close)
        begins_again &= compares & ~turn.settled & (state.sweep == state.phase_sweep)
        worse = state.merit < best.merit - _SAME * tf.abs(best.merit)
        returns = (turn.settled & worse) | (over & (fallback == 0) & ~begins_again)
        returns &= compares & (fallback != LIMITED)
        # Sites that are far may have any merit, and none that lasts.
        is_best = compares & ~is_far & (state.merit > best.merit)
        pairs = zip((state.x, state.merit), best, strict=True)
        best = Best(*(tf.where(is_best, part, other) for part, other in pairs))
        infinity = tf.constant(np.inf, best.x.dtype)
        following = turn.following._replace(
            phase=tf.where(begins_again, 0, turn.following.phase),
            first_mean_square=tf.where(begins_again, infinity, state.first_mean_square),
            best=best,
        )
        following = chosen(returns, _from_sites(following, best.x, start), following)
        return turn._replace(over=over | begins_again | returns, following=following)

    phase = Phase(sweeps=limits.max_sweeps, following=NONE_FOLLOWS)
    return Attempt([phase], CONTINUATION, turn=turn)


def _from_sites(state: State, x: tf.Tensor, place: int) -> State:
    """Begin a phase with some sites, [2, N, L]: they are its first proposal."""
    infinity = tf.constant(np.inf, x.dtype)
    return state._replace(
        phase=tf.constant(place),
        nothing_accepted=tf.ones_like(state.nothing_accepted),
        x=tf.zeros_like(x),
        F=x,
        residual=infinity,
        mean_square=infinity,
    )
