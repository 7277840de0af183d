"""The base classes of the models."""

import abc
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance, RegressionData, TensorData
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models import GPModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.models.util import InducingVariablesLike
from gpflow.posteriors import BasePosterior, PrecomputeCacheType

from ..engine import checks, prior
from ..engine.factors import check_support, entries, predict_mean_and_var
from ..engine.factors.moments import log_power_expectation_of_batches
from ..engine.numerics.linalg import trials_listed, warn
from ..engine.paths.functions import draw_paths
from ..engine.predictions.posterior import f_under, gpflow_posterior
from ..engine.prior.evaluate import skip_autograph, unconverted
from ..engine.prior.mixing import latent_parts
from ..engine.sites.memory import Memory
from ..engine.sites.mixed import Mixed
from ..engine.sites.posterior import (
    Independent,
    MemoryTerms,
    Natural,
    SiteProblem,
    SiteRows,
    WhitenedGaussian,
    unwhitened,
    whitened_posterior,
)
from ..engine.sites.surrogate import SurrogateRegression, surrogate_regression
from .arguments import (
    FixedParameter,
    Power,
    refuse_mixed,
    refusing,
    set_unchecked,
)
from .memory import AttachedMemory, remember
from .rows import Cut, Data, Rows, check_replacement

Result = TypeVar("Result")

#: Advice for numbers that are not finite and sites that do not converge.
ADVICE = (
    "Likely causes are a hyperparameter that ran off to a huge or tiny value, data"
    " far from unit scale, or targets that the likelihood cannot explain. Standardise"
    " the data, put priors on the parameters, start from other values, or lower alpha"
    " (raise it if it is 0 and a log density has no mean)."
    " gpflow_pep.training.maximise shortens steps of the optimiser that lead to such"
    " values."
)


#: The message about parameters without a loss, for an optimiser that tries them, and
#: for training that begins there.
NO_FACTOR = checks.message(
    "training loss",
    "a covariance matrix of inducing variables that cannot be factorised",
    "a matrix that can be factorised, with a larger diagonal",
    "The loss is infinite there, and optimisers step back. If training begins there: "
    + ADVICE,
)
_NO_LOSS_YET, _HAD_LOSS, _WARNED = range(3)


class TrialWarning(UserWarning):
    """An optimiser tried parameters for which there is no loss."""


def finite(moments: MeanAndVariance) -> MeanAndVariance:
    mean, variance = (
        checks.require_finite(moment, "prediction", ADVICE) for moment in moments
    )
    return mean, variance


def labels_to_floats(data: Any) -> Any:
    """Convert integer and boolean targets to GPflow's float type, like GPflow's
    models.
    """
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        return data  # `check_data` refuses it
    X, Y = data
    if not tf.is_tensor(Y):
        Y = np.asarray(Y)
    dtype = (
        tf.as_dtype(Y.dtype) if tf.is_tensor(Y) or Y.dtype.kind in "biu" else tf.float64
    )
    is_exact = dtype.is_integer or dtype.is_bool
    return (X, tf.cast(Y, default_float())) if is_exact else data


def refuse_data(model: Any, name: str, data: tuple[Any, ...]) -> None:
    """Refuse data as an argument of a method if the model holds its data."""
    if data and hasattr(model, "data"):
        expected = f"no argument: {type(model).__name__} holds its data"
        remedy = (
            f"Call {name}(); for other rows, set model.data = (X, Y) first, or use"
            " ARPEP."
        )
        raise TypeError(checks.message(name, "data", expected, remedy))


class PowerEPModel(GPModel, abc.ABC):
    """Base class of all models, with a power, a whitened q(v), and predictions that
    must be finite.
    """

    alpha: Power
    inducing_variable: InducingVariables
    memory: AttachedMemory | None = (
        None  #: The summary of rows that the model no longer has.
    )
    _TF_MODULE_IGNORED_PROPERTIES = frozenset(
        {"_trials", *GPModel._TF_MODULE_IGNORED_PROPERTIES}
    )
    num_inducing = property(
        lambda self: int(self.inducing_variable.num_inducing), doc="M."
    )
    paths = draw_paths

    def __init_subclass__(cls, **options: Any) -> None:
        """See :func:`~gpflow_pep.models.arguments.refuse_arguments`."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            constructor = refusing(cls.__init__)
            cls.__init__ = constructor  # type: ignore[method-assign]

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: InducingVariablesLike,
        mean_function: MeanFunction | None,
        num_latent_gps: int | None,
        alpha: TensorData,
        X: tf.Tensor | None,
    ) -> None:
        checks.check_likelihood(likelihood)
        checks.check_mean_function(mean_function)
        variables = prior.check_inducing_variable(inducing_variable, kernel, X)
        super().__init__(
            kernel, likelihood, mean_function, num_latent_gps=num_latent_gps
        )
        self.inducing_variable = variables
        parts = {
            "kernel": kernel,
            "likelihood": likelihood,
            "mean_function": self.mean_function,
        }
        dtype = tf.as_dtype(default_float())
        checks.check_same_float(dtype, inducing_variable=variables, **parts)
        # Otherwise GPUs round the factors of products to 11 bits.
        if dtype == tf.float32:
            tf.config.experimental.enable_tensor_float_32_execution(False)
        X = prior.example_inputs(variables) if X is None else X
        if X is not None:
            prior.check_near_origin(kernel, X)
            prior.check_kernel_at_row(kernel, X)
            prior.check_mean_at_row(self.mean_function, X, num_latent_gps)
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        # This bypasses TensorFlow, which would save the attribute. The type is int64,
        # because GPUs cannot hold int32 variables for XLA.
        trials = tf.Variable(
            _NO_LOSS_YET, trainable=False, dtype=tf.int64, aggregation=once
        )
        self.__dict__["_trials"] = trials
        self.alpha = Power(alpha)

    @tf.autograph.experimental.do_not_convert
    def _training_loss(self, *data: RegressionData) -> tf.Tensor:
        """Compute the loss as GPflow does. If a factorisation fails, the loss is
        infinite and all derivatives are 0, so that a line search steps back; but
        training must not begin there.
        """
        with trials_listed() as trials:
            loss = super()._training_loss(*data)
        if not trials:
            return loss
        if not tf.executing_eagerly():  # training begins when its loss is compiled
            with tf.init_scope():
                self._trials.assign(_NO_LOSS_YET)
        succeeded = functools.reduce(tf.logical_and, trials)
        before = tf.convert_to_tensor(self._trials)
        had_loss = tf.maximum(before, _HAD_LOSS)
        now = tf.where(succeeded, had_loss, _WARNED)
        began = checks.require(succeeded | (before > _NO_LOSS_YET), NO_FACTOR)
        with tf.control_dependencies(began):
            loss = tf.where(succeeded, loss, tf.constant(np.inf, loss.dtype))
        warn(TrialWarning, now > had_loss, NO_FACTOR, {})
        self._trials.assign(now)
        return loss

    def _trackable_children(
        self, save_type: str = "checkpoint", **options: Any
    ) -> dict[str, Any]:
        """Add the variable that exported losses read. It is not in checkpoints."""
        children: dict[str, Any] = super()._trackable_children(save_type, **options)
        return children | (
            {"_trials": self._trials} if save_type == "savedmodel" else {}
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "alpha" and name in vars(self):
            self._assign_power(value)
        else:
            super().__setattr__(name, value)

    def _assign_power(self, value: TensorData) -> None:
        """Assign powers of the same shape to the parameter, which compiled functions
        read.
        """
        same_shape = tuple(np.shape(value)) == tuple(self.alpha.shape)
        # A graph checks it when it is used.
        if not same_shape or tf.executing_eagerly():
            alpha = Power(value)
            self._check_powers(alpha)
        if same_shape:
            self.alpha.assign(value)
        else:
            self._replace_power(alpha)

    @abc.abstractmethod
    def _check_powers(self, alpha: Power) -> tf.Tensor:
        """Check that powers suit the model, and convert them."""

    def _replace_power(self, alpha: Power) -> None:
        """Store checked powers of another shape."""
        raise NotImplementedError  # the model has only one number

    def _powers(self) -> tf.Tensor:
        return self._check_powers(self.alpha)

    @property
    def _parts(self) -> prior.Parts:
        return prior.Parts(
            self.kernel, self.inducing_variable, self.mean_function, self.likelihood
        )

    @abc.abstractmethod
    def _posterior_of_v(self) -> WhitenedGaussian:
        """Compute q(v) for the present parameters."""

    def pep_log_marginal_likelihood(self, *data: RegressionData) -> tf.Tensor:
        """Compute the Power EP estimate of the log marginal likelihood; see the class.

        :param data: A batch, X [B, D] and Y [B, P], for models that hold no data. The
            sum over the B rows is scaled by N / B, so that the mean over batches of
            equal size is the value for all rows.
        :raises ValueError: If the batch does not suit the model, or if the result is
            not finite; the message says what to try.
        """
        refuse_data(self, "pep_log_marginal_likelihood", data)
        return self.maximum_log_likelihood_objective(*data)

    @unconverted("return: []")
    def elbo(self, *data: RegressionData) -> tf.Tensor:
        """Compute the evidence lower bound at alpha 0. It is the bound of
        :meth:`gpflow.models.SGPR.elbo` for Gaussian noise, and of
        :class:`gpflow.models.SVGP` otherwise; models that hold their data compute the
        bound at the best q.

        :raises ValueError: If some alpha is not 0, or if the model has a memory,
            because log Z is then not a lower bound.
        """
        self._require_all_rows("elbo")
        expected = "0 for all rows, because log Z is a lower bound only there"
        remedy = (
            "Use pep_log_marginal_likelihood, the estimate at any alpha (EP and FITC"
        )
        remedy += " at 1), or set the power first: model.alpha = 0.0."
        text = checks.message("elbo", "a power alpha above 0", expected, remedy)
        # While a graph is traced, TensorFlow does not wrap the message.
        with tf.init_scope():
            checks.require(tf.reduce_all(tf.equal(self.alpha, 0.0)), text)
        at_zero = checks.require(tf.reduce_all(tf.equal(self._powers(), 0.0)), text)
        with tf.control_dependencies(at_zero):
            return self.pep_log_marginal_likelihood(*data)

    def _require_all_rows(self, name: str) -> None:
        if self.memory is not None:
            remedy = (
                "For rows that a memory replaces, neither a bound of their evidence"
                " nor the"
            )
            remedy += (
                " contribution of each is known. Use pep_log_marginal_likelihood, an"
                " estimate, or"
            )
            remedy += " make a model of all rows without the memory."
            raise checks.refusal(
                name, "a model with a memory", "a model that has all rows", remedy
            )

    def posterior(
        self,
        precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR,
    ) -> BasePosterior:
        """Create the GPflow posterior, for fast predictions.

        :raises ValueError: If GPflow has no posterior for this model.
        """
        return gpflow_posterior(self._posterior_of_v, self._parts, precompute_cache)

    @inherit_check_shapes
    @skip_autograph
    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """See :meth:`gpflow.models.GPModel.predict_f`; for many calls, use
        :meth:`posterior`.
        """
        q = self._posterior_of_v()
        return finite(f_under(q, *self._parts[:3], Xnew, full_cov, full_output_cov))

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """See ``tf.Module``. Parameters that are never trained are left out: alpha,
        sites and a memory, even if ``gpflow.set_trainable`` was called for them.
        """
        parameters = [
            parameter
            for parameter in self.parameters
            if isinstance(parameter, FixedParameter)
        ]
        fixed = {
            id(variable) for parameter in parameters for variable in parameter.variables
        }
        return tuple(v for v in super().trainable_variables if id(v) not in fixed)

    @inherit_check_shapes
    def predict_y(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """See :meth:`gpflow.models.GPModel.predict_y`.

        :raises ValueError: If the result is not finite, for example because
            hyperparameters ran off so far that variances of f are lost in rounding.
        """
        if full_cov or full_output_cov:
            # GPflow's method refuses it.
            return super().predict_y(Xnew, full_cov, full_output_cov)
        return finite(
            predict_mean_and_var(self.likelihood, Xnew, *self.predict_f(Xnew))
        )

    @inherit_check_shapes
    def predict_log_density(
        self,
        data: RegressionData,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """See :meth:`gpflow.models.GPModel.predict_log_density`. If targets of the
        model may be missing, the result is the sum over outputs of the log densities of
        the targets that are not NaN.

        :raises ValueError: If a target is outside the likelihood's support.
        """
        if full_cov or full_output_cov:
            # GPflow's method refuses it.
            return super().predict_log_density(data, full_cov, full_output_cov)
        if entries.takes_missing_targets(self):
            X, Y = self._check_new_targets(data)
            arguments = self.likelihood, X, *self.predict_f(X), Y
            return entries.observed_log_power_expectation(
                *arguments, tf.ones([1], X.dtype)
            )
        X, Y = data
        check_support(self.likelihood, Y)
        arguments = self.likelihood, X, *self.predict_f(X), Y
        return log_power_expectation_of_batches(*arguments, alpha=1.0)

    def _check_new_targets(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """Check new rows, whose targets may all be missing."""
        X, Y = map(tf.convert_to_tensor, checks.check_data(data, missing_targets=True))
        if Y.shape[1] not in (None, self.num_latent_gps):
            expected = (
                f"{self.num_latent_gps}, one for each output, with NaN for unknown"
                " targets"
            )
            raise checks.refusal(
                "Y",
                f"{Y.shape[1]} column(s)",
                expected,
                "Pass a column for each output.",
            )
        Y = tf.ensure_shape(Y, [None, self.num_latent_gps])
        entries.check_entries(self.likelihood, Y)
        return X, Y

    @inherit_check_shapes
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """See :meth:`gpflow.models.GPModel.predict_f_samples`.

        :raises ValueError: If the number of samples is not positive.
        """
        if num_samples is not None and not tf.is_tensor(num_samples):
            checks.check_positive("num_samples", num_samples)
        return super().predict_f_samples(Xnew, num_samples, full_cov, full_output_cov)


class InternalDataModel(InternalDataTrainingLossMixin):
    """A :class:`PowerEPModel` that holds its data and computes q(v) from them.

    ``model.alpha = 0.3`` and ``model.data = (X, Y)`` are checked as in the constructor.
    A compiled function uses a new power, and it uses new rows if the data are
    ``tf.Variable``. If the data are arrays, or if one power is replaced by powers of
    rows or the reverse, the function raises an error: compile it again. It never uses
    values that were replaced. (XLA raises no error.)
    """

    kernel: Kernel
    num_latent_gps: int
    inducing_variable: InducingVariables
    alpha: Power
    memory: AttachedMemory | None
    _parts: prior.Parts
    _powers: Callable[[], tf.Tensor]
    pep_log_marginal_likelihood: Callable[..., tf.Tensor]
    variables: tuple[tf.Variable, ...]
    trainable_variables: tuple[tf.Variable, ...]
    data: Data
    chunk_size: int | None

    # Records, which are not parameters and are not trained.
    _TF_MODULE_IGNORED_PROPERTIES = frozenset(
        {"_rows_version", *PowerEPModel._TF_MODULE_IGNORED_PROPERTIES}
    )

    def _set_rows(self, data: Data, cut: Cut, chunk_size: int | None) -> None:
        self._rows_version = tf.Variable(0, trainable=False)
        self.data = data
        self._cut = cut
        self.chunk_size = (
            None
            if chunk_size is None
            else checks.check_positive("chunk_size", chunk_size)
        )
        self.num_data = self.rows.num_rows

    @property
    def rows(self) -> Rows:
        """The present rows."""
        num_inducing = (self.inducing_variable.shape or (None,))[0]
        # Each row is projected on the inducing variables of all latent functions.
        if prior.is_mixed(self.kernel):
            num_inducing = (
                num_inducing and len(self.kernel.latent_kernels) * num_inducing
            )
        of_model = self.data, self.alpha, self._cut, self._rows_version
        return Rows(*of_model, self.chunk_size, num_inducing)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "data" and name in vars(self):
            self._assign_data(value)
        else:
            super().__setattr__(name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        _copy_variables(self.variables, memo)
        copied = memo[id(self)] = type(self).__new__(type(self))
        vars(copied).update(deepcopy(vars(self), memo))
        return copied

    def training_loss(self, *data: Any) -> tf.Tensor:
        """See :meth:`gpflow.models.SGPR.training_loss`."""
        refuse_data(self, "training_loss", data)
        return super().training_loss()

    def training_loss_closure(
        self, *data: Any, compile: bool = True
    ) -> Callable[[], tf.Tensor]:
        """See :meth:`gpflow.models.SGPR.training_loss_closure`."""
        refuse_data(self, "training_loss_closure", data)
        return super().training_loss_closure(compile=compile)

    def _check_powers(self, alpha: Power) -> tf.Tensor:
        return self.rows._replace(alpha=alpha).powers()

    def _replace_power(self, alpha: Power) -> None:
        self._take(self.rows.with_powers(alpha))

    @property
    def takes_missing_targets(self) -> bool:
        """Whether NaN in Y marks a target that was not observed."""
        return prior.is_mixed(self.kernel)

    @property
    def latents(self) -> Independent | Mixed:
        """How the kernel makes outputs depend on latent functions."""
        if prior.is_mixed(self.kernel):
            return Mixed(tf.convert_to_tensor(self.kernel.W))
        return Independent()

    @property
    def _latent_parts(self) -> prior.Parts:
        """The kernel and other parts of latent functions; the same as for the model if
        outputs are latent functions.
        """
        return latent_parts(self._parts) if prior.is_mixed(self.kernel) else self._parts

    def site_problem(self) -> SiteProblem:
        """Collect the present rows and parameters for the functions of the inner
        loop.
        """
        parts = self._latent_parts
        rows = SiteRows(*self.rows.read(), self._powers())
        parts_of_W = parts.with_values()
        W = parts_of_W.whiten().W
        memory = self._memory_terms(W)
        return SiteProblem(
            parts,
            rows,
            W,
            self.chunk_size,
            memory,
            num_latents=self._num_latents,
            latents=self.latents,
            parts_of_W=parts_of_W,
        )

    @property
    def _num_latents(self) -> int:
        """The number of latent functions, which differs from ``num_latent_gps`` if
        outputs are mixed.
        """
        if prior.is_mixed(self.kernel):
            return len(self.kernel.latent_kernels)
        return int(self.num_latent_gps)

    def _check_latent(self, *, shared: bool = False) -> None:
        """See :func:`~gpflow_pep.engine.prior.check_independent`."""
        kernel = self._latent_parts.kernel
        shared = shared and not prior.is_mixed(self.kernel)
        prior.check_independent(
            kernel, self.inducing_variable, self._num_latents, shared=shared
        )

    def _check_data(self, data: Any, kernel: Kernel | None = None) -> Data:
        """Check rows of the model, whose targets may be missing if outputs are mixed.

        :param kernel: The kernel of a model that is being made; None for the kernel of
            this model.
        """
        missing = (
            self.takes_missing_targets if kernel is None else prior.is_mixed(kernel)
        )
        return (
            checks.check_incomplete_data(data) if missing else checks.check_data(data)
        )

    def _assign_data(self, data: RegressionData) -> None:
        other = self._check_data(data)
        check_replacement(self.data, other)
        num_rows = int(tf.shape(other[0])[0])
        self._cut.check_other_rows(num_rows, self.num_data, self.alpha)
        self._take(self.rows.with_data(other))

    def _take(self, rows: Rows) -> None:
        """Replace the rows of the model by checked rows."""
        set_unchecked(self, data=rows.data, alpha=rows.alpha, num_data=rows.num_rows)

    @abc.abstractmethod
    def natural_of_v(self) -> Natural:
        """Compute the natural parameters that the data add to the prior of v."""

    @tf.autograph.experimental.do_not_convert
    def surrogate(self) -> SurrogateRegression:
        """Compute the regression problem that has the same posterior of u and the same
        evidence as this model.

        See :mod:`gpflow_pep.engine.sites.surrogate`.

        :raises ValueError: If sites of negative precision leave a direction of u with
            less precision than the prior, which no observation with noise does.
        """
        refuse_mixed(self.kernel, "surrogate", "Use posterior() for predictions.")
        W = self._parts.whiten().W
        log_z = self.pep_log_marginal_likelihood()
        return surrogate_regression(W, self.natural_of_v(), log_z)

    @tf.autograph.experimental.do_not_convert
    def remember(self, *, alpha: TensorData | None = None) -> Memory:
        """Summarise the rows and this model's memory, so that the rows can be dropped.

        Pass the result as ``memory`` to a model of other rows; this model does not
        change. The other model may have another kernel, likelihood, mean function and
        other inducing variables: see :mod:`gpflow_pep.engine.sites.memory`.

        :param alpha: The power of the memory as a factor, in [0, 1]. None uses the
            power of the other model, which must then have one power for all rows.
        :raises ValueError: If the inducing variables are not points, or if sites of
            negative precision leave a direction of u with less precision than the
            prior.
        """
        remedy = "Train on all rows, or use one model for each output."
        refuse_mixed(self.kernel, "remember", remedy)
        return remember(self, alpha)

    def _memory_terms(self, W: tf.Tensor) -> MemoryTerms | None:
        return None if self.memory is None else self.memory.terms(self, W)

    @tf.autograph.experimental.do_not_convert
    def compute_qu(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Compute mean [M, L] and covariance [L, M, M] of q(u) for each latent
        function.

        Latent functions of mixed outputs are correlated: ``q_mu`` [Q M, 1] and
        ``q_sqrt`` [1, Q M, Q M] then describe all whitened inducing variables, one
        latent function after the other.
        """
        return unwhitened(self._latent_parts.whiten().L, self._posterior_of_v())

    @property
    def q_mu(self) -> tf.Tensor:
        """The mean of the whitened q(v), [M, L]; u = L v."""
        return self._computed("q_mu")

    @property
    def q_sqrt(self) -> tf.Tensor:
        """The lower triangular square root of the covariance of the whitened q(v), [L,
        M, M].
        """
        return self._computed("q_sqrt")

    def _computed(self, name: str) -> tf.Tensor:
        value = getattr(self._posterior_of_v(), name)
        value.unconstrained_variable = _NoVariable()
        return value

    @tf.autograph.experimental.do_not_convert
    def _posterior_of_v(self) -> WhitenedGaussian:
        def posterior() -> WhitenedGaussian:
            q = whitened_posterior(self.natural_of_v())
            return WhitenedGaussian(
                checks.require_finite(q.q_mu, "mean of q(u)", ADVICE),
                checks.require_finite(q.q_sqrt, "covariance of q(u)", ADVICE),
            )

        return self._once("q", posterior)

    def _once(self, name: str, compute: Callable[[], Result]) -> Result:
        """Compute something of this model, or take it from the cache of
        :func:`q_once`.
        """
        cache = _CACHE.get() if tf.executing_eagerly() else None
        if cache is None:
            return compute()
        key = self, name
        if key not in cache:
            cache[key] = compute()
        result: Result = cache[key]
        return result


_CACHE: ContextVar[dict[Any, Any] | None] = ContextVar("_CACHE", default=None)


@contextmanager
def q_once() -> Iterator[None]:
    """Compute q(v) and the sites of each model only once in this context, with one pass
    over its rows. No model may change in it.
    """
    outer = _CACHE.get()
    token = _CACHE.set({} if outer is None else outer)
    try:
        yield
    finally:
        _CACHE.reset(token)


def _copy_variables(variables: Iterable[tf.Variable], memo: dict[int, Any]) -> None:
    """Copy variables into the memo of ``deepcopy``, because TensorFlow's copies lose
    the information which lengths may change.
    """
    for variable in variables:
        if id(variable) not in memo and not variable.shape.is_fully_defined():
            memo[id(variable)] = tf.Variable(
                variable.read_value(),
                trainable=variable.trainable,
                shape=variable.shape,
                name=variable.name.split(":")[0],
            )


class _NoVariable:
    """Placeholder for the variable that GPflow's natural gradients expect, for models
    that compute q.
    """

    def __str__(self) -> str:
        got = "q_mu and q_sqrt of a model that computes them from its data"
        expected = "parameters, such as q_mu and q_sqrt of SVGP, APEP, ARPEP and RPAPEP"
        remedy = (
            "Leave out NaturalGradient: an optimiser of training_loss trains all"
            " parameters of this model."
        )
        raise checks.refusal("NaturalGradient", got, expected, remedy)
