r"""Leave-one-out densities of regression, in closed form.

A row that is observed with precision :math:`\beta_n` given u has the site
:math:`\tau_n = \beta_n, \nu_n = \beta_n r_n`. Removed as a whole from q it leaves the moments
:math:`m_n^{-}, s_n^{-}` of :math:`h_n`, and

.. math::

    \log p(y_n | y_{-n}) \approx \log N(r_n; m_n^{-}, s_n^{-} + d_n + \sigma_n^2),

which at :math:`\alpha = 1` is exact for FITC's model. It is what
:func:`gpflow_pep.engine.energies.point.leave_one_out` computes for any likelihood. A target that
was not observed has no site: its moments are those that all others give it.
"""

from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow import logdensities

from ..prior import Parts
from ..sites.posterior import Marginals, PosteriorFactor, Sites, cavity, marginals
from .collapsed import Precision, project_single_rows


def moments(
    parts: Parts, rows: Any, W: tf.Tensor, q: PosteriorFactor, precision: Precision
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute mean and variance of each target given the others of its output, [N, P] each."""
    X, Y, _ = rows
    A, d, noise, alpha, r = project_single_rows(parts, rows, W, has_gaps=True)
    d, noise, alpha = (part[:, None] for part in (d, noise, alpha))
    tau = precision(d, noise, alpha) * tf.cast(~tf.math.is_nan(Y), r.dtype)
    m, s = marginals(A, q)
    without = cavity(Marginals(m, s + tf.zeros_like(m)), Sites(tau * r, tau), tf.ones_like(d))
    return without.m + parts.mean(X), without.s + d + parts.noise(X)[:, None]


def density_sum(
    parts: Parts, rows: Any, W: tf.Tensor, q: PosteriorFactor, precision: Precision
) -> tf.Tensor:
    """Sum the leave-one-out log densities of some rows, []."""
    return tf.reduce_sum(observed_log_density(rows[1], *moments(parts, rows, W, q, precision)))


@check_shapes("Y: [N, P]", "mean: [N, P]", "variance: [N, P]", "return: [N]")
def observed_log_density(Y: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Sum the Gaussian log densities of the targets of each row that were observed."""
    observed = ~tf.math.is_nan(Y)
    density = logdensities.gaussian(tf.where(observed, Y, mean), mean, variance)
    return tf.reduce_sum(tf.where(observed, density, tf.zeros_like(density)), axis=1)
