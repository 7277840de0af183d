"""What both ways to train share: what a model's state is."""

from collections.abc import Sequence
from typing import Any, TypeVar

import gpflow
import tensorflow as tf
from gpflow.models import GPModel

from ..checks import reason
from ..models import PEP, PEPRegression

__all__ = ["assign", "copy_of", "reason", "state_of"]

Module = TypeVar("Module", bound=tf.Module)

#: A copy that fails has been beaten by another thread, which is then further on.
_ATTEMPTS = 100


def copy_of(module: Module) -> Module:
    """
    Copy a model or a part of one, while other threads may do so too.

    GPflow's function clears what TensorFlow Probability remembers of transforms, in a table of the
    process, and fails where another thread takes an entry out of it, or puts one in, at that time.

    :param module: Anything of GPflow's.
    """
    for _ in range(_ATTEMPTS):
        try:
            return gpflow.utilities.deepcopy(module)
        except (KeyError, RuntimeError):
            continue
    return gpflow.utilities.deepcopy(module)


def state_of(model: GPModel) -> list[tf.Variable]:
    """
    Find what training and predictions change: parameters, other trainable variables, and the
    neighbours of rows.
    """
    found = [parameter.unconstrained_variable for parameter in model.parameters]
    if isinstance(model, PEP):
        found.append(model.sites.version)
    if isinstance(model, PEPRegression) and model.neighbour_plan is not None:
        found.extend((model.neighbour_plan.rows, model.neighbour_plan.neighbours))
    return list({id(v): v for v in (*found, *model.trainable_variables)}.values())


def assign(variables: Sequence[tf.Variable], values: Sequence[Any]) -> None:
    """Put a value into each variable."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
