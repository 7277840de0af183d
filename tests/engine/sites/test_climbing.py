"""Where sites climb to one of several optima: a run begins again from larger powers."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close

import gpflow_pep as pep
from gpflow_pep.engine.sites.fixed_point import run_to_fixed_point
from gpflow_pep.engine.sites.posterior import Marginals, Sites, scaled_error
from gpflow_pep.engine.sites.record import (
    Features,
    FixedPoint,
    Goal,
    Solver,
    Stage,
    SweepEvaluation,
)

#: The optima of nu on either side of 0; each time the right one is reached by steps of 0.1.
LEFT, RIGHT = -2.0, 2.0


def _run(
    start: float,
    step_left: Callable[[tf.Tensor], tf.Tensor],
    best: float,
    *,
    has_merit: bool = True,
    max_sweeps: int = 6,
) -> FixedPoint:
    def evaluate(sites: Sites, stage: Stage, _: Any) -> SweepEvaluation:
        nu, tau = sites
        change = tf.where(nu < 0.0, step_left(nu), tf.clip_by_value(RIGHT - nu, -0.1, 0.1))
        change = tf.where(stage.power_shift > 0.0, RIGHT - nu, change)
        marginals = Marginals(tf.zeros_like(nu), tf.ones_like(nu))
        target = Sites(nu + change, 1.0 + 0.0 * tau)
        merit = tf.reduce_sum(-tf.abs(nu - best))
        error = scaled_error(sites, target, marginals)
        proper = tf.constant(True)
        return SweepEvaluation(marginals, target, target, error, proper, merit)

    initial = Sites(tf.constant([[start]], tf.float64), tf.constant([[1.0]], tf.float64))
    power = tf.constant(0.0 if has_merit else 0.01, tf.float64)
    features = Features(largest_power=power, warm_up=tf.constant(False), coupled=True)
    return run_to_fixed_point(evaluate, initial, Solver(Goal(1e-9), max_sweeps), features)


def test_sites_that_are_far_are_left_for_the_easier_problems() -> None:
    def to_the_left(nu: tf.Tensor) -> tf.Tensor:
        return LEFT - nu

    end = _run(-0.5, to_the_left, RIGHT)
    assert end.info.converged
    assert_close(float(tf.squeeze(end.sites.nu)), RIGHT, rtol=1e-9)
    near = _run(-1.8, to_the_left, LEFT)  # nothing else is tried there
    assert near.info.converged and near.info.num_sweeps <= 4
    assert_close(float(tf.squeeze(near.sites.nu)), LEFT, rtol=1e-9)
    without = _run(-0.5, to_the_left, LEFT, has_merit=False)
    assert_close(float(tf.squeeze(without.sites.nu)), LEFT, rtol=1e-9)


def test_sites_that_lead_nowhere_are_left_too() -> None:
    def drift(nu: tf.Tensor) -> tf.Tensor:
        return tf.constant(-0.2, tf.float64)

    end = _run(-0.5, drift, RIGHT, max_sweeps=10)
    assert end.info.converged and end.info.num_sweeps > 10
    assert_close(float(tf.squeeze(end.sites.nu)), RIGHT, rtol=1e-9)


@pytest.mark.slow
def test_three_classes_from_sites_of_wrong_labels() -> None:
    X = np.random.default_rng(0).standard_normal((300, 2))
    labels = np.sum(X > 0.0, axis=1)
    Z = X[np.random.default_rng(1).permutation(300)[:30]].copy()
    kernel = gpflow.kernels.SquaredExponential(lengthscales=30.0 * np.sqrt(2.0))
    model = pep.models.PEPClassification((X, labels[:, None]), kernel, None, Z, alpha=0.0)
    evaluate = tf.function(model.pep_log_marginal_likelihood, autograph=False)
    model.sites.tau.assign(np.ones([300, 3]))
    model.sites.nu.assign(2.0 * np.eye(3)[(labels + 1) % 3] - 1.0)
    assert evaluate() / 300 > -np.log(3.0)  # it was -3.53
    assert model.last_inference.converged
    mean = tf.function(model.predict_f, autograph=False)(X)[0]
    assert np.mean(np.argmax(mean, axis=1) == labels) > 0.95
