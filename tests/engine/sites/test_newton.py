"""Newton's method: fixed points that no damping leads to."""

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close

import gpflow_pep as pep
from gpflow_pep.engine.sites.fixed_point import run_to_fixed_point
from gpflow_pep.engine.sites.posterior import Marginals, Sites, scaled_error
from gpflow_pep.engine.sites.record import (
    FALLBACKS,
    Features,
    FixedPoint,
    Goal,
    Solver,
    Stage,
    SweepEvaluation,
)
from gpflow_pep.engine.sites.sweep import row_prior, sweep

SHAPE = (5, 2)
_random = np.random.default_rng(5)
#: Real and imaginary parts of the eigenvalues at the fixed point.
RATES = _random.uniform(1.2, 2.2, SHAPE), _random.uniform(0.5, 1.5, SHAPE)
NU, TAU = np.linspace(-1.0, 2.0, 10).reshape(SHAPE), np.linspace(0.3, 1.7, 10).reshape(SHAPE)


def _repelling(turning: float, sites: Sites, stage: Stage, _: Any) -> SweepEvaluation:
    """At the power that is meant each site is turned and driven away from its fixed point.

    :param turning: By how much the variances of q change with the sites.
    """
    part = 1.0 + stage.power_shift
    nu, tau = tf.tanh(sites.nu - part * NU), tf.tanh(sites.tau - part * TAU)
    real, imaginary = (part * rates for rates in RATES)
    target = Sites(
        part * NU + real * nu - imaginary * tau, part * TAU + imaginary * nu + real * tau
    )
    s = tf.exp(turning * tf.sin(3.0 * sites.nu + 2.0 * sites.tau))
    marginals = Marginals(tf.zeros_like(nu), s)
    limited = Sites(target.nu, tf.nn.relu(target.tau))
    error = scaled_error(sites, target, marginals)
    merit = tf.constant(0.0, tf.float64)
    return SweepEvaluation(marginals, target, limited, error, tf.constant(True), merit)


def _run(by_newton: bool, turning: float = 0.0) -> FixedPoint:
    @tf.function(autograph=False)
    def run() -> FixedPoint:
        start = Sites(tf.constant(NU + 2.0), tf.constant(TAU - 1.0))
        limits = Solver(Goal(1e-9), 200)
        evaluate = partial(_repelling, turning)
        return run_to_fixed_point(evaluate, start, limits, Features(by_newton=by_newton))

    return run()


@pytest.mark.parametrize("turning", [0.0, 4.0])
def test_a_fixed_point_that_repels_is_reached(turning: float) -> None:
    """In units of a q that changes from sweep to sweep the equations would be others each time."""
    end = _run(True, turning)
    assert bool(end.info.converged)
    assert FALLBACKS[int(end.info.fallback)] == "continuation"
    assert_close(end.sites.nu, NU, rtol=1e-8)
    assert_close(end.sites.tau, TAU, rtol=1e-8)
    assert int(end.info.num_rejected) < int(end.info.num_sweeps) / 10  # probes are no refusals


@pytest.mark.slow
def test_smaller_powers_alone_do_not_lead_to_it() -> None:
    assert not bool(_run(by_newton=False).info.converged)


def outliers(alpha: float, **kernel: float) -> pep.models.PEP:
    """A sine with some targets that are far off, by Student's t."""
    rng = np.random.default_rng(0)
    X = np.linspace(-3.0, 3.0, 100)[:, None]
    Y = np.sin(2.0 * X) + 0.1 * rng.standard_normal(X.shape)
    off = rng.random(len(X)) < 0.15
    Y[off] += 5.0 * rng.standard_normal((off.sum(), 1))
    likelihood = gpflow.likelihoods.StudentT(scale=0.1, df=3.0)
    kernel = gpflow.kernels.SquaredExponential(**kernel)
    return pep.models.PEP((X, Y), kernel, likelihood, X[::5].copy(), alpha=alpha)


@pytest.mark.slow
def test_students_t_at_a_long_lengthscale() -> None:
    model = outliers(0.5, variance=100.0, lengthscales=5.0)
    evaluate = tf.function(model.pep_log_marginal_likelihood, autograph=False)
    evaluate()
    record = model.last_inference
    assert record.converged and record.fallback == "continuation"
    assert not record.no_fixed_point_found
    kernel = gpflow.kernels.LinearCoregionalization([model.kernel], W=np.ones([1, 1]))
    likelihood = pep.likelihoods.PerOutput([model.likelihood])
    Z = model.inducing_variable.Z.numpy()
    mixed = pep.models.PEP(model.data, kernel, likelihood, Z, alpha=0.5)
    log_z = tf.function(mixed.pep_log_marginal_likelihood, autograph=False)()
    assert mixed.last_inference.converged
    assert mixed.last_inference.fallback == "continuation"
    assert_close(log_z, evaluate(), rtol=1e-9)
    problem, sites = model.site_problem(), model.read_sites()
    prior = row_prior(problem, sites)

    @tf.function(autograph=False)
    def evaluated(x: tf.Tensor) -> SweepEvaluation:
        return sweep(problem, prior, Sites(*tf.unstack(tf.reshape(x, [2, -1, 1]))))

    x = tf.reshape(tf.stack(sites), [-1])
    found = evaluated(x)
    assert np.max(np.abs(found.error)) < 1e-6
    # Of the derivative of the update, in units of q's standard deviation.
    s = found.marginals.s.numpy().ravel()
    units = np.concatenate([1.0 / np.sqrt(s), 1.0 / s])
    columns = [(evaluated(x + h).target, evaluated(x - h).target) for h in np.diag(1e-5 * units)]
    J = np.stack([np.ravel(np.subtract(up, down)) / units / 2e-5 for up, down in columns], axis=1)
    assert np.max(np.linalg.eigvals(J).real) > 1.1

    model.alpha.assign(1.0)  # where no search has found one
    with pytest.warns(pep.models.ConvergenceWarning):
        assert np.isfinite(evaluate())
    assert model.last_inference.no_fixed_point_found
