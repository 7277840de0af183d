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

Where that has not converged, easier problems follow by themselves, and where several fixed points
may be, they come first: see :mod:`gpflow_pep.engine.sites.schedule`.

Integrals are rough where these take less time, until the mean square residual is small, a proposal
is refused, or there were many sweeps. Those of the sites that come back are accurate: a run of few
sweeps has no others, and in all others some are accepted before the end.

The module knows nothing of Gaussian processes: a function of the sites gives everything, and they
may be held in other numbers than their natural parameters, see
:class:`~gpflow_pep.engine.sites.record.SweepEvaluation`. Where each process holds a shard of the
rows, all of them take the same decisions, by a
:class:`~gpflow_pep.engine.numerics.chunks.Reduction` of sums and maxima.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from ..numerics.chunks import sizes_may_vary
from .posterior import Marginals, Sites
from .record import Features, FixedPoint, SiteUpdateInfo, Solver, Stage, SweepEvaluation
from .schedule import Schedule
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

#: ``(sites, stage, extra) -> evaluation``: what belongs to some sites, one sweep over the rows, of
#: the problem of a stage. The last argument is ``extra`` of the last evaluation that was accepted.
Evaluate = Callable[[Sites, Stage, Any], SweepEvaluation]
_ORDINARY = Features()


def run_to_fixed_point(
    evaluate: Evaluate,
    initial: Sites,
    solver: Solver,
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
    schedule, x = Schedule(features, solver), tf.stack(initial)
    features = replace(features, by_newton=schedule.by_newton)
    has_rough = features.has_rough and solver.max_sweeps >= 2 * solver.rough_sweeps
    has_rough &= sizes_may_vary()
    no, slack = tf.constant(False), 0.1 * np.sqrt(np.finfo(x.dtype.as_numpy_dtype).eps)
    start = start_at(x, solver, features, extra)
    start = start._replace(stage=schedule.first_place(start), rough=~no if has_rough else ())

    def is_next_rough(state: State, stage: Stage) -> tf.Tensor:
        """Whether the integrals of the next evaluation are rough, []."""
        early = state.mean_square > solver.rough_mean_square
        early &= (state.stage_sweep < solver.rough_sweeps) & (state.retry == 0)
        return state.rough & early & (stage.is_newton == 0)

    def stepped(state: State, stage: Stage) -> State:
        """Propose sites, evaluate them, and accept or refuse them."""
        is_newton = stage.is_newton > 0
        proposal, state = propose(state, solver, features, is_newton)
        refined = no  # merits of two rules are not compared
        if has_rough:
            stage = stage._replace(rough=is_next_rough(state, stage))
            refined = state.rough & ~stage.rough
            # Sites that are close from the start are proposed again, until more is known of them.
            again = refined & (state.stage_sweep == 1)
            state = state._replace(nothing_accepted=state.nothing_accepted | again)
            proposal = tf.where(again, state.x, proposal)
        evaluation = evaluate(Sites(*tf.unstack(proposal)), stage, state.extra)
        state = state._replace(sweep=state.sweep + 1, stage_sweep=state.stage_sweep + 1)
        accepted = accept(state, stage.fallback, proposal, evaluation, solver, features)
        no_worse = evaluation.merit >= state.merit - slack * tf.abs(state.merit)
        # Near the fixed point a step may lower the merit a little on the way there.
        no_worse |= is_close(state, solver) & (accepted.norm < solver.largest_jump * state.norm)
        step = (
            evaluation.proper & (state.nothing_accepted | no_worse | refined),
            accepted._replace(rough=stage.rough) if has_rough else accepted,
            refuse(state, evaluation, solver),
        )
        if features.by_newton:
            step = newton_choice(is_newton, step, state, evaluation.proper, solver)
        return chosen(*step)

    def body(state: State, _: tf.Tensor) -> tuple[State, tf.Tensor]:
        stage = schedule.stage_at(state.stage, x.dtype)
        return schedule.after(stepped(state, stage), stage)

    tries = len(solver.tries)
    end, _ = tf.while_loop(
        lambda _, goes_on: goes_on,
        body,
        (start, ~no),
        parallel_iterations=1,
        maximum_iterations=solver.max_sweeps
        + sum(tries + stage.sweeps for stage in schedule.stages),
    )
    info = SiteUpdateInfo(
        end.sweep,
        end.residual,
        meets(end, solver),
        end.num_rejected,
        schedule.stage_at(end.stage, x.dtype).fallback,
    )
    sites, moments = Sites(*tf.unstack(end.x)), Marginals(*tf.unstack(end.marginals))
    return FixedPoint(sites, moments, end.extra, info)
