"""PEPRegression where other models are known to coincide with it or to bound it."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
from cases.regression import UNEVEN_BLOCKS, Case, N
from helpers import (
    Array,
    assert_all_close,
    assert_close,
    gradients,
    regression_problem,
    trainable_by_name,
)
from reference import regression as reference

import gpflow_pep as pep

ALPHAS = [0.0, 1e-6, 0.3, 0.5, 1.0]
BOUNDS = ["standard", "tight"]
each_grouping = pytest.mark.parametrize("blocks", [None, UNEVEN_BLOCKS], ids=["rows", "blocks"])


def _multiscale(Z: Array) -> gpflow.inducing_variables.Multiscale:
    return gpflow.inducing_variables.Multiscale(Z, np.linspace(0.1, 0.9, Z.size).reshape(Z.shape))


# The arguments that a script gives to SGPR or GPRFITC, and now to PEPRegression.
SCRIPTS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": lambda: {"noise_variance": 0.09},
    "three outputs": lambda: {"noise_variance": 0.09, "outputs": 3},
    "linear mean": lambda: {
        "noise_variance": 0.09,
        "mean_function": gpflow.functions.Linear(np.array([[0.3], [-0.2]]), np.array([0.1])),
    },
    "mean and two outputs": lambda: {
        "noise_variance": 0.09,
        "outputs": 2,
        "mean_function": gpflow.functions.Constant(np.array([0.4, -0.1])),
    },
    "likelihood": lambda: {"likelihood": gpflow.likelihoods.Gaussian(0.2)},
    "noise scale": lambda: {
        "likelihood": gpflow.likelihoods.Gaussian(
            scale=gpflow.functions.Linear(np.array([[0.05], [0.03]]), np.array([0.4]))
        )
    },
    "Multiscale": lambda: {"noise_variance": 0.09, "feature": _multiscale},
    "default noise": lambda: {},
}
LIMITS = {"SGPR at 0": (gpflow.models.SGPR, 0.0), "GPRFITC at 1": (gpflow.models.GPRFITC, 1.0)}


def _create(
    model_class: Callable[..., gpflow.models.GPModel], script: dict[str, Any], **arguments: Any
) -> gpflow.models.GPModel:
    script = dict(script)
    problem = regression_problem(num_data=N, num_outputs=script.pop("outputs", 1))
    feature = script.pop("feature", np.copy)(problem.Z)
    return model_class(problem.data, problem.kernel(), feature, **script, **arguments)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
@pytest.mark.parametrize("other_class, alpha", LIMITS.values(), ids=LIMITS.keys())
def test_gpflows_models_are_limits(
    script: Callable[[], Any], other_class: type[gpflow.models.GPModel], alpha: float
) -> None:
    """In value, gradient, q(u) and predictions."""
    ours = _create(pep.models.PEPRegression, script(), alpha=alpha)
    other = _create(other_class, script())
    assert_close(ours.maximum_log_likelihood_objective(), other.maximum_log_likelihood_objective())
    our_variables, other_variables = trainable_by_name(ours), trainable_by_name(other)
    assert our_variables.keys() == other_variables.keys()
    assert_all_close(
        gradients(ours.training_loss, [our_variables[name] for name in other_variables]),
        gradients(other.training_loss, list(other_variables.values())),
    )
    Xnew = regression_problem().Xnew
    for full_cov in (False, True):
        assert_all_close(
            ours.predict_f(Xnew, full_cov=full_cov), other.predict_f(Xnew, full_cov=full_cov)
        )
    assert_all_close(ours.predict_y(Xnew), other.predict_y(Xnew))
    if other_class is gpflow.models.SGPR:
        assert_all_close(ours.compute_qu(), other.compute_qu())


@pytest.mark.parametrize("name", [name for name in SCRIPTS if "outputs" not in SCRIPTS[name]()])
@pytest.mark.parametrize("chunk_size", [None, 4])
@pytest.mark.parametrize("alpha", [0.5, 0.0])
@pytest.mark.near_copies("0.5-None-*", "0.5-4-noise scale")
def test_upper_bound_is_that_of_sgpr(name: str, alpha: float, chunk_size: int | None) -> None:
    script = SCRIPTS[name]
    ours = _create(pep.models.PEPRegression, script(), alpha=alpha, chunk_size=chunk_size)
    assert_close(ours.upper_bound(), _create(gpflow.models.SGPR, script()).upper_bound())


def test_upper_bound_of_several_outputs_is_the_sum_of_theirs() -> None:
    """The outputs are independent given the kernel, so their log marginal likelihoods add."""
    problem = regression_problem(num_data=N, num_outputs=3)

    def bound(columns: slice) -> float:
        return float(
            pep.models.PEPRegression(
                (problem.X, problem.Y[:, columns]),
                problem.kernel(),
                problem.Z,
                noise_variance=problem.noise_variance,
            ).upper_bound()
        )

    together = bound(slice(None))
    assert_close(together, sum(bound(slice(p, p + 1)) for p in range(3)))
    assert together >= reference.exact_log_marginal_likelihood(
        problem.covariance(problem.X, problem.X), problem.Y, np.full(N, problem.noise_variance)
    )


@pytest.mark.parametrize("bound", BOUNDS)
@each_grouping
def test_inducing_points_at_all_the_rows_give_gpr(blocks: Any | None, bound: str) -> None:
    gpflow.config.set_default_jitter(1e-13)
    problem = regression_problem(num_data=N, num_outputs=2)
    mean = gpflow.functions.Constant(0.4)
    options = {"blocks": blocks, "mean_function": mean, "bound": bound}
    ours = problem.model(pep.models.PEPRegression, problem.X, **options)
    exact = problem.model(gpflow.models.GPR, mean_function=mean)
    expected = [exact.predict_f(problem.Xnew, full_cov=full_cov) for full_cov in (False, True)]
    for alpha in ALPHAS:
        ours.alpha.assign(np.broadcast_to(alpha, ours.alpha.shape))
        assert_close(ours.pep_log_marginal_likelihood(), exact.log_marginal_likelihood())
        for full_cov, moments in zip((False, True), expected):
            assert_all_close(ours.predict_f(problem.Xnew, full_cov=full_cov), moments)


def test_alpha_1_with_blocks_is_pitc() -> None:
    case = Case(alpha=1.0, blocks=UNEVEN_BLOCKS, noise="scale")
    prior, R, noise, factors = case.reference_arguments()
    K_bar = reference.approximate_covariance(prior, noise, factors)
    Kff = prior.Kff
    same_block = UNEVEN_BLOCKS[:, None] == UNEVEN_BLOCKS[None, :]
    assert_close(K_bar[same_block], (Kff + np.diag(noise))[same_block])
    assert_close(
        case.model().pep_log_marginal_likelihood(), reference.gaussian_log_density(R, K_bar)
    )


def test_alpha_1_with_one_block_is_exact_regression() -> None:
    case = Case(alpha=1.0, blocks=np.zeros(N, dtype=int))
    problem = case.problem
    assert_close(
        case.model().pep_log_marginal_likelihood(),
        reference.exact_log_marginal_likelihood(
            problem.covariance(problem.X, problem.X), problem.Y, case.noise_at(problem.X)
        ),
    )


@pytest.mark.parametrize("seed", range(8))
def test_bounds_of_the_exact_log_marginal_likelihood(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = regression_problem(seed, num_data=30)._replace(
        variance=float(np.exp(rng.normal())),
        lengthscales=np.exp(rng.normal(size=2)).tolist(),
        noise_variance=float(np.exp(rng.normal(-2.0))),
    )
    model = problem.model(pep.models.PEPRegression, alpha=0.0)
    exact = reference.exact_log_marginal_likelihood(
        problem.covariance(problem.X, problem.X), problem.Y, np.full(30, problem.noise_variance)
    )
    assert float(model.pep_log_marginal_likelihood()) < exact < float(model.upper_bound())


@pytest.mark.parametrize("bound", BOUNDS)
@each_grouping
def test_continuous_in_alpha_at_0(blocks: Any | None, bound: str) -> None:
    """At alpha = 1e-14 the difference is of the order of alpha itself, and so is its gradient's."""
    both = [Case(alpha=alpha, blocks=blocks, bound=bound).model() for alpha in (0.0, 1e-14)]
    assert_close(*(model.pep_log_marginal_likelihood() for model in both[::-1]), rtol=1e-11)
    of_each = [gradients(model.training_loss, model.trainable_variables) for model in both[::-1]]
    assert_all_close(*of_each, rtol=1e-10)


@each_grouping
def test_small_alpha_keeps_its_digits(blocks: Any | None) -> None:
    for alpha in (1e-15, 1e-12, 1e-9, 1e-6, 1e-4, 1e-2):
        case = Case(alpha=alpha, blocks=blocks)
        expected = reference.pep_log_z(*case.reference_arguments())
        assert_close(case.model().pep_log_marginal_likelihood(), expected, rtol=1e-11)
