"""Rates under a vague prior at power 0, reached from narrower priors."""

from collections.abc import Callable
from functools import cache
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close
from reference.rates import bound_and_slopes

import gpflow_pep as pep
from gpflow_pep.engine.sites.fixed_point import (
    _first_prior,
    _predicted_change,
    _prior_scales,
    run_to_fixed_point,
)
from gpflow_pep.engine.sites.posterior import (
    Marginals,
    Sites,
    natural_sums,
    scaled_error,
    whitened_posterior,
)
from gpflow_pep.engine.sites.record import FALLBACKS, Features, Goal, Solver, Stage, SweepEvaluation
from gpflow_pep.engine.sites.sweep import row_prior, sweep

Draw = Callable[[np.random.Generator, Any], Any]


def rates(likelihood: Any, draw: Draw, **kernel: float) -> pep.models.PEP:
    """Few inducing inputs, far from most of the rows."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 2))
    Y = draw(rng, np.exp(1.0 + np.sin(2.0 * X[:, :1]))).astype(float)
    kernel = gpflow.kernels.SquaredExponential(**kernel)
    return pep.models.PEP((X, Y), kernel, likelihood, X[:6].copy(), alpha=0.0)


def counts(**kernel: float) -> pep.models.PEP:
    return rates(gpflow.likelihoods.Poisson(), lambda rng, rate: rng.poisson(rate), **kernel)


def evaluated(model: pep.models.PEP) -> float:
    evaluate = tf.function(model.pep_log_marginal_likelihood, autograph=False)
    return float(evaluate())


@cache
def vague() -> tuple[pep.models.PEP, float]:
    """A model whose loop alone gets nowhere: rows begin with an expectation beyond any float."""
    model = counts(variance=1e4, lengthscales=1.0)
    return model, evaluated(model)


def test_the_bound_is_at_its_only_optimum() -> None:
    model, value = vague()
    record = model.last_inference
    assert record.converged and record.fallback == "continuation"
    assert not record.no_fixed_point_found
    X, Y = (part.numpy() for part in model.data)
    Z = model.inducing_variable.Z.numpy()
    problem, sites = model.site_problem(), model.read_sites()
    at_optimum = bound_and_slopes(
        problem.W[0].numpy() @ model.kernel(Z, X).numpy(),
        np.full(len(X), 1e4),
        Y[:, 0],
        *(part.numpy()[:, 0] for part in sites),
    )
    assert_close(value, at_optimum.bound, rtol=1e-9)
    assert at_optimum.of_mean < 1e-5
    assert at_optimum.of_covariance < 1e-5


def test_a_mixture_of_one_is_the_same_problem() -> None:
    alone, expected = vague()
    X, Y = alone.data
    kernel = gpflow.kernels.LinearCoregionalization([alone.kernel], W=[[1.0]])
    mixed = pep.models.PEP((X, Y), kernel, alone.likelihood, X.numpy()[:6], alpha=0.0)
    value = evaluated(mixed)
    record = mixed.last_inference
    assert record.converged and record.fallback == "continuation"
    assert_close(value, expected, rtol=1e-8)


@pytest.mark.near_copies
@pytest.mark.parametrize(
    "likelihood, draw",
    [
        (gpflow.likelihoods.Exponential, lambda rng, scale: rng.exponential(scale)),
        (gpflow.likelihoods.Gamma, lambda rng, scale: rng.gamma(2.0, scale)),
    ],
)
def test_scales(likelihood: Any, draw: Draw) -> None:
    model = rates(likelihood(), draw, variance=1e4, lengthscales=1.0)
    evaluated(model)
    assert model.last_inference.converged


@pytest.mark.slow
def test_a_natural_gradient_step_of_gpflow_stays_there() -> None:
    model, value = vague()
    problem, sites = model.site_problem(), model.read_sites()
    q = whitened_posterior(natural_sums(problem, sites))
    svgp = gpflow.models.SVGP(
        model.kernel, model.likelihood, model.inducing_variable, q_mu=q.q_mu, q_sqrt=q.q_sqrt
    )
    assert_close(svgp.elbo(model.data), value, rtol=1e-8)
    step = gpflow.optimizers.NaturalGradient(1.0)
    step.minimize(svgp.training_loss_closure(model.data), [(svgp.q_mu, svgp.q_sqrt)])
    assert_close(svgp.elbo(model.data), value, rtol=1e-8)
    assert_close(svgp.q_mu, q.q_mu, rtol=1e-5)


def test_log_z_that_no_float_can_state() -> None:
    """Rows that no inducing input can tell anything are expected to have e^5000 counts."""
    model = counts(variance=1e4, lengthscales=0.05)
    model.max_sweeps = 20
    with pytest.warns(pep.models.ConvergenceWarning, match="raise alpha, add inducing inputs"):
        assert np.isfinite(evaluated(model))
    record = model.last_inference
    assert record.no_fixed_point_found
    assert record.residual == np.inf


@pytest.mark.slow
def test_a_larger_power_is_what_the_warning_advises() -> None:
    model = counts(variance=1e4, lengthscales=0.05)
    model.alpha.assign(0.5)
    evaluated(model)
    assert model.last_inference.converged


def some_sites() -> Sites:
    random = np.random.default_rng(3)
    numbers = random.standard_normal((40, 1)), random.uniform(0.1, 1.0, (40, 1))
    return Sites(*map(tf.constant, numbers))


def test_a_sweep_under_a_part_of_the_prior_is_that_of_a_smaller_variance() -> None:
    part, sites = tf.constant(0.3, tf.float64), some_sites()
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-13)):
        problem, smaller = (counts(variance=v).site_problem() for v in (20.0, 6.0))
        got = sweep(problem, row_prior(problem, sites), sites, stage=Stage(None, part))
        expected = sweep(smaller, row_prior(smaller, sites), sites)
    assert bool(got.proper)
    for name in ("marginals", "target", "limited", "error", "merit"):
        for one, other in zip(*map(tf.nest.flatten, (getattr(got, name), getattr(expected, name)))):
            assert_close(one, other, rtol=1e-8)


def test_predicted_means_grow_with_the_prior() -> None:
    model, ratio = counts(variance=20.0), 1.5
    sites = some_sites()
    problem = model.site_problem()
    prior = row_prior(problem, sites)

    def means(sites: Sites, part: float) -> tf.Tensor:
        end = sweep(problem, prior, sites, stage=Stage(None, tf.constant(part, tf.float64)))
        return end.marginals.m

    m = means(sites, 0.5)
    x = tf.stack(sites)
    x += _predicted_change(x, m, tf.constant(ratio, tf.float64))
    assert_close(means(Sites(*tf.unstack(x)), 0.5 * ratio), ratio * m, rtol=1e-9)


@pytest.mark.parametrize("variance, largest", [(1e4, 10.0), (5.0, 10.0), (1e30, np.inf)])
def test_the_first_prior_is_narrow(variance: float, largest: float) -> None:
    solver = Solver(Goal(1e-9), 50)
    place, parts = (
        int(_first_prior(tf.constant(variance, tf.float64), solver)),
        _prior_scales(solver),
    )
    assert variance * parts[place] <= largest * (1.0 + 1e-12)
    assert place == 0 or variance * parts[place] > 4.0


@pytest.mark.parametrize("converges", [True, False])
def test_a_run_that_only_narrower_priors_begin(converges: bool) -> None:
    """Sites are proper only near their fixed point, which is at 0 without any prior variance."""
    end = np.linspace(-2.0, 2.0, 5)[:, None]
    parts = []

    def evaluate(sites: Sites, stage: Stage, _: Any) -> SweepEvaluation:
        part = stage.prior_scale
        parts.append(float(part))
        target = Sites(part * end + 0.1 * (sites.nu - part * end), tf.ones_like(sites.tau))
        near = tf.reduce_all(tf.abs(sites.nu - part * end) < 0.5)
        if not converges and part > 0.5:
            near = tf.constant(False)
        marginals = Marginals(part * end, tf.ones_like(sites.nu))
        error = scaled_error(sites, target, marginals)
        return SweepEvaluation(
            marginals, target, target, error, near, tf.constant(0.0, tf.float64), ()
        )

    zeros = tf.zeros([5, 1], tf.float64)
    point = run_to_fixed_point(
        evaluate,
        Sites(zeros, zeros),
        Solver(Goal(1e-9), 50),
        Features(largest_variance=tf.constant(100.0, tf.float64)),
    )
    assert bool(point.info.converged) == converges
    assert min(parts) == pytest.approx(0.1, rel=0.1)
    if converges:
        assert FALLBACKS[int(point.info.fallback)] == "continuation"
        assert_close(point.sites.nu, end)
    else:
        assert FALLBACKS[int(point.info.fallback)] == "clipped"
