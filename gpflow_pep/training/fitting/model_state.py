"""What training changes of a model, copies of it, and how it gets values back."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import gpflow
import tensorflow as tf
from gpflow.models import GPModel

from ...models import PEP

Module = TypeVar("Module", bound=tf.Module)

#: A copy fails where another thread changed the same table, and is tried again.
_ATTEMPTS = 100


def copy_of(module: Module) -> Module:
    """
    Copy a model or a part of one, while other threads may do so too.

    GPflow's function clears what TensorFlow Probability remembers of transforms, in a table of the
    process, and fails where another thread takes an entry out of it, or puts one in, at that time.
    """
    for _ in range(_ATTEMPTS):
        try:
            return gpflow.utilities.deepcopy(module)
        except (KeyError, RuntimeError):
            continue
    return gpflow.utilities.deepcopy(module)


def state_of(model: GPModel) -> list[tf.Variable]:
    """List the variables that training and predictions change."""
    state = [parameter.unconstrained_variable for parameter in model.parameters]
    if isinstance(model, PEP):
        state.append(model.sites.version)
    return list({id(v): v for v in (*state, *model.trainable_variables)}.values())


def assign(variables: Sequence[tf.Variable], values: Sequence[Any]) -> None:
    """Put a value into each variable."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


@contextmanager
def assigned_at_exit(
    variables: Sequence[tf.Variable], values: Callable[[], Sequence[Any]]
) -> Iterator[None]:
    """Put values into variables when the block is left, also by an error or an interrupt."""
    try:
        yield
    finally:
        assign(variables, values())


def assign_same(model: GPModel, other: GPModel) -> None:
    """Give a model the trainable parameters of another that have the same path and shape."""
    parameters = gpflow.utilities.parameter_dict(model)
    for path, value in gpflow.utilities.parameter_dict(other).items():
        parameter = parameters.get(path)
        if parameter is not None and parameter.trainable and parameter.shape == value.shape:
            parameter.assign(value)
