r"""One sweep over the rows, and the run of sweeps to the fixed point of Power EP.

Bui, Yan & Turner (2017), section 3.3 and appendix F, for all rows at once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..factors import TiltedDerivatives, traits
from ..numerics import chunks
from ..prior import Parts, Projection
from . import coupling
from .coupling import Curvature, CurvatureFactor, mean_step, on_rows, within_trust
from .fixed_point import run_to_fixed_point
from .posterior import (
    Cavity,
    Marginals,
    Natural,
    PosteriorFactor,
    SiteProblem,
    SiteRows,
    Sites,
    View,
    cavity,
    log_root,
    natural_sums,
    posterior_factor,
    scaled_error,
    terms_of_mean,
)
from .record import TARGET, Features, FixedPoint, Solver, Stage, SweepEvaluation


class _AtFixedPoint(NamedTuple):
    """The results of the last sweep in addition to the marginals."""

    q: PosteriorFactor
    tilted: TiltedDerivatives
    h: Any = ()  #: See :class:`~gpflow_pep.engine.sites.posterior.View`.
    joint: Any = ()
    """[], the terms of the rows in the energy in addition to the terms of each site; or
    ().
    """
    #: The factor with which the last step of the means was computed, for classes.
    factor: CurvatureFactor | tuple[()] = ()
    by_parameters: Sequence[tf.Tensor] = ()
    """Derivatives of the sum of the tilted integrals, at fixed moments, in
    :func:`parameters`.
    """


class RowPrior(NamedTuple):
    """Moments of f at rows under the prior, [N, L]."""

    mean: tf.Tensor
    variance: tf.Tensor


def row_prior(problem: SiteProblem, sites: Sites) -> RowPrior:
    """Compute the prior's moments of f at the rows."""
    X = problem.rows.X
    zeros = tf.zeros_like(sites.nu)
    known = problem.projection
    of_latents = tf.transpose(known.variance) if known else problem.parts.variance(X)
    variance = problem.latents.prior_variance(of_latents)
    return RowPrior(zeros + problem.parts.mean(X), zeros + variance)


class _Matched(NamedTuple):
    """The targets of the sites of some rows, with intermediate results."""

    sites: Sites  #: The sites that match the moments of the tilted distributions.
    #: The targets with negative precisions set to 0; these sites match only the mean.
    limited: Sites
    proper: tf.Tensor  #: [N], bool: the cavities are proper and all numbers finite.
    cavity: Cavity
    v: tf.Tensor  #: [N, L], variances of f under q.
    tilted: TiltedDerivatives
    by_parameters: Sequence[tf.Tensor]  #: [1, ...], see :class:`_AtFixedPoint`.
    joint: Any = ()  #: [N], see :class:`_AtFixedPoint`.


def parameters(problem: SiteProblem) -> list[tf.Variable]:
    """List the variables of a likelihood."""
    nothing: Any = None
    of_likelihood = Parts(nothing, nothing, nothing, problem.parts.likelihood)
    return of_likelihood.variables(problem.rows.X, problem.rows.Y)


def match_moments(
    problem: SiteProblem,
    projection: Projection | None,
    q: Marginals,
    prior: RowPrior,
    sites: Sites,
    variables: Sequence[tf.Variable] = (),
) -> _Matched:
    r"""Compute the sites that match the tilted moments,

    .. math::

        \tau^* = -\frac{\delta_2}{1 + \alpha \delta_2 s^{-}}, \qquad
        \nu^* = \tau^* m^{-} + \delta_1 (1 + \alpha \tau^* s^{-}).

    :param variables: The variables of the likelihood in which the tilted integrals are
        differentiated too.
    """
    (X, Y, alpha), latents = problem.rows, problem.latents
    power = tf.expand_dims(alpha, 1)
    of_cavity = cavity(q, sites, power)
    d = latents.residual(projection)
    # A cavity whose variance is more than ten times the prior's is refused, because it
    # is nearly improper.
    proper = (of_cavity.e > 0.0) & (of_cavity.s + d <= 10.0 * prior.variance)
    proper &= tf.math.is_finite(q.m)
    # The results of improper cavities are not used, but must not be NaN, and must not
    # keep a loop from ending.
    zeros = tf.zeros_like(q.m)
    m = tf.where(proper, of_cavity.m, zeros)
    s = tf.where(proper, of_cavity.s, zeros)
    arguments = problem.parts.likelihood, X, m + prior.mean, s + d, Y, alpha
    moments, by_parameters = latents.tilted(*arguments, variables)
    shrinkage = 1.0 + power * moments.delta2 * s  # 1 / (1 + alpha tau s)
    tau = -moments.delta2 / shrinkage
    target = Sites(tau * m + moments.delta1 / shrinkage, tau)
    limited = Sites(tf.where(tau < 0.0, moments.delta1, target.nu), tf.nn.relu(tau))
    proper &= tf.math.is_finite(target.nu)  # then tau is finite too
    proper &= _by_site(tf.math.is_finite(moments.ell))
    without_target = latents.without_target(Y)
    if without_target is not None:
        proper |= without_target
    of_chunk = [tf.expand_dims(derivative, 0) for derivative in by_parameters]
    return _Matched(
        target,
        limited,
        tf.reduce_all(proper, axis=1),
        of_cavity,
        q.s + d,
        moments,
        of_chunk,
    )


def _by_site(values: tf.Tensor) -> tf.Tensor:
    """Make [N, 1] of values of rows, [N]; values of sites, [N, L], do not change."""
    return values if values.shape.rank == 2 else tf.expand_dims(values, 1)


def sweep(
    problem: SiteProblem,
    prior: RowPrior,
    sites: Sites,
    others: Natural | None = None,
    *,
    coupled: bool = False,
    factor: CurvatureFactor | tuple[()] = (),
    stage: Stage = TARGET,
) -> SweepEvaluation:
    r"""
    Evaluate the sites of all rows: q, its marginals, and the sites that match the
    tilted moments.

    At :math:`\alpha = 0` the merit is the energy, which is SVGP's bound for any sites.

    :param sites: The sites, or if coupled :math:`\lambda` and :math:`\tau`.
    :param others: The contribution of other rows to q, whose sites do not change.
    :param factor: The factor of the last sweep, if steps of the means are computed by a
        factor.
    :param stage: The changes of the problem. If coupled, they do not change the prior.
    """
    problem = _with_power_shift(problem, stage)
    scale = stage.prior_scale
    if scale is not None:
        problem = problem._replace(latents=problem.latents.narrowed(scale))
        prior = prior._replace(variance=scale * prior.variance)
    natural = natural_sums(problem, sites)
    latents = problem.latents
    if coupled:  # A nu = (I + G) A lambda
        natural = Natural(natural.G, natural.b + tf.matmul(*natural))
    known = [] if problem.memory is None else [problem.memory.natural]
    known += [] if others is None else [others]
    for derivative in known:
        natural = tf.nest.map_structure(tf.add, natural, derivative)
    q = posterior_factor(natural)
    variables = parameters(problem)

    def chunk_terms(piece: Any) -> tuple[Sites, View, _Matched]:
        (X, (prior, Y, alpha, sites)), projection = piece
        projection = problem.project(X, projection)
        view = latents.view(projection, q, sites, alpha)
        if coupled:
            sites = Sites(sites.nu + sites.tau * view.marginals.m, sites.tau)
        of_chunk = problem._replace(rows=SiteRows(X, Y, alpha))
        matched = match_moments(
            of_chunk, projection, view.marginals, prior, sites, variables
        )
        proper, joint = latents.joint_terms(
            matched.proper, view, projection, sites, alpha
        )
        return (
            sites,
            view._replace(rows=()),
            matched._replace(proper=proper, joint=joint),
        )

    rows = prior, problem.rows.Y, problem.rows.alpha, sites
    present, (moments, h, _), matched = chunks.map_over_chunks(
        chunk_terms, problem.pieces(rows)
    )
    joint = tf.nest.map_structure(tf.reduce_sum, matched.joint)
    proper = tf.reduce_all(matched.proper)
    target = matched.sites
    limited = matched.limited
    by_parameters = [
        tf.reduce_sum(derivative, axis=0) for derivative in matched.by_parameters
    ]
    if coupled:
        target, limited, factor = _coupled_targets(
            problem, sites, matched, moments, q, factor
        )
    error = scaled_error(present, matched.sites, moments)
    if traits(problem.parts.likelihood).starts_at_high_powers:
        # The error is infinite if rounding of a row's integral loses more than a nat.
        ell = matched.tilted.ell
        unknown = tf.abs(ell) > 1.0 / np.finfo(ell.dtype.as_numpy_dtype).eps
        error = tf.where(_by_site(unknown), tf.constant(np.inf, error.dtype), error)
    return SweepEvaluation(
        moments,
        target,
        limited,
        error,
        proper,
        _merit(problem, matched.tilted.ell, present.tau * moments.s, joint, q, known),
        _AtFixedPoint(q, matched.tilted, h, joint, factor, by_parameters),
    )


def _coupled_targets(
    problem: SiteProblem,
    sites: Sites,
    matched: _Matched,
    moments: Marginals,
    q: PosteriorFactor,
    factor: CurvatureFactor | tuple[()],
) -> tuple[Sites, Sites, CurvatureFactor | tuple[()]]:
    r"""Move all :math:`\lambda` together, and precisions gradually.

    :param sites: :math:`\lambda` and :math:`\tau`.
    :param factor: See :func:`sweep`.
    :return: The target, the target with precisions that are not negative, and the
        factor.
    """
    curvature = Curvature.from_precision(matched.sites.tau)
    if isinstance(factor, CurvatureFactor):
        factor = factor.refactorised(problem, curvature)
        curvature = Curvature(factor.t)
    distance = sites.nu - matched.tilted.delta1
    of_cavity = problem.rows.alpha[:, None] * matched.cavity.s * distance
    g = -distance - curvature.times(of_cavity)
    change = mean_step(problem, curvature, g, q, factor)
    share = within_trust(change, matched.v)
    lambda_ = sites.nu + share * (g - curvature.times(change))
    # If the target of a precision is negative, one step lowers the precision by at most
    # this fraction of B's. The sign of the target may change from sweep to sweep, and a
    # full step overshoots by orders of magnitude.
    step = tf.math.divide_no_nan(tf.constant(0.3, moments.s.dtype), moments.s)
    tau = matched.sites.tau
    gradual = tf.where(tau < 0.0, tf.maximum(tau, sites.tau - step), tau)
    return Sites(lambda_, gradual), Sites(lambda_, matched.limited.tau), factor


def _merit(
    problem: SiteProblem,
    ell: tf.Tensor,
    tau_s: tf.Tensor,
    joint: Any,
    q: PosteriorFactor,
    known: Sequence[Natural],
) -> tf.Tensor:
    """Compute the energy at power 0, where no step should make it smaller; otherwise
    return 0.
    """
    rows = sum(tf.nest.flatten(joint), tf.reduce_sum(ell) + 0.5 * tf.reduce_sum(tau_s))
    energy = tf.stop_gradient(rows) + terms_of_mean(q.w, known) - log_root(q)
    at_zero = tf.reduce_all(problem.rows.alpha == 0.0)
    return tf.where(at_zero, energy, tf.zeros_like(energy))


def infer(
    problem: SiteProblem, initial: Sites, solver: Solver, others: Natural | None = None
) -> FixedPoint:
    """Bring the sites of all rows to their fixed point; see
    :mod:`gpflow_pep.engine.sites.fixed_point`.

    :param others: The contribution of other rows to q, whose sites do not change.
    """
    problem = problem.keep_projections()
    zeros = tf.zeros_like(initial.nu)
    prior = row_prior(problem, initial)
    size = (problem.W.shape[1] or np.inf) * initial.nu.shape[1]
    alone = others is None and problem.memory is None
    special = traits(problem.parts.likelihood)
    coupled = alone and special.ignores_level
    coupled &= problem.projection is not None or size <= coupling.MOST_FACTORISED
    warm_up = None
    # Under a vague prior and at a small power, the first sites of a rate are too
    # precise to be added to 1.
    if solver.fall_back and (coupled or special.starts_at_high_powers):
        warm_up = _starts_from_no_sites(problem, initial)
    if coupled:
        # If B is not positive definite, lambda is 0.
        w = posterior_factor(natural_sums(problem, initial)).w
        lambda_ = initial.nu - initial.tau * on_rows(problem, w)
        lambda_ = tf.where(tf.math.is_finite(lambda_), lambda_, tf.zeros_like(lambda_))
        initial = Sites(lambda_, initial.tau)
    direct = coupled and size <= coupling.MOST_FACTORISED

    def evaluate(sites: Sites, stage: Stage, before: _AtFixedPoint) -> SweepEvaluation:
        rules: Any = {"coupled": coupled, "factor": before.factor, "stage": stage}
        return sweep(problem, prior, sites, others, **rules)

    fixed_point = run_to_fixed_point(
        evaluate,
        initial,
        solver,
        Features(
            coupled=coupled,
            largest_power=tf.reduce_max(problem.rows.alpha),
            warm_up=warm_up,
            by_newton=special.follows_by_newton,
            largest_variance=(
                _variance_to_narrow(problem, prior, solver) if alone else None
            ),
        ),
        _AtFixedPoint(*problem.latents.unevaluated(problem.W, zeros))._replace(
            factor=CurvatureFactor.empty(problem, zeros) if direct else (),
            by_parameters=list(map(tf.zeros_like, parameters(problem))),
        ),
    )
    if not coupled:
        return fixed_point
    (lambda_, tau), m = fixed_point.sites, fixed_point.marginals.m
    return fixed_point._replace(sites=Sites(lambda_ + tau * m, tau))


def _with_power_shift(problem: SiteProblem, stage: Stage) -> SiteProblem:
    """Change the powers to the powers of a stage."""
    rows = problem.rows
    shift = stage.power_shift
    if shift is None:
        return problem
    alpha = tf.maximum(rows.alpha * tf.minimum(1.0 + shift, 1.0), shift)
    return problem._replace(rows=rows._replace(alpha=alpha))


def _starts_from_no_sites(problem: SiteProblem, initial: Sites) -> tf.Tensor:
    """Whether there are no sites yet and a power is so small that the run should begin
    with a larger one.
    """
    # Below this power, several classes had several fixed points.
    return tf.reduce_all(tf.stack(initial) == 0.0) & (
        tf.reduce_min(problem.rows.alpha) < 0.5
    )


def _variance_to_narrow(
    problem: SiteProblem, prior: RowPrior, solver: Solver
) -> tf.Tensor | None:
    """Compute the largest prior variance if narrower priors may help; otherwise return
    None.
    """
    if not (solver.fall_back and traits(problem.parts.likelihood).follows_wider_priors):
        return None
    return tf.reduce_max(prior.variance)
