"""Where runs of maximise start."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from ..checks import check_positive

#: The standard deviation of random starts, in GPflow's unconstrained parameters.
PERTURBATION = 0.5


def moves(
    starts: int | Sequence[Callable[[GPModel], None]], variables: Sequence[tf.Variable], seed: int
) -> list[Callable[[GPModel], None]]:
    """Make what is done with the model before each start; nothing before the first."""
    random = np.random.default_rng(seed)

    def perturb(model: GPModel) -> None:
        for variable in variables:
            change = PERTURBATION * random.standard_normal(variable.numpy().shape)
            variable.assign_add(change.astype(variable.dtype.as_numpy_dtype))

    return [lambda model: None, *_further(starts, perturb)]


def _further(
    starts: int | Sequence[Callable[[GPModel], None]], perturb: Callable[[GPModel], None]
) -> list[Callable[[GPModel], None]]:
    """Make what sets the parameters of each start but the first."""
    if not isinstance(starts, Sequence):
        return [perturb] * (check_positive("starts", starts) - 1)
    if isinstance(starts, str) or not all(map(callable, starts)):
        raise ValueError(
            f"starts: got {starts!r}, expected a number, or functions of the model that assign its"
            " parameters. Pass [lambda model: model.kernel.variance.assign(2.0)], for example."
        )
    return list(starts)
