r"""Sites updated one row after another, as the papers do it.

Bui, Yan & Turner (2017), section 3.3; one pass from no sites is assumed-density filtering (Qi,
Abdel-Gawad & Minka 2010). Each row sees the posterior that the row before left: with
:math:`V = B^{-1}`, :math:`w = V b` and a row's projection a, a change of its site by
:math:`(\delta_\nu, \delta_\tau)` makes

.. math::

    V \leftarrow V - \frac{\delta_\tau}{1 + \delta_\tau s} V a aᵀ V, \qquad
    w \leftarrow w + \frac{\delta_\nu - \delta_\tau m}{1 + \delta_\tau s} V a.

It takes a step of the graph for each row, and is here as a reference and for rows that come one
after another; :mod:`gpflow_pep.engine.sites.fixed_point` is what trains.
"""

import numpy as np
import tensorflow as tf

from ..prior import Projection
from .posterior import (
    Marginals,
    Natural,
    SiteProblem,
    Sites,
    add_memory,
    posterior_factor,
    sites_of_rows,
)
from .record import FixedPoint, SiteUpdateInfo, Solver, SweepEvaluation
from .sweep import match_moments, row_prior, sweep


def sequential_pass(
    problem: SiteProblem,
    projection: Projection,
    sites: Sites,
    damping: float = 1.0,
    others: Natural | None = None,
) -> tuple[Sites, tf.Tensor]:
    """Update the site of each row in turn.

    :param sites: Where to start; proper.
    :param others: What other rows add to q, whose sites stay as they are.
    :return: The sites, and how many rows were refused, because their cavity or the posterior would
        have been improper; these keep their sites.
    """
    natural = add_memory(sites_of_rows(projection.A, sites), problem.memory)
    if others is not None:
        natural = tf.nest.map_structure(tf.add, natural, others)
    q = posterior_factor(natural)

    def update(
        n: tf.Tensor, x: tf.Tensor, refused: tf.Tensor, V: tf.Tensor, w: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        of_row, x_n = problem.batch([n]), tf.gather(x, [n], axis=1)
        row = Projection(*(tf.gather(part, [n], axis=-1) for part in projection))
        Va = tf.matmul(V, row.A)  # [L, M, 1]
        m, s = (tf.transpose(tf.matmul(row.A, part, transpose_a=True)[..., 0]) for part in (w, Va))
        site = Sites(*tf.unstack(x_n))
        matched = match_moments(of_row, row, Marginals(m, s), row_prior(of_row, site), site)
        change = damping * (tf.stack(matched.sites) - x_n)
        shrink = 1.0 + change[1] * s
        proper = matched.proper[0] & tf.reduce_all(shrink > 0.0)
        change = tf.where(proper, change, tf.zeros_like(change))
        shrink = tf.where(proper, shrink, tf.ones_like(shrink))
        V_scale, w_scale = (
            tf.transpose(part / shrink)[..., None]
            for part in (change[1], change[0] - change[1] * m)
        )
        return (
            n + 1,
            tf.tensor_scatter_nd_add(x, [[0, n], [1, n]], change[:, 0]),
            refused + tf.cast(~proper, tf.int32),
            V - V_scale * tf.matmul(Va, Va, transpose_b=True),
            w + w_scale * Va,
        )

    num_rows, V = tf.shape(sites.nu)[0], tf.matmul(q.W, q.W, transpose_a=True)
    start = tf.constant(0), tf.stack(sites), tf.constant(0), V, q.w
    _, x, refused, *_ = tf.while_loop(
        lambda n, *_: n < num_rows, update, start, parallel_iterations=1
    )
    return Sites(*tf.unstack(x)), refused


def infer_sequentially(problem: SiteProblem, initial: Sites, solver: Solver) -> FixedPoint:
    """Repeat a pass over the rows until the sites match the moments of the tilted distributions.

    The residual of the record is infinite where a cavity is improper in the end.

    :param initial: Where to start; from no sites, where that is not proper.
    :param solver: Each sweep is one pass. There are no fallbacks.
    """
    projection = problem.project(problem.rows.X)
    problem = problem._replace(projection=projection)
    prior = row_prior(problem, initial)
    before = sweep(problem, prior, initial)
    start = Sites(*(tf.where(before.proper, part, tf.zeros_like(part)) for part in initial))
    infinity, tolerance = tf.constant(np.inf, start.nu.dtype), solver.goal.tolerance

    def body(
        passes: tf.Tensor, refused: tf.Tensor, error: tf.Tensor, sites: Sites, _: SweepEvaluation
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Sites, SweepEvaluation]:
        sites, more = sequential_pass(problem, projection, sites, solver.damping)
        evaluation = sweep(problem, prior, sites)
        # Beside an improper cavity there is no target to be near to.
        error = tf.where(evaluation.proper, tf.reduce_max(tf.abs(evaluation.error)), infinity)
        return passes + 1, refused + more, error, sites, evaluation

    passes, refused, error, sites, end = tf.while_loop(
        lambda passes, refused, error, *_: (passes < solver.max_sweeps) & (error >= tolerance),
        body,
        (tf.constant(0), tf.constant(0), infinity, start, before),
        parallel_iterations=1,
    )
    info = SiteUpdateInfo(passes, error, error < tolerance, refused, tf.constant(0))
    return FixedPoint(sites, end.marginals, end.extra, info)
