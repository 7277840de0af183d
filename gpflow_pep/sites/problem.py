"""Power EP with a site for each row: the problem, whose sites are wanted."""

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction

from ..covariances import Projection, evaluate, project
from ..covariances.evaluate import with_latent_axis
from ..ops import chunks
from ..ops.chunks import Reduction
from ..ops.linalg import gram
from .memory import MemoryTerms
from .posterior import Natural, Sites


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
    """[N], the power of each row, or [1], of all."""

    chunk_size: int | None
    """The most rows that are worked on at a time; None: chosen."""

    reduction: Reduction
    """Over processes that hold a shard of the rows each."""

    scaled: bool = False
    """Whether f given u is scaled, see :mod:`gpflow_pep.sites.conditional`."""

    kept: Projection | None = None
    """The rows projected, where there is memory for it."""

    memory: MemoryTerms | None = None
    """What is known of v beside the rows of this model."""

    @property
    def variables(self) -> list[tf.Variable]:
        """What the sites at their fixed point depend on beside the rows."""
        parts = self.kernel, self.likelihood, self.inducing_variable, self.mean_function
        return chunks.float_variables(*parts)

    def batch(self, index: tf.Tensor) -> "SiteProblem":
        """Take the problem of some rows, by their numbers."""
        X, Y = tf.gather(self.X, index), tf.gather(self.Y, index)
        alpha = self.alpha if self.alpha.shape[0] == 1 else tf.gather(self.alpha, index)
        return self._replace(X=X, Y=Y, alpha=alpha, kept=None)

    def plan(self, copies: int) -> chunks.Plan:
        """Choose how to sum over the rows, with so many matrices of size M x N."""
        num_priors, num_inducing, _ = self.W.shape
        return chunks.plan(self.chunk_size, num_inducing, self.X, copies * (num_priors or 1))

    def keep_projections(self, copies: int = 1) -> "SiteProblem":
        """Project the rows once, if there is memory for so many matrices of size M x N."""
        if self.kept or not self.plan(copies).keep:
            return self
        return self._replace(kept=self.project(self.W, self.X))

    def project(self, W: tf.Tensor, X: tf.Tensor, kept: Projection | None = None) -> Projection:
        """Project some rows, or take what was kept of them."""
        return kept or project(W, self.inducing_variable, self.kernel, X)

    def pieces(self, rows: Any) -> chunks.Chunks:
        """Cut pairs: X with other rows, and what is kept of their projections."""
        return chunks.row_chunks((self.X, rows), self.plan(1).chunk_size, self.kept or ())


def sites_of_rows(A: tf.Tensor, sites: Sites) -> Natural:
    """Sum the sites of some rows."""
    nu, tau = map(tf.transpose, sites)
    return Natural(gram(A, tau), tf.matmul(A, nu[..., None]))


def natural_sums(problem: SiteProblem, sites: Sites) -> Natural:
    """Sum the sites of all rows; not for differentiation."""

    def chunk_terms(piece: Any) -> Natural:
        (X, sites), kept = piece
        return sites_of_rows(problem.project(problem.W, X, kept).A, sites)

    sums = chunks.sum_over_chunks(
        chunk_terms, problem.pieces(sites), (), keep=True, reduction=problem.reduction
    )
    return Natural(*map(tf.stop_gradient, sums))


class RowPrior(NamedTuple):
    """Moments of f at rows under the prior, [N, L]."""

    mean: tf.Tensor

    variance: tf.Tensor


def row_prior(problem: SiteProblem, sites: Sites) -> RowPrior:
    """Compute the prior's moments of f at the rows."""
    zeros = tf.zeros_like(sites.nu)
    variance = with_latent_axis(evaluate.variance(problem.kernel, problem.X), 2)
    return RowPrior(
        zeros + evaluate.mean(problem.mean_function, problem.X), zeros + tf.transpose(variance)
    )
