r"""The inner loop: sites brought to the fixed point of Power EP.

Bui, Yan & Turner (2017), section 3.3, updates one site after another. Here all are updated at
once, :math:`x \leftarrow x + \rho \circ F(x)` with :math:`F(x) = x^* - x`, and guarded:

* each site has a step :math:`\rho` of its own, which is halved where its residual turns around and
  grows again where it does not, below a cap that follows the residual of all of them;
* Anderson's acceleration proposes from the last iterates, unless the residual's norm jumps;
* a proposal is refused where a cavity would be improper, a number not finite, B not positive
  definite, or a merit of the sites smaller. Then plain steps are tried, smaller negative precisions
  or smaller steps, and at last precisions that are not negative.

Where that has not converged, fallbacks follow by themselves, and where several fixed points may be,
easier problems come first: :mod:`gpflow_pep.sites.phases`.

The module knows nothing of Gaussian processes: a function of the sites gives everything, and they
may be held in other numbers than their natural parameters, see :class:`SweepEvaluation`. Where each
process holds a shard of the rows, all of them take the same decisions, by a
:class:`~gpflow_pep.ops.chunks.Reduction` of sums and maxima.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..ops.chunks import LOCAL, Reduction
from .anderson import Differences, accelerated_step
from .phases import DAMPED, LIMITED, Phase, Phases, phases_of
from .posterior import Marginals, Sites, in_deviations
from .record import FixedPoint, Goal, SiteUpdateInfo, SweepEvaluation

_DAMPED_CAP = 0.1
#: A residual below which the run is close.
_CLOSE = 0.05
#: Steps of single sites stay above this. Without steps of their own 5 cells of 1440 fewer converge
#: (examples/benchmarks/stress.py; probit, Student-t), at 10% more sweeps in all.
_MIN_STEP = 0.01
_SHRINK_STEP, _GROW_STEP = 0.5, 1.2
_SHRINK_CAP, _GROW_CAP = 0.7, 1.05  # 1.15 was seen to cycle, RobustMax at alpha 1
#: The largest cap of a coupled run that began far away: means and precisions turn around each
#: other, and longer steps took hundreds of sweeps at long lengthscales.
_CAP_FROM_FAR = 0.4
_REFUSED_CAP = 0.5
_MIN_CAP = 1e-3
#: Anderson's acceleration starts where the residual is below the first number, and forgets where
#: the norm of it grows by more than the second.
_ACCELERATE_BELOW = 0.5
_LARGEST_JUMP = 2.0
#: See :class:`Goal`. A run that begins with a mean square above _FAR had no sites, or those
#: of other data.
_OF_FIRST, _LARGEST_FACTOR, _FAR = 1e-2, 10.0, 0.1
#: Above this mean square a coupled step leaves precisions that want to be negative at 0: most do
#: not later.
_EARLY = 0.1
#: What a proposal's negative precisions and its step are multiplied by, at first and after each
#: refusal. The last one stays where it is, except that no precision is negative: at the start of
#: the loop that is no sites at all, which is always proper; later the cap is made small.
_NEGATIVE = (1.0, 1.0, 0.5, 0.1, 0.0, 0.0, 0.0)
_FACTORS = (1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0)
#: The step instead, the same for all sites, where the merit fell but nothing was improper. Without
#: these 2 cells of 1440 fewer converge (examples/benchmarks/stress.py), of the probit.
_MERIT_STEPS = (1.0, 1.0, 0.5, 0.25, 0.1, 0.03, 0.0)
_RESTART_CAP = 0.1


class _Settings(NamedTuple):
    """What does not change in a run."""

    damping: float
    coupled: bool
    reduction: Reduction


class _State(NamedTuple):
    sweep: tf.Tensor
    phase: tf.Tensor
    """Its place among all of them."""
    phase_sweep: tf.Tensor
    """Evaluations since its start."""
    nothing_accepted: tf.Tensor
    """Nothing was accepted since its start."""
    num_rejected: tf.Tensor
    retry: tf.Tensor
    """Which of _FACTORS the next proposal uses."""
    improper: tf.Tensor
    """Whether a refused one was improper."""
    x: tf.Tensor
    """[2, N, L], the last sites that were accepted."""
    marginals: tf.Tensor
    """[2, N, L], m and s there."""
    extra: Any
    """Of the evaluation there."""
    F: tf.Tensor
    """[2, N, L], x* - x there, for the x* of the phase."""
    scaled: tf.Tensor
    """[2, N, L], F in units of q's standard deviation."""
    norm: tf.Tensor
    """[], root of the sum of squares of these."""
    largest: tf.Tensor
    """[], the residual, or in the limited phase the largest of these."""
    residual: tf.Tensor
    """[], of the record; infinite until something was evaluated."""
    mean_square: tf.Tensor
    """[], see :class:`Goal`."""
    first_mean_square: tf.Tensor
    """[], of the first evaluation of the run; 0 where that was refused."""
    merit: tf.Tensor
    step: tf.Tensor
    """[1 or 2, N, L], step of each site, or of each of its numbers."""
    cap: tf.Tensor
    """[1 or 2, 1, 1], largest step of any."""
    differences: Differences
    """Of x and F; none where they were forgotten."""


def _total(reduction: Reduction, *parts: tf.Tensor) -> list[tf.Tensor]:
    # No gradient is ever taken, but TensorFlow prepares that of a loop where several tapes watch.
    return [tf.stop_gradient(part) for part in reduction.total(parts)]


def _met(state: _State, goal: Goal) -> tf.Tensor:
    relative = tf.where(state.first_mean_square < _FAR, _OF_FIRST * state.first_mean_square, 0.0)
    least = goal.mean_square_residual
    mean_square = tf.clip_by_value(relative, least, _LARGEST_FACTOR * least)
    return (state.residual < goal.tolerance) | (state.mean_square < mean_square)


def _settled(state: _State, phase: Phase, goal: Goal) -> tf.Tensor:
    """Whether the phase has reached what it can reach."""
    met = _met(state, goal)
    met |= (phase.fallback == LIMITED) & (state.largest < goal.tolerance)
    return ~state.nothing_accepted & tf.where(
        phase.is_warm_up, state.mean_square < phase.mean_square, met
    )


def _spent(state: _State, phase: Phase) -> tf.Tensor:
    """Whether the phase may not go on, or has tried all there is and nothing was accepted."""
    return state.phase_sweep >= tf.where(state.nothing_accepted, len(_FACTORS), phase.sweeps)


def _close(state: _State) -> tf.Tensor:
    return ~state.nothing_accepted & (state.largest < _CLOSE)


def _accelerates(state: _State) -> tf.Tensor:
    return (state.retry == 0) & (state.differences.count > 0)


def _plain_step(state: _State) -> tf.Tensor:
    """Make a step of each site towards where it wants to be."""
    factors, uniform = (
        tf.constant(column, state.x.dtype)[state.retry] for column in (_FACTORS, _MERIT_STEPS)
    )
    damped = factors * tf.minimum(state.step, state.cap)
    return tf.where(state.improper | (state.retry < 2), damped, uniform) * state.F


def _propose(state: _State, settings: _Settings) -> tf.Tensor:
    def accelerated() -> tf.Tensor:
        past, moments = state.differences, state.marginals
        return accelerated_step(past, state.F, moments, settings.coupled, settings.reduction)

    x = state.x + tf.cond(_accelerates(state), accelerated, lambda: _plain_step(state))
    first, tau = x[0], x[1]
    shrink = tf.constant(_NEGATIVE, x.dtype)[state.retry]
    return tf.stack([first, tf.where(state.improper & (tau < 0.0), shrink * tau, tau)])


def _number(condition: tf.Tensor, one: float, other: float, like: tf.Tensor) -> tf.Tensor:
    return tf.where(condition, tf.constant(one, like.dtype), tf.constant(other, like.dtype))


def _accept(
    state: _State, phase: Phase, x: tf.Tensor, evaluation: SweepEvaluation, settings: _Settings
) -> _State:
    """Make the state after a proposal that was accepted."""
    marginals = tf.stack(evaluation.marginals)
    error, num_rows = _total(
        settings.reduction,
        tf.reduce_sum(tf.square(evaluation.error)),
        tf.cast(tf.shape(x)[1], x.dtype),
    )
    mean_square, limited = 0.5 * error / num_rows, phase.fallback == LIMITED
    early = settings.coupled & (mean_square > _EARLY)
    F = tf.where(limited | early, tf.stack(evaluation.limited), tf.stack(evaluation.target)) - x
    scaled = in_deviations(F, marginals, settings.coupled)
    sizes = [tf.reduce_max(tf.abs(part)) for part in (scaled, evaluation.error)]
    largest, residual = settings.reduction.largest(sizes)
    largest = tf.where(limited, largest, residual)
    # A step is too long where the residual points back along the one it followed.
    along, squares = scaled * state.scaled, tf.square(state.scaled)
    if not settings.coupled:
        along, squares = (tf.reduce_sum(part, axis=0, keepdims=True) for part in (along, squares))
    all_along, squared_norm = _total(
        settings.reduction,
        tf.reduce_sum(along, axis=[1, 2], keepdims=True),
        tf.reduce_sum(tf.square(scaled)),
    )
    norm = tf.sqrt(squared_norm)
    plain = ~state.nothing_accepted & ~_accelerates(state)
    turned = along < -0.5 * squares
    if settings.coupled:
        turned &= tf.constant([[[False]], [[True]]])
    step = state.step * _number(turned & plain, _SHRINK_STEP, _GROW_STEP, x)
    cap = state.cap * _number((all_along < 0.0) & plain, _SHRINK_CAP, _GROW_CAP, x)
    restarted = (state.retry == len(_FACTORS) - 1) & ~state.nothing_accepted
    cap = tf.where(restarted, _RESTART_CAP * state.cap, cap)
    jumped = norm > _LARGEST_JUMP * state.norm
    if settings.coupled:  # where acceleration overshoots, so do the plain steps that follow it
        cap = tf.where(jumped & _accelerates(state), _REFUSED_CAP * cap, cap)
    remember = ~(jumped | state.nothing_accepted | restarted) & (largest < _ACCELERATE_BELOW)
    differences = tf.cond(
        remember,
        lambda: state.differences.appended(x - state.x, F - state.F),
        state.differences.forgotten,
    )
    first_mean_square = tf.where(state.sweep == 1, mean_square, state.first_mean_square)
    damped, from_far = (min(settings.damping, cap) for cap in (_DAMPED_CAP, _CAP_FROM_FAR))
    largest_step = _number(phase.fallback == DAMPED, damped, settings.damping, x)
    if settings.coupled:
        largest_step = tf.minimum(largest_step, _number(first_mean_square > _FAR, from_far, 1.0, x))
    return state._replace(
        nothing_accepted=tf.zeros_like(state.nothing_accepted),
        retry=tf.zeros_like(state.retry),
        improper=tf.zeros_like(state.improper),
        x=x,
        marginals=marginals,
        extra=evaluation.extra,
        F=F,
        scaled=scaled,
        norm=norm,
        largest=largest,
        residual=residual,
        mean_square=mean_square,
        first_mean_square=first_mean_square,
        merit=evaluation.merit,
        step=tf.clip_by_value(step, _MIN_STEP, largest_step),
        cap=tf.clip_by_value(cap, _MIN_CAP, largest_step),
        differences=differences,
    )


def _refuse(state: _State, evaluation: SweepEvaluation) -> _State:
    """Make the state after a proposal that was not accepted."""
    return state._replace(
        num_rejected=state.num_rejected + 1,
        retry=tf.minimum(state.retry + 1, len(_FACTORS) - 1),
        improper=state.improper | ~evaluation.proper,
        cap=tf.where(
            _accelerates(state), state.cap, tf.maximum(_REFUSED_CAP * state.cap, _MIN_CAP)
        ),
        differences=state.differences.forgotten(),
    )


def _next_phase(
    state: _State, phase: Phase, phases: Phases, has_smaller_powers: tf.Tensor
) -> _State:
    """Start the next phase: from no sites, unless this one is a warm-up or close."""
    warm_up, close = phase.is_warm_up, _close(state)
    start = tf.cast(close | warm_up, state.x.dtype)
    restart, infinity = ~close | warm_up, tf.constant(np.inf, state.x.dtype)
    # Other powers are of no use where the run is close, or where not even no sites are proper.
    passed_over = (state.phase == phases.main) & (
        close | state.nothing_accepted | ~has_smaller_powers
    )
    return state._replace(
        phase=tf.where(passed_over, len(phases) - 2, state.phase + 1),
        phase_sweep=tf.zeros_like(state.phase_sweep),
        nothing_accepted=restart,
        retry=tf.zeros_like(state.retry),
        improper=tf.zeros_like(state.improper),
        x=start * state.x,
        F=start * state.F,
        residual=tf.where(restart, infinity, state.residual),
        mean_square=tf.where(restart, infinity, state.mean_square),
        step=tf.ones_like(state.step),
        cap=tf.ones_like(state.cap),
        differences=state.differences.forgotten(),
    )


def run_to_fixed_point(
    evaluate: Callable[[Sites, tf.Tensor, Any], SweepEvaluation],
    initial: Sites,
    *,
    max_sweeps: int,
    goal: Goal,
    damping: float = 1.0,
    fall_back: bool = True,
    coupled: bool = False,
    warm_up: tf.Tensor | None = None,
    has_smaller_powers: tf.Tensor | None = None,
    reduction: Reduction = LOCAL,
    extra: Any = (),
) -> FixedPoint:
    """
    Update all sites until they match the moments of the tilted distributions.

    It runs inside a compiled graph as well as outside, and always ends. The sites that come back
    are proper even where they did not converge; the record tells.

    :param evaluate: Computes what belongs to some sites, one sweep over the rows, of a problem that
        is as much easier than the one that is meant as its second argument says: from 0 to 1, with
        powers as large as that, or down to -1, with powers that are smaller by that part. The third
        one is ``extra`` of the last evaluation that was accepted.
    :param initial: Where to start. Where that is not proper: as far towards it as is.
    :param max_sweeps: The most evaluations, at least 1; as many again for each fallback, and twice
        that on the continuation from power 0.
    :param coupled: What the numbers of a site are, see :class:`SweepEvaluation`.
    :param warm_up: Whether to begin with the easier problems of
        :data:`~gpflow_pep.sites.phases.WARM_UP_POWERS`; None: never.
    :param has_smaller_powers: Whether there are smaller powers to try; None: there are.
    :param extra: What an evaluation has of that name, before the first.
    """
    phases = phases_of(warm_up is not None, fall_back, max_sweeps)
    settings = _Settings(damping, coupled, reduction)
    x = tf.stack(initial)
    zero, no = tf.constant(0), tf.constant(False)
    has_smaller_powers = ~no if has_smaller_powers is None else has_smaller_powers
    own_steps = 1 + coupled
    start = _State(
        sweep=zero,
        phase=zero if warm_up is None else tf.where(warm_up, 0, phases.main),
        phase_sweep=zero,
        nothing_accepted=~no,
        num_rejected=zero,
        retry=zero,
        improper=no,
        # From no sites, with the initial ones as the first step to propose.
        x=tf.zeros_like(x),
        marginals=tf.zeros_like(x),
        extra=extra,
        F=x,
        scaled=tf.zeros_like(x),
        norm=tf.zeros([], x.dtype),
        largest=tf.zeros([], x.dtype),
        residual=tf.constant(np.inf, x.dtype),
        mean_square=tf.constant(np.inf, x.dtype),
        first_mean_square=tf.zeros([], x.dtype),
        merit=tf.zeros([], x.dtype),
        step=tf.ones_like(x[:own_steps]),
        cap=tf.ones([own_steps, 1, 1], x.dtype),
        differences=Differences.empty(x, reduction),
    )
    slack = 0.1 * np.sqrt(np.finfo(x.dtype.as_numpy_dtype).eps)

    def body(state: _State, _: tf.Tensor) -> tuple[_State, tf.Tensor]:
        phase, proposal = phases.at(state.phase, x.dtype), _propose(state, settings)
        evaluation = evaluate(Sites(proposal[0], proposal[1]), phase.power_shift, state.extra)
        state = state._replace(sweep=state.sweep + 1, phase_sweep=state.phase_sweep + 1)
        no_worse = evaluation.merit >= state.merit - slack * tf.abs(state.merit)
        state = tf.cond(
            evaluation.proper & (state.nothing_accepted | no_worse),
            lambda: _accept(state, phase, proposal, evaluation, settings),
            lambda: _refuse(state, evaluation),
        )
        last = state.phase == len(phases) - 1
        spent, settled = _spent(state, phase), _settled(state, phase, goal)
        over = spent & ~settled & ~last & ~((phase.fallback == DAMPED) & _close(state))
        over |= phase.is_warm_up & (spent | settled)
        goes_on = over | ~(spent | settled)
        state = tf.cond(
            over, lambda: _next_phase(state, phase, phases, has_smaller_powers), lambda: state
        )
        return state, goes_on

    end, _ = tf.while_loop(
        lambda _, goes_on: goes_on,
        body,
        (start, ~no),
        parallel_iterations=1,
        maximum_iterations=sum(len(_FACTORS) + phase.sweeps for phase in phases),
    )
    info = SiteUpdateInfo(
        end.sweep,
        end.residual,
        _met(end, goal),
        end.num_rejected,
        phases.at(end.phase, x.dtype).fallback,
    )
    sites, moments = Sites(*tf.unstack(end.x)), Marginals(*tf.unstack(end.marginals))
    return FixedPoint(sites, moments, end.extra, info)
