r"""Power EP with a site for each row: the problem, one sweep over its rows, and the run of sweeps.

Bui, Yan & Turner (2017), section 3.3 and appendix F, for all rows at once.
"""

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction

from .. import tilted
from ..covariances import Projection, evaluate, project
from ..ops import chunks
from ..ops.chunks import Reduction
from ..ops.linalg import gram
from ..tilted import TiltedDerivatives
from .fixed_point import Evaluation, FixedPoint, run_to_fixed_point
from .posterior import Marginals, Natural, Sites, cavity, marginals, posterior_factor

#: A cavity whose variance is so many times the prior's is refused: it is about to be improper.
_LARGEST_CAVITY = 10.0


class SiteProblem(NamedTuple):
    """A likelihood, a prior and rows of data, whose sites are wanted."""

    likelihood: Likelihood
    kernel: Kernel
    inducing_variable: InducingVariables
    mean_function: MeanFunction

    W: tf.Tensor
    """[K, M, M], inverse Cholesky factors of ``Kuu``, see
    :class:`~gpflow_pep.covariances.evaluate.Prior`."""

    X: tf.Tensor
    """[N, D], inputs."""

    Y: tf.Tensor
    """[N, P], targets."""

    alpha: tf.Tensor
    """[N], the power of each row."""

    chunk_size: int | None
    """The most rows that are worked on at a time; None: chosen."""

    reduction: Reduction
    """Over processes that hold a shard of the rows each."""

    kept: Projection | None = None
    """The rows projected, where there is memory for it: not for differentiation."""

    def batch(self, index: tf.Tensor) -> "SiteProblem":
        """The problem of some rows, by their numbers."""
        X, Y, alpha = (tf.gather(rows, index) for rows in (self.X, self.Y, self.alpha))
        return self._replace(X=X, Y=Y, alpha=alpha, kept=None)

    def plan(self, copies: int) -> chunks.Plan:
        """How to sum over the rows, with so many matrices of size M x N."""
        num_priors, num_inducing, _ = self.W.shape
        return chunks.plan(self.chunk_size, num_inducing, self.X, copies * (num_priors or 1))

    def keep_projections(self) -> "SiteProblem":
        """The same with its rows projected once for all sweeps, if there is memory for it."""
        if not self.plan(copies=1).keep:
            return self
        return self._replace(kept=self.project(self.W, self.X))

    def project(self, W: tf.Tensor, X: tf.Tensor, kept: Projection | None = None) -> Projection:
        """Some rows projected, or what was kept of them."""
        return kept or project(W, self.inducing_variable, self.kernel, X)

    def pieces(self, rows: Any) -> chunks.Chunks:
        """Chunks of pairs: X with other rows, and what is kept of their projections."""
        return chunks.row_chunks((self.X, rows), self.plan(1).chunk_size, self.kept or ())


def sites_of_rows(A: tf.Tensor, sites: Sites) -> Natural:
    """
    Sum the sites of some rows.

    :param A: [K, M, N], the rows projected on the whitened inducing variables.
    :param sites: Of the rows.
    """
    nu, tau = map(tf.transpose, sites)
    return Natural(gram(A, tau), tf.matmul(A, nu[..., None]))


def natural_sums(problem: SiteProblem, sites: Sites) -> Natural:
    """
    Sum the sites of all rows; not for differentiation.

    :param problem: The rows.
    :param sites: Their sites.
    """

    def of_chunk(piece: Any) -> Natural:
        (X, sites), kept = piece
        return sites_of_rows(problem.project(problem.W, X, kept).A, sites)

    sums = chunks.sum_over_chunks(
        of_chunk, problem.pieces(sites), (), keep=True, reduction=problem.reduction
    )
    return Natural(*map(tf.stop_gradient, sums))


class _Matched(NamedTuple):
    """What some rows want, and what was found on the way."""

    sites: Sites
    """The sites that match the moments of the tilted distributions."""

    limited: Sites
    """Those of non-negative precision that do, or match the mean alone."""

    proper: tf.Tensor
    """[N], bool: the cavities are proper and all numbers finite."""

    tilted: TiltedDerivatives


def match_moments(
    likelihood: Likelihood,
    projection: Projection,
    q: Marginals,
    X: tf.Tensor,
    mean: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
    sites: Sites,
) -> _Matched:
    r"""
    Compute the sites that match the tilted moments,

    .. math::

        \tau^* = -\frac{\delta_2}{1 + \alpha \delta_2 s^{-}}, \qquad
        \nu^* = \tau^* m^{-} + \delta_1 (1 + \alpha \tau^* s^{-}).

    :param likelihood: The likelihood.
    :param projection: Of the rows.
    :param q: Moments of h under q.
    :param X: [N, D].
    :param mean: The mean function there, [N, L].
    :param Y: [N, P].
    :param alpha: The power of each row, [N].
    :param sites: The sites in q.
    """
    power = alpha[:, None]
    left = cavity(q, sites, power)
    d = tf.transpose(projection.D)
    prior = tf.transpose(tf.reduce_sum(tf.square(projection.A), axis=-2)) + d
    proper = (left.e > 0.0) & (left.s + d <= _LARGEST_CAVITY * prior)
    proper &= tf.math.is_finite(q.m) & tf.math.is_finite(q.s)
    # Where it is not proper nothing is used, but nothing may be NaN or wait for ever.
    zeros = tf.zeros_like(q.m)
    m, s = tf.where(proper, left.m, zeros), tf.where(proper, left.s, zeros)
    moments = tilted.tilted_derivatives(likelihood, X, m + mean, s + d, Y, alpha)
    _, delta1, delta2 = moments
    tau = -delta2 / (1.0 + power * delta2 * s)
    target, limited = (
        Sites(tau * m + delta1 * (1.0 + power * tau * s), tau) for tau in (tau, tf.nn.relu(tau))
    )
    proper &= tf.math.is_finite(target.nu) & tf.math.is_finite(target.tau)
    return _Matched(target, limited, tf.reduce_all(proper, axis=1), moments)


def sweep(
    problem: SiteProblem, mean: tf.Tensor, sites: Sites, others: Natural | None = None
) -> Evaluation:
    """
    Evaluate the sites of all rows: q, its marginals, and the sites that match the tilted moments.

    :param problem: The rows.
    :param mean: The mean function there, [N, L].
    :param sites: The sites.
    :param others: What other rows add to q, whose sites stay as they are.
    """
    natural = natural_sums(problem, sites)
    if others is not None:
        natural = tf.nest.map_structure(tf.add, natural, others)
    q = posterior_factor(natural)

    def of_chunk(piece: Any) -> tuple[Marginals, _Matched]:
        (X, (mean, Y, alpha, sites)), kept = piece
        projection = problem.project(problem.W, X, kept)
        moments = marginals(projection.A, q)
        matched = match_moments(problem.likelihood, projection, moments, X, mean, Y, alpha, sites)
        return moments, matched

    rows = mean, problem.Y, problem.alpha, sites
    moments, matched = chunks.map_over_chunks(of_chunk, problem.pieces(rows))
    proper = problem.reduction.all(tf.reduce_all(matched.proper))
    return Evaluation(moments, matched.sites, matched.limited, proper, matched.tilted)


def infer(
    problem: SiteProblem,
    initial: Sites,
    *,
    max_sweeps: int,
    tolerance: float,
    damping: float = 1.0,
    fall_back: bool = True,
    others: Natural | None = None,
) -> FixedPoint:
    """
    Bring the sites of all rows to their fixed point; see :mod:`gpflow_pep.inference.fixed_point`.

    :param problem: The rows.
    :param initial: Where to start.
    :param max_sweeps: The most sweeps, and as many again for each fallback.
    :param tolerance: Of the residual.
    :param damping: The largest step, in (0, 1].
    :param fall_back: Whether to try the fallbacks.
    :param others: What other rows add to q, whose sites stay as they are.
    """
    problem = problem.keep_projections()
    zeros = tf.zeros_like(initial.nu)
    mean = zeros + evaluate.mean(problem.mean_function, problem.X)
    return run_to_fixed_point(
        lambda sites: sweep(problem, mean, sites, others),
        initial,
        max_sweeps=max_sweeps,
        tolerance=tolerance,
        damping=damping,
        fall_back=fall_back,
        reduction=problem.reduction,
        extra=TiltedDerivatives(zeros[:, 0], zeros, zeros),
    )
