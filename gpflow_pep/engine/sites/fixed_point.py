r"""The inner loop: sites brought to the fixed point of Power EP.

Bui, Yan & Turner (2017), section 3.3, updates one site after another. Here all sites
are updated at once, :math:`x \leftarrow x + \rho \circ F(x)` with
:math:`F(x) = x^* - x`, with these rules:

* each site has a separate step :math:`\rho`. It is halved if the residual of the site
  changes its sign, and otherwise grows, up to a cap that follows the residual of all
  sites;
* Anderson's acceleration combines the last iterates such that the residual of the rows
  is smallest, unless the norm of the residual jumps;
* a proposal is refused if a cavity would be improper, a number not finite, B not
  positive definite, or a merit of the sites smaller. Then plain steps with smaller
  negative precisions or smaller steps are tried, and at last precisions that are not
  negative.

A run is a list of *stages*, and each begins with the sites of the stage before. A stage
has a problem, either the model's own problem or an easier one. It ends when this
problem has converged, or after a number of sweeps:

* *larger powers*, if there are no sites yet, and there may be several fixed points, or
  the first sites of a rate would be too precise to be added to 1;
* the model's own problem, from the initial sites;

and, as long as that has not converged,

* *smaller powers*: from power 0 in small steps to the model's power, by Newton's method
  for likelihoods whose sites repel plain updates, see
  :mod:`gpflow_pep.engine.sites.steps`;
* *narrower priors*: all prior variances are multiplied by a small number t, which grows
  to 1 by a constant factor in each step, like the barrier of an interior-point method;
* the *net*, if the run is not close even then: precisions are clipped at 0, and the end
  is not a fixed point.

Narrower priors are for rates. At power 0 the expectation of a rate whose logarithm is f
is :math:`e^{m + v / 2}`: :math:`e^{50}` in a row far from all inducing inputs under a
prior of variance 100, and a step of the updates makes exponents smaller by about one.
As :math:`u = L v`, t multiplies the projections A by :math:`\sqrt t`, and the residual
variance by t. From one problem to the next :math:`\lambda = \nu - \tau m` and
:math:`\tau` stay the same. Then the means, :math:`m = t AᵀA \lambda`, and the
:math:`v / 2` that they have to balance both change in proportion to t.

At power 0 sites may also climb to an optimum of the energy that is worse than guessing.
If the initial sites of a run are far from their targets, or do not lead to a fixed
point, the run therefore begins again with larger powers. On 200 rows of vehicle, glass
and vowel, with sites kept from cell to cell, log Z is up to 35 nats smaller without
this rule.

Nothing here depends on Gaussian processes. A function of the sites computes everything,
and sites may be stored in other numbers than their natural parameters, see
:class:`~gpflow_pep.engine.sites.record.SweepEvaluation`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from .posterior import Marginals, Sites
from .record import (
    CLIPPED,
    CONTINUATION,
    Features,
    FixedPoint,
    SiteUpdateInfo,
    Solver,
    Stage,
    SweepEvaluation,
)
from .steps import (
    State,
    accept,
    chosen,
    is_close,
    meets,
    newton_choice,
    propose,
    refuse,
    start_at,
)

#: ``(sites, stage, extra) -> evaluation``: evaluate sites by one sweep over the rows,
#: for the problem of a stage. The last argument is ``extra`` of the last evaluation
#: that was accepted.
Evaluate = Callable[[Sites, Stage, Any], SweepEvaluation]
_ORDINARY = Features()
#: ``(state, is_close) -> place``: the index of the first stage of a part that is run;
#: the number of stages if none is run.
Entry = Callable[[State, tf.Tensor], tf.Tensor]
Part = tuple[list[Stage], Entry]


def _parts(features: Features, solver: Solver) -> Iterator[Part]:
    """Yield the parts of a run, in their order."""
    sweeps = solver.max_sweeps
    if features.warm_up is not None:
        goal = solver.warm_up_mean_square, solver.warm_up_sweeps
        larger = [Stage(shift, 1.0, *goal) for shift in solver.larger_powers]
        yield larger, lambda *_: tf.where(features.warm_up, 0, len(larger))
    yield [Stage(sweeps=sweeps)], lambda *_: tf.constant(0)
    if not solver.fall_back:
        return
    if sweeps >= solver.many:
        yield _smaller_powers(features, solver)
        if features.largest_variance is not None:
            yield _narrower_priors(features.largest_variance, solver)
    net = Stage(sweeps=sweeps, fallback=CLIPPED)
    yield [net], lambda _, close: tf.cast(close, tf.int32)


def _smaller_powers(features: Features, solver: Solver) -> Part:
    """Follow the fixed point from power 0.

    This is of no use if nothing was accepted in the last stage, or if the run is close.
    In a close run only Newton's method goes on, at the model's power.
    """
    num_powers = solver.num_powers
    by_newton = features.by_newton
    share = solver.newton_part if by_newton else solver.power_part
    few = int(share * solver.max_sweeps)
    mean_square = solver.newton_mean_square if by_newton else solver.power_mean_square
    # Newton's method may diverge from no sites. If it does not reach a power, only the
    # model's power is tried after it.
    ways = [
        (0, 1),
        *(
            (int(by_newton), num_powers - k if by_newton else 1)
            for k in range(1, num_powers)
        ),
    ]
    stages = [
        Stage((k - num_powers) / num_powers, 1.0, mean_square, few, *way, CONTINUATION)
        for k, way in enumerate(ways)
    ]
    last = Stage(
        sweeps=solver.max_sweeps, is_newton=int(by_newton), fallback=CONTINUATION
    )
    has_smaller = tf.constant(True)
    if features.largest_power is not None:
        has_smaller = features.largest_power > solver.nearly_zero

    def entry(state: State, close: tf.Tensor) -> tf.Tensor:
        useful = ~state.nothing_accepted & has_smaller
        if by_newton:
            return tf.where(close, num_powers, tf.where(useful, 0, num_powers + 1))
        return tf.where(useful & ~close, 0, num_powers + 1)

    return [*stages, last], entry


def _prior_scales(solver: Solver) -> list[float]:
    """List the factors of the prior's variance for narrower priors, below 1."""
    return [solver.prior_factor**-k for k in range(solver.num_priors, 0, -1)]


def _first_prior(largest_variance: tf.Tensor, solver: Solver) -> tf.Tensor:
    """Choose the index of the first one of :func:`_prior_scales`, by the largest prior
    variance, [].
    """
    last = solver.num_priors
    steps = tf.math.log(largest_variance / solver.first_variance) / np.log(
        solver.prior_factor
    )
    return tf.clip_by_value(last - tf.cast(tf.math.ceil(steps), tf.int32), 0, last - 1)


def _narrower_priors(largest_variance: tf.Tensor, solver: Solver) -> Part:
    """Follow the fixed point from narrower priors, unless the run is close."""
    sweeps = solver.max_sweeps
    num_priors = solver.num_priors
    goal = (solver.warm_up_mean_square, sweeps, 0)
    place_of_first = _first_prior(largest_variance, solver)
    stages = [
        Stage(0.0, scale, *goal, num_priors + 1 - place, CONTINUATION)
        for place, scale in enumerate(_prior_scales(solver))
    ]
    stages.append(Stage(sweeps=sweeps, fallback=CONTINUATION))
    return stages, lambda _, close: tf.where(close, num_priors + 1, place_of_first)


def _predicted_change(x: tf.Tensor, m: tf.Tensor, ratio: tf.Tensor) -> tf.Tensor:
    r"""Predict how sites change, [2, N, L], when the prior's variance grows.

    :param x: The sites under the smaller variance, [2, N, L]: :math:`\nu` and
        :math:`\tau`.
    :param m: The means of h with these sites, [N, L].
    :param ratio: The ratio of the larger variance to the smaller one, [].
    """
    change = (ratio - 1.0) * x[1] * m
    return tf.stack([change, tf.zeros_like(change)])


class _Schedule:
    """The stages of a run, and their order."""

    def __init__(self, features: Features, solver: Solver) -> None:
        self.stages: list[Stage] = []
        self.entries: list[tuple[int, Entry]] = []
        for stages, entry in _parts(features, solver):
            self.entries.append((len(self.stages), entry))
            self.stages += stages
        self.by_newton = any(stage.is_newton for stage in self.stages)
        self.narrows_priors = any(stage.prior_scale < 1.0 for stage in self.stages)
        self._solver = solver
        power = features.largest_power
        begins_again = features.coupled and features.warm_up is not None
        begins_again &= solver.fall_back and power is not None
        self._begins_again = power == 0.0 if begins_again else None

    def stage_at(self, place: tf.Tensor, dtype: tf.DType) -> Stage:
        """Look up a stage."""
        columns = list(zip(*self.stages))
        numbers, counts = (
            tf.unstack(tf.gather(tf.constant(list(zip(*fields)), kind), place))
            for fields, kind in ((columns[:3], dtype), (columns[3:], tf.int32))
        )
        stage = Stage(*numbers, *counts)
        return stage if self.narrows_priors else stage._replace(prior_scale=None)

    def after(self, state: State, stage: Stage) -> tuple[State, tf.Tensor, tf.Tensor]:
        """Begin the next stage if this one is over. Decide whether the run goes on, and
        whether it has met its goal.
        """
        is_warm_up = stage.mean_square > 0.0
        met = meets(state, self._solver)
        settled = self._settled(state, stage, is_warm_up, met)
        spent = self._spent(state, stage)
        ends = spent | settled
        close = is_close(state, self._solver)
        place = state.stage + tf.where(settled, 1, stage.otherwise)
        for start, entry in self.entries[1:]:
            place = tf.where(place == start, start + entry(state, close), place)
        over = spent & ~settled & (place < len(self.stages))
        over |= is_warm_up & ends
        if self._begins_again is not None:
            is_far = (state.sweep == 1) & (state.first_mean_square > self._solver.far)
            begins_again = is_far | (over & ~close)
            begins_again &= self._begins_again & (state.sweep == state.stage_sweep)
            begins_again &= ~(is_warm_up | settled | state.nothing_accepted)
            place = tf.where(begins_again, 0, place)
            over = over | begins_again
            infinity = tf.constant(np.inf, state.x.dtype)
            first_mean_square = tf.where(
                begins_again, infinity, state.first_mean_square
            )
            state = state._replace(first_mean_square=first_mean_square)
        following = _begin(state, over, close | is_warm_up, is_warm_up, place)
        if self.narrows_priors:
            scale = stage.prior_scale
            factor = tf.constant(self._solver.prior_factor, scale.dtype)
            ratio = tf.where(settled, factor, 1.0 / scale)
            predicted = _predicted_change(state.x, state.marginals[0], ratio)
            following = following._replace(
                F=chosen(over & (scale < 1.0), predicted, following.F)
            )
        return following, over | ~ends, met

    def _settled(
        self, state: State, stage: Stage, is_warm_up: tf.Tensor, met: tf.Tensor
    ) -> tf.Tensor:
        """Whether the stage has met its goal."""
        in_net = stage.fallback == CLIPPED
        met |= in_net & (state.largest < self._solver.goal.tolerance)
        met = tf.where(is_warm_up, state.mean_square < stage.mean_square, met)
        return ~state.nothing_accepted & met

    def _spent(self, state: State, stage: Stage) -> tf.Tensor:
        """Whether the stage has no more sweeps, or no more tries."""
        most = tf.where(state.nothing_accepted, len(self._solver.tries), stage.sweeps)
        spent = state.stage_sweep >= most
        if self.by_newton:  # even the shortest of Newton's steps did not make F smaller
            spent |= (stage.is_newton > 0) & (state.retry >= len(self._solver.tries))
        return spent


def _begin(
    state: State,
    over: tf.Tensor,
    keeps_sites: tf.Tensor,
    warm_up: tf.Tensor,
    place: tf.Tensor,
) -> State:
    """Start a stage if one is over; otherwise do not change the state.

    :param keeps_sites: Whether the stage starts from the last sites instead of no
        sites.
    :param warm_up: Whether the stage that is over was a warm-up.
    """
    dtype = state.x.dtype
    goes_on = ~over
    kept = tf.cast(keeps_sites | goes_on, dtype)
    begun = tf.cast(over, dtype)
    restarts = over & (warm_up | ~keeps_sites)
    infinity = tf.constant(np.inf, dtype)
    zero = tf.constant(0)
    return state._replace(
        stage=tf.where(over, place, state.stage),
        stage_sweep=tf.where(over, zero, state.stage_sweep),
        nothing_accepted=restarts | (state.nothing_accepted & goes_on),
        retry=tf.where(over, zero, state.retry),
        improper=state.improper & goes_on,
        x=kept * state.x,
        F=kept * state.F,
        residual=tf.where(restarts, infinity, state.residual),
        mean_square=tf.where(restarts, infinity, state.mean_square),
        # A step is at most 1, and begins there.
        step=tf.maximum(state.step, begun),
        cap=tf.maximum(state.cap, begun),
        differences=state.differences._replace(
            count=tf.where(over, zero, state.differences.count)
        ),
    )


def run_to_fixed_point(
    evaluate: Evaluate,
    initial: Sites,
    solver: Solver,
    features: Features = _ORDINARY,
    extra: Any = (),
) -> FixedPoint:
    """Update all sites until they match the moments of the tilted distributions.

    It runs inside and outside of compiled graphs, and always ends. The final sites are
    proper even if they did not converge, which the record shows.

    :param initial: The initial sites. If they are not proper, the run starts with
        smaller ones that are.
    :param extra: The value of ``extra`` before the first evaluation.
    """
    schedule = _Schedule(features, solver)
    x = tf.stack(initial)
    features = replace(features, by_newton=schedule.by_newton)
    slack = 0.1 * np.sqrt(np.finfo(x.dtype.as_numpy_dtype).eps)
    start = start_at(x, solver, features, extra)
    (_, entry), *_ = schedule.entries
    start = start._replace(stage=entry(start, tf.constant(False)))

    def stepped(state: State, stage: Stage) -> State:
        """Propose sites, evaluate them, and accept or refuse them."""
        # Whether the next step uses the differences of the last iterates.
        looks_back = (state.retry == 0) & (state.differences.count > 0)
        is_newton = stage.is_newton > 0 if features.by_newton else None
        rules = solver, features
        proposal, state = propose(state, looks_back, *rules, is_newton)
        evaluation = evaluate(Sites(*tf.unstack(proposal)), stage, state.extra)
        state = state._replace(sweep=state.sweep + 1, stage_sweep=state.stage_sweep + 1)
        accepted = accept(
            state, looks_back, stage.fallback, proposal, evaluation, *rules
        )
        no_worse = evaluation.merit >= state.merit - slack * tf.abs(state.merit)
        # Near the fixed point a step towards it may lower the merit a little.
        no_worse |= is_close(state, solver) & (
            accepted.norm < solver.largest_jump * state.norm
        )
        step = (
            evaluation.proper & (state.nothing_accepted | no_worse),
            accepted,
            refuse(state, looks_back, evaluation, solver),
        )
        if is_newton is not None:
            step = newton_choice(is_newton, step, state, evaluation.proper, solver)
        return chosen(*step)

    def body(state: State, *_: tf.Tensor) -> tuple[State, tf.Tensor, tf.Tensor]:
        stage = schedule.stage_at(state.stage, x.dtype)
        return schedule.after(stepped(state, stage), stage)

    tries = len(solver.tries)
    end, _, met = tf.while_loop(
        lambda state, goes_on, met: goes_on,
        body,
        (start, tf.constant(True), tf.constant(False)),
        parallel_iterations=1,
        maximum_iterations=solver.max_sweeps
        + sum(tries + stage.sweeps for stage in schedule.stages),
    )
    info = SiteUpdateInfo(
        end.sweep,
        end.residual,
        met,
        end.num_rejected,
        tf.gather([stage.fallback for stage in schedule.stages], end.stage),
    )
    sites = Sites(*tf.unstack(end.x))
    moments = Marginals(*tf.unstack(end.marginals))
    return FixedPoint(sites, moments, end.extra, info)
