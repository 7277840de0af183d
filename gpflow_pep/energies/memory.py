r"""The factor that a memory is, made from a model and put into another one.

A memory (:mod:`gpflow_pep.sites.memory`) is the Gaussian factor
:math:`\exp(c + hᵀ (f(Z') - m') - \tfrac12 |W (f(Z') - m')|^2)` of f at earlier inducing points Z'.
Power EP takes it as it takes a block of rows with Gaussian noise (Bui, Yan & Turner 2017, section
3.6), here in a form that needs no targets. Let A be the projection of Z' on the present inducing
variables with the present kernel, :math:`C = K(Z', Z') - Aᵀ A` what these do not see of it,
:math:`\delta = m(Z') - m'` and :math:`g = h - Wᵀ W \delta`. With :math:`D = W C Wᵀ`,
:math:`P = (I + \alpha D)^{-1}` and :math:`e = W C g` it adds

.. math::

    A Wᵀ P W Aᵀ \text{ to } G, \qquad A (g - \alpha Wᵀ P e) \text{ to } b, \qquad
    c + hᵀ \delta - \tfrac12 |W \delta|^2 + \tfrac{\alpha}{2} gᵀ C g
    - \tfrac{\alpha^2}{2} eᵀ P e - \tfrac{1}{2 \alpha} \log|I + \alpha D| \text{ to } \log Z.

At :math:`\alpha = 0` that is :math:`A Wᵀ W Aᵀ`, :math:`A g`, and the trace of D in the place of the
logarithm: for Gaussian rows log Z is then the collapsed bound of Bui, Nguyen & Turner (2017), plus
the old log Z. Where neither prior nor inducing points change, C = 0 and nothing is lost, whatever
:math:`\alpha` is. Where g and W are those of exact observations, :func:`block_sums
<gpflow_pep.energies.collapsed.block_sums>` of these is the same.
"""

import tensorflow as tf
from check_shapes import check_shapes

from ..covariances import Projection
from ..ops.linalg import gram
from ..ops.power import log1p_over_power
from ..sites.memory import Memory, MemoryTerms
from ..sites.posterior import Natural, PosteriorFactor, log_root, posterior_factor
from ..sites.surrogate import informed_directions


@check_shapes(
    "W: [broadcast L, M, M]",
    "natural.G: [broadcast L, M, M]",
    "natural.b: [L, M, 1]",
    "log_z: []",
    "Z: [broadcast L, M, D]",
    "mean: [broadcast L, M]",
)
def memory_of(
    W: tf.Tensor, natural: Natural, log_z: tf.Tensor, Z: tf.Tensor, mean: tf.Tensor
) -> Memory:
    """
    Make a factor of f at the inducing points of what all rows say; a constant.

    :raises ValueError: If the rows leave some direction less certain than the prior, see
        :func:`~gpflow_pep.sites.surrogate.informed_directions`.
    """
    values, vectors = informed_directions(natural.G, "remember")
    root = tf.sqrt(tf.nn.relu(values))[..., None] * tf.linalg.matrix_transpose(vectors)
    first = tf.matmul(W, natural.b, transpose_a=True)[..., 0]
    constant = log_z - _prior_terms(posterior_factor(natural))
    parts = Z, tf.matmul(root, W), first, mean + tf.zeros_like(first), constant
    return Memory(*map(tf.stop_gradient, parts))


@check_shapes(
    "memory.Z: [broadcast K, R, D]",
    "memory.weights: [broadcast K, S, R]",
    "memory.first: [L, R]",
    "memory.mean: [L, R]",
    "memory.log_constant: []",
    "projection.A: [broadcast K, M, R]",
    "projection.D: [broadcast K, R, R]",
    "mean: [broadcast L, R]",
    "alpha: []",
    "return.natural.G: [K, M, M]",
    "return.natural.b: [L, M, 1]",
    "return.log_scale: []",
)
def memory_terms(
    memory: Memory, projection: Projection, mean: tf.Tensor, alpha: tf.Tensor
) -> MemoryTerms:
    """
    Compute what a memory adds to the prior and to log Z, see this module.

    :param projection: Of its inducing points, see
        :func:`~gpflow_pep.covariances.points.project_points`.
    """
    W, (A, C) = memory.weights, projection
    delta, h = (mean - memory.mean)[..., None], memory.first[..., None]  # [L, R, 1]
    W_delta = tf.matmul(W, delta)
    g = h - tf.matmul(W, W_delta, transpose_a=True)
    Cg = tf.matmul(C, g)
    D = tf.matmul(tf.matmul(W, C), W, transpose_b=True)  # [K, S, S]
    cholesky = tf.linalg.cholesky(alpha * D + tf.eye(tf.shape(D)[-1], dtype=D.dtype))
    whitened = tf.linalg.triangular_solve(cholesky, W + tf.zeros_like(D[..., :1]))
    e = tf.matmul(whitened, Cg)
    first = tf.matmul(A, g - alpha * tf.matmul(whitened, e, transpose_a=True))
    seen = tf.matmul(A, whitened, transpose_b=True)
    values = tf.nn.relu(tf.linalg.eigvalsh(D))  # rounding can make them negative
    logdet = tf.reduce_sum(log1p_over_power(values, alpha), axis=-1)
    log_scale = (
        memory.log_constant
        + tf.reduce_sum(h * delta + 0.5 * alpha * g * Cg)
        - 0.5 * tf.reduce_sum(tf.square(W_delta))
        - 0.5 * tf.reduce_sum(tf.square(alpha * e))
        - 0.5 * tf.reduce_sum(logdet + tf.zeros_like(g[:, 0, 0]))
    )
    return MemoryTerms(Natural(gram(seen, tf.ones([1, 1], seen.dtype)), first), log_scale)


def _prior_terms(q: PosteriorFactor) -> tf.Tensor:
    r"""Compute :math:`\sum_l -\tfrac12 \log|B_l| + \tfrac12 b_lᵀ B_l^{-1} b_l`."""
    return 0.5 * tf.reduce_sum(tf.square(q.c)) - log_root(q)
