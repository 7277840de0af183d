r"""The energy of regression whose conditionals know the nearest predecessors of each row.

Put the rows in an order, and let N be up to m of the rows before row n that are near it. Given the
inducing variables, f at row n is predicted from y at N too. With :math:`C = D + \Sigma`, where D is
the residual covariance :math:`K_{ff} - AᵀA` and :math:`\Sigma` the noise,

.. math::

    g_n = C_{NN}^{-1} D_{Nn}, \quad \tilde a_n = a_n - A_N g_n, \quad \tilde r_n = r_n - g_nᵀ r_N,
    \quad \tilde s_n = \sigma_n^2 + d_n - g_nᵀ D_{Nn}

.. math::

    \log Z = -\tfrac12 \Big[ N \log 2\pi + \sum_n \log \tilde s_n + \log|B|
    + (1 - \alpha) \sum_n \frac{r_n^2}{\sigma_n^2} + \alpha \sum_n \frac{\tilde r_n^2}{\tilde s_n}
    - bᵀ B^{-1} b \Big]

with :math:`B = I + (1 - \alpha) A \Sigma^{-1} Aᵀ + \alpha \tilde A \tilde S^{-1} \tilde Aᵀ` and
:math:`b = (1 - \alpha) A \Sigma^{-1} r + \alpha \tilde A \tilde S^{-1} \tilde r`.

At :math:`\alpha = 1` that is the likelihood of the Vecchia-inducing-points full-scale approximation
(Gyger, Furrer & Sigrist 2025). At :math:`\alpha = 0` it is a lower bound of the exact log marginal
likelihood, whatever the order and the neighbours: given :math:`v`, :math:`(\Sigma + D)^{-1} \preceq
\Sigma^{-1}` bounds the quadratic form, and :math:`\log|\Sigma + D| = \sum_n \log
\mathrm{var}(e_n | e_{<n}) \le \sum_n \log \tilde s_n`, because fewer predecessors leave more
variance. Without neighbours the last sum is :math:`\sum_n \log(\sigma_n^2 + d_n)`, Titsias' (2025)
bound, itself above that of Titsias (2009). Between the ends the energy interpolates; that is this
package's own.

Let T be the unit upper triangular matrix with columns :math:`e_n - g_n`. All sums are those of
:math:`\Omega = (1 - \alpha) \Sigma^{-1} + \alpha T \tilde S^{-1} Tᵀ`: :math:`A \Omega Aᵀ`,
:math:`A \Omega r` and :math:`rᵀ \Omega r`. Neighbours are within small groups of rows, so that
:math:`\Omega` has a dense block for each group, and one product serves every :math:`\alpha`.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes

from ..covariances import Parts
from ..ops.linalg import grouped_gram
from ..sites.posterior import Natural
from .collapsed import RowSums, as_blocks, project_groups


def rows_with_neighbours(parts: Parts, rows: Any, W: tf.Tensor) -> RowSums:
    """
    Sum over groups of rows that know near rows of their group.

    :param rows: Which members of the groups are rows, [K, S], their neighbours [K, S, m], X
        [K, S, D], Y [K, S, P] and the power of all [1].
    """
    member, neighbours, X, Y, alpha = rows
    A, D, noise, r = project_groups(parts, X, Y, W)
    weight = tf.cast(member, X.dtype)
    return neighbour_sums(as_blocks(A, noise), D, noise, alpha, r, neighbours, weight)


@check_shapes(
    "A: [K, S, M]",
    "D: [K, S, S]",
    "noise: [K, S]",
    "alpha: [1]",
    "r: [K, S, P]",
    "neighbours: [K, S, m]",
    "weight: [K, S]",
    "return.natural.G: [1, M, M]",
    "return.natural.b: [P, M, 1]",
)
def neighbour_sums(
    A: tf.Tensor,
    D: tf.Tensor,
    noise: tf.Tensor,
    alpha: tf.Tensor,
    r: tf.Tensor,
    neighbours: tf.Tensor,
    weight: tf.Tensor,
) -> RowSums:
    r"""
    Sum over K groups of S rows that know near rows of their group, see this module.

    :param neighbours: Places in the group before the row's own, -1 where there is none.
    :param weight: 1, or 0 for what only fills a group up, which is nobody's neighbour.
    """
    C = D + tf.linalg.diag(noise)
    G = neighbour_weights(C, neighbours)
    variance = tf.linalg.diag_part(C) - tf.reduce_sum(G * C, axis=-2)  # s̃
    variance = tf.maximum(variance, noise)  # rounding can make it smaller
    T = tf.eye(tf.shape(C)[-1], dtype=C.dtype) - G
    near = tf.matmul(T * (alpha * weight / variance)[:, None, :], T, transpose_b=True)
    Omega = near + tf.linalg.diag((1.0 - alpha) * weight / noise)
    weighted = tf.matmul(Omega, r)
    flat_A, flat_r = (
        tf.reshape(part, [-1, part.shape[2] or tf.shape(part)[2]]) for part in (A, weighted)
    )
    b = tf.matmul(flat_A, flat_r, transpose_a=True)  # [M, P]
    return RowSums(
        Natural(grouped_gram(A, Omega)[None], tf.transpose(b)[..., None]),
        tf.reduce_sum(r * weighted),
        tf.reduce_sum(weight * tf.math.log(variance)),
    )


@check_shapes("C: [K, S, S]", "neighbours: [K, S, m]", "return: [K, S, S]")
def neighbour_weights(C: tf.Tensor, neighbours: tf.Tensor) -> tf.Tensor:
    r"""
    Compute the weights of the neighbours of each row: column n has :math:`g_n = C_{NN}^{-1} C_{Nn}`
    at the places N, and zeros elsewhere.

    :param C: Covariance of the residuals in each group, noise included.
    :param neighbours: Places in the group, -1 where there is none.
    """

    @tf.custom_gradient
    def weights(C: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        (G,) = _solve_columns(C, neighbours, C)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # G anew from C: what was computed before is a constant for second derivatives.
            H, G = _solve_columns(C, neighbours, upstream, C)
            return H - tf.matmul(H, G, transpose_b=True)

        return G, gradient

    return weights(C)


def _solve_columns(
    C: tf.Tensor, neighbours: tf.Tensor, *matrices: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """
    Solve :math:`C_{NN} x_n = b_n` for the entries at N of each column n of some matrices; the
    results are matrices with zeros elsewhere.
    """
    num_groups, size = tf.shape(C)[0], tf.shape(C)[1]
    present = neighbours >= 0
    places = tf.maximum(neighbours, 0)
    row_start = (tf.range(num_groups)[:, None, None] * size + places) * size  # [K, S, m]
    C_NN = _entries(C, row_start[..., :, None] + places[..., None, :])
    zero, unit = tf.zeros([], C.dtype), tf.ones([], C.dtype)
    # The covariance of an absent neighbour is that of a row of unit variance far from all others.
    C_NN = tf.where(present[..., :, None] & present[..., None, :], C_NN, zero)
    C_NN = tf.linalg.set_diag(C_NN, tf.where(present, tf.linalg.diag_part(C_NN), unit))
    columns = row_start + tf.range(size)[:, None]
    right = [tf.where(present, _entries(matrix, columns), zero) for matrix in matrices]
    solved = tf.linalg.cholesky_solve(tf.linalg.cholesky(C_NN), tf.stack(right, axis=-1))
    index = tf.reshape(columns, [-1])
    scattered = (
        tf.math.unsorted_segment_sum(tf.reshape(part, [-1]), index, num_groups * size * size)
        for part in tf.unstack(solved, len(matrices), axis=-1)
    )
    return tuple(tf.reshape(part, tf.shape(C)) for part in scattered)


def _entries(matrices: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    return tf.gather(tf.reshape(matrices, [-1]), index)
