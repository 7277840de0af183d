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

With the entries of Y as factors, "row" reads as entry above. Where the outputs of a row are one
factor, the same two terms of q(v) are

.. math::

    -\tfrac12 |w|^2 = -\tfrac12 \sum_n \bar h_n^T (\lambda_n - T_n \bar h_n), \qquad
    \log|I + G| = \sum_n \mathrm{tr}\big(T_n A_n^T g(G) A_n\big)

with the letters of :mod:`gpflow_pep.sites.mixture`, and what else the row adds is in the sums of
:mod:`gpflow_pep.sites.mixture_sweep`.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..covariances import Projection
from ..ops import chunks
from ..ops.power import log1p_over_power
from ..sites.posterior import (
    Cavity,
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
from ..tilted import TiltedDerivatives
from .point import left_out_log_density


class RowTerms(NamedTuple):
    r"""
    What Power EP knows of each row: [N, L], of each of L latent functions, or [N].

    Means and variances are of :math:`h_n`: see :mod:`gpflow_pep.energies.row_terms`. All are
    constants, whose derivatives in hyperparameters are refused; :meth:`frame` makes a table.

    Of outputs that are mixtures of latent functions, and where targets are missing, the terms are
    of the entries of Y: L is then the number of outputs, and ``log_normaliser`` and
    ``loo_log_density`` are [N, L] too. Where an entry was not observed, its site and its
    contribution are 0, its marginal is that which the others give it, and what its target would
    say is NaN (:data:`OF_TARGETS`). Means and variances of entry (n, p) are

    * of :math:`W_p h_n`, the part of :math:`f_p` that the inducing variables determine, where
      entries are factors;
    * of :math:`f_{np}` itself, less its mean function, where a row is one factor. What the inducing
      variables leave open of it is there under the row's own sites to the power :math:`\alpha`: at
      0 the moments are those of ``predict_f``, at 1 the row's targets count in full. The residual
      variance is part of ``variance``. In the cavity the power :math:`\alpha` of the entry's site
      is taken out of both.
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
    r"""[N], or [N, L] of entries, :math:`\ell_n`: the log of the tilted distribution's normaliser,
    divided by :math:`\alpha`; at 0 the mean of the log likelihood. With a scaled conditional it has
    what the scale costs."""

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
    """[N], or [N, L] where each entry is a factor: to log Z, which is the sum of all."""

    loo_log_density: tf.Tensor
    r"""[N], :math:`\log p(y_n | y_{-n})`, with the row's whole site removed; [N, L] of entries,
    each without the sites of all outputs of its row that say something of it."""

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


#: What of an entry that was not observed is NaN.
OF_TARGETS = (
    *("cavity_mean", "cavity_variance", "log_normaliser", "tilted_mean", "tilted_variance"),
    "loo_log_density",
)


def observed_terms(terms: RowTerms, observed: tf.Tensor) -> RowTerms:
    """Mark what is not known of entries that were not observed; they contribute nothing."""
    values = terms._asdict()
    unknown = {
        name: tf.where(observed, values[name], tf.constant(np.nan, values[name].dtype))
        for name in OF_TARGETS
    }
    part = terms.contribution
    if part.shape.rank == 2:
        part = tf.where(observed, part, tf.zeros_like(part))
    return terms._replace(**unknown, contribution=part)


def tilted_terms(
    left: Cavity, tilted: TiltedDerivatives, power: tf.Tensor
) -> tuple[Any, Any, Any, Any, Any]:
    """Compute the fields of :class:`RowTerms` from the cavity's moments to the tilted ones."""
    ell, delta1, delta2 = tilted
    mean, variance = left.m + power * left.s * delta1, left.s * (1.0 + power * delta2 * left.s)
    return left.m, left.s, ell, mean, variance


def root_of_share(G: tf.Tensor) -> tf.Tensor:
    r"""Compute R, [L, M, M], with :math:`R R^T = g(G)`: see this module."""
    values, vectors = tf.linalg.eigh(G)
    return vectors * tf.sqrt(log1p_over_power(tf.ones_like(values), values))[:, None, :]


def terms_of_rows(problem: SiteProblem, sites: Sites) -> RowTerms:
    """
    Compute what belongs to each row at its sites; constant for differentiation.

    :param sites: Of a problem without a memory, with proper cavities, also without a row's whole
        site.
    """
    natural = natural_sums(problem, sites)
    q, root = posterior_factor(natural), root_of_share(natural.G)

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
    left, ell = matched.cavity, matched.tilted.ell
    slope = sites.nu - sites.tau * m
    of_logdet = tf.reduce_sum(tf.square(tf.matmul(root, projection.A, transpose_a=True)), axis=-2)
    by_latent = alpha * moments.s * tf.square(slope) / left.e - m * slope
    by_latent -= log1p_over_power(-sites.tau * moments.s, alpha)
    by_latent -= sites.tau * tf.transpose(of_logdet)
    return RowTerms(
        *sites,
        *tilted_terms(left, matched.tilted, alpha),
        *moments,
        tf.transpose(projection.D) + tf.zeros_like(m),
        prior.mean,
        ell + 0.5 * tf.reduce_sum(by_latent, axis=1),
        left_out_log_density(problem, projection, moments, sites),
    )
