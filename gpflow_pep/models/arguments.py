"""Arguments of models: what is made of them, and at which powers a model does what was asked."""

import inspect
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorData
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables, MultioutputInducingVariables
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Gaussian

from ..engine import checks
from ..engine.factors import check_num_latent, check_support, layout_of, traits
from ..engine.factors.moments import check_noise
from ..engine.prior import is_mixed
from ..engine.prior.mixing import check_mixed, share_inducing_variable
from ..engine.refusals import Renamed
from ..likelihoods import PerOutput


def size_of_u(inducing_variable: InducingVariables, kernel: Kernel) -> int:
    """Count the inducing variables of each latent function."""
    num_inducing = int(inducing_variable.num_inducing)
    several = isinstance(kernel, MultioutputKernel)
    if several and not isinstance(inducing_variable, MultioutputInducingVariables):
        return num_inducing * int(kernel.num_latent_gps)  # all outputs in one Gaussian
    return num_inducing


def check_q(
    q_mu: Any, q_sqrt: Any, size: int, num_latent_gps: int, q_diag: bool
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Check the Gaussian to start from, and fill in the prior's where it is not given.

    :param q_sqrt: Lower triangular square roots [L, M, M], or if ``q_diag`` standard deviations
        [M, L], or None.
    """
    q_mu, q_sqrt = (
        None if value is None else np.asarray(value, default_float()) for value in (q_mu, q_sqrt)
    )
    axes = (q_mu, -1), (q_sqrt, -1 if q_diag else 0)
    sizes = [value.shape[axis] for value, axis in axes if np.ndim(value)]
    num_latent = checks.check_positive("num_latent_gps", sizes[0] if sizes else num_latent_gps)
    roots = (size, num_latent) if q_diag else (num_latent, size, size)
    for name, value, shape in (("q_mu", q_mu, (size, num_latent)), ("q_sqrt", q_sqrt, roots)):
        if value is not None:
            _check_array(name, value, shape)
    if q_sqrt is not None:
        _check_roots(q_sqrt, q_diag)
    mean = np.zeros([size, num_latent], default_float()) if q_mu is None else q_mu
    if q_sqrt is None and q_diag:
        return mean, np.ones_like(mean)
    if q_sqrt is None:
        return mean, np.tile(np.eye(size, dtype=default_float()), [num_latent, 1, 1])
    return mean, q_sqrt


def _check_array(name: str, value: AnyNDArray, shape: tuple[int, ...]) -> None:
    if value.shape != shape:
        expected = f"{shape}, which q_diag and the numbers of inducing variables and latent"
        expected += " functions need"
        raise checks.refusal(name, f"shape {value.shape}", expected, "Reshape it, or leave it out.")
    if not np.isfinite(value).all():
        remedy = "Leave it out to start from the prior's."
        raise checks.refusal(name, "NaN or infinity", "finite numbers", remedy)


def _check_roots(q_sqrt: AnyNDArray, q_diag: bool) -> None:
    if q_diag and not (q_sqrt > 0.0).all():
        raise checks.refusal(
            "q_sqrt",
            "numbers that are not above 0 with q_diag=True",
            "standard deviations",
            "Use numpy.abs of them, or leave it out.",
        )
    if not q_diag and (np.triu(q_sqrt, 1).any() or not np.diagonal(q_sqrt, 0, 1, 2).all()):
        raise checks.refusal(
            "q_sqrt",
            "matrices with entries above the diagonal or zeros on it",
            "lower triangular square roots of covariances",
            "Use numpy.linalg.cholesky of them.",
        )


def gaussian_likelihood(
    likelihood: Any, noise_variance: TensorData | None, num_outputs: int | None = None
) -> Any:
    """
    Make the likelihood of regression of what was given, one of the two or nothing.

    :param num_outputs: How many have noise of their own; None: all have the same.
    """
    parts = getattr(likelihood, "likelihoods", None) if num_outputs else None
    if likelihood is None:
        variances: list[Any] = [1.0 if noise_variance is None else noise_variance]
        if num_outputs:
            variances = np.broadcast_to(np.ravel(variances[0]), [num_outputs]).tolist()
        for variance in variances:
            checks.check_noise_variance(variance)
        noisy = [Gaussian(variance) for variance in variances]
        return PerOutput(noisy) if num_outputs else noisy[0]
    if noise_variance is not None:
        remedy = "Set the variance where the likelihood is created."
        raise checks.refusal("noise_variance and likelihood", "both", "one or the other", remedy)
    suit = (
        traits(part).is_gaussian and (num_outputs is None or _takes_any_columns(part))
        for part in parts or [likelihood]
    )
    if not all(suit):
        raise checks.refusal(
            "likelihood",
            type(likelihood).__name__,
            "a gpflow.likelihoods.Gaussian: regression is in closed form for Gaussian noise only",
            "Use gpflow_pep.models.PEP.",
        )
    check_noise(likelihood, num_outputs or 1)
    return likelihood


#: Arguments of SVGP that a model which computes q from its data has not.
_OF_SVGP = {"whiten", "q_diag", "q_mu", "q_sqrt", "num_data"}


def refuse_arguments(model: type, arguments: dict[str, Any]) -> None:
    """Refuse arguments by names that they had once, and those of SVGP that the model lacks."""
    for name, value in arguments.items():
        attribute = inspect.getattr_static(model, name, None)
        if isinstance(attribute, Renamed):
            raise TypeError(attribute.text)
        if name in _OF_SVGP and name not in inspect.signature(model.__init__).parameters:
            expected = f"no such argument: {model.__name__} computes the best q from its data"
            remedy = "Leave it out, or use ARPEP."
            raise TypeError(checks.message(name, repr(value), expected, remedy))


class NoVariable:
    """Stands where GPflow's natural gradients look for the variable of a q that is computed."""

    def __str__(self) -> str:
        raise checks.refusal(
            "NaturalGradient",
            "q_mu and q_sqrt of a model that computes them from its data",
            "parameters, as those of SVGP, APEP, ARPEP and RPAPEP",
            "Leave it out: an optimiser of training_loss trains all parameters of this model.",
        )


def has_gaps(data: Any) -> bool:
    """Whether targets are NaN; what is no pair of arrays of numbers is refused elsewhere."""
    try:
        Y = np.asarray(data[1])
    except (TypeError, ValueError, IndexError, KeyError, NotImplementedError):
        return False
    return Y.dtype.kind == "f" and bool(np.isnan(Y).any())


def _takes_any_columns(likelihood: Gaussian) -> bool:
    """Whether the targets of a likelihood may have any number of columns."""
    return layout_of(likelihood, 2).num_columns is None


def check_targets(likelihood: Gaussian, Y: tf.Tensor) -> None:
    """Refuse several or missing targets of a row for a likelihood that takes a single one."""
    if not _takes_any_columns(likelihood):
        check_num_latent(None, likelihood, Y)
        check_support(likelihood, Y)


def mixed_arguments(
    kernel: Kernel, inducing_variable: Any, Y: tf.Tensor, num_latent_gps: int | None, **options: Any
) -> InducingVariables:
    """
    Check arguments of a model whose outputs are mixed from latent functions, and let these share
    inducing variables that are not of several already.

    :param options: Arguments that are for independent outputs alone, None where they are left out.
    """
    for name, value in options.items():
        if value is not None:
            refuse_mixed(kernel, name, "Leave it out.")
    check_mixed(kernel, int(Y.shape[1]), num_latent_gps)
    return share_inducing_variable(inducing_variable)


def refuse_mixed(kernel: Kernel, name: str, remedy: str) -> None:
    """Refuse what there is for independent latent functions alone, if a kernel mixes them."""
    if is_mixed(kernel):
        got = "a model whose outputs are mixed from latent functions"
        raise checks.refusal(name, got, "independent latent functions", remedy)


def check_near_rows(model: Any) -> None:
    """Refuse near rows in predictions of a model whose rows see several latent functions."""
    number = int(model.num_latent_gps)
    if number != 1 or isinstance(model.kernel, MultioutputKernel):
        got = f"near rows with {number} latent functions under {type(model.kernel).__name__}"
        expected = "one latent function and a kernel of one output"
        raise checks.refusal("near", got, expected, "Leave them out, or use PEPRegression.")


def require_bound(alpha: tf.Tensor, name: str) -> list[tf.Operation]:
    """Refuse powers at which log Z is no lower bound, by the name of what needs one."""
    text = checks.message(
        name,
        "a power alpha above 0",
        "0 for all rows: log Z is a lower bound there only",
        "Use pep_log_marginal_likelihood, the estimate of the log marginal likelihood at any alpha"
        " (at 1 that of EP and FITC), or set the power first: model.alpha = 0.0.",
    )
    return checks.require(tf.reduce_all(tf.equal(alpha, 0.0)), text)
