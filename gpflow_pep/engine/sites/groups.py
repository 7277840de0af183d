r"""
Power EP in small groups of rows, each with its own Gaussian prior and without inducing
variables.

For each group of S rows, whose f has a Gaussian prior of mean :math:`\mu` and
covariance C, each row's likelihood is replaced by a site
:math:`\exp(\nu f - \tau f^2 / 2)`. All sites of all groups are updated at once, with
cavities and tilted moments as in :doc:`/theory`. Precisions stay at least 0, so that no
cavity is improper. For Gaussian noise the first sweep is exact. If likelihoods are not
log-concave, or the prior variance is very large, sites may not converge; predictions
then give a warning.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.likelihoods import Likelihood

from ..factors import tilted_derivatives
from ..numerics.linalg import warn
from ..numerics.tapes import without_gradient
from .posterior import Sites
from .record import ConvergenceWarning

#: Sweeps end when no mean moves by more than this number of standard deviations, and
#: after at most this number of sweeps. Training needs less accuracy.
TOLERANCE = 1e-4
TRAINING_TOLERANCE = 0.03
MAX_SWEEPS = 30
_NOT_SETTLED = (
    "The sites of some near rows did not converge: predictions from these may be less"
    " accurate. Likely causes are a likelihood that is not log-concave, such as"
    " Student-t, and a kernel with a very large variance. near=0 predicts from the"
    " inducing points alone, and with fewer near rows the sites converge sooner."
)


class GroupRows(NamedTuple):
    """Rows in G groups of S, and the prior of f at these rows."""

    X: tf.Tensor  #: [G, S, D].
    Y: tf.Tensor  #: [G, S, 1].
    alpha: tf.Tensor  #: [G, S], the powers of the sites; or [1, 1], one for all.
    mean: tf.Tensor  #: [G, S], of the prior of f.
    covariance: tf.Tensor  #: [G, S, S].


@check_shapes(
    "sites.nu: [G, S]", "sites.tau: [G, S]", "return[0]: [G, S]", "return[1]: [G, S]"
)
def _group_marginals(rows: GroupRows, sites: Sites) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute mean and variance of f at each row, under the prior of its group and all
    sites.
    """
    C = rows.covariance
    s = tf.sqrt(sites.tau)
    B = tf.linalg.diag(tf.ones_like(s)) + s[..., None] * C * s[:, None]
    V = tf.linalg.triangular_solve(tf.linalg.cholesky(B), s[..., None] * C)
    residual = sites.nu - sites.tau * rows.mean
    gain = tf.linalg.matvec(C, residual)
    gain -= tf.linalg.matvec(V, tf.linalg.matvec(V, residual), transpose_a=True)
    return rows.mean + gain, tf.linalg.diag_part(C) - tf.reduce_sum(
        tf.square(V), axis=1
    )


def _group_targets(likelihood: Likelihood, rows: GroupRows, sites: Sites) -> Sites:
    """Compute the sites that match the tilted moments at the cavities of the present
    sites.
    """
    m, v = _group_marginals(rows, sites)
    alpha = rows.alpha
    tiny = tf.constant(np.finfo(m.dtype.as_numpy_dtype).tiny, m.dtype)
    remaining = tf.maximum(1.0 - alpha * sites.tau * v, tf.constant(1e-12, m.dtype))
    v_c = tf.maximum(v, tiny) / remaining
    m_c = (m - alpha * v * sites.nu) / remaining
    flat = [tf.reshape(values, [-1, 1]) for values in (m_c, v_c)]
    X, Y = (tf.reshape(values, [-1, values.shape[2]]) for values in (rows.X, rows.Y))
    tilted = tilted_derivatives(likelihood, X, *flat, Y, tf.reshape(alpha, [-1]))
    delta1, delta2 = (tf.reshape(values, tf.shape(m)) for values in tilted[1:])
    # A precision below 0 is set to 0.
    shrinks = tf.minimum(delta2, tf.zeros_like(delta2))
    scale = 1.0 / (1.0 + alpha * shrinks * v_c)
    return Sites(scale * (delta1 - shrinks * m_c), -scale * shrinks)


def infer_groups(
    likelihood: Likelihood,
    rows: GroupRows,
    tolerance: float = TOLERANCE,
    max_sweeps: int = MAX_SWEEPS,
) -> Sites:
    """Bring the sites of all groups, [G, S] of precisions at least 0, to their fixed
    point.

    If the last sweep still moves a mean by more than :data:`TRAINING_TOLERANCE`, there
    is a :class:`~gpflow_pep.models.ConvergenceWarning`, but not in training, for which
    this tolerance is enough.

    Derivatives are computed from one further sweep that starts from constant sites.
    They are exact for Gaussian noise; for other likelihoods they lack the derivatives
    of the earlier sites.

    :param likelihood: A likelihood of one latent function and one column of targets.
    :param rows: Groups of at least one row.
    :param tolerance: Sweeps end when no site moves its mean by more than this, in
        standard deviations of f.
    :param max_sweeps: The largest number of sweeps.
    """

    def sweep(
        count: tf.Tensor, last: tf.Tensor, *sites: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        target = _group_targets(likelihood, rows, Sites(*sites))
        # A group that has converged is not changed, so its predictions do not depend on
        # other groups. From the third sweep on, sites move only a part of the way to
        # their targets.
        step = tf.where(last > tolerance, tf.where(count < 2, 1.0, 0.8), 0.0)[:, None]
        moved = [
            old + tf.cast(step, old.dtype) * (new - old)
            for old, new in zip(sites, target)
        ]
        deviation = tf.sqrt(tf.linalg.diag_part(rows.covariance))
        change = [tf.abs(new - old) for old, new in zip(sites, moved)]
        largest = tf.maximum(deviation * change[0], deviation**2 * change[1])
        largest = tf.reduce_max(largest / (1.0 + deviation**2 * moved[1]), axis=1)
        return count + 1, tf.where(last > tolerance, largest, last), *moved

    def run() -> Sites:
        none = tf.zeros_like(rows.mean)
        start = (
            tf.constant(0),
            tf.fill(tf.shape(none)[:1], tf.constant(np.inf, none.dtype)),
            none,
        )
        _, last, *sites = tf.while_loop(
            lambda count, last, *_: tf.reduce_any(last > tolerance),
            sweep,
            (*start, none),
            maximum_iterations=max_sweeps,
        )
        if tolerance < TRAINING_TOLERANCE:
            largest = tf.reduce_max(last)
            numbers = {"In standard deviations, the last sweep moved one by": largest}
            warn(
                ConvergenceWarning, largest > TRAINING_TOLERANCE, _NOT_SETTLED, numbers
            )
        return Sites(*sites)

    return _group_targets(likelihood, rows, without_gradient(run))


@check_shapes("return[0]: [G, S, 1]", "return[1]: [G, S]")
def gaussian_observations(
    likelihood: Likelihood, rows: GroupRows, tolerance: float = TOLERANCE
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Compute observations with Gaussian noise that equal the sites of
    :func:`infer_groups`.

    :return: Targets :math:`\nu / \tau`, and variances :math:`1 / \tau`.
    """
    sites = infer_groups(likelihood, rows, tolerance)
    # Smaller precisions, in units of the prior's, are replaced by this one.
    tau = tf.maximum(sites.tau, 1e-10 / tf.linalg.diag_part(rows.covariance))
    return (sites.nu / tau)[..., None], 1.0 / tau
