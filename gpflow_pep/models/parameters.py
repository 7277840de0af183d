"""Parameters that GPflow has no class for."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, Module, TensorData

from ..engine import checks
from ..engine.numerics.linalg import warn
from ..engine.numerics.power import is_power
from ..engine.sites.posterior import Sites, no_sites
from ..engine.sites.record import CLIPPED, FALLBACKS, ConvergenceWarning, SiteUpdateInfo


def warn_unless_converged(info: SiteUpdateInfo, tolerance: float, advice: str) -> None:
    """Warn where the sites of a run did not converge; in eager mode its numbers are known."""
    message = f"The sites did not converge: residual expected below {tolerance:g}. {advice}"
    numbers = {"Residual": info.residual, "sweeps": info.num_sweeps}
    warn(ConvergenceWarning, tf.logical_not(info.converged), message, numbers, up=3)


def record_of_run(numbers: AnyNDArray) -> SiteUpdateInfo:
    """Read a record of the inner loop, with the name of the fallback, from its five numbers."""
    sweeps, residual, converged, rejected, fallback = numbers
    name = FALLBACKS[min(int(fallback), CLIPPED)]  # older checkpoints count one more before it
    return SiteUpdateInfo(int(sweeps), float(residual), bool(converged), int(rejected), name)


class FixedParameter(Parameter):
    """A parameter that is never trained: ``gpflow.set_trainable`` has no effect on it."""

    def __init__(self, value: TensorData, **kwargs: Any) -> None:
        super().__init__(value, **{**kwargs, "trainable": False})

    trainable = False


class VariationalParameter(Parameter):
    """A parameter of q, of which GPflow's ``NaturalGradient`` can make NaN where a step is long."""

    def assign(self, value: TensorData, *args: Any, **kwargs: Any) -> tf.Tensor:
        """See :meth:`gpflow.Parameter.assign`; what is not finite is refused."""
        remedy = "A step of gpflow.optimizers.NaturalGradient was too long: alpha above 0 can make"
        remedy += " precisions negative. Use gpflow_pep.training.fit(natural_gradient=0.1), which"
        value = tf.convert_to_tensor(value, self.dtype)
        value = checks.require_finite(value, "q", f"{remedy} shortens such steps.")
        return super().assign(value, *args, **kwargs)


class Power(FixedParameter):
    """
    The power :math:`\\alpha` of Power EP: one number, or one for each factor; not trained.

    :param value: Number(s) in [0, 1], both ends included. 0 is variational inference, 1 is EP.
    :raises ValueError: If a value is outside [0, 1] or NaN, here and when assigned later.
    """

    def __init__(self, value: TensorData, **kwargs: Any) -> None:
        _check_power(value)
        super().__init__(value, **kwargs)

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
        raise checks.refusal(
            "alpha", repr(value), "a number in [0, 1] or an array of them", "Pass 0.5, for example."
        ) from None
    if not is_power(array):
        wrong = array[~((array >= 0.0) & (array <= 1.0))]
        remedy = "Choose 0 for variational inference, 1 for EP / FITC, or in between, often 0.5."
        raise checks.refusal("alpha", wrong.flat[0], "values in [0, 1]", remedy)


def set_unchecked(model: tf.Module, **attributes: Any) -> None:
    """Set attributes of a model past the checks that the model makes of assigned ones."""
    for name, value in attributes.items():
        tf.Module.__setattr__(model, name, value)


def copy_variables(variables: Iterable[tf.Variable], memo: dict[int, Any]) -> None:
    """Copy variables into the memo of ``deepcopy``; TensorFlow forgets which lengths may change."""
    for variable in variables:
        if id(variable) not in memo and not variable.shape.is_fully_defined():
            memo[id(variable)] = tf.Variable(
                variable.read_value(),
                trainable=variable.trainable,
                shape=variable.shape,
                name=variable.name.split(":")[0],
            )


class SiteParameters(Module):
    """The cached sites of a model, never trained."""

    _TF_MODULE_IGNORED_PROPERTIES = frozenset({"version", *Module._TF_MODULE_IGNORED_PROPERTIES})

    def __init__(self, sites: Sites) -> None:
        super().__init__()
        shape = [None, sites.nu.shape[1]]
        self.nu = FixedParameter(sites.nu, shape=shape, dtype=sites.nu.dtype)
        self.tau = FixedParameter(sites.tau, shape=shape, dtype=sites.tau.dtype)
        self.version = tf.Variable(0, trainable=False)
        """How often all of them were replaced at once."""

    def read(self, num_rows: tf.Tensor) -> Sites:
        """Read them; none where there are others than for so many rows."""
        cached = Sites(*map(tf.convert_to_tensor, (self.nu, self.tau)))
        empty = no_sites(num_rows, cached.nu.shape[1], cached.nu.dtype)
        if cached.nu.shape[0] is not None and cached.nu.shape[0] == empty.nu.shape[0]:
            return cached
        same = tf.equal(tf.shape(cached.nu)[0], num_rows)
        parts = tf.cond(same, lambda: cached, lambda: empty)
        return Sites(*(tf.ensure_shape(part, empty.nu.shape) for part in parts))

    def write(self, sites: Sites) -> None:
        """Replace all of them, perhaps by those of another number of rows."""
        for parameter, value in zip((self.nu, self.tau), sites, strict=True):
            if isinstance(parameter, Parameter):  # gpflow.utilities.freeze makes a constant of it
                parameter.unconstrained_variable.assign(value)
        self.version.assign_add(1)
