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
POWERS = np.linspace(0.0, 1.0, 16)
OTHERS = X[12:], Y[12:]


def _model(rows: Any = slice(None), **options: Any) -> pep.models.PEP:
    options = {"data": (X[rows], Y[rows]), "alpha": 0.5, "tolerance": 1e-10, **options}
    parts = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Bernoulli(), Z
    return pep.models.PEP(options.pop("data"), *parts, **options)


def _first(fixed: bool = False) -> tuple[tf.Variable, ...]:
    """Twelve rows in variables, with room for more or not."""
    shape = None if fixed else [None, 1]
    return tuple(tf.Variable(part[:12], shape=shape, trainable=False) for part in (X, Y))


def _compiled(model: Any) -> Any:
    loss = tf.function(model.training_loss, autograph=False)
    loss()
    return loss


def test_rows_are_matched_in_the_order_of_their_copies() -> None:
    old = np.array([[1.0, 0.0], [2.0, 1.0], [1.0, 0.0], [3.0, 0.0]])
    new = np.array([[3.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(match_rows(old, new), [3, 0, -1, 2, -1])


@pytest.mark.parametrize("seed", range(2))
def test_other_rows(seed: int) -> None:
    """Some stay, elsewhere, some have another target, some are new; each has its own power."""
    random = np.random.default_rng(seed)
    rows = random.permutation(16)[: random.integers(6, 14)]
    changed = random.uniform(size=len(rows)) < 0.3
    others = X[rows], np.where(changed[:, None], 1.0 - Y[rows], Y[rows])
    model = _model(slice(0, 12), alpha=POWERS[:12])
    model.update_sites()
    nu, is_new = model.sites.nu.numpy(), changed | (rows >= 12)
    assert 0 < np.sum(is_new) < len(rows)
    with pytest.raises(ValueError, match=r"alpha: got none, expected the power of the \d+ rows"):
        model.update_data(others)
    model.update_data(others, alpha=POWERS[rows][is_new])
    np.testing.assert_array_equal(model.alpha, POWERS[rows])
    expected = np.where(is_new[:, None], 0.0, nu[np.where(is_new, 0, rows)])
    np.testing.assert_array_equal(model.sites.nu, expected)
    fresh = _model(data=others, alpha=POWERS[rows])
    assert_close(model.pep_log_marginal_likelihood(), fresh.pep_log_marginal_likelihood())


def test_more_rows_are_a_new_model_that_is_nearly_there() -> None:
    """Also of a copy: variables that TensorFlow copies have room for as many rows as they hold."""
    model, expected = _model(slice(0, 12)), _model()
    model.update_sites()
    sites, twin = model.sites.nu.numpy(), gpflow.utilities.deepcopy(model)
    twin.condition_on(OTHERS)
    np.testing.assert_array_equal(twin.sites.nu[:12], sites)
    np.testing.assert_array_equal(twin.sites.nu[12:], 0.0)
    assert twin.num_data == 16 and len(model.sites.nu.numpy()) == 12
    assert_close(twin.pep_log_marginal_likelihood(), expected.pep_log_marginal_likelihood())
    assert twin.last_inference.num_sweeps < expected.last_inference.num_sweeps
    assert_all_close(twin.predict_f(X), expected.predict_f(X))


@pytest.mark.slow
def test_a_function_compiled_for_other_rows_or_powers_stops() -> None:
    cases = [
        ({}, None, r"have been replaced.*anew"),
        ({"data": _first(), "alpha": np.full(12, 0.5)}, 0.5, r"powers of rows.*Scipy\(\)\)\."),
    ]
    for options, alpha, message in cases:
        model = _model(slice(0, 12), **options)
        compiled = _compiled(model)
        model.condition_on(OTHERS, alpha=alpha)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            compiled()
        assert_close(_compiled(model)(), _model().training_loss())


def test_data_in_variables_are_assigned() -> None:
    data = _first()
    model = _model(data=data)
    compiled = _compiled(model)
    model.condition_on(OTHERS)
    assert model.data[0] is data[0]
    np.testing.assert_array_equal(data[0], X)
    assert_close(compiled(), _model().training_loss())


@pytest.mark.parametrize(
    "options, change, match",
    [
        *(
            ({}, lambda model, name=name, data=data: getattr(model, name)(data), match)
            for name in ("update_data", "condition_on")
            for data, match in (
                ((np.hstack([X, X]), Y), r"X: got 2 column\(s\), expected 1"),
                ((X, Y + 0.5), r"Y: got (0|1)\.5"),
                ((X[:, 0], Y), "two axes"),
            )
        ),
        *(
            (options, lambda model, alpha=alpha: model.condition_on(OTHERS, alpha=alpha), match)
            for options, alpha, match in (
                ({}, 0.3, "one power for all"),
                ({"data": _first(fixed=True)}, None, r"shape=\[None, D\]"),
                ({"data": (_first()[0], _first(fixed=True)[1])}, None, "Y: got 16 rows for a tf.V"),
                ({"alpha": POWERS[:12]}, 1.5, r"alpha: got 1\.5, expected values in \[0, 1\]"),
                ({"alpha": POWERS[:12]}, [0.5, 0.5], r"got the shape \(2,\), .* of the 4 rows"),
            )
        ),
    ],
)
def test_a_refusal_leaves_the_model_as_it_was(options: Any, change: Any, match: str) -> None:
    model = _model(slice(0, 12), **options)
    alpha = model.alpha.numpy()
    with pytest.raises(ValueError, match=match):
        change(model)
    np.testing.assert_array_equal(np.hstack(model.data), np.hstack([X, Y])[:12])
    np.testing.assert_array_equal(model.alpha, alpha)
    assert len(model.sites.nu.numpy()) == 12


@pytest.mark.parametrize("name", ["PEPRegression", "PEP"])
def test_a_copy_takes_other_rows_into_its_variables(name: str) -> None:
    """The copies had room for as many rows as the model had when it was copied."""

    def create(data: Any) -> Any:
        kernel = gpflow.kernels.SquaredExponential()
        return _model(data=data) if name == "PEP" else pep.PEPRegression(data, kernel, Z)

    model = create(_first())
    model.training_loss()
    twin = gpflow.utilities.deepcopy(model)
    compiled = _compiled(twin)
    twin.data = (X, Y)
    assert twin.data[0].shape.as_list() == [None, 1] and len(model.data[0].numpy()) == 12
    assert_close(compiled(), create((X, Y)).training_loss())
