r"""Sites reached from those of problems whose prior is narrower.

At power 0 a rate whose logarithm is f is expected to be :math:`e^{m + v / 2}`. Under a prior of
variance 100 a row that is far from all inducing inputs starts at :math:`e^{50}`, under one of
10\ :sup:`4` beyond what a float can state, and a step of the updates makes exponents smaller by
about one. Where that has not converged, all prior variances are multiplied by a small part t, which
grows to 1 in steps by a constant factor, as the barrier of an interior-point method does. As
:math:`u = L v`, that multiplies the projections A by :math:`\sqrt t`, and what is left of the
variance given u by t.

Of each problem the next one's sites are predicted: :math:`\lambda = \nu - \tau m` and
:math:`\tau` stay. That moves the means, :math:`m = t AᵀA \lambda`, in proportion to t, and so does
the :math:`v / 2` that they make up for.
"""

import numpy as np
import tensorflow as tf

from .larger_powers import RESIDUAL
from .phases import Attempt, Phase, Turn
from .record import CONTINUATION, Features, RunLimits

#: The variance that the first problem has at most, and the factor between one and the next: with
#: longer steps one cell of 1440 fewer converges (examples/benchmarks/stress.py, near-duplicates at
#: variance 1e4).
_FIRST_VARIANCE, _FACTOR = 10.0, 2.0**0.125
_NUM_PARTS = 160
#: The parts t of the prior's variance, below 1.
PRIOR_PARTS = tuple(_FACTOR**-k for k in range(_NUM_PARTS, 0, -1))


def smaller_priors(features: Features, limits: RunLimits) -> Attempt:
    """Follow the fixed point from narrower priors, unless the run is close."""
    most, first = limits.max_sweeps, first_place(features.largest_variance)
    phases = [
        Phase(0.0, part, RESIDUAL, most, following=_NUM_PARTS + 1 - place)
        for place, part in enumerate(PRIOR_PARTS)
    ]
    return Attempt(
        [*phases, Phase(sweeps=most)],
        CONTINUATION,
        is_tried=lambda state, _: ~state.is_close,
        first=lambda _: first,
        turn=_with_prediction,
    )


def first_place(largest_variance: tf.Tensor) -> tf.Tensor:
    """Choose which of :data:`PRIOR_PARTS` to begin with, by the largest prior variance, []."""
    steps = tf.math.log(largest_variance / _FIRST_VARIANCE) / np.log(_FACTOR)
    return tf.clip_by_value(_NUM_PARTS - tf.cast(tf.math.ceil(steps), tf.int32), 0, _NUM_PARTS - 1)


def predicted_change(x: tf.Tensor, m: tf.Tensor, ratio: tf.Tensor) -> tf.Tensor:
    r"""
    Predict how sites change, [2, N, L], where the prior's variance grows.

    :param x: Those under the smaller one, [2, N, L]: :math:`\nu` and :math:`\tau`.
    :param m: The means of h there, [N, L].
    :param ratio: Of the variances, [].
    """
    first = (ratio - 1.0) * x[1] * m
    return tf.stack([first, tf.zeros_like(first)])


def _with_prediction(turn: Turn, _: int) -> Turn:
    """Begin the next phase with the sites that are predicted for its prior."""
    state, part = turn.state, turn.phase.prior_part
    ratio = tf.where(turn.settled, tf.constant(_FACTOR, part.dtype), 1.0 / part)
    change = predicted_change(state.x, state.marginals[0], ratio)
    F = tf.where(part < 1.0, change, turn.following.F)
    return turn._replace(following=turn.following._replace(F=F))
