"""Predictions as GPflow makes them: covariances, samples, leading axes, posteriors'
caches.
"""

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.models import OUTPUTS, XNEW, Z, gaussian_model
from gpflow.posteriors import PrecomputeCacheType
from helpers import assert_all_close, assert_close, regression_problem, worst_z

PROBLEM = regression_problem(6, num_data=10, num_inducing=4, num_outputs=2)


def _tied() -> Any:
    q_mu = np.random.default_rng(0).standard_normal((4, 2))
    q_sqrt = np.tile(0.3 * np.eye(4), [2, 1, 1])
    mean = gpflow.functions.Constant(0.3)
    return gaussian_model("APEP", PROBLEM, q_mu=q_mu, q_sqrt=q_sqrt, mean_function=mean)


_regression = partial(gaussian_model, "PEPRegression", PROBLEM, noise_variance=None)
SLOW: dict[str, Any] = {
    "with blocks": partial(_regression, blocks=np.arange(10) // 3),
    "PEP": partial(gaussian_model, "PEP", PROBLEM),
    **{case.name: partial(case.create, case.data(0), Z) for case in OUTPUTS},
}
MODELS = [
    pytest.param(_regression, id="PEPRegression"),
    pytest.param(_tied, id="APEP"),
    *(
        pytest.param(create, id=name, marks=pytest.mark.slow)
        for name, create in SLOW.items()
    ),
]
BOTH = [
    (full_cov, full_output)
    for full_cov in (False, True)
    for full_output in (False, True)
]


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    return request.param()


def is_mixed(model: Any) -> bool:
    return isinstance(model.kernel, gpflow.kernels.LinearCoregionalization)


def test_covariances_agree_with_each_other(model: Any) -> None:
    N = len(XNEW)
    mean, variance = model.predict_f(XNEW)
    assert mean.shape == variance.shape == (N, 2)
    same_mean, of_rows = model.predict_f(XNEW, full_cov=True)
    assert_close(same_mean, mean, rtol=1e-9)
    assert_close(tf.linalg.diag_part(of_rows), tf.transpose(variance), rtol=1e-9)
    assert np.all(np.linalg.eigvalsh(of_rows) > -1e-9)
    of_outputs = model.predict_f(XNEW, full_output_cov=True)[1]
    assert_close(tf.linalg.diag_part(of_outputs), variance, rtol=1e-9)
    of_both = model.predict_f(XNEW, full_cov=True, full_output_cov=True)[1].numpy()
    assert_close(np.einsum("npmp->pnm", of_both), of_rows, rtol=1e-9)
    assert_close(np.einsum("npnq->npq", of_both), of_outputs, rtol=1e-9)
    assert is_mixed(model) or not np.any(of_both[:, 0, :, 1])


@pytest.mark.near_copies("PEPRegression")
def test_samples(model: Any) -> None:
    assert model.predict_f_samples(XNEW).shape == (len(XNEW), 2)
    for full_cov, full_output in BOTH[:3]:  # GPflow has none of both
        options = {"full_cov": full_cov, "full_output_cov": full_output}
        tf.random.set_seed(0)
        samples = np.asarray(model.predict_f_samples(XNEW, 2000, **options))
        assert samples.shape == (2000, len(XNEW), 2)
        mean, covariance = map(np.asarray, model.predict_f(XNEW, **options))
        if full_cov:
            samples = np.swapaxes(samples, 1, 2)
            mean = mean.T
        elif not full_output:
            samples = samples[..., None]
            mean = mean[..., None]
            covariance = covariance[..., None, None]
        assert worst_z(samples, mean, covariance) < 4.5


def test_leading_axes_of_new_rows(model: Any) -> None:
    """[batch..., N, D], as GPflow has it; its posteriors take no such rows from a
    cache.
    """
    many = np.stack([XNEW, XNEW[::-1], XNEW + 0.1])[:, None]  # [3, 1, N, 2]
    for pair in BOTH if is_mixed(model) else BOTH[::2]:  # GPflow's has no others
        moments = model.predict_f(many, *pair)
        for k in range(3):
            expected = model.predict_f(many[k, 0], *pair)
            assert_all_close([part[k, 0] for part in moments], expected, rtol=1e-7)
    assert model.predict_y(many)[0].shape == (3, 1, len(XNEW), 2)


@pytest.mark.near_copies("PEPRegression-*TENSOR", "APEP-*VARIABLE", "APEP-*NOCACHE")
@pytest.mark.parametrize("cache", list(PrecomputeCacheType))
def test_posterior_caches(model: Any, cache: PrecomputeCacheType) -> None:
    """What is cached stays as it was until it is updated; what is fused is as the model
    is now.
    """
    posterior = model.posterior(cache)
    cached = cache is not PrecomputeCacheType.NOCACHE
    for pair in BOTH:
        expected = model.predict_f(XNEW, *pair)
        assert_all_close(posterior.fused_predict_f(XNEW, *pair), expected, rtol=1e-7)
        if cached:
            assert_all_close(posterior.predict_f(XNEW, *pair), expected, rtol=1e-7)
    if not cached:
        with pytest.raises(
            ValueError, match=r"cache: got none|Cache has not been precomputed"
        ):
            posterior.predict_f(XNEW)
    predict = tf.function(posterior.predict_f)
    before = model.predict_f(XNEW)
    if cache is PrecomputeCacheType.VARIABLE:
        predict(XNEW)
    variable = model.inducing_variable.trainable_variables[0]
    old = variable.numpy()
    variable.assign_add(0.3 * tf.ones_like(variable))
    try:
        after = model.predict_f(XNEW)
        assert np.max(np.abs(after[1] - before[1])) > 1e-3
        assert_all_close(posterior.fused_predict_f(XNEW), after, rtol=1e-7)
        posterior.update_cache(None if cached else PrecomputeCacheType.TENSOR)
        assert_all_close(posterior.predict_f(XNEW), after, rtol=1e-7)
        if cache is PrecomputeCacheType.VARIABLE:  # it serves a compiled function
            assert_all_close(predict(XNEW), after, rtol=1e-7)
            assert predict.experimental_get_tracing_count() == 1
    finally:
        variable.assign(old)
