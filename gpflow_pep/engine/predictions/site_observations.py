"""Rows of any likelihood as observations with Gaussian noise, for predictions from near rows."""

import tensorflow as tf
from check_shapes import check_shapes

from ..prior import Parts
from ..sites.groups import TOLERANCE, GroupRows, gaussian_observations


@check_shapes(
    "X: [G, S, D]",
    "Y: [G, S, 1]",
    "alpha: [broadcast G, broadcast S]",
    "prior_mean: [G, S, 1]",
    "covariance: [G, S, S]",
    "return[0]: [G, S, 1]",
    "return[1]: [G, S]",
)
def observe_by_sites(
    parts: Parts,
    X: tf.Tensor,
    Y: tf.Tensor,
    alpha: tf.Tensor,
    prior_mean: tf.Tensor,
    covariance: tf.Tensor,
    tolerance: float = TOLERANCE,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Compute targets less the mean function, and noise variances, of the Gaussian observations that
    rows of any likelihood count as, in groups. The prior mean is that of f less the mean function.
    """
    flat = tf.reshape(X, [-1, X.shape[2]])
    mean = tf.reshape(parts.mean(flat) + tf.zeros_like(flat[:, :1]), tf.shape(Y))
    rows = GroupRows(X, Y, alpha, (mean + prior_mean)[..., 0], covariance)
    targets, variance = gaussian_observations(parts.likelihood, rows, tolerance)
    return targets - mean, variance
