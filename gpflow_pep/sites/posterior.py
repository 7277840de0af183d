r"""
Sites, the posterior q(v) of the whitened inducing variables that they make, and what a row sees of
it: the one place that states the conventions.

The site of row n and latent function l is
:math:`t_{nl}(u) \propto \exp(\nu_{nl} h_{nl} - \tfrac12 \tau_{nl} h_{nl}^2)`, a function of
:math:`h_{nl} = A_{nl}ᵀ v_l` alone, the one direction of the whitened inducing variables that the
row sees. Bui, Yan & Turner (2017), appendix F, write g for :math:`\nu / \tau` and v for
:math:`1 / \tau`; natural parameters stay finite for a site that says nothing.

All sites together add :math:`G = A \,\mathrm{diag}(\tau) Aᵀ` and :math:`b = A \nu` to the natural
parameters of the prior N(0, I): :math:`q(v) = N(B^{-1} b, B^{-1})` with :math:`B = I + G`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes

from ..ops.linalg import factorise, identity_like, lower_matmul, on_columns


class Sites(NamedTuple):
    """Natural parameters of all sites."""

    nu: tf.Tensor
    r"""[N, L], :math:`\nu`."""

    tau: tf.Tensor
    r"""[N, L], :math:`\tau`; may be negative where the likelihood is not log-concave."""


class Natural(NamedTuple):
    """What some rows add to the natural parameters of the prior of v."""

    G: tf.Tensor
    """[broadcast L, M, M], to the precision; one matrix where all latent functions share it."""

    b: tf.Tensor
    """[L, M, 1], to the first natural parameter."""


class PosteriorFactor(NamedTuple):
    """q(v) by the Cholesky factor of its precision, :math:`B = R Rᵀ`."""

    W: tf.Tensor
    """[broadcast L, M, M], :math:`R^{-1}`: the covariance of v is :math:`Wᵀ W`. NaN where B is not
    positive definite."""

    c: tf.Tensor
    r"""[L, M, 1], :math:`W b`: the mean of v is :math:`Wᵀ c`, and
    :math:`|c|^2 = bᵀ B^{-1} b`."""

    half_logdet: tf.Tensor
    r"""[broadcast L], :math:`\tfrac12 \log|B|`."""

    @property
    def w(self) -> tf.Tensor:
        """[L, M, 1], the mean of v."""
        return tf.matmul(self.W, self.c, transpose_a=True)


class Marginals(NamedTuple):
    """Moments of h under q(v), a row and latent function each."""

    m: tf.Tensor
    """[N, L], means."""

    s: tf.Tensor
    """[N, L], variances."""


class Cavity(NamedTuple):
    """Moments of h under the cavity."""

    m: tf.Tensor
    r"""[N, L], :math:`m^{-} = (m - \alpha \nu s) / e`."""

    s: tf.Tensor
    r"""[N, L], :math:`s^{-} = s / e`."""

    e: tf.Tensor
    r"""[N, L], :math:`e = 1 - \alpha \tau s`. The cavity is proper where it is positive; where it
    is not, ``m`` and ``s`` mean nothing."""


@check_shapes(
    "return.nu: [N, L]",
    "return.tau: [N, L]",
)
def no_sites(num_rows: tf.Tensor, num_latent: int, dtype: tf.DType) -> Sites:
    """Make sites that say nothing: q is the prior."""
    zeros = tf.zeros([num_rows, num_latent], dtype)
    return Sites(zeros, zeros)


@check_shapes(
    "natural.G: [broadcast L, M, M]",
    "natural.b: [L, M, 1]",
    "return.W: [broadcast L, M, M]",
    "return.c: [L, M, 1]",
    "return.half_logdet: [broadcast L]",
)
def posterior_factor(natural: Natural) -> PosteriorFactor:
    """Factorise the precision B = I + G of q(v)."""
    G, b = natural
    R, W = factorise(G + identity_like(G))
    logs = tf.math.log(tf.linalg.diag_part(R))
    return PosteriorFactor(W, lower_matmul(W, b), tf.reduce_sum(logs, axis=-1))


@check_shapes(
    "q.c: [L, M, 1]",
    "q.half_logdet: [broadcast L]",
    "return: []",
)
def log_root(q: PosteriorFactor) -> tf.Tensor:
    r"""Compute :math:`\sum_l \tfrac12 \log|B_l|`."""
    return tf.reduce_sum(q.half_logdet + tf.zeros_like(q.c[:, 0, 0]))


def terms_of_mean(w: tf.Tensor, known: Sequence[Natural]) -> tf.Tensor:
    r"""
    Compute :math:`\sum_l -\tfrac12 |w_l|^2`, what the mean of v has in the energy, [].

    :param w: The mean, [L, M, 1].
    :param known: What is known of v beside the rows, each of which adds
        :math:`bᵀ w - \tfrac12 wᵀ G w`.
    """
    total = -0.5 * tf.reduce_sum(tf.square(w))
    for G, b in known:
        total += tf.reduce_sum(w * (b - 0.5 * tf.matmul(G, w)))
    return total


@check_shapes(
    "A: [broadcast L, M, N]",
    "q.W: [broadcast L, M, M]",
    "q.c: [L, M, 1]",
    "return.m: [N, L]",
    "return.s: [N, broadcast L]  # one for all where they share A and W",
)
def marginals(A: tf.Tensor, q: PosteriorFactor) -> Marginals:
    """Compute the moments of :math:`h_n = A_nᵀ v` under q."""
    m = on_columns(A, q.w)
    s = tf.reduce_sum(tf.square(lower_matmul(q.W, A)), axis=-2)
    return Marginals(tf.transpose(m), tf.transpose(s))


@check_shapes(
    "q.m: [N, L]",
    "q.s: [N, L]",
    "sites.nu: [N, L]",
    "sites.tau: [N, L]",
    "alpha: [broadcast N, 1]",
    "return.m: [N, L]",
    "return.s: [N, L]",
    "return.e: [N, L]",
)
def cavity(q: Marginals, sites: Sites, alpha: tf.Tensor) -> Cavity:
    """
    Remove the power alpha of each row's site (Bui, Yan & Turner 2017, section 3.3).

    :param alpha: The power, in [0, 1]; 1 removes the site, 0 removes nothing.
    """
    e = 1.0 - alpha * sites.tau * q.s
    return Cavity((q.m - alpha * sites.nu * q.s) / e, q.s / e, e)


def in_deviations(F: tf.Tensor, marginals: tf.Tensor, coupled: bool) -> tf.Tensor:
    """
    Scale changes of sites, [..., 2, N, L], by the standard deviations of q.

    :param F: The changes of the two numbers of each, see
        :class:`~gpflow_pep.sites.record.SweepEvaluation`.
    """
    m, s = marginals[0], marginals[1]
    first, F_tau = F[..., 0, :, :], F[..., 1, :, :]
    if not coupled:
        first -= m * F_tau
    return tf.stack([tf.sqrt(s) * first, s * F_tau], axis=-3)


def scaled_error(sites: Sites, matched: Sites, marginals: Marginals) -> tf.Tensor:
    """
    Compute how far sites are from others, [2, N, L], in units of q's standard deviation; the
    largest is the residual of a record.
    """
    return in_deviations(tf.stack(matched) - tf.stack(sites), tf.stack(marginals), coupled=False)
