"""Rates under a vague prior at power 0, reached from narrower priors."""

from functools import cache
from typing import Any

import gpflow
import helpers
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Exponential, Gamma, Poisson
from helpers import assert_all_close, assert_close, value_and_gradients
from reference.rates import bound_and_slopes

import gpflow_pep as pep
from gpflow_pep.engine.sites.fixed_point import (
    _first_prior,
    _predicted_change,
    _prior_scales,
)
from gpflow_pep.engine.sites.posterior import Sites
from gpflow_pep.engine.sites.record import Goal, Solver, Stage
from gpflow_pep.engine.sites.sweep import row_prior, sweep

Draw = Any
DRAWS: dict[type, Draw] = {
    Poisson: lambda rng, rate: rng.poisson(rate),
    Exponential: lambda rng, scale: rng.exponential(scale),
    Gamma: lambda rng, scale: rng.gamma(2.0, scale),
}
each_rate = pytest.mark.parametrize("kind", DRAWS)


def rates(
    kind: Any = Poisson, num_columns: int = 2, rows: int = 40, **kernel: float
) -> Any:
    """Few inducing inputs, far from most of the rows; or all rows of one column."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((rows, num_columns))
    Y = DRAWS[kind](rng, np.exp(1.0 + np.sin(2.0 * X[:, :1]))).astype(float)
    Z = X[:6].copy() if num_columns == 2 else X
    kernel = gpflow.kernels.SquaredExponential(**kernel)
    return pep.models.PEP((X, Y), kernel, kind(), Z, alpha=0.0)


def evaluated(model: pep.models.PEP) -> float:
    evaluate = tf.function(model.pep_log_marginal_likelihood, autograph=False)
    return float(evaluate())


@cache
def vague() -> tuple[pep.models.PEP, float]:
    """A model whose loop alone gets nowhere: rows begin with an expectation beyond any
    float.
    """
    model = rates(variance=1e4, lengthscales=1.0)
    return model, evaluated(model)


def test_the_bound_is_at_its_only_optimum() -> None:
    model, value = vague()
    record = model.last_inference
    assert record.converged and record.fallback == "continuation"
    assert not record.no_fixed_point_found
    (X, Y), Z = (part.numpy() for part in model.data), model.inducing_variable.Z.numpy()
    sites = (part.numpy()[:, 0] for part in model.read_sites())
    A = model.site_problem().W[0].numpy() @ model.kernel(Z, X).numpy()
    bound, *slopes = bound_and_slopes(A, np.full(len(X), 1e4), Y[:, 0], *sites)
    assert_close(value, bound, rtol=1e-9)
    assert max(slopes) < 1e-5


@pytest.mark.slow
@each_rate
@pytest.mark.near_copies("Exponential")
def test_all_rates_converge(kind: type) -> None:
    model = rates(kind, variance=1e4, lengthscales=1.0)
    evaluated(model)
    assert model.last_inference.converged


@each_rate
@pytest.mark.near_copies
def test_rates_that_the_first_step_believes(kind: type) -> None:
    """The prior expects rates of e^50; larger powers are enough."""
    record = rates(kind, 1, 30, variance=100.0, lengthscales=2.0).update_sites()
    assert record.converged and record.num_sweeps < 30 and record.fallback == ""


@pytest.mark.slow
def test_gradients_equal_finite_differences() -> None:
    model = rates(variance=1e4, lengthscales=1.0)
    gpflow.set_trainable(model.inducing_variable, False)
    by_name = helpers.trainable_by_name(model)
    assert set(by_name) == {".kernel.variance", ".kernel.lengthscales"}
    evaluated(model)
    assert model.last_inference.residual < 1e-6
    variables = [*by_name.values()]
    loss = model.training_loss
    both = tf.function(lambda: value_and_gradients(loss, variables), autograph=False)
    _, actual = both()
    assert model.last_inference.num_sweeps == 1
    helpers.assert_gradients(lambda: both()[0], variables, actual, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_log_z_that_no_float_can_state(alpha: float) -> None:
    """Rows far from inducing inputs expect e^5000 counts; a larger power is advised."""
    model = rates(variance=1e4, lengthscales=0.05)
    model.alpha.assign(alpha)
    if alpha:
        evaluated(model)
        assert model.last_inference.converged
        return
    model.max_sweeps = 20
    with pytest.warns(
        pep.models.ConvergenceWarning, match="Use a larger alpha, more inducing inputs"
    ):
        assert np.isfinite(evaluated(model))
    record = model.last_inference
    assert record.no_fixed_point_found and record.residual == np.inf


def some_sites() -> Sites:
    random = np.random.default_rng(3)
    numbers = random.standard_normal((40, 1)), random.uniform(0.1, 1.0, (40, 1))
    return Sites(*map(tf.constant, numbers))


def test_a_sweep_under_a_part_of_the_prior_is_that_of_a_smaller_variance() -> None:
    part = tf.constant(0.3, tf.float64)
    sites = some_sites()
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-13)):
        problem, smaller = (rates(variance=v).site_problem() for v in (20.0, 6.0))
        got = sweep(problem, row_prior(problem, sites), sites, stage=Stage(None, part))
        expected = sweep(smaller, row_prior(smaller, sites), sites)
    assert bool(got.proper)
    for name in ("marginals", "target", "limited", "error", "merit"):
        both = (tf.nest.flatten(getattr(end, name)) for end in (got, expected))
        assert_all_close(*both, rtol=1e-8)


def test_predicted_means_grow_with_the_prior() -> None:
    model = rates(variance=20.0)
    ratio = 1.5
    sites = some_sites()
    problem = model.site_problem()
    prior = row_prior(problem, sites)

    def means(sites: Sites, part: float) -> tf.Tensor:
        end = sweep(
            problem, prior, sites, stage=Stage(None, tf.constant(part, tf.float64))
        )
        return end.marginals.m

    m = means(sites, 0.5)
    x = tf.stack(sites)
    x += _predicted_change(x, m, tf.constant(ratio, tf.float64))
    assert_close(means(Sites(*tf.unstack(x)), 0.5 * ratio), ratio * m, rtol=1e-9)


@pytest.mark.parametrize(
    "variance, largest", [(1e4, 10.0), (5.0, 10.0), (1e30, np.inf)]
)
def test_the_first_prior_is_narrow(variance: float, largest: float) -> None:
    solver = Solver(Goal(1e-9), 50)
    place = int(_first_prior(tf.constant(variance, tf.float64), solver))
    parts = _prior_scales(solver)
    assert variance * parts[place] <= largest * (1.0 + 1e-12)
    assert place == 0 or variance * parts[place] > 4.0
