"""Blurred and noisy inducing variables as parts of models: copied, stored, saved, in float32."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_all_close, assert_close, regression_problem

import gpflow_pep as pep
from gpflow_pep.inducing_variables import BlurredInducingPoints

PROBLEM = regression_problem(num_data=15)
LABELS = (PROBLEM.Y > 0.4).astype(float)
M = len(PROBLEM.Z)
_ROOT = np.random.default_rng(3).normal(size=[M, 2, 2]) * 0.4


def _blurred(dtype: Any) -> Any:
    covariance = _ROOT @ _ROOT.transpose(0, 2, 1)
    return BlurredInducingPoints(PROBLEM.Z.astype(dtype), covariance.astype(dtype))


def _diagonal(dtype: Any) -> Any:
    diagonal = np.linspace(0.05, 0.5, 2 * M).reshape(M, 2).astype(dtype)
    return BlurredInducingPoints(PROBLEM.Z.astype(dtype), diagonal)


def _svgp(data: Any, variable: Any) -> Any:
    q_mu = np.linspace(-1.0, 1.0, M, dtype=data[0].dtype)[:, None]
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gpflow.models.SVGP(PROBLEM.kernel(), likelihood, variable, q_mu=q_mu)


def _pep(data: Any, variable: Any) -> Any:
    labels = data[0], LABELS.astype(data[0].dtype)
    likelihood = gpflow.likelihoods.Bernoulli()
    tolerance = 1e-3 if data[0].dtype == np.float32 else 1e-8
    return pep.models.PEP(labels, PROBLEM.kernel(), likelihood, variable, tolerance=tolerance)


def _regression(data: Any, variable: Any) -> Any:
    return pep.models.PEPRegression(data, PROBLEM.kernel(), variable)


def _sgpr(data: Any, variable: Any) -> Any:
    return gpflow.models.SGPR(data, PROBLEM.kernel(), variable)


CASES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "PEPRegression": (_regression, _diagonal),
    "PEP": (_pep, _diagonal),
    "SGPR": (_sgpr, _diagonal),
    "SVGP": (_svgp, _diagonal),
    "blurred": (_regression, _blurred),
}
every_case = pytest.mark.parametrize("create, variable", CASES.values(), ids=CASES)


def _create(create: Any, variable: Any, dtype: Any = np.float64) -> Any:
    return create(tuple(part.astype(dtype) for part in PROBLEM.data), variable(dtype))


def _disturb(model: Any) -> None:
    for parameter in model.inducing_variable.trainable_parameters:
        parameter.assign(parameter + 0.05)


@every_case
@pytest.mark.near_copies
def test_copied_stored_and_saved(create: Any, variable: Any, tmp_path: Path) -> None:
    model = _create(create, variable)
    _disturb(model)
    expected = [part.numpy() for part in model.predict_f(PROBLEM.Xnew)]
    stored = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    twin, other = copy.deepcopy(model), _create(create, variable)
    posterior = model.posterior(gpflow.posteriors.PrecomputeCacheType.VARIABLE)
    posterior.compiled = tf.function(
        posterior.predict_f, input_signature=[tf.TensorSpec([None, 2], tf.float64)]
    )
    tf.saved_model.save(posterior, str(tmp_path / "saved"))
    values = gpflow.utilities.read_values(model)
    _disturb(model)
    assert np.max(np.abs(model.predict_f(PROBLEM.Xnew)[0] - expected[0])) > 1e-6
    tf.train.Checkpoint(model=other).restore(stored)
    gpflow.utilities.multiple_assign(model, values)
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    for predict in (twin.predict_f, other.predict_f, model.predict_f, loaded.compiled):
        assert_all_close(predict(PROBLEM.Xnew), expected, rtol=1e-6)


@every_case
@pytest.mark.near_copies
def test_float32(create: Any, variable: Any) -> None:
    expected = _create(create, variable).predict_f(PROBLEM.Xnew)
    gpflow.config.set_default_float(np.float32)
    gpflow.config.set_default_jitter(1e-5)
    model = _create(create, variable, np.float32)
    for actual, in_double in zip(model.predict_f(PROBLEM.Xnew.astype(np.float32)), expected):
        assert actual.dtype == tf.float32
        assert_close(actual, in_double, rtol=1e-2)


@pytest.mark.parametrize("create", [_pep, _sgpr, pytest.param(_svgp, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_trained(create: Any) -> None:
    model = _create(create, _diagonal)
    loss = model.training_loss
    if isinstance(model, gpflow.models.SVGP):
        loss = model.training_loss_closure(PROBLEM.data)
    before = float(loss())
    start = [part.numpy().copy() for part in model.inducing_variable.trainable_variables]
    gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options={"maxiter": 3})
    assert float(loss()) < before
    for part, old in zip(model.inducing_variable.trainable_variables, start):
        assert np.max(np.abs(part - old)) > 1e-5
