r"""The Power EP energy with a site for each row, for any likelihood.

Bui, Yan & Turner (2017), equation (8), with every difference of normalisers reduced to the one
direction :math:`h_n` that the site of row n sees:

.. math::

    \log Z = \sum_l [ -\tfrac12 \log|B_l| + \tfrac12 b_lᵀ B_l^{-1} b_l ]
        + \sum_n \ell_n
        + \sum_{nl} \Big[ \frac{\alpha \nu^2 s + \tau m^2 - 2 \nu m}{2 e}
        - \frac{1}{2 \alpha} \log(1 - \alpha \tau s) \Big]_{nl}

with :math:`B = I + A \,\mathrm{diag}(\tau) Aᵀ`, :math:`b = A \nu`, and :math:`\ell_n` the tilted
integral at the cavity. Nothing in it divides by :math:`\alpha` or by s.

At a fixed point it is stationary in the sites, and in the marginals (m, s) too: the derivative of
the second and third sum in the natural parameters of a marginal is 1 / alpha times the difference
of the moments of tilted distribution and q, which is zero there. So the gradient in kernel,
likelihood and inducing parameters is that of the first sum and of :math:`\ell_n` through the
residual variance, mean function and likelihood, with sites and cavities held fixed. The sweep that
ended the inner loop has computed all that these need: :math:`\ell_n` with
:math:`\partial \ell / \partial m = \delta_1` and
:math:`\partial \ell / \partial v = \tfrac12 (\delta_2 + \alpha \delta_1^2)`, and q(v) of mean w,
with which the first sum has the derivative

.. math::

    \frac{\partial}{\partial A_{nl}} = \nu_{nl} w_l - \tau_{nl} (B_l^{-1} + w_l w_lᵀ) A_{nl} .

With a scaled conditional (:mod:`gpflow_pep.inference.conditional`) the energy is stationary in the
scales as well, or they are 1: they are held fixed too.
"""

from typing import Any

import tensorflow as tf
from check_shapes import check_shapes

from .. import checks
from ..covariances import Projection, evaluate
from ..inference.conditional import conditional_scale
from ..inference.posterior import Marginals, PosteriorFactor, Sites, cavity
from ..inference.problem import SiteProblem
from ..inference.record import FixedPoint
from ..ops import chunks
from ..ops.power import log1p_ratio
from ..tilted import log_power_expectation

#: Matrices of size M x N that automatic differentiation keeps: Kuf twice (its exponential and its
#: product with the variance), A, and the derivative in A.
KEPT_MATRICES = 4


def energy(problem: SiteProblem, found: FixedPoint, scale: float = 1.0) -> tf.Tensor:
    """
    Compute the energy of some rows, see this module.

    :param problem: The rows.
    :param found: Their sites with what belongs to them, constant for differentiation. Where other
        rows have sites in q too, these stand for a part of all.
    :param scale: How many rows each of these stands for.
    """
    q, (ell, delta1, delta2) = found.extra
    w = q.w
    H = tf.matmul(q.W, q.W, transpose_a=True) + tf.matmul(w, w, transpose_b=True)
    power = problem.alpha[:, None]
    by_variance = 0.5 * (delta2 + power * tf.square(delta1))
    left = cavity(found.marginals, found.sites, power)
    # A likelihood without parameters to train need not be asked again.
    trained = bool(getattr(problem.likelihood, "trainable_variables", ()))

    def of_chunk(piece: Any, W: tf.Tensor, *kept: tf.Tensor) -> tf.Tensor:
        """Compute something that has the derivatives of what the rows contribute."""
        X, (sites, delta1, by_variance, m, s, Y, alpha) = piece
        A, D = Projection(*kept) if kept else problem.project(W, X)
        d, mean = tf.transpose(D), evaluate.mean(problem.mean_function, X)
        if problem.scaled:
            d *= tf.stop_gradient(conditional_scale(d, sites.tau, alpha[:, None]))
        nu, tau = (tf.transpose(part)[:, None, :] for part in sites)
        by_A = tf.stop_gradient(nu * w - tau * tf.matmul(H, A))
        change = tf.reduce_sum(by_A * A) + tf.reduce_sum(delta1 * mean + by_variance * d)
        if trained:
            moments = (tf.stop_gradient(m + mean), tf.stop_gradient(s + d))
            change += tf.reduce_sum(
                log_power_expectation(problem.likelihood, X, *moments, Y, alpha)
            )
        return change

    rows = found.sites, delta1, by_variance, left.m, left.s, problem.Y, problem.alpha
    chunk_size, keep = problem.plan(KEPT_MATRICES)
    change = chunks.sum_over_chunks(
        of_chunk,
        chunks.row_chunks((problem.X, rows), problem.X.shape[0] if problem.kept else chunk_size),
        (problem.W, *(problem.kept or ())),
        keep=keep,
        reduction=problem.reduction,
    )
    terms = tf.reduce_sum(ell) + site_terms(found.marginals, found.sites, left.e, power)
    (terms,) = problem.reduction.total([tf.stop_gradient(terms)])
    value = prior_terms(q) + scale * (terms + _zero(change))
    if problem.memory is None:
        return value
    (G, b), log_scale = problem.memory
    return value + log_scale + _zero(tf.reduce_sum(w * b) - 0.5 * tf.reduce_sum(H * G))


def leave_one_out(problem: SiteProblem, found: FixedPoint) -> tf.Tensor:
    r"""
    Compute :math:`\log p(y_n | y_{-n})` of each row, [N], with the row's whole site removed.

    :param problem: The rows.
    :param found: Their sites with what belongs to them.
    :raises ValueError: If a cavity is improper then.
    """
    one = tf.ones([1, 1], problem.X.dtype)
    without = cavity(found.marginals, found.sites, one)
    checks.require_finite(
        tf.where(without.e > 0.0, one, one / 0.0),
        "leave-one-out cavity variance",
        "A site is too precise to be removed; use a smaller alpha, or more inducing variables.",
    )

    def log_density(piece: Any) -> tf.Tensor:
        (X, (Y, m, s)), _ = piece
        variance = s + tf.transpose(problem.project(problem.W, X).D)
        mean = m + evaluate.mean(problem.mean_function, X)
        return log_power_expectation(problem.likelihood, X, mean, variance, Y, one[0])

    rows = problem.Y, without.m, without.s
    return chunks.map_over_chunks(log_density, problem.pieces(rows))


def _zero(value: tf.Tensor) -> tf.Tensor:
    """0 with the derivatives of the value."""
    return value - tf.stop_gradient(value)


@check_shapes(
    "q.c: [L, M, 1]",
    "q.half_logdet: [broadcast L]",
    "return: []",
)
def prior_terms(q: PosteriorFactor) -> tf.Tensor:
    r"""
    Compute :math:`\sum_l -\tfrac12 \log|B_l| + \tfrac12 b_lᵀ B_l^{-1} b_l`.

    :param q: q(v).
    """
    logdets = q.half_logdet + tf.zeros_like(q.c[:, 0, 0])
    return 0.5 * tf.reduce_sum(tf.square(q.c)) - tf.reduce_sum(logdets)


@check_shapes(
    "q.m: [N, L]",
    "q.s: [N, L]",
    "sites.nu: [N, L]",
    "sites.tau: [N, L]",
    "e: [N, L]",
    "alpha: [broadcast N, 1]",
    "return: []",
)
def site_terms(q: Marginals, sites: Sites, e: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """
    Compute the third sum of the energy, see this module.

    :param q: Moments of h under q.
    :param sites: The sites in q.
    :param e: Of their cavities, positive.
    :param alpha: The power of each row.
    """
    (m, s), (nu, tau) = q, sites
    quadratic = (alpha * tf.square(nu) * s + tau * tf.square(m) - 2.0 * nu * m) / e
    return 0.5 * tf.reduce_sum(quadratic - log1p_ratio(-tau * s, alpha))
