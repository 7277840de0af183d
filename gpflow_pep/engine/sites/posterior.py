r"""The conventions of the engine: sites, the problem of finding them, the posterior
q(v) of the whitened inducing variables, and its marginals at rows.

The site of row n and latent function l is
:math:`t_{nl}(u) \propto \exp(\nu_{nl} h_{nl} - \tfrac12 \tau_{nl} h_{nl}^2)`, a
function of :math:`h_{nl} = A_{nl}ᵀ v_l` alone, the only direction of the whitened
inducing variables on which the row depends. Bui, Yan & Turner (2017), appendix F, write
g for :math:`\nu / \tau` and v for :math:`1 / \tau`. Natural parameters are finite even
if the precision of a site is 0.

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
    r"""[N, L], :math:`\tau`; it may be negative if the likelihood is not log-concave.
    """


class Natural(NamedTuple):
    """The contribution of some rows to the natural parameters of q(v)."""

    G: tf.Tensor
    """[broadcast L, M, M], the contribution to the precision; one matrix if all latent
    functions share it.
    """
    b: tf.Tensor  #: [L, M, 1], the contribution to the first natural parameter.


class MemoryTerms(NamedTuple):
    """The contribution of a memory, see :mod:`gpflow_pep.engine.sites.memory`."""

    #: The contribution to the natural parameters of q(v); G is [1 or L, M, M].
    natural: Natural
    log_scale: tf.Tensor
    """[], the direct contribution to log Z, without the one by way of the natural
    parameters."""


class PosteriorFactor(NamedTuple):
    """q(v) by the Cholesky factor of its precision, :math:`B = R Rᵀ`."""

    W: tf.Tensor
    """[broadcast L, M, M], :math:`R^{-1}`: the covariance of v is :math:`Wᵀ W`. It is
    NaN if B is not positive definite.
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
    """Moments of h under q(v), for each row and latent function."""

    m: tf.Tensor  #: [N, L], means.
    s: tf.Tensor  #: [N, L], variances.


class Cavity(NamedTuple):
    """Moments of h under the cavity."""

    m: tf.Tensor  #: [N, L], :math:`m^{-} = (m - \alpha \nu s) / e`.
    s: tf.Tensor  #: [N, L], :math:`s^{-} = s / e`.
    e: tf.Tensor
    r"""[N, L], :math:`e = 1 - \alpha \tau s`. The cavity is proper if this is positive;
    otherwise ``m`` and ``s`` have no meaning.
    """


class View(NamedTuple):
    """The marginals of q(v) on which the sites of some rows depend."""

    #: Moments of the argument of each site: h, or f if outputs are mixed.
    marginals: Marginals
    #: Moments of h of all latent functions if outputs are mixed, otherwise ().
    h: Any = ()
    #: The sites of each row as one function of h if outputs are mixed, otherwise ().
    rows: Any = ()


class Independent(NamedTuple):
    """
    Outputs that are independent latent functions: the site of an output is a function
    of its h.

    :class:`~gpflow_pep.engine.sites.mixed.Mixed` has the same methods.
    """

    prior_part: tf.Tensor | None = None
    """The factor of the prior's variance; None for 1. It does not change projections A,
    but the sums and moments that are computed from them.
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
        """Compute the moments under q of the arguments of sites."""
        m, s = moments = marginals(projection.A, q)
        scale = self.prior_part
        return View(
            moments if scale is None else Marginals(tf.sqrt(scale) * m, scale * s)
        )

    def residual(self, projection: Any) -> tf.Tensor | float:
        """[N, L], the variance of f minus the variance of the site's argument."""
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
        """Compute the joint terms of the sites of a row.

        :param proper: Whether each site of a row is proper by itself, [N].
        :return: Whether all sites of a row are proper together, [N], and the terms of
            rows in the energy in addition to the terms of each site, [N], or () if
            there are none.
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
        """Stop if a tilted integral is not resolved, see
        :func:`~gpflow_pep.engine.factors.moments.require_resolved`."""
        return require_resolved(problem.parts.likelihood, *values)

    def without_target(self, Y: tf.Tensor) -> tf.Tensor | None:
        """Find sites that have no target, [N, P]; None if all have one."""
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
    chunk_size: int | None  #: The most rows at a time; None if it is chosen.
    #: The contribution of a memory; None without a memory.
    memory: MemoryTerms | None = None
    #: The projected rows; None if there is not enough memory for them.
    projection: Projection | None = None
    num_latents: int = 1  #: The number of latent functions, L.
    latents: Any = Independent()
    """How outputs depend on latent functions: :class:`Independent` or
    :class:`~gpflow_pep.engine.sites.mixed.Mixed`. With the second one likelihood, mean
    function and targets belong to the outputs, and kernel and inducing variables to the
    latent functions.
    """
    #: The parts whose parameters are the tensors from which W was computed, so that a
    #: graph reads each parameter once; None if the parameters are read again.
    parts_of_W: Parts | None = None

    @property
    def variables(self) -> list[tf.Variable]:
        """See :meth:`~gpflow_pep.engine.prior.evaluate.Parts.variables`."""
        return self.parts.variables(self.rows.X, self.rows.Y)

    def by_substitution(self) -> "SiteProblem":
        """Take the same problem with
        :class:`~gpflow_pep.engine.prior.evaluate.PartsBySubstitution`."""
        parts = PartsBySubstitution(*self.parts)
        W = parts.whiten().L
        return self._replace(parts=parts, W=W, projection=None, parts_of_W=None)

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
            self.chunk_size,
            num_inducing,
            self.rows.X,
            copies * (num_priors or 1),
            self.num_latents,
        )

    def keep_projections(self, copies: int = 1) -> "SiteProblem":
        """Project the rows once, if there is memory for so many matrices of
        size M x N.
        """
        if self.projection or not self.plan(copies).keep:
            return self
        parts = self.parts_of_W or self.parts
        return self._replace(projection=parts.project(self.W, self.rows.X))

    def project(self, X: tf.Tensor, projection: Any = ()) -> Projection:
        """Project some rows, or return their projection if it is given."""
        return projection or self.parts.project(self.W, X)

    def pieces(self, rows: Any) -> chunks.Chunks:
        """Cut X with other rows into pieces, and the projection too if it is there."""
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
    """Make q(v) as it is if B is not positive definite, with NaN for all numbers.

    :param number: The number of Gaussians.
    """
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
    # Then only derivatives of W are needed.
    logs = tf.math.log(tf.linalg.diag_part(W))
    return PosteriorFactor(W, lower_matmul(W, b), -tf.reduce_sum(logs, axis=-1))


@check_shapes("q.c: [L, M, 1]", "q.half_logdet: [broadcast L]", "return: []")
def log_root(q: PosteriorFactor) -> tf.Tensor:
    r"""Compute :math:`\sum_l \tfrac12 \log|B_l|`."""
    if q.half_logdet.shape[0] == q.c.shape[0]:
        return tf.reduce_sum(q.half_logdet)
    return tf.reduce_sum(q.half_logdet + tf.zeros(q.c.shape[0], q.c.dtype))


def terms_of_mean(w: tf.Tensor, known: Sequence[Natural]) -> tf.Tensor:
    r"""Compute :math:`\sum_l -\tfrac12 |w_l|^2`, the terms of the mean of v in the
    energy, [].

    :param w: The mean, [L, M, 1].
    :param known: The natural parameters of all other factors of q(v) than the rows.
        Each adds :math:`bᵀ w - \tfrac12 wᵀ G w`.
    """
    total = -0.5 * tf.reduce_sum(tf.square(w))
    for G, b in known:
        total += tf.reduce_sum(w * (b - 0.5 * tf.matmul(G, w)))
    return total


def marginals(A: tf.Tensor, q: PosteriorFactor) -> Marginals:
    """Compute the moments of :math:`h_n = A_nᵀ v` under q, for A [broadcast L, M, N].
    The variances are [N, 1] if all latent functions share A and W.
    """
    m = on_columns(A, q.w)
    s = tf.reduce_sum(tf.square(lower_matmul(q.W, A)), axis=-2)
    return Marginals(tf.transpose(m), tf.transpose(s))


def whitened_posterior(natural: Natural) -> WhitenedGaussian:
    """Compute :math:`q(v) = N(B^{-1} b, B^{-1})`, with :math:`B = I + G`.

    The mean is computed by substitution. With the inverse of the factor of B it would
    have errors of 1e-5 of the standard deviation of y if noise is 1e-8 of the variance.
    """
    # GPflow needs a lower triangular square root of B⁻¹. For B = R Rᵀ and W = R⁻¹ the
    # matrix Wᵀ is an upper triangular root. If rows and columns of B are reversed, and
    # the root is reversed again, it is lower triangular.
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

    :param L: The Cholesky factors of ``Kuu``, [broadcast L, M, M].
    :param q: The Gaussian of each latent function; or one Gaussian over all v: [L M, 1]
        and [1, L M, L M].
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

    :param alpha: The power, at least 0, [broadcast N, 1]: 1 removes the site, 0 removes
        nothing, and a number of copies removes the sites of all copies.
    """
    alpha_s = alpha * q.s
    e = 1.0 - alpha_s * sites.tau
    return Cavity((q.m - alpha_s * sites.nu) / e, q.s / e, e)


def in_deviations(F: tf.Tensor, marginals: Marginals, coupled: bool) -> tf.Tensor:
    """Scale changes of sites, [..., 2, N, L], by the standard deviations of q.

    :param F: The changes of the two numbers of each site, see
        :class:`~gpflow_pep.engine.sites.record.SweepEvaluation`.
    """
    m, s = marginals
    F_mean, F_tau = tf.unstack(F, axis=-3)
    if not coupled:
        F_mean -= m * F_tau
    return tf.stack([tf.sqrt(s) * F_mean, s * F_tau], axis=-3)


def scaled_error(sites: Sites, matched: Sites, marginals: Marginals) -> tf.Tensor:
    """Compute the distance between sites and their targets, [2, N, L], in units of q's
    standard deviation. The largest is the residual in a record.
    """
    return in_deviations(tf.stack(matched) - tf.stack(sites), marginals, coupled=False)
