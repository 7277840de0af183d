"""Ensembles of models: weights against another optimiser, moments and densities against sums."""

import copy

import gpflow
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import tensorflow as tf

from gpflow_pep.models import PEP, PEPRegression
from gpflow_pep.training import (
    Ensemble,
    NearRows,
    ensemble_of_models,
    ensemble_of_powers,
    ensemble_weights,
    maximise,
)
from gpflow_pep.training.choosing.ensemble import ensemble_posterior


def rows(N: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 6.0, (N, 1))
    return X, np.sin(2.0 * X) + 0.2 * rng.standard_normal(X.shape)


def regression(alpha: float = 0.5, noise: float = 0.05, **options) -> PEPRegression:
    data = rows()
    kernel = gpflow.kernels.SquaredExponential()
    return PEPRegression(data, kernel, data[0][:8], alpha=alpha, noise_variance=noise, **options)


def objective(weights, log_densities, prior_weight: float) -> float:
    mixed = np.log(weights @ np.exp(log_densities))
    K, N = log_densities.shape
    return np.sum(mixed) + prior_weight * N / K * np.sum(np.log(weights))


@pytest.mark.parametrize("prior_weight", [0.1, 0.25, 1.0])
def test_weights_are_those_of_a_simplex_solver(prior_weight: float) -> None:
    log_densities = np.random.default_rng(1).normal(size=(3, 50))
    weights = ensemble_weights(log_densities, prior_weight=prior_weight)
    # An unconstrained form of the simplex, whose first component is the reference.
    best = scipy.optimize.minimize(
        lambda x: -objective(scipy.special.softmax([0.0, *x]), log_densities, prior_weight),
        np.zeros(2),
        method="Nelder-Mead",
        options={"xatol": 1e-12, "fatol": 1e-14, "maxiter": 4000},
    )
    value = objective(weights, log_densities, prior_weight)
    assert value >= -best.fun - 1e-10
    # Where the gradient of the Lagrange function vanishes the concave objective is at its maximum.
    density = np.exp(log_densities)
    slope = np.sum(density / (weights @ density), axis=1) + prior_weight * 50 / 3 / weights
    np.testing.assert_allclose(slope, slope[0], rtol=1e-8)


def test_a_strong_prior_makes_weights_equal() -> None:
    log_densities = np.random.default_rng(1).normal(size=(3, 50))
    np.testing.assert_allclose(ensemble_weights(log_densities, prior_weight=1e9), 1 / 3, atol=1e-8)


def test_weights_permute_with_components_and_have_a_floor() -> None:
    log_densities = np.random.default_rng(2).normal(size=(3, 30))
    log_densities[1] = -np.inf
    log_densities[2, 3] = np.nan
    weights = ensemble_weights(log_densities)
    np.testing.assert_allclose(ensemble_weights(log_densities[::-1]), weights[::-1], atol=1e-10)
    np.testing.assert_allclose(weights[1], 1 / 15, rtol=1e-10)
    assert np.isclose(weights.sum(), 1.0) and (weights >= 1 / 15 - 1e-12).all()


def test_weights_need_a_density_for_each_row() -> None:
    with pytest.raises(ValueError, match=r"log_densities: got no finite density in 1 row"):
        ensemble_weights(np.array([[0.0, -np.inf], [0.0, np.nan]]))
    with pytest.raises(ValueError, match="prior_weight: got -1"):
        ensemble_weights(np.zeros([2, 3]), prior_weight=-1)


def test_one_component_is_the_model() -> None:
    model = regression()
    mixed = ensemble_of_models([model])
    Xnew, Ynew = rows(7, seed=3)
    for mine, its in zip(
        mixed.predict_f(Xnew, full_cov=True), model.predict_f(Xnew, full_cov=True)
    ):
        np.testing.assert_allclose(mine, its, rtol=1e-10)
    for mine, its in zip(mixed.predict_y(Xnew), model.predict_y(Xnew)):
        np.testing.assert_allclose(mine, its, rtol=1e-10)
    np.testing.assert_allclose(
        mixed.predict_log_density((Xnew, Ynew)), model.predict_log_density((Xnew, Ynew)), rtol=1e-10
    )
    mean, variance = model.predict_y(Xnew)
    quantiles = scipy.stats.norm.ppf([0.1, 0.9]) * np.sqrt(variance) + mean
    np.testing.assert_allclose(
        mixed.predict_quantiles(Xnew, [0.1, 0.9])[:, 0], quantiles, rtol=1e-9
    )


def mixed_regression() -> Ensemble:
    return ensemble_of_models([regression(0.0, 0.02), regression(1.0, 0.2)], [1.0, 3.0])


def test_moments_densities_and_quantiles_are_those_of_the_sum() -> None:
    mixed = mixed_regression()
    w = np.array([0.25, 0.75])
    Xnew, Ynew = rows(5, seed=3)
    means, variances = (
        np.stack(part)[..., 0] for part in zip(*(m.predict_y(Xnew) for m in mixed.models))
    )
    mean = w @ means
    variance = w @ (variances + means**2) - mean**2
    np.testing.assert_allclose(mixed.predict_y(Xnew)[0][:, 0], mean, rtol=1e-10)
    np.testing.assert_allclose(mixed.predict_y(Xnew)[1][:, 0], variance, rtol=1e-10)
    density = w @ scipy.stats.norm.pdf(Ynew[:, 0], means, np.sqrt(variances))
    np.testing.assert_allclose(mixed.predict_log_density((Xnew, Ynew)), np.log(density), rtol=1e-9)
    q = np.array([0.05, 0.3, 0.95])
    y = mixed.predict_quantiles(Xnew, q).numpy()[:, 0]
    below = np.einsum(
        "k,knq->nq", w, scipy.stats.norm.cdf(y, means[..., None], np.sqrt(variances)[..., None])
    )
    np.testing.assert_allclose(below, np.broadcast_to(q, below.shape), rtol=1e-9)


def test_a_mixture_loses_little_on_each_row() -> None:
    mixed = mixed_regression()
    data = rows(60, seed=3)
    density = mixed.predict_log_density(data).numpy()
    for weight, model in zip((0.25, 0.75), mixed.models):
        assert (density >= model.predict_log_density(data).numpy() + np.log(weight) - 1e-12).all()


def test_covariances_have_the_spread_of_the_means() -> None:
    mixed = mixed_regression()
    Xnew = rows(4, seed=3)[0]
    mean, covariance = mixed.predict_f(Xnew, full_cov=True)
    expected = np.zeros([4, 4])
    for weight, model in zip((0.25, 0.75), mixed.models):
        own_mean, own = model.predict_f(Xnew, full_cov=True)
        apart = (own_mean - mean).numpy()[:, 0]
        expected += weight * (own[0].numpy() + np.outer(apart, apart))
    np.testing.assert_allclose(covariance[0], expected, rtol=1e-10)
    variance = mixed.predict_f(Xnew)[1]
    np.testing.assert_allclose(variance[:, 0], np.diag(expected), rtol=1e-7)
    with pytest.raises(ValueError, match="got both"):
        mixed.predict_f(Xnew, True, True)


@pytest.mark.near_copies("False")
@pytest.mark.parametrize("full_cov", [False, True])
def test_samples_have_the_moments(full_cov: bool) -> None:
    mixed = mixed_regression()
    Xnew = rows(3, seed=3)[0]
    draws = mixed.predict_f_samples(Xnew, 20_000, full_cov, seed=1).numpy()[..., 0]
    mean, variance = mixed.predict_f(Xnew)
    error = np.sqrt(variance[:, 0] / 20_000)
    assert (np.abs(draws.mean(0) - mean[:, 0]) < 4 * error).all()
    np.testing.assert_allclose(draws.var(0), variance[:, 0], rtol=0.06)
    again = mixed.predict_f_samples(Xnew, 20_000, full_cov, seed=1).numpy()[..., 0]
    np.testing.assert_array_equal(draws, again)


def test_equal_components_make_their_own_density() -> None:
    model = regression()
    mixed = ensemble_of_models([model, copy.deepcopy(model)], [0.3, 0.7])
    data = rows(9, seed=4)
    np.testing.assert_allclose(
        mixed.predict_log_density(data), model.predict_log_density(data), rtol=1e-9
    )


def few_steps(model: PEPRegression) -> None:
    """Train outside a graph, which is quick for so few rows."""
    optimizer, variables = gpflow.optimizers.Scipy(), model.trainable_variables
    optimizer.minimize(model.training_loss, variables, compile=False, options={"maxiter": 2})


@pytest.mark.slow
def test_the_default_trains_by_maximise() -> None:
    mixed = ensemble_of_powers(regression(0.3), (0.0, 1.0))
    for one in mixed.models:
        other = regression(float(one.alpha.numpy()))
        maximise(other, progress=False)
        np.testing.assert_allclose(one.training_loss(), other.training_loss(), rtol=1e-6)


def test_alphas_are_trained_and_mixed() -> None:
    model = regression(0.3)
    before = gpflow.utilities.parameter_dict(model)
    before = {name: parameter.numpy() for name, parameter in before.items()}
    mixed = ensemble_of_powers(model, refit=few_steps)
    assert (
        [float(one.alpha.numpy()) for one in mixed.models]
        == [0.0, 0.5, 1.0]
        == [*mixed.record.alphas]
    )
    assert mixed.record.weights_from == "leave-one-out"
    densities = np.stack([one.loo_log_density() for one in mixed.models])
    np.testing.assert_allclose(mixed.weights, ensemble_weights(densities), atol=1e-9)
    np.testing.assert_allclose(mixed.record.log_densities, densities.mean(1), rtol=1e-9)
    for one in mixed.models:
        assert one.training_loss() < regression(float(one.alpha.numpy())).training_loss()
    for name, parameter in gpflow.utilities.parameter_dict(model).items():
        np.testing.assert_array_equal(parameter.numpy(), before[name], err_msg=name)
    reversed_order = ensemble_of_powers(model, (1.0, 0.5, 0.0), refit=few_steps)
    np.testing.assert_allclose(reversed_order.weights, mixed.weights.numpy()[::-1], atol=1e-9)


def test_held_out_rows_give_the_weights_where_there_are_some() -> None:
    model, validation = regression(), rows(20, seed=5)
    mixed = ensemble_of_powers(model, (0.0, 1.0), validation=validation, refit=False)
    densities = np.stack([one.predict_log_density(validation) for one in mixed.models])
    np.testing.assert_allclose(mixed.weights, ensemble_weights(densities), atol=1e-12)
    assert mixed.record.weights_from == "held-out"


def test_weights_are_equal_where_rows_cannot_be_left_out() -> None:
    mixed = ensemble_of_powers(regression(blocks=np.arange(40) // 5), (0.0, 1.0), refit=False)
    np.testing.assert_array_equal(mixed.weights, [0.5, 0.5])
    assert mixed.record.weights_from == "uniform"


def test_classification_is_mixed_too() -> None:
    X, Y = rows()
    data = X, (Y > 0.0).astype(float)
    model = PEP(data, gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Bernoulli(), X[:6])
    mixed = ensemble_of_powers(model, (0.0, 1.0), refit=False)
    probability = sum(w * m.predict_y(X)[0] for w, m in zip(mixed.weights.numpy(), mixed.models))
    mean, variance = mixed.predict_y(X)
    np.testing.assert_allclose(mean, probability, rtol=1e-10)
    np.testing.assert_allclose(variance, mean * (1.0 - mean), rtol=1e-7)
    with pytest.raises(ValueError, match="Gaussian noise"):
        mixed.predict_quantiles(X)


@pytest.mark.slow
def test_it_survives_what_models_survive(tmp_path) -> None:
    mixed = mixed_regression()
    Xnew = rows(5, seed=3)[0]
    expected = mixed.predict_y(Xnew)
    np.testing.assert_allclose(mixed.posterior().predict_y(Xnew)[1], expected[1], rtol=1e-8)
    copied = copy.deepcopy(mixed)
    np.testing.assert_allclose(copied.predict_y(Xnew)[0], expected[0], rtol=1e-10)
    other = ensemble_of_models([regression(0.0), regression(1.0)], "uniform")
    tf.train.Checkpoint(mixed).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(other).read(str(tmp_path / "checkpoint")).assert_consumed()
    np.testing.assert_allclose(other.predict_y(Xnew)[1], expected[1], rtol=1e-10)
    saved = tf.Module()
    saved.predict_y = tf.function(
        copied.predict_y, input_signature=[tf.TensorSpec([None, 1], tf.float64)]
    )
    saved.mixed = copied
    tf.saved_model.save(saved, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.predict_y(Xnew)[0], expected[0], rtol=1e-8)
    assert "models[1].alpha" in gpflow.utilities.tabulate_module_summary(mixed)


@pytest.mark.parametrize(
    ("models", "weights", "words"),
    [
        ([], "loo", "at least one model"),
        ([regression], "best", "'loo', 'uniform'"),
        ([regression], [0.5, 0.5], "1 numbers"),
        ([regression, regression], [-1.0, 2.0], "at least 0"),
    ],
)
def test_what_does_not_fit_is_refused(models, weights, words) -> None:
    with pytest.raises(ValueError, match=words):
        ensemble_of_models([make() for make in models], weights)


def test_a_power_that_fails_is_left_out() -> None:
    def train(model: PEPRegression) -> None:
        if model.alpha.numpy() == 0.5:
            raise ValueError("it ran off")

    with pytest.warns(UserWarning, match="alpha = 0.5 is left out of the ensemble: it ran off"):
        mixed = ensemble_of_powers(regression(), weights=[1.0, 1.0, 3.0], refit=train)
    assert mixed.record.alphas == (0.0, 1.0)
    np.testing.assert_allclose(mixed.weights, [0.25, 0.75])


def test_weights_are_refused_before_training() -> None:
    def train(model: PEPRegression) -> None:
        raise AssertionError("training began")

    for weights in ("best", [1.0, 2.0]):
        with pytest.raises(ValueError, match="weights: got"):
            ensemble_of_powers(regression(), weights=weights, refit=train)
    with pytest.raises(ValueError, match="at least one row"):
        ensemble_weights(np.zeros([2, 0]))


def test_a_variance_that_rounding_makes_negative_is_zero() -> None:
    X = np.repeat(np.linspace(0.0, 1.0, 20), 2)[:, None]
    kernel = gpflow.kernels.SquaredExponential(1e6, 2.0)
    likelihood = gpflow.likelihoods.Gaussian(1.1e-6)
    model = PEPRegression((X, np.sin(X)), kernel, X[::4].copy(), likelihood=likelihood)
    posterior = ensemble_posterior(model)
    assert np.min(posterior.posteriors[0].predict_f(X)[1]) < 0.0
    assert np.min(posterior.predict_f(X)[1]) == 0.0
    assert np.all(np.isfinite(posterior.predict_log_density((X, np.sin(X)))))


def test_a_row_of_nan_first_changes_no_other_prediction() -> None:
    """Gradient tapes stood still where the moments of such a row were computed: all became 0."""
    X, Y = rows()
    labels = (Y > 0.0).astype(float)
    kernel = gpflow.kernels.SquaredExponential(4.0, 0.3)
    model = PEP((X, labels), kernel, gpflow.likelihoods.Bernoulli(), X[:3].copy())
    mixed = Ensemble([model], near=[NearRows(5, None)])
    near = model.posterior(near=5)
    expected, (means, variances) = near.predict_f(X[:4] + 0.01), near.predict_f(X)
    mean = np.mean(means)
    of_nan = mean, np.mean(variances + (means - mean) ** 2)
    new = np.vstack([np.full_like(X[:1], np.nan), X[:4] + 0.01])
    for predict in (mixed.posterior().predict_f, tf.function(mixed.posterior().predict_f)):
        for part, one, others in zip(predict(new), of_nan, expected, strict=True):
            np.testing.assert_allclose(part[0, 0], one, rtol=1e-6)
            np.testing.assert_allclose(part[1:], others, rtol=1e-6)
