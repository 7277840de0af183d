r"""The Power EP energy with a site for each row, for any likelihood.

Bui, Yan & Turner (2017), equation (8), with every difference of normalisers reduced to
the one direction :math:`h_n` that the site of row n sees: see :doc:`/theory`. With the
mean :math:`w = B^{-1} b` of q(v) what is computed is

.. math::

    \log Z = \sum_l [ -\tfrac12 \log|B_l| - \tfrac12 |w_l|^2 ] + \sum_n \ell_n
        + \sum_{nl} \Big[ \frac{\alpha s (\nu - \tau m)^2}{2 e}
        - \frac{1}{2 \alpha} \log(1 - \alpha \tau s) \Big]_{nl}.

At a fixed point it is stationary in the sites. As the page prints it, its sum over rows
is stationary in the marginals (m, s) too: the derivative in the natural parameters of a
marginal is 1 / alpha times the difference of the moments of tilted distribution and q,
which is zero there. So the gradient in kernel, likelihood and inducing parameters is
that of the first two terms and of :math:`\ell_n` through the residual variance, mean
function and likelihood, with sites and cavities held fixed. The sweep that ended the
inner loop has computed all that these need: :math:`\ell_n` with
:math:`\partial \ell / \partial m = \delta_1`,
:math:`\partial \ell / \partial v = \tfrac12 (\delta_2 + \alpha \delta_1^2)` and the
derivatives in the likelihood's parameters, and w, with which the first two terms have
the derivative
:math:`\partial / \partial A_{nl}
= (\nu - \tau m)_{nl} w_l - \tau_{nl} B_l^{-1} A_{nl}`.

As the energy :math:`E(s, \theta)` is stationary in the sites, its gradient along the
fixed point is :math:`E_\theta(s^*(\theta), \theta)`. The product of its second
derivative with a vector v is then the derivative of the number
:math:`\phi = v^T E_\theta(s^*, \theta)`, by :mod:`gpflow_pep.engine.sites.implicit`:
:func:`hessian_product`, in eager mode.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from .. import checks
from ..factors import log_power_expectation
from ..numerics import chunks
from ..numerics.linalg import sum_like
from ..numerics.power import log1p_over_power
from ..numerics.tapes import own_tape, without_gradient
from ..prior import Projection
from ..sites.implicit import Converged
from ..sites.posterior import (
    Marginals,
    SiteProblem,
    Sites,
    add_memory,
    cavity,
    log_root,
    marginals,
    posterior_factor,
    sites_of_rows,
    terms_of_mean,
)
from ..sites.record import FixedPoint
from ..sites.sweep import parameters

#: Matrices of size M x N that automatic differentiation keeps: Kuf twice (its
#: exponential and its product with the variance), A, and the derivative in A.
KEPT_MATRICES = 4


def energy(
    problem: SiteProblem, fixed_point: FixedPoint, scale: float = 1.0
) -> tf.Tensor:
    """Compute the energy of some rows; see this module.

    :param fixed_point: Their sites with what belongs to them, constant for
        differentiation. Where other rows have sites in q too, these stand for a part of
        all.
    """
    q = fixed_point.extra.q
    _, delta1, delta2 = fixed_point.extra.tilted
    parts = problem.parts
    covariance = tf.matmul(q.W, q.W, transpose_a=True)
    w = q.w
    by_variance = 0.5 * (
        delta2 + tf.expand_dims(problem.rows.alpha, 1) * tf.square(delta1)
    )
    slope = fixed_point.sites.nu - fixed_point.sites.tau * fixed_point.marginals.m

    def chunk_terms(piece: Any, W: tf.Tensor, *projection: tf.Tensor) -> tf.Tensor:
        """Compute a number that has the derivatives of the contribution of the rows."""
        X, (slope, tau, delta1, by_variance) = piece
        rows = Projection(*projection) if projection else parts.project(W, X)
        d = tf.stop_gradient(tf.transpose(rows.D))
        by_d = tf.where(d > 0.0, by_variance, tf.zeros_like(by_variance))
        change = tf.reduce_sum(
            delta1 * parts.mean(X) + by_d * tf.transpose(rows.variance)
        )
        by_A = _projection_gradient_only(
            rows.A, covariance, w, tf.stack([slope, tau, by_d])
        )
        return change + by_A

    rows = slope, fixed_point.sites.tau, delta1, by_variance
    value = energy_by(chunk_terms, problem, fixed_point, rows, scale=scale)
    if problem.memory is not None:
        # It may be one for several latent functions.
        of_all = covariance + tf.zeros_like(w)
        value += problem.memory.log_scale
        value -= 0.5 * _gradient_only(tf.reduce_sum(of_all * problem.memory.natural.G))
    return checks.once_differentiable(value, "log Z")


def energy_by(
    chunk_terms: Callable[..., tf.Tensor],
    problem: SiteProblem,
    fixed_point: FixedPoint,
    rows: Any,
    shared: Sequence[tf.Tensor] = (),
    *,
    scale: float = 1.0,
) -> tf.Tensor:
    """Compute the energy of some rows, whose derivatives are those of a sum over them.

    :param chunk_terms: ``((X, rows), W, *shared, *projection)`` to what rows add to
        that sum.
    :param rows: What it needs of each row.
    :param shared: Tensors that it needs, in which it is differentiated too.
    """
    sites, (m, s), extra, _ = fixed_point
    power = tf.expand_dims(problem.rows.alpha, 1)
    chunk_size, keep_all = problem.plan(KEPT_MATRICES)
    chunk_size = chunks.ALL_ROWS if problem.projection else chunk_size
    change = chunks.sum_over_chunks(
        chunk_terms,
        chunks.row_chunks((problem.rows.X, rows), chunk_size),
        (problem.W, *shared, *(problem.projection or ())),
        keep=keep_all,
        parts=problem.parts._replace(likelihood=None),
    )
    if extra.by_parameters:
        pairs = zip(extra.by_parameters, parameters(problem), strict=True)
        by_likelihood = [
            tf.cast(tf.reduce_sum(by * v), problem.W.dtype) for by, v in pairs
        ]
        change += tf.add_n(by_likelihood)
    slope = sites.nu - sites.tau * m
    terms = tf.reduce_sum(extra.tilted.ell) + _site_terms(s, slope, sites.tau, power)
    terms = sum(tf.nest.flatten(extra.joint), terms)
    known = [] if problem.memory is None else [problem.memory.natural]
    of_mean = terms_of_mean(extra.q.w, known)
    return (
        scale * (tf.stop_gradient(terms) + _gradient_only(change))
        + of_mean
        - log_root(extra.q)
    )


def twice_differentiable(
    energy: Callable[[], tf.Tensor],
    sources: Sequence[tf.Variable],
    product: Callable[[Sequence[tf.Tensor]], list[tf.Tensor]],
) -> tf.Tensor:
    """Compute the energy, with its own gradient, whose derivatives are known in eager
    mode.

    :param energy: Computes it, with the right first derivatives.
    :param sources: The variables that it depends on.
    :param product: Multiplies its second derivative by a vector, a part for each
        source.
    :raises ValueError: While a derivative is computed that is not known: in graphs a
        second one, elsewhere a third one.
    """
    if not tf.executing_eagerly() or not sources:
        return energy()

    @tf.custom_gradient
    def value_of(*_: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        with own_tape(sources, persistent=True) as tape:
            value = energy()

        def second(*vector: tf.Tensor) -> list[tf.Tensor]:
            return without_gradient(lambda: product(vector))

        def gradient(upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            first = checks.differentiable(
                _gradients_or_zeros(tape, value, sources),
                sources,
                "the gradient of log Z",
                second,
            )
            return [upstream * part for part in first], [None] * len(variables)

        return value, gradient

    return value_of(*map(tf.convert_to_tensor, sources))


def _gradients_or_zeros(
    tape: tf.GradientTape, value: tf.Tensor, sources: Sequence[Any]
) -> list[tf.Tensor]:
    """Differentiate in each source; 0 where the value does not depend on it."""
    zero = tf.UnconnectedGradients.ZERO
    by_sources = tape.gradient(value, sources, unconnected_gradients=zero)
    return list(map(tf.convert_to_tensor, by_sources))


def _projection_gradient_only(
    A: tf.Tensor, covariance: tf.Tensor, w: tf.Tensor, rows: tf.Tensor
) -> tf.Tensor:
    r"""
    0 with the derivatives of the energy in A, those by way of :math:`d = k - |A|^2`
    among them.

    :param rows: [3, N, L]: :math:`\nu - \tau m`, :math:`\tau` and the derivative in d.
    """

    @tf.custom_gradient
    def zero(A: tf.Tensor) -> "tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]":
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            of_latents = tf.expand_dims(tf.transpose(upstream * rows, [0, 2, 1]), 2)
            first, second, third = tf.unstack(of_latents)
            by_A = first * w - second * tf.matmul(covariance, A) - (2.0 * third) * A
            return sum_like(by_A, A)

        return tf.zeros([], A.dtype), gradient

    return zero(A)


def leave_one_out(converged: Converged) -> tf.Tensor:
    r"""Compute :math:`\log p(y_n | y_{-n})` of each row, [N], with the row's whole site
    removed.

    :raises ValueError: If a cavity is improper then, or a derivative is asked for that
        is not known.
    """
    problem = converged.problem
    fixed_point = converged.fixed_point
    ones = tf.ones([1, 1], problem.W.dtype)
    without = cavity(fixed_point.marginals, fixed_point.sites, ones)
    checks.require_finite(
        tf.where(without.e > 0.0, ones, ones / 0.0),
        "leave-one-out cavity variance",
        "A site is too precise to be removed; use a smaller alpha, or more inducing"
        " variables.",
    )

    def log_density(piece: Any) -> tf.Tensor:
        (X, (Y, moments, sites)), projection = piece
        of_chunk = problem._replace(rows=problem.rows._replace(X=X, Y=Y))
        return _left_out_log_density(
            of_chunk, problem.project(X, projection), moments, sites
        )

    rows = problem.rows.Y, fixed_point.marginals, fixed_point.sites
    value = tf.stop_gradient(chunks.map_over_chunks(log_density, problem.pieces(rows)))
    return converged.rows(value, _left_out_log_density, "loo_log_density")


def _left_out_log_density(
    problem: SiteProblem, projection: Projection, moments: Marginals, sites: Sites
) -> tf.Tensor:
    r"""Compute :math:`\log p(y_n | y_{-n})` of all rows of a problem, [N], from moments
    of h.
    """
    (X, Y, _), parts = problem.rows, problem.parts
    alpha = tf.ones([1], moments.m.dtype)
    without = cavity(moments, sites, alpha[:, None])
    mean = without.m + parts.mean(X)
    variance = without.s + tf.transpose(projection.D)
    return log_power_expectation(parts.likelihood, X, mean, variance, Y, alpha)


def _gradient_only(value: tf.Tensor) -> tf.Tensor:
    """Make 0 with the derivatives of the value."""
    return value - tf.stop_gradient(value)


def _site_terms(
    s: tf.Tensor, slope: tf.Tensor, tau: tf.Tensor, alpha: tf.Tensor
) -> tf.Tensor:
    r"""Compute :math:`\tfrac12 \sum_{nl} [\alpha s (\nu - \tau m)^2 / e
    - \log(1 - \alpha \tau s) / \alpha]`.

    :param slope: :math:`\nu - \tau m`, of the log site where q has its mean; all are
        [N, L].
    """
    tau_s = tau * s
    of_slope = alpha * s * tf.square(slope) / (1.0 - alpha * tau_s)
    return 0.5 * tf.reduce_sum(of_slope - log1p_over_power(-tau_s, alpha))


def _energy_of(problem: SiteProblem, sites: Sites) -> tf.Tensor:
    """
    Compute the energy as a function of any proper sites and the parameters,
    differentiable to any order in both, in memory for several M x N matrices.
    """
    parts, (X, Y, alpha), memory = problem.parts, problem.rows, problem.memory
    A, D, _ = problem.project(X, problem.projection or ())
    q = posterior_factor(add_memory(sites_of_rows(A, sites), memory))
    m, s = marginals(A, q)
    moments = Marginals(m, s + tf.zeros_like(m))
    power = alpha[:, None]
    d = tf.transpose(D)
    of_cavity = cavity(moments, sites, power)
    mean = of_cavity.m + parts.mean(X)
    variance = of_cavity.s + d
    value = tf.reduce_sum(
        log_power_expectation(parts.likelihood, X, mean, variance, Y, alpha)
    )
    slope = sites.nu - sites.tau * m
    value += _site_terms(moments.s, slope, sites.tau, power)
    value += terms_of_mean(q.w, [] if memory is None else [memory.natural]) - log_root(
        q
    )
    return value if memory is None else value + memory.log_scale


def hessian_product(
    converged: Converged, vector: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Compute the product of the second derivative of the energy in the parameters with
    a vector, which has a part for each variable of the problem's parts.
    """
    variables = converged.problem.variables
    sites = Sites(*map(tf.identity, converged.fixed_point.sites))
    with own_tape([*sites, *variables]) as outer:
        with own_tape(variables) as inner:
            value = _energy_of(converged.rebuild(), sites)
        gradients = _gradients_or_zeros(inner, value, variables)
        along = tf.add_n(
            [tf.reduce_sum(a * b) for a, b in zip(vector, gradients, strict=True)]
        )
    by_nu, by_tau, *direct = _gradients_or_zeros(outer, along, [*sites, *variables])
    by_way_of_sites = converged.gradients("the gradient of log Z", Sites(by_nu, by_tau))
    return [a + b for a, b in zip(direct, by_way_of_sites, strict=True)]
