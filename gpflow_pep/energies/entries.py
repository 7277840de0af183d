r"""The Power EP energy of regression where targets are missing, in closed form.

Outputs are independent and share the kernel, the noise and the inducing variables, but each has a
set of rows of its own: :math:`\tau_{np} = 1 / (\sigma_n^2 + \alpha_n d_n)` where output p was
observed at row n, and 0 elsewhere. So each output has a precision
:math:`B_p = I + A \,\mathrm{diag}(\tau_{\cdot p}) Aᵀ` of its own, and the energy is the sum of
those of :mod:`gpflow_pep.energies.collapsed` for separate models of the rows of each.
"""

from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import logdensities

from ..covariances import Parts
from ..ops.linalg import gram
from ..ops.power import log1p_over_power
from ..sites.posterior import (
    Natural,
    PosteriorFactor,
    Sites,
    cavity,
    log_root,
    marginals,
    posterior_factor,
)
from .collapsed import RowSums, row_precision


def observed_residual(parts: Parts, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute which targets were observed, bool, and their residuals, 0 elsewhere, [N, P] each."""
    observed = tf.math.is_finite(Y)
    residual = parts.residual(X, tf.where(observed, Y, tf.zeros_like(Y)))
    return observed, tf.where(observed, residual, tf.zeros_like(residual))


def sum_observed(parts: Parts, rows: Any, W: tf.Tensor) -> RowSums:
    """
    Sum over rows of which each output has observed some.

    :param rows: X [N, D], Y [N, P] with NaN where nothing was observed, and powers [N] or [1].
    :return: Sums with G [P, M, M], and with :math:`\\log 2\\pi` for each entry in ``logdet``.
    """
    X, Y, alpha = rows
    A, d = parts.project(W, X)
    observed, r = observed_residual(parts, X, Y)
    noise, weight = parts.noise(X), tf.cast(observed, r.dtype)
    tau = weight * row_precision(d[0], noise, alpha)[:, None]
    logdet = tf.math.log(2.0 * np.pi * noise) + log1p_over_power(d[0] / noise, alpha)
    first = tf.matmul(A, (tau * r)[None])
    return RowSums(
        Natural(gram(A, tf.transpose(tau)), tf.transpose(first, [2, 1, 0])),
        tf.reduce_sum(tau * tf.square(r)),
        tf.reduce_sum(weight * logdet[:, None]),
    )


@check_shapes("sums.natural.G: [L, M, M]", "sums.natural.b: [L, M, 1]", "return: []")
def log_density_of_entries(sums: RowSums) -> tf.Tensor:
    r"""Compute the energy of sums whose ``logdet`` has :math:`\log 2\pi` for each entry."""
    q = posterior_factor(sums.natural)
    quadratic = sums.squares - tf.reduce_sum(tf.square(q.c))
    return -0.5 * (sums.logdet + quadratic) - log_root(q)


def left_out_moments(
    parts: Parts, rows: Any, W: tf.Tensor, q: PosteriorFactor
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Compute mean and variance of each target given the others of its output, [N, P] each.

    Those of targets that were not observed are given all.
    """
    X, Y, alpha = rows
    A, d = parts.project(W, X)
    observed, r = observed_residual(parts, X, Y)
    noise = parts.noise(X)
    precision = row_precision(d[0], noise, alpha)[:, None]
    tau = tf.where(observed, precision + tf.zeros_like(r), tf.zeros_like(r))
    without = cavity(marginals(A, q), Sites(tau * r, tau), tf.ones_like(precision))
    return without.m + parts.mean(X), without.s + (d[0] + noise)[:, None]


def left_out_density_sum(parts: Parts, rows: Any, W: tf.Tensor, q: PosteriorFactor) -> tf.Tensor:
    """Sum the log densities of targets given the others of their outputs, []."""
    moments = left_out_moments(parts, rows, W, q)
    return tf.reduce_sum(observed_log_density(rows[1], *moments))


@check_shapes("Y: [N, P]", "mean: [N, P]", "variance: [N, P]", "return: [N]")
def observed_log_density(Y: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Sum the Gaussian log densities of the targets of each row that were observed."""
    observed = tf.math.is_finite(Y)
    density = logdensities.gaussian(tf.where(observed, Y, mean), mean, variance)
    return tf.reduce_sum(tf.where(observed, density, tf.zeros_like(density)), axis=1)
