"""Predictions as GPflow makes them: covariances, samples, leading axes, posteriors' caches."""

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.models import gaussian_model
from gpflow.posteriors import PrecomputeCacheType
from helpers import assert_all_close, assert_close, regression_problem

PROBLEM = regression_problem(6, num_data=10, num_inducing=4, num_outputs=2)
XNEW = PROBLEM.Xnew


def _tied() -> Any:
    q_mu = np.random.default_rng(0).standard_normal((4, 2))
    q_sqrt = np.tile(0.3 * np.eye(4), [2, 1, 1])
    mean = gpflow.functions.Constant(0.3)
    return gaussian_model("APEP", PROBLEM, q_mu=q_mu, q_sqrt=q_sqrt, mean_function=mean)


_regression = partial(gaussian_model, "PEPRegression", PROBLEM, noise_variance=None)
_blocks = partial(_regression, blocks=np.arange(10) // 3)
_point = partial(gaussian_model, "PEP", PROBLEM)
MODELS = [
    pytest.param(_regression, id="PEPRegression"),
    pytest.param(_tied, id="APEP"),
    pytest.param(_blocks, id="with blocks", marks=pytest.mark.slow),
    pytest.param(_point, id="PEP", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    """One of each, which tests leave as it was."""
    return request.param()


def test_covariances_agree_with_each_other(model: Any) -> None:
    mean, variance = model.predict_f(XNEW)
    assert mean.shape == variance.shape == (6, 2)
    same_mean, of_rows = model.predict_f(XNEW, full_cov=True)
    assert_close(same_mean, mean, rtol=1e-9)
    assert of_rows.shape == (2, 6, 6)
    assert_close(tf.linalg.diag_part(of_rows), tf.transpose(variance), rtol=1e-9)
    assert np.all(np.linalg.eigvalsh(of_rows) > -1e-9)
    of_outputs = model.predict_f(XNEW, full_output_cov=True)[1]
    assert_close(of_outputs, tf.linalg.diag(variance), rtol=1e-9)
    of_both = model.predict_f(XNEW, full_cov=True, full_output_cov=True)[1]
    assert of_both.shape == (6, 2, 6, 2)
    for p in range(2):
        assert_close(of_both[:, p, :, p], of_rows[p], rtol=1e-9)
    assert_close(of_both[:, 0, :, 1], np.zeros((6, 6)), scale=1.0)


@pytest.mark.parametrize("num_samples", [None, 500])
@pytest.mark.parametrize("full_cov", [False, True])
def test_samples(model: Any, num_samples: int | None, full_cov: bool) -> None:
    tf.random.set_seed(0)
    samples = model.predict_f_samples(XNEW, num_samples, full_cov=full_cov)
    assert samples.shape == ((6, 2) if num_samples is None else (num_samples, 6, 2))
    if num_samples is not None:
        mean, variance = model.predict_f(XNEW)
        spread = np.sqrt(variance / num_samples)
        assert np.all(np.abs(np.mean(samples, axis=0) - mean) < 4.5 * spread)
        assert_close(np.var(samples, axis=0), variance, rtol=0.4)


def test_leading_axes_of_new_rows(model: Any) -> None:
    """[batch..., N, D], as GPflow has it; its posteriors take no such rows from a cache."""
    many = np.stack([XNEW, XNEW[::-1], XNEW + 0.1])[:, None]  # [3, 1, 6, 2]
    for full_cov in (False, True):
        mean, variance = model.predict_f(many, full_cov=full_cov)
        for k in range(3):
            expected = model.predict_f(many[k, 0], full_cov=full_cov)
            assert_close(mean[k, 0], expected[0], rtol=1e-8)
            assert_close(variance[k, 0], expected[1], rtol=1e-7)
    assert model.predict_y(many)[0].shape == (3, 1, 6, 2)


@pytest.mark.parametrize("cache", list(PrecomputeCacheType))
def test_posterior_caches(model: Any, cache: PrecomputeCacheType) -> None:
    """What is cached stays as it was until it is updated; what is fused is as the model is now."""
    posterior = model.posterior(cache)
    before = model.predict_f(XNEW)
    cached = cache is not PrecomputeCacheType.NOCACHE
    if not cached:
        with pytest.raises(ValueError, match=r"cache: got none|Cache has not been precomputed"):
            posterior.predict_f(XNEW)
    variable = model.kernel.lengthscales.unconstrained_variable
    old = variable.numpy()
    variable.assign_add(0.3 * tf.ones_like(variable))
    try:
        after = model.predict_f(XNEW)
        assert np.max(np.abs(after[1] - before[1])) > 1e-3
        assert_all_close(posterior.fused_predict_f(XNEW), after, rtol=1e-7)
        held = posterior.cache
        posterior.update_cache(None if cached else PrecomputeCacheType.TENSOR)
        assert_all_close(posterior.predict_f(XNEW), after, rtol=1e-7)
        if cache is PrecomputeCacheType.VARIABLE:
            assert all(one is other for one, other in zip(held, posterior.cache))
    finally:
        variable.assign(old)


@pytest.mark.slow
def test_a_cache_of_variables_serves_a_compiled_function(model: Any) -> None:
    posterior = model.posterior(PrecomputeCacheType.VARIABLE)
    predict = tf.function(posterior.predict_f)
    predict(XNEW)
    variable = model.kernel.variance.unconstrained_variable
    old = variable.numpy()
    variable.assign_add(0.5)
    try:
        posterior.update_cache()
        assert_all_close(predict(XNEW), model.predict_f(XNEW), rtol=1e-7)
        assert predict.experimental_get_tracing_count() == 1
    finally:
        variable.assign(old)
