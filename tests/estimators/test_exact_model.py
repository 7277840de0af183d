"""Exact components in NumPy: against the model of TensorFlow, which is made only when
it is asked for.
"""

import pickle
from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.base import AnyNDArray
from gpflow.config import Config, as_context
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_pep import models
from gpflow_pep.engine.left_out_rows import numbers_of_copies
from gpflow_pep.engine.numerics.linalg import JitterWarning
from gpflow_pep.estimators import PEPRegressor
from gpflow_pep.estimators.single.exact import LEAST_PARAMETER
from gpflow_pep.estimators.single.exact_model import POWER, ExactModel
from gpflow_pep.estimators.single.parts import hyperparameters_of
from gpflow_pep.estimators.single.regression import SingleRegressor
from gpflow_pep.estimators.single.settings import ModelSettings
from gpflow_pep.models import PEPRegression
from gpflow_pep.scoring.components import latent_moments

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)) * [1.0, 10.0, 0.1]
Y = np.exp(np.sin(X[:, :1]) + 0.1 * X[:, 1:2] + 0.2 * RNG.normal(size=(40, 1)))
XNEW = RNG.normal(size=(25, 3)) * [2.0, 20.0, 0.2]
XNEW[:5] = X[:5]

SETTINGS: dict[str, dict[str, Any]] = {
    "squared exponential": {"kernel": "rbf"},
    "Matern": {"kernel": "matern52"},
    "additive": {"kernel": "additive"},
    "auto": {},
    "one lengthscale": {"kernel": "matern52", "ard": False},
    "alike lengthscales": {"kernel": "additive", "ard": 0.5},
    "varying noise": {"kernel": "rbf", "noise": "varying"},
    "a line": {"kernel": "matern52", "time": 1},
    "a line and parts": {"kernel": "additive", "time": 0, "noise": "varying"},
    "warped": {"kernel": "matern52", "warp": True},
    "bent": {"kernel": "rbf", "inputs": "yeo-johnson"},
    "logarithms": {"kernel": "rbf", "likelihood": "log_normal"},
    "own units": {"kernel": "rbf", "standardize": False},
}


def single(**settings: Any) -> SingleRegressor:
    plain = {"noise": "constant", "warp": False, "inputs": "standard"}
    return SingleRegressor(ModelSettings(inducing="rows", **{**plain, **settings}))


def check_equal(fitted: SingleRegressor, copies: AnyNDArray | None = None) -> None:
    """NumPy's moments of f, of y and of rows left out are those of the model."""
    exact = fitted.exact
    assert exact is not None
    rows = fitted.in_units(XNEW)
    model: Any = fitted.model
    (component,), weights = fitted.mixture_in_numpy()
    assert_array_equal(weights, [1.0])
    _, variance = map(np.asarray, model.predict_y(rows))
    scale = np.sqrt(variance)
    mean, of_f = map(np.asarray, model.predict_f(rows))
    found_mean, found_of_f = latent_moments(component, rows)
    assert_allclose(found_mean / scale, mean / scale, atol=1e-9)
    assert_allclose(found_of_f / variance, of_f / variance, atol=1e-9)
    predicted = fitted.predictive(XNEW)
    assert_allclose(predicted.variances[0], variance[:, 0], rtol=1e-9)
    mean, variance = (np.asarray(part)[:, 0] for part in model.loo_moments(copies))
    found_mean, found_variance = exact.left_out(copies)
    scale = np.sqrt(variance)
    assert_allclose(found_mean / scale, mean / scale, atol=1e-9)
    assert_allclose(found_variance, variance, rtol=1e-9)
    (anywhere,) = fitted.posterior.moments_anywhere()
    assert_allclose(component.any_row, anywhere, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", SETTINGS)
def test_it_equals_the_model_of_tensorflow(name: str) -> None:
    fitted = single(max_iterations=4, **SETTINGS[name]).fit(X, Y)
    assert fitted._model is None
    check_equal(fitted)
    model: Any = fitted.model
    assert type(model) is PEPRegression and model is fitted.model
    assert not model.inducing_variable.Z.trainable
    theta = hyperparameters_of(model, fitted.units.skew, fitted.units.tails)
    assert theta is not None
    assert_allclose(np.hstack(fitted.hyperparameters()), np.hstack(theta), rtol=1e-9)
    terms = getattr(model.kernel, "kernels", [model.kernel])
    fixed = [
        each for term in terms[1:] for each in term.parameters if not each.trainable
    ]
    assert len(fixed) == len(terms) - 1  # lengthscales of parts, the slope of a line


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_with_the_same_inputs() -> None:
    inputs = np.vstack([X, X[:7], X[:2]])
    targets = np.vstack([Y, Y[:4], 2.0 * Y[4:9]])
    fitted = single(kernel="rbf", max_iterations=4).fit(inputs, targets)
    assert fitted.exact is not None and len(fitted.exact.points) == len(X)
    check_equal(fitted, numbers_of_copies(inputs, np.round(targets)))
    check_equal(fitted, np.where(np.arange(49) < 4, 2, 1))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("size", [1.0, 1e-2])
def test_hardly_any_noise(size: float) -> None:
    """In small units it is as large as GPflow's bound."""
    inputs = np.linspace(-3.0, 3.0, 40)[:, None]
    fitted = single(kernel="rbf", max_iterations=40, standardize=size == 1.0)
    fitted.fit(inputs, size * np.sin(inputs))
    assert fitted.exact is not None
    noise = np.exp(fitted.exact.theta.log_noise)
    assert noise < 3e-6 and (size == 1.0 or noise == pytest.approx(LEAST_PARAMETER))
    mean, variance = left_out_in_more_digits(fitted.exact)
    found_mean, found_variance = fitted.exact.left_out()
    assert_allclose(found_mean / np.sqrt(variance), mean / np.sqrt(variance), atol=1e-8)
    assert_allclose(found_variance, variance, rtol=1e-8)


def left_out_in_more_digits(exact: ExactModel) -> tuple[AnyNDArray, AnyNDArray]:
    """Leave rows out by the inverse of the covariance of all, with one input, the
    squared exponential kernel and constant noise.
    """
    theta = exact.theta
    x = exact.X[:, 0].astype(np.longdouble) / np.exp(theta.log_lengthscales[0])
    t = exact.t.astype(np.longdouble)
    K = np.exp(theta.log_variance) * np.exp(-0.5 * np.subtract.outer(x, x) ** 2)
    noise = np.exp(theta.log_noise)
    jitter = gpflow.config.default_jitter()
    eye = np.eye(len(x))
    rest = jitter * eye - jitter**2 * inverse(K + jitter * eye)
    d = np.diag(rest)
    P = inverse(K - rest + np.diag(noise + POWER * d))
    mean = t - P @ t / np.diag(P)
    variance = 1.0 / np.diag(P) + (1.0 - POWER) * d
    return mean.astype(float), variance.astype(float)


def inverse(A: AnyNDArray) -> AnyNDArray:
    """Invert a positive definite matrix of any kind of numbers."""
    both = np.hstack([A, np.eye(len(A), dtype=A.dtype)])
    for i in range(len(A)):
        both[i] /= both[i, i]
        others = np.arange(len(A)) != i
        both[others] -= np.outer(both[others, i], both[i])
    return both[:, len(A) :]


def test_a_default_fit_makes_no_model_until_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a model of TensorFlow was made")

    monkeypatch.setattr(models, "PEPRegression", refuse)
    monkeypatch.setattr(gpflow.kernels.Kernel, "__init__", refuse)
    monkeypatch.setattr(gpflow.likelihoods.Likelihood, "__init__", refuse)
    fitted = PEPRegressor(random_state=0).fit(X, Y[:, 0])
    before = fitted.predict(XNEW, return_std=True)
    fitted.predict_f(XNEW, return_std=True)
    fitted.predict_quantiles(XNEW)
    fitted.predict_interval(XNEW)
    fitted.log_densities(X, Y[:, 0])
    fitted.score(X, Y[:, 0])
    fitted.far_rows(XNEW)
    fitted.summary()
    pickled = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(pickled.predict(XNEW, return_std=True), before)
    again = fitted.set_params(warm_start=True).fit(X, Y[:, 0])
    monkeypatch.undo()
    assert isinstance(again.model_, PEPRegression)
    assert again.num_inducing_ == len(X)
    assert isinstance(again.kernel_, gpflow.kernels.Kernel)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_tensorflow_predicts_if_a_factor_needs_more_jitter() -> None:
    near = np.vstack([X, X[:9] + 1e-12])
    targets = np.vstack([Y, Y[:9]])
    with as_context(Config(jitter=0.0)), pytest.warns(JitterWarning):
        fitted = single(kernel="rbf", max_iterations=2).fit(near, targets)
        assert fitted.exact is None and isinstance(fitted.model, PEPRegression)
        assert np.isfinite(fitted.predictive(XNEW).moments()).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_single_precision_is_left_to_tensorflow() -> None:
    with as_context(Config(float=np.float32, jitter=1e-4)):
        fitted = PEPRegressor("rbf", inducing="rows", max_iterations=2).fit(X, Y[:, 0])
        assert fitted.components_[0].exact is None
        assert fitted.predict(XNEW).dtype == np.float32


def test_another_model_replaces_it() -> None:
    fitted = single(kernel="rbf", max_iterations=3).fit(X, Y)
    model: Any = fitted.model
    model.kernel.variance.assign(9.0)
    fitted.set_model(model)
    assert fitted.exact is None
    expected = np.asarray(model.predict_y(fitted.in_units(XNEW))[0])[:, 0]
    assert_allclose(fitted.predictive(XNEW).means[0], expected, rtol=1e-8, atol=1e-8)
