"""The inner loop on small maps whose fixed points are known: that it gets there, that it ends where
there is none, and that its record tells the truth.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from helpers import Array, assert_all_close, assert_close

from gpflow_pep.engine.sites.fixed_point import run_to_fixed_point
from gpflow_pep.engine.sites.posterior import Marginals, Sites, scaled_error
from gpflow_pep.engine.sites.record import (
    FALLBACKS,
    Features,
    Goal,
    SiteUpdateInfo,
    Solver,
    Stage,
    SweepEvaluation,
)

N, L = 5, 2
SHAPE = (N, L)
NU = np.linspace(-1.0, 2.0, N * L).reshape(SHAPE)
TAU = np.linspace(0.3, 1.7, N * L).reshape(SHAPE)
MEAN = np.linspace(-2.0, 1.0, N * L).reshape(SHAPE)
VARIANCE = np.linspace(0.5, 3.0, N * L).reshape(SHAPE)
ZEROS = Sites(np.zeros(SHAPE), np.zeros(SHAPE))
TOLERANCE = 1e-9
SOLVER = Solver(Goal(TOLERANCE), 200)
NO_POWER = tf.constant(0.0, tf.float64)

Target = Callable[[tf.Tensor, tf.Tensor], tuple[Any, Any]]
Condition = Callable[[tf.Tensor, tf.Tensor], Any]


class Run(NamedTuple):
    """A finished run, and what it asked for on the way."""

    sites: Sites
    marginals: Marginals
    info: SiteUpdateInfo
    asked: list[Array]  # each [2, N, L]


class Map:
    """Where the sites want to go; the marginals are constant."""

    def __init__(
        self,
        target: Target,
        proper: Condition = lambda nu, tau: True,
        merit: Condition = lambda nu, tau: 0.0,
    ) -> None:
        self.target, self.proper, self.merit = target, proper, merit
        self.asked: list[Array] = []
        self.shifts: list[float] = []

    def __call__(self, sites: Sites, stage: Stage, _: Any = ()) -> SweepEvaluation:
        if tf.executing_eagerly():
            self.asked.append(np.stack([sites.nu.numpy(), sites.tau.numpy()]))
            self.shifts.append(float(stage.power_shift))
        nu, tau = self.target(*sites)
        target = Sites(nu + tf.zeros(SHAPE, tf.float64), tau + tf.zeros(SHAPE, tf.float64))
        marginals = Marginals(tf.constant(MEAN), tf.constant(VARIANCE))
        return SweepEvaluation(
            marginals,
            target,
            Sites(target.nu, tf.maximum(target.tau, 0.0)),
            scaled_error(sites, target, marginals),
            tf.convert_to_tensor(self.proper(*sites)),
            tf.cast(self.merit(*sites), tf.float64),
        )

    def undamped_residual(self, sites: Sites) -> float:
        """The residual that the record promises, worked out from its definition."""
        nu, tau = (np.asarray(part) for part in sites)
        target_nu, target_tau = (np.asarray(part) for part in self.target(nu, tau))
        F_nu, F_tau = target_nu - nu, target_tau - tau
        first = np.abs(np.sqrt(VARIANCE) * (F_nu - MEAN * F_tau))
        return float(max(np.max(first), np.max(np.abs(VARIANCE * F_tau))))


def _run(
    function: Map,
    initial: Sites = ZEROS,
    *,
    max_sweeps: int = 200,
    tolerance: float = TOLERANCE,
    gap: float = 0.0,
    damping: float = 1.0,
    fall_back: bool = False,
    **features: Any,
) -> Run:
    function.asked.clear()
    function.shifts.clear()
    sites, marginals, _, info = run_to_fixed_point(
        function,
        Sites(tf.constant(initial.nu), tf.constant(initial.tau)),
        Solver(Goal(tolerance, gap), max_sweeps, damping, fall_back),
        Features(**features),
    )
    sites = Sites(*(part.numpy() for part in sites))
    marginals = Marginals(*(part.numpy() for part in marginals))
    return Run(sites, marginals, SiteUpdateInfo(*(x.numpy() for x in info)), [*function.asked])


def _linear(slope: float) -> Target:
    """Its fixed point is (NU, TAU)."""
    return lambda nu, tau: (NU + slope * (nu - NU), TAU + slope * (tau - TAU))


_rotation, _ = np.linalg.qr(np.random.default_rng(2).standard_normal([2 * N * L, 2 * N * L]))
SLOPES = _rotation @ np.diag(np.linspace(-2.5, 0.9, 2 * N * L)) @ _rotation.T


def _coupled(nu: Any, tau: Any) -> tuple[Any, Any]:
    """Linear with slopes from -2.5 to 0.9, in directions that mix all sites."""
    x = tf.reshape(tf.stack([nu - NU, tau - TAU]), [-1, 1])
    moved = tf.reshape(tf.matmul(tf.constant(SLOPES), x), [2, *SHAPE])
    return NU + moved[0], TAU + moved[1]


def _contraction(nu: Any, tau: Any) -> tuple[Any, Any]:
    return NU + 0.4 * tf.sin(nu - NU), TAU + 0.3 * tf.sin(tau - TAU) + 0.1 * tf.sin(nu - NU)


def _jump(nu: Any, tau: Any) -> tuple[Any, Any]:
    """No fixed point: it jumps from one side of it to the other."""
    return (
        tf.where(nu > 0.31, -tf.ones_like(nu), tf.ones_like(nu)) + 0.0 * nu,
        tf.where(tau > 0.7, tf.zeros_like(tau), 2.0 * tf.ones_like(tau)),
    )


REACHED: dict[str, Map] = {
    "constant": Map(lambda nu, tau: (tf.constant(NU), tf.constant(TAU))),
    "contraction": Map(_contraction),
    "slow contraction": Map(_linear(0.97)),
    "oscillation that is a contraction": Map(_linear(-0.9)),
    "oscillation that diverges undamped": Map(_linear(-3.0)),
    "coupled, diverges undamped": Map(_coupled),
    "improper beyond a wall": Map(_linear(-3.0), lambda nu, tau: tf.reduce_all(tau < 2.5)),
    "improper where it first wants to go": Map(
        lambda nu, tau: (NU + 0.0 * nu, TAU + 6.0 * tf.exp(-tau) - 6.0 * np.exp(-TAU)),
        lambda nu, tau: tf.reduce_all(tau < 2.6),
    ),
}


@cache
def reached(name: str) -> Run:
    """The run from no sites, once for all tests."""
    return _run(REACHED[name])


@pytest.mark.parametrize("name", REACHED)
def test_reaches_the_fixed_point(name: str) -> None:
    (nu, tau), marginals, info, asked = reached(name)
    assert len(asked) == info.num_sweeps
    np.testing.assert_array_equal(np.stack([nu, tau]), asked[-1])
    np.testing.assert_array_equal(marginals.m, MEAN)
    np.testing.assert_array_equal(marginals.s, VARIANCE)
    assert info.converged
    assert info.residual < TOLERANCE
    assert_close(nu, NU, rtol=1e-6)
    assert_close(tau, TAU, rtol=1e-6)


@pytest.mark.parametrize("name", ["contraction", "improper beyond a wall"])
@pytest.mark.near_copies("improper*")
def test_a_compiled_run_is_an_eager_one(name: str) -> None:
    compiled = tf.function(
        lambda *zeros: run_to_fixed_point(REACHED[name], Sites(*zeros), SOLVER), autograph=False
    )
    sites, _, _, info = compiled(*ZEROS)
    eager = reached(name)
    assert (info.num_sweeps, info.num_rejected) == (eager.info[0], eager.info[3])
    assert bool(info.converged)
    assert_all_close(sites, eager.sites, rtol=1e-9)


def test_a_constant_target_takes_two_evaluations() -> None:
    info = reached("constant").info
    assert (info.num_sweeps, info.num_rejected) == (2, 0)


def test_refusals_are_counted() -> None:
    run = reached("improper beyond a wall")
    refused = sum(not bool(REACHED["improper beyond a wall"].proper(*x)) for x in run.asked)
    assert run.info.num_rejected == refused > 0
    assert run.info.num_sweeps == len(run.asked)


@pytest.mark.parametrize("name", REACHED)
@pytest.mark.parametrize("max_sweeps", [1, 2, 3, 5])
def test_the_record_is_true_of_the_sites_that_come_back(name: str, max_sweeps: int) -> None:
    function = REACHED[name]
    run = _run(function, max_sweeps=max_sweeps)
    assert run.info.num_sweeps == len(run.asked) <= max_sweeps
    residual = function.undamped_residual(run.sites)
    assert run.info.residual == pytest.approx(residual, rel=1e-9, abs=1e-14)
    assert run.info.converged == (residual < TOLERANCE)
    assert bool(function.proper(*run.sites))


UNREACHABLE: dict[str, Map] = {
    "drift": Map(lambda nu, tau: (nu + 1.0, tau + 0.5)),
    "repelled": Map(_linear(1.5)),
    "jump": Map(_jump),
    "only no sites are proper": Map(
        lambda nu, tau: (NU + 0.0 * nu, TAU + 0.0 * tau), lambda nu, tau: tf.reduce_all(tau == 0.0)
    ),
}


@pytest.mark.parametrize("function", UNREACHABLE.values(), ids=UNREACHABLE.keys())
@pytest.mark.near_copies("drift")
def test_ends_and_says_so_where_there_is_no_fixed_point(function: Map) -> None:
    run = _run(function, max_sweeps=60)
    assert not run.info.converged
    assert run.info.num_sweeps == len(run.asked) == 60
    assert run.info.residual > TOLERANCE
    assert run.info.residual == pytest.approx(function.undamped_residual(run.sites), rel=1e-9)
    assert bool(function.proper(*run.sites))
    assert np.all(np.isfinite(run.sites.nu)) and np.all(np.isfinite(run.sites.tau))


def test_ends_where_nothing_at_all_is_proper() -> None:
    """Soon: as with hyperparameters that ran off, more sweeps would find the same."""
    run = _run(Map(_contraction, lambda nu, tau: False), Sites(NU, TAU))
    assert not run.info.converged
    assert run.info.residual == np.inf
    assert run.info.num_rejected == run.info.num_sweeps == len(run.asked) <= 7 * len(FALLBACKS)
    np.testing.assert_array_equal(run.sites.nu, 0.0)


@pytest.mark.parametrize("damping", [0.5, 0.1, 0.02, 1e-3])
def test_damping_cannot_fake_convergence(damping: float) -> None:
    """After a few damped steps the sites have hardly moved, however small the last step was."""
    function = Map(_linear(0.0))
    run = _run(function, max_sweeps=4, tolerance=0.01, damping=damping)
    assert not run.info.converged
    residual = function.undamped_residual(run.sites)
    assert run.info.residual == pytest.approx(residual, rel=1e-9)
    assert residual > 0.01


@pytest.mark.parametrize("damping", [1.0, 0.3, 0.05, 1e-3])
def test_no_plain_step_is_larger_than_the_damping(damping: float) -> None:
    """The first steps: nothing is accelerated while the residual is large."""
    function = Map(lambda nu, tau: (NU + 100.0 + 0.0 * nu, TAU + 100.0 + 0.0 * tau))
    run = _run(function, max_sweeps=3, damping=damping)
    for before, after in zip(run.asked, run.asked[1:]):
        F = np.stack(function.target(before[0], before[1])) - before
        assert np.all(np.abs(after - before) <= damping * np.abs(F) * (1.0 + 1e-12))


def test_a_damped_run_gets_there_too() -> None:
    run = _run(Map(_coupled), damping=0.2)
    assert run.info.converged
    assert_close(run.sites.nu, NU, rtol=1e-6)


@pytest.mark.parametrize("name", REACHED)
def test_a_warm_start_costs_one_sweep_and_moves_nothing(name: str) -> None:
    first = reached(name)
    again = _run(REACHED[name], first.sites)
    assert again.info.converged
    assert (again.info.num_sweeps, again.info.num_rejected) == (1, 0)
    np.testing.assert_array_equal(again.sites.nu, first.sites.nu)
    np.testing.assert_array_equal(again.sites.tau, first.sites.tau)


def test_an_improper_start_is_left_for_what_is_proper() -> None:
    function = Map(_contraction, lambda nu, tau: tf.reduce_all(tf.abs(nu) < 3.0))
    run = _run(function, Sites(1e3 * np.ones(SHAPE), -np.ones(SHAPE)))
    assert run.info.converged
    assert run.info.num_rejected > 0
    assert_close(run.sites.nu, NU, rtol=1e-6)


def test_negative_precisions_are_given_up_where_they_are_improper() -> None:
    """The targets are below the smallest proper precision: the loop stays on the proper side."""
    function = Map(
        lambda nu, tau: (NU + 0.0 * nu, -1.0 + 0.0 * tau), lambda nu, tau: tf.reduce_all(tau > -0.5)
    )
    run = _run(function, max_sweeps=80)
    assert not run.info.converged
    assert np.all(run.sites.tau > -0.5)
    assert run.info.residual == pytest.approx(function.undamped_residual(run.sites), rel=1e-9)


def test_the_net_settles_where_there_is_no_proper_fixed_point() -> None:
    """Precisions at 0, the rest where it wants to be; the record is that of the whole target."""
    function = Map(
        lambda nu, tau: (NU + 0.0 * nu, -1.0 + 0.0 * tau), lambda nu, tau: tf.reduce_all(tau > -0.5)
    )
    run = _run(function, max_sweeps=80, fall_back=True, largest_power=NO_POWER)
    assert FALLBACKS[run.info.fallback] == "clipped"
    assert not run.info.converged
    assert run.info.residual == pytest.approx(function.undamped_residual(run.sites), rel=1e-9)
    np.testing.assert_allclose(run.sites.tau, 0.0, atol=1e-8)
    assert_close(run.sites.nu, NU, rtol=1e-6)
    assert 80 < run.info.num_sweeps < 100


def test_no_fallback_is_tried_where_none_is_needed() -> None:
    run = _run(REACHED["coupled, diverges undamped"], fall_back=True)
    assert run.info.converged
    assert FALLBACKS[run.info.fallback] == ""


def test_each_fallback_has_as_many_sweeps() -> None:
    options = {"max_sweeps": 10, "fall_back": True}
    run = _run(UNREACHABLE["drift"], **options, largest_power=NO_POWER)
    assert run.info.num_sweeps == len(run.asked) == 2 * 10
    run = _run(UNREACHABLE["drift"], **options)
    assert run.info.num_sweeps == len(run.asked) == 3 * 10 + SOLVER.num_powers


def test_smaller_powers_lead_to_a_fixed_point_that_attracts_few() -> None:
    """It attracts nearby sites only, such as those of the problem just below."""

    def part(x: tf.Tensor, end: Array, power_shift: tf.Tensor) -> tf.Tensor:
        goal = (1.0 + power_shift) * end
        return tf.where(tf.abs(x - goal) < 0.3, goal, x + 1.0)

    class Narrow(Map):
        def __call__(self, sites: Sites, stage: Stage, _: Any = ()) -> SweepEvaluation:
            shift = stage.power_shift
            self.target = lambda nu, tau: (part(nu, NU, shift), part(tau, TAU, shift))
            return super().__call__(sites, stage)

    function = Narrow(_contraction)
    start, options = Sites(NU + 5.0, TAU + 5.0), {"max_sweeps": 40, "fall_back": True}
    run = _run(function, start, **options)
    assert run.info.converged
    assert FALLBACKS[run.info.fallback] == "continuation"
    assert_close(run.sites.nu, NU, rtol=1e-6)
    assert_close(run.sites.tau, TAU, rtol=1e-6)
    shifts = list(dict.fromkeys(function.shifts))
    assert shifts == [0.0, *(k / 20 for k in range(-20, 0))]
    run = _run(function, start, **options, largest_power=NO_POWER)
    assert set(function.shifts) == {0.0}
    assert not run.info.converged


def test_numbers_that_are_not_finite_never_come_back() -> None:
    """NaN in a target whose evaluation is not proper."""

    def target(nu: Any, tau: Any) -> tuple[Any, Any]:
        bad = tf.reduce_any(tau > 1.5)
        nan = tf.constant(np.nan, tf.float64)
        return (
            tf.where(bad, nan, NU + 0.0 * nu),
            tf.where(bad, nan, TAU / 2.0 + 4.0 * (TAU / 2.0 - tau)),
        )

    run = _run(Map(target, lambda nu, tau: tf.reduce_all(tau <= 1.5)))
    assert run.info.num_rejected > 0
    assert run.info.converged
    assert_close(run.sites.tau, TAU / 2.0, rtol=1e-6)


def test_acceleration_pays() -> None:
    """A slope of 0.97 alone would take log(1e-9) / log(0.97) = 680 sweeps."""
    assert reached("slow contraction").info.num_sweeps < 20


def test_a_goal_of_the_mean_is_met_sooner() -> None:
    run = _run(REACHED["contraction"], gap=1e-6)
    error = scaled_error(
        run.sites,
        Sites(*map(tf.constant, REACHED["contraction"].target(*run.sites))),
        Marginals(tf.constant(MEAN), tf.constant(VARIANCE)),
    )
    assert 0.5 * np.sum(np.square(error)) / N < 1e-6
    assert run.info.converged
    assert run.info.residual == pytest.approx(np.max(np.abs(error)), rel=1e-9)
    assert run.info.residual > TOLERANCE
    assert run.info.num_sweeps < reached("contraction").info.num_sweeps


def _gap(sites: Sites) -> float:
    wanted = Sites(*map(tf.constant, REACHED["contraction"].target(*sites)))
    error = scaled_error(sites, wanted, Marginals(tf.constant(MEAN), tf.constant(VARIANCE)))
    return 0.5 * float(np.sum(np.square(error))) / N


def test_after_a_long_step_a_goal_of_the_mean_is_relative() -> None:
    goal = 1e-9

    def ends(distance: float) -> float:
        start = Sites(NU + distance, TAU + distance)
        assert (_gap(start) > 0.1) == (distance > 0.15)
        run = _run(REACHED["contraction"], start, gap=goal)
        assert run.info.converged
        return _gap(run.sites)

    assert goal < ends(0.1) < 1e2 * goal  # a long step
    assert ends(0.2) < goal  # too far away to be one


@pytest.mark.parametrize("name", REACHED)
def test_numbers_that_move_apart(name: str) -> None:
    run = _run(REACHED[name], coupled=True)
    assert run.info.converged
    assert_close(run.sites.nu, NU, rtol=1e-6)
    assert_close(run.sites.tau, TAU, rtol=1e-6)


@pytest.mark.slow
def test_the_merit_never_falls() -> None:
    """The map alone overshoots further each time, in directions that mix all sites.

    Close to the fixed point a step may lower the merit a little, which depends on rounding.
    """

    def merit(nu: Any, tau: Any) -> Any:
        return -tf.reduce_sum(tf.square(nu - NU) + tf.square(tau - TAU))

    free, guarded = Map(_coupled), Map(_coupled, merit=merit)

    def changes(function: Map) -> Array:
        """Of the merit, in steps from where the fixed point is not close."""
        ends = [_run(function, max_sweeps=k) for k in range(1, 25)]
        steps = np.diff([merit(*end.sites) for end in ends])
        return steps[[end.info.residual > 0.05 for end in ends[:-1]]]

    assert np.all(changes(guarded) >= -1e-8)
    assert np.any(changes(free) < -1e-3)
    run = _run(guarded)
    assert run.info.converged and run.info.num_rejected > 0


def test_easier_problems_come_first_if_wanted() -> None:
    function = Map(_contraction)
    run = _run(function, warm_up=tf.constant(True))
    first = list(dict.fromkeys(function.shifts))
    assert first == [*SOLVER.larger_powers, 0.0]
    assert np.all(np.diff(function.shifts) <= 0.0)
    assert run.info.converged
    assert FALLBACKS[run.info.fallback] == ""
    assert_close(run.sites.nu, NU, rtol=1e-6)
    _run(function, warm_up=tf.constant(False))
    assert set(function.shifts) == {0.0}


def test_a_warm_up_that_has_no_fixed_point_is_left() -> None:
    function = Map(_contraction)

    def evaluate(sites: Sites, stage: Stage, _: Any) -> SweepEvaluation:
        some = function if float(stage.power_shift) == 0.0 else UNREACHABLE["drift"]
        return some(sites, stage)

    zeros = Sites(*map(tf.constant, ZEROS))
    run = run_to_fixed_point(
        evaluate, zeros, Solver(Goal(TOLERANCE), 200), Features(warm_up=tf.constant(True))
    )
    assert bool(run.info.converged)
    assert 60 < int(run.info.num_sweeps) < 100
    assert_close(run.sites.nu, NU, rtol=1e-6)


def test_single_precision() -> None:
    nu, tau = (tf.constant(part, tf.float32) for part in (NU, TAU))

    def evaluate(sites: Sites, stage: Stage, _: Any) -> SweepEvaluation:
        target = Sites(nu - 0.9 * (sites.nu - nu), tau - 0.9 * (sites.tau - tau))
        marginals = Marginals(tf.zeros_like(nu), tf.ones_like(nu))
        error = scaled_error(sites, target, marginals)
        return SweepEvaluation(marginals, target, target, error, tf.constant(True), 0.0 * nu[0, 0])

    sites, _, _, info = run_to_fixed_point(
        evaluate, Sites(tf.zeros_like(nu), tf.zeros_like(tau)), Solver(Goal(1e-4), 100)
    )
    assert sites.nu.dtype == tf.float32
    assert bool(info.converged)
    assert_close(sites.nu, nu, rtol=1e-4)


def test_sites_at_their_fixed_point_stay_there() -> None:
    run = _run(Map(_linear(0.5)), Sites(NU, TAU))
    assert run.info.num_sweeps == 1
    assert_all_close(run.sites, (NU, TAU), rtol=1e-15)
