r"""One sweep over rows whose outputs are mixtures, and the run of sweeps to the fixed point.

See :mod:`gpflow_pep.engine.sites.mixture`; :mod:`gpflow_pep.engine.sites.sweep` has the same for
latent functions that are independent. With :math:`m, s` the marginals of an entry's site, its
cavity, tilted moments and target are as there. The energy of a fixed point is

.. math::

    \log Z = {} & -\tfrac12 \log|B| - \tfrac12 |w|^2 + \sum_{np} \Big[ \ell_{np}
        + \frac{\alpha s \gamma^2}{2 e} - \frac{1}{2 \alpha} \log(1 - \alpha \tau s) \Big]_{np} \\
    & - \sum_n \Big[ \tfrac{\alpha}{2} \gamma_nᵀ W \Delta_n Wᵀ \gamma_n
        + \frac{1}{2 \alpha} \log|I + \alpha \Delta_n C_n| \Big],

with :math:`\gamma = \nu - \tau m`. It comes from the sum of the
normalisers of row and inner sites, whose other terms cancel: :math:`I + \alpha V T` with the
row's cavity covariance :math:`V = S (I - \alpha T S)^{-1}` is the inverse of
:math:`I - \alpha S T`.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from ..factors import TiltedDerivatives, traits
from ..factors.entries import entry_derivatives
from ..numerics import chunks
from ..numerics.power import log1p_over_power
from .fixed_point import run_to_fixed_point
from .mixture import (
    LatentMarginals,
    MixtureProblem,
    latent_marginals,
    log_determinant,
    mixed_marginals,
    mixed_variance,
    mixture_sums,
    proper_rows,
    row_sites,
    with_residual,
)
from .posterior import (
    Cavity,
    Marginals,
    PosteriorFactor,
    SiteRows,
    Sites,
    cavity,
    log_root,
    posterior_factor,
    scaled_error,
    terms_of_mean,
)
from .record import MEANT, Easier, Features, FixedPoint, RunLimits, SweepEvaluation
from .sweep import (
    LARGEST_CAVITY,
    RowPrior,
    largest_power,
    matching_sites,
    starts_from_no_sites,
    variance_to_narrow,
    with_power_shift,
)


class AtMixedFixedPoint(NamedTuple):
    """What the last sweep has found beside the marginals."""

    q: PosteriorFactor

    tilted: TiltedDerivatives
    """Of each entry, [N, P]."""

    h: LatentMarginals

    terms: tf.Tensor
    """[], what the rows of this process have in the energy beside q(v)."""


class _Matched(NamedTuple):
    marginals: Marginals
    target: Sites
    limited: Sites
    proper: tf.Tensor
    """[N], bool."""
    tilted: TiltedDerivatives
    h: LatentMarginals
    terms: tf.Tensor
    """[N]"""


class MatchedEntries(NamedTuple):
    """What the entries of some rows want."""

    target: Sites
    """The sites that match the moments of the tilted distributions; 0 where Y is NaN."""

    limited: Sites
    """Those of non-negative precision."""

    proper: tf.Tensor
    """[N], bool: the cavities are proper and all numbers finite."""

    left: Cavity

    tilted: TiltedDerivatives


def match_entries(
    likelihood: Likelihood,
    rows: SiteRows,
    moments: Marginals,
    prior: RowPrior,
    sites: Sites,
) -> MatchedEntries:
    """
    Compute the sites that match the tilted moments of each entry.

    :param moments: Of what the sites are functions of, [N, P].
    """
    X, Y, alpha = rows
    power, observed = alpha[:, None], tf.math.is_finite(Y)
    left = cavity(moments, sites, power)
    proper = (left.e > 0.0) & (left.s <= LARGEST_CAVITY * prior.variance)
    proper &= tf.math.is_finite(moments.m) & tf.math.is_finite(moments.s)
    zeros = tf.zeros_like(moments.m)
    m, s = tf.where(proper, left.m, zeros), tf.where(proper, left.s, zeros)
    tilted = entry_derivatives(likelihood, X, m + prior.mean, s, Y, alpha)
    target, limited = (
        Sites(*(tf.where(observed, part, zeros) for part in some))
        for some in matching_sites(tilted, m, s, power)
    )
    for part in (*target, tilted.ell):
        proper &= tf.math.is_finite(part)
    return MatchedEntries(target, limited, tf.reduce_all(proper | ~observed, axis=1), left, tilted)


def output_prior(problem: MixtureProblem) -> RowPrior:
    """Compute the prior's moments of f at the rows, [N, P]."""
    parts, X = problem.latent.parts, problem.rows.X
    variance = mixed_variance(problem.mixing, parts.variance(X))
    return RowPrior(parts.mean(X) + tf.zeros_like(variance), variance)


def _match_moments(
    problem: MixtureProblem, projection: Any, q: PosteriorFactor, prior: RowPrior, sites: Sites
) -> _Matched:
    """Compute the sites that match the tilted moments of each entry; 0 where there is none."""
    latent, alpha = problem.latent, problem.rows.alpha
    power, d = alpha[:, None], tf.transpose(projection.D)
    rows = row_sites(problem.mixing, sites, d, alpha)
    h = latent_marginals(projection.A, q)
    moments = mixed_marginals(problem.mixing, with_residual(h, rows, alpha))
    matched = match_entries(latent.parts.likelihood, problem.rows, moments, prior, sites)
    proper = matched.proper & proper_rows(h, rows, sites.tau, alpha)
    left, tilted = matched.left, matched.tilted
    slope = sites.nu - sites.tau * moments.m
    terms = tilted.ell + 0.5 * power * left.s * tf.square(slope)
    terms = tf.reduce_sum(terms, axis=1) + _log_terms(sites, moments, power)
    of_residual = d * tf.square(tf.matmul(slope, problem.mixing))
    log_det = log_determinant(rows, d, alpha)
    terms -= 0.5 * (alpha * tf.reduce_sum(of_residual, axis=1) + log_det)
    proper &= tf.math.is_finite(log_det)
    return _Matched(moments, matched.target, matched.limited, proper, tilted, h, terms)


def _log_terms(sites: Sites, moments: Marginals, power: tf.Tensor) -> tf.Tensor:
    return -0.5 * tf.reduce_sum(log1p_over_power(-sites.tau * moments.s, power), axis=1)


def mixture_sweep(
    problem: MixtureProblem, prior: RowPrior, sites: Sites, easier: Easier = MEANT
) -> SweepEvaluation:
    """
    Evaluate the sites of all entries: q, the marginals, and the sites that match.

    At power 0 the merit is the energy, SVGP's bound for whatever sites.

    :param easier: How the problem differs from this one.
    """
    latent, part = with_power_shift(problem.latent, easier), easier.prior_part
    problem = problem._replace(latent=latent)
    if part is not None:  # of the variance of all that is mixed
        problem = problem._replace(mixing=tf.sqrt(part) * problem.mixing)
        prior = prior._replace(variance=part * prior.variance)
    q = posterior_factor(mixture_sums(problem, sites))

    def chunk_terms(piece: Any) -> _Matched:
        (X, (prior, Y, alpha, sites)), projection = piece
        rows = latent.rows._replace(X=X, Y=Y, alpha=alpha)
        some = problem._replace(latent=latent._replace(rows=rows))
        return _match_moments(some, latent.project(X, projection), q, prior, sites)

    rows = prior, problem.rows.Y, problem.rows.alpha, sites
    matched = chunks.map_over_chunks(chunk_terms, latent.pieces(rows))
    terms = tf.reduce_sum(matched.terms)
    return SweepEvaluation(
        matched.marginals,
        matched.target,
        matched.limited,
        scaled_error(sites, matched.target, matched.marginals),
        latent.reduction.all(tf.reduce_all(matched.proper)),
        _merit(problem, q, terms),
        AtMixedFixedPoint(q, matched.tilted, matched.h, terms),
    )


def energy_of(q: PosteriorFactor, terms: tf.Tensor) -> tf.Tensor:
    """Compute the energy, see this module, of the sum of the last two sums over all rows."""
    return terms + terms_of_mean(q.w, []) - log_root(q)


def _merit(problem: MixtureProblem, q: PosteriorFactor, terms: tf.Tensor) -> tf.Tensor:
    parts = [terms, tf.reduce_sum(problem.rows.alpha)]
    terms, alpha = map(tf.stop_gradient, problem.latent.reduction.total(parts))
    return tf.where(alpha == 0.0, energy_of(q, terms), tf.zeros_like(terms))


def infer_mixture(problem: MixtureProblem, initial: Sites, limits: RunLimits) -> FixedPoint:
    """Bring the sites of all entries to their fixed point; see
    :mod:`gpflow_pep.engine.sites.sweep`."""
    problem = problem.keep_projections()
    latent, prior = problem.latent, output_prior(problem)
    warm_up = None
    if limits.fall_back and traits(latent.parts.likelihood).starts_at_high_powers:
        warm_up = starts_from_no_sites(latent, initial)

    def evaluate(sites: Sites, easier: Easier, _: AtMixedFixedPoint) -> SweepEvaluation:
        return mixture_sweep(problem, prior, sites, easier)

    return run_to_fixed_point(
        evaluate,
        initial,
        limits,
        Features(
            largest_power=largest_power(latent),
            warm_up=warm_up,
            largest_variance=variance_to_narrow(latent, prior, limits),
            reduction=latent.reduction,
        ),
        _before_the_first(problem, initial),
    )


def _before_the_first(problem: MixtureProblem, sites: Sites) -> AtMixedFixedPoint:
    """NaN, as where B is not positive definite."""
    zeros, W = tf.zeros_like(sites.nu), problem.latent.W
    number = int(problem.mixing.shape[1])
    size = number * (W.shape[1] or tf.shape(W)[1])
    root = tf.fill([1, size, size], tf.constant(np.nan, W.dtype))
    h = tf.matmul(zeros, problem.mixing)
    covariance = h[:, :, None] * h[:, None, :]
    return AtMixedFixedPoint(
        PosteriorFactor(root, root[..., :1], root[:, 0, 0]),
        TiltedDerivatives(zeros, zeros, zeros),
        LatentMarginals(h, covariance),
        tf.zeros([], W.dtype),
    )
