r"""
Newton's method for sites whose updates are not drawn to their fixed point.

Where an eigenvalue of the update's derivative J has a real part above 1, no damping leads to the
fixed point, though there is one. Newton's step d, which solves :math:`(I - J) d = F(x)`, does.
It is solved for by generalised conjugate residuals: each product of :math:`J - I` and a direction w
is a difference :math:`(F(x + h w) - F(x)) / h`, which takes one more sweep, a *probe*, and the next
direction is what the last ones leave of F. Then the step is shortened until F becomes smaller.

The differences are remembered where Anderson's acceleration remembers its own, and d is the step
that it would make of them: see :mod:`gpflow_pep.sites.steps`.
"""

import numpy as np
import tensorflow as tf

from .posterior import in_deviations
from .record import SweepEvaluation
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
    size = _norm(left, state, rules)
    known = past.count >= past.dF.shape[0]
    probing = ~(state.nothing_accepted | known | (size <= _LEFT * state.norm))
    probing &= state.retry == 0
    # The error of a difference is least where its two parts, of rounding and of curvature, agree.
    h = np.finfo(dtype.as_numpy_dtype).eps ** 0.25
    step = tf.where(probing, (h / size) * left, _part(state) * full)
    return tf.where(state.nothing_accepted, tf.zeros_like(step), step), probing


def _part(state: State) -> tf.Tensor:
    """Compute which part of the step is tried."""
    return tf.pow(tf.constant(0.5, state.x.dtype), tf.cast(state.retry, state.x.dtype))


def _norm(F: tf.Tensor, state: State, rules: StepRules) -> tf.Tensor:
    scaled = in_deviations(F, state.marginals, rules.coupled)
    (square,) = rules.total(tf.reduce_sum(tf.square(scaled)))
    return tf.sqrt(square)


def choose(
    is_newton: tf.Tensor,
    others: tuple[tf.Tensor, State, State],
    state: State,
    x: tf.Tensor,
    evaluation: SweepEvaluation,
    rules: StepRules,
) -> tuple[tf.Tensor, State, State]:
    """
    Decide whether a proposal x is accepted, and what follows if it is, and if not.

    :param is_newton: Whether it is one of Newton's method.
    :param others: The same of other steps.
    """
    accepts, after, refused = others
    forgotten = after._replace(differences=after.differences.forgotten())
    return (
        accepts & (~is_newton | _is_forward(state, x, evaluation, rules)),
        chosen(is_newton, forgotten, after),
        chosen(is_newton, _refuse(state, x, evaluation), refused),
    )


def _is_forward(
    state: State, x: tf.Tensor, evaluation: SweepEvaluation, rules: StepRules
) -> tf.Tensor:
    """Decide whether a proposal is a step that may be taken."""
    norm = _norm(tf.stack(evaluation.target) - x, state, rules)
    smaller = norm < (1.0 - _SUFFICIENT * _part(state)) * state.norm
    return state.nothing_accepted | (~state.probing & smaller)


def _refuse(state: State, x: tf.Tensor, evaluation: SweepEvaluation) -> State:
    """Make the state after a proposal that was not accepted: a probe, or too long a step."""
    dF = tf.stack(evaluation.target) - x - state.F
    known = state.probing & evaluation.proper
    differences = state.differences._replace(
        count=state.differences.count + tf.cast(known, tf.int32),
        newest=tf.where(known, tf.stack([x - state.x + dF, dF]), state.differences.newest),
    )
    refused = tf.cast(~known, tf.int32)
    return state._replace(
        num_rejected=state.num_rejected + refused,
        retry=state.retry + refused,
        differences=differences,
    )


def is_stuck(state: State) -> tf.Tensor:
    """Decide whether not even the shortest step made F smaller."""
    return state.retry >= NUM_FACTORS
