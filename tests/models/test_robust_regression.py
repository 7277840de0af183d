"""Robust and conjugate regression: against the paper's formulas, GPflow's models, and outliers."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Constant
from gpflow.kernels import Matern32
from helpers import assert_close, finite_difference_gradient, gradients
from reference import robust as reference

import gpflow_pep as pep
from gpflow_pep.likelihoods import PerOutput, RobustGaussian

NOISE, THRESHOLD = 0.05, 0.7
rng = np.random.default_rng(3)
X = np.sort(rng.uniform(0.0, 4.0, (14, 1)), axis=0)
Y = np.sin(2.0 * X) + 0.2 * rng.standard_normal(X.shape)
Y[[3, 9]] += [[4.0], [-6.0]]
X_NEW = np.linspace(-0.5, 4.5, 5)[:, None]
Z = X[::3] + 0.05
ALPHAS = (0.0, 1e-6, 0.3, 0.5, 1.0)


def _likelihood(**options: Any) -> RobustGaussian:
    return RobustGaussian(NOISE, THRESHOLD, **options)


def _model(points: Any = Z, **options: Any) -> Any:
    options = {"likelihood": _likelihood(), **options}
    return pep.PEPRegression((X, Y), Matern32(lengthscales=0.6), points.copy(), **options)


@pytest.mark.parametrize("y", [-3.0, 0.2, 0.9, 50.0])
def test_the_factor_is_what_the_loss_says(y: float) -> None:
    """The loss is less the log of the factor, but for what does not depend on f."""
    likelihood = _likelihood(centre=Constant([0.3]))
    target, variance = likelihood.pseudo_targets(np.zeros((1, 1)), np.array([[y]]))
    f = np.linspace(-4.0, 4.0, 9)
    difference = reference.loss(y, f, 0.3, NOISE, THRESHOLD) - 0.5 * (f - target[0]) ** 2 / variance
    assert np.ptp(difference) <= 1e-11 * np.max(np.abs(difference))
    square = reference.weight(np.array(y), np.array(0.3), NOISE, THRESHOLD) ** 2
    weights = likelihood.weights(np.zeros((1, 1)), np.array([[y]]))
    assert_close(weights, [[square * 2.0 / NOISE]], rtol=1e-12)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_inducing_inputs_at_all_data_are_the_paper(alpha: float) -> None:
    kernel, ones = Matern32(lengthscales=0.6), np.ones(len(X))
    expected = reference.regression(
        kernel(X).numpy(),
        kernel(X_NEW).numpy(),
        kernel(X_NEW, X).numpy(),
        Y[:, 0],
        0.4 * ones,
        NOISE,
        THRESHOLD,
    )
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-13)):
        mean_function = Constant([0.4])
        model = _model(
            X,
            alpha=alpha,
            mean_function=mean_function,
            likelihood=_likelihood(centre=mean_function),
        )
        mean, covariance = model.predict_f(X_NEW, full_cov=True)
        assert_close(mean[:, 0] - 0.4, expected.mean, rtol=1e-8)
        assert_close(covariance[0], expected.covariance, rtol=1e-8, scale=1.0)
        log_Z = model.pep_log_marginal_likelihood()
        assert_close(log_Z, expected.log_evidence, rtol=1e-8)
        for actual, part in zip(model.loo_moments(), expected.left_out):
            assert_close(actual[:, 0], part, rtol=1e-8)
        assert_close(model.predict_y(X_NEW)[1], np.diag(covariance[0])[:, None] + NOISE, rtol=1e-12)


class _NoiseOfRows(gpflow.functions.Function):
    """The variance of the row with the same input."""

    def __init__(self, values: Any) -> None:
        super().__init__()
        self.values = tf.constant(values)

    def __call__(self, rows: Any) -> tf.Tensor:
        nearest = tf.argmin(tf.abs(tf.convert_to_tensor(rows) - X[:, 0]), axis=-1)
        return tf.gather(self.values, nearest)


@pytest.mark.parametrize("alpha, theirs", [(0.0, "SGPR"), (1.0, "GPRFITC")])
def test_both_ends_are_gpflow(alpha: float, theirs: str) -> None:
    """With the pseudo-targets, and their variances as noise that depends on the input."""
    targets, variance = _likelihood().pseudo_targets(X, Y)
    noise = gpflow.likelihoods.Gaussian(variance=_NoiseOfRows(variance))
    model_class = getattr(gpflow.models, theirs)
    kernel = Matern32(lengthscales=0.6)
    expected = model_class((X, targets), kernel, Z.copy(), likelihood=noise)
    model = _model(alpha=alpha)
    log_Z = expected.maximum_log_likelihood_objective()
    assert_close(model.pep_log_marginal_likelihood(), log_Z, rtol=1e-8)
    for actual, part in zip(model.predict_f(X_NEW), expected.predict_f(X_NEW)):
        assert_close(actual, part, rtol=1e-7)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_a_large_threshold_is_gaussian_noise(alpha: float) -> None:
    far = _model(alpha=alpha, likelihood=RobustGaussian(NOISE, 1e7))
    plain = _model(alpha=alpha, likelihood=gpflow.likelihoods.Gaussian(NOISE))
    for actual, part in zip(far.evidence_and_left_out(), plain.evidence_and_left_out()):
        assert_close(actual, part, rtol=1e-10)


@pytest.mark.parametrize("alpha", [0.5, 0.0, 1.0])
@pytest.mark.near_copies
def test_sites_of_an_inner_loop_are_the_same(alpha: float) -> None:
    general = pep.PEP((X, Y), Matern32(lengthscales=0.6), _likelihood(), Z.copy(), alpha=alpha)
    log_Z = _model(alpha=alpha).pep_log_marginal_likelihood()
    assert_close(general.pep_log_marginal_likelihood(), log_Z, rtol=1e-8)


@pytest.mark.parametrize(
    "options",
    [{"neighbours": 3}, {"blocks": np.arange(14) // 5}, {"conditional": "scaled"}],
    ids=["neighbours", "blocks", "scaled"],
)
def test_rows_in_groups(options: dict[str, Any]) -> None:
    """They are those of the pseudo-targets, with their variances as noise."""
    targets, variance = _likelihood().pseudo_targets(X, Y)
    noise = gpflow.likelihoods.Gaussian(variance=_NoiseOfRows(variance))
    kernel = Matern32(lengthscales=0.6)
    plain = pep.PEPRegression((X, targets), kernel, Z.copy(), likelihood=noise, **options)
    model = _model(**options)
    log_Z = plain.pep_log_marginal_likelihood()
    assert_close(model.pep_log_marginal_likelihood(), log_Z, rtol=1e-10)
    for actual, part in zip(model.predict_f(X_NEW), plain.predict_f(X_NEW)):
        assert_close(actual, part, rtol=1e-9)


@pytest.mark.parametrize("alpha", [0.5, 0.0, 1.0])
@pytest.mark.near_copies
def test_gradients_equal_finite_differences(alpha: float) -> None:
    """In the variance, the threshold and the centre; of log Z and of left-out densities."""
    likelihood = _likelihood(centre=Constant([0.3]))
    gpflow.set_trainable(likelihood.threshold, True)
    model = _model(alpha=alpha, likelihood=likelihood)

    def both() -> tf.Tensor:
        log_Z, left_out = model.evidence_and_left_out()
        return log_Z + 0.7 * left_out

    variables = likelihood.trainable_variables
    assert len(variables) == 3
    for variable, actual in zip(variables, gradients(both, variables)):
        expected = finite_difference_gradient(both, variable)
        assert_close(actual, expected, rtol=1e-7, scale=1.0)


def test_training_with_outliers() -> None:
    """The function is found, the noise is that of the others, and the outliers hardly count."""
    random = np.random.default_rng(0)
    rows = np.sort(random.uniform(-3.0, 3.0, (120, 1)), axis=0)
    f, outlier = np.sin(2.0 * rows) + rows, random.random(rows.shape) < 0.15
    targets = f + 0.2 * random.standard_normal(rows.shape)
    targets = np.where(outlier, targets + random.uniform(2.0, 6.0, rows.shape), targets)
    likelihood = RobustGaussian(0.1)
    kernel = gpflow.kernels.SquaredExponential()
    model = pep.PEPRegression((rows, targets), kernel, rows[::8].copy(), likelihood=likelihood)
    records = pep.training.maximise_robust(model, progress=False, max_iterations=40)
    assert len(records) == 3 and all(np.isfinite(record.objective) for record in records)
    mean, _ = model.predict_f(rows)
    assert np.sqrt(np.mean((mean - f) ** 2)) < 0.1
    assert 0.15 < float(likelihood.variance.numpy()) ** 0.5 < 0.3
    weights = likelihood.weights(rows, targets).numpy()
    assert weights[outlier].max() < 0.1 and np.median(weights[~outlier]) > 0.7
    assert likelihood.centre.variables and not likelihood.centre.trainable_variables


def _two_columns() -> Any:
    return pep.PEPRegression((X, np.hstack([Y, Y])), Matern32(), Z, likelihood=_likelihood())


def _missing() -> Any:
    return pep.PEPRegression(
        (X, np.where(X > 1.0, Y, np.nan)), Matern32(), Z, likelihood=_likelihood()
    )


def _per_output() -> Any:
    kernel = gpflow.kernels.LinearCoregionalization([Matern32()], W=np.ones((2, 1)))
    likelihood = PerOutput([_likelihood(), _likelihood()])
    return pep.PEPRegression((X, np.hstack([Y, Y])), kernel, Z, likelihood=likelihood)


@pytest.mark.parametrize(
    "call, message",
    [
        (_two_columns, "Y: got 2 columns, expected 1 for the likelihood RobustGaussian"),
        (_missing, "Y: got nan at row 0, expected finite numbers"),
        (_per_output, "likelihood: got PerOutput, expected a gpflow.likelihoods.Gaussian"),
        (lambda: RobustGaussian(0.1, threshold=0.0), "threshold: got 0.0, expected a positive"),
        (
            lambda: pep.training.maximise_robust(_model(likelihood=gpflow.likelihoods.Gaussian())),
            "model: got a PEPRegression of Gaussian noise, expected .* RobustGaussian noise",
        ),
        (
            lambda: pep.training.maximise_robust(_model(), threshold=0.0),
            "threshold: got 0.0, expected a positive number",
        ),
        (
            lambda: pep.training.maximise_robust(_model(), num_inducing="auto"),
            "num_inducing: got 'auto', expected none of it",
        ),
    ],
)
def test_refusals(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
