r"""Second derivatives of the Power EP energy, in eager mode.

Along the fixed point the energy :math:`E(s, \theta)` of :mod:`gpflow_pep.engine.energies.point` is
stationary in the sites, so that its gradient is :math:`E_\theta(s^*(\theta), \theta)`. The product
of its second derivative with a vector v is then the derivative of the number
:math:`\phi = v^T E_\theta(s^*, \theta)`, which :mod:`gpflow_pep.engine.sites.implicit` knows.
"""

from collections.abc import Sequence

import tensorflow as tf

from ..factors import log_power_expectation
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
from .point import gradients_or_zeros, site_terms


def energy_of(problem: SiteProblem, sites: Sites) -> tf.Tensor:
    """
    Compute the energy as a function of any proper sites and the parameters, differentiable to any
    order in both, in memory for several M x N matrices.
    """
    parts, (X, Y, alpha), memory = problem.parts, problem.rows, problem.memory
    A, D = problem.project(X, problem.projection or ())
    q = posterior_factor(add_memory(sites_of_rows(A, sites), memory))
    m, s = marginals(A, q)
    moments, power, d = Marginals(m, s + tf.zeros_like(m)), alpha[:, None], tf.transpose(D)
    left = cavity(moments, sites, power)
    mean, variance = left.m + parts.mean(X), left.s + d
    value = tf.reduce_sum(log_power_expectation(parts.likelihood, X, mean, variance, Y, alpha))
    slope = sites.nu - sites.tau * m
    value += site_terms(moments.s, slope, sites.tau, left.e, power)
    value += terms_of_mean(q.w, [] if memory is None else [memory.natural]) - log_root(q)
    return value if memory is None else value + memory.log_scale


def hessian_product(converged: Converged, vector: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """
    Compute the product of the second derivative of the energy in the parameters with a vector,
    which has a part for each variable of the problem's parts.
    """
    variables = converged.problem.variables
    sites = Sites(*map(tf.identity, converged.fixed_point.sites))
    with tf.GradientTape(watch_accessed_variables=False) as outer:
        outer.watch([*sites, *variables])
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(variables)
            value = energy_of(converged.rebuild(), sites)
        first = gradients_or_zeros(inner, value, variables)
        along = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(vector, first, strict=True)])
    by_nu, by_tau, *direct = gradients_or_zeros(outer, along, [*sites, *variables])
    by_way_of_sites = converged.gradients("the gradient of log Z", Sites(by_nu, by_tau))
    return [a + b for a, b in zip(direct, by_way_of_sites, strict=True)]
