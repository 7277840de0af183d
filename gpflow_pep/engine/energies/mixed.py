r"""The Power EP energy of outputs that are mixed from latent functions, its gradient,
and leave-one-out densities.

With the letters of :mod:`gpflow_pep.engine.sites.mixed`, the energy of a fixed point is

.. math::

    \log Z = {} & -\tfrac12 \log|B| - \tfrac12 |w|^2 + \sum_{np} \Big[ \ell_{np}
        + \frac{\alpha s \gamma^2}{2 e}
        - \frac{1}{2 \alpha} \log(1 - \alpha \tau s) \Big]_{np} \\
    & - \sum_n \Big[ \tfrac{\alpha}{2} \gamma_nᵀ W \Delta_n Wᵀ \gamma_n
        + \frac{1}{2 \alpha} \log|I + \alpha \Delta_n C_n| \Big],

with :math:`\gamma = \nu - \tau m`. It comes from the sum of the normalisers of row and
inner sites, whose other terms cancel: :math:`I + \alpha V T` with the row's cavity
covariance :math:`V = S (I - \alpha T S)^{-1}` is the inverse of :math:`I - \alpha S T`.

It is stationary in the sites, and, with its terms grouped as
:math:`\Phi + \sum_n \psi_n`,

.. math::

    \Phi = -\tfrac12 \log|B| + \tfrac12 bᵀ B^{-1} b, \qquad
    \psi_n = \ldots - \lambda_nᵀ \bar h_n + \tfrac12 \bar h_nᵀ T_n \bar h_n,

in the marginals :math:`(\bar h_n, S_n)` too. So its gradient is that with sites and
marginals held fixed: of :math:`\Phi` by way of A, T and :math:`\lambda`,

.. math::

    \frac{\partial \Phi}{\partial A_q}
    = w_q (\lambda - T \bar h)_q - \sum_r (B^{-1})_{qr}
    A_r T_{qr}, \quad
    \frac{\partial \Phi}{\partial T_n} = -\tfrac12 (S_n + \bar h_n \bar h_nᵀ), \quad
    \frac{\partial \Phi}{\partial \lambda_n} = \bar h_n,

and of :math:`\psi` by automatic differentiation in W, :math:`\Delta` and what the
likelihoods have.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .. import checks
from ..factors.entries import entry_log_power_expectation
from ..numerics import chunks
from ..numerics.power import log1p_over_power
from ..prior import Parts, Projection
from ..sites.mixed import (
    LatentMarginals,
    RowSites,
    by_latent,
    conditioned,
    inverse_of_sum,
    latent_sums,
    log_determinant,
    mixed_marginals,
    row_sites,
    symmetric,
    with_residual,
)
from ..sites.posterior import Marginals, PosteriorFactor, SiteProblem, Sites, cavity
from ..sites.record import FixedPoint
from .collapsed import RowSums
from .point import energy_by


def energy(problem: SiteProblem, fixed_point: FixedPoint) -> tf.Tensor:
    """Compute the energy at a fixed point, which can be differentiated once; see this
    module.
    """
    parts, (q, tilted, h, *_) = problem.parts, fixed_point.extra

    def chunk_terms(
        piece: Any, W: tf.Tensor, mixing: tf.Tensor, *projection: tf.Tensor
    ) -> tf.Tensor:
        """Compute a number that has the derivatives of the contribution of the rows."""
        X, (sites, tilted, h, alpha) = piece
        A, D, _ = Projection(*projection) if projection else parts.project(W, X)
        d = tf.transpose(D)
        rows = row_sites(mixing, sites, d, alpha)
        change = _of_posterior(A, rows, q, h)
        moments = mixed_marginals(mixing, with_residual(h, rows, alpha))
        power = alpha[:, None]
        of_cavity = cavity(moments, sites, power)
        slope = sites.nu - sites.tau * moments.m
        by_variance = 0.5 * (tilted.delta2 + power * tf.square(tilted.delta1))
        by_entry = (
            tilted.delta1 * (of_cavity.m + parts.mean(X)) + by_variance * of_cavity.s
        )
        by_entry += 0.5 * power * of_cavity.s * tf.square(slope)
        by_entry -= 0.5 * log1p_over_power(-sites.tau * moments.s, power)
        change += tf.reduce_sum(by_entry)
        T_h = tf.linalg.matvec(rows.T, h.mean)
        change -= tf.reduce_sum((rows.first - 0.5 * T_h) * h.mean)
        change -= 0.5 * tf.reduce_sum(power * d * tf.square(tf.matmul(slope, mixing)))
        return change - 0.5 * tf.reduce_sum(log_determinant(rows, d, alpha))

    rows = fixed_point.sites, tilted, h, problem.rows.alpha
    value = energy_by(
        chunk_terms, problem, fixed_point, rows, (problem.latents.weights,)
    )
    return checks.once_differentiable(value, "log Z")


def _of_posterior(
    A: tf.Tensor, rows: RowSites, q: PosteriorFactor, h: LatentMarginals
) -> tf.Tensor:
    r"""0 with the derivatives of :math:`\Phi` in A, T and :math:`\lambda`."""
    w = by_latent(q.w, A)
    covariance = tf.matmul(q.W[0], q.W[0], transpose_a=True)
    outer = h.covariance + h.mean[:, :, None] * h.mean[:, None, :]

    @tf.custom_gradient
    def zero(
        A: tf.Tensor, T: tf.Tensor, first: tf.Tensor
    ) -> "tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]":
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            slope = tf.transpose(first - tf.linalg.matvec(T, h.mean))[:, None, :]
            num_latents = int(A.shape[0])
            weights = tf.transpose(T, [1, 2, 0])
            all_v = tf.shape(covariance)[0]
            # The rows of each latent function.
            blocks = tf.split(covariance, num_latents)
            weighted = (
                tf.reshape(A * weights[k][:, None, :], [all_v, -1])
                for k in range(num_latents)
            )
            by_A = w * slope - tf.stack(
                [tf.matmul(*pair) for pair in zip(blocks, weighted)]
            )
            return upstream * by_A, -0.5 * upstream * outer, upstream * h.mean

        return tf.zeros([], A.dtype), gradient

    return zero(A, rows.T, rows.first)


def leave_out(
    problem: SiteProblem, sites: Sites, h: LatentMarginals, whole_rows: bool
) -> tf.Tensor:
    """
    Compute the log density of each entry given the others, [N, P]; NaN where nothing
    was observed.

    :param whole_rows: Whether the other outputs of the row are left out too.
    :raises ValueError: If what is left is improper, or a derivative in a hyperparameter
        is asked for.
    """
    mixing = problem.latents.weights
    power_1 = tf.ones([1], problem.W.dtype)

    def log_density(piece: Any) -> tf.Tensor:
        (X, (Y, alpha, sites, h)), projection = piece
        d = tf.transpose(problem.project(X, projection).D)
        rows = row_sites(mixing, sites, d, alpha)
        g = _given_other_rows(h, rows, d)
        moments = mixed_marginals(mixing, g if whole_rows else conditioned(g, rows))
        if not whole_rows:
            without = cavity(moments, sites, power_1[:, None])
            moments = Marginals(without.m, without.s)
        # 0 is that of an f that is known: the density is that of noise alone.
        variance = tf.where(
            moments.s >= 0.0, moments.s, tf.constant(np.nan, moments.s.dtype)
        )
        mean = moments.m + problem.parts.mean(X)
        likelihood = problem.parts.likelihood
        improper = tf.math.is_nan(variance) & tf.math.is_finite(Y)
        mean, variance = (
            tf.where(improper, tf.ones_like(moment), moment)
            for moment in (mean, variance)
        )
        density = entry_log_power_expectation(likelihood, X, mean, variance, Y, power_1)
        return tf.where(improper, tf.constant(np.inf, density.dtype), density)

    rows = problem.rows.Y, problem.rows.alpha, sites, h
    value = tf.stop_gradient(chunks.map_over_chunks(log_density, problem.pieces(rows)))
    value = checks.require_finite(
        value,
        "leave-one-out log density",
        "A site is too precise to be removed; use a smaller alpha, or more inducing"
        " variables.",
    )
    value = tf.where(
        tf.math.is_finite(problem.rows.Y), value, tf.constant(np.nan, value.dtype)
    )
    return checks.refuse_derivatives(value, problem.variables, "loo_log_density")


def at_rows(
    problem: SiteProblem,
    sites: Sites,
    h: LatentMarginals,
    whole_rows: bool = False,
    copies: tf.Tensor | None = None,
) -> Marginals:
    """Compute the moments of f at the rows of the data, without the mean function, [N,
    P].

    They are given the other rows, and the whole sites of the row as functions of f,
    which are exact for Gaussian noise.

    :param whole_rows: Whether the sites of the row are left out.
    :param copies: How many rows have the inputs and targets of each, [N], which are
        left out together; None: each is the only one.
    :raises ValueError: If a derivative in a hyperparameter is asked for.
    """
    mixing = problem.latents.weights
    if copies is None:
        copies = tf.ones_like(h.mean[:, 0])

    def moments(piece: Any) -> Marginals:
        (X, (alpha, sites, h, copies)), projection = piece
        d = tf.transpose(problem.project(X, projection).D)
        rows = row_sites(mixing, sites, d, alpha)
        g = _given_other_rows(h, rows, d, copies)
        return mixed_marginals(mixing, g if whole_rows else conditioned(g, rows))

    rows = problem.rows.alpha, sites, h, copies
    value = map(tf.stop_gradient, chunks.map_over_chunks(moments, problem.pieces(rows)))
    return Marginals(
        *checks.refuse_derivatives(tuple(value), problem.variables, "impute_f")
    )


def _given_other_rows(
    h: LatentMarginals, rows: RowSites, d: tf.Tensor, copies: tf.Tensor | None = None
) -> LatentMarginals:
    """Compute the moments of g of each row without its whole sites, and those of its
    copies, as if it were a new one.
    """
    S = h.covariance
    T = rows.T
    first = rows.first
    if copies is not None:
        T = copies[:, None, None] * T
        first = copies[:, None] * first
    V = symmetric(tf.matmul(inverse_of_sum(-tf.matmul(S, T)), S))
    change = tf.linalg.matvec(T, h.mean) - first
    return LatentMarginals(h.mean + tf.linalg.matvec(V, change), V + tf.linalg.diag(d))


def sum_mixed_rows(
    parts: Parts,
    rows: Any,
    W: tf.Tensor,
    mixing: tf.Tensor,
    noise: Callable[[tf.Tensor], tf.Tensor],
) -> RowSums:
    r"""Sum over rows whose outputs are one factor, for Gaussian noise: the energy in
    closed form.

    The inner sites are :math:`\tau = 1 / \sigma^2, u = \tau r` at once.

    :param parts: Of the latent functions.
    :param rows: X [N, D], Y [N, P] with NaN where nothing was observed, and powers [N]
        or [1].
    :param noise: Noise variances of the outputs at some rows, [N, P] or [N, 1].
    """
    X, Y, alpha = rows
    A, D, _ = parts.project(W, X)
    d, (observed, r) = tf.transpose(D), parts.observed_residual(X, Y)
    variance = noise(X) + tf.zeros_like(r)
    tau = tf.where(observed, 1.0 / variance, tf.zeros_like(r))
    of_rows = row_sites(mixing, Sites(tau * r, tau), d, alpha)
    explained = tf.linalg.matvec(of_rows.Lambda, alpha[:, None] * of_rows.of_g)
    log_det = log_determinant(of_rows, d, alpha)
    logs = tf.where(observed, tf.math.log(variance), tf.zeros_like(r))
    return RowSums(
        latent_sums(A, of_rows.T, of_rows.first),
        tf.reduce_sum(tau * tf.square(r)) - tf.reduce_sum(explained * of_rows.of_g),
        tf.reduce_sum(logs) + tf.reduce_sum(log_det),
    )
