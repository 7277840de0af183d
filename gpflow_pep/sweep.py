r"""One sweep over rows: q from the sites, and the sites that match the tilted moments under it.

Bui, Yan & Turner (2017), section 3.3 and appendix F, for all rows at once.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf
from gpflow.likelihoods import Likelihood

from . import cavity, tilted
from .covariances import Prior, Projection, project
from .ops import chunks, replicas
from .ops.chunks import Rows, Sums
from .ops.linalg import gram
from .posterior import marginals, posterior_factor
from .sites import Marginals, Sites
from .updates import Evaluation

#: A cavity whose variance is so many times the prior's is refused: it is about to be improper.
_LARGEST_CAVITY = 10.0

#: Of each latent function; those that share a prior share the tensors.
Projections = Sequence[Projection]


class NaturalSums(NamedTuple):
    """What the sites of all rows add to the prior of v, a pair for each latent function."""

    grams: Sequence[tf.Tensor]
    r"""[M, M] each, :math:`G = A \,\mathrm{diag}(\tau) Aᵀ`."""

    moments: Sequence[tf.Tensor]
    r"""[M, 1] each, :math:`b = A \nu`."""

    def flatten(self) -> Sums:
        """All grams, then all moments."""
        return (*self.grams, *self.moments)

    @classmethod
    def unflatten(cls, sums: Sums) -> "NaturalSums":
        """From all grams, then all moments."""
        half = len(sums) // 2
        return cls(sums[:half], sums[half:])

    def plus(self, other: "NaturalSums") -> "NaturalSums":
        """Those of two sets of rows together."""
        pairs = zip(self.flatten(), other.flatten(), strict=True)
        return self.unflatten(tuple(one + more for one, more in pairs))


def natural_sums(projections: Projections, sites: Sites) -> NaturalSums:
    """
    Sum the sites of some rows.

    :param projections: Of the rows.
    :param sites: Of the rows.
    """
    latents = range(len(projections))
    return NaturalSums(
        [gram(projections[k].A, sites.tau[:, k]) for k in latents],
        [tf.matmul(projections[k].A, sites.nu[:, k : k + 1]) for k in latents],
    )


def residual_variance(projections: Projections) -> tf.Tensor:
    """d of each latent function, [N, L]."""
    return tf.stack([projection.D for projection in projections], axis=-1)


def project_latents(
    priors: Sequence[Prior], factors: Sequence[tf.Tensor], X: tf.Tensor
) -> Projections:
    """
    Project rows on the inducing variables of each latent function.

    :param priors: The priors that differ.
    :param factors: W of each prior, see :func:`gpflow_pep.covariances.prior_factor`.
    :param X: [N, D].
    """
    return of_latents(
        priors,
        [
            project(W, prior.inducing_variable, prior.kernel, X)
            for W, prior in zip(factors, priors, strict=True)
        ],
    )


def of_latents(priors: Sequence[Prior], of_priors: Sequence[Projection]) -> Projections:
    """Hand the projection of each prior to its latent functions."""
    by_latent = {
        latent: projection
        for prior, projection in zip(priors, of_priors, strict=True)
        for latent in prior.latents
    }
    return [by_latent[latent] for latent in range(len(by_latent))]


class ProjectedRows:
    """
    Rows with their projections, for sweep after sweep; not for differentiation.

    :param priors: The priors that differ.
    :param factors: W of each.
    :param X: [N, D].
    :param chunk_size: The most rows that are worked on at a time.
    :param keep: Whether to keep A, of size M x N for each prior, instead of making it anew in each
        sweep.
    """

    def __init__(
        self,
        priors: Sequence[Prior],
        factors: Sequence[tf.Tensor],
        X: tf.Tensor,
        chunk_size: int,
        keep: bool,
    ) -> None:
        self._priors, self._factors, self._chunk_size = priors, factors, chunk_size
        if keep:
            kept = [project(W, p.inducing_variable, p.kernel, X) for W, p in zip(factors, priors)]
            self._rows: Rows = tuple(projection.D for projection in kept)
            self._columns: Rows = tuple(projection.A for projection in kept)
        else:
            self._rows, self._columns = (X,), ()

    def _pieces(self, rows: Sequence[tf.Tensor]) -> chunks.Chunks:
        return chunks.row_chunks((*self._rows, *rows), self._chunk_size, self._columns)

    def _unpack(self, piece: Rows) -> tuple[Projections, Rows]:
        own = len(self._rows)
        if not self._columns:
            return project_latents(self._priors, self._factors, piece[0]), piece[own:]
        rows, columns = piece[: -len(self._columns)], piece[-len(self._columns) :]
        kept = [Projection(A, D) for A, D in zip(columns, rows[:own], strict=True)]
        return of_latents(self._priors, kept), rows[own:]

    def sum(self, function: Callable[..., Sums], rows: Sequence[tf.Tensor]) -> Sums:
        """Sum ``function(projections, *rows)`` over chunks of rows."""

        def on_chunk(piece: Rows) -> Sums:
            projections, rest = self._unpack(piece)
            return function(projections, *rest)

        sums = chunks.sum_over_chunks(on_chunk, self._pieces(rows), (), keep=True)
        return tuple(map(tf.stop_gradient, sums))

    def map(self, function: Callable[..., Rows], rows: Sequence[tf.Tensor]) -> Rows:
        """Put together what ``function(projections, *rows)`` gives for chunks of rows."""

        def on_chunk(piece: Rows) -> Rows:
            projections, rest = self._unpack(piece)
            return function(projections, *rest)

        return chunks.map_over_chunks(on_chunk, self._pieces(rows))


class Targets(NamedTuple):
    """What some rows want."""

    sites: Sites
    """The sites that match the moments of the tilted distributions."""

    limited: Sites
    """Those of non-negative precision that do, or match the mean alone."""

    proper: tf.Tensor
    """[N], bool: the cavities are proper and all numbers finite."""


def match_moments(
    likelihood: Likelihood,
    projections: Projections,
    moments: Marginals,
    X: tf.Tensor,
    mean: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
    sites: Sites,
) -> Targets:
    r"""
    Compute the sites that match the tilted moments,

    .. math::

        \tau^* = -\frac{\delta_2}{1 + \alpha \delta_2 s^{-}}, \qquad
        \nu^* = \tau^* m^{-} + \delta_1 (1 + \alpha \tau^* s^{-}).

    :param likelihood: The likelihood.
    :param projections: Of the rows.
    :param moments: Of h under q.
    :param X: [N, D].
    :param mean: The mean function there, [N, L].
    :param Y: [N, P].
    :param alpha: The power of each row, [N].
    :param sites: The sites in q.
    """
    power = alpha[:, None]
    left = cavity.remove(moments, sites, power)
    d = residual_variance(projections)
    explained = [tf.reduce_sum(tf.square(projection.A), axis=0) for projection in projections]
    prior = tf.stack(explained, axis=-1) + d
    proper = (left.e > 0.0) & (left.s + d <= _LARGEST_CAVITY * prior)
    proper &= tf.math.is_finite(moments.m) & tf.math.is_finite(moments.s)
    # Where it is not proper nothing is used, but nothing may be NaN or wait for ever.
    m = tf.where(proper, left.m, tf.zeros_like(d))
    s = tf.where(proper, left.s, tf.zeros_like(d))
    _, delta1, delta2 = tilted.tilted_derivatives(likelihood, X, m + mean, s + d, Y, alpha)
    tau = -delta2 / (1.0 + power * delta2 * s)
    target, limited = (
        Sites(tau * m + delta1 * (1.0 + power * tau * s), tau)
        for tau in (tau, tf.maximum(tau, tf.zeros_like(tau)))
    )
    proper &= tf.math.is_finite(target.nu) & tf.math.is_finite(target.tau)
    return Targets(target, limited, tf.reduce_all(proper, axis=1))


def sweep(
    likelihood: Likelihood,
    projected: ProjectedRows,
    rows: Sequence[tf.Tensor],
    sites: Sites,
    others: NaturalSums | None = None,
) -> Evaluation:
    """
    Evaluate the sites of all rows: q, its marginals, and the sites that match the tilted moments.

    :param likelihood: The likelihood.
    :param projected: The rows.
    :param rows: X [N, D], the mean function [N, L], Y [N, P] and the power [N] of each row.
    :param sites: The sites.
    :param others: What other rows add to q, whose sites stay as they are.
    """
    sums = projected.sum(
        lambda projections, *piece: natural_sums(projections, Sites(*piece)).flatten(), sites
    )
    natural = NaturalSums.unflatten(sums)
    if others is not None:
        natural = natural.plus(others)
    posteriors = list(map(posterior_factor, *natural))

    def of_chunk(projections: Projections, *piece: tf.Tensor) -> Rows:
        X, mean, Y, alpha, nu, tau = piece
        columns = [marginals(p.A, q) for p, q in zip(projections, posteriors, strict=True)]
        moments = Marginals(*(tf.concat(column, axis=1) for column in zip(*columns)))
        targets = match_moments(likelihood, projections, moments, X, mean, Y, alpha, Sites(nu, tau))
        return (*moments, *targets.sites, *targets.limited, targets.proper)

    m, s, nu, tau, limited_nu, limited_tau, proper = projected.map(of_chunk, (*rows, *sites))
    return Evaluation(
        Marginals(m, s),
        Sites(nu, tau),
        Sites(limited_nu, limited_tau),
        replicas.everywhere(tf.reduce_all(proper)),
    )
