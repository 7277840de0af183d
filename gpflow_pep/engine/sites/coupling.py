r"""One step of the means of all latent functions, for likelihoods that ignore their
level.

RobustMax and softmax do not change if the same number is added to all latent functions
of a row. But a site for each latent function holds this level fixed, so that the means
creep if sweeps move one function after another. Here sites are stored as

.. math::

    (\lambda, \tau) \quad\text{with}\quad \nu = \tau m + \lambda,

where the mean of v is :math:`w = A \lambda`, without a solve and for any :math:`\tau`.
At the fixed point :math:`\lambda = \delta_1`. Newton's step towards it, for fixed
precisions, needs the derivative of :math:`\delta_1` in the means of all latent
functions of a row, a matrix [L, L] whose rows sum to zero because the likelihood
ignores the level. It is replaced by

.. math::

    -W_n, \qquad W_n = \mathrm{diag}(t) - \frac{t tᵀ}{\sum_l t_l},
    \qquad t = \max(\tau^*, 0),

which has the same null vector, is positive semi-definite and needs only the target
precisions :math:`\tau^*` of the sites. With
:math:`g = \delta_1 - \lambda - W [\alpha s^{-} (\lambda - \delta_1)]`,

.. math::

    \Big(I + \sum_n A_n W_n A_nᵀ\Big) \Delta w = A g, \qquad
    \Delta\lambda = g - W Aᵀ \Delta w .

With a diagonal W this is the plain step of :mod:`gpflow_pep.engine.sites.sweep` in
these coordinates. The fixed point, the energy and the residual do not depend on W.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from ..numerics import chunks
from ..numerics.linalg import gram, identity_like, lower_matmul, on_columns
from .posterior import PosteriorFactor, SiteProblem

#: The step is computed with a Cholesky factor up to this number of unknowns M L, and
#: otherwise by conjugate gradients, which need the projections of the rows in memory.
#: If there is no room for them, sites move one latent function after another, as for
#: other likelihoods.
MOST_FACTORISED = 1500


class Curvature(NamedTuple):
    """W of each row, see this module."""

    t: tf.Tensor  #: [N, L]

    @classmethod
    def from_precision(cls, tau: tf.Tensor) -> "Curvature":
        """Make the curvature of the target precisions of the sites."""
        # If all are 0, W is nearly 0, and not NaN.
        return cls(tf.nn.relu(tau) + 1e-12)

    @property
    def total(self) -> tf.Tensor:
        """[N, 1]"""
        return tf.reduce_sum(self.t, axis=1, keepdims=True)

    def times(self, x: tf.Tensor) -> tf.Tensor:
        """W x of each row, [N, L]."""
        tx = self.t * x
        return tx - self.t * (tf.reduce_sum(tx, axis=1, keepdims=True) / self.total)


class CurvatureFactor(NamedTuple):
    """The factorised matrix of the steps of the means, for one curvature."""

    t: tf.Tensor  #: [N, L], the curvature.
    cholesky: tf.Tensor  #: [1, M L, M L], the Cholesky factor of the matrix.

    @classmethod
    def empty(cls, problem: SiteProblem, zeros: tf.Tensor) -> "CurvatureFactor":
        """Make zeros of the right shapes; the first sweep replaces them.

        :param zeros: [N, L], like the sites.
        """
        size = (problem.W.shape[1] or tf.shape(problem.W)[1]) * zeros.shape[1]
        return cls(zeros, tf.zeros([1, size, size], zeros.dtype))

    def refactorised(
        self, problem: SiteProblem, curvature: Curvature
    ) -> "CurvatureFactor":
        """Factorise anew, unless this curvature is close to the new one: an old factor
        changes the path, but not its end.
        """
        sums = tf.reduce_sum(tf.abs(curvature.t - self.t)), tf.reduce_sum(curvature.t)
        change, size = map(tf.stop_gradient, sums)
        # A factor is used again if the curvature has changed by less than a tenth.
        return tf.cond(
            change < 0.1 * size,
            lambda: self,
            lambda: CurvatureFactor(
                curvature.t, tf.linalg.cholesky(_matrix(problem, curvature.t))
            ),
        )


def mean_step(
    problem: SiteProblem,
    curvature: Curvature,
    g: tf.Tensor,
    q: PosteriorFactor,
    factor: CurvatureFactor | tuple[()] = (),
) -> tf.Tensor:
    r"""Compute the step of the means, :math:`Aᵀ \Delta w`, [N, L].

    :param factor: The factor of the curvature; () for conjugate gradients.
    """
    if not isinstance(factor, CurvatureFactor):
        return on_rows(problem, _iterated(problem, curvature, g, q))
    right = _sum(problem, _project, g)
    flat = tf.reshape(right, [1, -1, 1])
    step = tf.linalg.cholesky_solve(factor.cholesky, flat)
    return on_rows(problem, tf.reshape(step, tf.shape(right)))


def on_rows(problem: SiteProblem, w: tf.Tensor) -> tf.Tensor:
    """Compute :math:`Aᵀ w` of all rows, [N, L]."""

    def chunk_terms(piece: Any) -> tf.Tensor:
        (X, _), projection = piece
        A = problem.project(X, projection).A
        return tf.transpose(on_columns(A, w))

    return chunks.map_over_chunks(chunk_terms, problem.pieces(()))


def _sum(problem: SiteProblem, function: Callable[..., Any], *rows: tf.Tensor) -> Any:
    """Sum over all rows a function of A [broadcast L, M, n] and of values [n, L] of the
    same rows.
    """

    def chunk_terms(piece: Any) -> Any:
        (X, rows), projection = piece
        return function(problem.project(X, projection).A, *rows)

    sums = chunks.added_up(chunk_terms, problem.pieces(rows))
    return tf.nest.map_structure(tf.stop_gradient, sums)


def _project(A: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Compute A x, [L, M, 1], of x [n, L]."""
    return tf.matmul(A, tf.transpose(x)[..., None])


def _matrix(problem: SiteProblem, t: tf.Tensor) -> tf.Tensor:
    """Compute the whole matrix of the steps of the means, [1, M L, M L]."""

    def terms(A: tf.Tensor, t: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        within = gram(A, tf.transpose(t))
        among = A * tf.transpose(t * tf.math.rsqrt(Curvature(t).total))[:, None, :]
        flat = tf.reshape(among, [1, among.shape[0] * among.shape[1], -1])
        return within, gram(flat)

    within, among = _sum(problem, terms, t)
    within += identity_like(within)
    blocks = (
        within[:, :, None, :]
        * tf.eye(within.shape[0], dtype=within.dtype)[:, None, :, None]
    )
    return tf.reshape(blocks, tf.shape(among)) - among


def _iterated(
    problem: SiteProblem, curvature: Curvature, g: tf.Tensor, q: PosteriorFactor
) -> tf.Tensor:
    r"""Solve for the step of w by conjugate gradients.

    The preconditioner is the covariance of q(v). If all latent functions share A, the
    mean of the right sides is added: for equal steps of all latent functions the matrix
    is the identity.
    """

    def times(v: tf.Tensor) -> tf.Tensor:
        def term(A: tf.Tensor, t: tf.Tensor) -> tf.Tensor:
            change = tf.transpose(on_columns(A, v))
            return _project(A, Curvature(t).times(change))

        return v + _sum(problem, term, curvature.t)

    def precondition(r: tf.Tensor) -> tf.Tensor:
        within = tf.matmul(q.W, lower_matmul(q.W, r), transpose_a=True)
        if problem.W.shape[0] > 1:
            return within
        return within + tf.reduce_mean(r, axis=0, keepdims=True)

    def inner(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(a * b)

    right = _sum(problem, _project, g)
    z = precondition(right)
    size = inner(right, z)

    def body(
        x: tf.Tensor, r: tf.Tensor, p: tf.Tensor, rz: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        Kp = times(p)
        along = rz / inner(p, Kp)
        x = x + along * p
        r = r - along * Kp
        z = precondition(r)
        new = inner(r, z)
        return x, r, z + (new / rz) * p, new

    # Less accurate steps cycled at long lengthscales.
    step, *_ = tf.while_loop(
        lambda x, r, p, rz: rz > 1e-5**2 * size,
        body,
        (tf.zeros_like(right), right, z, size),
        maximum_iterations=200,
        parallel_iterations=1,
    )
    return step


def within_trust(change: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """Compute the fraction of a step of the means that may be taken, [].

    :param v: The variances of f, [N, L].
    """
    # A variance is 0 where the kernel is 0, such as a linear kernel at 0.
    largest = tf.reduce_max(tf.math.divide_no_nan(tf.abs(change), tf.sqrt(v)))
    # In one step no mean moves by more than three standard deviations of f, because
    # tilted integrals bend on this scale. Standard deviations of h under q are far
    # smaller if there are many rows; with them, runs took 25 instead of 16 sweeps
    # (16 000 rows of three classes, alpha .5) and 59 instead of 41 (4000, alpha 0). One
    # standard deviation of f took 23 and 67 sweeps, ten took 14 and 40.
    return tf.minimum(tf.ones_like(largest), 3.0 / largest)
