"""Arguments and parameters of models: what is made of them, and what is refused."""

import inspect
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import AnyNDArray, Module, TensorData
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables, MultioutputInducingVariables
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Gaussian

from ..engine import checks
from ..engine.factors import check_num_latent, check_support, layout_of, traits
from ..engine.factors.moments import check_noise
from ..engine.numerics.linalg import warn
from ..engine.numerics.power import is_power
from ..engine.prior import is_mixed
from ..engine.prior.mixing import check_mixed, share_inducing_variable
from ..engine.refusals import Renamed
from ..engine.sites.posterior import Sites, no_sites
from ..engine.sites.record import CLIPPED, FALLBACKS, ConvergenceWarning, SiteUpdateInfo
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
    """Check the Gaussian to start from, and fill in the prior's where it is not given.

    :param q_sqrt: Lower triangular square roots [L, M, M], or if ``q_diag`` standard deviations
        [M, L], or None.
    """
    dtype = default_float()
    q_mu, q_sqrt = (None if part is None else np.asarray(part, dtype) for part in (q_mu, q_sqrt))
    axes = (q_mu, -1), (q_sqrt, -1 if q_diag else 0)
    sizes = [part.shape[axis] for part, axis in axes if np.ndim(part)]
    num_latent = checks.check_positive("num_latent_gps", sizes[0] if sizes else num_latent_gps)
    mean: AnyNDArray = np.zeros([size, num_latent], dtype)
    root = np.ones_like(mean) if q_diag else np.tile(np.eye(size, dtype=dtype), [num_latent, 1, 1])
    for name, part, like in (("q_mu", q_mu, mean), ("q_sqrt", q_sqrt, root)):
        if part is not None and part.shape != like.shape:
            got, expected = f"shape {part.shape}", f"{like.shape}, which q_diag and the numbers of"
            expected += " inducing variables and latent functions need"
            raise checks.refusal(name, got, expected, "Reshape it, or leave it out.")
        if part is not None and not np.isfinite(part).all():
            remedy = "Leave it out to start from the prior's."
            raise checks.refusal(name, "NaN or infinity", "finite numbers", remedy)
    if q_sqrt is not None and q_diag and not (q_sqrt > 0.0).all():
        got, expected = "numbers that are not above 0 with q_diag=True", "standard deviations"
        raise checks.refusal("q_sqrt", got, expected, "Use numpy.abs of them, or leave it out.")
    is_full = q_sqrt is not None and not q_diag
    if is_full and (np.triu(q_sqrt, 1).any() or not np.diagonal(q_sqrt, 0, 1, 2).all()):
        got = "matrices with entries above the diagonal or zeros on it"
        expected = "lower triangular square roots of covariances"
        raise checks.refusal("q_sqrt", got, expected, "Use numpy.linalg.cholesky of them.")
    return (mean if q_mu is None else q_mu), (root if q_sqrt is None else q_sqrt)


def gaussian_likelihood(
    likelihood: Any, noise_variance: TensorData | None, num_outputs: int | None = None
) -> Any:
    """Make the likelihood of regression of what was given, one of the two or nothing.

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
        if name in _OF_SVGP and name not in inspect.signature(model.__init__).parameters:  # type: ignore[misc]
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
    """Check arguments of a model whose outputs are mixed from latent functions, and let these share
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
    """The power :math:`\\alpha` of Power EP: one number, or one for each factor; not trained.

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
