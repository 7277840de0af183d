"""Regression of targets of which some are missing: separate models of what was observed
of each.
"""

from copy import deepcopy
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import Array, assert_all_close, assert_close, assert_gradients, refusals

import gpflow_pep as pep

N = 24
P = 3
rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, (N, 2))
Z = X[::4] + 0.1
XNEW = rng.uniform(-2.0, 2.0, (5, 2))
COMPLETE = np.hstack([np.sin(X[:, :1]), X[:, 1:], X[:, :1] * X[:, 1:]])
Y = np.where(
    rng.uniform(size=(N, P)) < 0.3, np.nan, COMPLETE + 0.1 * rng.standard_normal((N, P))
)
Y[3] = np.nan  # nothing is known of this row
THERE = np.isfinite(Y)


def regression(X: Any, Y: Any, **options: Any) -> pep.models.PEPRegression:
    kernel = gpflow.kernels.Matern52(variance=1.3, lengthscales=[0.7, 1.1])
    mean = gpflow.functions.Constant([0.2])
    arguments: dict[str, Any] = {
        "mean_function": mean,
        "noise_variance": 0.05,
        **options,
    }
    return pep.models.PEPRegression((X, Y), kernel, Z.copy(), **arguments)


def separate(output: int, **options: Any) -> pep.models.PEPRegression:
    rows = THERE[:, output]
    return regression(X[rows], Y[rows, output : output + 1], **options)


def in_variables(targets: Array) -> tuple[tf.Variable, tf.Variable]:
    return tf.Variable(X, trainable=False), tf.Variable(targets, trainable=False)


def log_z(model: Any) -> Any:
    return model.pep_log_marginal_likelihood()


@pytest.mark.near_copies("0.5")
@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.5, 1.0])
def test_as_separate_models(alpha: float) -> None:
    model = regression(X, Y, alpha=alpha)
    others = [separate(output, alpha=alpha) for output in range(P)]
    expected = np.sum([log_z(other) for other in others])
    assert_close(log_z(model), expected, rtol=1e-11)
    mean, variance = zip(*(other.predict_y(XNEW) for other in others))
    assert_all_close(
        model.predict_y(XNEW), map(np.hstack, (mean, variance)), rtol=1e-10
    )
    posterior = model.posterior()
    in_full = {"full_cov": True}
    mean, covariance = zip(*(other.predict_f(XNEW, **in_full) for other in others))
    moments = np.hstack(mean), np.concatenate(covariance)
    assert_all_close(posterior.predict_f(XNEW, **in_full), moments, rtol=1e-10)
    mean, covariance = zip(*(other.compute_qu() for other in others))
    assert_all_close(
        model.compute_qu(), (np.hstack(mean), np.stack(covariance)), rtol=1e-8
    )
    for output, other in enumerate(others):
        actual = [
            part.numpy()[THERE[:, output], output] for part in model.loo_moments()
        ]
        assert_all_close(
            actual, [part[:, 0] for part in other.loo_moments()], rtol=1e-10
        )
    left_out = sum(np.sum(o.loo_log_density()) for o in others)
    density = model.loo_log_density()
    assert_close(tf.reduce_sum(density), left_out, rtol=1e-10)
    assert float(density[3]) == 0.0
    assert_close(
        tf.stack([model.pep_log_marginal_likelihood(), model.total_loo_log_density()]),
        [expected, left_out],
        rtol=1e-10,
    )


def test_densities_and_what_was_not_observed() -> None:
    model = regression(X, Y)
    mean, variance = model.predict_y(X)
    expected = gpflow.logdensities.gaussian(np.nan_to_num(Y), mean, variance).numpy()
    density = np.where(THERE, expected, 0.0).sum(axis=1)
    assert_close(model.predict_log_density((X, Y)), density, rtol=1e-11)
    for moments, predicted in zip(model.loo_moments(), (mean, variance)):
        assert_close(moments.numpy()[~THERE], predicted.numpy()[~THERE], rtol=1e-9)


@pytest.mark.near_copies("5")
@pytest.mark.parametrize("chunk_size", [None, 5])
def test_gradients(chunk_size: int | None) -> None:
    """At powers of rows."""
    alpha = rng.uniform(size=N)
    model = regression(X, Y, alpha=alpha, chunk_size=chunk_size)
    expected = np.sum([log_z(separate(p, alpha=alpha[THERE[:, p]])) for p in range(P)])
    for one in (model, deepcopy(model)):
        assert_close(log_z(one), expected, rtol=1e-11)
    assert len(model.trainable_variables) == 5
    assert_gradients(
        tf.function(model.training_loss), model.trainable_variables, rtol=1e-6
    )


UNSEEN = np.where(np.arange(P) == 1, np.nan, Y)


def test_an_output_without_observations_has_the_prior() -> None:
    model = regression(X, UNSEEN)
    mean, variance = model.predict_f(XNEW)
    assert_close(mean[:, 1], np.full(5, 0.2), rtol=1e-12)
    assert_close(variance[:, 1], np.full(5, 1.3), rtol=1e-12)
    assert_close(mean[:, 0], regression(X, Y).predict_f(XNEW)[0][:, 0], rtol=1e-12)


def test_other_data() -> None:
    model = regression(X, Y)
    model.data = X, COMPLETE
    assert_close(log_z(model), log_z(regression(X, COMPLETE)), rtol=1e-11)
    variables = in_variables(Y)
    model = regression(*variables)
    compiled = tf.function(model.training_loss)
    before = float(compiled())
    variables[1].assign(UNSEEN)
    assert float(compiled()) < before


REFUSED = {
    "Y: got NaN alone, expected at least one": lambda: regression(X, Y * np.nan),
    "Y: got NaN or infinity": lambda: regression(X, np.where(np.isnan(Y), np.inf, Y)),
    "Y: got NaN or infinity in .*": lambda: setattr(
        regression(X, COMPLETE), "data", (X, Y)
    ),
    "Y: got missing targets together": lambda: regression(X, Y, blocks=np.arange(N)),
    "upper_bound: got missing targets": lambda: regression(X, Y).upper_bound(),
    "near: got near rows without targets": lambda: regression(X, Y).posterior(near=3),
    "near: got near rows without": lambda: regression(X, Y).predict_f(XNEW, near=3),
}
test_refusals = refusals(REFUSED)


@pytest.mark.parametrize(
    "complete, value", [(True, np.nan), (True, np.inf), (False, np.inf)]
)
def test_what_is_assigned_to_variables_is_not_taken_for_0(
    complete: bool, value: float
) -> None:
    """A model of complete targets cannot leave one out; nor is infinity a
    missing one.
    """
    variables = in_variables(COMPLETE if complete else Y)
    model = regression(*variables)
    variables[1][2 if complete else 3, 1].assign(value)
    for computed in (model.training_loss, model.loo_log_density, model.compute_qu):
        with pytest.raises(
            (ValueError, tf.errors.InvalidArgumentError), match="NaN or infinity"
        ):
            computed()
