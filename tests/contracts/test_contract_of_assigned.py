"""``model.data = (X, Y)`` and ``model.alpha = 0.3``: checked, and never lost on
compiled code.
"""

from functools import partial
from typing import Any

import gpflow
import helpers
import numpy as np
import pytest
import tensorflow as tf
from cases.models import gaussian_model
from helpers import assert_all_close, assert_close, regression_problem

OLD = regression_problem(1, num_data=12, num_inducing=4)
NEW = regression_problem(2, num_data=9)
_regression = partial(gaussian_model, "PEPRegression", OLD)
_point = partial(gaussian_model, "PEP", OLD)
_models = [_regression, pytest.param(_point, marks=pytest.mark.slow)]
each_model = pytest.mark.parametrize("create", _models)


@each_model
def test_data_that_are_assigned(create: Any) -> None:
    """They replace constants, which compiled functions notice, and go into
    variables.
    """
    fresh = create(data=NEW.data)
    rows = OLD.data
    in_variables = tuple(
        tf.Variable(part, shape=[None, part.shape[1]]) for part in rows
    )
    for data in (rows, in_variables):
        model = create(data=data)
        compiled = tf.function(model.training_loss)
        compiled()
        model.data = NEW.data
        assert_close(model.training_loss(), fresh.training_loss(), rtol=1e-9)
        assert_all_close(
            model.predict_f(OLD.Xnew), fresh.predict_f(OLD.Xnew), rtol=1e-8
        )
        if data is in_variables:
            assert isinstance(model.data[0], tf.Variable)
            assert_close(compiled(), fresh.training_loss(), rtol=1e-9)
            assert compiled.experimental_get_tracing_count() == 1
        else:
            assert model.num_data == 9
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"replaced(.|\n)*Compile it again"
            ):
                compiled()


@each_model
def test_data_that_are_refused(create: Any) -> None:
    model = create()
    before = float(model.training_loss())
    for data, message in (
        ((NEW.X, NEW.Y[:3]), "got 9 and 3 rows"),
        ((NEW.X[:, :1], NEW.Y), "X: got 1 column.*expected 2"),
        ((NEW.X, np.hstack([NEW.Y, NEW.Y])), "Y: got 2 column.*expected 1"),
        ((NEW.X * np.nan, NEW.Y), "X: got NaN"),
        (NEW.X, "expected a pair"),
    ):
        with pytest.raises(ValueError, match=message):
            model.data = data
        assert model.num_data == 12
    assert float(model.training_loss()) == pytest.approx(before, rel=1e-9)


def test_data_of_blocks_and_powers_of_rows() -> None:
    others = regression_problem(5, num_data=12).data
    blocks = np.arange(12) // 4
    in_blocks = _regression(blocks=blocks)
    of_rows = _regression(alpha=np.full(12, 0.3))
    in_blocks.data = others
    expected = _regression(data=others, blocks=blocks)
    assert_close(in_blocks.training_loss(), expected.training_loss())
    for model, what in ((in_blocks, "blocks of 12"), (of_rows, "12 powers")):
        with pytest.raises(ValueError, match=f"got 9 rows for a model with {what}"):
            model.data = NEW.data
    of_rows.alpha = 0.3
    of_rows.data = NEW.data
    assert_close(
        of_rows.training_loss(), _regression(data=NEW.data, alpha=0.3).training_loss()
    )


@each_model
def test_a_power_that_is_assigned(create: Any) -> None:
    model = create(alpha=0.5)
    parameter = model.alpha
    compiled = tf.function(model.training_loss)
    compiled()
    model.alpha = 0.3
    assert model.alpha is parameter
    assert_close(compiled(), create(alpha=0.3).training_loss(), rtol=1e-9)
    assert compiled.experimental_get_tracing_count() == 1
    for bad in (1.3, np.nan, "half", np.full(5, 0.5)):
        with pytest.raises(ValueError, match="alpha: got"):
            model.alpha = bad
        assert float(model.alpha.numpy()) == 0.3
    powers = np.linspace(0.0, 1.0, 12)
    model.alpha = powers  # another shape: what is compiled does not know of it
    assert_close(model.training_loss(), create(alpha=powers).training_loss(), rtol=1e-9)
    with pytest.raises(tf.errors.InvalidArgumentError, match="were replaced"):
        compiled()


def test_point_sites_take_data_and_powers_and_tied_ones_powers() -> None:
    model = _point(alpha=0.5)
    model.data = NEW.data
    model.alpha = 0.3
    assert_close(
        model.training_loss(),
        _point(data=NEW.data, alpha=0.3).training_loss(),
        rtol=1e-9,
    )
    model = gaussian_model("APEP", OLD, alpha=0.5)
    compiled = tf.function(model.training_loss)
    before = float(compiled(OLD.data))
    model.alpha = 0.0
    assert float(compiled(OLD.data)) != before
    assert_close(compiled(OLD.data), -model.elbo(OLD.data))
    with pytest.raises(ValueError, match=r"got shape \(2,\), expected one number"):
        model.alpha = [0.1, 0.2]
    with pytest.raises(
        ValueError, match=r"data: got an assignment to .*, which holds no data"
    ):
        model.data = OLD.data


@pytest.mark.parametrize("value", [-0.1, 1.5, np.nan])
@pytest.mark.parametrize("name", ["PEPRegression", "PEP", "ARPEP"])
@pytest.mark.near_copies("PEPRegression-1.5", "PEP-nan", "ARPEP--0.1")
def test_a_power_that_is_assigned_past_the_check(name: str, value: float) -> None:
    """As in a graph, where there is nothing to look at yet: it gave numbers."""
    model = gaussian_model(name, OLD)
    rows = [OLD.data] if name == "ARPEP" else []
    compiled = tf.function(lambda: model.training_loss(*rows))
    compiled()
    variable = model.alpha.unconstrained_variable
    tf.function(lambda: variable.assign(tf.constant(value, tf.float64)))()
    with pytest.raises(ValueError, match=r"outside \[0, 1\].*Got: (-0.1|1.5|nan)"):
        model.training_loss(*rows)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"outside \[0, 1\]"):
        compiled()
    if not rows:
        with pytest.raises(ValueError, match=r"outside \[0, 1\]"):
            model.predict_f(OLD.Xnew)


@pytest.mark.parametrize("name", ["PEPRegression", "PEP"])
@pytest.mark.near_copies
def test_inducing_inputs_that_were_fixed_when_the_loss_was_compiled(name: str) -> None:
    """Their gradient was wrong where chunks are computed anew for it; GPflow's SGPR is
    right.
    """
    model = gaussian_model(name, OLD, inducing_variable=OLD.Z[:2], chunk_size=5)
    gpflow.set_trainable(model.inducing_variable, False)
    loss = model.training_loss_closure(compile=True)
    loss()
    gpflow.set_trainable(model.inducing_variable, True)
    variables = model.inducing_variable.trainable_variables
    helpers.assert_gradients(loss, variables, rtol=1e-6, scale=1.0)
