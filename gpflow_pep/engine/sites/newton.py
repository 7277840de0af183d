r"""
Newton's method for sites whose updates are not drawn to their fixed point.

Where an eigenvalue of the update's derivative J has a real part above 1, no damping leads to the
fixed point, though there is one. Newton's step d, which solves :math:`(I - J) d = F(x)`, does.
It is solved for by generalised conjugate residuals: each product of :math:`J - I` and a direction w
is a difference :math:`(F(x + h w) - F(x)) / h`, which takes one more sweep, a *probe*, and the next
direction is what the last ones leave of F. Then the step is shortened until F becomes smaller.

The differences are remembered where Anderson's acceleration remembers its own, and d is the step
that it would make of them: see :mod:`gpflow_pep.engine.sites.steps`.
"""

import numpy as np
import tensorflow as tf

from .posterior import in_deviations
from .steps import NUM_FACTORS, State, StepRules, chosen

#: The equations are solved to this part of F: fewer products, and one or two more steps.
_LEFT = 0.1
#: A step is taken that makes F smaller by this part of what it would be if F were linear.
_SUFFICIENT = 0.1


def newton_step(
    state: State, rules: StepRules, full: tf.Tensor, left: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Make a probe, a step, or none from sites of which nothing is known; and say if it probes.

    :param full: The step that makes F zero as far as the differences know.
    :param left: What that leaves of F.
    """
    past, dtype = state.differences, state.x.dtype
    scaled = in_deviations(left, state.marginals, rules.coupled)
    (square,) = rules.total(tf.reduce_sum(tf.square(scaled)))
    size = tf.sqrt(square)
    known = past.count >= past.depth
    probing = ~(state.nothing_accepted | known | (size <= _LEFT * state.norm))
    probing &= state.retry == 0
    # The error of a difference is least where its two parts, of rounding and of curvature, agree.
    h = np.finfo(dtype.as_numpy_dtype).eps ** 0.25
    step = tf.where(probing, (h / size) * left, _part(state) * full)
    return tf.where(state.nothing_accepted, tf.zeros_like(step), step), probing


def _part(state: State) -> tf.Tensor:
    """Compute which part of the step is tried."""
    return tf.pow(tf.constant(0.5, state.x.dtype), tf.cast(state.retry, state.x.dtype))


def choose(
    is_newton: tf.Tensor, others: tuple[tf.Tensor, State, State], state: State, proper: tf.Tensor
) -> tuple[tf.Tensor, State, State]:
    """
    Decide whether a proposal is accepted, and what follows if it is, and if not.

    :param is_newton: Whether it is one of Newton's method.
    :param others: The same of other steps.
    :param proper: Whether the proposal is.
    """
    accepts, after, refused = others
    forgotten = after._replace(differences=after.differences.forgotten())
    smaller = after.norm < (1.0 - _SUFFICIENT * _part(state)) * state.norm
    is_forward = state.nothing_accepted | (~state.probing & smaller)
    return (
        accepts & (~is_newton | is_forward),
        chosen(is_newton, forgotten, after),
        chosen(is_newton, _refuse(state, after, state.probing & proper), refused),
    )


def _refuse(state: State, after: State, known: tf.Tensor) -> State:
    """
    Make the state after a proposal that was not accepted: a probe, or too long a step.

    :param after: The state if it were.
    :param known: Whether it is a probe whose difference is known.
    """
    past, refused = state.differences, tf.cast(~known, tf.int32)
    newest = tf.where(known, after.differences.newest, past.newest)
    return state._replace(
        num_rejected=state.num_rejected + refused,
        retry=state.retry + refused,
        differences=past._replace(count=past.count + tf.cast(known, tf.int32), newest=newest),
    )


def is_stuck(state: State) -> tf.Tensor:
    """Decide whether not even the shortest step made F smaller."""
    return state.retry >= NUM_FACTORS
