r"""The regression problem whose exact posterior and evidence equal the posterior and
evidence of Power EP.

Bui, Yan & Turner (2017), appendix H, corrected: see :doc:`/derivations`. In the
whitened coordinates :math:`u = L v` the right sides of
:math:`Wᵀ W = S^{-1} - K_{uu}^{-1}` (which the paper prints the other way round) and
:math:`Wᵀ \tilde y = S^{-1} m` are G and b, what all sites add to the prior; with
:math:`G = U \Lambda Uᵀ` this gives :math:`W = \Lambda^{1/2} Uᵀ L^{-1}` and
:math:`\tilde y = \Lambda^{-1/2} Uᵀ b`.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from .. import checks
from .posterior import Natural


class SurrogateRegression(NamedTuple):
    r"""Observations :math:`\tilde y = W u + \epsilon` with
    :math:`\epsilon \sim N(0, I)`.
    """

    weights: tf.Tensor
    """The weights W of each latent function, [L, M, M]. A row of zeros is an
    observation of precision 0.
    """
    targets: tf.Tensor  #: [L, M], :math:`\tilde y`.
    log_constant: tf.Tensor
    r"""[], :math:`\log Z - \sum_l \log N(\tilde y_l; 0, W_l K_{uu,l} W_lᵀ + I)`. To
    remove this constant, multiply weights, targets and the noise's standard deviation
    by its exponential to the power :math:`-1 / (L M)`, which changes the evidence but
    not the posterior.
    """


@check_shapes("G: [L, M, M]", "return[0]: [L, M]", "return[1]: [L, M, M]")
def informed_directions(G: tf.Tensor, quantity: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute the directions in which v is known more precisely than under the prior,
    and the precisions.

    :return: Eigenvalues, which are at least 0 apart from rounding, and eigenvectors.
    :raises ValueError: If G is not a sum of observations, because some direction has
        less precision than the prior. An observation with noise never does this.
    """
    values, vectors = tf.linalg.eigh(G)
    largest = tf.reduce_max(tf.abs(values), axis=-1, keepdims=True)
    assertions = checks.require(
        tf.reduce_all(values > -1e-6 * tf.maximum(largest, tf.ones_like(largest))),
        f"{quantity}: got sites of negative precision that leave some direction less"
        " certain than the prior, expected a likelihood whose sites all have positive"
        " precision. Use a log-concave likelihood.",
    )
    with tf.control_dependencies(assertions):
        return tf.identity(values), vectors


@check_shapes(
    "W: [broadcast L, M, M]",
    "natural.G: [broadcast L, M, M]",
    "natural.b: [L, M, 1]",
    "log_z: []",
)
def surrogate_regression(
    W: tf.Tensor, natural: Natural, log_z: tf.Tensor
) -> SurrogateRegression:
    """Convert the contribution of all sites to M observations of each latent function.

    :param natural: The contribution of all sites: G, positive semi-definite, and b in
        its range.
    :raises ValueError: See :func:`informed_directions`.
    """
    values, vectors = informed_directions(natural.G, "surrogate")
    largest = tf.reduce_max(tf.abs(values), axis=-1, keepdims=True)
    rounding = np.finfo(values.dtype.as_numpy_dtype).eps * values.shape[-1]
    known = values > rounding * largest
    zeros = tf.zeros_like(values)
    root = tf.sqrt(tf.where(known, values, zeros))
    along = tf.matmul(vectors, natural.b, transpose_a=True)[..., 0]
    targets = tf.where(known, along / tf.where(known, root, tf.ones_like(root)), zeros)
    weights = tf.matmul(root[..., None] * tf.linalg.matrix_transpose(vectors), W)
    variance = 1.0 + tf.where(known, values, zeros)
    log_density = -0.5 * (
        tf.math.log(2.0 * np.pi * variance) + tf.square(targets) / variance
    )
    return SurrogateRegression(
        weights + tf.zeros_like(natural.b), targets, log_z - tf.reduce_sum(log_density)
    )
