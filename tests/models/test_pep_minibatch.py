"""PEP by minibatches: the same loss and gradient on average, and the same sites in the end."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from cases.pep import ALPHAS, CASES, N, compiled
from helpers import assert_close, value_and_gradients

import gpflow_pep as pep

BATCH = N // 2


def _converged(name: str, power: str) -> Any:
    model = CASES[name].model(alpha=ALPHAS[power])
    model.update_sites()
    return model


@pytest.mark.parametrize(
    "name, power",
    [("probit", "alpha 0"), ("Student-t", "alpha per row"), ("RobustMax", "alpha per row")],
)
@pytest.mark.near_copies
def test_batches_add_up_to_the_whole(name: str, power: str) -> None:
    """At the fixed point sites stay where they are, and the batches' mean is the full batch."""
    assert N % BATCH == 0
    model, whole, *_ = compiled(name)
    model.alpha.assign(ALPHAS[power])
    value, gradient = value_and_gradients(whole, model.trainable_variables)
    nu, tau = model.sites.nu.numpy(), model.sites.tau.numpy()
    loss = model.minibatch_training_loss_closure(BATCH, seed=0)
    values, gradients = zip(
        *(value_and_gradients(loss, model.trainable_variables) for _ in range(N // BATCH))
    )
    assert np.ptp(values) > 1e-3
    assert_close(np.mean(values), value, rtol=1e-7)
    for actual, expected in zip(zip(*gradients), gradient):
        assert_close(np.mean(actual, axis=0), expected, rtol=1e-6)
    assert_close(model.sites.nu, nu, rtol=1e-6)
    assert_close(model.sites.tau, tau, rtol=1e-6)


def test_sites_get_to_the_fixed_point_batch_by_batch() -> None:
    model = CASES["probit"].model(alpha=0.5)
    loss = model.minibatch_training_loss_closure(BATCH, seed=0)
    for _ in range(40):
        loss()
    nu, tau = model.sites.nu.numpy(), model.sites.tau.numpy()
    expected = _converged("probit", "alpha 0.5")
    assert_close(nu, expected.sites.nu, rtol=1e-4)
    assert_close(tau, expected.sites.tau, rtol=1e-4)
    assert model.update_sites().num_sweeps < expected.last_inference.num_sweeps


@pytest.mark.slow
def test_the_seed_decides() -> None:
    model = CASES["probit"].model(alpha=0.5)

    def losses(seed: int, compile: bool) -> list[float]:
        for part in (model.sites.nu, model.sites.tau):
            part.assign(tf.zeros_like(part))
        loss = model.minibatch_training_loss_closure(4, seed=seed, compile=compile)
        return [float(loss()) for _ in range(4)]

    first = losses(1, compile=True)
    assert_close(losses(1, compile=False), first, rtol=1e-9)
    assert not np.allclose(losses(2, compile=False), first)


@pytest.mark.slow
def test_totals_are_those_of_the_parameters_after_an_epoch() -> None:
    """With stale totals the loss is another one; a refresh mends it."""
    model = _converged("probit", "alpha 0.5")
    loss = model.minibatch_training_loss_closure(N, seed=0, refresh_every=2)
    loss()
    model.kernel.variance.assign(2.0)
    stale = float(loss())
    refreshed = float(loss())
    for _ in range(20):
        settled = float(loss())
    expected = float(model.training_loss())
    assert_close(settled, expected, rtol=1e-6)
    assert abs(refreshed - expected) < abs(stale - expected)


@pytest.mark.slow
def test_improper_sites_are_mended() -> None:
    """Negative precisions that fit no longer: they are given up, and nothing is NaN."""
    model = CASES["Student-t"].model(alpha=0.5)
    model.sites.tau.assign(np.full([N, 1], -50.0))
    loss = model.minibatch_training_loss_closure(BATCH, seed=0, compile=False)
    assert np.all(np.isfinite([loss().numpy() for _ in range(6)]))
    assert model.update_sites().converged


@pytest.mark.slow
def test_adam_trains() -> None:
    model = CASES["probit"].model(alpha=0.5)
    before = float(model.training_loss())
    loss = model.minibatch_training_loss_closure(BATCH, seed=0)
    optimizer = tf_keras.optimizers.Adam(0.02)
    for _ in range(60):
        optimizer.minimize(loss, model.trainable_variables)
    assert float(model.training_loss()) < before - 0.1


@pytest.mark.slow
def test_data_of_another_length_are_refused() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((12, 1)), np.ones((12, 1))
    data = tuple(tf.Variable(part, shape=[None, 1], trainable=False) for part in (X, Y))
    model = pep.models.PEP(
        data, gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(), X[:3]
    )
    loss = model.minibatch_training_loss_closure(4, seed=0)
    loss()
    for variable, value in zip(data, (X, Y)):
        variable.assign(value[:8])
    with pytest.raises(tf.errors.InvalidArgumentError, match="anew"):
        loss()
