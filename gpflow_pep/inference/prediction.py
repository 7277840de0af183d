"""Predictions: q(v) as GPflow holds it, and GPflow posteriors made from it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, MeanAndVariance, TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import (
    BasePosterior,
    PrecomputeCacheType,
    PrecomputedValue,
    create_posterior,
    get_posterior_class,
)

from .. import checks
from ..covariances import well_conditioned
from ..ops.linalg import on_columns
from .posterior import Marginals, Natural, posterior_factor


class WhitenedGaussian(NamedTuple):
    """q(v) of the whitened inducing variables, as GPflow's SVGP holds it."""

    q_mu: tf.Tensor
    """[M, L], means."""

    q_sqrt: tf.Tensor
    """[L, M, M], lower triangular square roots of the covariances."""


@check_shapes(
    "natural.G: [broadcast L, M, M]",
    "natural.b: [L, M, 1]",
    "return.q_mu: [M, L]",
    "return.q_sqrt: [L, M, M]",
)
def whitened_posterior(natural: Natural) -> WhitenedGaussian:
    """
    Compute :math:`q(v) = N(B^{-1} b, B^{-1})`, with :math:`B = I + G`.

    :param natural: What all rows add to the prior.
    """
    # GPflow wants a lower triangular square root of B⁻¹. Wᵀ of B = R Rᵀ with W = R⁻¹ is an upper
    # one; that of B with rows and columns in reverse order, put in reverse order again, is a lower
    # one.
    reverse = Natural(tf.reverse(natural.G, [-2, -1]), tf.reverse(natural.b, [-2]))
    q = posterior_factor(reverse)
    q_sqrt = tf.reverse(tf.linalg.matrix_transpose(q.W), [-2, -1])
    q_mu = tf.transpose(tf.reverse(q.w, [-2])[..., 0])
    return WhitenedGaussian(q_mu, q_sqrt + tf.zeros_like(natural.b))


@check_shapes(
    "L: [broadcast L, M, M]",
    "q.q_mu: [M, L]",
    "q.q_sqrt: [L, M, M]",
    "return[0]: [M, L]",
    "return[1]: [L, M, M]",
)
def unwhitened(L: tf.Tensor, q: WhitenedGaussian) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Compute mean and covariance of q(u), u = L v.

    :param L: Cholesky factors of the prior covariances.
    :param q: q(v).
    """
    root = tf.matmul(L, q.q_sqrt)
    mean = tf.matmul(L, tf.transpose(q.q_mu)[..., None])
    return tf.transpose(mean[..., 0]), tf.matmul(root, root, transpose_b=True)


@check_shapes(
    "q.q_mu: [M, L]",
    "q.q_sqrt: [L, M, M]",
    "A: [broadcast L, M, N]",
    "return.m: [N, L]",
    "return.s: [N, L]",
)
def row_moments(q: WhitenedGaussian, A: tf.Tensor) -> Marginals:
    """
    Compute the moments under q of :math:`h_n = A_nᵀ v`, what rows see of v.

    :param q: q(v).
    :param A: The rows, projected on the whitened inducing variables.
    """
    m = on_columns(A, tf.transpose(q.q_mu)[:, :, None])
    s = tf.reduce_sum(tf.square(tf.matmul(q.q_sqrt, A, transpose_a=True)), axis=-2)
    return Marginals(tf.transpose(m), tf.transpose(s))


def f_under(
    q: WhitenedGaussian,
    kernel: Kernel,
    inducing_variable: InducingVariables,
    mean_function: MeanFunction | None,
    Xnew: InputData,
    full_cov: bool = False,
    full_output_cov: bool = False,
) -> MeanAndVariance:
    """
    Compute the moments of f where v is distributed as q, by GPflow's conditionals.

    :param q: q(v).
    :param kernel: The kernel.
    :param inducing_variable: The inducing variables.
    :param mean_function: The mean function.
    :param Xnew: Where; and whether with covariances, see :meth:`gpflow.models.GPModel.predict_f`.
    :raises ValueError: If it is no inputs of the model, see :func:`new_inputs`.
    """
    Xnew = new_inputs(Xnew, inducing_variable, q.q_mu.dtype)
    posterior = create_posterior(
        kernel,
        well_conditioned(inducing_variable, kernel),
        *q,
        whiten=True,
        mean_function=mean_function,
        precompute_cache=PrecomputeCacheType.NOCACHE,
    )
    return posterior.fused_predict_f(Xnew, full_cov=full_cov, full_output_cov=full_output_cov)


def new_inputs(Xnew: InputData, inducing_variable: InducingVariables, dtype: tf.DType) -> tf.Tensor:
    """
    Check rows to predict against the space of the inducing variables.

    :param Xnew: Inputs, [..., N, D].
    :param inducing_variable: The inducing variables of the model.
    :param dtype: The float of the model.
    :raises ValueError: If they are not finite, of another float, or of other columns.
    """
    num_columns = (*(inducing_variable.shape or ()), None, None)[1]
    return checks.check_new_inputs(Xnew, num_columns, dtype)


def gpflow_posterior(
    q: Callable[[], WhitenedGaussian],
    kernel: Kernel,
    inducing_variable: InducingVariables,
    mean_function: MeanFunction | None,
    precompute_cache: PrecomputeCacheType | str | None,
) -> BasePosterior:
    """
    Create the GPflow posterior of a model whose q(v) is a function of its parameters and data.

    It is of the class that GPflow's dispatcher chooses for the kernel and inducing variables. Its
    ``update_cache`` and ``fused_predict_f`` take q for the parameters as they are then, as the
    posterior of GPflow's own SGPR does.

    :param q: Computes q(v) for the parameters as they are.
    :param kernel: The kernel.
    :param inducing_variable: The inducing variables.
    :param mean_function: The mean function.
    :param precompute_cache: As in :meth:`gpflow.models.SGPR.posterior`.
    :raises ValueError: If ``precompute_cache`` is none of GPflow's, or hyperparameters are not
        finite.
    """
    variables = well_conditioned(inducing_variable, kernel)
    plain = get_posterior_class(kernel, variables)
    unused = [q()]  # the constructor shows it, its cache consumes it: q is computed once

    class FreshPosterior(plain):  # type: ignore[misc,valid-type]
        """A posterior that asks for q whenever it is about to use it."""

        _q_dist: Any

        def _precompute(self) -> tuple[PrecomputedValue, ...]:
            return self._with_fresh_q(super()._precompute)

        def _conditional_fused(
            self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
        ) -> MeanAndVariance:
            return self._with_fresh_q(super()._conditional_fused, Xnew, full_cov, full_output_cov)

        def predict_f(
            self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
        ) -> MeanAndVariance:
            Xnew = new_inputs(Xnew, variables, self._q_dist.q_mu.dtype)
            return super().predict_f(Xnew, full_cov, full_output_cov)

        def fused_predict_f(
            self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
        ) -> MeanAndVariance:
            Xnew = new_inputs(Xnew, variables, self._q_dist.q_mu.dtype)
            return super().fused_predict_f(Xnew, full_cov, full_output_cov)

        def _with_fresh_q(self, method: Callable[..., Any], *args: Any) -> Any:
            held = self._q_dist
            self._set_qdist(*(unused.pop() if unused else q()))
            try:
                return method(*args)
            except tf.errors.InvalidArgumentError as error:
                if "Tensor had" not in error.message:  # as GPflow's checks say of NaN and infinity
                    raise
                raise ValueError(
                    f"posterior: got {checks.reason(error)}, expected finite numbers. A"
                    " hyperparameter ran off; start from others, or put priors on them."
                ) from error
            finally:
                if not tf.executing_eagerly():  # a symbolic tensor must not outlive its graph
                    self._q_dist = held

    FreshPosterior.__name__ = FreshPosterior.__qualname__ = plain.__name__
    posterior = FreshPosterior(
        kernel,
        variables,
        *unused[0],
        whiten=True,
        mean_function=mean_function,
        precompute_cache=PrecomputeCacheType(precompute_cache or "nocache"),
    )
    unused.clear()
    return posterior
