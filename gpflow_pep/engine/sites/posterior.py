r"""Sites, the problem whose sites are wanted, the posterior q(v) of the whitened
inducing variables that they make, and what a row sees of it: the one place that states
the conventions.

The site of row n and latent function l is
:math:`t_{nl}(u) \propto \exp(\nu_{nl} h_{nl} - \tfrac12 \tau_{nl} h_{nl}^2)`, a
function of :math:`h_{nl} = A_{nl}ᵀ v_l` alone, the one direction of the whitened
inducing variables that the row sees. Bui, Yan & Turner (2017), appendix F, write g for
:math:`\nu / \tau` and v for :math:`1 / \tau`; natural parameters stay finite for a site
of precision 0.

All sites together add :math:`G = A \,\mathrm{diag}(\tau) Aᵀ` and :math:`b = A \nu` to
the natural parameters of the prior N(0, I): :math:`q(v) = N(B^{-1} b, B^{-1})` with
:math:`B = I + G`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from ..factors import (
    TiltedDerivatives,
    derivatives_in_moments_and_parameters,
    require_resolved,
)
from ..numerics import chunks
from ..numerics.linalg import factorise, gram, identity_like, lower_matmul, on_columns
from ..prior import Parts, PartsBySubstitution, Projection


class Sites(NamedTuple):
    """Natural parameters of all sites."""

    nu: tf.Tensor  #: [N, L], :math:`\nu`.
    tau: tf.Tensor
    r"""[N, L], :math:`\tau`; may be negative where the likelihood is not log-concave.
    """


class Natural(NamedTuple):
    """What some rows add to the natural parameters of the prior of v."""

    G: tf.Tensor
    """[broadcast L, M, M], to the precision; one matrix where all latent functions
    share it.
    """
    b: tf.Tensor  #: [L, M, 1], to the first natural parameter.


class MemoryTerms(NamedTuple):
    """What a memory adds to a model, see :mod:`gpflow_pep.engine.sites.memory`."""

    natural: (
        Natural  #: To the natural parameters of the prior of v; G is [1 or L, M, M].
    )
    log_scale: tf.Tensor
    """[], to log Z, beside what it adds there by way of the natural parameters."""


class PosteriorFactor(NamedTuple):
    """q(v) by the Cholesky factor of its precision, :math:`B = R Rᵀ`."""

    W: tf.Tensor
    """[broadcast L, M, M], :math:`R^{-1}`: the covariance of v is :math:`Wᵀ W`. NaN
    where B is not positive definite.
    """
    c: tf.Tensor
    r"""[L, M, 1], :math:`W b`: the mean of v is :math:`Wᵀ c`, and
    :math:`|c|^2 = bᵀ B^{-1} b`."""
    half_logdet: tf.Tensor  #: [broadcast L], :math:`\tfrac12 \log|B|`.

    @property
    def w(self) -> tf.Tensor:
        """[L, M, 1], the mean of v."""
        return tf.matmul(self.W, self.c, transpose_a=True)


class WhitenedGaussian(NamedTuple):
    """q(v) of the whitened inducing variables, as GPflow's SVGP holds it."""

    q_mu: tf.Tensor  #: [M, L], means.
    q_sqrt: tf.Tensor  #: [L, M, M], lower triangular square roots of the covariances.


class Marginals(NamedTuple):
    """Moments of h under q(v), a row and latent function each."""

    m: tf.Tensor  #: [N, L], means.
    s: tf.Tensor  #: [N, L], variances.


class Cavity(NamedTuple):
    """Moments of h under the cavity."""

    m: tf.Tensor  #: [N, L], :math:`m^{-} = (m - \alpha \nu s) / e`.
    s: tf.Tensor  #: [N, L], :math:`s^{-} = s / e`.
    e: tf.Tensor
    r"""[N, L], :math:`e = 1 - \alpha \tau s`. The cavity is proper where it is
    positive; where it is not, ``m`` and ``s`` mean nothing.
    """


class View(NamedTuple):
    """What the sites of some rows see of q(v)."""

    marginals: Marginals  #: Moments of what each site is a function of.
    #: Moments of h of all latent functions, where outputs are mixed of these.
    h: Any = ()
    #: The sites of each row as one function of h, where outputs are mixed.
    rows: Any = ()


class Independent(NamedTuple):
    """
    Each output is a latent function, independent of the others: a site is a function of
    its own h.

    :class:`~gpflow_pep.engine.sites.mixed.Mixed` has the same methods.
    """

    prior_part: tf.Tensor | None = None
    """By which the prior's variance is multiplied: projections A are not scaled, but
    what is made of them; None: by 1.
    """

    def narrowed(self, part: tf.Tensor) -> "Independent":
        """Multiply the variance of the prior."""
        return Independent(part)

    def natural(
        self, projection: Projection, sites: Sites, alpha: tf.Tensor
    ) -> Natural:
        """Sum the sites of some rows."""
        G, b = natural = sites_of_rows(projection.A, sites)
        scale = self.prior_part
        return natural if scale is None else Natural(scale * G, tf.sqrt(scale) * b)

    def view(
        self, projection: Projection, q: PosteriorFactor, sites: Sites, alpha: tf.Tensor
    ) -> View:
        """Compute the moments under q of what sites are functions of."""
        m, s = moments = marginals(projection.A, q)
        scale = self.prior_part
        return View(
            moments if scale is None else Marginals(tf.sqrt(scale) * m, scale * s)
        )

    def residual(self, projection: Any) -> tf.Tensor | float:
        """[N, L], the variance of f beside that of what its site is a function of."""
        d = tf.transpose(projection.D)
        return d if self.prior_part is None else self.prior_part * d

    def prior_variance(self, variance: tf.Tensor) -> tf.Tensor:
        """Compute the prior variance of outputs from that of latent functions."""
        return variance

    def joint_terms(
        self,
        proper: tf.Tensor,
        view: View,
        projection: Projection,
        sites: Sites,
        alpha: tf.Tensor,
    ) -> tuple[tf.Tensor, Any]:
        """Compute what sites of a row have in common.

        :param proper: Which rows have proper sites, [N], each site by itself.
        :return: Which have proper sites together, [N], and what rows have in the energy
            beside the terms of each site, [N], or () for nothing.
        """
        return proper, ()

    def tilted(self, *arguments: Any) -> tuple[TiltedDerivatives, list[tf.Tensor]]:
        """Integrate rows, see
        :func:`~gpflow_pep.engine.factors.moments.tilted_derivatives`, and differentiate
        in variables of the likelihood too.
        """
        return derivatives_in_moments_and_parameters(*arguments)

    def require_resolved(
        self, problem: "SiteProblem", *values: tf.Tensor
    ) -> list[tf.Operation]:
        """Stop where a tilted integral is not resolved, see
        :func:`~gpflow_pep.engine.factors.moments.require_resolved`."""
        return require_resolved(problem.parts.likelihood, *values)

    def without_target(self, Y: tf.Tensor) -> tf.Tensor | None:
        """Find sites that have no target, [N, P]; None: there are none."""
        return None

    def unevaluated(self, W: tf.Tensor, zeros: tf.Tensor) -> tuple[Any, ...]:
        """Make q, the tilted integrals, h and joint terms of sites [N, L] before an
        evaluation.
        """
        q = improper(zeros.shape[1], W.shape[1] or tf.shape(W)[1], W.dtype)
        return q, TiltedDerivatives(tf.reduce_sum(zeros, axis=1), zeros, zeros), (), ()


class SiteRows(NamedTuple):
    """Rows that have sites."""

    X: tf.Tensor  #: [N, D], inputs.
    Y: tf.Tensor  #: [N, P], targets.
    alpha: tf.Tensor  #: [N], the power of each row, or [1], of all.


class SiteProblem(NamedTuple):
    """Parts of a model and rows of data, whose sites are wanted."""

    parts: Parts
    rows: SiteRows
    W: tf.Tensor
    """[K, M, M], inverse Cholesky factors of ``Kuu``, see
    :func:`~gpflow_pep.engine.prior.evaluate.whiten`."""
    chunk_size: int | None  #: The most rows that are worked on at a time; None: chosen.
    memory: MemoryTerms | None = (
        None  #: What is known of v beside the rows of this model.
    )
    projection: Projection | None = (
        None  #: The rows projected, where there is memory for it.
    )
    latents: Any = Independent()
    """How outputs depend on latent functions: :class:`Independent` or
    :class:`~gpflow_pep.engine.sites.mixed.Mixed`, with which likelihood, mean function
    and targets are of the outputs, kernel and inducing variables of the latent
    functions.
    """

    @property
    def variables(self) -> list[tf.Variable]:
        """See :meth:`~gpflow_pep.engine.prior.evaluate.Parts.variables`."""
        return self.parts.variables(self.rows.X, self.rows.Y)

    def by_substitution(self) -> "SiteProblem":
        """Take the same problem with
        :class:`~gpflow_pep.engine.prior.evaluate.PartsBySubstitution`."""
        parts = PartsBySubstitution(*self.parts)
        return self._replace(parts=parts, W=parts.whiten().L, projection=None)

    def batch(self, index: tf.Tensor) -> "SiteProblem":
        """Take the problem of some rows, by their numbers."""
        X, Y, alpha = self.rows
        alpha = alpha if alpha.shape[0] == 1 else tf.gather(alpha, index)
        rows = SiteRows(tf.gather(X, index), tf.gather(Y, index), alpha)
        return self._replace(rows=rows, projection=None)

    def plan(self, copies: int) -> chunks.Plan:
        """Choose how to sum over the rows, with so many matrices of size M x N."""
        num_priors, num_inducing, _ = self.W.shape
        return chunks.plan(
            self.chunk_size, num_inducing, self.rows.X, copies * (num_priors or 1)
        )

    def keep_projections(self, copies: int = 1) -> "SiteProblem":
        """Project the rows once, if there is memory for so many matrices of
        size M x N.
        """
        if self.projection or not self.plan(copies).keep:
            return self
        return self._replace(projection=self.parts.project(self.W, self.rows.X))

    def project(self, X: tf.Tensor, projection: Any = ()) -> Projection:
        """Project some rows, or take their projection where there is one."""
        return projection or self.parts.project(self.W, X)

    def pieces(self, rows: Any) -> chunks.Chunks:
        """Cut pairs: X with other rows, and the projection of each piece where there is
        one.
        """
        rows = self.rows.X, rows
        return chunks.row_chunks(rows, self.plan(1).chunk_size, self.projection or ())


@check_shapes("return.nu: [N, L]", "return.tau: [N, L]")
def no_sites(num_rows: tf.Tensor, num_latent: int, dtype: tf.DType) -> Sites:
    """Make sites of precision 0: q is the prior."""
    zeros = tf.zeros([num_rows, num_latent], dtype)
    return Sites(zeros, zeros)


def sites_of_rows(A: tf.Tensor, sites: Sites) -> Natural:
    """Sum the sites of some rows."""
    nu, tau = map(tf.transpose, sites)
    return Natural(gram(A, tau), tf.matmul(A, tf.expand_dims(nu, -1)))


def natural_sums(problem: SiteProblem, sites: Sites) -> Natural:
    """Sum the sites of all rows; not for differentiation."""

    def chunk_terms(piece: Any) -> Natural:
        (X, (sites, alpha)), projection = piece
        return problem.latents.natural(problem.project(X, projection), sites, alpha)

    pieces = problem.pieces((sites, problem.rows.alpha))
    return Natural(*map(tf.stop_gradient, chunks.added_up(chunk_terms, pieces)))


def improper(number: int, size: Any, dtype: tf.DType) -> PosteriorFactor:
    """Make q(v) of so many Gaussians whose B is not positive definite: NaN."""
    shapes = ((number, size, size), (number, size, 1), (number,))
    nan = tf.constant(np.nan, dtype)
    return PosteriorFactor(*(tf.fill(shape, nan) for shape in shapes))


def add_memory(natural: Natural, terms: MemoryTerms | None) -> Natural:
    """Add the natural parameters of a memory, if there is one, to those of rows."""
    return natural if terms is None else Natural(*map(tf.add, natural, terms.natural))


def posterior_factor(natural: Natural) -> PosteriorFactor:
    """Factorise the precision B = I + G of q(v)."""
    G, b = natural
    W = factorise(G + identity_like(G)).W
    # Derivatives then need those of W alone.
    logs = tf.math.log(tf.linalg.diag_part(W))
    return PosteriorFactor(W, lower_matmul(W, b), -tf.reduce_sum(logs, axis=-1))


@check_shapes("q.c: [L, M, 1]", "q.half_logdet: [broadcast L]", "return: []")
def log_root(q: PosteriorFactor) -> tf.Tensor:
    r"""Compute :math:`\sum_l \tfrac12 \log|B_l|`."""
    if q.half_logdet.shape[0] == q.c.shape[0]:
        return tf.reduce_sum(q.half_logdet)
    return tf.reduce_sum(q.half_logdet + tf.zeros(q.c.shape[0], q.c.dtype))


def terms_of_mean(w: tf.Tensor, known: Sequence[Natural]) -> tf.Tensor:
    r"""Compute :math:`\sum_l -\tfrac12 |w_l|^2`, what the mean of v has in the energy,
    [].

    :param w: The mean, [L, M, 1].
    :param known: What is known of v beside the rows, each of which adds
        :math:`bᵀ w - \tfrac12 wᵀ G w`.
    """
    total = -0.5 * tf.reduce_sum(tf.square(w))
    for G, b in known:
        total += tf.reduce_sum(w * (b - 0.5 * tf.matmul(G, w)))
    return total


def marginals(A: tf.Tensor, q: PosteriorFactor) -> Marginals:
    """Compute the moments of :math:`h_n = A_nᵀ v` under q, for A [broadcast L, M, N].
    The variances are [N, 1] where all latent functions share A and W.
    """
    m = on_columns(A, q.w)
    s = tf.reduce_sum(tf.square(lower_matmul(q.W, A)), axis=-2)
    return Marginals(tf.transpose(m), tf.transpose(s))


def whitened_posterior(natural: Natural) -> WhitenedGaussian:
    """Compute :math:`q(v) = N(B^{-1} b, B^{-1})`, with :math:`B = I + G`.

    The mean is computed by substitution: by the inverse of the factor of B it would
    have errors of 1e-5 of the standard deviation of y where noise is 1e-8 of the
    variance.
    """
    # GPflow wants a lower triangular square root of B⁻¹. Wᵀ of B = R Rᵀ with W = R⁻¹ is
    # an upper one; that of B with rows and columns in reverse order, put in reverse
    # order again, is a lower one.
    reverse = Natural(tf.reverse(natural.G, [-2, -1]), tf.reverse(natural.b, [-2]))
    factor = factorise(reverse.G + identity_like(reverse.G))
    q_sqrt = tf.reverse(tf.linalg.matrix_transpose(factor.W), [-2, -1])
    R = factor.L
    c = tf.linalg.triangular_solve(R, reverse.b)
    w = tf.linalg.triangular_solve(R, c, adjoint=True)
    q_mu = tf.transpose(tf.reverse(w, [-2])[..., 0])
    return WhitenedGaussian(q_mu, q_sqrt + tf.zeros_like(natural.b))


def unwhitened(L: tf.Tensor, q: WhitenedGaussian) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute mean [M, L] and covariance [L, M, M] of q(u) of each latent function, u =
    L v.

    :param L: [broadcast L, M, M].
    :param q: Of each; or one Gaussian over all v: [L M, 1] and [1, L M, L M].
    """
    size = tf.shape(L)[1]
    width = tf.shape(q.q_sqrt)[2]
    root = tf.matmul(L, tf.reshape(q.q_sqrt, [-1, size, width]))
    mean = tf.matmul(L, tf.reshape(tf.transpose(q.q_mu), [-1, size, 1]))
    return tf.transpose(mean[..., 0]), tf.matmul(root, root, transpose_b=True)


def row_moments(q: WhitenedGaussian, A: tf.Tensor) -> Marginals:
    """Compute the moments under q of :math:`h_n = A_nᵀ v`, for A [broadcast
    L, M, N].
    """
    m = on_columns(A, tf.transpose(q.q_mu)[:, :, None])
    s = tf.reduce_sum(tf.square(tf.matmul(q.q_sqrt, A, transpose_a=True)), axis=-2)
    return Marginals(tf.transpose(m), tf.transpose(s))


def cavity(q: Marginals, sites: Sites, alpha: tf.Tensor) -> Cavity:
    """Remove the power alpha of each row's site (Bui, Yan & Turner 2017, section 3.3).

    :param alpha: The power, at least 0, [broadcast N, 1]; 1 removes the site, 0 removes
        nothing, and a number of copies the sites of all of them.
    """
    e = 1.0 - alpha * sites.tau * q.s
    return Cavity((q.m - alpha * sites.nu * q.s) / e, q.s / e, e)


def in_deviations(F: tf.Tensor, marginals: tf.Tensor, coupled: bool) -> tf.Tensor:
    """Scale changes of sites, [..., 2, N, L], by the standard deviations of q.

    :param F: The changes of the two numbers of each, see
        :class:`~gpflow_pep.engine.sites.record.SweepEvaluation`.
    """
    m, s = tf.unstack(marginals)
    F_mean, F_tau = tf.unstack(F, axis=-3)
    if not coupled:
        F_mean -= m * F_tau
    return tf.stack([tf.sqrt(s) * F_mean, s * F_tau], axis=-3)


def scaled_error(sites: Sites, matched: Sites, marginals: Marginals) -> tf.Tensor:
    """Compute how far sites are from others, [2, N, L], in units of q's standard
    deviation; the largest is the residual of a record.
    """
    return in_deviations(
        tf.stack(matched) - tf.stack(sites), tf.stack(marginals), coupled=False
    )
