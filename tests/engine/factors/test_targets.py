"""Mean and variance of targets, of every likelihood, against integrals by
other means.
"""

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.tilted import CASES, grid
from gpflow.base import MeanAndVariance, TensorType
from helpers import assert_all_close, assert_close, assert_gradients
from reference import tilted as reference
from scipy.special import expit, log_ndtr
from scipy.stats import t as student

import gpflow_pep as pep
from gpflow_pep.engine.factors import classes, num_classes
from gpflow_pep.likelihoods import (
    AccuracyWarning,
    log_power_expectation,
    predict_mean_and_var,
)

likelihoods = gpflow.likelihoods
# Means, variances, alpha.
GRID: Any = (
    (-50.0, 0.7, 8.0),
    (1e-6, 0.3, 100.0, 1e6),
    (1.0,),
)
ONE = np.ones((1, 1))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.moments])
def test_moments_of_targets(name: str) -> None:
    case = CASES[name]
    assert case.moments is not None
    rows = grid(case, *GRID)
    pairs = zip(rows.mean, rows.variance)
    expected = [
        np.stack([np.ravel(part) for part in case.moments(*pair)]) for pair in pairs
    ]
    actual = predict_mean_and_var(case.create(), *rows.arguments()[:3])
    for k, part in enumerate(actual):
        right = np.stack(expected)[:, k]
        got = part.numpy()
        known = np.isfinite(right) & (right < 1e300)
        np.testing.assert_allclose(got[known], right[known], rtol=1e-6, atol=1e-20)
        assert not np.isfinite(got[~np.isfinite(right)]).any()


@pytest.mark.parametrize("name", ["MultiClass", "Softmax"])
def test_probabilities_of_classes(name: str) -> None:
    case = CASES[name]
    rows = grid(case, *GRID)
    label = int(case.target[0])
    probability, variance = predict_mean_and_var(case.create(), *rows.arguments()[:3])
    p = np.exp([case.reference(m, v, 1.0) for m, v in zip(rows.mean, rows.variance)])
    np.testing.assert_allclose(probability[:, label], p, atol=5.0 * case.tolerance)
    assert_close(
        tf.reduce_sum(probability, axis=1), np.ones(len(p)), rtol=5.0 * case.tolerance
    )
    assert_close(variance, probability * (1.0 - probability))


def test_each_output_by_its_own_rule() -> None:
    """Also where one likelihood is that of all columns, and by the method of our own
    classes.
    """
    parts = [likelihoods.Poisson(), likelihoods.StudentT(0.2), likelihoods.Beta()]
    X = np.zeros((2, 1))
    mean = np.ones((2, 3))
    variance = np.array([[25.0, 1.0, 9.0]] * 2)
    bins = likelihoods.Ordinal(np.array([-1.0, 0.5, 4.0]))
    of_each = pep.likelihoods.PerOutput(parts)
    for of_all, each in ((of_each, parts), (bins, [bins] * 3)):
        both = predict_mean_and_var(of_all, X, mean, variance)
        for p, part in enumerate(each):
            alone = predict_mean_and_var(
                part, X, mean[:, p : p + 1], variance[:, p : p + 1]
            )
            assert_all_close([m[:, p : p + 1] for m in both], alone, rtol=1e-12)
    own = CASES["NegativeBinomial wide"].create()
    for kind in (of_each, own):
        expected = predict_mean_and_var(kind, X, mean, variance)
        assert_all_close(
            kind.predict_mean_and_var(X, mean, variance), expected, rtol=1e-12
        )


Function = Any


class Own(likelihoods.ScalarLikelihood):
    """A likelihood that defines its conditional moments alone."""

    def __init__(self, first: Function, second: Function) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def _scalar_log_prob(
        self, X: TensorType, F: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return gpflow.logdensities.gaussian(Y, self.first(F), self.second(F))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.first(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.second(F) + tf.zeros_like(F)


@pytest.mark.parametrize(
    "first, first_numpy, second",
    [
        (
            lambda f: tf.sigmoid(20.0 * (f - 7.0)),
            lambda f: expit(20.0 * (f - 7.0)),
            0.0,
        ),
        (lambda f: 100.0 + tf.sin(f), lambda f: 100.0 + np.sin(f), 1e-8),
        (lambda f: f * f, lambda f: f * f, 0.3),
        (lambda f: tf.exp(-f), lambda f: np.exp(-np.maximum(f, -700.0)), 0.0),
    ],
)
def test_a_users_own(first: Function, first_numpy: Function, second: float) -> None:
    mean = np.array([[-3.0], [0.7], [8.0]] * 4)
    variance = np.repeat([1e-6, 0.3, 3.0, 30.0], 3)[:, None]
    actual = predict_mean_and_var(
        Own(first, lambda f: second), 0.0 * mean, mean, variance
    )
    integrals = partial(reference.moments, first_numpy, lambda f: second + 0.0 * f)
    expected = [integrals(m, v, [0.0, 7.0]) for m, v in zip(mean[:, 0], variance[:, 0])]
    for part, right in zip(actual, zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(part[:, 0], right, rtol=1e-6, atol=1e-300)


LOW = -1.0
HIGH = 0.2
SIGMA = 2e-3


def _in_bin(f: Any) -> Any:
    low = (LOW - f) / SIGMA
    high = (HIGH - f) / SIGMA
    inner = np.where(low + high > 0, -low, high)
    outer = np.where(low + high > 0, -high, low)
    return log_ndtr(inner) + np.log(-np.expm1(log_ndtr(outer) - log_ndtr(inner)))


def _t(df: float, f: Any) -> Any:
    return student.logpdf(f, df)


CUT_OFF = pep.likelihoods.Tobit(high=HIGH, variance=SIGMA**2)
PLACES = [
    edge + k * SIGMA for edge in (LOW, HIGH) for k in (-30, -10, -3, 0, 3, 10, 30)
]
WIDE = [
    (m, v, a) for m in (0.2, -1.0, -30.0) for v in (1e4, 1e6) for a in (0.1, 0.5, 0.9)
]
#: Likelihood, target, density, where it has structure, and rows: means, variances,
#: powers.
HARD: dict[str, tuple[Any, float, Function, Any, Any]] = {
    "bins": (
        pep.likelihoods.Ordinal([LOW, HIGH, 2.0], SIGMA),
        1.0,
        _in_bin,
        PLACES,
        WIDE,
    ),
    "cut off": (CUT_OFF, HIGH, lambda f: log_ndtr((f - HIGH) / SIGMA), PLACES, WIDE),
    **{
        f"two modes, {df}": (
            likelihoods.StudentT(1.0, df),
            0.0,
            partial(_t, df),
            [0.0, 3.0],
            [row],
        )
        for df, row in ((20, (47.0, 23.7, 1.0)), (50, (67.0, 42.17, 0.5)))
    },
}


@pytest.mark.parametrize("name", HARD)
def test_narrow_noise_under_a_wide_gaussian(name: str) -> None:
    """The tilted mode is thousands of steps of noise away, and f is at an edge; or two
    modes.
    """
    likelihood, y, density, places, rows = HARD[name]
    expected = [reference.log_power_expectation(density, *row, places) for row in rows]
    mean, variance, alpha = np.transpose(rows)[..., None]
    X = np.ones((len(rows), 1))
    actual = log_power_expectation(likelihood, X, mean, variance, y * X, alpha[:, 0])
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_what_has_no_number_is_not_one_or_refused_with_a_way_out() -> None:
    # Sites that any value is a fixed point of would look converged.
    ell = pep.likelihoods.tilted_derivatives(
        likelihoods.Poisson(), ONE, ONE, 1e4 * ONE, ONE, 0.0
    )
    assert ell.delta1[0, 0] < -1e100 and ell.delta2[0, 0] < -1e100
    for value in predict_mean_and_var(Own(tf.exp, tf.exp), ONE, ONE, 2e3 * ONE):
        assert not np.isfinite(value).any()  # beyond all floats
    with pytest.warns(
        AccuracyWarning, match="_conditional_mean and _conditional_variance varies"
    ):
        predict_mean_and_var(
            Own(lambda f: tf.sin(1e5 * f), lambda f: 0.1), ONE, ONE, ONE
        )
    rows = np.ones((2, 4))
    with pytest.raises(
        ValueError, match=r"4 latent functions, expected at most 3.*_predict_mean"
    ):
        predict_mean_and_var(Several(4), rows, rows, rows)
    for df in (2.0, 1.0):
        with pytest.raises(
            ValueError, match=r"df: got .*, expected above 2.*predict_f"
        ):
            predict_mean_and_var(likelihoods.StudentT(1.0, df), ONE, ONE, ONE)


class Several(likelihoods.MultiLatentLikelihood):
    """The mean f_1 softplus(f_2), the variance exp(f_3) or 1."""

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        mean = self._conditional_mean(X, F)
        variance = self._conditional_variance(X, F)
        return gpflow.logdensities.gaussian(Y, mean, variance)[..., 0]

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return F[..., :1] * tf.math.softplus(F[..., 1:2])

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(F[..., 2:]) if F.shape[-1] == 3 else tf.ones_like(F[..., :1])


@pytest.mark.near_copies("2")
@pytest.mark.parametrize("num_latent", [2, 3])
def test_several_latent_functions(num_latent: int) -> None:
    mean = np.array([[0.3, -0.5, 1.0], [-2.0, 4.0, 0.2]])[:, :num_latent]
    variance = np.array([[1e-6, 2.0, 9.0], [100.0, 0.3, 1e-9]])[:, :num_latent]
    actual = predict_mean_and_var(
        Several(num_latent), 0.0 * mean[:, :1], mean, variance
    )
    for n, (m, v) in enumerate(zip(mean, variance)):
        softplus = partial(np.logaddexp, 0.0)
        scale, spread = reference.moments(softplus, np.zeros_like, m[1], v[1])
        noise = np.exp(m[2] + 0.5 * v[2]) if num_latent == 3 else 1.0
        square = (m[0] ** 2 + v[0]) * (scale**2 + spread)
        assert_close(actual[0][n], [m[0] * scale], rtol=1e-6)
        assert_close(actual[1][n], [square - (m[0] * scale) ** 2 + noise], rtol=1e-6)


class Halved(likelihoods.Poisson):
    """What is known of its base is not known of it."""

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return 0.5 * tf.exp(F)


class Closed(Halved):
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return Fmu, Fvar


class Moved(likelihoods.Gaussian):
    """Its class defines what GPflow calls, and not what GPflow says to define."""

    def predict_mean_and_var(self, X, Fmu, Fvar):  # type: ignore[no-untyped-def]
        return Fmu + 100.0, Fvar


def test_a_class_with_moments_of_its_own_does_not_inherit_a_closed_form() -> None:
    moments = ONE, ONE, 9.0 * ONE
    whole, spread = predict_mean_and_var(likelihoods.Poisson(), *moments)
    half, rest = predict_mean_and_var(Halved(), *moments)
    assert_close(half, 0.5 * whole, rtol=1e-9)
    assert_close(rest, 0.25 * (spread - whole) + whole, rtol=1e-9)
    assert_all_close(predict_mean_and_var(Closed(), *moments), moments[1:])
    assert_all_close(predict_mean_and_var(Moved(), *moments), (101.0 * ONE, 9.0 * ONE))


@pytest.mark.near_copies("MultiClass")
@pytest.mark.parametrize(
    "name", ["Beta", "MultiClass", "Softmax", "NegativeBinomial softplus"]
)
def test_batches_and_graphs(name: str) -> None:
    likelihood = CASES[name].create()
    L = CASES[name].num_latent
    X = np.zeros((2, 3, 1))
    mean = np.linspace(-2.0, 2.0, 6 * L).reshape(2, 3, L)
    variance = np.exp(mean)
    both = predict_mean_and_var(likelihood, X, mean, variance)
    rows = [tf.TensorSpec([None, size], tf.float64) for size in (1, L, L)]
    compiled = tf.function(
        lambda *parts: predict_mean_and_var(likelihood, *parts), rows, autograph=False
    )
    for k in range(2):
        apart = compiled(X[k], mean[k], variance[k])
        assert_all_close([part[k] for part in both], apart, rtol=1e-12)


@pytest.mark.near_copies("Beta", "MultiClass")
@pytest.mark.parametrize(
    "name", ["Beta", "Poisson softplus", "MultiClass", "Softmax", "Bernoulli logit"]
)
def test_derivatives_equal_finite_differences(name: str) -> None:
    likelihood = CASES[name].create()
    L = CASES[name].num_latent
    X = tf.zeros([3, 1], tf.float64)
    mean = tf.Variable(np.linspace(-2, 3, 3 * L).reshape(3, L))
    log_variance = tf.Variable(np.log(np.geomspace(1e-9, 50.0, 3 * L)).reshape(3, L))
    for parameter in likelihood.parameters:
        gpflow.set_trainable(parameter, True)

    def total() -> tf.Tensor:
        first, second = predict_mean_and_var(likelihood, X, mean, tf.exp(log_variance))
        weights = np.cos(np.arange(np.size(first))).reshape(first.shape)
        return tf.reduce_sum(weights * (first + 0.3 * second))

    variables = [mean, log_variance, *likelihood.trainable_variables]
    assert_gradients(total, variables, rtol=1e-6, scale=1.0)


@pytest.mark.near_copies("False-6-*", "True-6-MultiClass*", "True-6-Bernoulli 0*")
@pytest.mark.parametrize(
    "name, rtol",
    [
        ("Bernoulli 0", 1e-8),
        ("Bernoulli logit", 1e-8),
        ("MultiClass", 1e-8),
        ("Softmax", 1e-6),
    ],
)
@pytest.mark.parametrize("rows_at_a_time", [10_000, 6])
@pytest.mark.parametrize("compiled", [False, True])
def test_probability_of_a_class_is_its_integral(
    name: str,
    rtol: float,
    compiled: bool,
    rows_at_a_time: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(classes, "_ROWS", rows_at_a_time)
    case = CASES[name]
    random = np.random.default_rng(3)
    num_rows = 7
    likelihood = case.create()
    L = case.num_latent
    count = num_classes(likelihood)
    mean = random.normal(size=[num_rows, L])
    X = np.zeros([num_rows, 2])
    variance = random.uniform(0.1, 3.0, size=[num_rows, L])

    def found(X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        return pep.likelihoods.class_probabilities(likelihood, X, mean, variance, count)

    if compiled:  # of any number of rows, as in a model that was exported
        rows = [tf.TensorSpec([None, size], tf.float64) for size in (2, L, L)]
        found = tf.function(found, rows, autograph=False)
    probability = found(X, mean, variance).numpy()
    assert probability.shape == (num_rows, count)
    assert_close(probability.sum(axis=1), np.ones(num_rows), rtol=rtol)
    expected = [np.exp(case.reference(m, v, 1.0)) for m, v in zip(mean, variance)]
    assert_close(probability[:, int(case.target[0])], np.array(expected), rtol=rtol)
    assert found(X[:0], mean[:0], variance[:0]).shape == (0, count)
