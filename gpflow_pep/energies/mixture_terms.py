"""What Power EP knows of each row and entry of outputs that are mixtures: see
:mod:`gpflow_pep.energies.row_terms`."""

from typing import Any

import tensorflow as tf

from ..covariances import Projection
from ..ops import chunks
from ..ops.power import log1p_over_power
from ..sites.mixture import (
    LatentMarginals,
    MixtureProblem,
    latent_marginals,
    log_determinant,
    mixed_marginals,
    mixed_variance,
    mixture_sums,
    row_sites,
    with_residual,
)
from ..sites.mixture_sweep import match_entries, output_prior
from ..sites.posterior import PosteriorFactor, SiteRows, Sites, posterior_factor
from ..sites.sweep import RowPrior
from .row_terms import RowTerms, root_of_share, tilted_terms


def terms_of_entries(problem: MixtureProblem, sites: Sites, density: tf.Tensor) -> RowTerms:
    """
    Compute what belongs to each entry and row at sites with proper cavities, and at leave-one-out
    log densities [N, P]; constant for differentiation.
    """
    natural, latent = mixture_sums(problem, sites), problem.latent
    q, root = posterior_factor(natural), root_of_share(natural.G)

    def chunk_terms(piece: Any) -> RowTerms:
        (X, (prior, Y, alpha, *others)), projection = piece
        rows = SiteRows(X, Y, alpha)
        some = problem._replace(latent=latent._replace(rows=rows))
        return _terms(some, latent.project(X, projection), q, root, prior, *others)

    rows = output_prior(problem), problem.rows.Y, problem.rows.alpha, sites, density
    terms = chunks.map_over_chunks(chunk_terms, latent.pieces(rows))
    return RowTerms(*map(tf.stop_gradient, terms))


def _terms(
    problem: MixtureProblem,
    projection: Projection,
    q: PosteriorFactor,
    root: tf.Tensor,
    prior: RowPrior,
    sites: Sites,
    density: tf.Tensor,
) -> RowTerms:
    """Compute the terms of all rows of a problem."""
    mixing, alpha, A = problem.mixing, problem.rows.alpha, projection.A
    power, d = alpha[:, None], tf.transpose(projection.D)
    joint, beside = problem.joint_residual(d), problem.own_residual(d)
    rows, h = row_sites(mixing, sites, joint, alpha), latent_marginals(A, q)
    m, s = moments = mixed_marginals(mixing, with_residual(h, rows, alpha))
    likelihood = problem.latent.parts.likelihood
    matched = match_entries(likelihood, problem.rows, moments, beside, prior, sites)
    left, ell = matched.left, matched.tilted.ell
    slope, share = sites.nu - sites.tau * m, _share(A, root)
    contribution = ell + 0.5 * power * left.s * tf.square(slope)
    contribution -= 0.5 * log1p_over_power(-sites.tau * s, power)
    if joint is None:
        of_logdet = sites.tau * mixed_marginals(mixing, share).s
        contribution -= 0.5 * (m * slope + of_logdet)
    else:
        contribution = tf.reduce_sum(contribution, axis=1)
        of_residual = joint * tf.square(tf.matmul(slope, mixing))
        of_mean = h.mean * (rows.first - tf.linalg.matvec(rows.T, h.mean))
        contribution -= 0.5 * tf.reduce_sum(power * of_residual + of_mean, axis=1)
        of_logdet = tf.reduce_sum(rows.T * share.covariance, axis=[1, 2])
        contribution -= 0.5 * (log_determinant(rows, joint, alpha) + of_logdet)
    return RowTerms(
        *sites,
        *tilted_terms(left, matched.tilted, power),
        *moments,
        mixed_variance(mixing, d),
        prior.mean,
        contribution,
        density,
    )


def _share(A: tf.Tensor, root: tf.Tensor) -> LatentMarginals:
    r"""Compute :math:`A_n^T g(G) A_n`, [N, Q, Q], as covariances beside a mean of 0."""
    of_latents = tf.reshape(root, [tf.shape(A)[0], -1, tf.shape(root)[2]])
    columns = tf.matmul(of_latents, A, transpose_a=True)  # [Q, S, N]
    covariance = tf.einsum("qsn,rsn->nqr", columns, columns)
    return LatentMarginals(tf.zeros_like(covariance[:, 0]), covariance)
