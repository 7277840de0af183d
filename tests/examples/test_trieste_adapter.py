"""The adapter for trieste: predictions, samplers, and loops of trieste where that is
installed.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close, regression_problem

import gpflow_pep as pep
from examples.trieste_adapter import PEPModel

PROBLEM = regression_problem()
X = PROBLEM.Xnew[:6]


class Rows(NamedTuple):
    """What trieste's data sets have."""

    query_points: Any
    observations: Any


SOME = Rows(PROBLEM.X[:9], PROBLEM.Y[:9])


def regression(**options: Any) -> PEPModel:
    model = pep.PEPRegression(
        PROBLEM.data, PROBLEM.kernel(), PROBLEM.Z, noise_variance=0.3
    )
    return PEPModel(model, num_features=64, **options)


def labels() -> PEPModel:
    Y = np.where(PROBLEM.Y > 0.0, 1.0, 0.0)
    model = pep.PEPClassification((PROBLEM.X, Y), PROBLEM.kernel(), None, PROBLEM.Z)
    return PEPModel(model, num_features=64)


@pytest.mark.near_copies("labels")
@pytest.mark.parametrize("make", [regression, labels])
def test_predictions_are_those_of_the_model(make: Callable[[], PEPModel]) -> None:
    adapter = make()
    model = adapter.model
    points = tf.constant(X.reshape(2, 3, 2))
    for name, of_model in (
        ("predict", model.predict_f),
        ("predict_y", model.predict_y),
    ):
        for part, expected in zip(
            getattr(adapter, name)(points), of_model(X), strict=True
        ):
            assert part.shape == (2, 3, 1)
            assert_close(tf.reshape(part, [-1, 1]), expected, rtol=1e-9)
    mean, covariance = adapter.predict_joint(points)
    assert mean.shape == (2, 3, 1) and covariance.shape == (2, 1, 3, 3)
    assert_close(covariance[1], model.predict_f(X[3:], full_cov=True)[1], rtol=1e-9)
    whole = model.predict_f(X, full_cov=True)[1]
    between = adapter.covariance_between_points(points, tf.constant(X[4:]))
    assert between.shape == (2, 1, 3, 2)
    assert_close(tf.reshape(between, [6, 2]), whole[0, :, 4:], rtol=1e-7, scale=0.1)


def test_draws_have_the_moments_of_predictions() -> None:
    adapter = regression()
    points = tf.constant(X[:4].reshape(2, 2, 2))
    tf.random.set_seed(0)
    draws = adapter.sample(points, 4000)
    assert draws.shape == (2, 4000, 2, 1)
    mean, covariance = adapter.predict_joint(points)
    error = tf.sqrt(covariance[:, 0, 0, 0] / 4000)[:, None, None]
    assert np.max(np.abs((tf.reduce_mean(draws, axis=1) - mean) / error)) < 4.0
    values = adapter.reparam_sampler(4000).sample(points)
    assert values.shape == (2, 4000, 2, 1)
    both = values[1, :, :, 0] - mean[1, :, 0]
    empirical = tf.matmul(both, both, transpose_a=True) / 4000
    assert_close(empirical, covariance[1, 0], rtol=0.1, scale=0.1)


def test_updates() -> None:
    """Compiled functions go on after them, copies do not follow, and training compiles
    once.
    """
    adapter = regression(max_iterations=3)
    first = adapter.optimize()
    assert first.compile_seconds > 0.0
    assert_close(
        first.objective, adapter.model.pep_log_marginal_likelihood(), rtol=1e-10
    )
    compiled = tf.function(lambda: adapter.predict(X), autograph=False)
    copied = copy.deepcopy(adapter)
    before = compiled()[0]
    loss = adapter._loss
    adapter.update(SOME)
    parts = adapter.model.kernel, adapter.model.inducing_variable
    expected = pep.PEPRegression(SOME, *parts, likelihood=adapter.model.likelihood)
    assert_close(compiled()[0], expected.predict_f(X)[0], rtol=1e-8)
    assert np.max(np.abs(compiled()[0] - before)) > 1e-3
    assert_close(copied.predict(X)[0], before, rtol=1e-12)
    adapter.optimize(None)
    assert adapter._loss is loss
    assert_close(adapter.predict(X)[0], adapter.model.predict_f(X)[0], rtol=1e-9)


def test_trajectories_are_functions() -> None:
    adapter = labels()
    sampler = adapter.trajectory_sampler()
    trajectory = sampler.get_trajectory()
    points = tf.constant(np.stack([X, X[::-1]], axis=1))  # [6, 2, 2]
    compiled = tf.function(trajectory, autograph=False)
    values = compiled(points)
    assert values.shape == (6, 2, 1)
    # Also drawn in the graph.
    assert_close(trajectory(points[2:3]), values[2:3], rtol=1e-9)
    assert np.max(np.abs(values[:, 0] - values[::-1, 1])) > 1e-3  # two functions
    with pytest.raises(
        ValueError, match=r"x: got shape \(6, 1, 2\), expected \[N, 2, D\]"
    ):
        trajectory(points[:, :1])
    others = sampler.get_trajectory()(points)
    assert np.max(np.abs(others - values)) > 1e-3
    assert sampler.update_trajectory(trajectory) is trajectory
    again = compiled(points)
    assert np.max(np.abs(again - values)) > 1e-3
    assert_close(trajectory(points), again, rtol=1e-9)


def test_values_stay_until_they_are_reset() -> None:
    sampler = regression().reparam_sampler(3)
    points = tf.constant(X[:, None])
    values = sampler.sample(points)
    assert values.shape == (6, 3, 1, 1)
    assert_close(sampler.sample(points[1:2], jitter=1e-3), values[1:2], rtol=1e-9)
    sampler.reset_sampler()
    assert np.max(np.abs(sampler.sample(points) - values)) > 1e-3


def test_what_it_does_not_take() -> None:
    blocks = np.arange(len(PROBLEM.X)) // 4
    in_blocks = pep.PEPRegression(
        PROBLEM.data, PROBLEM.kernel(), PROBLEM.Z, blocks=blocks
    )
    tied = pep.ARPEP(
        PROBLEM.kernel(), gpflow.likelihoods.Bernoulli(), PROBLEM.Z, num_data=17
    )
    for model in (in_blocks, tied):
        with pytest.raises(
            ValueError, match="expected PEP or PEPRegression without blocks"
        ):
            PEPModel(model)
    assert_close(regression().get_observation_noise(), 0.3)
    with pytest.raises(ValueError, match="noise: got Bernoulli"):
        labels().get_observation_noise()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regression", "binary", "counts"])
def test_loops_of_trieste(kind: str) -> None:
    pytest.importorskip("trieste.objectives")  # tests/trieste is no package of it
    from examples.trieste_loop import run

    assert run(kind, num_steps=4) < -0.5
