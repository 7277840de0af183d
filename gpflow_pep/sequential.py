r"""Sites updated one row after another, as the papers do it.

Bui, Yan & Turner (2017), section 3.3; one pass from no sites is assumed-density filtering (Qi,
Abdel-Gawad & Minka 2010). Each row sees the posterior that the row before left: with
:math:`V = B^{-1}`, :math:`w = V b` and a row's projection a, a change of its site by
:math:`(\delta_\nu, \delta_\tau)` makes

.. math::

    V \leftarrow V - \frac{\delta_\tau}{1 + \delta_\tau s} V a aᵀ V, \qquad
    w \leftarrow w + \frac{\delta_\nu - \delta_\tau m}{1 + \delta_\tau s} V a.

It takes a step of the graph for each row, and is here as a reference and for rows that come one
after another; :mod:`gpflow_pep.updates` is what trains.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from .covariances import Projection
from .posterior import posterior_factor
from .sites import Marginals, Sites
from .sweep import NaturalSums, Projections, match_moments, natural_sums
from .updates import Evaluation, SiteUpdateInfo, residual


def sequential_pass(
    likelihood: Likelihood,
    projections: Projections,
    rows: Sequence[tf.Tensor],
    sites: Sites,
    damping: float = 1.0,
    others: NaturalSums | None = None,
) -> tuple[Sites, tf.Tensor]:
    """
    Update the site of each row in turn.

    :param likelihood: The likelihood.
    :param projections: Of all rows.
    :param rows: X [N, D], the mean function [N, L], Y [N, P] and the power [N] of each row.
    :param sites: Where to start; proper.
    :param damping: The step, in (0, 1].
    :param others: What other rows add to q, whose sites stay as they are.
    :return: The sites, and how many rows were refused, because their cavity or the posterior would
        have been improper; these keep their sites.
    """
    sums = natural_sums(projections, sites)
    if others is not None:
        sums = sums.plus(others)
    factors = list(map(posterior_factor, *sums))
    latents = range(len(factors))

    def update(n: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor, refused: tf.Tensor, *q: tf.Tensor):  # type: ignore[no-untyped-def]
        V, w = q[: len(factors)], q[len(factors) :]
        row = [Projection(tf.gather(p.A, [n], axis=1), tf.gather(p.D, [n])) for p in projections]
        Va = [tf.matmul(V[k], row[k].A) for k in latents]
        m = tf.concat([tf.matmul(row[k].A, w[k], transpose_a=True) for k in latents], axis=1)
        s = tf.concat([tf.matmul(row[k].A, Va[k], transpose_a=True) for k in latents], axis=1)
        own = Sites(tf.gather(nu, [n]), tf.gather(tau, [n]))
        given = [tf.gather(part, [n]) for part in rows]
        X, mean, Y, alpha = given
        targets = match_moments(likelihood, row, Marginals(m, s), X, mean, Y, alpha, own)
        change = [damping * (new - old) for new, old in zip(targets.sites, own, strict=True)]
        shrink = 1.0 + change[1] * s
        proper = targets.proper[0] & tf.reduce_all(shrink > 0.0)
        d_nu, d_tau = (tf.where(proper, part, tf.zeros_like(part)) for part in change)
        shrink = tf.where(proper, shrink, tf.ones_like(shrink))
        new_V = [
            V[k] - (d_tau / shrink)[0, k] * tf.matmul(Va[k], Va[k], transpose_b=True)
            for k in latents
        ]
        new_w = [w[k] + ((d_nu - d_tau * m) / shrink)[0, k] * Va[k] for k in latents]
        return (
            n + 1,
            tf.tensor_scatter_nd_add(nu, [[n]], d_nu),
            tf.tensor_scatter_nd_add(tau, [[n]], d_tau),
            refused + tf.cast(~proper, tf.int32),
            *new_V,
            *new_w,
        )

    num_rows = tf.shape(sites.nu)[0]
    _, nu, tau, refused, *_ = tf.while_loop(
        lambda n, *_: n < num_rows,
        update,
        (
            tf.constant(0),
            *sites,
            tf.constant(0),
            *(tf.matmul(q.W, q.W, transpose_a=True) for q in factors),
            *(q.w for q in factors),
        ),
        parallel_iterations=1,
    )
    return Sites(nu, tau), refused


def run_sequentially(
    one_pass: Callable[[Sites], tuple[Sites, tf.Tensor]],
    evaluate: Callable[[Sites], Evaluation],
    initial: Sites,
    *,
    max_sweeps: int,
    tolerance: float,
) -> tuple[Sites, Marginals, SiteUpdateInfo]:
    """
    Repeat a pass over the rows until the sites match the moments of the tilted distributions.

    The residual of the record is infinite where a cavity is improper in the end.

    :param one_pass: See :func:`sequential_pass`.
    :param evaluate: Computes what belongs to some sites, for the record, after each pass.
    :param initial: Where to start; from no sites, where that is not proper.
    :param max_sweeps: The most passes, at least 1.
    :param tolerance: Converged when the residual, see
        :class:`~gpflow_pep.updates.SiteUpdateInfo`, is below it.
    """
    proper = evaluate(initial).proper
    start = Sites(*(tf.where(proper, part, tf.zeros_like(part)) for part in initial))
    infinity = tf.constant(np.inf, start.nu.dtype)

    def body(sweep, refused, error, nu, tau, m, s):  # type: ignore[no-untyped-def]
        sites, more = one_pass(Sites(nu, tau))
        evaluation = evaluate(sites)
        return (
            sweep + 1,
            refused + more,
            # Beside an improper cavity there is no target to be near to.
            tf.where(evaluation.proper, residual(sites, evaluation), infinity),
            *sites,
            *evaluation.marginals,
        )

    blank = tf.zeros_like(start.nu)
    sweeps, refused, error, nu, tau, m, s = tf.while_loop(
        lambda sweep, refused, error, *_: (sweep < max_sweeps) & (error >= tolerance),
        body,
        (tf.constant(0), tf.constant(0), infinity, *start, blank, blank),
        parallel_iterations=1,
    )
    info = SiteUpdateInfo(sweeps, error, error < tolerance, refused, tf.constant(0))
    return Sites(nu, tau), Marginals(m, s), info
