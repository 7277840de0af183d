r"""Sites of outputs that are mixed from latent functions, and their dense q.

Outputs are :math:`f_p = \sum_q W_{pq} g_q + c_p` with independent :math:`g_q`, of which
:math:`h_{nq} = A_{qn}ᵀ v_q` is the projection of row n on the inducing variables, and
:math:`g_{nq} = h_{nq} + N(0, d_{nq})`. q(v) is one Gaussian over all S = Q M whitened
inducing variables, one latent function after the other. There is a site
:math:`\exp(\nu f - \tfrac12 \tau f^2)` for each entry (n, p) of Y that was observed;
the site of a missing entry is 1.

The outputs of a row are one factor: the residual g - h of the row, with variances
:math:`\Delta_n = \mathrm{diag}(d_n)`, is integrated out together with all of its
outputs, to the power :math:`\alpha`.

With :math:`C_n = Wᵀ \mathrm{diag}(\tau_n) W` and
:math:`F_n = (I + \alpha \Delta_n C_n)^{-1}` the sites of row n are in :math:`h_n` a
Gaussian of precision :math:`T_n = C_n F_n` and first parameter
:math:`\lambda_n = F_nᵀ Wᵀ \nu_n`. So the posterior's precision has the blocks
:math:`\delta_{qr} I + A_q \,\mathrm{diag}_n(T_{n,qr}) A_rᵀ`, and with the marginals
:math:`N(\bar h_n, S_n)` of :math:`h_n` those of :math:`g_n` are

.. math::

    \bar g_n = F_n \bar h_n + \alpha \Lambda_n Wᵀ \nu_n, \qquad
    \mathrm{cov} = \Lambda_n + F_n S_n F_nᵀ, \qquad \Lambda_n = F_n \Delta_n .

Nothing is divided by :math:`\alpha`, :math:`\tau` or :math:`\Delta`, and no matrix has
more than Q columns for a row. Bui, Yan & Turner (2017) have sites for rows of one
output. The theory here is the same, with the block of a row's outputs in place of a
row. Given the marginals :math:`m, s` of an entry's site, cavity, tilted moments and
target are computed as in :mod:`gpflow_pep.engine.sites.sweep`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from ..factors import TiltedDerivatives
from ..factors.entries import entry_derivatives, require_entries_resolved
from ..numerics.linalg import mirrored, on_columns
from ..numerics.power import log1p_over_power
from ..prior import Projection
from .posterior import (
    Marginals,
    Natural,
    PosteriorFactor,
    SiteProblem,
    Sites,
    View,
    improper,
)


class Mixed(NamedTuple):
    """Outputs that are mixed from latent functions, with the methods of
    :class:`~gpflow_pep.engine.sites.posterior.Independent`; the sites of a row are one
    factor.
    """

    weights: tf.Tensor  #: [P, Q], W.

    def narrowed(self, part: tf.Tensor) -> "Mixed":
        """Multiply the prior variance of all latent functions, by scaling their
        weights.
        """
        return Mixed(tf.sqrt(part) * self.weights)

    def rows(
        self, projection: Projection, sites: Sites, alpha: tf.Tensor
    ) -> "RowSites":
        """Write the sites of some rows as functions of h."""
        return row_sites(self.weights, sites, tf.transpose(projection.D), alpha)

    def natural(
        self, projection: Projection, sites: Sites, alpha: tf.Tensor
    ) -> Natural:
        """Sum the sites of some rows."""
        rows = self.rows(projection, sites, alpha)
        return latent_sums(projection.A, rows.T, rows.first)

    def view(
        self, projection: Projection, q: PosteriorFactor, sites: Sites, alpha: tf.Tensor
    ) -> View:
        """Compute the moments under q of f, the argument of sites."""
        rows = self.rows(projection, sites, alpha)
        h = latent_marginals(projection.A, q)
        return View(
            mixed_marginals(self.weights, with_residual(h, rows, alpha)), h, rows
        )

    def residual(self, _: Projection | None) -> float:
        """Return 0, the variance of f minus the variance of the site's argument."""
        return 0.0

    def prior_variance(self, variance: tf.Tensor) -> tf.Tensor:
        """Compute the prior variance of outputs from that of latent functions."""
        return tf.matmul(variance, tf.square(self.weights), transpose_b=True)

    def joint_terms(
        self,
        proper: tf.Tensor,
        view: View,
        projection: Projection,
        sites: Sites,
        alpha: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Compute the joint terms of the sites of a row."""
        d = tf.transpose(projection.D)
        slope = sites.nu - sites.tau * view.marginals.m
        of_residual = tf.reduce_sum(
            d * tf.square(tf.matmul(slope, self.weights)), axis=1
        )
        log_det = log_determinant(view.rows, d, alpha)
        proper &= _proper_rows(view.h, view.rows, sites.tau, alpha) & tf.math.is_finite(
            log_det
        )
        return proper, -0.5 * (alpha * of_residual + log_det)

    def tilted(self, *arguments: Any) -> tuple[TiltedDerivatives, list[tf.Tensor]]:
        """Integrate entries, see
        :func:`~gpflow_pep.engine.factors.entries.entry_derivatives`.
        """
        return entry_derivatives(*arguments)

    def require_resolved(
        self, problem: SiteProblem, *values: tf.Tensor
    ) -> list[tf.Operation]:
        """Stop if a tilted integral is not resolved, see
        :func:`~gpflow_pep.engine.factors.entries.require_entries_resolved`."""
        X, Y, _ = problem.rows
        return require_entries_resolved(problem.parts.likelihood, X, Y, *values)

    def without_target(self, Y: tf.Tensor) -> tf.Tensor:
        """Find sites that have no target, [N, P]."""
        return ~tf.math.is_finite(Y)

    def unevaluated(self, W: tf.Tensor, zeros: tf.Tensor) -> tuple[Any, ...]:
        """Make q, the tilted integrals, h and joint terms of sites [N, P] before an
        evaluation.
        """
        q = improper(
            1, int(self.weights.shape[1]) * (W.shape[1] or tf.shape(W)[1]), W.dtype
        )
        mean = tf.matmul(zeros, self.weights)
        h = LatentMarginals(mean, mean[:, :, None] * mean[:, None, :])
        return q, TiltedDerivatives(zeros, zeros, zeros), h, tf.zeros([], W.dtype)


class RowSites(NamedTuple):
    """The sites of each row as functions of h; see this module."""

    C: tf.Tensor  #: [N, Q, Q], :math:`C_n`.
    of_g: tf.Tensor  #: [N, Q], :math:`Wᵀ \nu_n`.
    T: tf.Tensor  #: [N, Q, Q], :math:`T_n`.
    first: tf.Tensor  #: [N, Q], :math:`\lambda_n`.
    #: [N, Q, Q], :math:`F_n`; None if no residual is shared.
    F: tf.Tensor | None = None
    Lambda: tf.Tensor | None = None
    r"""[N, Q, Q], :math:`\Lambda_n`; None if no residual is shared."""


class LatentMarginals(NamedTuple):
    """Moments of h, or of g, under q(v)."""

    mean: tf.Tensor  #: [N, Q]
    covariance: tf.Tensor  #: [N, Q, Q]


@check_shapes(
    "mixing: [P, Q]",
    "sites.nu: [N, P]",
    "sites.tau: [N, P]",
    "d: [N, Q]",
    "alpha: [broadcast N]",
)
def row_sites(
    mixing: tf.Tensor, sites: Sites, d: tf.Tensor | None, alpha: tf.Tensor
) -> RowSites:
    """Write the sites of the outputs of each row as functions of h.

    :param d: Residual variances that the outputs of a row share; None if g itself is
        known.
    """
    num_latent = int(mixing.shape[1])
    products = tf.reshape(mixing[:, :, None] * mixing[:, None, :], [-1, num_latent**2])
    C = tf.reshape(tf.matmul(sites.tau, products), [-1, num_latent, num_latent])
    of_g = tf.matmul(sites.nu, mixing)
    if d is None:
        return RowSites(C, of_g, C, of_g)
    F = inverse_of_sum((alpha[:, None] * d)[:, :, None] * C)
    first = tf.linalg.matvec(F, of_g, transpose_a=True)
    return RowSites(C, of_g, tf.matmul(C, F), first, F, F * d[:, None, :])


def symmetric(matrices: tf.Tensor) -> tf.Tensor:
    """Make matrices symmetric that are not because of rounding errors."""
    return 0.5 * (matrices + tf.linalg.matrix_transpose(matrices))


@check_shapes("matrices: [N, Q, Q]", "return: [N, Q, Q]")
def inverse_of_sum(matrices: tf.Tensor) -> tf.Tensor:
    """Compute :math:`(I + M)^{-1}` for each matrix M. The result is NaN if M is not
    finite, because ``tf.linalg.inv`` would not return.
    """
    finite = tf.reduce_all(tf.math.is_finite(matrices), axis=[1, 2], keepdims=True)
    eye = tf.eye(int(matrices.shape[1]), dtype=matrices.dtype)
    inverse = tf.linalg.inv(eye + tf.where(finite, matrices, tf.zeros_like(matrices)))
    return tf.where(finite, inverse, tf.constant(np.nan, matrices.dtype))


@check_shapes("rows.C: [N, Q, Q]", "d: [N, Q]", "alpha: [broadcast N]", "return: [N]")
def log_determinant(rows: RowSites, d: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    r"""
    Compute :math:`\tfrac{1}{\alpha} \log|I + \alpha \Delta_n C_n|` of row sites,
    differentiable to any order. The result is NaN if the matrix is not positive
    definite in the metric of :math:`\Delta_n`.

    The pivots of the matrix are :math:`1 + \alpha d_k c_k`, where :math:`c_k` are the
    numbers on the diagonal of C in elimination:
    :math:`C_{ij} - \alpha d_k C_{ik} C_{kj} / (1 + \alpha d_k C_{kk})` after row k. So
    no digit is lost as :math:`\alpha \to 0`, and no eigenvalues are needed.
    """
    C = rows.C
    pivots = []
    for pivot in tf.unstack(d, axis=1):
        pivots.append(pivot * C[:, 0, 0])
        scaled = (alpha * pivot / (1.0 + alpha * pivots[-1]))[:, None] * C[:, 0, 1:]
        C = C[:, 1:, 1:] - scaled[:, :, None] * C[:, :1, 1:]
    logs = log1p_over_power(tf.stack(pivots, axis=1), alpha[:, None])
    return tf.reduce_sum(logs, axis=1)


def latent_sums(A: tf.Tensor, T: tf.Tensor, first: tf.Tensor) -> Natural:
    """Sum the contributions of rows to the natural parameters of q(v), [1, Q M, Q M]
    and [1, Q M, 1], from A [Q, M, N] and :class:`RowSites`.
    """
    num_latents = int(A.shape[0])
    size = A.shape[1] or tf.shape(A)[1]

    @tf.custom_gradient
    def sums(
        A: tf.Tensor, T: tf.Tensor, first: tf.Tensor
    ) -> tuple[Natural, Callable[..., Any]]:
        weights = tf.transpose(T, [1, 2, 0])  # [Q, Q, N]
        first = tf.transpose(first)[:, :, None]
        upper = []
        for q, part in enumerate(tf.unstack(A)):
            others = tf.reshape(
                A[q:] * weights[q, q:, None], [(num_latents - q) * size, -1]
            )
            upper.append(
                tf.pad(
                    tf.matmul(part, others, transpose_b=True), [[0, 0], [q * size, 0]]
                )
            )
        G = mirrored(tf.linalg.band_part(tf.concat(upper, axis=0), 0, -1))
        b = tf.reshape(tf.matmul(A, first), [-1, 1])

        def gradient(
            by_G: tf.Tensor, by_b: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            symmetric = by_G[0] + tf.transpose(by_G[0])
            w = by_latent(by_b, A)
            by_A = [w * tf.transpose(first, [0, 2, 1])]
            by_T = []
            for r, part in enumerate(tf.unstack(A)):
                columns = symmetric[:, r * size : (r + 1) * size]
                of_r = tf.reshape(tf.matmul(columns, part), tf.shape(A))
                by_A.append(of_r * weights[:, r, None])
                by_T.append(0.5 * tf.reduce_sum(A * of_r, axis=1))
            by_T = tf.transpose(tf.stack(by_T), [2, 0, 1])
            return tf.add_n(by_A), by_T, tf.transpose(on_columns(A, w))

        return Natural(G[None], b[None]), gradient

    return sums(A, T, first)


@check_shapes("w: [1, S, 1]", "A: [Q, M, N]", "return: [Q, M, 1]")
def by_latent(w: tf.Tensor, A: tf.Tensor) -> tf.Tensor:
    """Cut a vector over all v into a vector for each latent function."""
    return tf.reshape(w, [int(A.shape[0]), -1, 1])


def whitened_columns(A: tf.Tensor, q: PosteriorFactor) -> list[tf.Tensor]:
    r"""
    Compute :math:`R^{-1} E_q A_q` with :math:`B = R Rᵀ`, where :math:`E_q` puts the
    rows of latent function q into a matrix with rows for all latent functions. The
    results are [S - q M, N], without the q M rows of zeros above.

    The covariance of :math:`h_{nq}` and :math:`h_{mr}` is the product of two of these
    columns.
    """
    size = A.shape[1] or tf.shape(A)[1]
    starts = (latent * size for latent in range(int(A.shape[0])))
    blocks = (q.W[0, start:, start : start + size] for start in starts)
    return [
        tf.matmul(block, part)
        for block, part in zip(blocks, tf.unstack(A), strict=True)
    ]


def latent_marginals(A: tf.Tensor, q: PosteriorFactor) -> LatentMarginals:
    """Compute the moments of h of each row, for A [Q, M, N]."""
    num_latents = int(A.shape[0])
    size = A.shape[1] or tf.shape(A)[1]
    columns = whitened_columns(A, q)
    S: list[list[Any]] = [[None] * num_latents for _ in range(num_latents)]
    for k in range(num_latents):
        for r in range(k, num_latents):
            S[k][r] = S[r][k] = tf.reduce_sum(
                columns[k][(r - k) * size :] * columns[r], axis=0
            )
    covariance = tf.stack([tf.stack(row, axis=-1) for row in S], axis=-1)
    return LatentMarginals(tf.transpose(on_columns(A, by_latent(q.w, A))), covariance)


def with_residual(
    h: LatentMarginals, rows: RowSites, alpha: tf.Tensor
) -> LatentMarginals:
    """Compute the moments of g from those of h, under row sites."""
    of_residual = tf.linalg.matvec(rows.Lambda, alpha[:, None] * rows.of_g)
    covariance = tf.matmul(tf.matmul(rows.F, h.covariance), rows.F, transpose_b=True)
    return LatentMarginals(
        tf.linalg.matvec(rows.F, h.mean) + of_residual, rows.Lambda + covariance
    )


def mixed_marginals(mixing: tf.Tensor, g: LatentMarginals) -> Marginals:
    """Compute the moments of each output, without its mean function."""
    s = tf.reduce_sum(tf.matmul(mixing, g.covariance) * mixing, axis=2)
    return Marginals(tf.matmul(g.mean, mixing, transpose_b=True), s)


def _proper_rows(
    h: LatentMarginals, rows: RowSites, tau: tf.Tensor, alpha: tf.Tensor
) -> tf.Tensor:
    r"""Find the rows whose site can be removed to the power alpha, [N]: the eigenvalues
    of :math:`I - \alpha T S` are positive.

    If no precision :math:`\tau` is negative, the precision of all other factors is at
    least the prior's, and nothing is computed.
    """
    some_negative = ~tf.reduce_all(tau >= 0.0)
    every_row = tf.ones_like(h.mean[:, 0], tf.bool)
    removable = partial(_removable_rows, h, rows, alpha)
    return tf.cond(some_negative, removable, lambda: every_row)  # NaN is not above 0


def _removable_rows(h: LatentMarginals, rows: RowSites, alpha: tf.Tensor) -> tf.Tensor:
    eye = tf.eye(int(h.mean.shape[1]), dtype=h.mean.dtype)
    # S may have negative eigenvalues because of rounding, and is made positive first.
    rounding = 100.0 * np.finfo(h.mean.dtype.as_numpy_dtype).eps
    size = tf.linalg.trace(h.covariance) + tf.constant(1e-30, h.mean.dtype)
    root = tf.linalg.cholesky(h.covariance + (rounding * size)[:, None, None] * eye)
    of_site = tf.matmul(tf.matmul(root, rows.T, transpose_a=True), root)
    of_cavity = tf.linalg.cholesky(eye - alpha[:, None, None] * of_site)
    return tf.reduce_all(tf.math.is_finite(of_cavity), axis=[1, 2])


def conditioned(g: LatentMarginals, rows: RowSites) -> LatentMarginals:
    """Multiply Gaussians of g by whole sites of the outputs of the same row."""
    K = inverse_of_sum(tf.matmul(g.covariance, rows.C))
    mean = g.mean + tf.linalg.matvec(g.covariance, rows.of_g)
    return LatentMarginals(
        tf.linalg.matvec(K, mean), symmetric(tf.matmul(K, g.covariance))
    )
