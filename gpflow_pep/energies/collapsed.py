r"""The Power EP energy of regression, in closed form.

Bui, Yan & Turner (2017), sections 3.6 and 3.7, with the last term of 3.7 corrected. Write
:math:`\bar K = Q + \mathrm{blkdiag}(\alpha_b D_b) + \Sigma` with :math:`Q = AᵀA`. Then

.. math::

    \log Z = -\tfrac12 [ P N \log 2\pi + P \log|\bar K| + rᵀ \bar K^{-1} r ]
    - \tfrac{P}{2} \sum_b \tfrac{1 - \alpha_b}{\alpha_b}
    \log|I + \alpha_b \Sigma_b^{-1/2} D_b \Sigma_b^{-1/2}|

Since :math:`\log|\alpha_b D_b + \Sigma_b| = \log|\Sigma_b| + \log|I + \alpha_b \Sigma_b^{-1/2}
D_b \Sigma_b^{-1/2}|`, the last logarithm comes :math:`\alpha + (1 - \alpha) = 1` times
:math:`1/\alpha` in all, and one function with a finite limit, :func:`log1p_ratio`, holds
everything that depends on :math:`\alpha`. The rows enter by sums only: :class:`RowSums`.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from ..ops.linalg import factorise, gram, lower_matmul
from ..ops.power import log1p_ratio


class RowSums(NamedTuple):
    r"""What the energy needs of the data. A tilde means whitened by the noise of the row or block,
    :math:`\Sigma_b + \alpha_b D_b = C_b C_bᵀ`: :math:`\tilde A_b = A_b C_b^{-T}`,
    :math:`\tilde r_b = C_b^{-1} r_b`.
    """

    gram: tf.Tensor
    r"""[M, M], :math:`\tilde A \tilde Aᵀ`."""

    moment: tf.Tensor
    r"""[M, P], :math:`\tilde A \tilde r`."""

    squares: tf.Tensor
    r"""[], :math:`|\tilde r|^2`, over outputs too."""

    logdet: tf.Tensor
    r"""[], :math:`\sum_b \log|\Sigma_b| + \tfrac{1}{\alpha_b} \log|I + \alpha_b \Sigma_b^{-1/2}
    D_b \Sigma_b^{-1/2}|`."""


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "A: [M, N]",
    "d: [N]",
    "noise: [N]",
    "alpha: [broadcast N]",
    "r: [N, P]",
    "return.gram: [M, M]",
    "return.moment: [M, P]",
    "return.squares: []",
    "return.logdet: []",
)
def single_row_sums(
    A: tf.Tensor, d: tf.Tensor, noise: tf.Tensor, alpha: tf.Tensor, r: tf.Tensor
) -> RowSums:
    """
    Sum over rows that are each a factor of their own.

    :param A: The rows projected on the whitened inducing variables.
    :param d: Residual prior variance of each row.
    :param noise: Noise variance of each row.
    :param alpha: The power, of all rows or of each.
    :param r: Targets less the mean function.
    """
    precision = 1.0 / (noise + alpha * d)  # C⁻² of a block of one row
    weighted = r * precision[:, None]
    return RowSums(
        gram(A, precision),
        tf.matmul(A, weighted),
        tf.reduce_sum(r * weighted),
        tf.reduce_sum(tf.math.log(noise) + log1p_ratio(d / noise, alpha)),
    )


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "A: [M, N]",
    "D: [B, S, S]",
    "noise: [B, S]",
    "alpha: [broadcast B]",
    "r: [B, S, P]",
    "return.gram: [M, M]",
    "return.moment: [M, P]",
    "return.squares: []",
    "return.logdet: []",
)
def block_sums(
    A: tf.Tensor, D: tf.Tensor, noise: tf.Tensor, alpha: tf.Tensor, r: tf.Tensor
) -> RowSums:
    """
    Sum over B blocks of S rows, each block a factor (PITC at power 1); N = B S.

    A row with noise 1 and zeros in A, D and r adds nothing: blocks are padded with such rows.

    :param A: The rows projected on the whitened inducing variables, block after block.
    :param D: Residual prior covariance of each block.
    :param noise: Noise variance of each row.
    :param alpha: The power, of all blocks or of each.
    :param r: Targets less the mean function.
    """
    num_blocks, size = tf.shape(noise)[0], tf.shape(noise)[1]
    alpha = alpha[..., None]  # [B, 1]
    C = tf.linalg.cholesky(alpha[..., None] * D + tf.linalg.diag(noise))  # [B, S, S]
    blocks = tf.transpose(tf.reshape(A, [-1, num_blocks, size]), [1, 2, 0])  # [B, S, M]
    whitened = tf.reshape(tf.linalg.triangular_solve(C, blocks), [num_blocks * size, -1])
    residual = tf.reshape(tf.linalg.triangular_solve(C, r), [num_blocks * size, -1])
    scale = tf.math.rsqrt(noise)
    eigenvalues = tf.linalg.eigvalsh(scale[:, :, None] * D * scale[:, None, :])
    eigenvalues = tf.maximum(eigenvalues, tf.zeros_like(eigenvalues))
    return RowSums(
        gram(tf.transpose(whitened), tf.ones([], A.dtype)),
        tf.matmul(whitened, residual, transpose_a=True),
        tf.reduce_sum(tf.square(residual)),
        tf.reduce_sum(tf.math.log(noise) + log1p_ratio(eigenvalues, alpha)),
    )


class _Evidence(NamedTuple):
    logdet: tf.Tensor
    """[], log-determinants of one output, without the term of 2 pi."""

    quadratic: tf.Tensor
    """[], quadratic form, summed over outputs."""


def _evidence(sums: RowSums) -> _Evidence:
    eye = tf.eye(tf.shape(sums.gram)[0], dtype=sums.gram.dtype)
    factor = factorise(eye + sums.gram)  # B = I + Ã Ãᵀ
    c = lower_matmul(factor.W, sums.moment)
    logdet_B = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor.L)))
    return _Evidence(sums.logdet + logdet_B, sums.squares - tf.reduce_sum(tf.square(c)))


def _log_density(
    logdet: tf.Tensor, quadratic: tf.Tensor, moment: tf.Tensor, num_rows: tf.Tensor
) -> tf.Tensor:
    num_outputs = tf.cast(tf.shape(moment)[1], logdet.dtype)
    constant = tf.cast(num_rows, logdet.dtype) * tf.cast(np.log(2.0 * np.pi), logdet.dtype)
    return -0.5 * (num_outputs * (constant + logdet) + quadratic)


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "sums.gram: [M, M]",
    "sums.moment: [M, P]",
    "sums.squares: []",
    "sums.logdet: []",
    "num_rows: []",
    "return: []",
)
def log_marginal_likelihood(sums: RowSums, num_rows: tf.Tensor) -> tf.Tensor:
    r"""
    Compute :math:`\log Z_\mathrm{PEP}` of regression, see this module.

    The P outputs share :math:`\bar K`, so every log-determinant counts P times.

    :param sums: Sums over all rows.
    :param num_rows: How many rows there are.
    """
    evidence = _evidence(sums)
    return _log_density(evidence.logdet, evidence.quadratic, sums.moment, num_rows)


@tf.autograph.experimental.do_not_convert
@check_shapes(
    "sums.gram: [M, M]",
    "slack_sums.gram: [M, M]",
    "num_rows: []",
    "return: []",
)
def upper_bound(sums: RowSums, slack_sums: RowSums, num_rows: tf.Tensor) -> tf.Tensor:
    r"""
    Compute Titsias' (2014) upper bound of the exact log marginal likelihood.

    The log-determinant is that of :math:`Q + \Sigma`, at most the exact one; the quadratic form is
    that of :math:`Q + \Sigma + cI` with :math:`c = \mathrm{tr}(K_{ff} - Q)`, again at most the
    exact one.

    :param sums: Sums over all rows with the noise variances, D = 0.
    :param slack_sums: Sums over all rows with noise variances + c, D = 0.
    :param num_rows: How many rows there are.
    """
    logdet, quadratic = _evidence(sums).logdet, _evidence(slack_sums).quadratic
    return _log_density(logdet, quadratic, sums.moment, num_rows)
