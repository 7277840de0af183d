"""Cells of ``examples/benchmarks/stress.py``, and other models, that need the last
fallbacks.
"""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close, load_example

import gpflow_pep as pep
from gpflow_pep.engine.sites import sweep as sweep_module
from gpflow_pep.engine.sites.posterior import Sites
from gpflow_pep.engine.sites.record import SiteUpdateInfo, SweepEvaluation
from gpflow_pep.engine.sites.sweep import row_prior, sweep

pytestmark = pytest.mark.slow
stress = load_example("benchmarks/stress.py")


def _cell(problem: Any, inducing: str, alpha: float, *kernel: float) -> pep.models.PEP:
    X, Y, likelihood = problem
    Z = stress.inducing_inputs(X)[inducing]
    own = gpflow.kernels.SquaredExponential(*kernel)
    return pep.models.PEP((X, Y), own, likelihood, Z, alpha=alpha)


def _run(model: pep.models.PEP, fallback: str) -> SiteUpdateInfo:
    tf.function(model.pep_log_marginal_likelihood, autograph=False)()
    record = model.last_inference
    assert record.fallback == fallback
    assert record.converged == (fallback != "clipped") != record.no_fixed_point_found
    return record


def test_labels_under_a_vague_prior_need_narrower_ones(
    data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = stress.PROBLEMS["probit"](data_directory)
    parts = problem, "at the rows", 0.5, 1e4, 0.3
    _run(_cell(*parts), "continuation")
    monkeypatch.setattr(sweep_module, "_variance_to_narrow", lambda *_: None)
    with pytest.warns(pep.models.ConvergenceWarning):
        _run(_cell(*parts), "clipped")


def test_students_t_at_rows_that_few_others_tell_of() -> None:
    _run(_cell(stress.outliers(Path()), "100", 1.0, 1.0, 0.05), "continuation")


def test_the_warning_says_what_to_do_where_no_fixed_point_was_found() -> None:
    model = _cell(stress.outliers(Path()), "20", 1.0, 10.0, 0.05)
    with pytest.warns(pep.models.ConvergenceWarning) as warnings:
        _run(model, "clipped")
    (text,) = {str(warning.message) for warning in warnings}
    assert "The sites did not converge: the residual should be below 1e-06." in text
    assert "Standardise the data, put priors on the parameters" in text
    assert "lower alpha" in text
    model.alpha.assign(0.5)  # as it says
    tf.function(model.pep_log_marginal_likelihood, autograph=False)()
    assert model.last_inference.converged


def test_students_t_at_a_long_lengthscale() -> None:
    """A sine with some targets that are far off: the update repels sites at its fixed
    point.
    """
    rng = np.random.default_rng(0)
    X = np.linspace(-3.0, 3.0, 100)[:, None]
    Y = np.sin(2.0 * X) + 0.1 * rng.standard_normal(X.shape)
    off = rng.random(len(X)) < 0.15
    Y[off] += 5.0 * rng.standard_normal((off.sum(), 1))
    likelihood = gpflow.likelihoods.StudentT(scale=0.1, df=3.0)
    kernel = gpflow.kernels.SquaredExponential(variance=100.0, lengthscales=5.0)
    mixing = gpflow.kernels.LinearCoregionalization([kernel], W=np.ones([1, 1]))
    each = (kernel, likelihood), (mixing, pep.likelihoods.PerOutput([likelihood]))
    model, mixed = (
        pep.models.PEP((X, Y), *parts, X[::5].copy(), alpha=0.5) for parts in each
    )
    energies = [one.pep_log_marginal_likelihood for one in (model, mixed)]
    evaluate, of_mixed = (tf.function(energy, autograph=False) for energy in energies)
    assert_close(of_mixed(), evaluate(), rtol=1e-9)
    for record in (model.last_inference, mixed.last_inference):
        assert record.converged and record.fallback == "continuation"
        assert not record.no_fixed_point_found
    problem = model.site_problem()
    sites = model.read_sites()
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
    columns = [
        (evaluated(x + h).target, evaluated(x - h).target)
        for h in np.diag(1e-5 * units)
    ]
    J = np.stack(
        [np.ravel(np.subtract(up, down)) / units / 2e-5 for up, down in columns], axis=1
    )
    assert np.max(np.linalg.eigvals(J).real) > 1.1

    model.alpha.assign(1.0)  # where no search has found one
    with pytest.warns(pep.models.ConvergenceWarning):
        assert np.isfinite(evaluate())
    assert model.last_inference.no_fixed_point_found


def test_three_classes_from_sites_of_wrong_labels() -> None:
    X = np.random.default_rng(0).standard_normal((300, 2))
    labels = np.sum(X > 0.0, axis=1)
    Z = X[np.random.default_rng(1).permutation(300)[:30]].copy()
    kernel = gpflow.kernels.SquaredExponential(lengthscales=30.0 * np.sqrt(2.0))
    model = pep.models.PEPClassification(
        (X, labels[:, None]), kernel, None, Z, alpha=0.0
    )
    evaluate = tf.function(model.pep_log_marginal_likelihood, autograph=False)
    model.sites.tau.assign(np.ones([300, 3]))
    model.sites.nu.assign(2.0 * np.eye(3)[(labels + 1) % 3] - 1.0)
    assert evaluate() / 300 > -np.log(3.0)  # it was -3.53
    assert model.last_inference.converged
    mean = tf.function(model.predict_f, autograph=False)(X)[0]
    assert np.mean(np.argmax(mean, axis=1) == labels) > 0.95
