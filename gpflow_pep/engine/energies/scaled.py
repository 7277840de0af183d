r"""Bounds of regression with a scaled conditional: tighter at :math:`\alpha = 0`, FITC at 1.

Elsewhere q(f | u) is the prior's p(f | u), whose covariance is D. Here it is scaled to what the
targets leave of it: a row's variance to :math:`d_n / (1 + d_n / \sigma_n^2)`. At
:math:`\alpha = 0` that gives the bound of Titsias (2025) and, with blocks, of Bui & Titsias
(2025). Its proof is short. With :math:`h = Aᵀv` and :math:`(\Sigma + D)^{-1} \preceq \Sigma^{-1}`,

.. math::

    \log N(r; h, \Sigma + D) &\ge -\tfrac{N}{2} \log 2\pi
        - \tfrac12 (r - h)ᵀ \Sigma^{-1} (r - h) - \tfrac12 \log|\Sigma + D|,
    \\
    \log|\Sigma + D| &\le \sum_b \log|\Sigma_b + D_b|

for every v, the second by Fischer's inequality for any blocks b, and v integrates out. Compared
with Titsias (2009) nothing but the log-determinant changes: q(u) is the same at the same
hyperparameters. At other powers (this package's own derivation: compare with Bui & Titsias (2025)
before citing it as theirs), Power EP with this conditional has for every block

.. math::

    \Lambda_b = (1 - \alpha_b) \Sigma_b^{-1} + \alpha_b (\Sigma_b + D_b)^{-1}

in the place of :math:`(\Sigma_b + \alpha_b D_b)^{-1}`, and for :math:`\alpha` in [0, 1] the one
log-determinant :math:`\log|\Sigma_b + D_b|`. It is linear in :math:`\alpha`, so log Z grows with
:math:`\alpha`, from the lower bound to FITC, or PITC.
"""

import tensorflow as tf

from .collapsed import (
    CONDITIONALS,
    Conditional,
    RowSums,
    as_blocks,
    relative_to_noise,
    sums_of_whitened,
)


def row_precision(d: tf.Tensor, noise: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """Compute the precision with which each row is observed, [N]."""
    return (1.0 - alpha) / noise + alpha / (noise + d)


def row_logdet(d: tf.Tensor, noise: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """Compute what each row adds to the log-determinants, [N]."""
    return tf.math.log(noise + d)


def block_sums(
    A: tf.Tensor, D: tf.Tensor, noise: tf.Tensor, alpha: tf.Tensor, r: tf.Tensor
) -> RowSums:
    r"""Sum over :class:`~gpflow_pep.engine.energies.collapsed.ProjectedRows` in blocks, each a
    factor.

    With :math:`I + \tilde D_b = L_b L_bᵀ`, where :math:`\tilde D_b = \Sigma_b^{-1/2} D_b
    \Sigma_b^{-1/2}`, the precision is

    .. math::

        \Sigma_b^{1/2} \Lambda_b \Sigma_b^{1/2} = L_b^{-T} C_b C_bᵀ L_b^{-1}, \qquad
        C_b C_bᵀ = (1 - \alpha_b) L_bᵀ L_b + \alpha_b I,

    by two Cholesky factors, without an inverse or eigenvalues.
    """
    alpha = alpha[..., None, None]  # [B, 1, 1]
    eye = tf.eye(tf.shape(noise)[1], dtype=A.dtype)
    L = tf.linalg.cholesky(eye + relative_to_noise(D, noise))  # [B, S, S]
    C = tf.linalg.cholesky((1.0 - alpha) * tf.matmul(L, L, transpose_a=True) + alpha * eye)
    scale = tf.math.rsqrt(noise)[..., None]  # [B, S, 1]

    def whitened(rows: tf.Tensor) -> tf.Tensor:
        return tf.matmul(C, tf.linalg.triangular_solve(L, scale * rows), transpose_a=True)

    logdet = tf.math.log(noise) + 2.0 * tf.math.log(tf.linalg.diag_part(L))
    return sums_of_whitened(whitened(as_blocks(A, noise)), whitened(r), logdet)


CONDITIONALS["tight"] = Conditional(row_precision, row_logdet, block_sums)
