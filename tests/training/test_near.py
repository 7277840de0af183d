"""Mixtures that use near rows, chosen by rows left out."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.regression import ALPHA_PER_ROW, Case, N
from gpflow.base import AnyNDArray
from helpers import assert_close, refusals
from numpy.testing import assert_allclose
from reference import rows as context_reference
from scipy.special import logsumexp
from scipy.stats import norm

import gpflow_pep as pep
from gpflow_pep.training import Ensemble, NearRows, ensemble_weights
from gpflow_pep.training import ensemble_with_near_labels as with_near_labels
from gpflow_pep.training import ensemble_with_near_rows as with_near_rows
from gpflow_pep.training.choosing import near as choosing

m = 4
CASES = {
    **{f"alpha {alpha:g}": Case(alpha=alpha) for alpha in (0.0, 1e-6, 0.3, 0.5, 1.0)},
    "everything": Case(alpha=0.3, num_outputs=2, mean="linear"),
}


def moments_of(model: Any, near: NearRows | None, X: Any) -> tuple[Any, Any]:
    """Of y."""
    if near is None:
        return tuple(part.numpy() for part in model.predict_y(X))
    mean, variance = choosing.moments_given_near(
        model, near.number, X, [near.noise_variance]
    )
    return mean[:, 0], variance[:, 0] + np.zeros_like(mean[:, 0])


def dense_moments(case: Case, noise: float) -> tuple[Any, Any]:
    """Of f at new rows given their near rows, whose noise has a variance."""
    problem = case.problem
    dense = context_reference.dense(case, problem.Xnew)._replace(
        noise=np.full(N, noise)
    )
    scaled = (part / problem.lengthscales for part in (problem.X, problem.Xnew))
    return context_reference.predict(dense, context_reference.nearest(*scaled, m), None)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_moments_at_each_level_of_noise(case: Case) -> None:
    Xnew = case.problem.Xnew
    variances = [0.2, 0.7]
    moments = choosing.moments_given_near(case.model(), m, Xnew, variances)
    for mean, variance, noise in zip(
        *(np.swapaxes(p, 0, 1) for p in moments), variances
    ):
        expected = dense_moments(case, noise)
        assert_close(mean, expected[0] + case.mean_at(Xnew))
        assert_close(variance[:, 0], np.diag(expected[1]) + noise)


def test_near_rows_may_have_another_noise() -> None:
    """Also in graphs."""
    case = Case(alpha=1.0)
    Xnew = case.problem.Xnew
    mixed = Ensemble([case.model()], near=[NearRows(m, 0.6)])
    mean, cov = dense_moments(case, 0.6)
    posterior = mixed.posterior()
    for predict in (
        mixed.predict_y,
        posterior.predict_y,
        tf.function(posterior.predict_y),
    ):
        actual = predict(Xnew)
        assert_close(actual[0], mean)
        assert_close(actual[1][:, 0], np.diag(cov) + 0.6)
    for source in (mixed, posterior):
        assert_close(source.predict_f(Xnew, full_cov=True)[1][0], cov)


def levels(error: float, noise: float = 1e-4) -> list[float]:
    return [noise, *(level * error for level in choosing.NOISE_LEVELS)]


def wavy(
    alpha: float, seed: int = 0, num_rows: int = 150
) -> "pep.models.PEPRegression":
    """Too few inducing points for the function."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 10.0, (num_rows, 1))
    Y = np.sin(5.0 * X) + 0.1 * rng.standard_normal(X.shape)
    Z = np.linspace(0.0, 10.0, 6)[:, None]
    kernel = gpflow.kernels.Matern32(lengthscales=0.5)
    return pep.models.PEPRegression((X, Y), kernel, Z, noise_variance=1e-4, alpha=alpha)


def other_rows(seed: int) -> tuple[Any, Any]:
    """Of the same function."""
    X, Y = map(np.asarray, wavy(0.5, seed=seed).data)
    return X, Y


def test_the_noise_is_that_of_the_highest_density() -> None:
    model, (X, Y) = wavy(1.0), other_rows(7)
    near, densities = choosing.choose_noise(model, m, (X, Y), levels(0.5))
    assert near.number == m and 1e-4 < near.noise_variance < 0.5

    def mean_density(variance: float) -> float:
        moments = moments_of(model, NearRows(m, variance), X)
        return float(np.mean(norm.logpdf(Y, moments[0], np.sqrt(moments[1]))))

    assert_allclose(np.mean(densities), mean_density(near.noise_variance), rtol=1e-9)
    assert mean_density(near.noise_variance) > max(map(mean_density, (1e-4, 0.5)))
    same = choosing.choose_noise(model, m, (X, Y), levels(1e-9))[0]
    assert_allclose(same.noise_variance, 1e-4)  # the model's is among those tried


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_noise_that_inducing_points_leave_is_not_that_of_near_rows(
    alpha: float,
) -> None:
    """Too few inducing points: the model takes what they leave of the function for
    noise.
    """
    model = wavy(alpha)
    model.likelihood.variance.assign(0.4)
    near, _ = choosing.choose_noise(model, m, other_rows(7), levels(0.5))
    assert near.noise_variance < 0.1


@pytest.mark.parametrize(
    ("kernel", "D", "expected"),
    [
        (gpflow.kernels.SquaredExponential, 2, 40),
        (gpflow.kernels.Matern12, 1, 10),
    ],
    ids=["smooth", "Markov"],
)
def test_more_near_rows_where_others_gain(kernel: type, D: int, expected: int) -> None:
    """Of a function that is smooth in the plane far rows say more; of one that is
    Markov, none.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (900, D))
    covariance = kernel(lengthscales=0.1)
    f = np.linalg.cholesky(
        covariance(X).numpy() + 1e-6 * np.eye(900)
    ) @ rng.standard_normal(900)
    Y = f[:, None] + 0.01 * rng.standard_normal((900, 1))
    model = pep.models.PEPRegression(
        (X[:700], Y[:700]), covariance, X[:10], noise_variance=1e-4
    )
    mixed = with_near_rows(Ensemble([model]), (X[700:], Y[700:]))
    assert mixed is not None and mixed.near[1] is not None
    assert mixed.near[1].number == expected


@pytest.mark.slow
def test_near_rows_are_mixed_where_they_help() -> None:
    models = [wavy(alpha) for alpha in (0.0, 1.0)]
    before, (X, Y), (Xtest, Ytest) = Ensemble(models), other_rows(7), other_rows(2)
    mixed = with_near_rows(before, (X, Y), m)
    assert mixed is not None and mixed.record is not None
    assert mixed.models == 2 * models and mixed.near[:2] == (None, None)
    assert all(near and near.number == m for near in mixed.near[2:])
    assert mixed.record.alphas == (0.0, 1.0, 0.0, 1.0)
    pairs = list(zip(mixed.models, mixed.near, strict=True))
    moments = [moments_of(*pair, X) for pair in pairs]
    densities = np.stack([norm.logpdf(Y, a, np.sqrt(b))[:, 0] for a, b in moments])
    expected = ensemble_weights(densities, prior_weight=choosing.PRIOR_WEIGHT)
    assert_allclose(mixed.weights.numpy(), expected, rtol=1e-6)
    assert_allclose(mixed.record.log_densities, densities.mean(axis=1), rtol=1e-8)

    better = np.mean(mixed.predict_log_density((Xtest, Ytest)))
    assert better > np.mean(before.predict_log_density((Xtest, Ytest))) + 0.5
    components = []
    for model, near in pairs:
        mean, variance = model.predict_f(
            Xtest, **({} if near is None else {"near": near})
        )
        deviation = np.sqrt(variance + (near.noise_variance if near else 1e-4))
        components.append(norm.logpdf(Ytest, mean, deviation)[:, 0])
    density = logsumexp(components, axis=0, b=mixed.weights.numpy()[:, None])
    for source in (mixed, mixed.posterior()):
        assert_allclose(source.predict_log_density((Xtest, Ytest)), density, rtol=1e-6)
    noise = mixed.likelihoods[2].variance.unconstrained_variable
    assert not any(variable is noise for variable in mixed.trainable_variables)


def test_near_rows_are_left_out_where_they_do_not_help() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (120, 1))
    data, others = ((X + d, X + rng.standard_normal(X.shape)) for d in (0.0, 0.01))
    kernel = gpflow.kernels.SquaredExponential()
    model = pep.models.PEPRegression(data, kernel, X[:15], noise_variance=1.0)
    assert with_near_rows(Ensemble([model]), others, m) is None


# Labels.

RNG = np.random.default_rng(3)
X = RNG.uniform(-1.0, 1.0, (400, 2))
FINE = 1.0 * (np.floor(4.0 * X[:, :1]) % 2 == np.floor(4.0 * X[:, 1:]) % 2)
COARSE = 1.0 * (X[:, :1] + 0.3 * RNG.standard_normal((400, 1)) > 0.0)
THREE = np.arange(400)[:, None] % 3


def of_labels(
    labels: AnyNDArray, rows: Any = X, **options: Any
) -> pep.PEPClassification:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[0.8, 0.8])
    return pep.PEPClassification((rows, labels), kernel, None, X[:12].copy(), **options)


def test_residuals_of_near_rows() -> None:
    inputs = RNG.uniform(-1.0, 1.0, (30, 2))
    kernel = gpflow.kernels.RBF(1.0, [0.5, 2.0])
    p = RNG.uniform(0.2, 0.8, 30)
    rows = np.array([4, 9, 22])
    labels = 1.0 * (RNG.uniform(size=30) < p)
    of_label = np.where(labels == 1.0, p, 1.0 - p)
    actual = choosing.near_residuals(kernel, inputs, np.log(of_label), labels, rows)
    residuals = (labels - p) / np.sqrt(p * (1.0 - p))
    for n, product in zip(rows, actual, strict=True):
        near = np.argsort(np.sum(((inputs - inputs[n]) / [0.5, 2.0]) ** 2, axis=1))[
            1:11
        ]
        assert_allclose(product, residuals[n] * residuals[near].mean(), rtol=1e-10)


def test_nothing_is_trained_where_near_residuals_have_nothing_in_common(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(choosing, "fit", lambda *_, **__: pytest.fail("trained"))
    assert with_near_labels(of_labels(COARSE), (X, COARSE)) is None
    # 399 are copies.
    inputs, labels = (part[np.arange(799) % 400] for part in (X, THREE % 2.0))
    assert with_near_labels(of_labels(labels, inputs), (inputs, labels)) is None


@pytest.fixture(scope="module")
def mixed() -> Ensemble:
    mixture = with_near_labels(of_labels(FINE), (X, FINE), 6, num_steps=3)
    assert mixture is not None
    return mixture


@pytest.mark.slow
def test_mixture_by_rows_left_out(mixed: Ensemble) -> None:
    model, near = mixed.models
    # Trained.
    assert near.alpha.numpy() == 1.0 and near.kernel.lengthscales.numpy()[0] != 0.8
    assert mixed.near == (None, (6, None)) and mixed.weights.numpy()[1] > 0.8
    # The density of a row that is left out is that of a model without it.
    left_out = np.random.default_rng(0).permutation(400)[:1000]
    densities = []
    parts = (near.kernel, near.likelihood, X[:2].copy())
    for n in left_out[:4]:
        others = np.arange(400) != n
        row = slice(n, n + 1)
        without = pep.PEP((X[others], FINE[others]), *parts, alpha=1.0)
        moments = without.predict_f(X[row], near=6)
        density = without.likelihood.predict_log_density(X[row], *moments, FINE[row])
        densities.append(float(density[0]))
    actual = choosing._near_label_densities(near, 6, left_out)
    assert_allclose(actual[:4], densities, atol=0.01)
    expected = np.mean(model.loo_log_density()), actual.mean()
    assert_allclose(mixed.record.log_densities, expected)


def test_predictions_are_those_of_both(mixed: Ensemble) -> None:
    new = X[:9] + 0.01
    labels = FINE[:9]
    parts = []
    for component, options in zip(mixed.models, ({}, {"near": 6}), strict=True):
        moments = component.predict_f(new, **options)
        parts.append(component.likelihood.predict_log_density(new, *moments, labels))
    expected = logsumexp(np.stack(parts), axis=0, b=mixed.weights.numpy()[:, None])
    for predictor in (mixed, mixed.posterior()):
        assert_allclose(
            predictor.predict_log_density((new, labels)), expected, rtol=1e-8
        )


@pytest.mark.slow
def test_rows_that_share_sites() -> None:
    """Densities of the training rows stand for those that are left out."""
    parts = (
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Bernoulli(),
        X[:5].copy(),
    )
    tied = pep.ARPEP(*parts, num_data=400)
    mixed = with_near_labels(tied, (X, FINE), 5, num_steps=1)
    assert mixed is not None
    expected = np.mean(tied.predict_log_density((X, FINE)))
    assert_allclose(mixed.record.log_densities[0], expected, rtol=1e-8)


# What is refused.

CASE = Case()
ROWS = CASE.problem.data
NEW = CASE.problem.Xnew
in_blocks = Case(blocks=np.arange(N) // 4).model


def point() -> pep.PEP:
    return pep.PEP(
        ROWS, CASE.problem.kernel(), gpflow.likelihoods.Gaussian(), np.eye(2)
    )


def test_what_takes_near_rows_and_labels() -> None:
    others = (
        Case(alpha=ALPHA_PER_ROW).model(),
        in_blocks(),
        Case(noise="scale").model(),
        point(),
    )
    assert choosing.takes_near_rows(CASE.model()) and not any(
        map(choosing.takes_near_rows, others)
    )
    three = of_labels(THREE)
    assert not choosing.takes_near_labels(three.kernel, three.likelihood)


def of_near(noise: float = 0.1) -> Ensemble:
    return Ensemble([CASE.model()], near=[NearRows(m, noise)])


def with_rows(mixed: Ensemble, number: int = m) -> Any:
    return with_near_rows(mixed, ROWS, number)


def with_labels(labels: AnyNDArray, number: int = m) -> Any:
    return with_near_labels(of_labels(labels), (X, labels), number)


REFUSED = {
    "got PEPRegression, expected PEPRegression w": lambda: with_rows(
        Ensemble([in_blocks()])
    ),
    "ensemble: got components that use near rows": lambda: with_rows(of_near()),
    "near: got 18, .* from 1 to 17": lambda: with_rows(Ensemble([CASE.model()]), N + 1),
    r"noise_variance: got -1\.0": (
        lambda: CASE.model().predict_f(NEW, near=NearRows(m, -1.0))
    ),
    r"near: noise_variance: got -1\.0, expected a positive number": lambda: of_near(
        -1.0
    ),
    r"noise_variance: got 0\.1, .* None": (
        lambda: point().posterior(near=NearRows(m, 0.1))
    ),
    "model: got PEPClassification with MultiClass, expected": lambda: with_labels(
        THREE
    ),
    "near: got 400, expected an integer from 1 to 399": lambda: with_labels(FINE, 400),
}
test_refused = refusals(REFUSED)
