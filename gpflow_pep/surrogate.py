r"""The exact regression problem whose posterior and evidence are those of Power EP.

Bui, Yan & Turner (2017), appendix H, corrected. M surrogate observations of each latent function,
:math:`\tilde y = W u + \epsilon` with :math:`\epsilon \sim N(0, I)`, where

.. math::

    Wᵀ W = S^{-1} - K_{uu}^{-1}, \qquad Wᵀ \tilde y = S^{-1} m

(the paper prints the first difference the other way round). In the whitened coordinates
:math:`u = L v` the right sides are G and b, what all sites add to the prior; with
:math:`G = U \Lambda Uᵀ` that is :math:`W = \Lambda^{1/2} Uᵀ L^{-1}` and
:math:`\tilde y = \Lambda^{-1/2} Uᵀ b`.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes


class SurrogateRegression(NamedTuple):
    r"""Observations :math:`\tilde y = W u + \epsilon` with :math:`\epsilon \sim N(0, I)`."""

    weights: tf.Tensor
    """[L, M, M], W of each latent function. A row of zeros is an observation that says nothing."""

    targets: tf.Tensor
    r"""[L, M], :math:`\tilde y`."""

    log_constant: tf.Tensor
    r"""[], :math:`\log Z - \sum_l \log N(\tilde y_l; 0, W_l K_{uu,l} W_lᵀ + I)`. To have none,
    multiply weights, targets and the noise's standard deviation by its exponential to the power
    :math:`-1 / (L M)`: that changes the evidence, and not the posterior."""


class SurrogateRows(NamedTuple):
    """The surrogate observations of one latent function."""

    weights: tf.Tensor
    """[M, M]."""

    targets: tf.Tensor
    """[M]."""

    log_evidence: tf.Tensor
    """[], the density of the targets."""

    smallest: tf.Tensor
    """[], the smallest eigenvalue of G in units of the largest. Where it is negative beyond
    rounding, G is no sum of observations and nothing else here means anything."""


@check_shapes(
    "W: [M, M]",
    "gram: [M, M]",
    "moment: [M, 1]",
    "return.weights: [M, M]",
    "return.targets: [M]",
    "return.log_evidence: []",
    "return.smallest: []",
)
def surrogate_rows(W: tf.Tensor, gram: tf.Tensor, moment: tf.Tensor) -> SurrogateRows:
    """
    Take apart what the sites add to the prior of one latent function into M observations.

    :param W: Inverse Cholesky factor of Kuu.
    :param gram: G, positive semi-definite.
    :param moment: b, in the range of G.
    """
    values, vectors = tf.linalg.eigh(gram)
    largest = tf.reduce_max(tf.abs(values))
    rounding = np.finfo(gram.dtype.as_numpy_dtype).eps * gram.shape[0]
    known = values > rounding * largest
    root = tf.sqrt(tf.where(known, values, tf.ones_like(values)))
    along = tf.matmul(vectors, moment, transpose_a=True)[:, 0]
    targets = tf.where(known, along / root, tf.zeros_like(root))
    scaled = tf.where(known, root, tf.zeros_like(root))[:, None] * tf.transpose(vectors)
    variance = 1.0 + tf.where(known, values, tf.zeros_like(values))
    log_density = -0.5 * (tf.math.log(2.0 * np.pi * variance) + tf.square(targets) / variance)
    smallest = tf.reduce_min(values) / tf.maximum(largest, tf.ones_like(largest))
    return SurrogateRows(tf.matmul(scaled, W), targets, tf.reduce_sum(log_density), smallest)
