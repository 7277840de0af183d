"""PEP by minibatches: the same loss and gradient on average, and the same sites in the end."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.pep import ALPHAS, CASES, N, compiled
from helpers import assert_all_close, assert_close, value_and_gradients

import gpflow_pep as pep

BATCH = N // 2


def _loss(model: Any, **options: Any) -> Any:
    return model.minibatch_training_loss_closure(**{"batch_size": BATCH, "seed": 0, **options})


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
    sites = [part.numpy() for part in model.read_sites()]
    loss, count = _loss(model), N // BATCH
    values, gradients = zip(
        *(value_and_gradients(loss, model.trainable_variables) for _ in range(count))
    )
    assert np.ptp(values) > 1e-3
    assert_close(np.mean(values), value, rtol=1e-7)
    assert_all_close([np.mean(parts, axis=0) for parts in zip(*gradients)], gradient, rtol=1e-6)
    assert_all_close(model.read_sites(), sites, rtol=1e-6)


def test_sites_get_to_the_fixed_point_batch_by_batch() -> None:
    model, expected = (CASES["probit"].model(alpha=0.5) for _ in range(2))
    expected.update_sites()
    loss = _loss(model)
    for _ in range(40):
        loss()
    assert_all_close(model.read_sites(), expected.read_sites(), rtol=1e-4)
    assert model.update_sites().num_sweeps < expected.last_inference.num_sweeps


@pytest.mark.slow
def test_the_seed_decides() -> None:
    model = CASES["probit"].model(alpha=0.5)

    def losses(seed: int, compile: bool) -> list[float]:
        for part in (model.sites.nu, model.sites.tau):
            part.assign(tf.zeros_like(part))
        loss = _loss(model, batch_size=4, seed=seed, compile=compile)
        return [float(loss()) for _ in range(4)]

    first = losses(1, compile=True)
    assert_close(losses(1, compile=False), first, rtol=1e-9)
    assert not np.allclose(losses(2, compile=False), first)


@pytest.mark.slow
def test_totals_are_those_of_the_parameters_after_an_epoch() -> None:
    """With stale totals the loss is another one; a refresh mends it."""
    model = CASES["probit"].model(alpha=0.5)
    model.update_sites()
    loss = _loss(model, batch_size=N, refresh_every=2)
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
    loss = _loss(model, compile=False)
    assert np.all(np.isfinite([loss().numpy() for _ in range(6)]))
    assert model.update_sites().converged


@pytest.mark.slow
def test_data_of_another_length_are_refused() -> None:
    X, Y = np.random.default_rng(0).standard_normal((12, 1)), np.ones((12, 1))
    data = tuple(tf.Variable(part, shape=[None, 1], trainable=False) for part in (X, Y))
    parts = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian()
    loss = _loss(pep.models.PEP(data, *parts, X[:3]), batch_size=4)
    loss()
    for variable, value in zip(data, (X, Y)):
        variable.assign(value[:8])
    with pytest.raises(tf.errors.InvalidArgumentError, match="anew"):
        loss()
