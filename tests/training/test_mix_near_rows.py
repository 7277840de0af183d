"""Mixtures whose predictions use near rows: rows left out, the noise, the weights, refusals."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.regression import ALPHA_PER_ROW, Case, N
from helpers import assert_close
from reference import rows as context_reference
from scipy.special import logsumexp
from scipy.stats import norm

import gpflow_pep as pep
from gpflow_pep.training import Ensemble, NearRows, ensemble_weights, ensemble_with_near_rows
from gpflow_pep.training.choosing.near import (
    NOISE_LEVELS,
    PRIOR_WEIGHT,
    choose_noise,
    moments_given_near,
    takes_near_rows,
)

CASES = {
    **{f"alpha {alpha:g}": Case(alpha=alpha) for alpha in (0.0, 1e-6, 0.3, 0.5, 1.0)},
    "everything": Case(alpha=0.3, num_outputs=2, mean="linear", bound="tight"),
}
m = 4


def moments_of(model: Any, near: NearRows | None, X: Any) -> tuple[Any, Any]:
    """Of y."""
    if near is None:
        return tuple(part.numpy() for part in model.predict_y(X))
    mean, variance = moments_given_near(model, near.number, X, [near.noise_variance])
    return mean[:, 0], variance[:, 0] + np.zeros_like(mean[:, 0])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_moments_at_each_level_of_noise(case: Case) -> None:
    problem, variances = case.problem, [0.2, 0.7]
    moments = moments_given_near(case.model(), m, problem.Xnew, variances)
    scaled = (part / problem.lengthscales for part in (problem.X, problem.Xnew))
    held = context_reference.nearest(*scaled, m)
    for mean, variance, noise in zip(*(np.swapaxes(p, 0, 1) for p in moments), variances):
        dense = context_reference.dense(case, problem.Xnew)._replace(noise=np.full(N, noise))
        expected = context_reference.predict(dense, held, None)
        assert_close(mean, expected[0] + case.mean_at(problem.Xnew))
        assert_close(variance[:, 0], np.diag(expected[1]) + noise)


def test_near_rows_may_have_another_noise() -> None:
    case = Case(alpha=1.0)
    problem, variance = case.problem, 0.6
    near = NearRows(m, variance)
    mixed = Ensemble([case.model()], near=[near])
    dense = context_reference.dense(case, problem.Xnew)._replace(noise=np.full(N, variance))
    scaled = (part / problem.lengthscales for part in (problem.X, problem.Xnew))
    held = context_reference.nearest(*scaled, m)
    mean, cov = context_reference.predict(dense, held, None)
    for source in (mixed, mixed.posterior()):
        actual = source.predict_y(problem.Xnew)
        assert_close(actual[0], mean)
        assert_close(actual[1][:, 0], np.diag(cov) + variance)
        assert_close(source.predict_f(problem.Xnew, full_cov=True)[1][0], cov)


def levels(error: float, noise: float = 1e-4) -> list[float]:
    return [noise, *(level * error for level in NOISE_LEVELS)]


def wavy(alpha: float, seed: int = 0, num_rows: int = 150) -> "pep.models.PEPRegression":
    """Too few inducing points for the function."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 10.0, (num_rows, 1))
    Y = np.sin(5.0 * X) + 0.1 * rng.standard_normal(X.shape)
    Z = np.linspace(0.0, 10.0, 6)[:, None]
    kernel = gpflow.kernels.Matern32(lengthscales=0.5)
    return pep.models.PEPRegression((X, Y), kernel, Z, noise_variance=1e-4, alpha=alpha)


def held_out() -> tuple[Any, Any]:
    """Other rows of the same function."""
    X, Y = map(np.asarray, wavy(0.5, seed=7).data)
    return X, Y


def test_the_noise_is_that_of_the_highest_density() -> None:
    model, (X, Y) = wavy(1.0), held_out()
    near, densities = choose_noise(model, m, (X, Y), levels(0.5))
    assert near.number == m and 1e-4 < near.noise_variance < 0.5

    def mean_density(variance: float) -> float:
        moments = moments_of(model, NearRows(m, variance), X)
        return float(np.mean(norm.logpdf(Y, moments[0], np.sqrt(moments[1]))))

    np.testing.assert_allclose(np.mean(densities), mean_density(near.noise_variance), rtol=1e-9)
    assert mean_density(near.noise_variance) > max(map(mean_density, (1e-4, 0.5)))
    same = choose_noise(model, m, (X, Y), levels(1e-9))[0]
    np.testing.assert_allclose(same.noise_variance, 1e-4)  # the model's is among those tried


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_noise_that_inducing_points_leave_is_not_that_of_near_rows(alpha: float) -> None:
    """Too few inducing points: the model takes what they leave of the function for noise."""
    model = wavy(alpha)
    model.likelihood.variance.assign(0.4)
    near, _ = choose_noise(model, m, held_out(), levels(0.5))
    assert near.noise_variance < 0.1


@pytest.mark.parametrize(("kernel", "expected"), [("smooth", 40), ("Markov", 10)])
def test_more_near_rows_where_rows_that_are_left_out_gain(kernel: str, expected: int) -> None:
    """Of a function that is smooth in the plane far rows say more; of one that is Markov, none."""
    rng = np.random.default_rng(0)
    smooth = kernel == "smooth"
    X = rng.uniform(0.0, 1.0, (900, 2 if smooth else 1))
    covariance = (
        gpflow.kernels.SquaredExponential(lengthscales=0.1)
        if smooth
        else gpflow.kernels.Matern12(lengthscales=0.1)
    )
    f = np.linalg.cholesky(covariance(X).numpy() + 1e-6 * np.eye(900)) @ rng.standard_normal(900)
    Y = f[:, None] + 0.01 * rng.standard_normal((900, 1))
    model = pep.models.PEPRegression((X[:700], Y[:700]), covariance, X[:10], noise_variance=1e-4)
    mixed = ensemble_with_near_rows(Ensemble([model]), (X[700:], Y[700:]))
    assert mixed is not None and mixed.near[1] is not None
    assert mixed.near[1].number == expected


def test_near_rows_are_mixed_where_they_help() -> None:
    models = [wavy(alpha) for alpha in (0.0, 1.0)]
    before = Ensemble(models)
    X, Y = held_out()
    mixed = ensemble_with_near_rows(before, (X, Y), m)
    assert mixed is not None and mixed.record is not None
    assert mixed.models == 2 * models and mixed.near[:2] == (None, None)
    assert all(near and near.number == m for near in mixed.near[2:])
    assert mixed.record.alphas == (0.0, 1.0, 0.0, 1.0)
    moments = [moments_of(*pair, X) for pair in zip(mixed.models, mixed.near, strict=True)]
    densities = np.stack([norm.logpdf(Y, a, np.sqrt(b))[:, 0] for a, b in moments])
    expected = ensemble_weights(densities, prior_weight=PRIOR_WEIGHT)
    np.testing.assert_allclose(mixed.weights.numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(mixed.record.log_densities, densities.mean(axis=1), rtol=1e-8)

    test = tuple(map(np.asarray, wavy(0.5, seed=2).data))
    better = np.mean(mixed.predict_log_density(test))
    assert better > np.mean(before.predict_log_density(test)) + 0.5
    parts = [
        model.predict_f(test[0]) if near is None else
        model.predict_f(test[0], near=near)
        for model, near in zip(mixed.models, mixed.near, strict=True)
    ]  # fmt: skip
    noise = [near.noise_variance if near else 1e-4 for near in mixed.near]
    components = [
        norm.logpdf(test[1], mean, np.sqrt(var + s))[:, 0] for (mean, var), s in zip(parts, noise)
    ]
    density = logsumexp(components, axis=0, b=mixed.weights.numpy()[:, None])
    for source in (mixed, mixed.posterior()):
        np.testing.assert_allclose(source.predict_log_density(test), density, rtol=1e-6)
    assert not any(v is variable for v in mixed.trainable_variables for variable in
                   [mixed.likelihoods[2].variance.unconstrained_variable])  # fmt: skip


def test_near_rows_are_left_out_where_they_do_not_help() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (120, 1))
    data = X, X + rng.standard_normal(X.shape)
    kernel, Z = gpflow.kernels.SquaredExponential(), X[:15]
    model = pep.models.PEPRegression(data, kernel, Z, noise_variance=1.0)
    others = X + 0.01, X + rng.standard_normal(X.shape)
    assert ensemble_with_near_rows(Ensemble([model]), others, m) is None


def test_what_is_refused() -> None:
    case, near = Case(), NearRows(m, 0.1)
    rows = case.problem.data
    others = [
        Case(alpha=ALPHA_PER_ROW).model(),
        Case(blocks=np.arange(N) // 4).model(),
        Case(noise="scale").model(),
        pep.PEP(case.problem.data, case.problem.kernel(), gpflow.likelihoods.Gaussian(), np.eye(2)),
    ]
    assert takes_near_rows(case.model()) and not any(map(takes_near_rows, others))
    with pytest.raises(ValueError, match="ensemble: got PEPRegression, expected PEPRegression w"):
        ensemble_with_near_rows(Ensemble([others[1]]), rows)
    with pytest.raises(ValueError, match="ensemble: got components that use near rows"):
        ensemble_with_near_rows(Ensemble([case.model()], near=[near]), rows)
    with pytest.raises(ValueError, match="near: got 18, expected an integer from 1 to 17"):
        ensemble_with_near_rows(Ensemble([case.model()]), rows, N + 1)
    with pytest.raises(ValueError, match=r"near: noise_variance: got -1\.0, expected a positive"):
        case.model().predict_f(case.problem.Xnew, near=NearRows(m, -1.0))
    with pytest.raises(ValueError, match=r"near: noise_variance: got 0\.1, expected None"):
        others[3].posterior(near=near)
    with pytest.raises(ValueError, match="models: got components that use near rows"):
        Ensemble([case.model()], near=[near]).paths(2)


@pytest.mark.slow
def test_predictions_in_graphs() -> None:
    case = Case(alpha=0.5)
    posterior = Ensemble([case.model()], near=[NearRows(m, 0.3)]).posterior()
    graph = tf.function(posterior.predict_y)
    for actual, expected in zip(graph(case.problem.Xnew), posterior.predict_y(case.problem.Xnew)):
        assert_close(actual, expected)
