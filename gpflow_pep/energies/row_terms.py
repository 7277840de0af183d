r"""What Power EP knows of each row, and what each row adds to log Z.

All moments are of :math:`h_n = A_nᵀ v`, the part of f at row n that the inducing variables
determine: there the row's site stands. The function itself is f = h + its prior mean + a residual
of variance :math:`d_n`, over which the likelihood is averaged,

.. math::

    \ell_n(h) = \tfrac{1}{\alpha} \log \int N(f; h + \mu_n, d_n) \, p(y_n | f)^\alpha \, df .

The energy of :mod:`gpflow_pep.energies.point` has two terms that are not sums over rows. As
:math:`(I + G) w = A \nu` with :math:`G = A \,\mathrm{diag}(\tau) Aᵀ`, the first is

.. math::

    -\tfrac12 |w|^2 = -\tfrac12 \sum_n m_n (\nu_n - \tau_n m_n) .

The second is :math:`-\tfrac12 \log|I + G|`. Were all sites scaled by t, from 0 to 1, its
derivative would be a sum over rows, whose integral is

.. math::

    \log|I + G| = \int_0^1 \sum_n \tau_n A_nᵀ (I + t G)^{-1} A_n \, dt
        = \sum_n \tau_n A_nᵀ g(G) A_n, \qquad g(\lambda) = \log(1 + \lambda) / \lambda .

So every row has a share that does not depend on the order of the rows, and the shares add up.
"""

from typing import Any, NamedTuple

import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..covariances import Projection
from ..ops import chunks
from ..ops.power import log1p_over_power
from ..sites.posterior import (
    Marginals,
    PosteriorFactor,
    SiteProblem,
    SiteRows,
    Sites,
    marginals,
    natural_sums,
    posterior_factor,
)
from ..sites.sweep import match_moments, row_prior
from .point import left_out_log_density


class RowTerms(NamedTuple):
    r"""
    What Power EP knows of each row: [N, L], of each of L latent functions, or [N].

    Means and variances are of :math:`h_n`: see :mod:`gpflow_pep.energies.row_terms`.
    """

    nu: tf.Tensor
    r"""[N, L], :math:`\nu` of the site :math:`\exp(\nu h - \tfrac12 \tau h^2)`."""

    tau: tf.Tensor
    r"""[N, L], :math:`\tau` of the site, its precision; may be negative."""

    cavity_mean: tf.Tensor
    r"""[N, L], under q without the power :math:`\alpha` of the row's site."""

    cavity_variance: tf.Tensor
    """[N, L]"""

    log_normaliser: tf.Tensor
    r"""[N], :math:`\ell_n`: the log of the tilted distribution's normaliser, divided by
    :math:`\alpha`; at 0 the mean of the log likelihood. With a scaled conditional it has what the
    scale costs."""

    tilted_mean: tf.Tensor
    r"""[N, L], under cavity times likelihood to the power :math:`\alpha`."""

    tilted_variance: tf.Tensor
    """[N, L]"""

    mean: tf.Tensor
    """[N, L], under q: the tilted mean, where the sites have converged."""

    variance: tf.Tensor
    """[N, L], under q: the tilted variance, where the sites have converged."""

    residual_variance: tf.Tensor
    """[N, L], d: the variance of f given the inducing variables."""

    prior_mean: tf.Tensor
    """[N, L], the mean function."""

    contribution: tf.Tensor
    """[N], to log Z, which is their sum."""

    loo_log_density: tf.Tensor
    r"""[N], :math:`\log p(y_n | y_{-n})`, with the row's whole site removed."""

    def frame(self) -> pd.DataFrame:
        """
        Make a table with a row for each row, and a column for each number of it; of several latent
        functions the columns are called ``nu_0``, ``nu_1`` and so on.
        """
        columns: dict[str, AnyNDArray] = {}
        for name, part in self._asdict().items():
            values = part.numpy()
            if values.ndim == 1 or values.shape[1] == 1:
                columns[name] = values.reshape(-1)
            else:
                columns |= {
                    f"{name}_{latent}": values[:, latent] for latent in range(len(values.T))
                }
        return pd.DataFrame(columns)


def terms_of_rows(problem: SiteProblem, sites: Sites) -> RowTerms:
    """
    Compute what belongs to each row at its sites; constant for differentiation.

    :param problem: Without a memory.
    :param sites: With proper cavities, those without the whole site of a row too.
    """
    natural = natural_sums(problem, sites)
    q = posterior_factor(natural)
    values, vectors = tf.linalg.eigh(natural.G)
    share = log1p_over_power(tf.ones_like(values), values)
    root = vectors * tf.sqrt(share)[:, None, :]  # of g(G)

    def chunk_terms(piece: Any) -> RowTerms:
        (X, (Y, alpha, sites)), projection = piece
        some = problem._replace(rows=SiteRows(X, Y, alpha))
        return _terms(some, problem.project(X, projection), q, root, sites)

    rows = problem.rows.Y, problem.rows.alpha, sites
    terms = chunks.map_over_chunks(chunk_terms, problem.pieces(rows))
    return RowTerms(*map(tf.stop_gradient, terms))


def _terms(
    problem: SiteProblem,
    projection: Projection,
    q: PosteriorFactor,
    root: tf.Tensor,
    sites: Sites,
) -> RowTerms:
    """Compute the terms of all rows of a problem."""
    (m, s), prior = marginals(projection.A, q), row_prior(problem, sites)
    moments = Marginals(m, s + tf.zeros_like(m))
    matched = match_moments(problem, projection, moments, prior, sites)
    alpha = problem.rows.alpha[:, None]
    left, (ell, delta1, delta2) = matched.cavity, matched.tilted
    slope = sites.nu - sites.tau * m
    of_logdet = tf.reduce_sum(tf.square(tf.matmul(root, projection.A, transpose_a=True)), axis=-2)
    by_latent = alpha * moments.s * tf.square(slope) / left.e - m * slope
    by_latent -= log1p_over_power(-sites.tau * moments.s, alpha)
    by_latent -= sites.tau * tf.transpose(of_logdet)
    return RowTerms(
        *sites,
        left.m,
        left.s,
        ell,
        left.m + alpha * left.s * delta1,
        left.s * (1.0 + alpha * delta2 * left.s),
        *moments,
        tf.transpose(projection.D) + tf.zeros_like(m),
        prior.mean,
        ell + 0.5 * tf.reduce_sum(by_latent, axis=1),
        left_out_log_density(problem, projection, moments, sites),
    )
