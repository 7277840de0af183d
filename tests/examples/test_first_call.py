"""Graphs of the losses stay small: tracing and compiling are most of what a small fit waits for."""

from functools import cache

import pytest
from helpers import load_example

from examples.common import value_and_gradient

first_call = load_example("benchmarks/first_call.py")

#: The most operations of value and gradient, beside those of a model of GPflow.
MOST = {
    "PEPRegression": ("SGPR", 1.35),
    "PEP-probit": ("SVGP", 2.15),
    "PEP-Student-t": ("SVGP", 3.4),
    # 3.05 before the loss had derivatives in RobustMax's epsilon where that is not trained too.
    "PEP-3-classes": ("SVGP", 3.1),
}


@cache
def num_operations(name: str) -> int:
    model, loss = first_call.create(name, 50)
    both = value_and_gradient(loss, model.trainable_variables)
    number: int = first_call.num_operations(both.get_concrete_function().graph)
    return number


@pytest.mark.parametrize("name", MOST)
def test_a_loss_has_few_operations(name: str) -> None:
    gpflow_name, ratio = MOST[name]
    assert num_operations(name) < ratio * num_operations(gpflow_name)
