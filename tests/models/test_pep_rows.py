"""Rows that come and go: the sites of those that stay are kept, and nothing is stale."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_all_close, assert_close

import gpflow_pep as pep
from gpflow_pep.models.rows import match_rows

RNG = np.random.default_rng(3)
X = RNG.uniform(-2.0, 2.0, [16, 1])
Y = np.where(np.sin(2.0 * X) + 0.3 * RNG.standard_normal(X.shape) > 0.0, 1.0, 0.0)
Z = np.linspace(-2.0, 2.0, 4)[:, None]


def _model(rows: Any, **options: Any) -> pep.models.PEP:
    data = options.pop("data", (X[rows], Y[rows]))
    options = {"alpha": 0.5, "tolerance": 1e-10, **options}
    kernel = gpflow.kernels.SquaredExponential()
    return pep.models.PEP(data, kernel, gpflow.likelihoods.Bernoulli(), Z, **options)


def test_rows_are_matched_in_the_order_of_their_copies() -> None:
    old = np.array([[1.0, 0.0], [2.0, 1.0], [1.0, 0.0], [3.0, 0.0]])
    new = np.array([[3.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(match_rows(old, new), [3, 0, -1, 2, -1])


@pytest.mark.slow
def test_more_rows_are_a_new_model_that_is_nearly_there() -> None:
    model, expected = _model(slice(0, 12)), _model(slice(None))
    model.update_sites()
    sites = model.sites.nu.numpy()
    model.condition_on((X[12:], Y[12:]))
    np.testing.assert_array_equal(model.sites.nu[:12], sites)
    np.testing.assert_array_equal(model.sites.nu[12:], 0.0)
    assert model.num_data == 16
    assert_close(model.pep_log_marginal_likelihood(), expected.pep_log_marginal_likelihood())
    assert model.last_inference.num_sweeps < expected.last_inference.num_sweeps
    assert_all_close(model.predict_f(X), expected.predict_f(X))


def test_rows_are_dropped_and_change_places() -> None:
    rows = np.array([5, 2, 11, 3, 7, 0, 14])
    model = _model(slice(0, 12))
    model.update_sites()
    sites = model.sites.nu.numpy()
    model.update_data((X[rows], Y[rows]))
    np.testing.assert_array_equal(model.sites.nu[:6], sites[rows[:6]])
    np.testing.assert_array_equal(model.sites.nu[6:], 0.0)
    expected = _model(rows).pep_log_marginal_likelihood()
    assert_close(model.pep_log_marginal_likelihood(), expected)


def test_a_changed_target_is_another_row() -> None:
    model = _model(slice(0, 3))
    model.update_sites()
    model.update_data((X[:3], 1.0 - Y[:3]))
    np.testing.assert_array_equal(model.sites.nu, 0.0)


def test_powers_of_rows_stay_with_them() -> None:
    powers = np.linspace(0.0, 1.0, 16)
    model = _model(slice(0, 12), alpha=powers[:12])
    with pytest.raises(ValueError, match=r"alpha: got none, expected the power of the 4 rows"):
        model.condition_on((X[12:], Y[12:]))
    model.condition_on((X[12:], Y[12:]), alpha=powers[12:])
    np.testing.assert_array_equal(model.alpha, powers)
    rows = np.array([15, 4, 8])
    model.update_data((X[rows], Y[rows]))
    np.testing.assert_array_equal(model.alpha, powers[rows])
    expected = _model(rows, alpha=powers[rows]).pep_log_marginal_likelihood()
    assert_close(model.pep_log_marginal_likelihood(), expected)


@pytest.mark.slow
def test_a_function_compiled_for_other_rows_stops() -> None:
    model = _model(slice(0, 12))
    compiled = tf.function(model.training_loss, autograph=False)
    compiled()
    model.condition_on((X[12:], Y[12:]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"have been replaced.*anew"):
        compiled()
    again = tf.function(model.training_loss, autograph=False)
    assert_close(again(), _model(slice(None)).training_loss())


def test_data_in_variables_are_assigned() -> None:
    data = [tf.Variable(part[:12], shape=[None, 1], trainable=False) for part in (X, Y)]
    model = _model(None, data=tuple(data))
    compiled = tf.function(model.training_loss, autograph=False)
    compiled()
    model.condition_on((X[12:], Y[12:]))
    assert model.data[0] is data[0]
    np.testing.assert_array_equal(data[0], X)
    assert_close(compiled(), _model(slice(None)).training_loss())


def test_refused() -> None:
    model = _model(slice(0, 12))
    for data, match in (
        ((np.hstack([X, X]), Y), r"X: got 2 column\(s\), expected 1"),
        ((X, Y + 0.5), r"Y: got (0|1)\.5"),
        ((X[:, 0], Y), "two axes"),
    ):
        for method in (model.update_data, model.condition_on):
            with pytest.raises(ValueError, match=match):
                method(data)
    with pytest.raises(ValueError, match="one power for all"):
        model.condition_on((X[12:], Y[12:]), alpha=0.3)
    fixed = tuple(tf.Variable(part[:12], trainable=False) for part in (X, Y))
    with pytest.raises(ValueError, match=r"shape=\[None, D\]"):
        _model(None, data=fixed).condition_on((X[12:], Y[12:]))
    assert model.num_data == 12


def test_a_refusal_leaves_the_model_as_it_was() -> None:
    data = tf.Variable(X[:12], shape=[None, 1]), tf.Variable(Y[:12])  # Y has no room for more
    model = _model(None, data=data, alpha=np.full(12, 0.5))
    before = model.pep_log_marginal_likelihood()
    for alpha, match in (
        (0.5, r"Y: got 16 rows for a tf.Variable of 12"),
        (1.5, r"alpha: got 1\.5, expected values in \[0, 1\]"),
        ([0.5, 0.5], r"alpha: got the shape \(2,\), expected .* each of the 4 rows"),
    ):
        with pytest.raises(ValueError, match=match):
            model.condition_on((X[12:], Y[12:]), alpha=alpha)
        np.testing.assert_array_equal(model.data[0], X[:12])
        assert model.alpha.shape == (12,)
        assert_close(model.pep_log_marginal_likelihood(), before)


@pytest.mark.slow
def test_a_function_compiled_for_other_powers_stops() -> None:
    data = tuple(tf.Variable(part[:12], shape=[None, 1]) for part in (X, Y))
    model = _model(None, data=data, alpha=np.full(12, 0.5))
    compiled = tf.function(model.training_loss, autograph=False)
    compiled()
    model.condition_on((X[12:], Y[12:]), alpha=0.5)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"powers of rows.*Scipy\(\)\)\."):
        compiled()
    assert_close(model.training_loss(), _model(slice(None)).training_loss())


def test_a_copy_takes_more_rows() -> None:
    """Variables that TensorFlow copies have room for as many rows as they hold."""
    model = _model(slice(0, 12))
    model.update_sites()
    twin = gpflow.utilities.deepcopy(model)
    twin.condition_on((X[12:], Y[12:]))
    assert_close(
        twin.pep_log_marginal_likelihood(), _model(slice(None)).pep_log_marginal_likelihood()
    )
    assert len(model.sites.nu.numpy()) == 12


@pytest.mark.parametrize("name", ["PEPRegression", "PEP"])
def test_a_copy_takes_other_rows_into_its_variables(name: str) -> None:
    """The copies had room for as many rows as the model had when it was copied."""
    data = tuple(tf.Variable(part[:12], shape=[None, 1]) for part in (X, Y))
    kernel = gpflow.kernels.SquaredExponential()
    if name == "PEP":
        model: Any = _model(None, data=data)
    else:
        model = pep.PEPRegression(data, kernel, Z)
    model.training_loss()
    twin = gpflow.utilities.deepcopy(model)
    compiled = tf.function(twin.training_loss, autograph=False)
    compiled()
    twin.data = (X, Y)
    assert twin.data[0].shape.as_list() == [None, 1] and len(model.data[0].numpy()) == 12
    if name == "PEP":
        expected = _model(slice(None)).training_loss()
    else:
        expected = pep.PEPRegression((X, Y), kernel, Z).training_loss()
    assert_close(compiled(), expected)
