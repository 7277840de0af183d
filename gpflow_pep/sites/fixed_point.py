r"""The inner loop: sites brought to the fixed point of Power EP.

Bui, Yan & Turner (2017), section 3.3, updates one site after another. Here all are updated at
once, :math:`x \leftarrow x + \rho \circ F(x)` with :math:`F(x) = x^* - x`, and guarded:

* integrals may be rough while the residual is far above their errors;
* each site has a step :math:`\rho` of its own, which is halved where its residual turns around and
  grows again where it does not, below a cap that follows the residual of all of them;
* Anderson's acceleration proposes from the last iterates, unless the residual's norm jumps;
* a proposal is refused where a cavity would be improper, a number not finite, B not positive
  definite, or a merit of the sites smaller. Then plain steps are tried, smaller negative precisions
  or smaller steps, and at last precisions that are not negative.

Where that has not converged, fallbacks follow by themselves
(:data:`~gpflow_pep.sites.record.FALLBACKS`), and where several fixed points may be, easier problems
come first. Where merits tell which of them is better: :mod:`gpflow_pep.sites.climbing`.

The module knows nothing of Gaussian processes: a function of the sites gives everything, and they
may be held in other numbers than their natural parameters, see
:class:`~gpflow_pep.sites.record.SweepEvaluation`. Where each process holds a shard of the rows, all
of them take the same decisions, by a :class:`~gpflow_pep.ops.chunks.Reduction` of sums and maxima.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..ops.chunks import LOCAL, Reduction, sizes_may_vary
from . import newton
from .climbing import from_sites, no_best, turns_of
from .posterior import Marginals, Sites
from .record import (
    CONTINUATION,
    DAMPED,
    LIMITED,
    FixedPoint,
    Goal,
    SiteUpdateInfo,
    SweepEvaluation,
)
from .smaller_priors import PRIOR_PARTS, first_place, predicted_change
from .steps import FAR, NUM_FACTORS, State, StepRules, accept, propose, refuse, start_at

#: See :class:`~gpflow_pep.sites.record.Goal`.
_OF_FIRST, _LARGEST_FACTOR = 1e-2, 10.0
#: How much easier the problems are that a run may begin with, from 1 to 0, the one that is meant.
WARM_UP_POWERS = (1.0, 0.5)
#: Each is left for the next one where its mean square residual is below this, or after so many
#: sweeps.
_WARM_UP_RESIDUAL, _WARM_UP_SWEEPS = 3e-3, 30
#: How far below the problem that is meant those of the continuation are, from -1, power 0, to 0.
POWER_SHIFTS = tuple(-k / 20 for k in range(20, 0, -1))
#: The mean square residual at which each of these ends, and its part of the sweeps that a phase has
#: that is no warm-up; where that is less than one there is none of them. Longer ones were seen to
#: lose the way where sites jump.
_CONTINUATION_RESIDUAL, _CONTINUATION_PART = 1e-4, 0.1
#: The same where Newton's method takes the steps.
_NEWTON_RESIDUAL, _NEWTON_PART = 1e-6, 0.3
#: A phase begins with rough integrals, until the mean square residual is below the first number, a
#: proposal is refused, or there were so many sweeps. Runs of less than twice these have only
#: accurate ones; in all others one is accepted before the end, at the latest after NUM_FACTORS.
_ROUGH_RESIDUAL, _ROUGH_SWEEPS = 1e-5, 10
#: Tensors of no more numbers are copied where one of two is taken.
_COPIED = 2_000


class Phase(NamedTuple):
    """A part of a run: three floats, then integers; or tensors [] of the one that a run is in."""

    power_shift: Any
    """Of the problem, see :func:`run_to_fixed_point`."""

    mean_square: Any
    """Below which the next phase begins, with the same sites; 0: there are other rules."""

    prior_part: Any
    """By which the prior's variance is multiplied, see :mod:`gpflow_pep.sites.smaller_priors`."""

    fallback: Any
    """Place in :data:`~gpflow_pep.sites.record.FALLBACKS`."""

    sweeps: Any
    """The most of them."""

    is_newton: Any
    """1 where Newton's method takes the steps, else 0."""

    following: Any
    """Place of the phase that begins where this one did not end by its own rules."""

    @property
    def is_warm_up(self) -> Any:
        """Whether it serves but to begin the next one."""
        return self.mean_square > 0.0


def phases_of(
    warm_up: bool,
    fall_back: bool,
    max_sweeps: int,
    by_newton: bool = False,
    smaller_priors: bool = False,
) -> list[Phase]:
    """
    List the phases of a run, one after another.

    :param max_sweeps: The most sweeps of a phase that is no warm-up.
    :param by_newton: Whether Newton's method takes the steps of the continuation. Where one of its
        powers is not reached, only the last one is tried after it.
    :param smaller_priors: Whether there is a continuation from smaller prior variances, too.
    """
    phases: list[Phase] = []

    def add(power_shift: float, fallback: int, *, skip: int = 0, **rules: Any) -> None:
        following = len(phases) + 1 + skip
        defaults = {"mean_square": 0.0, "prior_part": 1.0, "sweeps": max_sweeps, "is_newton": 0}
        rules = {**defaults, **rules, "fallback": fallback, "following": following}
        phases.append(Phase(power_shift, **rules))

    if warm_up:
        for power in WARM_UP_POWERS:
            add(power, 0, mean_square=_WARM_UP_RESIDUAL, sweeps=_WARM_UP_SWEEPS)
    add(0.0, 0)
    if not fall_back:
        return phases
    few = int((_NEWTON_PART if by_newton else _CONTINUATION_PART) * max_sweeps)
    residual = _NEWTON_RESIDUAL if by_newton else _CONTINUATION_RESIDUAL
    if few:
        for place, shift in enumerate(POWER_SHIFTS):
            # From no sites Newton's method may diverge.
            steps = int(by_newton and place > 0)
            skip = steps * (len(POWER_SHIFTS) - 1 - place)
            rules = {"mean_square": residual, "sweeps": few, "is_newton": steps}
            add(shift, CONTINUATION, skip=skip, **rules)
        # Where Newton's method ends short of a fixed point, small steps were seen to end there too.
        add(0.0, CONTINUATION, skip=int(by_newton), is_newton=int(by_newton))
    if few and smaller_priors:
        rules = {"mean_square": _WARM_UP_RESIDUAL}
        for place, part in enumerate(PRIOR_PARTS):
            add(0.0, CONTINUATION, skip=len(PRIOR_PARTS) - place, prior_part=part, **rules)
        add(0.0, CONTINUATION)
    add(0.0, DAMPED)
    add(0.0, LIMITED)
    if warm_up:
        add(0.0, CONTINUATION)  # from the sites of the largest merit
    return phases


def _phase_at(phases: list[Phase], place: tf.Tensor, dtype: tf.DType) -> Phase:
    columns = list(zip(*phases))
    numbers, counts = (
        tf.unstack(tf.gather(tf.constant(list(zip(*some)), kind), place))
        for some, kind in ((columns[:3], dtype), (columns[3:], tf.int32))
    )
    return Phase(*numbers, *counts)


def _chosen(condition: tf.Tensor, state: State, other: State) -> State:
    """
    Choose one of two states, of which both were computed.

    To copy a tensor of few numbers takes one operation, where a branch has several for each tensor
    that it reads or returns. The others are passed on by one branch for all.
    """
    pairs = [*zip(tf.nest.flatten(state), tf.nest.flatten(other), strict=True)]
    chosen = [a if a is b or _is_long(a) else tf.where(condition, a, b) for a, b in pairs]
    passed_on = [k for k, (a, b) in enumerate(pairs) if a is not b and _is_long(a)]
    if passed_on:
        first, second = zip(*(pairs[k] for k in passed_on))
        for k, tensor in zip(passed_on, tf.cond(condition, lambda: first, lambda: second)):
            chosen[k] = tensor
    result: State = tf.nest.pack_sequence_as(state, chosen)
    return result


def _is_long(tensor: tf.Tensor) -> bool:
    return (tensor.shape.num_elements() or 0) > _COPIED


def _met(state: State, goal: Goal) -> tf.Tensor:
    relative = tf.where(state.first_mean_square < FAR, _OF_FIRST * state.first_mean_square, 0.0)
    least = goal.mean_square_residual
    mean_square = tf.clip_by_value(relative, least, _LARGEST_FACTOR * least)
    return (state.residual < goal.tolerance) | (state.mean_square < mean_square)


def _settled(state: State, phase: Phase, goal: Goal) -> tf.Tensor:
    """Whether the phase has reached what it can reach."""
    met = _met(state, goal)
    met |= (phase.fallback == LIMITED) & (state.largest < goal.tolerance)
    for rough in tf.nest.flatten(state.rough):
        met &= ~rough
    return ~state.nothing_accepted & tf.where(
        phase.is_warm_up, state.mean_square < phase.mean_square, met
    )


def _spent(state: State, phase: Phase) -> tf.Tensor:
    """Whether the phase may not go on, or has tried all there is and nothing was accepted."""
    return state.phase_sweep >= tf.where(state.nothing_accepted, NUM_FACTORS, phase.sweeps)


def _next_phase(state: State, phase: Phase, following: tf.Tensor) -> State:
    """
    Start the next phase: from no sites, unless this one is a warm-up or close.

    :param following: Its place.
    """
    warm_up, close = phase.is_warm_up, state.is_close
    start = tf.cast(close | warm_up, state.x.dtype)
    restart, infinity = ~close | warm_up, tf.constant(np.inf, state.x.dtype)
    return state._replace(
        phase=following,
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


def run_to_fixed_point(
    evaluate: Callable[..., SweepEvaluation],
    initial: Sites,
    *,
    max_sweeps: int,
    goal: Goal,
    damping: float = 1.0,
    fall_back: bool = True,
    coupled: bool = False,
    warm_up: tf.Tensor | None = None,
    has_smaller_powers: tf.Tensor | None = None,
    has_merit: tf.Tensor | None = None,
    by_newton: bool = False,
    largest_variance: tf.Tensor | None = None,
    has_rough: bool = False,
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
        one is ``extra`` of the last evaluation that was accepted. Where ``has_rough``, ``rough``
        says whether integrals may have errors of 1e-4.
    :param initial: Where to start. Where that is not proper: as far towards it as is.
    :param max_sweeps: The most evaluations, at least 1; as many again for each fallback, and twice
        that on the continuation from power 0.
    :param coupled: What the numbers of a site are, see
        :class:`~gpflow_pep.sites.record.SweepEvaluation`.
    :param warm_up: Whether to begin with the easier problems of :data:`WARM_UP_POWERS`; None:
        never.
    :param has_smaller_powers: Whether there are smaller powers to try; None: there are.
    :param has_merit: Whether sites climb to one of several optima, and merits tell which one is
        better, see :mod:`gpflow_pep.sites.climbing`; None: they do not.
    :param by_newton: Whether the fallback through smaller powers takes steps of Newton's method,
        see :mod:`gpflow_pep.sites.newton`.
    :param largest_variance: Of the prior at the rows. Where it is not None there is a fallback from
        smaller ones, see :mod:`gpflow_pep.sites.smaller_priors`, and ``evaluate`` takes
        ``prior_part``: the part of the prior's variance that its problem has.
    :param has_rough: Whether integrals that are rough take less time. Those of the sites that come
        back never are.
    :param extra: What an evaluation has of that name, before the first.
    """
    smaller_priors = largest_variance is not None
    phases = phases_of(warm_up is not None, fall_back, max_sweeps, by_newton, smaller_priors)
    by_newton = any(phase.is_newton for phase in phases)
    has_rough &= max_sweeps >= 2 * _ROUGH_SWEEPS and sizes_may_vary()
    fallbacks = [phase.fallback for phase in phases]
    damped = fallbacks.index(DAMPED) if fall_back else 0
    unpassed = tf.constant(damped)
    smaller_priors = any(phase.prior_part < 1.0 for phase in phases)
    if smaller_priors:
        prior_parts = [*(phase.prior_part for phase in phases), 1.0]  # after the last one too
        narrowest = prior_parts.index(min(prior_parts))
        unpassed = narrowest + first_place(largest_variance)
    climbs = fall_back and warm_up is not None and has_merit is not None
    main = 0 if warm_up is None else len(WARM_UP_POWERS)
    rules = StepRules(damping, coupled, reduction)
    x, no = tf.stack(initial), tf.constant(False)
    has_smaller_powers = ~no if has_smaller_powers is None else has_smaller_powers
    start = start_at(x, coupled, extra, reduction)._replace(
        phase=tf.constant(0) if warm_up is None else tf.where(warm_up, 0, main),
        probing=no if by_newton else (),
        rough=~no if has_rough else (),
        best=no_best(x) if climbs else (),
    )
    slack = 0.1 * np.sqrt(np.finfo(x.dtype.as_numpy_dtype).eps)

    def body(state: State, _: tf.Tensor) -> tuple[State, tf.Tensor]:
        phase = _phase_at(phases, state.phase, x.dtype)
        is_newton = phase.is_newton > 0
        newton_step = (is_newton, newton.newton_step) if by_newton else None
        proposal, state = propose(state, rules, newton_step)
        early = (state.mean_square > _ROUGH_RESIDUAL) & (state.phase_sweep < _ROUGH_SWEEPS)
        early &= state.retry == 0
        rough: Any = state.rough & early & ~is_newton if has_rough else ()
        options = {}
        if smaller_priors:
            options["prior_part"] = phase.prior_part
        if has_rough:  # sites that are close from the start stay, until more is known of them
            options["rough"] = rough
            again = state.rough & ~rough & (state.phase_sweep == 1)
            proposal = tf.where(again, state.x, proposal)
            state = state._replace(nothing_accepted=state.nothing_accepted | again)
        sites = Sites(*tf.unstack(proposal))
        evaluation = evaluate(sites, phase.power_shift, state.extra, **options)
        state = state._replace(sweep=state.sweep + 1, phase_sweep=state.phase_sweep + 1)
        no_worse = evaluation.merit >= state.merit - slack * tf.abs(state.merit)
        if has_rough:
            no_worse |= state.rough & ~rough  # merits of two rules are not compared
        accepts = evaluation.proper & (state.nothing_accepted | no_worse)
        after = accept(state, phase.fallback, proposal, evaluation, rules)._replace(rough=rough)
        refused = refuse(state, evaluation)
        if by_newton:
            accepts &= ~is_newton | newton.is_forward(state, proposal, evaluation, rules)
            forgotten = after._replace(differences=after.differences.forgotten())
            after = _chosen(is_newton, forgotten, after)
            refused = _chosen(is_newton, newton.refuse(state, proposal, evaluation), refused)
        state = _chosen(accepts, after, refused)
        last = (phase.fallback == LIMITED) | (state.phase == len(phases) - 1)
        spent, settled = _spent(state, phase), _settled(state, phase, goal)
        stays = phase.fallback == DAMPED
        if by_newton:
            spent |= is_newton & newton.is_stuck(state)
            stays |= is_newton
        over = spent & ~settled & ~last & ~(stays & state.is_close)
        over |= phase.is_warm_up & (spent | settled)
        turns = None
        if climbs:
            state, turns = turns_of(
                state,
                has_merit & ~phase.is_warm_up,
                is_main=state.phase == main,
                fallback=phase.fallback,
                settled=settled,
                over=over,
                last=last,
            )
            over |= turns.begins_again | turns.returns
        goes_on = over | ~(spent | settled)
        # Other powers are of no use where the run is close, or where not even no sites are proper.
        useless = state.is_close | state.nothing_accepted | ~has_smaller_powers
        passed_over = (state.phase == main) & useless
        place = tf.where(passed_over, tf.where(state.is_close, damped, unpassed), phase.following)
        if by_newton or smaller_priors:
            place = tf.where(settled, state.phase + 1, place)
        if smaller_priors:
            begins = (phase.prior_part == 1.0) & (place == narrowest)
            place = tf.where(begins, unpassed, place)
        if by_newton:
            # Newton's method needs no other powers where the run is close.
            place = tf.where(passed_over & state.is_close, damped - 1, place)
        if turns:
            place = tf.where(turns.begins_again, 0, place)
            place = tf.where(turns.returns, len(phases) - 1, place)
        following = _next_phase(state, phase, place)
        if turns:
            following = _chosen(turns.returns, from_sites(following, state.best.x), following)
        if smaller_priors:
            ratio = tf.gather(tf.constant(prior_parts, x.dtype), place) / phase.prior_part
            change = predicted_change(state.x, state.marginals[0], ratio)
            following = following._replace(F=tf.where(ratio > 1.0, change, following.F))
        return _chosen(over, following, state), goes_on

    end, _ = tf.while_loop(
        lambda _, goes_on: goes_on,
        body,
        (start, ~no),
        parallel_iterations=1,
        maximum_iterations=max_sweeps + sum(NUM_FACTORS + phase.sweeps for phase in phases),
    )
    info = SiteUpdateInfo(
        end.sweep,
        end.residual,
        _met(end, goal),
        end.num_rejected,
        _phase_at(phases, end.phase, x.dtype).fallback,
    )
    sites, moments = Sites(*tf.unstack(end.x)), Marginals(*tf.unstack(end.marginals))
    return FixedPoint(sites, moments, end.extra, info)
