r"""The inner loop: sites brought to the fixed point of Power EP.

Bui, Yan & Turner (2017), section 3.3, updates one site after another. Here all are updated at
once, :math:`x \leftarrow x + \rho \circ F(x)` with :math:`F(x) = x^* - x`, and guarded:

* each site has a step :math:`\rho` of its own, which is halved where its residual turns around and
  grows again where it does not, below a cap for all that follows the norm of the residual;
* Anderson's acceleration proposes from the last few iterates while the norm falls;
* a proposal is refused where a cavity would be improper, a number not finite, or B not positive
  definite. Then plain steps are tried, then smaller negative precisions, smaller steps, and at last
  precisions that are not negative.

The module knows nothing of Gaussian processes: a function of the sites gives everything.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .sites import Marginals, Sites

#: Steps stay above this; the papers' step alpha is slow at small alpha for no gain.
_MIN_STEP = 0.01
_SHRINK_STEP, _GROW_STEP = 0.5, 1.2
_SHRINK_CAP, _GROW_CAP = 0.7, 1.15
#: Differences that Anderson's acceleration looks back on, and the residual below which it starts.
_DEPTH = 4
_ACCELERATE_BELOW = 0.5
#: What a proposal's negative precisions and its step are multiplied by, at first and after each
#: refusal. The last one stays where it is, except that no precision is negative: at the start of
#: the loop that is no sites at all, which is always proper; later the cap is made small.
_RETRIES = ((1.0, 1.0), (1.0, 1.0), (0.5, 1.0), (0.1, 1.0), (0.0, 1.0), (0.0, 0.5), (0.0, 0.0))
_RESTART_CAP = 0.1


class Evaluation(NamedTuple):
    """What the inner loop needs to know of some sites."""

    marginals: Marginals
    """Moments of h under the q that has these sites."""

    target: Sites
    """The sites that match the moments of the tilted distributions: x*."""

    proper: tf.Tensor
    """[], bool: B is positive definite, all cavities are proper and all numbers finite."""


class SiteUpdateInfo(NamedTuple):
    """A truthful record of a run of the inner loop."""

    num_sweeps: tf.Tensor
    """[], int: evaluations of all sites, refused ones included."""

    residual: tf.Tensor
    r"""[], the largest of :math:`|\sqrt{s} (F_\nu - m F_\tau)|` and :math:`|s F_\tau|` over sites,
    with the undamped F: how far, in standard deviations of q, the sites are from their targets."""

    converged: tf.Tensor
    """[], bool: whether the residual is below the tolerance."""

    num_rejected: tf.Tensor
    """[], int: how many proposals were refused."""


class _State(NamedTuple):
    sweep: tf.Tensor
    num_rejected: tf.Tensor
    retry: tf.Tensor
    """Which of _RETRIES the next proposal uses."""
    x: tf.Tensor
    """[2, N, L], nu and tau of the last sites that were accepted."""
    marginals: tf.Tensor
    """[2, N, L], m and s there."""
    F: tf.Tensor
    """[2, N, L], x* - x there."""
    scaled: tf.Tensor
    """[2, N, L], F in units of q's standard deviation."""
    step: tf.Tensor
    """[N, L], step of each site."""
    cap: tf.Tensor
    """[], largest step of any."""
    dx: tf.Tensor
    """[_DEPTH, 2, N, L], last differences of x, the newest first; zero where forgotten."""
    dF: tf.Tensor
    """[_DEPTH, 2, N, L], of F."""


def _scale(F: tf.Tensor, marginals: tf.Tensor) -> tf.Tensor:
    """F [..., 2, N, L] in units of q's standard deviation."""
    m, s = marginals[0], marginals[1]
    F_nu, F_tau = F[..., 0, :, :], F[..., 1, :, :]
    return tf.stack([tf.sqrt(s) * (F_nu - m * F_tau), s * F_tau], axis=-3)


def _norm(scaled: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.reduce_mean(tf.square(scaled)))


@tf.autograph.experimental.do_not_convert
def _residual(state: _State) -> tf.Tensor:
    """Infinite until something was evaluated."""
    largest = tf.reduce_max(tf.abs(state.scaled))
    return tf.where(state.sweep > state.num_rejected, largest, tf.constant(np.inf, largest.dtype))


def _accelerated_step(state: _State) -> tf.Tensor:
    """Anderson's proposal less x; F itself where nothing is remembered."""
    rows = tf.reshape(_scale(state.dF, state.marginals), [_DEPTH, -1])
    length = tf.norm(rows, axis=1, keepdims=True)
    known = tf.cast(length > 0.0, rows.dtype)
    rows /= tf.where(length > 0.0, length, tf.ones_like(length))
    # Normal equations of rows of unit length; the ridge is far above their rounding error.
    ridge = tf.constant(np.sqrt(np.finfo(rows.dtype.as_numpy_dtype).eps) * 1e-2, rows.dtype)
    normal = tf.matmul(rows, rows, transpose_b=True) + tf.linalg.diag(ridge + 1.0 - known[:, 0])
    moment = tf.matmul(rows, tf.reshape(_scale(state.F, state.marginals), [-1, 1]))
    gamma = tf.linalg.solve(normal, moment) / tf.where(known > 0.0, length, tf.ones_like(length))
    return state.F - tf.tensordot(gamma[:, 0], state.dx + state.dF, axes=1)


@tf.autograph.experimental.do_not_convert
def _propose(state: _State) -> tf.Tensor:
    shrink, factor = (tf.constant(column, state.x.dtype)[state.retry] for column in zip(*_RETRIES))
    damped = factor * tf.minimum(state.step, state.cap) * state.F
    accelerate = (state.retry == 0) & tf.reduce_any(state.dF != 0.0)
    x = state.x + tf.where(accelerate, _accelerated_step(state), damped)
    nu, tau = x[0], x[1]
    return tf.stack([nu, tf.where(tau < 0.0, shrink * tau, tau)])


@tf.autograph.experimental.do_not_convert
def _accept(state: _State, x: tf.Tensor, evaluation: Evaluation, largest_step: float) -> _State:
    """The state after a proposal that was proper."""
    first = state.sweep == state.num_rejected
    marginals = tf.stack(evaluation.marginals)
    F = tf.stack(evaluation.target) - x
    scaled = _scale(F, marginals)
    along = tf.reduce_sum(scaled * state.scaled, axis=0)
    turned = along < -0.5 * tf.reduce_sum(tf.square(state.scaled), axis=0)
    step = state.step * tf.where(
        turned & ~first, tf.constant(_SHRINK_STEP, x.dtype), tf.constant(_GROW_STEP, x.dtype)
    )
    falls = (_norm(scaled) < _norm(state.scaled)) | first
    cap = state.cap * tf.where(
        falls, tf.constant(_GROW_CAP, x.dtype), tf.constant(_SHRINK_CAP, x.dtype)
    )
    restarted = (state.retry == len(_RETRIES) - 1) & ~first
    cap = tf.where(restarted, _RESTART_CAP * state.cap, cap)
    remember = falls & ~first & ~restarted & (tf.reduce_max(tf.abs(scaled)) < _ACCELERATE_BELOW)
    memory = tf.cast(remember, x.dtype)
    return _State(
        sweep=state.sweep + 1,
        num_rejected=state.num_rejected,
        retry=tf.zeros_like(state.retry),
        x=x,
        marginals=marginals,
        F=F,
        scaled=scaled,
        step=tf.clip_by_value(step, _MIN_STEP, largest_step),
        cap=tf.clip_by_value(cap, _MIN_STEP * _RESTART_CAP, largest_step),
        dx=memory * tf.concat([(x - state.x)[None], state.dx[:-1]], axis=0),
        dF=memory * tf.concat([(F - state.F)[None], state.dF[:-1]], axis=0),
    )


@tf.autograph.experimental.do_not_convert
def _refuse(state: _State) -> _State:
    """The state after a proposal that was not proper."""
    return state._replace(
        sweep=state.sweep + 1,
        num_rejected=state.num_rejected + 1,
        retry=tf.minimum(state.retry + 1, len(_RETRIES) - 1),
        dx=tf.zeros_like(state.dx),
        dF=tf.zeros_like(state.dF),
    )


def run_to_fixed_point(
    evaluate: Callable[[Sites], Evaluation],
    initial: Sites,
    *,
    max_sweeps: int,
    tolerance: float,
    damping: float = 1.0,
) -> tuple[Sites, Marginals, SiteUpdateInfo]:
    """
    Update all sites until they match the moments of the tilted distributions.

    It runs inside a compiled graph as well as outside, and always ends. The sites that come back
    are proper even where they did not converge; the record tells.

    :param evaluate: Computes what belongs to some sites: one sweep over the rows.
    :param initial: Where to start. Where that is not proper: as far towards it as is.
    :param max_sweeps: The most evaluations, at least 1.
    :param tolerance: Converged when the residual, see :class:`SiteUpdateInfo`, is below it.
    :param damping: The largest step, in (0, 1].
    """
    x = tf.stack(initial)
    memory = tf.zeros_like(tf.stack([x] * _DEPTH))
    start = _State(
        sweep=tf.constant(0),
        num_rejected=tf.constant(0),
        retry=tf.constant(0),
        # From no sites, with the initial ones as the first step to propose.
        x=tf.zeros_like(x),
        marginals=tf.zeros_like(x),
        F=x,
        scaled=tf.zeros_like(x),
        step=tf.ones_like(x[0]),
        cap=tf.ones([], x.dtype),
        dx=memory,
        dF=memory,
    )

    def unfinished(*values: tf.Tensor) -> tf.Tensor:
        state = _State(*values)
        nothing_accepted = state.sweep == state.num_rejected
        return nothing_accepted | ((state.sweep < max_sweeps) & (_residual(state) >= tolerance))

    def sweep(*values: tf.Tensor) -> _State:
        state = _State(*values)
        proposal = _propose(state)
        evaluation = evaluate(Sites(proposal[0], proposal[1]))
        accepted = _accept(state, proposal, evaluation, damping)
        refused = _refuse(state)
        return _State(
            *(tf.where(evaluation.proper, a, b) for a, b in zip(accepted, refused, strict=True))
        )

    end = _State(
        *tf.while_loop(
            unfinished,
            sweep,
            start,
            parallel_iterations=1,
            maximum_iterations=max_sweeps + len(_RETRIES),
        )
    )
    residual = _residual(end)
    info = SiteUpdateInfo(end.sweep, residual, residual < tolerance, end.num_rejected)
    return Sites(end.x[0], end.x[1]), Marginals(end.marginals[0], end.marginals[1]), info
