"""APEP, ARPEP and RPAPEP compiled with XLA: the loss and its gradient are those without."""

import itertools

import pytest
import tensorflow as tf
from cases.tied import MODELS, create, data_of, random_start
from helpers import assert_close


@pytest.mark.parametrize(
    "model_name, name",
    [
        ("APEP", "Gaussian"),
        # XLA takes long over them.
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in itertools.product(MODELS, ("Gaussian", "RobustMax"))
            if case != ("APEP", "Gaussian")
        ),
    ],
)
def test_xla_compiles_value_and_gradient(model_name: str, name: str) -> None:
    model = create(model_name, name, random_start(name), alpha=0.5)
    data = tuple(map(tf.constant, data_of(name)))
    loss = model.training_loss_closure(data, compile=False)

    def value_and_gradient() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            value = loss()
        return value, tape.gradient(value, model.trainable_variables)

    expected, expected_gradient = value_and_gradient()
    value, gradient = tf.function(value_and_gradient, jit_compile=True, autograph=False)()
    assert_close(value, expected, rtol=1e-8)
    for one, other in zip(gradient, expected_gradient, strict=True):
        assert_close(one, other, rtol=1e-8)
