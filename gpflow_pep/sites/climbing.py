r"""What a run of the inner loop does where its merit tells which of several optima is better.

At power 0 the energy is a bound of log Z, whatever the sites are, and that of several classes has
several optima. Which one sites climb to depends on where they start, and some are worse than
guessing. So, where a run did not begin with larger powers by itself,

* it begins again with these, from no sites, where its initial sites are far from where they want to
  be, or where it did not converge;
* it goes back to the sites of the largest merit that some phase ended with, and on from there,
  where it has converged to a smaller one, or where not even small steps have converged.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .record import DAMPED
from .steps import FAR, State

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


class Turns(NamedTuple):
    """Whether a run leaves its phase, []."""

    begins_again: tf.Tensor
    """For the first of the easier problems."""

    returns: tf.Tensor
    """For the best sites."""


def turns_of(
    state: State,
    has_merit: tf.Tensor,
    *,
    is_main: tf.Tensor,
    fallback: tf.Tensor,
    settled: tf.Tensor,
    over: tf.Tensor,
    last: tf.Tensor,
) -> tuple[State, Turns]:
    """
    Decide whether a run leaves its phase because of merits, and remember the best sites.

    :param has_merit: Whether the phase's problem has a merit.
    :param is_main: Whether it is the first one of the problem that is meant.
    :param fallback: Its place in :data:`~gpflow_pep.sites.record.FALLBACKS`.
    :param settled: Whether it has reached what it can.
    :param over: Whether it ends.
    :param last: Whether nothing may follow.
    """
    has_merit &= ~state.nothing_accepted
    began_here = is_main & (state.sweep == state.phase_sweep)
    is_far = (state.sweep == 1) & (state.first_mean_square > FAR)
    begins_again = has_merit & began_here & ~settled & (is_far | (over & ~state.is_close))
    worse = state.merit < state.best.merit - _SAME * tf.abs(state.best.merit)
    returns = has_merit & ~last & ((settled & worse) | (over & (fallback == DAMPED)))
    # Sites that are far may have any merit, and none that lasts.
    is_best = has_merit & (over | returns) & ~is_far & (state.merit > state.best.merit)
    x, merit = (
        tf.where(is_best, part, best)
        for part, best in zip((state.x, state.merit), state.best, strict=True)
    )
    first = tf.where(begins_again, tf.constant(float("inf"), x.dtype), state.first_mean_square)
    state = state._replace(best=Best(x, merit), first_mean_square=first)
    return state, Turns(begins_again, returns)


def from_sites(state: State, x: tf.Tensor) -> State:
    """Begin a phase with some sites, [2, N, L]: they are its first proposal."""
    infinity = tf.constant(float("inf"), x.dtype)
    return state._replace(
        nothing_accepted=tf.ones_like(state.nothing_accepted),
        x=tf.zeros_like(x),
        F=x,
        residual=infinity,
        mean_square=infinity,
    )
