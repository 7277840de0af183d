"""Training by the evidence and leave-one-out densities together: values, gradients, chunks."""

import functools
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases.pep import CASES, TIGHT
from helpers import (
    assert_all_close,
    assert_close,
    finite_difference_gradient,
    gradients,
    regression_problem,
)

from gpflow_pep.models import PEP, PEPRegression
from gpflow_pep.training import ensemble_of_powers, maximise, training_loss
from gpflow_pep.training.fitting.cheaper import SharedLosses
from gpflow_pep.training.fitting.objectives import Objective, WholeLoss

ALPHAS = (0.0, 1e-6, 0.3, 0.5, 1.0)
BOTH: dict[str, Any] = {"objective": "evidence+loo", "progress": False}
PROBLEM = regression_problem()
ROWS = PROBLEM.X[:5] + 0.1, PROBLEM.Y[:5]


def regression(alpha: float = 0.5, Y: Any = PROBLEM.Y, **options: Any) -> PEPRegression:
    options = {"noise_variance": PROBLEM.noise_variance, "alpha": alpha, **options}
    return PEPRegression((PROBLEM.X, Y), PROBLEM.kernel(), PROBLEM.Z, **options)


def sgpr() -> gpflow.models.SGPR:
    return gpflow.models.SGPR(PROBLEM.data, PROBLEM.kernel(), PROBLEM.Z)


def summed(model: Any) -> tf.Tensor:
    return tf.add_n(model.evidence_and_left_out())


def assert_of_parts(model: Any, rtol: float) -> None:
    log_z, left_out = model.evidence_and_left_out()
    assert_close(log_z, model.pep_log_marginal_likelihood(), rtol=rtol)
    assert_close(left_out, tf.reduce_sum(model.loo_log_density()), rtol=rtol)
    losses = {"evidence": log_z, "loo": left_out, "evidence+loo": log_z + left_out}
    for objective, value in losses.items():
        assert_close(training_loss(model, objective)(), -value, rtol=rtol)


@pytest.mark.parametrize("bound", ["standard", "tight"])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_values_are_those_of_the_parts(alpha: float, bound: str) -> None:
    assert_of_parts(regression(alpha, bound=bound), rtol=1e-12)


def test_chunks_and_several_outputs_change_nothing() -> None:
    Y = np.hstack([PROBLEM.Y, np.cos(PROBLEM.Y)])
    whole, chunks = (regression(Y=Y, chunk_size=size) for size in (None, 4))
    assert_of_parts(whole, rtol=1e-12)
    assert_close(whole.evidence_and_left_out(), chunks.evidence_and_left_out(), rtol=1e-11)


@functools.cache
def compiled_sum(chunk_size: int | None) -> tuple[PEPRegression, Callable[[], tf.Tensor]]:
    """One model serves all powers."""
    model = regression(chunk_size=chunk_size)
    return model, tf.function(lambda: summed(model), autograph=False)


@pytest.mark.near_copies("0.0-*", "1e-06-*", "1.0-*", "*-7")
@pytest.mark.parametrize(("alpha", "chunk_size"), [*((alpha, None) for alpha in ALPHAS), (0.3, 7)])
def test_gradients(alpha: float, chunk_size: int | None) -> None:
    model, compiled = compiled_sum(chunk_size)
    model.alpha.assign(alpha)
    variables = model.trainable_variables
    expected = [finite_difference_gradient(compiled, variable) for variable in variables]
    for function in (compiled, lambda: summed(model)):
        assert_all_close(gradients(function, variables), expected, rtol=1e-6)


def test_whatever_trains_takes_it() -> None:
    """By maximise, by losses that are shared and used for others before, and in mixtures."""
    losses, model, shared, other = SharedLosses(), *(regression() for _ in range(3))
    start = summed(model)
    record = maximise(model, max_iterations=20, **BOTH)
    assert_close(record.objective, summed(model), rtol=1e-10)
    assert record.objective > start + 1.0
    losses.maximise(other, max_iterations=20, progress=False)
    assert summed(model) > summed(other)
    assert model.pep_log_marginal_likelihood() < other.pep_log_marginal_likelihood()
    assert_close(losses.maximise(shared, **BOTH).objective, summed(shared), rtol=1e-10)
    mixed = ensemble_of_powers(regression(), (0.5,), objective="evidence+loo")
    assert_close(summed(mixed.models[0]), summed(shared), rtol=1e-7)


def test_priors_count() -> None:
    model = regression()
    model.kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(1.0))
    expected = -(summed(model) + model.log_prior_density())
    assert_close(training_loss(model, "evidence+loo")(), expected, rtol=1e-10)


def held_out(model: gpflow.models.GPModel) -> tf.Tensor:
    return tf.reduce_sum(model.predict_log_density(ROWS))


def test_a_function_of_any_model() -> None:
    model = sgpr()
    start = held_out(model)
    record = maximise(model, objective=held_out, max_iterations=5, progress=False)
    assert_close(record.objective, held_out(model), rtol=1e-10)
    assert record.objective > start


# Sites.


def expected_density(model: PEP) -> tf.Tensor:
    """A criterion of marginals, sites and residual variances; of no use but as a test."""
    rows = model.converged_rows()
    X, Y = map(tf.convert_to_tensor, model.data)
    moments = rows.m + model.mean_function(X), rows.s + rows.d
    weighted = tf.reduce_sum(rows.nu * rows.m - 0.5 * rows.tau * rows.s)
    return weighted + tf.reduce_sum(model.likelihood.variational_expectations(X, *moments, Y))


OBJECTIVES: dict[str, Objective] = {
    **{name: name for name in ("evidence", "loo", "evidence+loo")},
    "of rows": expected_density,
}


@functools.cache
def compiled_losses(name: str) -> tuple[PEP, dict[str, WholeLoss]]:
    """One model serves all powers."""
    model = CASES[name].model(alpha=0.5, tolerance=TIGHT)
    losses = {key: WholeLoss(model, objective=objective) for key, objective in OBJECTIVES.items()}
    return model, losses


@pytest.mark.near_copies("probit-0.5-evidence+loo")
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", ["probit", "Poisson", "Student-t"])
def test_gradients_of_compiled_objectives_of_sites(name: str, alpha: float, objective: str) -> None:
    """Against differences along a random direction, by five points."""
    model, losses = compiled_losses(name)
    model.alpha.assign(alpha)
    loss = losses[objective]
    x = loss.parameters()
    direction = np.random.default_rng(0).standard_normal(x.shape)
    _, gradient = loss(x)
    pairs = ((-2, 1.0), (-1, -8.0), (1, 8.0), (2, -1.0))
    slope = sum(weight * loss(x + 1e-3 * k * direction)[0] for k, weight in pairs) / 12e-3
    loss(x)
    assert_close(gradient @ direction, slope, rtol=1e-7, scale=0.1)


@pytest.mark.near_copies("0.5")
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_values_of_objectives_of_sites(alpha: float) -> None:
    model = CASES["probit"].model(alpha=alpha)
    assert_of_parts(model, rtol=1e-10)
    rows, X = model.converged_rows(), model.data[0]
    mean, variance = model.predict_f(X)
    assert_close(rows.m + model.mean_function(X), mean, rtol=1e-9)
    assert_close(rows.s + rows.d, variance, rtol=1e-9)
    assert_all_close((rows.nu, rows.tau), (model.sites.nu, model.sites.tau), rtol=1e-9)


@pytest.mark.near_copies("evidence+loo")
@pytest.mark.parametrize("objective", ["evidence+loo", "loo"])
def test_maximise_raises_objectives_of_sites(objective: Objective) -> None:
    model = CASES["probit"].model(alpha=0.5)
    start = -training_loss(model, objective)()
    record = maximise(model, objective=objective, max_iterations=10, progress=False)
    assert record.objective > start + 0.1 and record.failures == 0
    assert_close(record.objective, -training_loss(model, objective)(), rtol=1e-6)


def in_blocks() -> PEPRegression:
    return regression(blocks=np.arange(len(PROBLEM.X)) // 3)


def mixture() -> PEP:
    kernel = gpflow.kernels.LinearCoregionalization([PROBLEM.kernel()], W=np.ones([1, 1]))
    return PEP(PROBLEM.data, kernel, gpflow.likelihoods.StudentT(), PROBLEM.Z)


def unsettled(by_maximise: bool) -> Any:
    model = CASES["Student-t"].model(alpha=0.5, max_sweeps=1)
    if by_maximise:
        return maximise(model, objective="loo", progress=False)
    return gradients(training_loss(model, "loo"), model.trainable_variables)


OF_SHAPE = lambda model: model.alpha * np.ones(2)  # noqa: E731
SITES = "derivative of loo_log_density: got sites that did not"


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: maximise(in_blocks(), **BOTH), "PEPRegression without blocks"),
        (lambda: in_blocks().evidence_and_left_out(), "_left_out: got a model with blocks"),
        (lambda: unsettled(by_maximise=False), SITES),
        pytest.param(lambda: unsettled(by_maximise=True), SITES, marks=pytest.mark.slow),
        (lambda: training_loss(mixture(), "loo")(), "_left_out: got a model whose outputs are m"),
        (lambda: training_loss(mixture(), OF_SHAPE)(), "got a function with a result of shape"),
        (lambda: maximise(sgpr(), **BOTH), r"objective: got 'evidence\+loo' with SGPR"),
        (
            lambda: maximise(regression(), objective="mixed"),
            "objective: got 'mixed', expected 'evidence' or 'loo' or",
        ),
        (lambda: maximise(WholeLoss(regression()), **BOTH), "with a WholeLoss of 'evidence'"),
    ],
)
def test_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
