"""Tilted integrals against other ways to compute them, and their derivatives."""

import inspect
import itertools
import sys
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf
from cases.tilted import ALPHAS, CASES, MEANS, VARIANCES, grid, reference_values
from helpers import assert_all_close, assert_close
from scipy.special import ndtr

import gpflow_pep as pep
from gpflow_pep.engine.factors.multiclass import prob_is_largest

NAMES = list(CASES)
#: An integral over two functions takes as long as all others together.
each_name = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name.startswith("MultiLatent") else [])
        for name in NAMES
    ],
)
MODERATE = {"means": (-1.2, 0.3, 2.0), "variances": (0.05, 0.8)}
# GPflow's own rules: closed forms, or 20 Gauss-Hermite points.
NARROW = (
    "Poisson 10000",
    "Gamma tiny",
    "StudentT narrow",
    "Beta narrow",
    "Ordinal wide",
    "Bin wide",
)
GPFLOW_EXACT = ("Gaussian", "Poisson 0", "Poisson 3", "Exponential", "Gamma", "Exponential 0")


def _ell(name: str, rows: Any) -> Any:
    return pep.likelihoods.log_power_expectation(CASES[name].create(), *rows.arguments()).numpy()


def _relative_error(actual: Any, expected: Any) -> float:
    return float(np.max(np.abs(actual - expected) / (1.0 + np.abs(expected))))


@each_name
def test_equals_adaptive_integration(name: str) -> None:
    case = CASES[name]
    rows = grid(case, variances=(1e-6, 0.3, 100.0, 1e6))
    actual = _ell(name, rows)
    said = np.isnan(actual)  # that the values of the density do not tell
    assert np.mean(said) <= (0.02 if case.log_scale is not None else 0.0)
    assert _relative_error(actual[~said], reference_values(case, rows)[~said]) <= case.tolerance


def test_no_likelihood_is_forgotten() -> None:
    tested = {type(case.create()) for case in CASES.values()}
    tested.add(pep.likelihoods.PerOutput)  # each target by the likelihood of its output
    for module in (gpflow.likelihoods, pep.likelihoods):
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, gpflow.likelihoods.Likelihood) and not _is_base(kind):
                assert kind in tested, f"{name} is in no row of tilted_cases.CASES"


def _is_base(kind: type) -> bool:
    bases = ("Likelihood", "MonteCarloLikelihood", "QuadratureLikelihood", "ScalarLikelihood")
    return kind.__name__ in (*bases, "MultiLatentLikelihood")


def test_the_bernoulli_closed_form_at_power_one() -> None:
    rows = grid(CASES["Bernoulli 1"], alphas=(1.0,))
    z = rows.mean[:, 0] / np.sqrt(1.0 + rows.variance[:, 0])
    assert_close(_ell("Bernoulli 1", rows), np.log(1e-3 + (1.0 - 2e-3) * ndtr(z)), rtol=1e-14)


@each_name
def test_equals_gpflow_at_both_ends(name: str) -> None:
    if name in ("Softmax", "GaussianMC"):
        pytest.skip("GPflow's value is random")
    if name in ("Ordinal first", "Ordinal last"):
        pytest.skip("GPflow's value is NaN with a TensorFlow whose erf(inf) is NaN")
    case = CASES[name]
    likelihood = case.create()
    tolerance = 1e-12 if name in GPFLOW_EXACT else 1e-3
    for alpha, method in ((0.0, "variational_expectations"), (1.0, "predict_log_density")):
        rows = grid(case, means=(0.3, 1.0), variances=(0.1, 0.3), alphas=(alpha,))
        X, mean, variance, Y, _ = rows.arguments()
        expected = getattr(likelihood, method)(X, mean, variance, Y).numpy()
        if alpha == 1.0 and name in NARROW:
            continue  # narrower than the distance of 20 points
        if alpha == 1.0 and name != "Gaussian":
            tolerance = 1e-3
        if name in NARROW and name not in GPFLOW_EXACT:
            tolerance = 0.1  # 20 points hardly resolve them
        assert _relative_error(_ell(name, rows), expected) <= tolerance


@each_name
def test_second_derivatives_equal_finite_differences(name: str) -> None:
    """In means and variances, by tapes in tapes."""
    case = CASES[name]
    likelihood, L = case.create(), case.num_latent
    rows = grid(case, means=(-1.2, 0.3, 2.0), variances=(0.4, 1.5), alphas=(0.0, 0.4, 1.0))
    X, mean, variance, Y, alpha = map(np.asarray, rows.arguments())
    weights = np.cos(np.arange(2.0 * L * len(X))).reshape(-1, 2 * L)
    step, towards = 1e-4, np.cos(1.0 + np.arange(2.0 * L))  # all moments of a row at once
    moments = np.hstack([mean, variance])
    # The rows, and the same with other moments, in one call.
    x = tf.concat([moments, moments + step * towards, moments - step * towards], axis=0)
    X, Y, weights, alpha = (np.concatenate([part] * 3) for part in (X, Y, weights, alpha))
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            arguments = likelihood, X, x[:, :L], x[:, L:], Y, alpha
            ell = pep.likelihoods.log_power_expectation(*arguments)
        first = tf.reduce_sum(weights * tape.gradient(ell, x), axis=1)
    actual = outer.gradient(first, x).numpy()[: len(moments)] @ towards
    here, high, low = np.split(first.numpy(), 3)
    size = float(np.max(np.abs(here))) + 1.0
    assert_close(actual, (high - low) / (2.0 * step), rtol=1e-5, scale=size)


@pytest.mark.parametrize("name", ["StudentT", "Gamma", "NegativeBinomial 3"])
def test_derivatives_in_parameters_come_with_those_in_moments(name: str) -> None:
    """They are those of the sum of the integrals alone; one that nothing depends on gets 0."""
    case = CASES[name]
    likelihood = case.create()
    rows = grid(case, means=(-1.2, 0.3, 5.0), variances=(0.2, 3.0), alphas=ALPHAS)
    arguments, idle = rows.arguments(), tf.Variable(np.ones(2))
    variables = [*likelihood.variables, idle]
    moments, by_parameters = pep.engine.factors.derivatives_in_moments_and_parameters(
        likelihood, *arguments, variables
    )
    assert_all_close(
        moments, pep.likelihoods.tilted_derivatives(likelihood, *arguments), rtol=1e-13
    )
    with tf.GradientTape() as tape:
        tape.watch(variables)
        total = tf.reduce_sum(pep.likelihoods.log_power_expectation(likelihood, *arguments))
    *expected, none = tape.gradient(total, variables)
    assert none is None and not by_parameters[-1].numpy().any()
    assert_all_close(by_parameters[:-1], expected, rtol=1e-10)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "MultiLatentTFPConditional"))
        for name in NAMES
    ],
)
def test_derivatives_equal_finite_differences(name: str) -> None:
    case = CASES[name]
    likelihood = case.create()
    rows = grid(case, means=(-1.2, 0.3, 5.0), variances=(0.2, 3.0), alphas=(0.0, 1e-6, 0.4, 1.0))
    X, mean, variance, Y, alpha = map(np.asarray, rows.arguments())
    step, L = 1e-4, case.num_latent
    steps = [sign * step * one for one in np.eye(L) for sign in (1.0, -1.0)]
    moves = [(0.0, 0.0), *((by, 0.0) for by in steps), *((0.0, by) for by in steps)]
    # All in one call: what it takes hardly depends on the number of rows.
    K = len(moves)
    moments = (
        np.concatenate(parts)
        for parts in zip(*((mean + by, variance * (1.0 + scaled)) for by, scaled in moves))
    )
    arguments = np.tile(X, [K, 1]), *moments, np.tile(Y, [K, 1]), np.tile(alpha, K)
    found = pep.likelihoods.tilted_derivatives(likelihood, *arguments)
    ell, delta1, delta2 = (np.split(part.numpy(), K) for part in found)
    for k in range(L):
        plus, minus = 1 + 2 * k, 2 + 2 * k
        size = float(np.max(np.abs(delta1[0][:, k]))) + 1.0
        difference = (ell[plus] - ell[minus]) / (2.0 * step)
        assert_close(delta1[0][:, k], difference, rtol=1e-5, scale=size)
        second = (delta1[plus] - delta1[minus])[:, k] / (2.0 * step)
        size = float(np.max(np.abs(second))) + 1.0
        assert_close(delta2[0][:, k], second, rtol=1e-5, scale=size)
        by_variance = 0.5 * (delta2[0] + alpha[:, None] * delta1[0] ** 2)[:, k]
        plus, minus = plus + 2 * L, minus + 2 * L
        difference = (ell[plus] - ell[minus]) / (2.0 * step) / variance[:, k]
        size = float(np.max(np.abs(difference))) + 1.0
        assert_close(by_variance, difference, rtol=1e-5, scale=size)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_in_parameters_equal_finite_differences(name: str) -> None:
    case = CASES[name]
    likelihood = case.create()
    for parameter in likelihood.parameters:
        gpflow.set_trainable(parameter, True)
    if not likelihood.parameters:
        pytest.skip("no parameters")
    rows = grid(case, (-1.2, 2.0), (0.2, 3.0), (0.0, 1e-6, 0.3, 0.5, 1.0))
    arguments = rows.arguments()

    def of_each_power() -> tf.Tensor:
        values = pep.likelihoods.log_power_expectation(likelihood, *arguments)
        return tf.reduce_sum(tf.reshape(values, [-1, 5]), axis=0)

    with tf.GradientTape(persistent=True) as tape:
        parts = tf.unstack(of_each_power())
    for variable in likelihood.trainable_variables:
        start, step = variable.numpy(), 1e-4
        towards = np.cos(np.arange(start.size)).reshape(start.shape)  # a number: 1
        gradients = [np.sum(tape.gradient(part, variable) * towards) for part in parts]
        variable.assign(start + step * towards)
        high = of_each_power()
        variable.assign(start - step * towards)
        difference = (high - of_each_power()).numpy() / (2.0 * step)
        variable.assign(start)
        assert_close(gradients, difference, rtol=2e-5, scale=1.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_everything_is_finite_on_an_extreme_grid(name: str, dtype: Any) -> None:
    if name == "MultiLatentTFPConditional":
        pytest.skip("the density is the user's, here one that overflows")
    case = CASES[name]
    gpflow.config.set_default_float(dtype)
    rows = grid(case, (-50.0, -9.0, 0.0, 11.0, 50.0), (1e-6, 1e-3, 1.0, 30.0, 1e3, 1e6), ALPHAS)
    result = pep.likelihoods.tilted_derivatives(case.create(), *rows.arguments(dtype))
    for field, value in zip(result._fields, result):
        assert value.dtype == dtype
        bad = ~np.isfinite(np.asarray(value).reshape(len(rows.alpha), -1)).all(axis=1)
        assert not bad.any(), (
            f"{field}: {rows.mean[bad][:3]}, {rows.variance[bad][:3]}, {rows.alpha[bad][:3]}"
        )


@each_name
def test_float32_is_near_float64(name: str) -> None:
    rows = grid(CASES[name], **MODERATE)
    expected = _ell(name, rows)
    gpflow.config.set_default_float(np.float32)
    likelihood = CASES[name].create()
    actual = pep.likelihoods.log_power_expectation(likelihood, *rows.arguments(np.float32)).numpy()
    assert _relative_error(actual, expected) <= 2e-4


@pytest.mark.parametrize(
    "name",
    [
        "Gaussian",
        "Bernoulli 1",
        "SwitchedLikelihood",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("Poisson 3", "MultiClass", "StudentT")
        ),
    ],
)
def test_compiles(name: str) -> None:
    case = CASES[name]
    likelihood = case.create()
    rows = grid(case, means=(0.3,), variances=(0.8,))
    arguments = rows.arguments()
    expected = pep.likelihoods.tilted_derivatives(likelihood, *arguments)
    xla = name != "SwitchedLikelihood"  # its rows are sorted by likelihood, in unknown numbers
    compiled = tf.function(pep.likelihoods.tilted_derivatives, jit_compile=xla, autograph=False)
    assert_all_close(compiled(likelihood, *arguments), expected, rtol=1e-9, scale=1.0)


def test_rows_of_unknown_number() -> None:
    rows = grid(CASES["StudentT"], means=(0.3,), variances=(0.8,))
    likelihood = CASES["StudentT"].create()
    unknown = [tf.TensorSpec([None, 1], tf.float64)] * 4 + [tf.TensorSpec([None], tf.float64)]

    @tf.function(input_signature=unknown)
    def compiled(*arguments: Any) -> tf.Tensor:
        return pep.likelihoods.log_power_expectation(likelihood, *arguments)

    assert_close(compiled(*rows.arguments()), _ell("StudentT", rows), rtol=1e-12)


def test_one_power_for_all_rows_and_several_outputs() -> None:
    likelihood = gpflow.likelihoods.Bernoulli()
    X, mean, variance = np.zeros((2, 1)), np.array([[0.1, -0.4]] * 2), np.array([[0.5, 2.0]] * 2)
    Y = np.array([[1.0, 0.0], [0.0, 0.0]])
    both = pep.likelihoods.log_power_expectation(likelihood, X, mean, variance, Y, 0.5)
    apart = [
        pep.likelihoods.log_power_expectation(
            likelihood, X, mean[:, k : k + 1], variance[:, k : k + 1], Y[:, k : k + 1], 0.5
        )
        for k in range(2)
    ]
    assert_close(both, apart[0] + apart[1], rtol=1e-13)


def test_switched_rows_equal_their_own_likelihoods() -> None:
    likelihood = CASES["SwitchedLikelihood"].create()
    which = np.array([1, 0, 1, 0])
    X, mean, variance = np.zeros((4, 1)), np.linspace(-1, 1, 4)[:, None], np.full((4, 1), 0.7)
    Y = np.array([[0.3], [1.0], [-2.0], [0.0]])
    alpha = np.array([0.1, 0.2, 0.0, 1.0])
    actual = pep.likelihoods.log_power_expectation(
        likelihood, X, mean, variance, np.hstack([Y, which[:, None]]), alpha
    )
    for k, one in enumerate(likelihood.likelihoods):
        own = which == k
        expected = pep.likelihoods.log_power_expectation(
            one, X[own], mean[own], variance[own], Y[own], alpha[own]
        )
        assert_close(actual.numpy()[own], expected, rtol=1e-13)


def test_small_powers_tend_to_zero_power() -> None:
    rows = grid(CASES["StudentT"], **MODERATE, alphas=(0.0,))
    limit = _ell("StudentT", rows)
    for alpha in (1e-14, 1e-10, 1e-7):
        near = _ell("StudentT", rows._replace(alpha=rows.alpha + alpha))
        assert np.max(np.abs(near - limit)) <= 20.0 * alpha + 1e-13


def test_the_tilted_variance_is_positive() -> None:
    for name in ("Poisson 10000", "StudentT narrow", "Bernoulli logit"):
        rows = grid(CASES[name], MEANS, VARIANCES, (0.1, 0.5, 1.0))
        result = pep.likelihoods.tilted_derivatives(CASES[name].create(), *rows.arguments())
        ratio = 1.0 + rows.alpha[:, None] * result.delta2.numpy() * rows.variance
        assert np.min(ratio) > 0.0


def test_the_probit_needs_two_files_of_tilted() -> None:
    """What most classifiers run can be read in one sitting."""
    likelihood, one = gpflow.likelihoods.Bernoulli(), np.ones((2, 1))
    visited = set()

    def note(frame: Any, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.parent.name == "factors":
            visited.add(path.name)

    sys.setprofile(note)
    try:
        pep.likelihoods.tilted_derivatives(likelihood, one, one, one, one, 0.5)
    finally:
        sys.setprofile(None)
    assert visited - {Path(__file__).name} == {"classes.py", "moments.py"}


@pytest.mark.parametrize("epsilon", [0.2, 1e-3, 1e-6])
def test_the_two_rules_of_the_probit_agree_where_they_meet(epsilon: float) -> None:
    likelihood = pep.likelihoods.NoisyLabelBernoulli(epsilon)
    mean = np.linspace(-9.0, 9.0, 61)[:, None]
    narrow, wide = (
        pep.likelihoods.tilted_derivatives(
            likelihood, mean, mean, np.full_like(mean, s**2), np.ones_like(mean), 0.3
        )
        for s in (0.7 - 1e-13, 0.7 + 1e-13)
    )
    assert_all_close(narrow, wide, rtol=2e-8, scale=1.0)


class _Half(gpflow.likelihoods.Bernoulli):
    """A likelihood of a user's own that derives from one of GPflow's."""


@pep.likelihoods.scalar_factor.register(_Half)
def _half(likelihood: _Half, X: Any, Y: Any, alpha: Any) -> Any:
    return pep.engine.factors.generic.ScalarFactor(lambda f: np.log(0.5) + 0.0 * f, [])


def test_a_factor_of_ones_own_class_is_used() -> None:
    one = np.ones((2, 1))
    value = pep.likelihoods.log_power_expectation(_Half(tf.sigmoid), one, one, one, one, 0.3)
    assert_close(value, [np.log(0.5)] * 2, rtol=1e-14)


class _Unknown:
    """No likelihood of GPflow's."""


def test_an_unknown_likelihood_is_told_where_to_register() -> None:
    one = tf.ones((1, 1), tf.float64)
    with pytest.raises(NotImplementedError, match=r"_Unknown.*implementations\.register"):
        pep.likelihoods.log_power_expectation(_Unknown(), one, one, one, one, 0.5)


@pytest.mark.parametrize("label", [0, 1, 2])
@pytest.mark.parametrize("smallest", [1e-42, 1e-16, 1e-10])
def test_largest_of_very_different_variances(label: int, smallest: float) -> None:
    """A class whose kernel has all but vanished: its distribution function is a step."""
    mean, variance = np.array([0.2, -2.1, 1.5]), np.array([smallest, 0.3, 0.4])
    deviation = np.sqrt(variance)

    def product(f: float) -> float:
        others = [k for k in range(3) if k != label]
        return float(np.prod(scipy.stats.norm.cdf((f - mean[others]) / deviation[others])))

    def integrand(f: float) -> float:
        return float(scipy.stats.norm.pdf(f, mean[label], deviation[label]) * product(f))

    if label == 0:
        expected = product(mean[0])
    else:
        reach, rise = 12.0 * deviation[label], 8.0 * deviation[0]
        edges = [mean[label] - reach, mean[0] - rise, mean[0], mean[0] + rise, mean[label] + reach]
        edges = np.unique(np.clip(edges, edges[0], edges[-1]))
        expected = sum(
            scipy.integrate.quad(integrand, low, high, epsabs=1e-13)[0]
            for low, high in itertools.pairwise(edges)
        )
    moments = tf.constant(mean[None]), tf.constant(variance[None])
    actual = prob_is_largest(tf.constant([label]), *moments)
    assert_close(actual[0][0], expected, rtol=1e-7)
    assert_close(actual[1][0], 1.0 - expected, rtol=1e-7)
