"""Parameters that GPflow has no class for, and what the models say of them."""

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import Module, TensorData

from ..ops.power import is_power
from ..sites import Sites


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


class ConvergenceWarning(UserWarning):
    """The sites did not reach their fixed point."""


class SiteParameters(Module):
    """The cached sites of a model, not trained."""

    def __init__(self, sites: Sites) -> None:
        super().__init__()
        shape = [None, sites.nu.shape[1]]
        self.nu = Parameter(sites.nu, trainable=False, shape=shape, dtype=sites.nu.dtype)
        self.tau = Parameter(sites.tau, trainable=False, shape=shape, dtype=sites.tau.dtype)

    def assign(self, sites: Sites) -> None:
        """Replace all sites; there may be another number of rows."""
        self.nu.unconstrained_variable.assign(sites.nu)
        self.tau.unconstrained_variable.assign(sites.tau)

    def read(self) -> Sites:
        """The sites as tensors."""
        return Sites(tf.convert_to_tensor(self.nu), tf.convert_to_tensor(self.tau))
