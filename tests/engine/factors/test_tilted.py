"""Tilted integrals against other ways to compute them, and their derivatives."""

import inspect
import sys
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.tilted import (
    ALPHAS,
    CASES,
    LIKE_ANOTHER,
    MEANS,
    VARIANCES,
    grid,
    reference_values,
)
from gpflow.likelihoods import Likelihood
from helpers import assert_all_close, assert_close, assert_gradients
from numpy.testing import assert_allclose
from scipy.special import ndtr

import gpflow_pep as pep
from gpflow_pep.engine.factors import derivatives_in_moments_and_parameters, generic
from gpflow_pep.likelihoods import log_power_expectation, tilted_derivatives

NAMES = list(CASES)


def names(*slow: str) -> Any:
    each = [
        pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in NAMES
    ]
    return pytest.mark.parametrize("name", each)


#: An integral over two functions takes as long as all others together.
LONG = "MultiLatentTFPConditional"
each_name = names(LONG, *LIKE_ANOTHER)
#: One of each way to integrate, where all likelihoods have the same test of values.
WAYS = ("Gaussian", "Bernoulli 1", "Bernoulli logit", "Poisson 3", "Beta", "StudentT")
WAYS += ("Ordinal middle", "MultiClass", "Softmax", "SwitchedLikelihood", "Tobit low")
WAYS += ("HeteroskedasticTFPConditional", "NegativeBinomial 3", "Bin middle")
WAYS += ("NoisyLabelBernoulli step",)
one_of_each_way = pytest.mark.near_copies(*WAYS)
MODERATE = {"means": (-1.2, 0.3, 2.0), "variances": (0.05, 0.8)}
#: GPflow's own rules: closed forms, or 20 Gauss-Hermite points, which hardly resolve
#: the narrow.
NARROW = {
    "Poisson 10000",
    "Gamma tiny",
    "StudentT narrow",
    "Beta narrow",
    "Ordinal wide",
}
NARROW |= {"Bin wide"}
GPFLOW_EXACT = {
    "Gaussian",
    "Poisson 0",
    "Poisson 3",
    "Exponential",
    "Gamma",
    "Exponential 0",
}
OF_TARGETS = ("MultiClass", "Softmax", "PerOutput")


def _ell(name: str, rows: Any) -> Any:
    return log_power_expectation(CASES[name].create(), *rows.arguments()).numpy()


def _relative_error(actual: Any, expected: Any) -> float:
    return float(np.max(np.abs(actual - expected) / (1.0 + np.abs(expected))))


@each_name
def test_equals_adaptive_integration(name: str) -> None:
    case = CASES[name]
    rows = grid(case, variances=(1e-6, 0.3, 100.0, 1e6))
    actual = _ell(name, rows)
    lost = np.isnan(actual)  # where the values of the density do not tell
    assert np.mean(lost) <= (0.02 if case.log_scale is not None else 0.0)
    assert (
        _relative_error(actual[~lost], reference_values(case, rows)[~lost])
        <= case.tolerance
    )


@pytest.mark.parametrize("name", ["Bernoulli 0", "Bernoulli 1"])
def test_one_power_of_all_rows(name: str) -> None:
    """The probit has another equation then, with derivatives of its own."""
    likelihood = CASES[name].create()
    for alpha in ALPHAS:
        rows = grid(CASES[name], alphas=(alpha,))
        X, mean, variance, Y, powers = rows.arguments()
        found = []
        for power in (tf.constant(alpha, tf.float64), powers):
            with tf.GradientTape() as tape:
                tape.watch([mean, variance])
                ell = log_power_expectation(likelihood, X, mean, variance, Y, power)
            found.append([ell, *tape.gradient(ell, [mean, variance])])
        for of_all, of_each in zip(*found):
            assert_allclose(of_all, of_each, rtol=1e-8, atol=1e-8)


def test_no_likelihood_is_forgotten() -> None:
    """`PerOutput` has each target by the likelihood of its output."""
    tested = {type(case.create()) for case in CASES.values()} | {
        pep.likelihoods.PerOutput
    }
    registered = {kinds[0] for kinds in pep.likelihoods.support.funcs}
    with_moments = {type(case.create()) for case in CASES.values() if case.moments}
    # Of the targets of classes: test_targets.
    with_moments |= {kind for kind in tested if kind.__name__ in OF_TARGETS}
    bases = {"", "MonteCarlo", "Quadrature", "Scalar", "MultiLatent"}
    for module in (gpflow.likelihoods, pep.likelihoods):
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if (
                issubclass(kind, Likelihood)
                and name.removesuffix("Likelihood") not in bases
            ):
                assert kind in registered, f"support.register({name}) is missing"
                assert kind in tested, f"{name} is in no row of cases.tilted.CASES"
                assert kind in with_moments, (
                    f"{name} has no moments of its targets there"
                )


def test_closed_form_limit_and_sign() -> None:
    """Of the probit at power 1; of small powers; of the tilted variance."""
    rows = grid(CASES["Bernoulli 1"], alphas=(1.0,))
    z = rows.mean[:, 0] / np.sqrt(1.0 + rows.variance[:, 0])
    assert_close(
        _ell("Bernoulli 1", rows), np.log(1e-3 + (1.0 - 2e-3) * ndtr(z)), rtol=1e-14
    )
    rows = grid(CASES["StudentT"], **MODERATE, alphas=(0.0,))
    limit = _ell("StudentT", rows)
    for alpha in (1e-14, 1e-10, 1e-7):
        near = _ell("StudentT", rows._replace(alpha=rows.alpha + alpha))
        assert np.max(np.abs(near - limit)) <= 20.0 * alpha + 1e-13
    for name in ("Poisson 10000", "StudentT narrow", "Bernoulli logit"):
        rows = grid(CASES[name], MEANS, VARIANCES, (0.1, 0.5, 1.0))
        result = tilted_derivatives(CASES[name].create(), *rows.arguments())
        assert (
            np.min(1.0 + rows.alpha[:, None] * result.delta2.numpy() * rows.variance)
            > 0.0
        )


@one_of_each_way
@each_name
def test_equals_gpflow_at_both_ends(name: str) -> None:
    """The methods of our own likelihoods are these integrals, in any number
    of batches.
    """
    if name in ("Softmax", "GaussianMC"):
        pytest.skip("GPflow's value is random")
    if name in ("Ordinal first", "Ordinal last"):
        pytest.skip("GPflow's value is NaN with a TensorFlow whose erf(inf) is NaN")
    likelihood = CASES[name].create()
    is_ours = isinstance(likelihood, pep.likelihoods.integrated.IntegratedLikelihood)
    for alpha, method in (
        (0.0, "variational_expectations"),
        (1.0, "predict_log_density"),
    ):
        rows = grid(
            CASES[name], means=(0.3, 1.0), variances=(0.1, 0.3), alphas=(alpha,)
        )
        *parts, _ = rows.arguments()
        expected = getattr(likelihood, method)(*parts).numpy()
        is_exact = is_ours or name == "Gaussian" or (name in GPFLOW_EXACT and not alpha)
        if alpha == 1.0 and name in NARROW and not is_exact:
            continue  # narrower than the distance of 20 points
        tolerance = 1e-12 if is_exact else 0.1 if name in NARROW else 1e-3
        assert _relative_error(_ell(name, rows), expected) <= tolerance
        if is_ours:
            actual = getattr(likelihood, method)(
                *(tf.reshape(p, [2, 2, -1]) for p in parts)
            )
            assert_close(tf.reshape(actual, [-1]), expected, rtol=1e-12)


@one_of_each_way
@each_name
def test_derivatives_equal_finite_differences(name: str) -> None:
    """First and second ones in means and variances by tapes, and those in
    closed form.
    """
    case = CASES[name]
    likelihood = case.create()
    L = case.num_latent
    rows = grid(
        case, means=(-1.2, 0.3, 5.0), variances=(0.4, 1.5), alphas=(0.0, 1e-6, 0.4, 1.0)
    )
    arguments = [np.asarray(part) for part in rows.arguments()]
    weights = np.cos(np.arange(2.0 * L * len(rows.X))).reshape(-1, 2 * L)
    # All moments of a row at once.
    step, towards = (
        1e-4,
        np.cos(1.0 + np.arange(2.0 * L)),
    )
    moments = np.hstack([rows.mean, rows.variance])
    # The rows, and the same with other moments, in one call: its time hardly depends on
    # them.
    moved = [
        step * sign * one
        for one in (towards, *np.eye(L, 2 * L))
        for sign in (1.0, -1.0)
    ]
    x = tf.constant(np.concatenate([moments, *(moments + by for by in moved)]))
    X, _, _, Y, alpha = (
        np.concatenate([part] * (1 + len(moved))) for part in arguments
    )
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            ell = log_power_expectation(likelihood, X, x[:, :L], x[:, L:], Y, alpha)
        by_moments = tape.gradient(ell, x)
        first = tf.reduce_sum(
            np.tile(weights, [1 + len(moved), 1]) * by_moments, axis=1
        )
    second = outer.gradient(first, x).numpy()[: len(moments)] @ towards

    def check(actual: Any, values: Any, place: int, scale: float = 0.0) -> None:
        ends = np.split(np.asarray(values), 1 + len(moved))[1 + 2 * place :]
        difference = (ends[0] - ends[1]) / (2.0 * step)
        scale = 1.0 + max(scale, np.abs(difference).max())
        assert_close(actual, difference, rtol=1e-5, scale=scale)

    by_moments = by_moments.numpy()[: len(moments)]
    check(by_moments @ towards, ell, 0)
    check(second, first, 0, np.abs(first[: len(moments)]).max())
    value, delta1, delta2 = tilted_derivatives(likelihood, *arguments)
    by_variance = 0.5 * (delta2 + arguments[-1][:, None] * delta1**2)
    assert_close(value, ell[: len(moments)], rtol=1e-12)
    assert_close(delta1, by_moments[:, :L], rtol=1e-7, scale=1.0)
    assert_close(
        by_variance, by_moments[:, L:], rtol=1e-5, scale=1.0 + np.abs(by_variance).max()
    )
    for k in range(L):
        check(delta1[:, k], ell, 1 + k)


@pytest.mark.parametrize("name", ["StudentT", "Gamma", "NegativeBinomial 3"])
def test_derivatives_in_parameters_come_with_those_in_moments(name: str) -> None:
    """They are those of the sum of the integrals alone; one that nothing depends on
    gets 0.
    """
    case = CASES[name]
    likelihood = case.create()
    rows = grid(case, means=(-1.2, 0.3, 5.0), variances=(0.2, 3.0), alphas=ALPHAS)
    arguments = rows.arguments()
    idle = tf.Variable(np.ones(2))
    variables = [*likelihood.variables, idle]
    both = derivatives_in_moments_and_parameters(likelihood, *arguments, variables)
    moments, by_parameters = both
    assert_all_close(moments, tilted_derivatives(likelihood, *arguments), rtol=1e-13)
    with tf.GradientTape() as tape:
        tape.watch(variables)
        total = tf.reduce_sum(log_power_expectation(likelihood, *arguments))
    *expected, none = tape.gradient(total, variables)
    assert none is None and not by_parameters[-1].numpy().any()
    assert_all_close(by_parameters[:-1], expected, rtol=1e-10)


@one_of_each_way
@names(*LIKE_ANOTHER)
def test_gradients_in_parameters_equal_finite_differences(name: str) -> None:
    case = CASES[name]
    likelihood = case.create()
    for parameter in likelihood.parameters:
        gpflow.set_trainable(parameter, True)
    if not likelihood.parameters:
        pytest.skip("no parameters")
    rows = grid(case, (-1.2, 2.0), (0.2, 3.0), (0.0, 1e-6, 0.3, 0.5, 1.0)).arguments()

    def total() -> tf.Tensor:
        values = tf.reshape(log_power_expectation(likelihood, *rows), [-1, 5])
        return tf.reduce_sum(values * np.cos(np.arange(5.0)))

    assert_gradients(total, likelihood.trainable_variables, rtol=5e-6, scale=1.0)


@pytest.mark.near_copies("float64-*", *(f"float32-{name}" for name in WAYS))
@each_name
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_everything_is_finite_on_an_extreme_grid(name: str, dtype: Any) -> None:
    case = CASES[name]
    if case.log_scale is not None:
        pytest.skip("the density is the user's, here one that overflows")
    gpflow.config.set_default_float(dtype)
    rows = grid(
        case, (-50.0, -9.0, 0.0, 11.0, 50.0), (1e-6, 1e-3, 1.0, 30.0, 1e3, 1e6), ALPHAS
    )
    result = tilted_derivatives(case.create(), *rows.arguments(dtype))
    for field, value in zip(result._fields, result):
        assert value.dtype == dtype
        bad = ~np.isfinite(np.asarray(value).reshape(len(rows.alpha), -1)).all(axis=1)
        assert not bad.any(), f"{field}: {[part[bad][:3] for part in rows]}"


@one_of_each_way
@each_name
def test_float32_is_near_float64(name: str) -> None:
    rows = grid(CASES[name], **MODERATE)
    expected = _ell(name, rows)
    gpflow.config.set_default_float(np.float32)
    actual = log_power_expectation(
        CASES[name].create(), *rows.arguments(np.float32)
    ).numpy()
    assert _relative_error(actual, expected) <= 2e-4


@pytest.mark.near_copies("Gaussian", "Bernoulli*", "Switched*")
@pytest.mark.parametrize(
    "name",
    [
        "Gaussian",
        "Bernoulli 1",
        "SwitchedLikelihood",
        "Poisson 3",
        "MultiClass",
        "StudentT",
    ],
)
def test_compiles(name: str) -> None:
    likelihood = CASES[name].create()
    arguments = grid(CASES[name], means=(0.3,), variances=(0.8,)).arguments()
    expected = tilted_derivatives(likelihood, *arguments)
    # Its rows are sorted by likelihood, in unknown numbers.
    xla = name != "SwitchedLikelihood"
    rows = [tf.TensorSpec([None, *part.shape[1:]], tf.float64) for part in arguments]
    options = {
        "input_signature": None if xla else rows,
        "jit_compile": xla,
        "autograph": False,
    }
    compiled = tf.function(
        lambda *parts: tilted_derivatives(likelihood, *parts), **options
    )
    assert_all_close(compiled(*arguments), expected, rtol=1e-9, scale=1.0)


def test_outputs_and_rows_are_those_of_their_own_likelihoods() -> None:
    """One power for all rows of several outputs; rows that are switched."""
    likelihood = gpflow.likelihoods.Bernoulli()
    X = np.zeros((2, 1))
    mean = np.array([[0.1, -0.4]] * 2)
    variance = np.array([[0.5, 2.0]] * 2)
    rows = mean, variance, np.array([[1.0, 0.0], [0.0, 0.0]])
    both = log_power_expectation(likelihood, X, *rows, 0.5)
    columns = ([part[:, k, None] for part in rows] for k in range(2))
    expected = sum(
        log_power_expectation(likelihood, X, *column, 0.5) for column in columns
    )
    assert_close(both, expected, rtol=1e-13)
    likelihood = CASES["SwitchedLikelihood"].create()
    which = np.array([1, 0, 1, 0])
    alpha = np.array([0.1, 0.2, 0.0, 1.0])
    rows = np.zeros((4, 1)), np.linspace(-1, 1, 4)[:, None], np.full((4, 1), 0.7)
    Y = np.array([[0.3], [1.0], [-2.0], [0.0]])
    actual = log_power_expectation(
        likelihood, *rows, np.hstack([Y, which[:, None]]), alpha
    )
    for k, one in enumerate(likelihood.likelihoods):
        some = [part[which == k] for part in (*rows, Y, alpha)]
        assert_close(
            actual.numpy()[which == k], log_power_expectation(one, *some), rtol=1e-13
        )


def test_the_probit_needs_two_files_of_tilted() -> None:
    """What most classifiers run can be read in one sitting."""
    likelihood = gpflow.likelihoods.Bernoulli()
    one = np.ones((2, 1))
    visited = set()

    def note(frame: Any, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.parent.name == "factors":
            visited.add(path.name)

    sys.setprofile(note)
    try:
        tilted_derivatives(likelihood, one, one, one, one, 0.5)
    finally:
        sys.setprofile(None)
    assert visited - {Path(__file__).name} == {"classes.py", "moments.py"}


@pytest.mark.parametrize("epsilon", [0.2, 1e-3, 1e-6])
def test_the_two_rules_of_the_probit_agree_where_they_meet(epsilon: float) -> None:
    likelihood = pep.likelihoods.NoisyLabelBernoulli(epsilon)
    mean = np.linspace(-9.0, 9.0, 61)[:, None]
    narrow, wide = (
        tilted_derivatives(
            likelihood, mean, mean, s**2 + 0.0 * mean, np.ones_like(mean), 0.3
        )
        for s in (0.7 - 1e-13, 0.7 + 1e-13)
    )
    assert_all_close(narrow, wide, rtol=2e-8, scale=1.0)


class _Half(gpflow.likelihoods.Bernoulli):
    """A likelihood of a user's own that derives from one of GPflow's."""


_FACTOR = generic.ScalarFactor(lambda f: np.log(0.5) + 0.0 * f, [])
pep.likelihoods.scalar_factor.register(_Half)(lambda likelihood, X, Y, alpha: _FACTOR)


def test_a_factor_of_ones_own_class_is_used_and_asked_for() -> None:
    one = tf.ones((2, 1), tf.float64)
    value = log_power_expectation(_Half(tf.sigmoid), one, one, one, one, 0.3)
    assert_close(value, [np.log(0.5)] * 2, rtol=1e-14)
    with pytest.raises(
        NotImplementedError, match=r"_Unknown.*implementations\.register"
    ):
        log_power_expectation(type("_Unknown", (), {})(), one, one, one, one, 0.5)


@one_of_each_way
@names(*LIKE_ANOTHER)
def test_without_variance_the_integral_is_the_density(name: str) -> None:
    case = CASES[name]
    h = 1e-3
    likelihood = case.create()
    L = case.num_latent
    latent = np.arange(case.num_latent)
    alpha = np.repeat([0.0, 1e-6, 0.5, 1.0], 4)
    mean = np.tile([-3.0, -0.3, 0.7, 2.0], 4)[:, None] * np.cos(latent) + 0.5 * latent
    rows = zip(mean, alpha)
    expected = np.tile(
        [case.reference(m, np.full(L, 1e-10), float(a)) for m, a in rows], 2
    )
    alpha = np.tile(alpha, 2)
    mean = np.tile(mean, (2, 1))
    variance = np.repeat([0.0, 1e-20], 16)[:, None] + 0.0 * mean
    moved = [
        mean,
        *(mean + sign * h * one for one in np.eye(L) for sign in (1.0, -1.0)),
    ]
    K = len(moved)
    X = np.zeros((32 * K, 1))
    Y = np.tile(case.target, (32 * K, 1))
    of_all = X, np.vstack(moved), np.tile(variance, (K, 1)), Y, np.tile(alpha, K)
    at, *ends = np.split(log_power_expectation(likelihood, *of_all).numpy(), K)
    arguments = [part[:32] for part in of_all]
    parts = [part.numpy() for part in tilted_derivatives(likelihood, *arguments)]
    value, delta1, delta2 = parts
    # What a variance of 1e-10 does where log p is steep, and rounding.
    slope = np.abs(delta1).max()
    assert_allclose(at, value, 1e-9, 1e-12)
    assert_allclose(
        value, expected, case.tolerance, 10 * case.tolerance + 1e-10 * slope**2
    )
    for k, (above, below) in enumerate(zip(ends[::2], ends[1::2])):
        curvature = (above - 2.0 * value + below) / h**2
        atol = 1e-3 * (1.0 + slope + np.abs(curvature).max()) + 1e-5 * slope**2
        assert_allclose(delta1[:, k], (above - below) / (2.0 * h), 1e-5, 0.1 * atol)
        assert_allclose(delta2[:, k], curvature, 1e-3, atol)
    some = alpha == 0.5
    of_one = tilted_derivatives(
        likelihood, *(part[some] for part in arguments[:4]), 0.5
    )
    for actual, part in zip(of_one, parts):
        assert_allclose(actual, part[some], 1e-4, atol)
