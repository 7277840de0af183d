"""Arguments and parameters of models, and their checks."""

import inspect
from functools import wraps
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..engine import checks
from ..engine.numerics.linalg import warn
from ..engine.prior import is_mixed
from ..engine.prior.mixing import share_inducing_variable
from ..engine.sites.record import ConvergenceWarning, SiteUpdateInfo

#: Arguments of SVGP that do not exist in models that compute q from their data.
_OF_SVGP = {"whiten", "q_diag", "q_mu", "q_sqrt", "num_data"}


def refuse_arguments(model: type, arguments: dict[str, Any]) -> None:
    """Refuse arguments of SVGP that the model lacks."""
    constructor = inspect.signature(model.__init__)  # type: ignore[misc]
    for name, value in arguments.items():
        if name in _OF_SVGP and name not in constructor.parameters:
            expected = (
                f"no such argument: {model.__name__} computes the best q from its data"
            )
            remedy = "Leave it out, or use ARPEP."
            raise TypeError(
                checks.message(name, checks.as_code(value), expected, remedy)
            )


def refusing(init: Any) -> Any:
    """Check keyword arguments with :func:`refuse_arguments` before a constructor, and
    keep its signature.
    """

    @wraps(init)
    def checked(self: Any, *arguments: Any, **options: Any) -> None:
        refuse_arguments(type(self), options)
        init(self, *arguments, **options)

    return checked


def mixed_arguments(
    kernel: Kernel,
    inducing_variable: Any,
    Y: tf.Tensor,
    num_latent_gps: int | None,
    **options: Any,
) -> InducingVariables:
    """Check arguments of a model whose outputs are mixed from latent functions, and
    make the latent functions share the inducing variables, unless these are already
    multi-output.

    :param options: Arguments for independent outputs only; None for those that are left
        out.
    """
    for name, value in options.items():
        if value is not None:
            refuse_mixed(kernel, name, "Leave it out.")
    rows, columns = (int(size) for size in kernel.W.shape)
    num_latents = len(kernel.latent_kernels)
    num_outputs = int(Y.shape[1])
    for size, wanted, unit in (
        (rows, num_outputs, "rows, one for each column of Y"),
        (columns, num_latents, "columns, one for each latent kernel"),
    ):
        if size != wanted:
            remedy = (
                "Pass gpflow.kernels.LinearCoregionalization(kernels, W) with a W of"
                " this shape."
            )
            raise checks.refusal(
                "W", f"shape {rows, columns}", f"{wanted} {unit}", remedy
            )
    if num_latent_gps not in (None, num_latents):
        expected = f"{num_latents}, one for each latent kernel"
        raise checks.refusal(
            "num_latent_gps", num_latent_gps, expected, "Leave it out."
        )
    return share_inducing_variable(inducing_variable)


def refuse_mixed(kernel: Kernel, name: str, remedy: str) -> None:
    """Refuse an argument or a method for independent latent functions if a kernel mixes
    them.
    """
    if is_mixed(kernel):
        got = "a model whose outputs are mixed from latent functions"
        raise checks.refusal(name, got, "independent latent functions", remedy)


def warn_unless_converged(
    info: SiteUpdateInfo, tolerance: float, advice: str, up: int = 3
) -> None:
    """Warn if the sites of a run did not converge, with the numbers of the run in eager
    mode.
    """
    message = (
        f"The sites did not converge: the residual should be below {tolerance:g}."
        f" {advice}"
    )
    numbers = {"Residual": info.residual, "sweeps": info.num_sweeps}
    warn(ConvergenceWarning, tf.logical_not(info.converged), message, numbers, up=up)


def largest_known(dtype: tf.DType) -> float:
    """Return the number of nats above which rounding loses a nat or more."""
    return float(1.0 / np.finfo(dtype.as_numpy_dtype).eps)


def unknown_log_z(dtype: tf.DType) -> str:
    """Return the message for a log Z that is not known to within a nat."""
    return (
        "log Z is not known to within a nat, so losses and predictions are"
        " unreliable: the expected log density of a row is not finite, or larger than"
        f" {largest_known(dtype):.1e} nats. Either rows far from all inducing inputs"
        " have an expected rate that is too large under this prior, or the likelihood"
        " cannot explain a target. Use a larger alpha, more inducing inputs, or a"
        " smaller kernel variance (a prior on it helps in training), and check the"
        " targets."
    )


def record_unknown(info: SiteUpdateInfo, ell: tf.Tensor) -> SiteUpdateInfo:
    """Record an infinite residual if a row's integral ``ell``, in nats, is too large
    for log Z to be known to within a nat.
    """
    unknown = tf.reduce_any(tf.abs(ell) > largest_known(ell.dtype))
    infinity = tf.constant(np.inf, info.residual.dtype)
    return info._replace(
        residual=tf.where(unknown, infinity, info.residual),
        converged=info.converged & ~unknown,
    )


def warn_of_run(info: SiteUpdateInfo, tolerance: float, advice: str) -> None:
    """Warn if log Z is not known to within a nat after a run, or if the sites of the
    run did not converge.
    """
    residual = tf.convert_to_tensor(info.residual)
    unknown = tf.math.is_inf(residual)
    numbers = {"Sweeps": info.num_sweeps}
    text = unknown_log_z(residual.dtype)
    warn(ConvergenceWarning, unknown, text, numbers, up=3)
    settled = tf.logical_or(unknown, info.converged)
    warn_unless_converged(info._replace(converged=settled), tolerance, advice, up=4)


class FixedParameter(Parameter):
    """A parameter that is never trained, even by ``gpflow.set_trainable``."""

    def __init__(self, value: TensorData, **kwargs: Any) -> None:
        super().__init__(value, **{**kwargs, "trainable": False})

    trainable = False


class VariationalParameter(Parameter):
    """A parameter of q, which GPflow's ``NaturalGradient`` can set to NaN if a step is
    too long.
    """

    def assign(self, value: TensorData, *args: Any, **kwargs: Any) -> tf.Tensor:
        """See :meth:`gpflow.Parameter.assign`; values that are not finite raise an
        error.
        """
        remedy = (
            "A step of gpflow.optimizers.NaturalGradient was too long: alpha above 0"
            " can make"
        )
        remedy += (
            " precisions negative. Use gpflow_pep.training.fit(natural_gradient=0.1),"
            " which"
        )
        value = tf.convert_to_tensor(value, self.dtype)
        value = checks.require_finite(value, "q", f"{remedy} shortens such steps.")
        return super().assign(value, *args, **kwargs)


class Power(FixedParameter):
    """The power :math:`\\alpha` of Power EP: one number, or one for each factor. It is
    not trained.

    :param value: A number or numbers in [0, 1], both ends included. 0 is variational
        inference, 1 is EP.
    :raises ValueError: If a value is outside [0, 1] or NaN, here or in a later
        assignment.
    """

    def __init__(self, value: TensorData, **kwargs: Any) -> None:
        _check_power(value)
        super().__init__(value, **kwargs)

    def assign(self, value: TensorData, *args: Any, **kwargs: Any) -> tf.Tensor:
        """See :meth:`gpflow.Parameter.assign`; values outside [0, 1] raise an error."""
        _check_power(value)
        return super().assign(value, *args, **kwargs)


def _check_power(value: TensorData) -> None:
    if tf.is_tensor(value) and not hasattr(value, "numpy"):
        return  # inside a graph there is no value to check yet
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise checks.refusal(
            "alpha",
            checks.as_code(value),
            "a number in [0, 1] or an array of such numbers",
            "Pass 0.5, for example.",
        ) from None
    wrong = array[~((array >= 0.0) & (array <= 1.0))]
    if wrong.size:
        remedy = (
            "Choose 0 for variational inference, 1 for EP / FITC, or a number in"
            " between, often 0.5."
        )
        raise checks.refusal("alpha", wrong.flat[0], "values in [0, 1]", remedy)


def set_unchecked(model: tf.Module, **attributes: Any) -> None:
    """Set attributes of a model without the model's checks on assignment."""
    for name, value in attributes.items():
        tf.Module.__setattr__(model, name, value)
