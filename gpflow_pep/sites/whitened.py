"""q(v) of the whitened inducing variables as GPflow's SVGP holds it."""

from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes

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
    """Compute :math:`q(v) = N(B^{-1} b, B^{-1})`, with :math:`B = I + G`."""
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
    """Compute mean and covariance of q(u), u = L v."""
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
    """Compute the moments under q of :math:`h_n = A_nᵀ v`, what rows see of v."""
    m = on_columns(A, tf.transpose(q.q_mu)[:, :, None])
    s = tf.reduce_sum(tf.square(tf.matmul(q.q_sqrt, A, transpose_a=True)), axis=-2)
    return Marginals(tf.transpose(m), tf.transpose(s))
