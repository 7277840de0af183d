"""Ensembles of models and the power chosen from data: weights, moments and scores."""

import copy
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close, refusals, regression_problem
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm, sem

import gpflow_pep as pep
from gpflow_pep import training
from gpflow_pep.models import PEP, PEPRegression
from gpflow_pep.training import (
    Ensemble,
    ensemble_of_powers,
    ensemble_weights,
    select_alpha,
)
from gpflow_pep.training.choosing.ensemble import ensemble_posterior


def rows(N: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 6.0, (N, 1))
    return X, np.sin(2.0 * X) + 0.2 * rng.standard_normal(X.shape)


X, Y = rows()
LABELS = (Y > 0.0).astype(float)
XNEW, YNEW = rows(5, seed=3)


def regression(
    alpha: float = 0.5, noise: float = 0.05, **options: Any
) -> PEPRegression:
    kernel = gpflow.kernels.SquaredExponential()
    return PEPRegression(
        (X, Y), kernel, X[:8], alpha=alpha, noise_variance=noise, **options
    )


def classification(kernel: Any = None, M: int = 6) -> PEP:
    kernel = kernel or gpflow.kernels.SquaredExponential()
    return PEP((X, LABELS), kernel, gpflow.likelihoods.Bernoulli(), X[:M].copy())


@pytest.mark.parametrize("prior_weight", [0.1, 0.25, 1.0])
def test_weights_are_the_best_of_the_simplex(prior_weight: float) -> None:
    """Where the Lagrange function has no slope the concave objective is at
    its maximum.
    """
    density = np.exp(np.random.default_rng(1).normal(size=(3, 50)))
    weights = ensemble_weights(np.log(density), prior_weight=prior_weight)
    assert np.all(weights > 0.0) and np.isclose(weights.sum(), 1.0)
    slope = (
        np.sum(density / (weights @ density), axis=1) + prior_weight * 50 / 3 / weights
    )
    assert_allclose(slope, slope[0], rtol=1e-8)


def test_weights_permute_with_components_and_have_a_floor() -> None:
    log_densities = np.random.default_rng(2).normal(size=(3, 30))
    assert_allclose(ensemble_weights(log_densities, prior_weight=1e9), 1 / 3, atol=1e-8)
    log_densities[1] = -np.inf
    log_densities[2, 3] = np.nan
    weights = ensemble_weights(log_densities)
    assert_allclose(ensemble_weights(log_densities[::-1]), weights[::-1], atol=1e-10)
    assert_allclose(weights[1], 1 / 15, rtol=1e-10)
    assert np.isclose(weights.sum(), 1.0) and (weights >= 1 / 15 - 1e-12).all()


def _mixed(components: list[tuple[float, float]], weights: list[float]) -> Ensemble:
    return training.ensemble_of_models(
        [regression(*component) for component in components], weights
    )


MIXTURES = {
    "one": lambda: _mixed([(0.5, 0.05)], [1.0]),
    "two": lambda: _mixed([(0.0, 0.02), (1.0, 0.2)], [1.0, 3.0]),
    "equal ones": lambda: _mixed([(0.5, 0.05)] * 2, [0.3, 0.7]),
}


@pytest.mark.near_copies("two")
@pytest.mark.parametrize("name", MIXTURES)
def test_moments_densities_and_quantiles_are_those_of_the_sum(name: str) -> None:
    mixed = MIXTURES[name]()
    w = mixed.weights.numpy()
    moments = zip(*(m.predict_y(XNEW) for m in mixed.models))
    means, variances = (np.stack(part)[..., 0] for part in moments)
    mean = w @ means
    moments = [part[:, 0] for part in mixed.predict_y(XNEW)]
    assert_allclose(moments, [mean, w @ (variances + means**2) - mean**2], rtol=1e-10)
    density = w @ norm.pdf(YNEW[:, 0], means, np.sqrt(variances))
    assert_allclose(mixed.predict_log_density((XNEW, YNEW)), np.log(density), rtol=1e-9)
    q = np.array([0.05, 0.3, 0.95])
    y = mixed.predict_quantiles(XNEW, q).numpy()[:, 0]
    each = norm.cdf(y, means[..., None], np.sqrt(variances)[..., None])
    below = np.einsum("k,knq->nq", w, each)
    assert_allclose(below, np.broadcast_to(q, below.shape), rtol=1e-9)
    mean, covariance = mixed.predict_f(XNEW, full_cov=True)
    expected = np.zeros([5, 5])
    for weight, model in zip(w, mixed.models):
        own_mean, own = model.predict_f(XNEW, full_cov=True)
        apart = (own_mean - mean).numpy()[:, 0]
        expected += weight * (own[0].numpy() + np.outer(apart, apart))
    assert_allclose(covariance[0], expected, rtol=1e-10)
    assert_allclose(mixed.predict_f(XNEW)[1][:, 0], np.diag(expected), rtol=1e-7)
    with pytest.raises(ValueError, match="got both"):
        mixed.predict_f(XNEW, True, True)


@pytest.mark.near_copies("False")
@pytest.mark.parametrize("full_cov", [False, True])
def test_samples_have_the_moments(full_cov: bool) -> None:
    mixed = MIXTURES["two"]()
    arguments = (XNEW[:3], 20_000, full_cov)
    draws, again = (
        mixed.predict_f_samples(*arguments, seed=1).numpy()[..., 0] for _ in "ab"
    )
    mean, variance = (part[:, 0] for part in mixed.predict_f(XNEW[:3]))
    assert (np.abs(draws.mean(0) - mean) < 4 * np.sqrt(variance / 20_000)).all()
    assert_allclose(draws.var(0), variance, rtol=0.06)
    assert_array_equal(draws, again)


def few_steps(model: PEPRegression) -> None:
    """Train outside a graph, which is quick for so few rows."""
    optimizer = gpflow.optimizers.Scipy()
    variables = model.trainable_variables
    optimizer.minimize(
        model.training_loss, variables, compile=False, options={"maxiter": 2}
    )


@pytest.mark.slow
def test_the_default_trains_by_maximise() -> None:
    for one in ensemble_of_powers(regression(0.3), (0.0, 1.0)).models:
        other = regression(float(one.alpha.numpy()))
        training.maximise(other, progress=False)
        assert_allclose(one.training_loss(), other.training_loss(), rtol=1e-6)


@pytest.mark.slow
def test_alphas_are_trained_and_mixed() -> None:
    model = regression(0.3)
    before = {k: v.numpy() for k, v in gpflow.utilities.parameter_dict(model).items()}
    mixed = ensemble_of_powers(model, refit=few_steps)
    powers = [float(one.alpha.numpy()) for one in mixed.models]
    assert powers == [0.0, 0.5, 1.0] == [*mixed.record.alphas]
    assert mixed.record.weights_from == "leave-one-out"
    densities = np.stack([one.loo_log_density() for one in mixed.models])
    assert_allclose(mixed.weights, ensemble_weights(densities), atol=1e-9)
    assert_allclose(mixed.record.log_densities, densities.mean(1), rtol=1e-9)
    for power, one in zip(powers, mixed.models):
        assert one.training_loss() < regression(power).training_loss()
    for name, parameter in gpflow.utilities.parameter_dict(model).items():
        assert_array_equal(parameter.numpy(), before[name], err_msg=name)
    reversed_order = ensemble_of_powers(model, (1.0, 0.5, 0.0), refit=few_steps)
    assert_allclose(reversed_order.weights, mixed.weights.numpy()[::-1], atol=1e-9)


def test_where_weights_are_from() -> None:
    validation = rows(20, seed=5)
    mixed = ensemble_of_powers(
        regression(), (0.0, 1.0), validation=validation, refit=False
    )
    densities = np.stack([one.predict_log_density(validation) for one in mixed.models])
    assert_allclose(mixed.weights, ensemble_weights(densities), atol=1e-12)
    assert mixed.record.weights_from == "held-out"
    # Blocks are not left out row by row.
    mixed = ensemble_of_powers(
        regression(blocks=np.arange(40) // 5), (0.0, 1.0), refit=False
    )
    assert_array_equal(mixed.weights, [0.5, 0.5])
    assert mixed.record.weights_from == "uniform"


def test_classification_is_mixed_too() -> None:
    mixed = ensemble_of_powers(classification(), (0.0, 1.0), refit=False)
    probability = sum(
        w * m.predict_y(X)[0] for w, m in zip(mixed.weights.numpy(), mixed.models)
    )
    mean, variance = mixed.predict_y(X)
    assert_allclose(mean, probability, rtol=1e-10)
    assert_allclose(variance, mean * (1.0 - mean), rtol=1e-7)
    with pytest.raises(ValueError, match="Gaussian noise"):
        mixed.predict_quantiles(X)


def test_it_survives_what_models_survive(tmp_path) -> None:
    mixed = MIXTURES["two"]()
    expected = mixed.predict_y(XNEW)
    copied = copy.deepcopy(mixed)
    other = _mixed([(0.0, 0.05), (1.0, 0.05)], "uniform")
    tf.train.Checkpoint(mixed).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(other).read(str(tmp_path / "checkpoint")).assert_consumed()
    for each in (mixed.posterior(), copied, other):
        assert_allclose(each.predict_y(XNEW), expected, rtol=1e-8)
    assert "models[1].alpha" in gpflow.utilities.tabulate_module_summary(mixed)


def test_a_power_that_fails_is_left_out() -> None:
    def train(model: PEPRegression) -> None:
        if model.alpha.numpy() == 0.5:
            raise ValueError("it ran off")

    with pytest.warns(
        UserWarning, match="alpha = 0.5 is left out of the ensemble: it ran off"
    ):
        mixed = ensemble_of_powers(regression(), weights=[1.0, 1.0, 3.0], refit=train)
    assert mixed.record.alphas == (0.0, 1.0)
    assert_allclose(mixed.weights, [0.25, 0.75])


def _not_trained(weights: Any) -> Ensemble:
    return ensemble_of_powers(
        regression(), weights=weights, refit=lambda _: pytest.fail("trained")
    )


NONE = np.array([[0.0, -np.inf], [0.0, np.nan]])
REFUSED = {
    "at least one model": lambda: training.ensemble_of_models([]),
    "'loo', 'uniform'": lambda: training.ensemble_of_models([regression()], "best"),
    "1 numbers": lambda: _mixed([(0.5, 0.05)], [0.5, 0.5]),
    "at least 0": lambda: _mixed([(0.5, 0.05)] * 2, [-1.0, 2.0]),
    "weights: got 'best'": lambda: _not_trained("best"),
    r"weights: got \[1": lambda: _not_trained([1.0, 2.0]),
    "at least one row": lambda: ensemble_weights(np.zeros([2, 0])),
    "log_densities: got no finite density in 1 row": lambda: ensemble_weights(NONE),
    "prior_weight: got -1": lambda: ensemble_weights(np.zeros([2, 3]), prior_weight=-1),
}
test_what_does_not_fit_is_refused = refusals(REFUSED)


def test_a_variance_that_rounding_makes_negative_is_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Factors keep variances positive nearly everywhere: the rounding is put in."""
    rows = np.linspace(0.0, 1.0, 20)[:, None]
    kernel = gpflow.kernels.SquaredExponential(1.0, 0.3)
    model = PEPRegression((rows, np.sin(rows)), kernel, rows[::4].copy())
    posterior = ensemble_posterior(model)
    mean, variance = posterior.posteriors[0].predict_f(rows)
    rounded = variance - tf.eye(20, 1, dtype=variance.dtype) * 2.0
    monkeypatch.setattr(
        posterior.posteriors[0], "predict_f", lambda *_: (mean, rounded)
    )
    found = posterior.predict_f(rows)[1].numpy()
    assert found[0] == 0.0
    assert_array_equal(found[1:], variance[1:])
    assert np.all(np.isfinite(posterior.predict_log_density((rows, np.sin(rows)))))


@pytest.mark.slow
def test_a_row_of_nan_first_changes_no_other_prediction() -> None:
    model = classification(gpflow.kernels.SquaredExponential(4.0, 0.3), M=3)
    mixed = Ensemble([model], near=[training.NearRows(5, None)])
    near = model.posterior(near=5)
    expected, (means, variances) = near.predict_f(X[:4] + 0.01), near.predict_f(X)
    mean = np.mean(means)
    of_nan = mean, np.mean(variances + (means - mean) ** 2)
    new = np.vstack([np.full_like(X[:1], np.nan), X[:4] + 0.01])
    for predict in (
        mixed.posterior().predict_f,
        tf.function(mixed.posterior().predict_f),
    ):
        for part, one, others in zip(predict(new), of_nan, expected, strict=True):
            assert_allclose(part[0, 0], one, rtol=1e-6)
            assert_allclose(part[1:], others, rtol=1e-6)


# The power chosen from data.

PROBLEM = regression_problem(num_data=30)
HELD = regression_problem(seed=1, num_data=12)
ALPHAS = (0.0, 1.0)


def of_power(alpha: Any = 0.3, **options: Any) -> pep.PEPRegression:
    return pep.PEPRegression(
        PROBLEM.data, PROBLEM.kernel(), PROBLEM.Z, alpha=alpha, **options
    )


def tied(name: str) -> Any:
    noise = gpflow.likelihoods.Gaussian(0.1)
    return getattr(pep, name)(PROBLEM.kernel(), noise, PROBLEM.Z, num_data=30)


def five_steps(model: Any) -> None:
    training.maximise(model, max_iterations=5, progress=False)


@pytest.mark.slow
def test_it_is_the_best_of_models_trained_alone() -> None:
    model = of_power()
    alone = [of_power(alpha) for alpha in ALPHAS]
    found = select_alpha(model, ALPHAS, refit=five_steps)
    for one in alone:
        five_steps(one)
    densities = np.array([one.loo_log_density() for one in alone])
    means, errors = densities.mean(axis=1), lambda values: sem(values, axis=1)
    best = int(np.argmax(means))
    assert found.alpha == ALPHAS[best] == float(model.alpha.numpy())
    assert found.rows == "leave-one-out"
    behind = densities[best] - densities
    expected = [ALPHAS, means, errors(densities), behind.mean(axis=1), errors(behind)]
    got = np.array([score[:5] for score in found.scores]).T
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)
    assert_close(np.mean(model.loo_log_density()), means[best], rtol=1e-9)


def test_the_order_does_not_matter() -> None:
    def grow(model: Any) -> None:
        model.kernel.variance.assign(2.0 * model.kernel.variance)

    one, other = (
        select_alpha(of_power(), order, refit=grow) for order in ((0, 1), (1, 0))
    )
    assert one.alpha == other.alpha
    scores = [[score.log_density for score in found.scores] for found in (one, other)]
    assert_close(scores[0], scores[1][::-1], rtol=1e-12)


def test_held_out_rows_without_refit() -> None:
    model = tied("APEP")
    before = model.q_mu.numpy()
    found = select_alpha(model, (0.5, 1.0), validation=HELD.data, refit=False)
    mean, variance = (part.numpy() for part in model.predict_f(HELD.X))
    expected = norm(mean, np.sqrt(variance + 0.1)).logpdf(HELD.Y).mean()
    assert_close(
        [score.log_density for score in found.scores], [expected] * 2, rtol=1e-10
    )
    assert found.alpha == 0.5, "the first of equal ones"
    assert found.rows == "held-out"
    np.testing.assert_array_equal(before, model.q_mu.numpy())


def test_a_power_that_fails_is_told_and_left_out() -> None:
    model = of_power(alpha=0.0)

    def refit(model: Any) -> None:
        if model.alpha.numpy() == 0.5:
            raise ValueError("alpha: got 0.5")

    with pytest.warns(UserWarning, match="alpha = 0.5 has no score: alpha: got"):
        found = select_alpha(model, (0.0, 0.5), refit=refit)
    assert found.alpha == 0.0 == float(model.alpha.numpy())
    assert np.isnan(found.scores[1].log_density)
    with pytest.raises(
        ValueError, match=r"alphas: got 0\.5, expected at least one power at which"
    ):
        select_alpha(model, (0.5,), refit=refit)
    assert float(model.alpha.numpy()) == 0.0


def test_an_error_leaves_the_model_as_it_was() -> None:
    def spoil(model: Any) -> None:
        model.kernel.variance.assign(50.0)
        raise KeyError("of the user's")

    model = of_power()
    with pytest.raises(KeyError):
        select_alpha(model, refit=spoil)
    found = model.kernel.variance.numpy(), model.alpha.numpy()
    assert_close(found, (PROBLEM.variance, 0.3))


def chosen(**options: Any) -> Any:
    return select_alpha(of_power(), **options)


REFUSED_POWERS = {
    r"alphas: got \(\), expected powers in \[0, 1\]": lambda: chosen(alphas=()),
    "alphas: got .0.5, 2": lambda: chosen(alphas=(0.5, 2.0)),
    "refit: got 'yes', expected True, False or a function": lambda: chosen(refit="yes"),
    "validation: got one row": lambda: chosen(validation=(HELD.X[:1], HELD.Y[:1])),
    "inducing_variable: got 2": lambda: chosen(validation=(HELD.X[:, :1], HELD.Y)),
    "model: got powers of shape .30,., expected one": lambda: select_alpha(
        of_power(np.full(30, 0.5))
    ),
    "model: got GPR, expected a model of gpflow_pep.models. Other models": (
        lambda: select_alpha(gpflow.models.GPR(PROBLEM.data, PROBLEM.kernel()))
    ),
    "model: got PEPRegressor, .* alpha='auto'": lambda: select_alpha(
        pep.estimators.PEPRegressor()
    ),
    "validation: got no rows for ARPEP": lambda: select_alpha(tied("ARPEP")),
    "refit: got True with ARPEP": lambda: select_alpha(
        tied("ARPEP"), validation=HELD.data
    ),
}
test_refused = refusals(REFUSED_POWERS)
