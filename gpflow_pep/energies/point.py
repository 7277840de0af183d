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
residual variance, mean function and likelihood, with sites and cavities held fixed: one pass over
the rows that costs what regression costs. The sweep that ended the inner loop has computed
:math:`\ell_n` with :math:`\partial \ell / \partial m = \delta_1` and
:math:`\partial \ell / \partial v = \tfrac12 (\delta_2 + \alpha \delta_1^2)` already.
"""

from typing import Any

import tensorflow as tf
from check_shapes import check_shapes

from .. import checks
from ..covariances import evaluate
from ..inference.memory import and_memory
from ..inference.posterior import Marginals, Natural, Sites, cavity, posterior_factor
from ..inference.problem import SiteProblem, sites_of_rows
from ..inference.record import FixedPoint
from ..ops import chunks
from ..ops.power import log1p_ratio
from ..tilted import log_power_expectation

#: Matrices of size M x N that automatic differentiation keeps: Kuf twice (its exponential and its
#: product with the variance), A, and A times the sites' precisions.
_KEPT_MATRICES = 4


def energy(
    problem: SiteProblem,
    found: FixedPoint,
    totals: Natural | None = None,
    scale: float = 1.0,
) -> tf.Tensor:
    """
    Compute the energy of some rows, see this module.

    With totals, those of all rows take the place of what these rows add to the prior, whose terms
    and derivatives then stand for ``scale`` times as many.

    :param problem: The rows.
    :param found: Their sites with what belongs to them, constant for differentiation.
    :param totals: What all rows add to the prior, but for a memory; None: these are all.
    :param scale: How many rows each of these stands for.
    """
    ell, delta1, delta2 = found.extra
    power = problem.alpha[:, None]
    by_variance = 0.5 * (delta2 + power * tf.square(delta1))
    left = cavity(found.marginals, found.sites, power)
    # A likelihood without parameters to train need not be asked again.
    trained = bool(getattr(problem.likelihood, "trainable_variables", ()))

    def of_chunk(piece: Any, W: tf.Tensor) -> tuple[Natural, tf.Tensor]:
        X, (sites, delta1, by_variance, m, s, Y, alpha) = piece
        A, D = problem.project(W, X)
        d, mean = tf.transpose(D), evaluate.mean(problem.mean_function, X)
        change = tf.reduce_sum(delta1 * mean + by_variance * d)
        if trained:
            moments = (tf.stop_gradient(m + mean), tf.stop_gradient(s + d))
            change += tf.reduce_sum(
                log_power_expectation(problem.likelihood, X, *moments, Y, alpha)
            )
        return sites_of_rows(A, sites), change

    chunk_size, keep = problem.plan(_KEPT_MATRICES)
    rows = found.sites, delta1, by_variance, left.m, left.s, problem.Y, problem.alpha
    natural, change = chunks.sum_over_chunks(
        of_chunk,
        chunks.row_chunks((problem.X, rows), chunk_size),
        (problem.W,),
        keep=keep,
        reduction=problem.reduction,
    )
    if totals is not None:
        natural = Natural(
            *(all_rows + scale * _zero(part) for all_rows, part in zip(totals, natural))
        )
    natural = and_memory(natural, problem.memory)
    of_memory = 0.0 if problem.memory is None else problem.memory.log_scale
    terms = tf.reduce_sum(ell) + site_terms(found.marginals, found.sites, left.e, power)
    (terms,) = problem.reduction.total([tf.stop_gradient(terms)])
    return prior_terms(natural) + of_memory + scale * (terms + _zero(change))


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
    "natural.G: [broadcast L, M, M]",
    "natural.b: [L, M, 1]",
    "return: []",
)
def prior_terms(natural: Natural) -> tf.Tensor:
    r"""
    Compute :math:`\sum_l -\tfrac12 \log|I + G_l| + \tfrac12 b_lᵀ (I + G_l)^{-1} b_l`.

    :param natural: :math:`G = A \,\mathrm{diag}(\tau) Aᵀ` and :math:`b = A \nu`.
    """
    q = posterior_factor(natural)
    logdets = q.half_logdet + tf.zeros_like(natural.b[:, 0, 0])
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
