r"""
One step of the inner loop: the proposal, and the state after it was accepted or
refused.

Each site makes a separate step, or all sites follow Anderson's acceleration, which uses
the last iterates; see :mod:`gpflow_pep.engine.sites.fixed_point`. If an eigenvalue of
the update's derivative J has a real part above 1, no damping leads to the fixed point.
Newton's step d, which solves :math:`(I - J) d = F(x)`, leads to it, and some stages
take such steps. The equations are solved by generalised conjugate residuals: each
product of :math:`J - I` and a direction w is a difference
:math:`(F(x + h w) - F(x)) / h`, which takes one more sweep, a *probe*, and the next
direction is the rest of F after the last directions. Then the step is shortened until F
becomes smaller. These differences are stored in the place of the differences of
Anderson's acceleration, and d is the step that the acceleration makes of them.
"""

from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from ..numerics.chunks import num_rows, sizes_may_vary
from .posterior import Marginals, in_deviations
from .record import CLIPPED, Features, Solver, SweepEvaluation

#: Tensors, in any structure.
Tensors = TypeVar("Tensors")


def _shape(tensor: tf.Tensor) -> Any:
    """Return the shape, with numbers instead of a tensor if they are known."""
    return tensor.shape if tensor.shape.is_fully_defined() else tf.shape(tensor)


class Differences(NamedTuple):
    """Differences between the last iterates of a run: of the scaled residual, of x +
    F(x), and for Newton's method and coupled runs also of F(x).
    """

    count: tf.Tensor  #: [], the number of differences since they were forgotten.
    newest: tf.Tensor  #: [2 or 3, 2, N, L], the newest difference of each quantity.
    last: tf.Tensor
    """[depth, 2 or 3, 2, N, L], the differences before it. The newest difference will
    take the place of the oldest.
    """

    @classmethod
    def empty(cls, x: tf.Tensor, solver: Solver, with_F: bool) -> "Differences":
        """Make room for differences of sites [2, N, L], without any."""
        size = x.shape.num_elements() or np.inf
        depth = solver.depth if size <= solver.deep_sites else solver.small_depth
        newest = tf.stack([x] * (2 + with_F))
        room = tf.zeros(tf.concat([[depth], _shape(newest)], 0), x.dtype)
        return cls(tf.constant(0), newest, room)

    def forgotten(self) -> "Differences":
        """Forget all differences."""
        return self._replace(count=tf.zeros_like(self.count))

    def entered(self) -> "Differences":
        """Put the newest difference among the others."""
        place = tf.reshape((self.count - 1) % self.depth, [1, 1])
        newest = tf.expand_dims(self.newest, 0)
        return self._replace(last=tf.tensor_scatter_nd_update(self.last, place, newest))

    @property
    def depth(self) -> int:
        """The largest number of differences."""
        depth: int = self.last.shape[0]
        return depth


class State(NamedTuple):
    """The state of a run between two sweeps."""

    sweep: tf.Tensor  #: The number of evaluations.
    stage: tf.Tensor  #: The index of the stage.
    stage_sweep: tf.Tensor  #: The number of evaluations since the start of the stage.
    #: Whether no proposal was accepted since the start of the stage.
    nothing_accepted: tf.Tensor
    num_rejected: tf.Tensor  #: The number of refused proposals.
    retry: tf.Tensor  #: The index of the next proposal among the solver's tries.
    improper: tf.Tensor  #: Whether a refused proposal of this step was improper.
    x: tf.Tensor  #: [2, N, L], the last sites that were accepted.
    marginals: tf.Tensor  #: [2, N, L], m and s at these sites.
    extra: Any  #: The further tensors of the evaluation at these sites.
    F: tf.Tensor  #: [2, N, L], x* - x at these sites, for the x* of the stage.
    scaled: tf.Tensor
    """[2, N, L], the residual in units of q's standard deviation, which the step F is
    to make 0.
    """
    norm: tf.Tensor  #: [], the root of the sum of squares of ``scaled``.
    #: [], the residual; in the net the largest number of ``scaled``.
    largest: tf.Tensor
    #: [], the residual in the record; infinite before the first evaluation.
    residual: tf.Tensor
    mean_square: tf.Tensor  #: [], see :class:`~gpflow_pep.engine.sites.record.Goal`.
    first_mean_square: tf.Tensor
    """[], the mean square residual of the first evaluation of the run; 0 if the
    proposal was refused."""
    merit: tf.Tensor  #: [], see SweepEvaluation.
    step: tf.Tensor  #: [1 or 2, N, L], the step of each site, or of both its numbers.
    cap: tf.Tensor  #: [1 or 2, 1, 1], the largest step of any site.
    differences: Differences  #: Differences of the last iterates.
    probing: Any = ()
    """Whether the last proposal of Newton's method was a probe; () if the run has no
    such method.
    """


def meets(state: State, solver: Solver) -> tf.Tensor:
    """Whether the goal is met."""
    first_mean_square = state.first_mean_square
    least = solver.goal.mean_square_residual
    relative = tf.where(
        first_mean_square < solver.far, solver.of_first * first_mean_square, 0.0
    )
    mean_square = tf.clip_by_value(relative, least, solver.largest_factor * least)
    return (state.residual < solver.goal.tolerance) | (state.mean_square < mean_square)


def is_close(state: State, solver: Solver) -> tf.Tensor:
    """Whether the fixed point is near."""
    return ~state.nothing_accepted & (state.largest < solver.close)


def chosen(condition: tf.Tensor, state: Tensors, other: Tensors) -> Tensors:
    """Choose one of two states, or tensors, that were both computed."""

    def take(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        # tf.where broadcasts the condition, which takes several times as long.
        return a if a is b else tf.raw_ops.Select(condition=condition, x=a, y=b)

    return tf.nest.map_structure(take, state, other)


def start_at(x: tf.Tensor, solver: Solver, features: Features, extra: Any) -> State:
    """Make the state at the start of a run: no sites, and the initial sites, x [2, N,
    L], as the first proposal.
    """
    zero = tf.constant(0)
    zeros = tf.zeros_like(x)
    nil = tf.zeros([], x.dtype)
    infinity = tf.constant(np.inf, x.dtype)
    own_steps = 1 + features.coupled
    return State(
        sweep=zero,
        stage=zero,
        stage_sweep=zero,
        nothing_accepted=tf.constant(True),
        num_rejected=zero,
        retry=zero,
        improper=tf.constant(False),
        x=zeros,
        marginals=zeros,
        extra=extra,
        F=x,
        scaled=zeros,
        norm=nil,
        largest=nil,
        residual=infinity,
        mean_square=infinity,
        first_mean_square=nil,
        merit=nil,
        step=tf.ones_like(x[:own_steps]),
        cap=tf.ones([own_steps, 1, 1], x.dtype),
        differences=Differences.empty(
            x, solver, features.coupled or features.by_newton
        ),
        probing=tf.constant(False) if features.by_newton else (),
    )


def propose(
    state: State,
    looks_back: tf.Tensor,
    solver: Solver,
    features: Features,
    is_newton: tf.Tensor | None,
) -> tuple[tf.Tensor, State]:
    """Make the next sites to evaluate, [2, N, L], and put the newest difference among
    the others.

    :param looks_back: Whether acceleration takes the step.
    :param is_newton: Whether Newton's method takes the step; None if the run has no
        such method.
    """
    past = state.differences.entered()
    state = state._replace(differences=past)
    columns = tf.constant(solver.tries, state.x.dtype)
    negative, factor, uniform = tf.unstack(tf.gather(columns, state.retry))
    # A step from each site towards its target.
    damped = factor * tf.minimum(state.step, state.cap)
    plain = tf.where(state.improper | (state.retry < 2), damped, uniform) * state.F

    def with_differences() -> tuple[tf.Tensor, ...]:
        """Make a step from the differences of the last iterates."""
        # Most runs end before there are many differences. Newton's method needs all.
        few = past.count <= solver.small_depth
        if is_newton is not None:
            few &= ~is_newton
        number: Any = past.depth
        if sizes_may_vary():
            number = tf.where(few, solver.small_depth, number)
        last = past.last[:number]
        r = state.scaled
        dr = last[:, 0]
        if is_newton is not None:
            # Newton's equations are linear only if all numbers are in units of one q.
            units = Marginals(*tf.unstack(state.marginals)), features.coupled
            of_one_q = (in_deviations(part, *units) for part in (state.F, last[:, 2]))
            r, dr = (tf.where(is_newton, *both) for both in zip(of_one_q, (r, dr)))
        full, *left = _what_is_left(state, number, r, dr, last)
        accelerated = full
        if features.coupled:
            part = tf.maximum(tf.cast(solver.unexplained, full.dtype), state.cap)
            accelerated -= (1.0 - part) * left[0]
        if is_newton is None:
            return (accelerated,)
        step, probing = _newton_step(state, solver, features, full, *left)
        return tf.where(is_newton, step, accelerated), is_newton & probing

    otherwise: tuple[tf.Tensor, ...] = (plain,)
    if is_newton is not None:
        looks_back |= is_newton
        otherwise = plain, tf.constant(False)
    step, *probing = tf.cond(looks_back, with_differences, lambda: otherwise)
    if probing:
        state = state._replace(probing=probing[0])
    nu, tau = tf.unstack(state.x + step)
    tau = tf.where(state.improper & (tau < 0.0), negative * tau, tau)
    return tf.stack([nu, tau]), state


def _what_is_left(
    state: State, number: Any, r: tf.Tensor, dr: tf.Tensor, last: tf.Tensor
) -> list[tf.Tensor]:
    r"""Compute :math:`F - \sum_k \gamma_k p_k` with the :math:`\gamma`, [number, 1],
    for which :math:`|r - \sum_k \gamma_k dr_k|` is smallest.

    :param number: The number of differences that are used.
    :param r: The scaled residual.
    :param dr: The differences of r, [number, 2, N, L].
    :param last: All differences, [number, 2 or 3, 2, N, L]. Those after the first are
        the p: dx + dF for a step, dF for the rest of F after it.
    """
    rows = tf.reshape(dr, [number, -1])
    products = tf.matmul(rows, rows, transpose_b=True)
    moments = tf.matmul(rows, tf.reshape(r, [-1, 1]))
    squares = tf.linalg.diag_part(products)
    known = (tf.range(number) < state.differences.count) & (squares > 0.0)
    unit = tf.where(known, tf.math.rsqrt(squares), tf.zeros_like(squares))
    column = tf.expand_dims(unit, 1)
    # The normal equations of rows of unit length. The ridge is far above their rounding
    # error.
    ridge = np.sqrt(np.finfo(rows.dtype.as_numpy_dtype).eps) * 1e-2
    normal = column * products * unit
    normal = tf.linalg.set_diag(normal, ridge + tf.ones_like(squares))
    gamma = column * tf.linalg.solve(normal, column * moments)
    newest = state.differences.newest
    sums = tf.matmul(gamma, tf.reshape(last, [number, -1]), transpose_a=True)
    _, *left = tf.unstack(state.F - tf.reshape(sums, _shape(newest)))
    return left


def _either(
    condition: tf.Tensor, number: float, other: float, like: tf.Tensor
) -> tf.Tensor:
    return tf.where(
        condition, tf.constant(number, like.dtype), tf.constant(other, like.dtype)
    )


def accept(
    state: State,
    looked_back: tf.Tensor,
    fallback: tf.Tensor,
    x: tf.Tensor,
    evaluation: SweepEvaluation,
    solver: Solver,
    features: Features,
) -> State:
    """Make the state after a proposal that was accepted.

    :param looked_back: See ``looks_back`` of :func:`propose`.
    :param fallback: The fallback of the stage, an index in ``FALLBACKS``.
    """
    clipped = fallback == CLIPPED
    found = _residual(state, x, evaluation, clipped, solver, features)
    jumped = found.norm > solver.largest_jump * state.norm
    restarted = (state.retry == len(solver.tries) - 1) & ~state.nothing_accepted
    step, cap = _adapted_steps(
        state, looked_back, found, jumped, restarted, solver, features
    )
    remembers = ~(jumped | state.nothing_accepted | restarted)
    remembers &= found.largest < solver.accelerate_below
    dF = found.F - state.F
    kinds = state.differences.newest.shape[0]
    newest = [found.scaled - state.scaled, x - state.x + dF, dF][:kinds]
    count = tf.where(remembers, state.differences.count + 1, 0)
    differences = state.differences._replace(count=count, newest=tf.stack(newest))
    return found._replace(
        nothing_accepted=tf.zeros_like(state.nothing_accepted),
        retry=tf.zeros_like(state.retry),
        improper=tf.zeros_like(state.improper),
        x=x,
        marginals=tf.stack(evaluation.marginals),
        extra=evaluation.extra,
        merit=evaluation.merit,
        step=step,
        cap=cap,
        differences=differences,
    )


def _residual(
    state: State,
    x: tf.Tensor,
    evaluation: SweepEvaluation,
    clipped: tf.Tensor,
    solver: Solver,
    features: Features,
) -> State:
    """Measure how far the sites x are from their targets.

    :param clipped: Whether precisions are clipped at 0, as in the net.
    :return: The state with the new residuals.
    """
    coupled = features.coupled
    error = tf.reduce_sum(tf.square(evaluation.error))
    mean_square = 0.5 * error / tf.cast(num_rows(evaluation.marginals.m), x.dtype)
    takes_limited = clipped
    if coupled:
        takes_limited |= mean_square > solver.early
    limited, target = map(tf.stack, (evaluation.limited, evaluation.target))
    F = chosen(takes_limited, limited, target) - x
    scaled = in_deviations(F, evaluation.marginals, coupled)
    if coupled:
        # First numbers that all change a little in the same direction move the means of
        # all rows far. With the size of F instead, acceleration of 4000 and more rows
        # kept rows away from their fixed point.
        scaled = tf.stack([evaluation.error[0], scaled[1]])
    residual = tf.reduce_max(tf.abs(evaluation.error))
    return state._replace(
        F=F,
        scaled=scaled,
        norm=tf.sqrt(tf.reduce_sum(tf.square(scaled))),
        largest=tf.where(clipped, tf.reduce_max(tf.abs(scaled)), residual),
        residual=residual,
        mean_square=mean_square,
        first_mean_square=tf.where(
            state.sweep == 1, mean_square, state.first_mean_square
        ),
    )


def _adapted_steps(
    state: State,
    looked_back: tf.Tensor,
    found: State,
    jumped: tf.Tensor,
    restarted: tf.Tensor,
    solver: Solver,
    features: Features,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Adapt the step of each site, and the cap of all steps.

    :param looked_back: See ``looks_back`` of :func:`propose`.
    :param found: The state with the residual after the step.
    :param jumped: Whether the norm of the residual grew too much.
    :param restarted: Whether the last of all tries was taken.
    """
    coupled = features.coupled
    # A step was too long if the residual after it points back along the residual before
    # it.
    along = found.scaled * state.scaled
    squares = tf.square(state.scaled)
    if not coupled:
        along = tf.reduce_sum(along, axis=0, keepdims=True)
        squares = tf.reduce_sum(squares, axis=0, keepdims=True)
    all_along = tf.reduce_sum(along, axis=[1, 2], keepdims=True)
    plain = ~(state.nothing_accepted | looked_back)
    turned = along < -0.5 * squares
    if coupled:
        turned &= tf.constant([[[False]], [[True]]])
    like = found.F
    step = state.step * _either(
        turned & plain, solver.shrink_step, solver.grow_step, like
    )
    turned_as_whole = (all_along < 0.0) & plain
    cap = state.cap * _either(turned_as_whole, solver.shrink_cap, solver.grow_cap, like)
    cap = tf.where(restarted, solver.restart_cap * state.cap, cap)
    largest_step = tf.constant(solver.damping, like.dtype)
    if coupled:
        # If acceleration overshoots, the plain steps after it overshoot too.
        cap = tf.where(jumped & looked_back, solver.refused_cap * cap, cap)
        from_far = min(solver.damping, solver.cap_from_far)
        is_far = found.first_mean_square > solver.far
        largest_step = _either(is_far, from_far, solver.damping, like)
    return (
        tf.clip_by_value(step, solver.min_step, largest_step),
        tf.clip_by_value(cap, solver.min_cap, largest_step),
    )


def refuse(
    state: State, looked_back: tf.Tensor, evaluation: SweepEvaluation, solver: Solver
) -> State:
    """Make the state after a proposal that was not accepted.

    :param looked_back: See ``looks_back`` of :func:`propose`.
    """
    smaller = tf.maximum(solver.refused_cap * state.cap, solver.min_cap)
    return state._replace(
        num_rejected=state.num_rejected + 1,
        retry=tf.minimum(state.retry + 1, len(solver.tries) - 1),
        improper=state.improper | ~evaluation.proper,
        cap=tf.where(looked_back, state.cap, smaller),
        differences=state.differences.forgotten(),
    )


def _newton_step(
    state: State, solver: Solver, features: Features, full: tf.Tensor, left: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Make a probe, or a step; the step is 0 if no sites were evaluated in this stage.

    :param full: The step that makes F zero as far as the differences show.
    :param left: The rest of F after this step.
    :return: The step, and whether it is a probe.
    """
    past = state.differences
    dtype = state.x.dtype
    units = Marginals(*tf.unstack(state.marginals))
    scaled = in_deviations(left, units, features.coupled)
    size = tf.sqrt(tf.reduce_sum(tf.square(scaled)))
    known = past.count >= past.depth
    probing = ~(
        state.nothing_accepted | known | (size <= solver.newton_left * state.norm)
    )
    probing &= state.retry == 0
    # The error of a difference is least if its two parts, from rounding and from
    # curvature, are equal.
    h = np.finfo(dtype.as_numpy_dtype).eps ** 0.25
    step = tf.where(probing, (h / size) * left, _newton_part(state) * full)
    return tf.where(state.nothing_accepted, tf.zeros_like(step), step), probing


def _newton_part(state: State) -> tf.Tensor:
    """Compute the fraction of the step that is tried."""
    return tf.pow(tf.constant(0.5, state.x.dtype), tf.cast(state.retry, state.x.dtype))


def newton_choice(
    is_newton: tf.Tensor,
    others: tuple[tf.Tensor, State, State],
    state: State,
    proper: tf.Tensor,
    solver: Solver,
) -> tuple[tf.Tensor, State, State]:
    """Decide whether a proposal is accepted, and make the states after it was accepted
    and after it was refused.

    :param is_newton: Whether it is a proposal of Newton's method.
    :param others: The decision and the two states for all other proposals.
    :param proper: Whether the proposal is proper.
    """
    accepts, after, refused = others
    forgotten = after._replace(differences=after.differences.forgotten())
    smaller = (
        after.norm < (1.0 - solver.newton_sufficient * _newton_part(state)) * state.norm
    )
    is_forward = state.nothing_accepted | (~state.probing & smaller)
    # The proposal was a probe, whose difference is now known, or a step that was too
    # long.
    known = state.probing & proper
    past = state.differences
    too_long = tf.cast(~known, tf.int32)
    newest = tf.where(known, after.differences.newest, past.newest)
    count = past.count + tf.cast(known, tf.int32)
    stays = state._replace(
        num_rejected=state.num_rejected + too_long,
        retry=state.retry + too_long,
        differences=past._replace(count=count, newest=newest),
    )
    return (
        accepts & (~is_newton | is_forward),
        chosen(is_newton, forgotten, after),
        chosen(is_newton, stays, refused),
    )
