"""PEPRegression with a scaled conditional: what it bounds, and what it coincides with."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.regression import UNEVEN_BLOCKS, Case, N
from helpers import RegressionProblem, assert_all_close, assert_close, gradients, regression_problem
from reference import regression as reference

import gpflow_pep as pep

#: Slack for rounding, relative to the size of what is compared.
ROUNDING = 1e-9
ONE_BLOCK = np.zeros(30, dtype=int)
TEN_BLOCKS = np.arange(30) // 3
CONDITIONALS = ("tight", "standard")


def random_problem(seed: int) -> RegressionProblem:
    """Hyperparameters over orders of magnitude; every third one with targets that do not fit."""
    rng = np.random.default_rng(seed)
    problem = regression_problem(seed, num_data=30)
    order = np.argsort(problem.X[:, 0])
    Y = problem.Y if seed % 3 else 2.0 * rng.standard_t(2.0, size=problem.Y.shape)
    return problem._replace(
        X=problem.X[order],
        Y=Y[order],
        variance=float(np.exp(rng.normal())),
        lengthscales=np.exp(rng.normal(size=2)).tolist(),
        noise_variance=float(np.exp(rng.normal(-2.0, 1.5))),
    )


def create(
    problem: RegressionProblem,
    alpha: float,
    blocks: Any | None = None,
    bound: str = "tight",
    **options: Any,
) -> "pep.models.PEPRegression":
    return problem.model(
        pep.models.PEPRegression, alpha=alpha, blocks=blocks, bound=bound, **options
    )


def log_z(*arguments: Any, **options: Any) -> float:
    return float(create(*arguments, **options).pep_log_marginal_likelihood())


def log_exact(problem: RegressionProblem) -> float:
    K = problem.covariance(problem.X, problem.X)
    noise = np.full(len(K), problem.noise_variance)
    return reference.exact_log_marginal_likelihood(K, problem.Y, noise)


@pytest.mark.parametrize("jitter", [1e-6, 1e-10])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.near_copies("0-*", "1-*")
def test_bounds_in_their_order(seed: int, jitter: float) -> None:
    """Titsias (2009), Titsias (2025), its blocks, one block, exact, upper bound."""
    gpflow.config.set_default_jitter(jitter)
    problem = random_problem(seed)
    ladder = [
        log_z(problem, 0.0, bound="standard"),
        log_z(problem, 0.0),
        log_z(problem, 0.0, TEN_BLOCKS),
        log_z(problem, 0.0, ONE_BLOCK),
        log_exact(problem),
        float(create(problem, 0.0).upper_bound()),
    ]
    slack = ROUNDING * max(map(abs, ladder))
    assert np.all(np.diff(ladder) > -slack), ladder
    # Strictly so where inducing points do not suffice: the noise is what matters, not rounding.
    assert ladder[1] - ladder[0] > 1e-3 and ladder[3] - ladder[1] > 1e-3, ladder


@pytest.mark.parametrize("blocks", [None, TEN_BLOCKS], ids=["rows", "blocks"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.near_copies("0-*")
def test_log_z_grows_with_alpha(seed: int, blocks: Any | None) -> None:
    problem = random_problem(seed)
    values = [log_z(problem, alpha, blocks) for alpha in np.linspace(0.0, 1.0, 6)]
    assert np.all(np.diff(values) > -ROUNDING * abs(values[0])), values
    assert values[-1] - values[0] > 1e-3


@pytest.mark.parametrize("blocks", [None, UNEVEN_BLOCKS], ids=["FITC", "PITC"])
def test_alpha_1_does_not_depend_on_the_conditional(blocks: Any | None) -> None:
    cases = [Case(alpha=1.0, blocks=blocks, noise="scale", bound=c) for c in CONDITIONALS]
    scaled, prior = (case.model() for case in cases)
    assert_close(scaled.pep_log_marginal_likelihood(), prior.pep_log_marginal_likelihood())
    assert_all_close(
        gradients(scaled.training_loss, scaled.trainable_variables),
        gradients(prior.training_loss, prior.trainable_variables),
    )
    assert_all_close(
        scaled.predict_f(cases[0].problem.Xnew), prior.predict_f(cases[0].problem.Xnew)
    )


def test_alpha_1_is_gprfitc() -> None:
    problem = regression_problem(num_data=N)
    other = problem.model(gpflow.models.GPRFITC)
    ours = create(problem, 1.0)
    assert_close(ours.pep_log_marginal_likelihood(), other.maximum_log_likelihood_objective())


def test_alpha_0_has_the_posterior_of_sgpr_and_another_gradient() -> None:
    problem = regression_problem(num_data=N)
    sgpr = problem.model(gpflow.models.SGPR)
    ours = create(problem, 0.0)
    assert_all_close(ours.compute_qu(), sgpr.compute_qu())
    variance = [model.likelihood.variance.unconstrained_variable for model in (ours, sgpr)]
    of_ours, of_sgpr = (
        gradients(model.training_loss, [one]) for model, one in zip((ours, sgpr), variance)
    )
    # The loss of SGPR asks for more noise: that is what the scaled conditional takes away.
    assert of_ours[0] > of_sgpr[0] + 1.0


def test_one_block_at_alpha_1_is_exact() -> None:
    problem = random_problem(1)
    assert_close(log_z(problem, 1.0, ONE_BLOCK), log_exact(problem))


@pytest.mark.parametrize("blocks", [None, UNEVEN_BLOCKS], ids=["rows", "blocks"])
def test_single_precision(blocks: Any | None) -> None:
    problem = regression_problem(num_data=N)
    values = [create(problem, alpha, blocks) for alpha in (0.0, 0.5, 1.0)]
    expected = [float(model.pep_log_marginal_likelihood()) for model in values]
    gpflow.config.set_default_float(np.float32)
    single = problem._replace(
        **{name: getattr(problem, name).astype(np.float32) for name in ("X", "Y", "Z")}
    )
    for alpha, of_double in zip((0.0, 0.5, 1.0), expected):
        model = create(single, alpha, blocks)
        value = model.pep_log_marginal_likelihood()
        assert value.dtype == tf.float32
        assert_close(value, np.float32(of_double), rtol=1e-4)
        for gradient in gradients(model.training_loss, model.trainable_variables):
            assert gradient.dtype == np.float32 and np.all(np.isfinite(gradient))


def test_surrogate_has_its_evidence() -> None:
    case = Case(alpha=0.3, bound="tight")
    model = case.model()
    weights, targets, log_constant = model.surrogate()
    Kuu = case.problem.prior().Kuu
    K = weights[0] @ Kuu @ tf.transpose(weights[0]) + np.eye(len(Kuu))
    evidence = reference.gaussian_log_density(targets.numpy().T, K.numpy())
    assert_close(evidence + log_constant, model.pep_log_marginal_likelihood())


@pytest.mark.near_copies("tight")
@pytest.mark.parametrize("bound", CONDITIONALS)
def test_bound_gap(bound: str) -> None:
    problem = random_problem(2)
    model = create(problem, 0.0, bound=bound)
    expected = float(model.upper_bound()) - float(model.pep_log_marginal_likelihood())
    assert_close(model.bound_gap(), expected)
    assert_close(tf.function(model.bound_gap)(), expected)
    assert expected >= log_exact(problem) - float(model.pep_log_marginal_likelihood())


def test_bound_gap_is_refused_where_log_z_is_no_bound() -> None:
    model = Case(alpha=np.linspace(0.0, 0.5, N)).model()
    with pytest.raises(ValueError, match=r"bound_gap: got .*alpha.*expected 0.*set the power"):
        model.bound_gap()
    with pytest.raises(ValueError, match="bound_gap"):
        tf.function(model.bound_gap)()


def test_the_bound_cannot_be_changed_later() -> None:
    model = Case(bound="tight").model()
    assert model.bound == "tight"
    with pytest.raises(AttributeError):
        model.bound = "standard"
