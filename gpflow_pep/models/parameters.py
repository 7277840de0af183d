"""Parameters that GPflow has no class for."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorData

from ..ops.power import is_power


class Power(Parameter):
    """
    The power :math:`\\alpha` of Power EP: one number, or one for each factor; not trained.

    :param value: Number(s) in [0, 1], both ends included. 0 is variational inference, 1 is EP.
    :raises ValueError: If a value is outside [0, 1] or NaN, here and when assigned later.
    """

    def __init__(self, value: TensorData, **kwargs: Any) -> None:
        _check_power(value)
        super().__init__(value, **{"trainable": False, **kwargs})

    def assign(self, value: TensorData, *args: Any, **kwargs: Any) -> tf.Tensor:
        """See :meth:`gpflow.Parameter.assign`; values outside [0, 1] are refused."""
        _check_power(value)
        return super().assign(value, *args, **kwargs)


def _check_power(value: TensorData) -> None:
    if tf.is_tensor(value) and not hasattr(value, "numpy"):
        return  # inside a graph there is no value to check yet
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"alpha: got {value!r}, expected a number in [0, 1] or an array of them."
        ) from None
    if not is_power(array):
        wrong = array[~((array >= 0.0) & (array <= 1.0))]
        raise ValueError(
            f"alpha: got {wrong.flat[0]}, expected values in [0, 1]."
            " Choose 0 for variational inference, 1 for EP / FITC, or in between, often 0.5."
        )
