"""The inner loop on small maps: that it ends, at the fixed point if any, with a true
record.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from helpers import Array, assert_all_close, assert_close

from gpflow_pep.engine.sites import record
from gpflow_pep.engine.sites.fixed_point import run_to_fixed_point
from gpflow_pep.engine.sites.posterior import Marginals, Sites, scaled_error
from gpflow_pep.engine.sites.record import (
    FALLBACKS,
    Features,
    Goal,
    Solver,
    Stage,
    SweepEvaluation,
)

N = 5
L = 2
SHAPE = (N, L)
NU, TAU, MEAN, VARIANCE = (
    np.linspace(low, high, N * L).reshape(SHAPE)
    for low, high in ((-1.0, 2.0), (0.3, 1.7), (-2.0, 1.0), (0.5, 3.0))
)
GOAL = Sites(NU, TAU)
ZEROS = Sites(np.zeros(SHAPE), np.zeros(SHAPE))
TOLERANCE = 1e-9
NO_POWER = tf.constant(0.0, tf.float64)
SOLVER = Solver(Goal(TOLERANCE), 200)
Target = Any
Condition = Any | None


def evaluation(
    sites: Sites,
    target: Any,
    m: Any = 0.0,
    s: Any = 1.0,
    proper: Any = True,
    merit: Any = 0.0,
) -> SweepEvaluation:
    none = 0.0 * sites.nu
    target = Sites(*(none + part for part in target))
    marginals = Marginals(none + m, none + s)
    error = scaled_error(sites, target, marginals)
    limited = Sites(target.nu, tf.nn.relu(target.tau))
    proper = tf.convert_to_tensor(proper)
    merit = tf.cast(merit, none.dtype)
    return SweepEvaluation(marginals, target, limited, error, proper, merit)


class Run(NamedTuple):
    sites: Sites
    marginals: Marginals
    info: record.SiteUpdateInfo
    asked: list[Array]  # sites on the way, each [2, N, L]


class Map:
    """Where the sites want to go; the marginals are constant."""

    def __init__(
        self, target: Target, proper: Condition = None, merit: Condition = None
    ) -> None:
        self.target = target
        self.proper: Any = proper or (lambda nu, tau: True)
        self.merit: Any = merit or (lambda nu, tau: 0.0)
        self.asked: list[Array] = []
        self.shifts: list[float] = []

    def __call__(self, sites: Sites, stage: Stage, _: Any = ()) -> SweepEvaluation:
        if tf.executing_eagerly():
            self.asked.append(np.stack([part.numpy() for part in sites]))
            self.shifts.append(float(stage.power_shift))
        target, proper, merit = (
            of(*sites) for of in (self.target, self.proper, self.merit)
        )
        return evaluation(sites, target, MEAN, VARIANCE, proper, merit)

    def errors(self, sites: Sites) -> Array:
        """How far undamped steps would go, in standard deviations, by the record's
        definition.
        """
        F_nu, F_tau = (np.subtract(*pair) for pair in zip(self.target(*sites), sites))
        return np.stack([np.sqrt(VARIANCE) * (F_nu - MEAN * F_tau), VARIANCE * F_tau])

    def run(
        self,
        initial: Sites = ZEROS,
        *,
        max_sweeps: int = 200,
        tolerance: float = TOLERANCE,
        gap: float = 0.0,
        damping: float = 1.0,
        fall_back: bool = False,
        **features: Any,
    ) -> Run:
        """Its record is true of the sites that come back, however it ends."""
        self.asked.clear()
        self.shifts.clear()
        solver = Solver(Goal(tolerance, gap), max_sweeps, damping, fall_back)
        start = Sites(*map(tf.constant, initial))
        ended = run_to_fixed_point(self, start, solver, Features(**features))
        parts = *ended[:2], ended.info
        sites, marginals, info = (
            type(part)(*(one.numpy() for one in part)) for part in parts
        )
        assert info.num_sweeps == len(self.asked)
        if np.isfinite(info.residual):
            residual = np.max(np.abs(self.errors(sites)))
            assert info.residual == pytest.approx(residual, rel=1e-9, abs=1e-14)
            assert gap or info.converged == (residual < tolerance)
            assert bool(self.proper(*sites)) and np.all(np.isfinite(sites))
        return Run(sites, marginals, info, [*self.asked])


def _linear(slope: float) -> Target:
    """Its fixed point is (NU, TAU), as that of most others here."""
    return lambda nu, tau: (NU + slope * (nu - NU), TAU + slope * (tau - TAU))


def _below(wall: float) -> Any:
    return lambda nu, tau: tf.reduce_all(tau < wall)


_rotation, _ = np.linalg.qr(
    np.random.default_rng(2).standard_normal([2 * N * L, 2 * N * L])
)
SLOPES = _rotation @ np.diag(np.linspace(-2.5, 0.9, 2 * N * L)) @ _rotation.T


def _coupled(nu: Any, tau: Any) -> tuple[Any, Any]:
    """Linear with slopes from -2.5 to 0.9, in directions that mix all sites."""
    x = tf.reshape(tf.stack([nu - NU, tau - TAU]), [-1, 1])
    moved = tf.reshape(tf.matmul(tf.constant(SLOPES), x), [2, *SHAPE])
    return NU + moved[0], TAU + moved[1]


def _contraction(nu: Any, tau: Any) -> tuple[Any, Any]:
    return NU + 0.4 * tf.sin(nu - NU), TAU + 0.3 * tf.sin(tau - TAU) + 0.1 * tf.sin(
        nu - NU
    )


def _jump(nu: Any, tau: Any) -> tuple[Any, Any]:
    """No fixed point: it jumps from one side of it to the other."""
    return 1.0 - 2.0 * tf.cast(nu > 0.31, nu.dtype), 2.0 * tf.cast(
        tau <= 0.7, tau.dtype
    )


def _nan_where_improper(nu: Any, tau: Any) -> tuple[Any, Any]:
    nan = tf.where(tf.reduce_any(tau > 2.5), tf.constant(np.nan, tf.float64), 0.0)
    return NU + nan, TAU - 4.0 * (tau - TAU) + nan


REACHED: dict[str, Map] = {
    "constant": Map(lambda nu, tau: (NU, TAU)),
    "contraction": Map(_contraction),
    "slow contraction": Map(_linear(0.97)),
    "oscillation that is a contraction": Map(_linear(-0.9)),
    "oscillation that diverges undamped": Map(_linear(-3.0)),
    "coupled, diverges undamped": Map(_coupled),
    "improper beyond a wall": Map(_linear(-3.0), _below(2.5)),
    "NaN beyond a wall": Map(
        _nan_where_improper, lambda nu, tau: tf.reduce_all(tau <= 2.5)
    ),
    "improper where it first wants to go": Map(
        lambda nu, tau: (NU, TAU + 6.0 * tf.exp(-tau) - 6.0 * np.exp(-TAU)), _below(2.6)
    ),
}
NEGATIVE = "negative precisions that are improper"
UNREACHABLE: dict[str, Map] = {
    "drift": Map(lambda nu, tau: (nu + 1.0, tau + 0.5)),
    "repelled": Map(_linear(1.5)),
    "jump": Map(_jump),
    "only no sites are proper": Map(
        lambda nu, tau: (NU, TAU), lambda nu, tau: tf.reduce_all(tau == 0.0)
    ),
    NEGATIVE: Map(
        lambda nu, tau: (NU, -1.0), lambda nu, tau: tf.reduce_all(tau > -0.5)
    ),
}


@cache
def reached(name: str) -> Run:
    return REACHED[name].run()


def assert_reached(run: Any) -> None:
    assert bool(run.info.converged)
    assert_all_close(run.sites, GOAL, rtol=1e-6)


@pytest.mark.parametrize("name", REACHED)
def test_reaches_the_fixed_point_and_stays_there(name: str) -> None:
    """In few sweeps: a slope of 0.97 alone would take log(1e-9) / log(0.97) = 680."""
    sites, marginals, info, asked = reached(name)
    np.testing.assert_array_equal(np.stack(sites), asked[-1])
    np.testing.assert_array_equal(np.stack(marginals), [MEAN, VARIANCE])
    refused = sum(not bool(REACHED[name].proper(*x)) for x in asked)
    assert info.num_rejected == refused and bool(refused) == (
        " wall" in name or "first" in name
    )
    again = REACHED[name].run(sites)
    assert (again.info.num_sweeps, again.info.num_rejected) == (1, 0)
    np.testing.assert_array_equal(np.stack(again.sites), np.stack(sites))
    for end in (reached(name), again, REACHED[name].run(coupled=True)):
        assert_reached(end)
    assert info.num_sweeps <= {"constant": 2, "slow contraction": 19}.get(name, 200)


@pytest.mark.parametrize("name", ["contraction", "improper beyond a wall"])
@pytest.mark.near_copies("improper*")
def test_a_compiled_run_is_an_eager_one(name: str) -> None:
    def run(*zeros: tf.Tensor) -> record.FixedPoint:
        return run_to_fixed_point(REACHED[name], Sites(*zeros), SOLVER)

    sites, _, _, info = tf.function(run, autograph=False)(*ZEROS)
    eager = reached(name)
    assert (info.num_sweeps, info.num_rejected) == (eager.info[0], eager.info[3])
    assert bool(info.converged)
    assert_all_close(sites, eager.sites, rtol=1e-9)


@pytest.mark.parametrize("name", [*REACHED, *UNREACHABLE])
def test_the_record_of_a_run_that_is_cut_short(name: str) -> None:
    """It ends and says so where there is no fixed point."""
    for max_sweeps in (1, 2, 5):
        assert {**REACHED, **UNREACHABLE}[name].run(
            max_sweeps=max_sweeps
        ).info.num_sweeps <= 5
    if name in ("drift", NEGATIVE):
        info = UNREACHABLE[name].run(max_sweeps=60).info
        assert (
            not info.converged and info.num_sweeps == 60 and np.isfinite(info.residual)
        )


def test_ends_where_nothing_at_all_is_proper() -> None:
    """Soon: as with hyperparameters that ran off, more sweeps would find the same."""
    run = Map(_contraction, lambda nu, tau: False).run(GOAL)
    assert not run.info.converged and run.info.residual == np.inf
    assert run.info.num_rejected == run.info.num_sweeps <= 7 * len(FALLBACKS)
    np.testing.assert_array_equal(run.sites.nu, 0.0)


@pytest.mark.parametrize("damping", [1.0, 0.3, 0.02, 1e-3])
def test_damped_steps(damping: float) -> None:
    """None is longer than the damping, and none fakes convergence by being short."""
    function = Map(lambda nu, tau: (NU + 100.0, TAU + 100.0))
    # Nothing is accelerated while F is large.
    run = function.run(max_sweeps=3, damping=damping)
    for before, after in zip(run.asked, run.asked[1:]):
        F = np.stack(function.target(*before)) - before
        assert np.all(np.abs(after - before) <= damping * np.abs(F) * (1.0 + 1e-12))
    run = Map(_linear(0.0)).run(max_sweeps=4, tolerance=0.01, damping=min(damping, 0.5))
    assert not run.info.converged and run.info.residual > 0.01


def test_damped_runs_and_those_from_an_improper_start_get_there_too() -> None:
    assert_reached(Map(_coupled).run(damping=0.2))
    function = Map(_contraction, lambda nu, tau: tf.reduce_all(tf.abs(nu) < 3.0))
    run = function.run(Sites(1e3 * np.ones(SHAPE), -np.ones(SHAPE)))
    assert run.info.num_rejected > 0
    assert_reached(run)


def test_each_fallback_has_as_many_sweeps_and_none_is_tried_without_need() -> None:
    options: dict[str, Any] = {"max_sweeps": 10, "fall_back": True}
    info = UNREACHABLE["drift"].run(**options, largest_power=NO_POWER).info
    assert info.num_sweeps == 2 * 10
    assert (
        UNREACHABLE["drift"].run(**options).info.num_sweeps
        == 3 * 10 + SOLVER.num_powers
    )
    run = REACHED["coupled, diverges undamped"].run(fall_back=True)
    assert run.info.converged and FALLBACKS[run.info.fallback] == ""
    # The net settles where there is no proper fixed point: precisions at 0, the rest
    # where it wants to be; the record is that of the whole target.
    run = UNREACHABLE[NEGATIVE].run(
        max_sweeps=30, fall_back=True, largest_power=NO_POWER
    )
    assert FALLBACKS[run.info.fallback] == "clipped"
    assert not run.info.converged and 30 < run.info.num_sweeps < 50
    np.testing.assert_allclose(run.sites.tau, 0.0, atol=1e-8)
    assert_close(run.sites.nu, NU, rtol=1e-6)


def test_smaller_powers_lead_to_a_fixed_point_that_attracts_few() -> None:
    """It attracts nearby sites only, such as those of the problem just below."""

    def part(x: tf.Tensor, goal: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.abs(x - goal) < 0.3, goal, x + 1.0)

    class Narrow(Map):
        def __call__(self, sites: Sites, stage: Stage, _: Any = ()) -> SweepEvaluation:
            share = 1.0 + stage.power_shift
            self.target = lambda nu, tau: (part(nu, share * NU), part(tau, share * TAU))
            return super().__call__(sites, stage)

    function = Narrow(_contraction)
    start = Sites(NU + 5.0, TAU + 5.0)
    options = {"max_sweeps": 40, "fall_back": True}
    run = function.run(start, **options)
    assert_reached(run)
    assert FALLBACKS[run.info.fallback] == "continuation"
    assert list(dict.fromkeys(function.shifts)) == [
        0.0,
        *(k / 20 for k in range(-20, 0)),
    ]
    run = function.run(start, **options, largest_power=NO_POWER)
    assert set(function.shifts) == {0.0} and not run.info.converged


def test_a_goal_of_the_mean_is_met_sooner_and_relative_after_a_long_step() -> None:
    function = REACHED["contraction"]
    goal = 1e-9

    def mean_square(sites: Sites) -> float:
        return 0.5 * float(np.sum(np.square(function.errors(sites)))) / N

    run = function.run(gap=1e-6)
    assert mean_square(run.sites) < 1e-6
    assert run.info.converged and run.info.residual > TOLERANCE
    assert run.info.num_sweeps < reached("contraction").info.num_sweeps
    for distance, least, most in ((0.1, goal, 1e2 * goal), (0.2, 0.0, goal)):
        start = Sites(NU + distance, TAU + distance)
        # Too far away for a long step.
        assert (mean_square(start) > 0.1) == (distance == 0.2)
        run = function.run(start, gap=goal)
        assert run.info.converged and least < mean_square(run.sites) < most


def test_the_merit_never_falls() -> None:
    """Close to the fixed point a step may lower it a little, which depends on
    rounding.
    """

    def merit(nu: Any, tau: Any) -> Any:
        return -tf.reduce_sum(tf.square(nu - NU) + tf.square(tau - TAU))

    def changes(function: Map) -> Array:
        ends = [function.run(max_sweeps=k) for k in (1, 2, 3, 5, 8, 12)]
        steps = np.diff([merit(*end.sites) for end in ends])
        return steps[[end.info.residual > 0.05 for end in ends[:-1]]]

    guarded = Map(_coupled, merit=merit)
    assert np.all(changes(guarded) >= -1e-8)
    assert np.any(changes(Map(_coupled)) < -1e-3)
    run = guarded.run()
    assert run.info.converged and run.info.num_rejected > 0


def test_easier_problems_come_first_if_wanted() -> None:
    function = Map(_contraction)
    run = function.run(warm_up=tf.constant(True))
    assert_reached(run)
    assert list(dict.fromkeys(function.shifts)) == [*SOLVER.larger_powers, 0.0]
    assert (
        np.all(np.diff(function.shifts) <= 0.0) and FALLBACKS[run.info.fallback] == ""
    )
    function.run(warm_up=tf.constant(False))
    assert set(function.shifts) == {0.0}

    def evaluate(sites: Sites, stage: Stage, _: Any) -> SweepEvaluation:
        is_last = float(stage.power_shift) == 0.0
        return (REACHED["contraction"] if is_last else UNREACHABLE["drift"])(
            sites, stage
        )

    # A warm-up that has no fixed point is left.
    features = Features(warm_up=tf.constant(True))
    run = run_to_fixed_point(
        evaluate, Sites(*map(tf.constant, ZEROS)), SOLVER, features
    )
    assert_reached(run)
    assert 60 < int(run.info.num_sweeps) < 100


def test_single_precision() -> None:
    nu, tau = (tf.constant(part, tf.float32) for part in GOAL)

    def evaluate(sites: Sites, stage: Stage, _: Any) -> SweepEvaluation:
        return evaluation(
            sites, (nu - 0.9 * (sites.nu - nu), tau - 0.9 * (sites.tau - tau))
        )

    run = run_to_fixed_point(
        evaluate, Sites(0.0 * nu, 0.0 * tau), Solver(Goal(1e-4), 100)
    )
    assert run.sites.nu.dtype == tf.float32 and bool(run.info.converged)
    assert_close(run.sites.nu, nu, rtol=1e-4)


# Newton's method: fixed points that no damping leads to.

_random = np.random.default_rng(5)
#: Real and imaginary parts of the eigenvalues at the fixed point.
RATES = _random.uniform(1.2, 2.2, SHAPE), _random.uniform(0.5, 1.5, SHAPE)


@cache
def repelled(by_newton: bool) -> Any:
    """Each site is turned and driven away from its fixed point; variances of q turn
    with them.
    """

    def run(turning: tf.Tensor) -> record.FixedPoint:
        def evaluate(sites: Sites, stage: Stage, _: Any) -> SweepEvaluation:
            part = 1.0 + stage.power_shift
            nu = tf.tanh(sites.nu - part * NU)
            tau = tf.tanh(sites.tau - part * TAU)
            real, imaginary = (part * rates for rates in RATES)
            by_nu = real * nu - imaginary * tau
            by_tau = imaginary * nu + real * tau
            s = tf.exp(turning * tf.sin(3.0 * sites.nu + 2.0 * sites.tau))
            return evaluation(sites, (part * NU + by_nu, part * TAU + by_tau), s=s)

        start = Sites(tf.constant(NU + 2.0), tf.constant(TAU - 1.0))
        return run_to_fixed_point(
            evaluate, start, SOLVER, Features(by_newton=by_newton)
        )

    return tf.function(run, autograph=False)


@pytest.mark.parametrize("turning", [0.0, 4.0])
def test_a_fixed_point_that_repels_is_reached(turning: float) -> None:
    """In units of a q that changes from sweep to sweep the equations would be others
    each time.
    """
    end = repelled(True)(tf.constant(turning, tf.float64))
    assert bool(end.info.converged)
    assert FALLBACKS[int(end.info.fallback)] == "continuation"
    assert_all_close(end.sites, GOAL, rtol=1e-8)
    # Probes are no refusals.
    assert int(end.info.num_rejected) < int(end.info.num_sweeps) / 10


@pytest.mark.slow
def test_smaller_powers_alone_do_not_lead_to_it() -> None:
    assert not bool(repelled(False)(tf.constant(0.0, tf.float64)).info.converged)


# Where sites climb to one of several optima a run begins again from larger powers.

#: The optima of nu on either side of 0; each time the right one is reached by steps of
#: 0.1.
LEFT = -2.0
RIGHT = 2.0


@pytest.mark.parametrize(
    "start, wanders, best, power, max_sweeps, least, most",
    [
        pytest.param(-0.5, False, RIGHT, 0.0, 6, 1, 99, id="far"),
        pytest.param(-1.8, False, LEFT, 0.0, 6, 1, 4, id="near: nothing else is tried"),
        pytest.param(-0.5, False, LEFT, 0.01, 6, 1, 99, id="without merit"),
        pytest.param(-0.5, True, RIGHT, 0.0, 10, 11, 99, id="nowhere"),
    ],
)
def test_sites_that_climb_to_a_worse_optimum_are_left(
    start: float,
    wanders: bool,
    best: float,
    power: float,
    max_sweeps: int,
    least: int,
    most: int,
) -> None:
    def evaluate(sites: Sites, stage: Stage, _: Any) -> SweepEvaluation:
        nu = sites.nu
        to_the_left = -0.2 if wanders else LEFT - nu
        change = tf.where(
            nu < 0.0, to_the_left, tf.clip_by_value(RIGHT - nu, -0.1, 0.1)
        )
        change = tf.where(stage.power_shift > 0.0, RIGHT - nu, change)
        return evaluation(
            sites, (nu + change, 1.0), merit=tf.reduce_sum(-tf.abs(nu - best))
        )

    one = tf.ones([1, 1], tf.float64)
    options = {
        "largest_power": tf.constant(power, tf.float64),
        "warm_up": tf.constant(False),
    }
    solver = Solver(Goal(TOLERANCE), max_sweeps)
    features = Features(**options, coupled=True)
    run = run_to_fixed_point(evaluate, Sites(start * one, one), solver, features)
    assert run.info.converged and least <= run.info.num_sweeps <= most
    assert_close(run.sites.nu, [[best]], rtol=1e-9)


@pytest.mark.parametrize("converges", [True, False])
def test_a_run_that_only_narrower_priors_begin(converges: bool) -> None:
    """Sites are proper only near their fixed point, which is at 0 without any prior
    variance.
    """
    end = np.linspace(-2.0, 2.0, 5)[:, None]
    parts = []

    def evaluate(sites: Sites, stage: Stage, _: Any) -> SweepEvaluation:
        part = stage.prior_scale
        parts.append(float(part))
        near = tf.reduce_all(tf.abs(sites.nu - part * end) < 0.5) and (
            converges or part <= 0.5
        )
        target = part * end + 0.1 * (sites.nu - part * end), 1.0
        return evaluation(sites, target, m=part * end, proper=near)

    zeros = tf.zeros([5, 1], tf.float64)
    features = Features(largest_variance=tf.constant(100.0))
    point = run_to_fixed_point(
        evaluate, Sites(zeros, zeros), Solver(Goal(1e-9), 50), features
    )
    assert bool(point.info.converged) == converges
    assert min(parts) == pytest.approx(0.1, rel=0.1)
    assert FALLBACKS[int(point.info.fallback)] == (
        "continuation" if converges else "clipped"
    )
    assert not converges or not np.any(np.abs(point.sites.nu - end) > 2e-8)
