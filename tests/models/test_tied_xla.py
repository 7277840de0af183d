"""APEP, ARPEP and RPAPEP compiled with XLA: the loss and its gradient are those without."""

import pytest
import tensorflow as tf
from cases.tied import MODELS, create, data_of, random_start
from helpers import assert_all_close, assert_close, value_and_gradients


@pytest.mark.parametrize("name", ["Gaussian", "RobustMax"])
@pytest.mark.parametrize("model_name", MODELS)
@pytest.mark.near_copies("APEP-Gaussian")  # XLA takes long over the others
def test_xla_compiles_value_and_gradient(model_name: str, name: str) -> None:
    model = create(model_name, name, random_start(name), alpha=0.5)
    data = tuple(map(tf.constant, data_of(name)))
    loss = model.training_loss_closure(data, compile=False)
    expected, expected_gradient = value_and_gradients(loss, model.trainable_variables)
    compiled = tf.function(value_and_gradients, jit_compile=True, autograph=False)
    value, gradient = compiled(loss, model.trainable_variables)
    assert_close(value, expected, rtol=1e-8)
    assert_all_close(gradient, expected_gradient, rtol=1e-8)
