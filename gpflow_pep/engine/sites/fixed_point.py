r"""The inner loop: sites brought to the fixed point of Power EP.

Bui, Yan & Turner (2017), section 3.3, updates one site after another. Here all are updated at
once, :math:`x \leftarrow x + \rho \circ F(x)` with :math:`F(x) = x^* - x`, and guarded:

* integrals may be rough while the residual is far above their errors;
* each site has a step :math:`\rho` of its own, which is halved where its residual turns around and
  grows again where it does not, below a cap that follows the residual of all of them;
* Anderson's acceleration proposes from the last iterates what makes their residuals smallest, as
  they are seen from the rows, unless their norm jumps;
* a proposal is refused where a cavity would be improper, a number not finite, B not positive
  definite, or a merit of the sites smaller. Then plain steps are tried, smaller negative precisions
  or smaller steps, and at last precisions that are not negative.

Where that has not converged, fallbacks follow by themselves: all are listed in :data:`REMEDIES`, in
the order in which they are tried, and each has a module that says when and how. Where several fixed
points may be, easier problems come first.

The module knows nothing of Gaussian processes: a function of the sites gives everything, and they
may be held in other numbers than their natural parameters, see
:class:`~gpflow_pep.engine.sites.record.SweepEvaluation`. Where each process holds a shard of the
rows, all of them take the same decisions, by a
:class:`~gpflow_pep.engine.numerics.chunks.Reduction` of sums and maxima.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import tensorflow as tf

from . import newton, rough
from .climbing import best_sites, no_best
from .larger_powers import larger_powers
from .phases import NONE_FOLLOWS, Attempt, Phase, Turn
from .posterior import Marginals, Sites
from .record import (
    LIMITED,
    Easier,
    Features,
    FixedPoint,
    Goal,
    RunLimits,
    SiteUpdateInfo,
    SweepEvaluation,
)
from .smaller_powers import smaller_powers
from .smaller_priors import smaller_priors
from .steps import (
    LARGEST_JUMP,
    NUM_FACTORS,
    State,
    StepRules,
    accept,
    chosen,
    propose,
    refuse,
    start_at,
)

#: ``(sites, easier, extra) -> evaluation``: what belongs to some sites, one sweep over the rows, of
#: a problem that may be easier than the one that is meant. The last argument is ``extra`` of the
#: last evaluation that was accepted.
Evaluate = Callable[[Sites, Easier, Any], SweepEvaluation]
Choice = tuple[Callable[[Features, RunLimits], bool], Callable[[Features, RunLimits], Attempt]]
#: Runs of fewer sweeps follow nothing from easier problems, each of which has a part of these.
_MANY = 10


def the_problem(_: Features, limits: RunLimits) -> Attempt:
    """Solve the problem that is meant, from the initial sites."""
    return Attempt([Phase(sweeps=limits.max_sweeps)])


def limited(_: Features, limits: RunLimits) -> Attempt:
    """Move towards sites whose precision is not negative, where no fixed point is near."""
    phase = Phase(sweeps=limits.max_sweeps, following=NONE_FOLLOWS)
    return Attempt([phase], LIMITED, lambda state, _: ~state.is_close)


def _always(*_: Any) -> bool:
    return True


def _has_many_sweeps(_: Features, limits: RunLimits) -> bool:
    return limits.max_sweeps >= _MANY


def _has_wide_prior(features: Features, limits: RunLimits) -> bool:
    return features.largest_variance is not None and limits.max_sweeps >= _MANY


#: What a run tries, in this order: which problems an attempt is for, and the attempt. A run begins
#: with these.
BEGINNINGS: tuple[Choice, ...] = (
    (lambda features, _: features.warm_up is not None, larger_powers),
    (_always, the_problem),
)
#: Each of these follows where what comes before it has not converged.
REMEDIES: tuple[Choice, ...] = (
    (_has_many_sweeps, smaller_powers),
    (_has_wide_prior, smaller_priors),
    (_always, limited),
    (lambda features, _: features.climbs, best_sites),
)
_ORDINARY = Features()


class _Schedule:
    """The phases of some attempts, one after another."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self.phases = [
            phase._replace(fallback=attempt.fallback)
            for attempt in attempts
            for phase in attempt.phases
        ]
        starts = [0, *accumulate(len(attempt.phases) for attempt in attempts)]
        self._attempts = [*zip(attempts, starts, starts[1:])]
        self.by_newton = any(phase.is_newton for phase in self.phases)
        self.has_smaller_priors = any(phase.prior_part < 1.0 for phase in self.phases)

    def phase_at(self, place: tf.Tensor, dtype: tf.DType) -> Phase:
        """Look up a phase."""
        columns = list(zip(*self.phases))
        numbers, counts = (
            tf.unstack(tf.gather(tf.constant(list(zip(*some)), kind), place))
            for some, kind in ((columns[:3], dtype), (columns[3:], tf.int32))
        )
        return Phase(*numbers, *counts)

    def first_place(self, state: State) -> tf.Tensor:
        """Choose the phase that a run begins with."""
        attempt, start, end = self._attempts[0]
        if attempt.is_tried is None:
            return tf.constant(start)
        return tf.where(attempt.is_tried(state, Phase()), start, end)

    def after(
        self,
        state: State,
        phase: Phase,
        is_warm_up: tf.Tensor,
        settled: tf.Tensor,
        spent: tf.Tensor,
    ) -> Turn:
        """Decide whether a run leaves its phase, and what it goes on with."""
        place = state.phase + tf.where(settled, 1, phase.following)
        for attempt, start, end in self._attempts[1:]:
            first: Any = start
            if attempt.first is not None:
                first += attempt.first(state)
            if attempt.is_tried is not None:
                first = tf.where(attempt.is_tried(state, phase), first, end)
            if first is not start:
                place = tf.where(place == start, first, place)
        over = spent & ~settled & (place < len(self.phases))
        over |= is_warm_up & (spent | settled)
        turn = Turn(state, phase, is_warm_up, settled, over, _begin(state, is_warm_up, place))
        for attempt, start, _ in self._attempts:
            if attempt.turn is not None:
                turn = attempt.turn(turn, start)
        return turn


def _begin(state: State, warm_up: tf.Tensor, place: tf.Tensor) -> State:
    """
    Start the next phase: from no sites, unless the last one was a warm-up or is close.

    :param place: That of the next one.
    """
    close = state.is_close
    start = tf.cast(close | warm_up, state.x.dtype)
    restart, infinity = ~close | warm_up, tf.constant(np.inf, state.x.dtype)
    return state._replace(
        phase=place,
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
        rough=tf.nest.map_structure(lambda rough: rough | restart, state.rough),
    )


def _settled(state: State, phase: Phase, is_warm_up: tf.Tensor, goal: Goal) -> tf.Tensor:
    """Whether the phase has reached what it can reach."""
    met = state.meets(goal) | ((phase.fallback == LIMITED) & (state.largest < goal.tolerance))
    for is_rough in tf.nest.flatten(state.rough):
        met &= ~is_rough
    met = tf.where(is_warm_up, state.mean_square < phase.mean_square, met)
    return ~state.nothing_accepted & met


def _spent(state: State, phase: Phase, by_newton: bool) -> tf.Tensor:
    """Whether the phase may not go on, or has tried all there is."""
    spent = state.phase_sweep >= tf.where(state.nothing_accepted, NUM_FACTORS, phase.sweeps)
    return spent | ((phase.is_newton > 0) & newton.is_stuck(state)) if by_newton else spent


def run_to_fixed_point(
    evaluate: Evaluate,
    initial: Sites,
    limits: RunLimits,
    features: Features = _ORDINARY,
    extra: Any = (),
) -> FixedPoint:
    """
    Update all sites until they match the moments of the tilted distributions.

    It runs inside a compiled graph as well as outside, and always ends. The sites that come back
    are proper even where they did not converge; the record tells.

    :param initial: Where to start. Where that is not proper: as far towards it as is.
    :param extra: What an evaluation has of that name, before the first.
    """
    choices = [*BEGINNINGS, *(REMEDIES if limits.fall_back else ())]
    attempts = [choose(features, limits) for is_for, choose in choices if is_for(features, limits)]
    plan, x = _Schedule(attempts), tf.stack(initial)
    has_rough = features.has_rough and rough.is_worth(limits)
    newton_step = newton.newton_step if plan.by_newton else None
    rules = StepRules(limits.damping, features.coupled, features.reduction, newton_step)
    no, slack = tf.constant(False), 0.1 * np.sqrt(np.finfo(x.dtype.as_numpy_dtype).eps)
    start = start_at(x, rules, extra)
    start = start._replace(
        phase=plan.first_place(start),
        probing=no if plan.by_newton else (),
        rough=~no if has_rough else (),
        best=no_best(x) if features.climbs and limits.fall_back else (),
    )

    def stepped(state: State, phase: Phase) -> State:
        """Propose sites, evaluate them, and accept or refuse them."""
        is_newton = phase.is_newton > 0
        proposal, state = propose(state, rules, is_newton)
        easier, is_rough, refined = Easier(phase.power_shift), (), no
        if plan.has_smaller_priors:
            easier = easier._replace(prior_part=phase.prior_part)
        if has_rough:
            is_rough = rough.is_next_rough(state, phase)
            easier = easier._replace(rough=is_rough)
            proposal, state, refined = rough.propose_again(state, proposal, is_rough)
        evaluation = evaluate(Sites(*tf.unstack(proposal)), easier, state.extra)
        state = state._replace(sweep=state.sweep + 1, phase_sweep=state.phase_sweep + 1)
        accepted = accept(state, phase.fallback, proposal, evaluation, rules)
        no_worse = evaluation.merit >= state.merit - slack * tf.abs(state.merit)
        # Near the fixed point a step may lower the merit a little on the way there.
        no_worse |= state.is_close & (accepted.norm < LARGEST_JUMP * state.norm)
        step = (
            evaluation.proper & (state.nothing_accepted | no_worse | refined),
            accepted._replace(rough=is_rough),
            refuse(state, evaluation),
        )
        if plan.by_newton:
            step = newton.choose(is_newton, step, state, evaluation.proper)
        return chosen(*step)

    def body(state: State, _: tf.Tensor) -> tuple[State, tf.Tensor]:
        phase = plan.phase_at(state.phase, x.dtype)
        state = stepped(state, phase)
        spent = _spent(state, phase, plan.by_newton)
        is_warm_up = phase.mean_square > 0.0
        settled = _settled(state, phase, is_warm_up, limits.goal)
        turn = plan.after(state, phase, is_warm_up, settled, spent)
        goes_on = turn.over | ~(spent | settled)
        return chosen(turn.over, turn.following, state), goes_on

    end, _ = tf.while_loop(
        lambda _, goes_on: goes_on,
        body,
        (start, ~no),
        parallel_iterations=1,
        maximum_iterations=limits.max_sweeps
        + sum(NUM_FACTORS + phase.sweeps for phase in plan.phases),
    )
    info = SiteUpdateInfo(
        end.sweep,
        end.residual,
        end.meets(limits.goal),
        end.num_rejected,
        plan.phase_at(end.phase, x.dtype).fallback,
    )
    sites, moments = Sites(*tf.unstack(end.x)), Marginals(*tf.unstack(end.marginals))
    return FixedPoint(sites, moments, end.extra, info)
