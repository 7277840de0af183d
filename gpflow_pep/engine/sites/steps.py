"""
One step of the inner loop: what is proposed, and what follows where that is accepted or refused.

Each site makes a step of its own, or all follow Anderson's acceleration, which looks back on the
last ones. See :mod:`gpflow_pep.engine.sites.fixed_point`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..numerics.chunks import Reduction, num_rows, sizes_may_vary
from .posterior import in_deviations
from .record import LIMITED, Goal, SweepEvaluation

#: Differences that the acceleration looks back on: many, as long as they are few numbers beside
#: others.
_DEPTH, _SMALL_DEPTH = 16, 4
_DEEP_SITES = 200_000
#: It starts where the residual is below the first number, and forgets where the norm of it grows by
#: more than the second.
_ACCELERATE_BELOW = 0.5
LARGEST_JUMP = 2.0
#: The part, or more, that a coupled run takes of what the differences do not explain of F. By .9 of
#: it RobustMax at alpha 1 takes up to 560 sweeps where plain steps overshoot (in the grid of
#: examples/benchmarks/stress.py), by .8 or .5 up to 100, by .6 at most 64.
_UNEXPLAINED = 0.6
#: A residual below which the run is close.
_CLOSE = 0.05
#: See :class:`~gpflow_pep.engine.sites.record.Goal`.
_OF_FIRST, _LARGEST_FACTOR = 0.1, 100.0
#: A run that begins with a mean square above this had no sites, or those of other data.
FAR = 0.1
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
#: Above this mean square a coupled step leaves precisions that want to be negative at 0: most do
#: not later.
_EARLY = 0.1
#: What a proposal's negative precisions and its step are multiplied by, at first and after each
#: refusal. The last one stays where it is, except that no precision is negative: at the start of
#: the loop that is no sites at all, which is always proper; later the cap is made small.
_NEGATIVE = (1.0, 1.0, 0.5, 0.1, 0.0, 0.0, 0.0)
_FACTORS = (1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0)
NUM_FACTORS = len(_FACTORS)
#: The step instead, the same for all sites, where the merit fell but nothing was improper. Without
#: these 2 cells of 1440 fewer converge (examples/benchmarks/stress.py), of the probit.
_MERIT_STEPS = (1.0, 1.0, 0.5, 0.25, 0.1, 0.03, 0.0)
_OF_RETRY = tuple(zip(_NEGATIVE, _FACTORS, _MERIT_STEPS))
_RESTART_CAP = 0.1
#: Tensors of no more numbers are copied where one of two is taken.
_COPIED = 2_000

#: ``(state, rules, step, left) -> step [2, N, L], whether it is a probe``, of the step that looks
#: back on the last ones and of what that leaves of F: see :mod:`gpflow_pep.engine.sites.newton`.
NewtonStep = Callable[["State", "StepRules", tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class StepRules(NamedTuple):
    """What does not change in a run."""

    damping: float
    coupled: bool
    reduction: Reduction
    newton_step: NewtonStep | None = None

    def total(self, *parts: tf.Tensor) -> list[tf.Tensor]:
        """Sum over processes."""
        # No gradient is ever taken, but TensorFlow prepares that of a loop where several tapes
        # watch.
        return [tf.stop_gradient(part) for part in self.reduction.total(parts)]


class Differences(NamedTuple):
    """Of the last iterates of a run."""

    count: tf.Tensor
    """[], how many were remembered since some were forgotten."""

    newest: tf.Tensor
    """[2 or 3, 2, N, L], the last one of each of these."""

    last: tuple[tf.Tensor, ...]
    """[depth, 2, N, L] each, the last ones of the scaled residual, of x + F(x), and for Newton's
    method and coupled runs of F(x), in turn: the newest is to take the place of the oldest."""

    @classmethod
    def empty(cls, x: tf.Tensor, reduction: Reduction, with_F: bool) -> "Differences":
        """Remember nothing, but have room for differences of sites [2, N, L]."""
        size = reduction.known_total(x.shape.num_elements())
        depth = _DEPTH if size <= _DEEP_SITES else _SMALL_DEPTH
        shape = x.shape if x.shape.is_fully_defined() else tf.shape(x)
        room = tf.zeros(tf.concat([[depth], shape], 0), x.dtype)
        number = 2 + with_F
        return cls(tf.constant(0), tf.stack([x] * number), (room,) * number)

    def forgotten(self) -> "Differences":
        """Remember nothing."""
        return self._replace(count=tf.zeros_like(self.count))

    def entered(self) -> "Differences":
        """Put the newest one among the others."""
        place = tf.reshape((self.count - 1) % self.depth, [1, 1])
        rooms = zip(self.last, tf.split(self.newest, len(self.last)))
        return self._replace(
            last=tuple(tf.tensor_scatter_nd_update(room, place, newest) for room, newest in rooms)
        )

    @property
    def depth(self) -> int:
        """How many there is room for."""
        depth: int = self.last[0].shape[0]
        return depth


class State(NamedTuple):
    """Where a run is."""

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
    """[2, N, L], the residual in units of q's standard deviation: what the step F is to make 0."""
    norm: tf.Tensor
    """[], root of the sum of squares of these."""
    largest: tf.Tensor
    """[], the residual, or in the limited phase the largest of these."""
    residual: tf.Tensor
    """[], of the record; infinite until something was evaluated."""
    mean_square: tf.Tensor
    """[], see :class:`~gpflow_pep.engine.sites.record.Goal`."""
    first_mean_square: tf.Tensor
    """[], of the first evaluation of the run; 0 where that was refused."""
    merit: tf.Tensor
    step: tf.Tensor
    """[1 or 2, N, L], step of each site, or of each of its numbers."""
    cap: tf.Tensor
    """[1 or 2, 1, 1], largest step of any."""
    differences: Differences
    """Of x and F; none where they were forgotten."""
    probing: Any = ()
    """Whether the last proposal of Newton's method was a probe; nothing where there is no such
    method."""
    rough: Any = ()
    """Whether integrals were rough there; true before the first, nothing where they never are."""
    best: Any = ()
    """See :mod:`gpflow_pep.engine.sites.climbing`; nothing where sites do not climb."""

    def meets(self, goal: Goal) -> tf.Tensor:
        """Whether a goal is met."""
        first, least = self.first_mean_square, goal.mean_square_residual
        relative = tf.where(first < FAR, _OF_FIRST * first, 0.0)
        mean_square = tf.clip_by_value(relative, least, _LARGEST_FACTOR * least)
        return (self.residual < goal.tolerance) | (self.mean_square < mean_square)

    @property
    def is_close(self) -> tf.Tensor:
        """Whether the fixed point is near."""
        return ~self.nothing_accepted & (self.largest < _CLOSE)

    @property
    def accelerates(self) -> tf.Tensor:
        """Whether the next step looks back on the last ones."""
        return (self.retry == 0) & (self.differences.count > 0)


def chosen(condition: tf.Tensor, state: State, other: State) -> State:
    """
    Choose one of two states, of which both were computed.

    To copy a tensor of few numbers takes one operation, where a branch has several for each tensor
    that it reads or returns. The others are passed on by one branch for all.
    """
    pairs = [*zip(tf.nest.flatten(state), tf.nest.flatten(other), strict=True)]
    take = tf.raw_ops.Select  # tf.where broadcasts the condition: several times as long
    parts = [a if a is b or _is_long(a) else take(condition=condition, x=a, y=b) for a, b in pairs]
    passed_on = [k for k, (a, b) in enumerate(pairs) if a is not b and _is_long(a)]
    if passed_on:
        first, second = zip(*(pairs[k] for k in passed_on))
        for k, tensor in zip(passed_on, tf.cond(condition, lambda: first, lambda: second)):
            parts[k] = tensor
    result: State = tf.nest.pack_sequence_as(state, parts)
    return result


def _is_long(tensor: tf.Tensor) -> bool:
    return (tensor.shape.num_elements() or 0) > _COPIED


def start_at(x: tf.Tensor, rules: StepRules, extra: Any) -> State:
    """Begin a run from no sites, with the initial ones, x [2, N, L], as the first to propose."""
    zero, zeros, nil = tf.constant(0), tf.zeros_like(x), tf.zeros([], x.dtype)
    infinity, own_steps = tf.constant(np.inf, x.dtype), 1 + rules.coupled
    return State(
        sweep=zero,
        phase=zero,
        phase_sweep=zero,
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
            x, rules.reduction, rules.coupled or rules.newton_step is not None
        ),
    )


def propose(state: State, rules: StepRules, is_newton: tf.Tensor) -> tuple[tf.Tensor, State]:
    """
    Make the next sites to evaluate, [2, N, L], and enter the newest difference.

    :param is_newton: Whether Newton's method takes the step.
    """
    past = state.differences.entered()
    state = state._replace(differences=past)
    columns = tf.constant(_OF_RETRY, state.x.dtype)
    negative, factor, uniform = tf.unstack(tf.gather(columns, state.retry))
    no, newton_step = tf.constant(False), rules.newton_step

    def plain_step() -> tuple[tf.Tensor, tf.Tensor]:
        """Towards where each site wants to be."""
        damped = factor * tf.minimum(state.step, state.cap)
        return tf.where(state.improper | (state.retry < 2), damped, uniform) * state.F, no

    def with_differences() -> tuple[tf.Tensor, tf.Tensor]:
        """With what the last ones have changed."""
        # Most runs end before there are many differences, and Newton's method needs all.
        few = past.count <= _SMALL_DEPTH
        few &= ~is_newton if newton_step else ~no
        # What processes send each other has one size.
        varies = sizes_may_vary() and rules.reduction.count == 1
        number = tf.where(few, _SMALL_DEPTH, past.depth) if varies else past.depth
        r, (dr, *parts) = state.scaled, (part[:number] for part in past.last)
        if newton_step:  # the equations are linear in the units of one q alone
            units = state.marginals, rules.coupled
            of_one_q = (in_deviations(part, *units) for part in (state.F, parts[1]))
            r, dr = (tf.where(is_newton, *both) for both in zip(of_one_q, (r, dr)))
        full, *left = what_is_left(state, rules, r, dr, *parts)
        accelerated = full
        if rules.coupled:
            part = tf.maximum(tf.cast(_UNEXPLAINED, full.dtype), state.cap)
            accelerated -= (1.0 - part) * left[0]
        if newton_step is None:
            return accelerated, no
        step, probing = newton_step(state, rules, full, *left)
        return tf.where(is_newton, step, accelerated), is_newton & probing

    looks_back = state.accelerates | is_newton if newton_step else state.accelerates
    step, probing = tf.cond(looks_back, with_differences, plain_step)
    first, tau = tf.unstack(state.x + step)
    tau = tf.where(state.improper & (tau < 0.0), negative * tau, tau)
    return tf.stack([first, tau]), state._replace(probing=probing) if newton_step else state


def what_is_left(
    state: State, rules: StepRules, r: tf.Tensor, dr: tf.Tensor, *parts: tf.Tensor
) -> list[tf.Tensor]:
    r"""
    Compute :math:`F - \sum_k \gamma_k p_k` with the :math:`\gamma`, [depth, 1], for which
    :math:`|r - \sum_k \gamma_k dr_k|` is smallest.

    :param r: The scaled residual.
    :param dr: Its differences, [depth, 2, N, L].
    :param parts: Each p, like these: the differences dx + dF for a step, dF for what it leaves of
        F.
    """
    depth = tf.shape(dr)[0]
    rows = tf.reshape(dr, [depth, -1])
    products, moments = rules.total(
        tf.matmul(rows, rows, transpose_b=True),
        tf.matmul(rows, tf.reshape(r, [-1, 1])),
    )
    squares = tf.linalg.diag_part(products)
    known = (tf.range(depth) < state.differences.count) & (squares > 0.0)
    unit = tf.where(known, tf.math.rsqrt(squares), tf.zeros_like(squares))
    column = tf.expand_dims(unit, 1)
    # Normal equations of rows of unit length; the ridge is far above their rounding error.
    ridge = np.sqrt(np.finfo(rows.dtype.as_numpy_dtype).eps) * 1e-2
    normal = column * products * unit
    normal = tf.linalg.set_diag(normal, ridge + tf.ones_like(squares))
    gamma = column * tf.linalg.solve(normal, column * moments)
    sums = (tf.matmul(gamma, tf.reshape(part, [depth, -1]), transpose_a=True) for part in parts)
    return [state.F - tf.reshape(part, tf.shape(state.F)) for part in sums]


def _either(condition: tf.Tensor, number: float, other: float, like: tf.Tensor) -> tf.Tensor:
    return tf.where(condition, tf.constant(number, like.dtype), tf.constant(other, like.dtype))


def accept(
    state: State,
    fallback: tf.Tensor,
    x: tf.Tensor,
    evaluation: SweepEvaluation,
    rules: StepRules,
) -> State:
    """
    Make the state after a proposal that was accepted.

    :param fallback: That of the phase.
    """
    marginals, coupled = tf.stack(evaluation.marginals), rules.coupled
    error, total_rows = rules.total(
        tf.reduce_sum(tf.square(evaluation.error)),
        tf.cast(num_rows(evaluation.marginals.m), x.dtype),
    )
    mean_square, limited = 0.5 * error / total_rows, fallback == LIMITED
    first_mean_square = tf.where(state.sweep == 1, mean_square, state.first_mean_square)
    early = coupled & (mean_square > _EARLY)
    F = tf.where(limited | early, tf.stack(evaluation.limited), tf.stack(evaluation.target)) - x
    scaled = in_deviations(F, marginals, coupled)
    if coupled:
        # Many first numbers that change by little, but together, move the means of all rows far: by
        # the size of F, acceleration of 4000 rows and more kept rows away from their fixed point.
        scaled = tf.stack([evaluation.error[0], scaled[1]])
    sizes = [tf.reduce_max(tf.abs(part)) for part in (scaled, evaluation.error)]
    largest, residual = rules.reduction.largest(sizes)
    largest = tf.where(limited, largest, residual)
    # A step is too long where the residual points back along the one it followed.
    along, squares = scaled * state.scaled, tf.square(state.scaled)
    if not coupled:
        along, squares = (tf.reduce_sum(part, axis=0, keepdims=True) for part in (along, squares))
    all_along, squared_norm = rules.total(
        tf.reduce_sum(along, axis=[1, 2], keepdims=True), tf.reduce_sum(tf.square(scaled))
    )
    norm = tf.sqrt(squared_norm)
    plain = ~state.nothing_accepted & ~state.accelerates
    turned = along < -0.5 * squares
    if coupled:
        turned &= tf.constant([[[False]], [[True]]])
    step = state.step * _either(turned & plain, _SHRINK_STEP, _GROW_STEP, x)
    cap = state.cap * _either((all_along < 0.0) & plain, _SHRINK_CAP, _GROW_CAP, x)
    restarted = (state.retry == NUM_FACTORS - 1) & ~state.nothing_accepted
    cap = tf.where(restarted, _RESTART_CAP * state.cap, cap)
    jumped = norm > LARGEST_JUMP * state.norm
    if coupled:  # where acceleration overshoots, so do the plain steps that follow it
        cap = tf.where(jumped & state.accelerates, _REFUSED_CAP * cap, cap)
    remembers = ~(jumped | state.nothing_accepted | restarted) & (largest < _ACCELERATE_BELOW)
    dF = F - state.F
    newest = [scaled - state.scaled, x - state.x + dF, dF][: len(state.differences.last)]
    count = tf.where(remembers, state.differences.count + 1, 0)
    differences = state.differences._replace(count=count, newest=tf.stack(newest))
    largest_step = tf.constant(rules.damping, x.dtype)
    if coupled:
        from_far = min(rules.damping, _CAP_FROM_FAR)
        largest_step = _either(first_mean_square > FAR, from_far, rules.damping, x)
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


def refuse(state: State, evaluation: SweepEvaluation) -> State:
    """Make the state after a proposal that was not accepted."""
    smaller = tf.maximum(_REFUSED_CAP * state.cap, _MIN_CAP)
    return state._replace(
        num_rejected=state.num_rejected + 1,
        retry=tf.minimum(state.retry + 1, NUM_FACTORS - 1),
        improper=state.improper | ~evaluation.proper,
        cap=tf.where(state.accelerates, state.cap, smaller),
        differences=state.differences.forgotten(),
    )
