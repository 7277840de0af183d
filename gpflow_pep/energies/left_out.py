r"""Leave-one-out densities of regression, in closed form.

A row that is observed with precision :math:`\beta_n` given u has the site
:math:`\tau_n = \beta_n, \nu_n = \beta_n r_n`. Removed as a whole from q it leaves the moments
:math:`m_n^{-}, s_n^{-}` of :math:`h_n`, and

.. math::

    \log p(y_n | y_{-n}) \approx \log N(r_n; m_n^{-}, s_n^{-} + d_n + \sigma_n^2),

which at :math:`\alpha = 1` is exact for FITC's model. It is what
:func:`gpflow_pep.energies.point.leave_one_out` computes for any likelihood.
"""

from typing import Any

import tensorflow as tf
from gpflow import logdensities

from ..covariances import Parts
from ..sites.posterior import Marginals, PosteriorFactor, Sites, cavity, marginals
from .collapsed import Precision, project_single_rows


def errors(
    parts: Parts, rows: Any, W: tf.Tensor, q: PosteriorFactor, precision: Precision
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Compute how far each target is from its leave-one-out mean, and the variance, [N, P] each.
    """
    A, d, noise, alpha, r = project_single_rows(parts, rows, W)
    d, noise, alpha = (part[:, None] for part in (d, noise, alpha))
    tau = precision(d, noise, alpha) + tf.zeros_like(r)
    m, s = marginals(A, q)
    without = cavity(Marginals(m, s + tf.zeros_like(m)), Sites(tau * r, tau), tf.ones_like(d))
    error = parts.residual(*rows[:2]) - without.m
    return error, without.s + d + parts.noise(rows[0])[:, None]


def density_sum(
    parts: Parts, rows: Any, W: tf.Tensor, q: PosteriorFactor, precision: Precision
) -> tf.Tensor:
    """Sum the leave-one-out log densities of some rows, []."""
    error, variance = errors(parts, rows, W, q, precision)
    return tf.reduce_sum(logdensities.gaussian(error, tf.zeros_like(error), variance))
