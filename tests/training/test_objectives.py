"""Training by the evidence and leave-one-out densities together: values, gradients, chunks."""

import functools
from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from helpers import (
    assert_all_close,
    assert_close,
    finite_difference_gradient,
    gradients,
    regression_problem,
)

from gpflow_pep.models import PEP, PEPRegression
from gpflow_pep.training import maximise, mix_alphas
from gpflow_pep.training.shared import SharedLosses
from gpflow_pep.training.whole_loss import WholeLoss

ALPHAS = (0.0, 1e-6, 0.3, 0.5, 1.0)


def regression(alpha: float = 0.5, **options) -> PEPRegression:
    problem = regression_problem()
    options = {"noise_variance": problem.noise_variance, **options}
    return PEPRegression(problem.data, problem.kernel(), problem.Z, alpha=alpha, **options)


def summed(model: PEPRegression) -> tf.Tensor:
    return tf.add_n(model.evidence_and_left_out())


@pytest.mark.parametrize("conditional", ["prior", "scaled"])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_values_are_those_of_the_parts(alpha: float, conditional: str) -> None:
    model = regression(alpha, conditional=conditional)
    log_z, left_out = model.evidence_and_left_out()
    assert_close(log_z, model.pep_log_marginal_likelihood(), rtol=1e-12)
    assert_close(left_out, tf.reduce_sum(model.loo_log_density()), rtol=1e-12)


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


def test_chunks_and_several_outputs_change_nothing() -> None:
    problem = regression_problem()
    Y = np.hstack([problem.Y, np.cos(problem.Y)])
    whole, chunks = (
        PEPRegression((problem.X, Y), problem.kernel(), problem.Z, chunk_size=size)
        for size in (None, 4)
    )
    assert_close(whole.evidence_and_left_out(), chunks.evidence_and_left_out(), rtol=1e-11)
    assert_close(
        whole.evidence_and_left_out()[1], tf.reduce_sum(whole.loo_log_density()), rtol=1e-12
    )


def test_maximise_takes_it() -> None:
    model, other = regression(), regression()
    start = summed(model)
    record = maximise(model, objective="evidence+loo", max_iterations=30, progress=False)
    assert_close(record.objective, summed(model), rtol=1e-10)
    assert record.objective > start + 1.0
    maximise(other, max_iterations=30, progress=False)
    assert summed(model) > summed(other)
    assert model.pep_log_marginal_likelihood() < other.pep_log_marginal_likelihood()


def test_priors_count() -> None:
    model = regression()
    model.kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(1.0))
    loss = WholeLoss(model, objective="evidence+loo")
    value, _ = loss(loss.parameters())
    assert_close(value, -(summed(model) + model.log_prior_density()), rtol=1e-10)


def test_losses_are_shared_by_objective() -> None:
    losses, model, other = SharedLosses(), regression(), regression()
    options = {"max_iterations": 5, "progress": False}
    losses.maximise(model, **options)
    record = losses.maximise(other, objective="evidence+loo", **options)
    assert_close(record.objective, summed(other), rtol=1e-10)


def test_mixtures_take_it() -> None:
    mixed = mix_alphas(regression(), (0.5,), objective="evidence+loo")
    model = regression()
    maximise(model, objective="evidence+loo", progress=False)
    assert_close(summed(mixed.models[0]), summed(model), rtol=1e-7)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"blocks": True}, "without blocks and neighbours"),
        ({"neighbours": 2}, "without blocks and neighbours"),
    ],
)
def test_rows_that_are_no_factors_are_refused(options, words) -> None:
    if "blocks" in options:
        options = {"blocks": np.arange(len(regression_problem().X)) // 3}
    model = regression(**options)
    with pytest.raises(ValueError, match=words):
        maximise(model, objective="evidence+loo", progress=False)
    with pytest.raises(ValueError, match="evidence_and_left_out: got a model with blocks"):
        model.evidence_and_left_out()


def test_other_models_and_names_are_refused() -> None:
    problem = regression_problem()
    likelihood = gpflow.likelihoods.StudentT()
    model = PEP(problem.data, problem.kernel(), likelihood, problem.Z)
    with pytest.raises(ValueError, match=r"objective: got 'evidence\+loo' with PEP"):
        maximise(model, objective="evidence+loo", progress=False)
    with pytest.raises(ValueError, match="objective: got 'loo', expected 'evidence' or"):
        maximise(regression(), objective="loo", progress=False)
    loss = WholeLoss(regression())
    with pytest.raises(ValueError, match="with a WholeLoss of 'evidence'"):
        maximise(loss, objective="evidence+loo", progress=False)
