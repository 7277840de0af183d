r"""Predictions that use rows of the training data in addition to the inducing
variables.

A new row is :math:`f_* = A_*ᵀ v + e_*`, where the residual :math:`e_*` is independent
of v and correlated with the residuals of near rows. The prediction is conditioned on
the targets of some held rows h, with residual targets r and noise variances
:math:`\Sigma`. If q(v) has mean m and covariance :math:`B^{-1}`, it is

.. math::

    g = (D_{hh} + \Sigma)^{-1} D_{h*}, \qquad E = A_* - A g, \qquad
    f_* \sim N\big( Eᵀ m + gᵀ r,\; D_{**} - gᵀ D_{h*} + Eᵀ B^{-1} E \big)

In :func:`predict_from_blocks` the held rows are the rows of the new row's block: the
partially independent conditional (PIC) of Snelson & Ghahramani (2007). In
:func:`predict_from_near_rows` they are a few near rows, which are different for each
new row.

If the likelihood is not Gaussian, near rows get sites first, by Power EP in the group
of near rows of a new row, under :math:`N(A_hᵀ m, D_{hh} + A_hᵀ B^{-1} A_h)`
(:mod:`gpflow_pep.engine.sites.groups`). A site is an observation with Gaussian noise,
to which the formula applies.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from ..numerics.chunks import CHUNK_ELEMENTS, MIN_CHUNK, map_over_chunks, row_chunks
from ..prior import Parts, PartsBySubstitution
from ..sites.groups import TOLERANCE, GroupRows, gaussian_observations


class Context(NamedTuple):
    """The information for predictions of new rows: q(v), with a covariance that all
    outputs share, and training rows.

    With M = 0 predictions use the prior of f, without u.
    """

    L: tf.Tensor  #: [1, M, M], Cholesky factor of ``Kuu``.
    mean: tf.Tensor  #: The means of q(v), [M, P].
    root: tf.Tensor
    """A square root of the covariance of q(v), [M, M]: the covariance is the root times
    its transpose.
    """

    X: tf.Tensor  #: [N, D], inputs of the training rows.
    r: tf.Tensor
    """The targets of the rows minus the mean function, [N, P]; the targets themselves
    if rows get sites.
    """

    noise: tf.Tensor
    """The noise variances of the rows, [N]; if rows get sites, the powers of the sites,
    [N], or one power [1] for all.
    """

    #: [D], see :func:`~gpflow_pep.engine.prior.nearest.input_scales`.
    scales: tf.Tensor


class NearRows(NamedTuple):
    """Near training rows that a prediction is conditioned on."""

    number: int  #: The number of near rows for each new row.
    noise_variance: float | None = None
    """The noise variance of near rows and of new targets; sites are not changed. None
    uses the noise variance of the model, or sites if its likelihood is not Gaussian.
    """


class _Conditioned(NamedTuple):
    """New rows given v and held rows: :math:`f_* = E^T v + mean +` a residual with
    covariance D.
    """

    E: tf.Tensor  #: [G, T, M], :math:`(A_* - A g)ᵀ`.
    mean: tf.Tensor  #: [G, T, P], :math:`gᵀ r`.
    D: tf.Tensor  #: [G, T, T], :math:`D_{**} - gᵀ D_{h*}`.
    g: tf.Tensor  #: [G, S, T], the weights of held rows.

    def under(self, context: Context) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Compute means [G, T, P], roots of the covariance that rows share through v
        [G, T, M], and the other variances.
        """
        variance = tf.linalg.diag_part(self.D)
        return (
            tf.matmul(self.E, context.mean) + self.mean,
            tf.tensordot(self.E, context.root, 1),
            # Rounding can make a variance negative.
            tf.maximum(variance, tf.zeros_like(variance)),
        )


class BlockRows(NamedTuple):
    """The rows of each block."""

    names: tf.Tensor  #: The label of each block, ascending, [B].
    #: The numbers of the rows of the first block, of the second block, and so on, [N].
    rows: tf.Tensor
    start: tf.Tensor  #: The start of each block in these numbers, [B + 1].


def _condition_on_rows(
    A: tf.Tensor, D: tf.Tensor, r: tf.Tensor, noise: tf.Tensor
) -> _Conditioned:
    """
    Condition new rows on held rows, in G groups of T new rows followed by S held rows,
    K = T + S, from A [G, K, M], D [G, K, K], r [G, S, P] and noise [G, S].
    """
    new = tf.shape(A)[1] - tf.shape(noise)[1]
    L = tf.linalg.cholesky(D[:, new:, new:] + tf.linalg.diag(noise))
    V = tf.linalg.triangular_solve(L, D[:, new:, :new])  # g = L⁻ᵀ V
    g = tf.linalg.triangular_solve(L, V, adjoint=True)
    return _Conditioned(
        A[:, :new] - tf.matmul(g, A[:, new:], transpose_a=True),
        tf.matmul(g, r, transpose_a=True),
        D[:, :new, :new] - tf.matmul(V, V, transpose_a=True),
        g,
    )


def condition_groups(
    parts: Parts,
    context: Context,
    Xnew: tf.Tensor,
    index: tf.Tensor,
    tolerance: float = TOLERANCE,
) -> _Conditioned:
    """Condition groups of new rows [G, T, D] on the held rows of each group [G, S].

    Rows get sites if the parts have a likelihood; otherwise their noise is Gaussian.

    :param tolerance: The tolerance of sites; see
        :func:`~gpflow_pep.engine.sites.groups.infer_groups`.
    """
    X = tf.gather(context.X, index)
    r = tf.gather(context.r, index)
    shared = parts.likelihood is not None and context.noise.shape[0] == 1
    noise = context.noise[None] if shared else tf.gather(context.noise, index)
    A, D = _project_groups(parts, context.L, tf.concat([Xnew, X], axis=1))
    if parts.likelihood is not None:
        new = tf.shape(Xnew)[1]
        root = tf.matmul(A[:, new:], context.root)
        covariance = D[:, new:, new:] + tf.matmul(root, root, transpose_b=True)
        flat = tf.reshape(X, [-1, X.shape[2]])
        mean = tf.reshape(parts.mean(flat) + tf.zeros_like(flat[:, :1]), tf.shape(r))
        prior_mean = (mean + tf.matmul(A[:, new:], context.mean))[..., 0]
        rows = GroupRows(X, r, noise, prior_mean, covariance)
        targets, noise = gaussian_observations(parts.likelihood, rows, tolerance)
        r = targets - mean
    return _condition_on_rows(A, D, r, noise)


def _project_groups(
    parts: Parts, L: tf.Tensor, X: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Project groups of rows [G, K, D]: A [G, K, M], and residual covariances D [G, K,
    K].
    """
    A, D, _ = PartsBySubstitution(*parts).project_blocks(L, X)
    num_groups = tf.shape(D)[0]
    size = tf.shape(D)[1]
    M = -1 if A.shape[1] is None else A.shape[1]
    return tf.reshape(tf.transpose(A[0]), [num_groups, size, M]), D


def _groups_at_a_time(
    context: Context, index: tf.Tensor, chunk_size: int | None
) -> int:
    """Return the number of groups of one new row and its held rows in a chunk, whose
    size is given or chosen.
    """
    group = (index.shape[1] or 0) + 1
    num_inducing = context.mean.shape[0] or 1
    return max((chunk_size or CHUNK_ELEMENTS // max(num_inducing, group)) // group, 1)


def predict_from_near_rows(
    parts: Parts,
    context: Context,
    Xnew: tf.Tensor,
    index: tf.Tensor,
    full_cov: bool,
    chunk_size: int | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Predict each new row from u and from its own training rows, in chunks of new
    rows.

    Given u, the errors of predictions are :math:`e_* - gᵀ (e_h + \epsilon_h)` with
    residuals e and noise :math:`\epsilon`. So two new rows, with held rows N and N'
    that have weights g and g', have the covariance

    .. math::

        Eᵀ B^{-1} E' + D_{**'} - gᵀ D_{N*'} - D_{*N'} g'
        + gᵀ (D_{NN'} + \Sigma_{NN'}) g'

    which for the same row is the variance above. If rows get sites, the sites differ
    from one new row to the next, and there is no joint distribution.

    :param index: The numbers of the held rows of each new row, [N_new, m]; m may be 0.
    :param chunk_size: The largest number of rows at a time, near rows included; None
        chooses it.
    :return: Means [N_new, P], and variances [N_new] or the covariance [N_new, N_new].
    """

    def chunk_terms(rows: Any) -> tuple[tf.Tensor, ...]:
        X, index = rows
        conditioned = condition_groups(parts, context, X[:, None], index)
        mean, root, variance = (values[:, 0] for values in conditioned.under(context))
        if full_cov:
            return mean, root, conditioned.g[..., 0]
        return mean, variance + tf.reduce_sum(tf.square(root), axis=1)

    size = _groups_at_a_time(context, index, chunk_size)
    moments = map_over_chunks(chunk_terms, row_chunks((Xnew, index), size))
    if not full_cov:
        return moments
    mean, root, g = moments
    rows, place = tf.unique(tf.reshape(index, [-1]))
    num_new = tf.shape(index)[0]
    num_near = tf.shape(index)[1]
    entries = tf.stack([tf.repeat(tf.range(num_new), num_near), place], axis=1)
    G = tf.scatter_nd(entries, tf.reshape(g, [-1]), [num_new, tf.size(rows)])
    X = tf.concat([Xnew, tf.gather(context.X, rows)], axis=0)
    D = _project_groups(parts, context.L, X[None])[1][0]
    error = tf.concat([tf.eye(num_new, dtype=G.dtype), -G], axis=1)
    covariance = tf.matmul(root, root, transpose_b=True)
    covariance += tf.matmul(error, tf.matmul(D, error, transpose_b=True))
    covariance += tf.matmul(G * tf.gather(context.noise, rows), G, transpose_b=True)
    return mean, covariance


def predict_by_levels(
    parts: Parts, context: Context, Xnew: tf.Tensor, index: tf.Tensor, noise: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Predict like :func:`predict_from_near_rows`, with each of some noise variances.

    :param index: The numbers of the held rows of each new row, [S, m].
    :param noise: K noise variances of near rows, which are used one after the other;
        sites are not changed.
    :return: Mean [S, K, P] and variance [S, K] of f for each noise variance, without
        the mean function.
    """

    def chunk_terms(pieces: Any) -> tuple[tf.Tensor, ...]:
        X, index = pieces
        A, D = _project_groups(
            parts,
            context.L,
            tf.concat([X[:, None], tf.gather(context.X, index)], axis=1),
        )
        targets = tf.gather(context.r, index)
        means = []
        variances = []
        for level in tf.unstack(noise):
            near_noise = level + tf.zeros_like(targets[..., 0])
            conditioned = _condition_on_rows(A, D, targets, near_noise)
            mean, root, variance = (
                values[:, 0] for values in conditioned.under(context)
            )
            means.append(mean)
            variances.append(variance + tf.reduce_sum(tf.square(root), axis=1))
        return tf.stack(means, axis=1), tf.stack(variances, axis=1)

    pieces = row_chunks((Xnew, index), _groups_at_a_time(context, index, None))
    mean, variance = map_over_chunks(chunk_terms, pieces)
    return mean, variance


def predict_from_blocks(
    parts: Parts,
    context: Context,
    blocks: BlockRows,
    Xnew: tf.Tensor,
    block: tf.Tensor,
    full_cov: bool,
    chunk_size: int | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Predict each new row from u and the training rows of its block (Snelson &
    Ghahramani 2007).

    New rows of one block have their full residual covariance. New rows of different
    blocks are correlated only through u, with the covariance :math:`E_iᵀ B^{-1} E_j`,
    because their residuals are independent a priori. If q(v) was computed from all
    blocks at :math:`\alpha = 1`, this is the exact conditional of that model. The rows
    of one block, and at most as many new rows, are computed at a time.

    :param block: The block of each new row, [N_new], as a place in ``blocks.names``.
    :param chunk_size: The largest number of new rows at a time; None chooses it.
    :return: As in :func:`predict_from_near_rows`.
    """
    num_new = tf.shape(Xnew)[0]
    order = tf.argsort(block, stable=True)
    Xnew = tf.gather(Xnew, order)
    block = tf.gather(block, order)
    start = _starts_of_pieces(block, num_new if full_cov else chunk_size or MIN_CHUNK)
    stop = tf.concat([start[1:], [num_new]], axis=0)
    block = tf.concat([block, [0]], axis=0)  # without new rows, one piece without rows

    def of_piece(k: tf.Tensor) -> tuple[tf.Tensor, ...]:
        b = block[start[k]]
        X = Xnew[start[k] : stop[k]]
        index = blocks.rows[blocks.start[b] : blocks.start[b + 1]]
        conditioned = condition_groups(parts, context, X[None], index[None])
        mean, root, variance = (values[0] for values in conditioned.under(context))
        if full_cov:
            columns = [start[k], num_new - stop[k]]
            return mean, root, tf.pad(conditioned.D[0], [[0, 0], columns])
        return mean, variance + tf.reduce_sum(tf.square(root), axis=1)

    M, P = context.mean.shape
    shapes = [[None, P], [None, M], [None, None]] if full_cov else [[None, P], [None]]
    ragged = tuple(
        tf.RaggedTensorSpec(shape, Xnew.dtype, ragged_rank=0) for shape in shapes
    )
    options = {"fn_output_signature": ragged, "parallel_iterations": 1}
    pieces = tf.map_fn(of_piece, tf.range(tf.shape(start)[0]), **options)
    back = tf.argsort(order)
    mean, *spread = (tf.gather(part.values, back) for part in pieces)
    if not full_cov:
        return mean, spread[0]
    root, D = spread
    return mean, tf.matmul(root, root, transpose_b=True) + tf.gather(D, back, axis=1)


def _starts_of_pieces(block: tf.Tensor, size: Any) -> tf.Tensor:
    """Find where rows of sorted blocks are cut, so that each piece belongs to one block
    and has at most this size.
    """
    place = tf.range(tf.shape(block)[0])
    place_in_block = place - tf.searchsorted(block, block)
    starts = tf.where(place_in_block % tf.maximum(size, 1) == 0)[:, 0]
    return tf.concat([[0], tf.cast(starts[1:], tf.int32)], axis=0)
