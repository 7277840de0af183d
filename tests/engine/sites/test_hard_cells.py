"""Cells of the grid of ``examples/benchmarks/stress.py`` whose sites need the last fallbacks."""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import (
    assert_close,
    finite_difference_gradient,
    load_example,
    trainable_by_name,
    value_and_gradients,
)

import gpflow_pep as pep
from gpflow_pep.engine.sites import sweep
from gpflow_pep.engine.sites.record import SiteUpdateInfo

stress = load_example("benchmarks/stress.py")


def _cell(problem: Any, inducing: str, alpha: float, **kernel: float) -> pep.models.PEP:
    X, Y, likelihood = problem
    own = gpflow.kernels.SquaredExponential(**kernel)
    Z = stress.inducing_inputs(X)[inducing]
    return pep.models.PEP((X, Y), own, likelihood, Z, alpha=alpha)


def _run(model: pep.models.PEP) -> SiteUpdateInfo:
    tf.function(model.pep_log_marginal_likelihood, autograph=False)()
    return model.last_inference


@pytest.mark.slow
def test_labels_under_a_vague_prior_need_narrower_ones(
    data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def labels() -> pep.models.PEP:
        problem = stress.PROBLEMS["probit"](data_directory)
        return _cell(problem, "at the rows", 0.5, variance=1e4, lengthscales=0.3)

    record = _run(labels())
    assert record.converged and record.fallback == "continuation"
    monkeypatch.setattr(sweep, "_variance_to_narrow", lambda *_: None)
    with pytest.warns(pep.models.ConvergenceWarning):
        record = _run(labels())
    assert record.no_fixed_point_found and record.fallback == "clipped"


@pytest.mark.slow
def test_students_t_at_rows_that_few_others_tell_of() -> None:
    record = _run(_cell(stress.outliers(Path()), "100", 1.0, variance=1.0, lengthscales=0.05))
    assert record.converged and record.fallback == "continuation"


@pytest.mark.slow
def test_the_warning_says_what_to_do_where_no_fixed_point_was_found() -> None:
    model = _cell(stress.outliers(Path()), "20", 1.0, variance=10.0, lengthscales=0.05)
    with pytest.warns(pep.models.ConvergenceWarning) as warnings:
        record = _run(model)
    assert record.no_fixed_point_found and record.fallback == "clipped"
    (text,) = {str(warning.message) for warning in warnings}
    assert "The sites did not converge: residual expected below 1e-06." in text
    assert "Standardise the data, put priors on the parameters" in text
    assert "lower alpha" in text
    model.alpha.assign(0.5)  # as it says
    assert _run(model).converged


@pytest.mark.slow
def test_gradients_at_sites_reached_from_narrower_priors() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 2))
    Y = rng.poisson(np.exp(1.0 + np.sin(2.0 * X[:, :1]))).astype(float)
    kernel, likelihood = gpflow.kernels.SquaredExponential(1e4), gpflow.likelihoods.Poisson()
    model = pep.models.PEP((X, Y), kernel, likelihood, X[:6].copy(), alpha=0.0)
    gpflow.set_trainable(model.inducing_variable, False)
    variables = trainable_by_name(model)
    assert set(variables) == {".kernel.variance", ".kernel.lengthscales"}
    record = _run(model)
    assert record.converged and record.fallback == "continuation" and record.residual < 1e-6

    @tf.function(autograph=False)
    def loss_and_gradients() -> Any:
        return value_and_gradients(model.training_loss, list(variables.values()))

    _, actual = loss_and_gradients()
    assert model.last_inference.num_sweeps == 1
    for variable, gradient in zip(variables.values(), actual, strict=True):
        expected = finite_difference_gradient(lambda: loss_and_gradients()[0], variable)
        assert_close(gradient, expected, rtol=1e-6)
