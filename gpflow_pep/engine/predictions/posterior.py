"""Moments of f under q(v), and GPflow posteriors made from q(v)."""

import abc
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, TensorType
from gpflow.config import default_jitter
from gpflow.covariances import Kuu
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import (
    AbstractPosterior,
    BasePosterior,
    PrecomputeCacheType,
    PrecomputedValue,
    create_posterior,
    get_posterior_class,
)

from .. import checks
from ..prior import Parts, centred, count_columns, well_conditioned
from ..prior.evaluate import skip_autograph
from ..prior.wrapped import Whitened
from ..sites.posterior import WhitenedGaussian


def f_under(
    q: WhitenedGaussian,
    kernel: Kernel,
    inducing_variable: InducingVariables,
    mean_function: MeanFunction | None,
    Xnew: InputData,
    full_cov: bool = False,
    full_output_cov: bool = False,
) -> MeanAndVariance:
    """Compute the moments of f if v has the distribution q, with GPflow's conditionals.

    :param Xnew: Inputs of the model; see :func:`new_inputs`.
    """
    Xnew = new_inputs(Xnew, inducing_variable, q.q_mu.dtype)
    posterior = create_posterior(
        centred(kernel),
        well_conditioned(inducing_variable, kernel),
        *q,
        whiten=True,
        mean_function=mean_function,
        precompute_cache=PrecomputeCacheType.NOCACHE,
    )
    return posterior.fused_predict_f(
        Xnew, full_cov=full_cov, full_output_cov=full_output_cov
    )


def new_inputs(
    Xnew: InputData, inducing_variable: InducingVariables, dtype: tf.DType
) -> tf.Tensor:
    """Check rows to predict: their values, their float type, and their columns, which
    must suit the inducing variables.
    """
    return checks.check_new_inputs(Xnew, count_columns(inducing_variable), dtype)


def _cholesky_of_u(inducing_variable: InducingVariables, kernel: Kernel) -> tf.Tensor:
    """Factorise the prior covariance of u like GPflow's posteriors: [M, M], or [L, M,
    M] with one for each latent function.
    """
    K = Kuu(inducing_variable, kernel, jitter=default_jitter())
    if K.shape.rank == 4:  # [M, L, M, L], for correlated latent functions
        size = tf.reduce_prod(tf.shape(K)[:2])
        K = tf.reshape(K, [size, size])
    L = tf.linalg.cholesky(K)
    return tf.debugging.check_numerics(L, "the Cholesky factor of Kuu")


class UpdatingPosterior(BasePosterior):
    r"""GPflow's posterior of a model whose q(v) is a function of its parameters and
    data.

    GPflow's own class would compute variances as :math:`k_{**} - k_{*u} Q k_{u*}` with
    :math:`Q = L^{-T} (I - S) L^{-1}` as its cache, an explicit matrix whose rounding
    errors are as large as the machine's epsilon times the condition number of
    :math:`K_{uu} = L L^T`. Here the same code gets whitened inducing variables
    (:class:`~gpflow_pep.engine.prior.wrapped.Whitened`): the cache is the mean of q(v),
    :math:`I - S` and L, and the variance :math:`k_{**} - A_*^T (I - S) A_*` with
    :math:`A_* = L^{-1} k_{u*}` by substitution, as in GPflow's SGPR. ``update_cache``
    and ``fused_predict_f`` compute q again from the present parameters.
    """

    #: The class that GPflow's dispatcher chooses. Its formulas are applied to v.
    gpflow_class: type[Any]
    _q_dist: Any

    def __init__(
        self,
        q: Callable[[], WhitenedGaussian],
        parts: Parts,
        variables: InducingVariables,
        precompute_cache: PrecomputeCacheType | str | None,
    ) -> None:
        # GPflow's constructor exposes q, and its cache uses q; both get the same value.
        unused = [q()]
        self._fresh_q = lambda: unused.pop() if unused else q()
        super().__init__(
            centred(parts.kernel),
            variables,
            *unused[0],
            whiten=True,
            mean_function=parts.mean_function,
            precompute_cache=PrecomputeCacheType(precompute_cache or "nocache"),
        )
        unused.clear()
        self.kernel_of_model = parts.kernel

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        return self._with_fresh_q(self._precompute_whitened)

    def _precompute_whitened(self) -> tuple[PrecomputedValue, ...]:
        L = _cholesky_of_u(self.X_data, self.kernel)
        dynamic = tuple(size is None for size in L.shape)
        of_v = self.gpflow_class._precompute(self._of_v(L))
        return (*of_v, PrecomputedValue(L, dynamic))

    def _conditional_with_precompute(
        self,
        cache: tuple[tf.Tensor, ...],
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        *moments, L = cache
        return self.gpflow_class._conditional_with_precompute(
            self._of_v(L), moments, Xnew, full_cov, full_output_cov
        )

    def _of_v(self, L: tf.Tensor) -> Any:
        """Copy the posterior, as the posterior of the whitened inducing variables."""
        copied = object.__new__(self.gpflow_class)
        attributes = {**vars(self), "X_data": Whitened(self.X_data, L)}
        object.__setattr__(copied, "__dict__", attributes)  # untracked
        return copied

    def _conditional_fused(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        return self._with_fresh_q(
            self.gpflow_class._conditional_fused, self, Xnew, full_cov, full_output_cov
        )

    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        Xnew = new_inputs(Xnew, self.X_data, self._q_dist.q_mu.dtype)
        return super().predict_f(Xnew, full_cov, full_output_cov)

    def fused_predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        Xnew = new_inputs(Xnew, self.X_data, self._q_dist.q_mu.dtype)
        return super().fused_predict_f(Xnew, full_cov, full_output_cov)

    def _with_fresh_q(self, method: Callable[..., Any], *args: Any) -> Any:
        before = self._q_dist
        self._set_qdist(*self._fresh_q())
        try:
            return method(*args)
        except tf.errors.InvalidArgumentError as error:
            # The words in GPflow's errors for NaN and infinity.
            if "Tensor had" not in error.message:
                raise
            raise checks.refusal(
                "posterior",
                checks.reason(error),
                "finite numbers",
                "A hyperparameter ran off: start from other values, or put priors on"
                " the hyperparameters.",
            ) from error
        finally:
            # A symbolic tensor must not be kept longer than its graph.
            if not tf.executing_eagerly():
                self._q_dist = before


def gpflow_posterior(
    q: Callable[[], WhitenedGaussian],
    parts: Parts,
    precompute_cache: PrecomputeCacheType | str | None,
) -> BasePosterior:
    """Create the posterior of a model, an :class:`UpdatingPosterior` of the class that
    GPflow's dispatcher chooses for the kernel and inducing variables.

    :raises ValueError: If ``precompute_cache`` is not a value of GPflow, or
        hyperparameters are not finite.
    """
    variables = well_conditioned(parts.inducing_variable, parts.kernel)
    chosen = get_posterior_class(parts.kernel, variables)
    updating = type(
        chosen.__name__, (UpdatingPosterior, chosen), {"gpflow_class": chosen}
    )
    return updating(q, parts, variables, precompute_cache)


class ComputedPosterior(AbstractPosterior, abc.ABC):
    """A GPflow posterior whose cache is the result of a function. Moments are computed
    from the cache.

    :param compute: A function that computes the tensors of the cache for the present
        parameters of a model.
    """

    mean_function: MeanFunction

    def __init__(
        self,
        compute: Callable[[], tuple[tf.Tensor, ...]],
        parts: Parts,
        precompute_cache: PrecomputeCacheType | str | None,
    ) -> None:
        super().__init__(
            parts.kernel, parts.inducing_variable, mean_function=parts.mean_function
        )
        self._compute = compute
        self._likelihood = parts.likelihood
        self.update_cache(PrecomputeCacheType(precompute_cache or "nocache"))

    @property
    def _parts(self) -> Parts:
        return Parts(self.kernel, self.X_data, self.mean_function, self._likelihood)

    @skip_autograph
    def predict_f(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        **rows: Any,
    ) -> MeanAndVariance:
        """Predict f from the cache; ``rows`` are further arguments of the model's own
        ``predict_f``.
        """
        if self.cache is None:
            remedy = "Call update_cache to set it, or use fused_predict_f."
            raise checks.refusal("cache", "none", "a cache that was computed", remedy)
        return self._predict(self.cache, Xnew, full_cov, full_output_cov, **rows)

    @skip_autograph
    def fused_predict_f(
        self,
        Xnew: InputData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        **rows: Any,
    ) -> MeanAndVariance:
        """See :meth:`predict_f`. This method does not use the cache, but the present
        parameters.
        """
        return self._predict(self._compute(), Xnew, full_cov, full_output_cov, **rows)

    def _predict(
        self, cache: tuple[Any, ...], Xnew: InputData, *full: bool, **rows: Any
    ) -> MeanAndVariance:
        conditional: Any = self._conditional_with_precompute
        Xnew = self._new_inputs(Xnew, cache)
        mean, covariance = conditional(cache, Xnew, *full, **rows)
        return self._add_mean_function(Xnew, mean), covariance

    @abc.abstractmethod
    def _new_inputs(self, Xnew: InputData, cache: tuple[Any, ...]) -> tf.Tensor:
        """Check new rows."""

    def _conditional_fused(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        return self._conditional_with_precompute(
            self._compute(), Xnew, full_cov, full_output_cov
        )
