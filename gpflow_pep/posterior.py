"""The approximate posterior of the inducing variables, and GPflow posteriors made from it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import (
    BasePosterior,
    PrecomputeCacheType,
    PrecomputedValue,
    get_posterior_class,
)

from .covariances import well_conditioned
from .ops.linalg import factorise, lower_matmul
from .sites import Marginals


class WhitenedGaussian(NamedTuple):
    """q(v) of the whitened inducing variables, as GPflow's SVGP holds it."""

    q_mu: tf.Tensor
    """[M, L], means."""

    q_sqrt: tf.Tensor
    """[L, M, M], lower triangular square roots of the covariances."""


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "gram: [M, M]",
    "moment: [M, L]",
    "return.q_mu: [M, L]",
    "return.q_sqrt: [L, M, M]",
)
def whitened_posterior(gram: tf.Tensor, moment: tf.Tensor) -> WhitenedGaussian:
    r"""
    Compute :math:`q(v) = N(B^{-1} b, B^{-1})`, with :math:`B = I + G`.

    :param gram: G, the precision that the data add to the prior's.
    :param moment: b, the first natural parameter, one column for each latent function.
    """
    # GPflow wants a lower triangular square root of B⁻¹. L⁻ᵀ of B = L Lᵀ is an upper one; that of
    # B with rows and columns in reverse order, put in reverse order again, is a lower one.
    B = tf.eye(tf.shape(gram)[0], dtype=gram.dtype) + gram
    W = factorise(tf.reverse(B, [0, 1])).W
    q_sqrt = tf.reverse(tf.transpose(W), [0, 1])
    q_mu = tf.matmul(q_sqrt, tf.matmul(q_sqrt, moment, transpose_a=True))
    num_latent = tf.shape(moment)[1]
    return WhitenedGaussian(q_mu, tf.tile(q_sqrt[None], [num_latent, 1, 1]))


class PosteriorFactor(NamedTuple):
    """q(v) of one latent function in the form that marginals need."""

    W: tf.Tensor
    """[M, M], inverse Cholesky factor of B: the covariance of v is :math:`Wᵀ W`."""

    w: tf.Tensor
    """[M, 1], mean of v."""


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "gram: [M, M]",
    "moment: [M, 1]",
    "return.W: [M, M]",
    "return.w: [M, 1]",
)
def posterior_factor(gram: tf.Tensor, moment: tf.Tensor) -> PosteriorFactor:
    """
    Factorise :math:`q(v) = N(B^{-1} b, B^{-1})`, with :math:`B = I + G`.

    :param gram: G, the precision that the data add to the prior's; NaN comes out where B is not
        positive definite.
    :param moment: b, the first natural parameter.
    """
    W = factorise(tf.eye(tf.shape(gram)[0], dtype=gram.dtype) + gram).W
    return PosteriorFactor(W, tf.matmul(W, lower_matmul(W, moment), transpose_a=True))


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "A: [M, N]",
    "factor.W: [M, M]",
    "factor.w: [M, 1]",
    "return.m: [N, 1]",
    "return.s: [N, 1]",
)
def marginals(A: tf.Tensor, factor: PosteriorFactor) -> Marginals:
    """
    Compute the moments of :math:`h_n = A_nᵀ v` under q.

    :param A: The rows projected on the whitened inducing variables.
    :param factor: q(v).
    """
    s = tf.reduce_sum(tf.square(lower_matmul(factor.W, A)), axis=0)
    return Marginals(tf.matmul(A, factor.w, transpose_a=True), s[:, None])


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
    :raises ValueError: If ``precompute_cache`` is none of GPflow's.
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

        def _with_fresh_q(self, method: Callable[..., Any], *args: Any) -> Any:
            held = self._q_dist
            self._set_qdist(*(unused.pop() if unused else q()))
            try:
                return method(*args)
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
