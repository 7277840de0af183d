r"""The inner loop: sites brought to the fixed point of Power EP.

Bui, Yan & Turner (2017), section 3.3, updates one site after another. Here all are updated at
once, :math:`x \leftarrow x + \rho \circ F(x)` with :math:`F(x) = x^* - x`, and guarded:

* each site has a step :math:`\rho` of its own, which is halved where its residual turns around and
  grows again where it does not, below a cap that follows the residual of all of them;
* Anderson's acceleration proposes from the last iterates, unless the residual's norm jumps;
* a proposal is refused where a cavity would be improper, a number not finite, or B not positive
  definite. Then plain steps are tried, then smaller negative precisions, smaller steps, and at last
  precisions that are not negative.

Where that has not converged, fallbacks follow by themselves, see :data:`FALLBACKS`.

The module knows nothing of Gaussian processes: a function of the sites gives everything. Where each
process holds a shard of the rows, all of them take the same decisions, by a
:class:`~gpflow_pep.ops.chunks.Reduction` of sums and maxima.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..ops.chunks import LOCAL, Reduction
from .posterior import Marginals, Sites

#: What is tried, each for as many sweeps, until one has converged. "damped": small steps from no
#: sites, or from where the run is where that is close already. "limited", where it is not close
#: even then: towards sites whose precision is not negative and which match the tilted mean alone
#: where theirs would be. That nearly always ends at a point that depends smoothly on the
#: parameters, but it is not a fixed point of Power EP, and the record says that it did not
#: converge, unless no precision was limited in the end.
FALLBACKS = ("", "damped", "limited")
_DAMPED, _LIMITED = 1, 2
_DAMPED_CAP = 0.1
#: A residual below which the run is close.
_CLOSE = 0.05
#: Steps stay above this; the papers' step alpha is slow at small alpha for no gain.
_MIN_STEP = 0.01
_SHRINK_STEP, _GROW_STEP = 0.5, 1.2
_SHRINK_CAP, _GROW_CAP = 0.7, 1.15
_REFUSED_CAP = 0.5
_MIN_CAP = 1e-3
#: Anderson's acceleration starts where the residual is below the first number, and forgets where
#: the norm of it grows by more than the second.
_ACCELERATE_BELOW = 0.5
_LARGEST_JUMP = 2.0
#: Differences that it looks back on: many, as long as they are few numbers beside others.
_DEPTH, _SMALL_DEPTH = 16, 4
_DEEP_SITES = 200_000
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

    limited: Sites
    """The sites of non-negative precision that do, or match the mean alone."""

    proper: tf.Tensor
    """[], bool: B is positive definite, all cavities are proper and all numbers finite."""

    extra: Any = ()
    """What else the caller wants to have of the sites where the run ends: tensors."""


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

    fallback: tf.Tensor | str
    """The last of :data:`FALLBACKS` that was tried, or its place among them in a graph."""


class FixedPoint(NamedTuple):
    """Where a run of the inner loop ended, constant for differentiation."""

    sites: Sites

    marginals: Marginals
    """Moments of h under the q that has these sites."""

    extra: Any
    """See :class:`Evaluation`."""

    info: SiteUpdateInfo


class _State(NamedTuple):
    sweep: tf.Tensor
    phase: tf.Tensor
    """Place in FALLBACKS."""
    phase_sweep: tf.Tensor
    """Evaluations since its start."""
    fresh: tf.Tensor
    """Nothing was accepted since its start."""
    num_rejected: tf.Tensor
    retry: tf.Tensor
    """Which of _RETRIES the next proposal uses."""
    x: tf.Tensor
    """[2, N, L], nu and tau of the last sites that were accepted."""
    marginals: tf.Tensor
    """[2, N, L], m and s there."""
    extra: Any
    """Of the evaluation there."""
    F: tf.Tensor
    """[2, N, L], x* - x there, for the x* of the phase."""
    scaled: tf.Tensor
    """[2, N, L], F in units of q's standard deviation."""
    norm: tf.Tensor
    """[], root of the mean square of these."""
    largest: tf.Tensor
    """[], the largest of them."""
    residual: tf.Tensor
    """[], of the record; infinite until something was evaluated."""
    step: tf.Tensor
    """[N, L], step of each site."""
    cap: tf.Tensor
    """[], largest step of any."""
    dx: tf.Tensor
    """[depth, 2, N, L], last differences of x, the newest first; zero where forgotten."""
    dF: tf.Tensor
    """[depth, 2, N, L], of F."""
    remembers: tf.Tensor
    """Whether these are differences."""


def _scale(F: tf.Tensor, marginals: tf.Tensor) -> tf.Tensor:
    """F [..., 2, N, L] in units of q's standard deviation."""
    m, s = marginals[0], marginals[1]
    F_nu, F_tau = F[..., 0, :, :], F[..., 1, :, :]
    return tf.stack([tf.sqrt(s) * (F_nu - m * F_tau), s * F_tau], axis=-3)


def residual(sites: Sites, evaluation: Evaluation) -> tf.Tensor:
    """
    Compute the residual of a record, see :class:`SiteUpdateInfo`.

    :param sites: Some sites.
    :param evaluation: What belongs to them.
    """
    F = tf.stack(evaluation.target) - tf.stack(sites)
    return tf.reduce_max(tf.abs(_scale(F, tf.stack(evaluation.marginals))))


def _total(reduction: Reduction, *parts: tf.Tensor) -> list[tf.Tensor]:
    # No gradient is ever taken, but TensorFlow prepares that of a loop where several tapes watch.
    return [tf.stop_gradient(part) for part in reduction.total(parts)]


def _settled(state: _State, tolerance: float) -> tf.Tensor:
    """Whether the phase has reached what it can reach."""
    return ~state.fresh & (state.largest < tolerance)


def _close(state: _State) -> tf.Tensor:
    return ~state.fresh & (state.largest < _CLOSE)


def _accelerated_step(state: _State, reduction: Reduction) -> tf.Tensor:
    """Anderson's proposal less x; F itself where nothing is remembered."""
    rows = tf.reshape(_scale(state.dF, state.marginals), [tf.shape(state.dF)[0], -1])
    (squares,) = _total(reduction, tf.reduce_sum(tf.square(rows), axis=1, keepdims=True))
    length = tf.sqrt(squares)
    known = tf.cast(length > 0.0, rows.dtype)
    rows /= tf.where(length > 0.0, length, tf.ones_like(length))
    products, moment = _total(
        reduction,
        tf.matmul(rows, rows, transpose_b=True),
        tf.matmul(rows, tf.reshape(_scale(state.F, state.marginals), [-1, 1])),
    )
    # Normal equations of rows of unit length; the ridge is far above their rounding error.
    ridge = tf.constant(np.sqrt(np.finfo(rows.dtype.as_numpy_dtype).eps) * 1e-2, rows.dtype)
    normal = products + tf.linalg.diag(ridge + 1.0 - known[:, 0])
    gamma = tf.linalg.solve(normal, moment) / tf.where(known > 0.0, length, tf.ones_like(length))
    return state.F - tf.tensordot(gamma[:, 0], state.dx + state.dF, axes=1)


def _accelerates(state: _State) -> tf.Tensor:
    return (state.retry == 0) & state.remembers


def _propose(state: _State, reduction: Reduction) -> tf.Tensor:
    shrink, factor = (tf.constant(column, state.x.dtype)[state.retry] for column in zip(*_RETRIES))
    damped = factor * tf.minimum(state.step, state.cap) * state.F
    x = state.x + tf.where(_accelerates(state), _accelerated_step(state, reduction), damped)
    nu, tau = x[0], x[1]
    return tf.stack([nu, tf.where(tau < 0.0, shrink * tau, tau)])


def _largest_step(state: _State, damping: float) -> tf.Tensor:
    damped = tf.constant(min(damping, _DAMPED_CAP), state.x.dtype)
    return tf.where(state.phase == _DAMPED, damped, tf.constant(damping, state.x.dtype))


def _accept(
    state: _State, x: tf.Tensor, evaluation: Evaluation, damping: float, reduction: Reduction
) -> _State:
    """The state after a proposal that was proper."""
    marginals = tf.stack(evaluation.marginals)
    unlimited = tf.stack(evaluation.target) - x
    limited = tf.stack(evaluation.limited) - x
    F = tf.where(state.phase == _LIMITED, limited, unlimited)
    scaled = _scale(F, marginals)
    # A step is too long where the residual points back along the one it followed.
    along = tf.reduce_sum(scaled * state.scaled, axis=0)
    all_along, squares, size = _total(
        reduction,
        tf.reduce_sum(along),
        tf.reduce_sum(tf.square(scaled)),
        tf.cast(tf.size(scaled), x.dtype),
    )
    norm = tf.sqrt(squares / size)
    sizes = [tf.reduce_max(tf.abs(part)) for part in (scaled, _scale(unlimited, marginals))]
    largest, residual = reduction.largest(sizes)
    plain = ~state.fresh & ~_accelerates(state)
    turned = along < -0.5 * tf.reduce_sum(tf.square(state.scaled), axis=0)
    step = state.step * tf.where(
        turned & plain, tf.constant(_SHRINK_STEP, x.dtype), tf.constant(_GROW_STEP, x.dtype)
    )
    cap = state.cap * tf.where(
        (all_along < 0.0) & plain,
        tf.constant(_SHRINK_CAP, x.dtype),
        tf.constant(_GROW_CAP, x.dtype),
    )
    restarted = (state.retry == len(_RETRIES) - 1) & ~state.fresh
    cap = tf.where(restarted, _RESTART_CAP * state.cap, cap)
    jumped = norm > _LARGEST_JUMP * state.norm
    remember = ~(jumped | state.fresh | restarted) & (largest < _ACCELERATE_BELOW)
    memory = tf.cast(remember, x.dtype)
    largest_step = _largest_step(state, damping)
    return state._replace(
        fresh=tf.zeros_like(state.fresh),
        retry=tf.zeros_like(state.retry),
        x=x,
        marginals=marginals,
        extra=evaluation.extra,
        F=F,
        scaled=scaled,
        norm=norm,
        largest=largest,
        residual=residual,
        step=tf.clip_by_value(step, _MIN_STEP, largest_step),
        cap=tf.clip_by_value(cap, _MIN_CAP, largest_step),
        dx=memory * tf.concat([(x - state.x)[None], state.dx[:-1]], axis=0),
        dF=memory * tf.concat([(F - state.F)[None], state.dF[:-1]], axis=0),
        remembers=remember,
    )


def _refuse(state: _State) -> _State:
    """The state after a proposal that was not proper."""
    return state._replace(
        num_rejected=state.num_rejected + 1,
        retry=tf.minimum(state.retry + 1, len(_RETRIES) - 1),
        cap=tf.maximum(_REFUSED_CAP * state.cap, _MIN_CAP),
        dx=tf.zeros_like(state.dx),
        dF=tf.zeros_like(state.dF),
        remembers=tf.zeros_like(state.remembers),
    )


def _fall_back(state: _State) -> _State:
    """The state at the start of the next phase: from no sites, unless it is close."""
    close = _close(state)
    start = tf.cast(close, state.x.dtype)
    return state._replace(
        phase=state.phase + 1,
        phase_sweep=tf.zeros_like(state.phase_sweep),
        fresh=~close,
        retry=tf.zeros_like(state.retry),
        x=start * state.x,
        F=start * state.F,
        step=tf.ones_like(state.step),
        cap=tf.ones_like(state.cap),
        dx=tf.zeros_like(state.dx),
        dF=tf.zeros_like(state.dF),
        remembers=tf.zeros_like(state.remembers),
    )


def _depth(x: tf.Tensor, reduction: Reduction) -> int:
    size = reduction.known_total(x.shape.num_elements())
    return _DEPTH if size <= _DEEP_SITES else _SMALL_DEPTH


def run_to_fixed_point(
    evaluate: Callable[[Sites], Evaluation],
    initial: Sites,
    *,
    max_sweeps: int,
    tolerance: float,
    damping: float = 1.0,
    fall_back: bool = True,
    reduction: Reduction = LOCAL,
    extra: Any = (),
) -> FixedPoint:
    """
    Update all sites until they match the moments of the tilted distributions.

    It runs inside a compiled graph as well as outside, and always ends. The sites that come back
    are proper even where they did not converge; the record tells.

    :param evaluate: Computes what belongs to some sites: one sweep over the rows.
    :param initial: Where to start. Where that is not proper: as far towards it as is.
    :param max_sweeps: The most evaluations, at least 1; as many again for each fallback.
    :param tolerance: Converged when the residual, see :class:`SiteUpdateInfo`, is below it.
    :param damping: The largest step, in (0, 1].
    :param fall_back: Whether to try the fallbacks.
    :param reduction: Over processes that hold a shard of the sites each.
    :param extra: What an evaluation has of that name, with any numbers.
    """
    x = tf.stack(initial)
    memory = tf.zeros_like(tf.stack([x] * _depth(x, reduction)))
    zero = tf.constant(0)
    start = _State(
        sweep=zero,
        phase=zero,
        phase_sweep=zero,
        fresh=tf.constant(True),
        num_rejected=zero,
        retry=zero,
        # From no sites, with the initial ones as the first step to propose.
        x=tf.zeros_like(x),
        marginals=tf.zeros_like(x),
        extra=extra,
        F=x,
        scaled=tf.zeros_like(x),
        norm=tf.zeros([], x.dtype),
        largest=tf.zeros([], x.dtype),
        residual=tf.constant(np.inf, x.dtype),
        step=tf.ones_like(x[0]),
        cap=tf.ones([], x.dtype),
        dx=memory,
        dF=memory,
        remembers=tf.constant(False),
    )
    last_phase = len(FALLBACKS) - 1 if fall_back else 0

    def exhausted(state: _State) -> tf.Tensor:
        return ~state.fresh & (state.phase_sweep >= max_sweeps) & ~_settled(state, tolerance)

    def unfinished(state: _State) -> tf.Tensor:
        return ~(_settled(state, tolerance) | exhausted(state))

    def body(state: _State) -> tuple[_State]:
        proposal = _propose(state, reduction)
        evaluation = evaluate(Sites(proposal[0], proposal[1]))
        state = state._replace(sweep=state.sweep + 1, phase_sweep=state.phase_sweep + 1)
        accepted = _accept(state, proposal, evaluation, damping, reduction)
        state = _choose(evaluation.proper, accepted, _refuse(state))
        next_phase = exhausted(state) & (state.phase < last_phase)
        next_phase &= (state.phase < _DAMPED) | ~_close(state)
        return (_choose(next_phase, _fall_back(state), state),)

    (end,) = tf.while_loop(
        unfinished,
        body,
        (start,),
        parallel_iterations=1,
        maximum_iterations=(1 + last_phase) * (max_sweeps + len(_RETRIES)),
    )
    info = SiteUpdateInfo(
        end.sweep, end.residual, end.residual < tolerance, end.num_rejected, end.phase
    )
    sites, moments = Sites(*tf.unstack(end.x)), Marginals(*tf.unstack(end.marginals))
    return FixedPoint(sites, moments, end.extra, info)


def _choose(condition: tf.Tensor, a: _State, b: _State) -> _State:
    return tf.nest.map_structure(lambda one, other: tf.where(condition, one, other), a, b)
