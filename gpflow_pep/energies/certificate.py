"""How far the energy of scaled conditionals is proved to be a lower bound."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.stats import qmc

from ..checks import refuse_derivatives
from ..ops import chunks
from ..sites.posterior import SiteProblem
from ..sites.record import FixedPoint
from ..tilted import log_power_expectation

#: Of the precision in the scale of a row, for which it is looked what is proved.
_PARTS = (1.0, 0.75, 0.5, 0.25, 0.0)


class Certificate(NamedTuple):
    """How far the energy at power 0 is proved to be a lower bound of the log evidence."""

    proved: tf.Tensor
    """[N], bool: the row's terms are part of one as they are, but for rounding."""

    shortfall: tf.Tensor
    """[N], at least 0, in nats: they are, less this."""


def certify(problem: SiteProblem, fixed_point: FixedPoint) -> Certificate:
    r"""
    Compare the energy at power 0 with what is proved of it.

    For any :math:`\lambda_n \ge 0`, and :math:`w_n = d_n / (1 + \lambda_n d_n)`, a row may have in
    a lower bound

    .. math::

        \min_{0 \le S_l \le w_{nl}} g_n(S), \qquad g_n(S) = \phi_n(S)
        + \tfrac12 \sum_l [\lambda_{nl} S_l - \log(1 + \lambda_{nl} d_{nl})],

    see :mod:`gpflow_pep.sites.conditional`; in the energy it has :math:`g_n(w_n)` with
    :math:`\lambda_n = \max(\tau_n, 0)`. The shortfall is the second less the largest of the first
    for the fractions 1, 3/4, 1/2, 1/4 and 0 of that :math:`\lambda_n`, with S on a grid: multiples
    of 1/16 of :math:`w_n`, or with several latent functions those of :func:`_grid`. A row is proved
    where it is at most the root of the float's epsilon times :math:`1 + |g_n(w_n)|`.
    """
    zeros = tf.zeros_like(fixed_point.marginals.m[:, 0])
    if not problem.scaled:
        return Certificate(zeros == 0.0, zeros)
    dtype = problem.W.dtype
    grid = tf.constant(_grid(fixed_point.marginals.m.shape[1]), dtype)
    rounding = float(np.finfo(dtype.as_numpy_dtype).eps) ** 0.5

    def chunk_terms(piece: Any) -> Certificate:
        (X, (tau, q, Y, alpha)), projection = piece
        d = tf.transpose(problem.project(X, projection).D)
        m, likelihood = q.m + problem.parts.mean(X), problem.parts.likelihood

        def g(part: tf.Tensor, fractions: tf.Tensor) -> tf.Tensor:
            precision = part * tf.nn.relu(tau)
            S = fractions * d / (1.0 + precision * d)
            ell = log_power_expectation(likelihood, X, m, q.s + S, Y, alpha)
            return ell + 0.5 * tf.reduce_sum(precision * S - tf.math.log1p(precision * d), axis=1)

        def smallest(part: tf.Tensor) -> tf.Tensor:
            return tf.reduce_min(tf.map_fn(lambda fractions: g(part, fractions), grid), axis=0)

        end = g(tf.ones([], dtype), tf.ones_like(grid[0]))
        best = tf.reduce_max(tf.map_fn(smallest, tf.constant(_PARTS, dtype)), axis=0)
        shortfall = tf.nn.relu(end - best)
        return Certificate(shortfall <= rounding * (1.0 + tf.abs(end)), shortfall)

    rows = fixed_point.sites.tau, fixed_point.marginals, problem.rows.Y, problem.rows.alpha
    proved, shortfall = chunks.map_over_chunks(chunk_terms, problem.pieces(rows))
    return Certificate(
        proved, refuse_derivatives(shortfall, problem.parts.variables, "certified_bound")
    )


def _grid(num_latent: int) -> AnyNDArray:
    """
    Make points of the unit cube, [G, L]: where one latent function is, multiples of 1/16; where
    there are several, 64 points of Halton's sequence, which starts at 0, and those multiples on the
    diagonal and along each axis down from its end.
    """
    line = np.arange(17)[:, None] / 16.0
    if num_latent == 1:
        return line
    diagonal = np.repeat(line, num_latent, axis=1)
    axes = [np.where(axis, line, 1.0) for axis in np.eye(num_latent, dtype=bool)]
    cube = qmc.Halton(num_latent, scramble=False).random(64)
    return np.concatenate([diagonal, *axes, cube])
