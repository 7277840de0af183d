r"""The Power EP energy of regression, in closed form.

Bui, Yan & Turner (2017), sections 3.6 and 3.7; there the last term has the wrong sign
and lacks the determinant. The energy is in :doc:`/theory`; here P outputs share
:math:`\bar K`. Since :math:`\log|\alpha_b D_b + \Sigma_b| = \log|\Sigma_b| + \log|I +
\alpha_b \Sigma_b^{-1/2} D_b \Sigma_b^{-1/2}|`, the factor of the last logarithm is
:math:`\alpha + (1 - \alpha) = 1` times :math:`1/\alpha`, and one function with a finite
limit, :func:`log1p_over_power`, contains everything that depends on :math:`\alpha`. The
energy depends on the rows only through sums: :class:`RowSums`.

If targets are missing, each output has its own set of rows and its own precision
:math:`B_p`, and the energy is the sum of the energies of separate models.

**Leave-one-out densities.** A row that is observed with precision :math:`\beta_n` given
u has the site :math:`\tau_n = \beta_n, \nu_n = \beta_n r_n`. If the whole site is
removed from q, :math:`h_n` has the moments :math:`m_n^{-}, s_n^{-}`, and :math:`\log
p(y_n | y_{-n}) \approx \log N(r_n; m_n^{-}, s_n^{-} + d_n + \sigma_n^2)`, which at
:math:`\alpha = 1` is exact for FITC's model. A missing target has no site; its moments
come from all other targets.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import logdensities

from ..numerics.linalg import gram
from ..numerics.power import log1p_over_power
from ..prior import Parts
from ..sites.posterior import (
    Marginals,
    Natural,
    PosteriorFactor,
    Sites,
    cavity,
    log_root,
    marginals,
    posterior_factor,
)


class RowSums(NamedTuple):
    r"""The sums over data in the energy. A tilde means whitened by the noise of the row
    or block, :math:`\Sigma_b + \alpha_b D_b = C_b C_bᵀ`:
    :math:`\tilde A_b = A_b C_b^{-T}`, :math:`\tilde r_b = C_b^{-1} r_b`.
    """

    natural: Natural
    r""":math:`G = \tilde A \tilde Aᵀ`, [1, M, M], or [P, M, M] where targets are
    missing, and :math:`b = \tilde A \tilde r`, [P, M, 1].
    """
    squares: tf.Tensor  #: [], :math:`|\tilde r|^2`, over outputs too.
    logdet: tf.Tensor
    r"""[],
    :math:`\sum_b \log|\Sigma_b| + \tfrac{1}{\alpha_b}
    \log|I + \alpha_b \Sigma_b^{-1/2} D_b \Sigma_b^{-1/2}|`,
    over outputs too.
    """


class ProjectedRows(NamedTuple):
    """Rows in the form for the sums: each row a factor, or B blocks of S rows with N =
    B S.
    """

    A: tf.Tensor
    """[1, M, N], the rows projected on the whitened inducing variables, block after
    block.
    """
    D: tf.Tensor
    """Residual prior variance of each row, [N], or covariance of each block, [B, S,
    S].
    """
    noise: tf.Tensor  #: [N] or [B, S], noise variances.
    alpha: tf.Tensor  #: The power of each factor, or [1], of all.
    r: tf.Tensor  #: [N, P] or [B, S, P], targets less the mean function.


def sum_single_rows(
    parts: Parts, rows: Any, W: tf.Tensor, *, has_gaps: bool = False
) -> RowSums:
    """Sum over rows that are each a factor; with gaps, each target that is not NaN is
    one.
    """
    A, d, noise, alpha, r = _project_single_rows(parts, rows, W, has_gaps=has_gaps)
    weight = tf.cast(~tf.math.is_nan(rows[1]), r.dtype) if has_gaps else None
    precision = row_precision(d, noise, alpha)
    logdet = row_logdet(d, noise, alpha)
    return _sums_by_precision(A, precision, r, logdet, weight)


def _project_single_rows(
    parts: Parts, rows: Any, W: tf.Tensor, *, has_gaps: bool
) -> ProjectedRows:
    """Project rows that are each a factor: X [N, D], Y [N, P] and the power of each
    [N]. NaN in Y is one in r, and in all sums, or with gaps a target that is missing.
    """
    X, Y, alpha = rows
    A, d, _ = parts.project(W, X)
    if has_gaps:
        observed = ~tf.math.is_nan(Y)
        r, noise = parts.observe(X, tf.where(observed, Y, tf.zeros_like(Y)))
        r = tf.where(observed, r, tf.zeros_like(r))
    else:
        r, noise = parts.observe(X, Y)
    return ProjectedRows(A, tf.squeeze(d, axis=0), noise, alpha, r)


def _project_blocks(parts: Parts, rows: Any, W: tf.Tensor) -> ProjectedRows:
    """
    Project blocks of rows. Blocks are padded with rows that have noise 1 and zeros in
    A, D and r.

    :param rows: Which members of the blocks are rows, [B, S], X [B, S, D], Y [B, S, P]
        and the power of each block [B].
    """
    member, X, Y, alpha = rows
    num_blocks = tf.shape(X)[0]
    size = tf.shape(X)[1]
    flat_X, flat_Y = (
        tf.reshape(values, [num_blocks * size, values.shape[-1]]) for values in (X, Y)
    )
    r, noise = parts.observe(flat_X, flat_Y)
    r = tf.reshape(r, [num_blocks, size, Y.shape[-1]])
    noise = tf.reshape(noise, [num_blocks, size])
    A, D, _ = parts.project_blocks(W, X)
    weight = tf.cast(member, X.dtype)
    return ProjectedRows(
        A * tf.reshape(weight, [-1]),
        D * weight[:, :, None] * weight[:, None, :],
        tf.where(member, noise, tf.ones_like(noise)),
        alpha,
        r * weight[:, :, None],
    )


def row_precision(d: tf.Tensor, noise: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """Compute the precision with which each row is observed: C⁻² of a block of one row,
    [N].
    """
    return tf.math.reciprocal(noise + alpha * d)


def row_logdet(d: tf.Tensor, noise: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """Compute the terms of the log-determinants, see :class:`RowSums`, [N]."""
    return tf.math.log(noise) + log1p_over_power(d / noise, alpha)


def _sums_by_precision(
    A: tf.Tensor,
    precision: tf.Tensor,
    r: tf.Tensor,
    logdet: tf.Tensor,
    weight: tf.Tensor | None = None,
) -> RowSums:
    """Sum over rows that are each a factor of their own.

    :param A: [1, M, N]; r is [N, P], precision and logdet are [N].
    :param weight: [N, P], 1 where a target was observed, else 0; None: all were.
    """
    tau = tf.expand_dims(precision, 1)
    if weight is None:
        logdet = tf.reduce_sum(logdet)
        if r.shape[1] != 1:
            logdet *= tf.cast(tf.shape(r)[1], r.dtype)
        by_output = tf.expand_dims(precision, 0)
    else:
        tau = tau * weight
        logdet = tf.reduce_sum(tf.reduce_sum(weight, axis=1) * logdet)
        by_output = tf.transpose(tau)
    weighted = r * tau
    moments = tf.matmul(A, tf.expand_dims(weighted, 0))
    return RowSums(
        Natural(gram(A, by_output), _by_output(moments)),
        tf.reduce_sum(r * weighted),
        logdet,
    )


def sum_blocks(parts: Parts, rows: Any, W: tf.Tensor) -> RowSums:
    """Sum over blocks of rows, each block a factor (PITC at power 1).

    A row with noise 1 and zeros in A, D and r adds nothing.
    """
    A, D, noise, alpha, r = _project_blocks(parts, rows, W)
    alpha = alpha[..., None]  # [B, 1]
    C = tf.linalg.cholesky(alpha[..., None] * D + tf.linalg.diag(noise))  # [B, S, S]
    scale = tf.math.rsqrt(noise)
    eigenvalues = tf.linalg.eigvalsh(scale[:, :, None] * D * scale[:, None, :])
    eigenvalues = tf.maximum(eigenvalues, tf.zeros_like(eigenvalues))
    return _sums_of_whitened(
        tf.linalg.triangular_solve(C, _as_blocks(A, noise)),
        tf.linalg.triangular_solve(C, r),
        tf.math.log(noise) + log1p_over_power(eigenvalues, alpha),
    )


def _as_blocks(A: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Make [B, S, M] of A [1, M, N], as many blocks and rows as the noise [B,
    S] has.
    """
    num_blocks = tf.shape(noise)[0]
    size = tf.shape(noise)[1]
    return tf.transpose(tf.reshape(A, [A.shape[1] or -1, num_blocks, size]), [1, 2, 0])


def _sums_of_whitened(A: tf.Tensor, r: tf.Tensor, logdet: tf.Tensor) -> RowSums:
    r"""Sum over blocks of rows that are whitened by their noise.

    :param A: :math:`\tilde Aᵀ`, [B, S, M], see :class:`RowSums`.
    :param r: :math:`\tilde r`, [B, S, P].
    """
    rows = tf.shape(A)[0] * tf.shape(A)[1]
    A, r = (tf.reshape(values, [rows, values.shape[2] or -1]) for values in (A, r))
    return RowSums(
        Natural(
            gram(tf.transpose(A)[None]),
            _by_output(tf.matmul(A, r, transpose_a=True)[None]),
        ),
        tf.reduce_sum(tf.square(r)),
        tf.cast(tf.shape(r)[1], r.dtype) * tf.reduce_sum(logdet),
    )


def _by_output(moments: tf.Tensor) -> tf.Tensor:
    """Make [P, M, 1] of [1, M, P]."""
    if moments.shape[-1] == 1:
        return moments
    return tf.transpose(moments, [2, 1, 0])


def log_density(
    of_logdet: RowSums, of_quadratic: RowSums, num_targets: tf.Tensor
) -> tf.Tensor:
    r"""Compute the logarithm of a Gaussian density from the sums that its two terms
    take; of the same sums it is :math:`\log Z_\mathrm{PEP}` of regression.

    :param num_targets: How many targets were observed, N P if all were.
    """
    q = posterior_factor(of_logdet.natural)
    c = q.c if of_quadratic is of_logdet else posterior_factor(of_quadratic.natural).c
    logdet = tf.cast(num_targets, c.dtype) * np.log(2.0 * np.pi) + of_logdet.logdet
    quadratic = of_quadratic.squares - tf.reduce_sum(tf.square(c))
    return -0.5 * (logdet + quadratic) - log_root(q)


def sums_with_slack(
    parts: Parts, rows: Any, W: tf.Tensor, slack: tf.Tensor
) -> tuple[tf.Tensor, RowSums]:
    r"""Sum the residual variances, and the rows with D = 0 and slack added to the
    noise.

    Titsias' (2014) upper bound takes the log-determinant of the sums without slack,
    that of :math:`Q + \Sigma`, at most the exact one; and the quadratic form of the
    sums with the slack :math:`c = \mathrm{tr}(K_{ff} - Q)`, that of
    :math:`Q + \Sigma + cI`, too.
    """
    X, Y = rows
    A, d, _ = parts.project(W, X)
    r, noise = parts.observe(X, Y)
    noise += slack
    return tf.reduce_sum(d), _sums_by_precision(A, 1.0 / noise, r, tf.math.log(noise))


def left_out_moments(
    parts: Parts,
    rows: Any,
    W: tf.Tensor,
    q: PosteriorFactor,
    copies: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute mean and variance of each target given the others of its output, [N, P]
    each.

    :param copies: How many rows have the inputs and targets of each, [N]. They have the
        same site, which is removed as often; None: each is the only one.
    """
    X, Y, _ = rows
    A, d, noise, alpha, r = _project_single_rows(parts, rows, W, has_gaps=True)
    d, noise, alpha = (values[:, None] for values in (d, noise, alpha))
    tau = row_precision(d, noise, alpha) * tf.cast(~tf.math.is_nan(Y), r.dtype)
    m, s = marginals(A, q)
    times = tf.ones_like(d) if copies is None else copies[:, None]
    without = cavity(Marginals(m, s + tf.zeros_like(m)), Sites(tau * r, tau), times)
    return without.m + parts.mean(X), without.s + d + parts.noise(X)[:, None]


@check_shapes("Y: [N, P]", "mean: [N, P]", "variance: [N, P]", "return: [N]")
def observed_log_density(
    Y: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor
) -> tf.Tensor:
    """Sum the Gaussian log densities of the targets of each row that were observed."""
    observed = ~tf.math.is_nan(Y)
    density = logdensities.gaussian(tf.where(observed, Y, mean), mean, variance)
    return tf.reduce_sum(tf.where(observed, density, tf.zeros_like(density)), axis=1)
