r"""The summary of rows that are forgotten: one Gaussian factor of f at the inducing
points.

For any likelihood, the information that Power EP has from the rows is Gaussian: the
posterior of u divided by its prior, as a function of f at the inducing points Z of each
latent function

.. math:: t(f) = \exp(c + hᵀ (f(Z) - m) - \tfrac12 |W (f(Z) - m)|^2)

with m the mean function at Z, W and h by :doc:`/streaming`, and c such that the
integral of the factor under the prior is the evidence. W is the same as in
:mod:`gpflow_pep.engine.sites.surrogate`, whose targets y have :math:`Wᵀ \tilde y = h`;
h itself loses nothing in directions with little information. The size is M², for any
number of rows and of earlier memories.

Another model, in which the points are called Z' and their mean m', uses the memory as a
block of rows with Gaussian noise (Bui, Yan & Turner 2017, section 3.6), in a form that
does not need targets. Let A be the projection of Z' on the present inducing variables
with the present kernel, :math:`C = K(Z', Z') - Aᵀ A`, :math:`\delta = m(Z') - m'` and
:math:`g = h - Wᵀ W \delta`. With :math:`D = W C Wᵀ`, :math:`P = (I + \alpha D)^{-1}`
and :math:`e = W C g` it adds

.. math::

    & A Wᵀ P W Aᵀ \text{ to } G, \qquad A (g - \alpha Wᵀ P e) \text{ to } b, \\
    & c + hᵀ \delta - \tfrac12 |W \delta|^2 + \tfrac{\alpha}{2} gᵀ C g
    - \tfrac{\alpha^2}{2} eᵀ P e
    - \tfrac{1}{2 \alpha} \log|I + \alpha D| \text{ to } \log Z.

If neither prior nor inducing points change, C = 0 and nothing is lost for any
:math:`\alpha`. If g and W belong to exact observations, the terms are the same as those
of :func:`~gpflow_pep.engine.energies.collapsed.sum_blocks` for these observations.
"""

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from ..numerics.linalg import gram
from ..numerics.power import log1p_over_power
from ..prior import Projection
from .posterior import MemoryTerms, Natural, log_root, posterior_factor
from .surrogate import informed_directions


class Memory(NamedTuple):
    r"""A factor of f at inducing points, which replaces rows that are forgotten.

    The fields are tensors or NumPy arrays. ``numpy.savez(path, **memory._asdict())``
    saves a memory whose ``alpha`` is not None.
    """

    Z: TensorType
    """The inducing points, [K, M, D]. K is 1 if all latent functions share them,
    otherwise L.
    """
    weights: TensorType
    """The weights W, [K, R, M]. K is 1 or L, and may differ from the K of Z.
    ``remember`` makes R = M.
    """
    first: TensorType  #: [L, M], h.
    mean: TensorType  #: [L, M], m.
    log_constant: TensorType
    r"""The sum :math:`\sum_l c_l`, []: the log evidence minus the logarithms of the
    factor's integrals.
    """
    alpha: float | None = None
    """The power of the memory as a factor, in [0, 1]; None uses the power of the model
    that gets it.
    """


def memory_of(
    W: tf.Tensor, natural: Natural, log_z: tf.Tensor, Z: tf.Tensor, mean: tf.Tensor
) -> Memory:
    """Summarise all rows in a factor of f at the inducing points, which is a constant.

    :raises ValueError: If the rows leave some direction less certain than the prior;
        see :func:`~gpflow_pep.engine.sites.surrogate.informed_directions`.
    """
    values, vectors = informed_directions(natural.G, "remember")
    root = tf.sqrt(tf.nn.relu(values))[..., None] * tf.linalg.matrix_transpose(vectors)
    first = tf.matmul(W, natural.b, transpose_a=True)[..., 0]
    q = posterior_factor(natural)
    constant = log_z - (0.5 * tf.reduce_sum(tf.square(q.c)) - log_root(q))
    parts = Z, tf.matmul(root, W), first, mean + tf.zeros_like(first), constant
    return Memory(*map(tf.stop_gradient, parts))


def memory_terms(
    memory: Memory, projection: Projection, mean: tf.Tensor, alpha: tf.Tensor
) -> MemoryTerms:
    """Compute the contribution of a memory to the natural parameters and to log Z; see
    this module.

    :param projection: The projection of its inducing points; see
        :func:`~gpflow_pep.engine.prior.evaluate.project_points`.
    """
    W, (A, C, _) = memory.weights, projection
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
    # Pivots of I + alpha D, less 1 and over alpha: they are smooth in D, which may be
    # 0.
    below = tf.square(cholesky - tf.linalg.band_part(cholesky, 0, 0))
    pivots = tf.linalg.diag_part(D) - tf.math.divide_no_nan(
        tf.reduce_sum(below, axis=-1), alpha
    )
    logdet = tf.reduce_sum(log1p_over_power(pivots, alpha), axis=-1)
    log_scale = (
        memory.log_constant
        + tf.reduce_sum(h * delta + 0.5 * alpha * g * Cg)
        - 0.5 * tf.reduce_sum(tf.square(W_delta))
        - 0.5 * tf.reduce_sum(tf.square(alpha * e))
        - 0.5 * tf.reduce_sum(logdet + tf.zeros_like(g[:, 0, 0]))
    )
    return MemoryTerms(Natural(gram(seen), first), log_scale)
