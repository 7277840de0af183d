"""How far the energy of scaled conditionals is proved to be a lower bound."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.stats import qmc

from ..covariances import evaluate
from ..inference.conditional import conditional_scale
from ..inference.problem import SiteProblem
from ..inference.record import FixedPoint
from ..ops import chunks
from ..tilted import log_power_expectation


class Certificate(NamedTuple):
    r"""How far the energy at power 0 is proved to be a lower bound of the log evidence."""

    proved: tf.Tensor
    """[N], bool: the row's terms are part of one as they are, but for rounding."""

    shortfall: tf.Tensor
    """[N], at least 0, in nats: they are, less this."""


def certify(problem: SiteProblem, found: FixedPoint) -> Certificate:
    r"""
    Compare the energy at power 0 with what is proved of it.

    Where the conditional is scaled, a row's shortfall is

    .. math::

        g_n(w_n) - \min_{0 \le S_l \le w_{nl}} g_n(S), \qquad
        g_n(S) = \phi_n(S) + \tfrac12 \sum_l \lambda_{nl} S_l,

    see :mod:`gpflow_pep.inference.conditional`, with S on a grid: :func:`_grid` times :math:`w_n`.
    The row is proved where that is below the root of the float's epsilon times
    :math:`1 + |g_n(w_n)|`.

    :param problem: The rows.
    :param found: Their sites with what belongs to them.
    """
    zeros = tf.zeros_like(found.marginals.m[:, 0])
    if not problem.scaled:
        return Certificate(zeros == 0.0, zeros)
    dtype = problem.X.dtype
    grid = tf.constant(_grid(found.marginals.m.shape[1]), dtype)
    rounding = float(np.finfo(dtype.as_numpy_dtype).eps) ** 0.5

    def of_chunk(piece: Any) -> Certificate:
        (X, (sites, q, Y, alpha)), kept = piece
        d = tf.transpose(problem.project(problem.W, X, kept).D)
        m = q.m + evaluate.mean(problem.mean_function, X)
        w = d * conditional_scale(d, sites.tau, alpha[:, None])
        slope = 0.5 * tf.nn.relu(sites.tau)

        def g(fractions: tf.Tensor) -> tf.Tensor:
            S = fractions * w
            ell = log_power_expectation(problem.likelihood, X, m, q.s + S, Y, alpha)
            return ell + tf.reduce_sum(slope * S, axis=1)

        end = g(tf.ones_like(grid[0]))
        shortfall = tf.nn.relu(end - tf.reduce_min(tf.map_fn(g, grid), axis=0))
        return Certificate(shortfall <= rounding * (1.0 + tf.abs(end)), shortfall)

    rows = found.sites, found.marginals, problem.Y, problem.alpha
    return chunks.map_over_chunks(of_chunk, problem.pieces(rows))


def _grid(num_latent: int) -> AnyNDArray:
    """
    Make points of the unit cube, [G, L]: where one latent function is, multiples of 1/16; where
    there are several, 64 points of Halton's sequence, which starts at 0, and those multiples on the
    diagonal and along each axis down from its end.
    """
    line = np.arange(16)[:, None] / 16.0
    if num_latent == 1:
        return line
    diagonal = np.repeat(line, num_latent, axis=1)
    axes = [np.where(own, line, 1.0) for own in np.eye(num_latent, dtype=bool)]
    cube = qmc.Halton(num_latent, scramble=False).random(64)
    return np.concatenate([diagonal, *axes, cube])
