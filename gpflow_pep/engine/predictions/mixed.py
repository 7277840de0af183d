"""Moments of f at new rows under a dense q(v), for outputs that are mixed from latent
functions.
"""

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputedValue

from ..prior import Parts, PartsBySubstitution
from ..prior.evaluate import covariance
from ..prior.mixing import latent_parts
from ..sites.fixed_point import run_to_fixed_point
from ..sites.mixed import (
    LatentMarginals,
    Mixed,
    conditioned,
    latent_marginals,
    mixed_marginals,
    row_sites,
    whitened_columns,
)
from ..sites.posterior import (
    PosteriorFactor,
    SiteProblem,
    SiteRows,
    Sites,
    no_sites,
    scaled_error,
)
from ..sites.record import FixedPoint, Goal, Solver, SweepEvaluation
from ..sites.sweep import RowPrior, match_moments
from .posterior import ComputedPosterior, new_inputs


class MixedContext(NamedTuple):
    """The quantities of a model for predictions, for its present parameters."""

    L: tf.Tensor  #: [Q, M, M], Cholesky factors of ``Kuu``.
    root: tf.Tensor  #: [1, S, S], inverse Cholesky factor of the precision of v.
    #: [1, S, 1], see :class:`~gpflow_pep.engine.sites.posterior.PosteriorFactor`.
    c: tf.Tensor
    mixing: tf.Tensor  #: [P, Q]

    @property
    def q(self) -> PosteriorFactor:
        """q(v)."""
        return PosteriorFactor(self.root, self.c, self.c[:, 0, 0])


def latent_at(parts: Parts, context: MixedContext, X: tf.Tensor) -> LatentMarginals:
    """Compute the moments of g at new rows; ``parts`` belong to the latent
    functions.
    """
    A, d, _ = PartsBySubstitution(*parts).project(context.L, X)
    h = latent_marginals(A, context.q)
    return h._replace(covariance=h.covariance + tf.linalg.diag(tf.transpose(d)))


def _mixed_at(
    parts: Parts,
    context: MixedContext,
    X: tf.Tensor,
    full_cov: bool,
    full_output_cov: bool,
) -> MeanAndVariance:
    """Compute the moments of f at new rows, without its mean function.

    :param parts: The parts of the latent functions.
    :return: Means [N, P], and variances or covariances [N, P], [N, P, P], [P, N, N] or
        [N, P, N, P], as in GPflow.
    """
    if X.shape.rank > 2:
        signature = (context.L.dtype, context.L.dtype)

        def at_rows(rows: tf.Tensor) -> MeanAndVariance:
            return _mixed_at(parts, context, rows, full_cov, full_output_cov)

        mean, covariances = tf.map_fn(at_rows, X, fn_output_signature=signature)
        return mean, covariances
    mixing = context.mixing
    if not full_cov:
        g = latent_at(parts, context, X)
        moments = mixed_marginals(mixing, g)
        return moments.m, mixed_covariance(mixing, g) if full_output_cov else moments.s
    A = PartsBySubstitution(*parts).project(context.L, X).A
    between = _between_rows(parts, A, context.q, X)
    mean = mixed_marginals(mixing, latent_marginals(A, context.q)).m
    if full_output_cov:
        return mean, tf.einsum("pq,qrnm,sr->npms", mixing, between, mixing)
    return mean, tf.einsum("pq,qrnm,pr->pnm", mixing, between, mixing)


def mixed_covariance(mixing: tf.Tensor, g: LatentMarginals) -> tf.Tensor:
    """Compute the covariance of the outputs of each row, [N, P, P]."""
    return tf.matmul(tf.matmul(mixing, g.covariance), mixing, transpose_b=True)


def _between_rows(
    parts: Parts, A: tf.Tensor, q: PosteriorFactor, X: tf.Tensor
) -> tf.Tensor:
    """Compute the covariances of g between rows, [Q, Q, N, N]."""
    columns = whitened_columns(A, q)
    kernels = parts.kernel.latent_kernels
    num_latents = len(columns)
    size = tf.shape(A)[1]
    blocks: list[list[Any]] = [[None] * num_latents for _ in range(num_latents)]
    for k in range(num_latents):
        for r in range(k, num_latents):
            product = tf.matmul(
                columns[k][(r - k) * size :], columns[r], transpose_a=True
            )
            blocks[k][r], blocks[r][k] = product, tf.transpose(product)
        prior = covariance(kernels[k], X)
        blocks[k][k] += prior - tf.matmul(A[k], A[k], transpose_a=True)
    return tf.stack([tf.stack(row) for row in blocks])


def condition_on_outputs(
    likelihood: Likelihood,
    context: MixedContext,
    g: LatentMarginals,
    mean: tf.Tensor,
    X: tf.Tensor,
    Y: tf.Tensor,
) -> tuple[LatentMarginals, FixedPoint]:
    """Compute the moments of g at new rows given some of their outputs, by EP in each
    row.

    :param g: The moments without these outputs.
    :param mean: The mean function of the outputs, [N, P].
    :param Y: The outputs, [N, P], with NaN for unknown ones.
    :return: The moments, which are exact for Gaussian noise, and the final sites of the
        outputs.
    """
    mixing = context.mixing
    power_1 = tf.ones([1], g.mean.dtype)
    prior = RowPrior(mean, mixed_marginals(mixing, g).s)
    nothing: Any = None  # rows depend on g, not on q(v)
    parts = Parts(nothing, nothing, nothing, likelihood)
    rows = SiteRows(X, Y, power_1)
    latents = Mixed(mixing)
    problem = SiteProblem(parts, rows, context.L, None, latents=latents)

    def given_sites(sites: Sites) -> LatentMarginals:
        return conditioned(g, row_sites(mixing, sites, None, power_1))

    def evaluate(sites: Sites, _: tf.Tensor, __: Any) -> SweepEvaluation:
        moments = mixed_marginals(mixing, given_sites(sites))
        target, limited, proper, *_ = match_moments(
            problem, None, moments, prior, sites
        )
        error = scaled_error(sites, target, moments)
        nil = tf.zeros([], mean.dtype)
        return SweepEvaluation(
            moments, target, limited, error, tf.reduce_all(proper), nil
        )

    initial = no_sites(tf.shape(Y)[0], int(mixing.shape[0]), mean.dtype)
    goal = Goal(1e-8 if mean.dtype == tf.float64 else 1e-4)
    end = run_to_fixed_point(evaluate, initial, Solver(goal, 200))
    return given_sites(end.sites), end


class CoregionalisedPosterior(ComputedPosterior):
    """A GPflow posterior of mixed outputs; its cache is a :class:`MixedContext`."""

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        context = self._compute()
        return tuple(
            PrecomputedValue(tensor, (False,) * tensor.shape.rank) for tensor in context
        )

    def _new_inputs(self, Xnew: InputData, cache: tuple[Any, ...]) -> tf.Tensor:
        return new_inputs(Xnew, self.X_data, MixedContext(*cache).L.dtype)

    def _conditional_with_precompute(
        self,
        cache: tuple[Any, ...],
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
    ) -> MeanAndVariance:
        context = MixedContext(*map(tf.convert_to_tensor, cache))
        return _mixed_at(
            latent_parts(self._parts), context, Xnew, full_cov, full_output_cov
        )
