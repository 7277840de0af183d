"""Regression of targets of which some are missing: separate models of what was observed of each."""

from copy import deepcopy
from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import Array, assert_close, finite_difference_gradient, gradients

import gpflow_pep as pep

N, P = 24, 3
rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, (N, 2))
Z, XNEW = X[::4] + 0.1, rng.uniform(-2.0, 2.0, (5, 2))
COMPLETE = np.hstack([np.sin(X[:, :1]), X[:, 1:], X[:, :1] * X[:, 1:]])
Y = np.where(rng.uniform(size=(N, P)) < 0.3, np.nan, COMPLETE + 0.1 * rng.standard_normal((N, P)))
Y[3] = np.nan  # nothing is known of this row
THERE = np.isfinite(Y)
ALPHAS = [0.0, 1e-6, 0.5, 1.0]


def regression(X: Array, Y: Array, **options: Any) -> pep.models.PEPRegression:
    kernel = gpflow.kernels.Matern52(variance=1.3, lengthscales=[0.7, 1.1])
    mean = gpflow.functions.Constant([0.2])
    arguments: dict[str, Any] = {"mean_function": mean, "noise_variance": 0.05, **options}
    return pep.models.PEPRegression((X, Y), kernel, Z.copy(), **arguments)


def separate(output: int, **options: Any) -> pep.models.PEPRegression:
    rows = THERE[:, output]
    return regression(X[rows], Y[rows, output : output + 1], **options)


@pytest.mark.near_copies("0.5")
@pytest.mark.parametrize("alpha", ALPHAS)
def test_as_separate_models(alpha: float) -> None:
    model = regression(X, Y, alpha=alpha)
    others = [separate(output, alpha=alpha) for output in range(P)]
    log_z = sum(float(other.pep_log_marginal_likelihood()) for other in others)
    assert_close(model.pep_log_marginal_likelihood(), log_z, rtol=1e-11)
    for moments, part in zip(model.predict_y(XNEW), ("mean", "variance")):
        index = int(part == "variance")
        expected = np.hstack([other.predict_y(XNEW)[index] for other in others])
        assert_close(moments, expected, rtol=1e-10)
    by_cache = model.posterior().predict_f(XNEW, full_cov=True)
    for moments, expected in zip(
        by_cache, zip(*(o.predict_f(XNEW, full_cov=True) for o in others))
    ):
        axis = 1 if moments.shape.rank == 2 else 0
        assert_close(moments, np.concatenate(expected, axis=axis), rtol=1e-10)
    mean, variance = model.loo_moments()
    for output, other in enumerate(others):
        for moments, expected in zip((mean, variance), other.loo_moments()):
            assert_close(moments.numpy()[THERE[:, output], output], expected[:, 0], rtol=1e-10)
    left_out = sum(float(tf.reduce_sum(other.loo_log_density())) for other in others)
    assert_close(tf.reduce_sum(model.loo_log_density()), left_out, rtol=1e-10)
    assert float(model.loo_log_density()[3]) == 0.0
    assert_close(tf.stack(model.evidence_and_left_out()), [log_z, left_out], rtol=1e-10)


def test_loo_of_what_was_not_observed_is_its_prediction() -> None:
    model = regression(X, Y)
    for moments, predicted in zip(model.loo_moments(), model.predict_y(X)):
        assert_close(moments.numpy()[~THERE], predicted.numpy()[~THERE], rtol=1e-9)


def test_densities_of_what_was_observed() -> None:
    model, complete = regression(X, Y), np.nan_to_num(Y)
    mean, variance = model.predict_y(X)
    expected = gpflow.logdensities.gaussian(complete, mean, variance).numpy()
    actual = model.predict_log_density((X, Y))
    assert_close(actual, np.where(THERE, expected, 0.0).sum(axis=1), rtol=1e-11)


@pytest.mark.near_copies("5")
@pytest.mark.parametrize("chunk_size", [None, 5])
def test_gradients(chunk_size: int | None) -> None:
    model = regression(X, Y, alpha=0.4, chunk_size=chunk_size)
    variables, loss = model.trainable_variables, tf.function(model.training_loss)
    assert len(variables) == 5
    for actual, variable in zip(gradients(loss, variables), variables):
        expected = finite_difference_gradient(loss, variable)
        assert_close(actual, expected, rtol=1e-6)


def test_powers_of_rows_chunks_and_copies() -> None:
    alpha = rng.uniform(size=N)
    model = regression(X, Y, alpha=alpha, chunk_size=7)
    expected = sum(
        separate(p, alpha=alpha[THERE[:, p]]).pep_log_marginal_likelihood() for p in range(P)
    )
    assert_close(model.pep_log_marginal_likelihood(), expected, rtol=1e-11)
    assert_close(deepcopy(model).pep_log_marginal_likelihood(), expected, rtol=1e-11)


def test_an_output_without_observations_has_the_prior() -> None:
    targets = np.where(np.arange(P) == 1, np.nan, Y)
    model = regression(X, targets)
    mean, variance = model.predict_f(XNEW)
    assert_close(mean[:, 1], np.full(5, 0.2), rtol=1e-12)
    assert_close(variance[:, 1], np.full(5, 1.3), rtol=1e-12)
    assert_close(mean[:, 0], regression(X, Y).predict_f(XNEW)[0][:, 0], rtol=1e-12)


def test_other_data() -> None:
    model, others = regression(X, Y), (X[5:], Y[5:])
    model.data = others
    expected = regression(*others).pep_log_marginal_likelihood()
    assert_close(model.pep_log_marginal_likelihood(), expected, rtol=1e-12)
    model.data = X, COMPLETE
    expected = regression(X, COMPLETE).pep_log_marginal_likelihood()
    assert_close(model.pep_log_marginal_likelihood(), expected, rtol=1e-11)
    variables = tuple(tf.Variable(part, trainable=False) for part in (X, Y))
    model = pep.models.PEPRegression(variables, gpflow.kernels.Matern52(), Z)
    compiled = tf.function(model.training_loss)
    before = float(compiled())
    variables[1].assign(np.where(np.arange(P) == 1, np.nan, Y))
    assert float(compiled()) < before


def test_sums_and_memory() -> None:
    """q(u), the surrogate and a memory of rows that are gone, of each output."""
    model = regression(X, Y, alpha=1.0)
    for output in range(P):
        mean, covariance = separate(output, alpha=1.0).compute_qu()
        assert_close(model.compute_qu()[0][:, output], mean[:, 0], rtol=1e-8)
        assert_close(model.compute_qu()[1][output], covariance, rtol=1e-8)
    first, second = (X[:12], Y[:12]), (X[12:], Y[12:])
    remembering = regression(*second, alpha=1.0, memory=regression(*first, alpha=1.0).remember())
    assert_close(
        remembering.pep_log_marginal_likelihood(), model.pep_log_marginal_likelihood(), rtol=1e-8
    )


def test_float32() -> None:
    previous = gpflow.default_float()
    expected = regression(X, Y).pep_log_marginal_likelihood()
    gpflow.config.set_default_float(np.float32)
    try:
        model = regression(X.astype(np.float32), Y.astype(np.float32))
        assert_close(model.pep_log_marginal_likelihood(), expected, rtol=1e-4)
    finally:
        gpflow.config.set_default_float(previous)


def _assign_missing() -> None:
    regression(X, COMPLETE).data = X, Y


REFUSALS = {
    "Y: got NaN alone, expected some": partial(regression, X, Y * np.nan),
    "Y: got NaN or infinity": partial(regression, X, np.where(np.isnan(Y), np.inf, Y)),
    "Y: got targets that are missing beside": partial(regression, X, Y, blocks=np.arange(N)),
    "bound: got 'tight'": partial(regression, X, Y, bound="tight"),
    "upper_bound: got missing targets": lambda: regression(X, Y).upper_bound(),
    "Y: got NaN or infinity in .*": _assign_missing,
}


@pytest.mark.parametrize("message", REFUSALS)
def test_refusals(message: str) -> None:
    with pytest.raises(ValueError, match=message):
        REFUSALS[message]()


@pytest.mark.parametrize("bound", ["standard", "tight"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_assigned_to_variables_is_not_taken_for_0(bound: str, bad: float) -> None:
    """A model of complete targets cannot leave one out; nor is infinity a missing one."""
    targets = tf.Variable(COMPLETE, trainable=False)
    model = regression(tf.Variable(X, trainable=False), targets, bound=bound)
    targets[2, 1].assign(bad)
    for computed in (model.pep_log_marginal_likelihood, model.loo_log_density, model.compute_qu):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="NaN or infinity"):
            computed()


def test_infinity_that_is_assigned_is_no_missing_target() -> None:
    targets = tf.Variable(Y, trainable=False)
    model = regression(tf.Variable(X, trainable=False), targets)
    targets[3, 1].assign(np.inf)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="NaN or infinity"):
        model.training_loss()


def test_near_rows_without_targets_are_refused() -> None:
    for predict in (regression(X, Y).posterior, lambda **o: regression(X, Y).predict_f(XNEW, **o)):
        with pytest.raises(ValueError, match="near: got near rows without targets"):
            predict(near=3)
