"""PEPRegression where other models are known to coincide with it or to bound it."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.regression import UNEVEN_BLOCKS, Case, N
from gpflow.functions import Constant, Linear
from gpflow.likelihoods import Gaussian
from helpers import (
    Array,
    RegressionProblem,
    assert_all_close,
    assert_close,
    gradients,
    regression_problem,
    trainable_by_name,
)
from reference import regression as reference

import gpflow_pep as pep

#: Slack for rounding, relative to the size of what is compared.
ROUNDING = 1e-9
ONE_BLOCK, TEN_BLOCKS = np.zeros(30, dtype=int), np.arange(30) // 3
each_bound = pytest.mark.parametrize("bound", ["standard", "tight"])
each_grouping = pytest.mark.parametrize("blocks", [None, UNEVEN_BLOCKS], ids=["rows", "blocks"])


def _multiscale(Z: Array) -> gpflow.inducing_variables.Multiscale:
    return gpflow.inducing_variables.Multiscale(Z, np.linspace(0.1, 0.9, Z.size).reshape(Z.shape))


# The arguments that a script gives to SGPR or GPRFITC, and now to PEPRegression.
SCRIPTS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": lambda: {"noise_variance": 0.09},
    "three outputs": lambda: {"noise_variance": 0.09, "outputs": 3},
    "linear mean": lambda: {
        "noise_variance": 0.09,
        "mean_function": Linear(np.array([[0.3], [-0.2]]), np.array([0.1])),
    },
    "mean and two outputs": lambda: {
        "noise_variance": 0.09,
        "outputs": 2,
        "mean_function": Constant(np.array([0.4, -0.1])),
    },
    "likelihood": lambda: {"likelihood": Gaussian(0.2)},
    "noise scale": lambda: {
        "likelihood": Gaussian(scale=Linear(np.array([[0.05], [0.03]]), np.array([0.4])))
    },
    "Multiscale": lambda: {"noise_variance": 0.09, "feature": _multiscale},
    "default noise": lambda: {},
}
LIMITS = {"SGPR at 0": (gpflow.models.SGPR, 0.0), "GPRFITC at 1": (gpflow.models.GPRFITC, 1.0)}


def _of_script(model_class: Any, name: str, **options: Any) -> Any:
    script = {**SCRIPTS[name](), **options}
    problem = regression_problem(num_data=N, num_outputs=script.pop("outputs", 1))
    feature = script.pop("feature", np.copy)(problem.Z)
    return model_class(problem.data, problem.kernel(), feature, **script)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("limit", LIMITS)
def test_gpflows_models_are_limits(script: str, limit: str) -> None:
    """In value, gradient, q(u), predictions and upper bound."""
    other_class, alpha = LIMITS[limit]
    ours = _of_script(pep.PEPRegression, script, alpha=alpha)
    other = _of_script(other_class, script)
    assert_close(ours.maximum_log_likelihood_objective(), other.maximum_log_likelihood_objective())
    named, others = trainable_by_name(ours), trainable_by_name(other)
    assert named.keys() == others.keys()
    assert_all_close(
        gradients(ours.training_loss, [named[name] for name in others]),
        gradients(other.training_loss, [*others.values()]),
    )
    Xnew = regression_problem().Xnew
    for full_cov in (False, True):
        assert_all_close(ours.predict_f(Xnew, full_cov), other.predict_f(Xnew, full_cov))
    assert_all_close(ours.predict_y(Xnew), other.predict_y(Xnew))
    if other_class is gpflow.models.SGPR:
        assert_all_close(ours.compute_qu(), other.compute_qu())
        if "outputs" not in SCRIPTS[script]():  # SGPR's is of one
            in_chunks = _of_script(pep.PEPRegression, script, alpha=0.5, chunk_size=4)
            for one in (ours, in_chunks):
                assert_close(one.upper_bound(), other.upper_bound())


def test_upper_bound_of_several_outputs_is_the_sum_of_theirs() -> None:
    """The outputs are independent given the kernel, so their log marginal likelihoods add."""
    problem = regression_problem(num_data=N, num_outputs=3)
    columns = [problem._replace(Y=problem.Y[:, p : p + 1]) for p in range(3)]
    together, *each = (float(_create(one).upper_bound()) for one in (problem, *columns))
    assert_close(together, sum(each))
    assert together >= _log_exact(problem)


@each_bound
@each_grouping
def test_inducing_points_at_all_the_rows_give_gpr(blocks: Any | None, bound: str) -> None:
    gpflow.config.set_default_jitter(1e-13)
    problem, mean = regression_problem(num_data=N, num_outputs=2), Constant(0.4)
    options = {"blocks": blocks, "mean_function": mean, "bound": bound}
    ours = problem.model(pep.PEPRegression, problem.X, **options)
    exact = problem.model(gpflow.models.GPR, mean_function=mean)
    expected = [exact.predict_f(problem.Xnew, full_cov) for full_cov in (False, True)]
    for alpha in (0.0, 1e-6, 0.3, 0.5, 1.0):
        ours.alpha.assign(np.broadcast_to(alpha, ours.alpha.shape))
        assert_close(ours.pep_log_marginal_likelihood(), exact.log_marginal_likelihood())
        for full_cov, moments in zip((False, True), expected):
            assert_all_close(ours.predict_f(problem.Xnew, full_cov), moments)


@each_bound
@each_grouping
def test_continuous_in_alpha_at_0(blocks: Any | None, bound: str) -> None:
    """At alpha = 1e-14 the difference is of the order of alpha itself, and so is its gradient's."""
    both = [Case(alpha=alpha, blocks=blocks, bound=bound).model() for alpha in (1e-14, 0.0)]
    assert_close(*(model.pep_log_marginal_likelihood() for model in both), rtol=1e-11)
    of_each = [gradients(model.training_loss, model.trainable_variables) for model in both]
    assert_all_close(*of_each, rtol=1e-10)


@each_grouping
def test_small_alpha_keeps_its_digits(blocks: Any | None) -> None:
    for alpha in (1e-15, 1e-12, 1e-9, 1e-6, 1e-4, 1e-2):
        case = Case(alpha=alpha, blocks=blocks)
        expected = reference.pep_log_z(*case.reference_arguments())
        assert_close(case.model().pep_log_marginal_likelihood(), expected, rtol=1e-11)


# With a scaled conditional.


def _random_problem(seed: int) -> RegressionProblem:
    """Hyperparameters over orders of magnitude; every third one with targets that do not fit."""
    rng, problem = np.random.default_rng(seed), regression_problem(seed, num_data=30)
    order = np.argsort(problem.X[:, 0])
    Y = problem.Y if seed % 3 else 2.0 * rng.standard_t(2.0, size=problem.Y.shape)
    return problem._replace(
        X=problem.X[order],
        Y=Y[order],
        variance=float(np.exp(rng.normal())),
        lengthscales=np.exp(rng.normal(size=2)).tolist(),
        noise_variance=float(np.exp(rng.normal(-2.0, 1.5))),
    )


def _create(problem: RegressionProblem, bound: str = "tight", **options: Any) -> Any:
    return problem.model(pep.PEPRegression, **{"alpha": 0.0, "bound": bound, **options})


def _log_z(problem: RegressionProblem, **options: Any) -> float:
    return float(_create(problem, **options).pep_log_marginal_likelihood())


def _log_exact(problem: RegressionProblem) -> float:
    K, noise = problem.covariance(problem.X, problem.X), problem.noise_variance
    return reference.exact_log_marginal_likelihood(K, problem.Y, np.full(len(K), noise))


@pytest.mark.parametrize("jitter", [1e-6, 1e-10])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.near_copies("0-*", "1-*")
def test_bounds_in_their_order(seed: int, jitter: float) -> None:
    """Titsias (2009), Titsias (2025), its blocks, one block, exact, upper bound."""
    gpflow.config.set_default_jitter(jitter)
    problem = _random_problem(seed)
    ladder = [
        _log_z(problem, bound="standard"),
        *(_log_z(problem, blocks=blocks) for blocks in (None, TEN_BLOCKS, ONE_BLOCK)),
        _log_exact(problem),
        float(_create(problem).upper_bound()),
    ]
    assert np.all(np.diff(ladder) > -ROUNDING * max(map(abs, ladder))), ladder
    # Strictly so where inducing points do not suffice: the noise is what matters, not rounding.
    assert ladder[1] - ladder[0] > 1e-3 and ladder[3] - ladder[1] > 1e-3, ladder


@pytest.mark.parametrize("blocks", [None, TEN_BLOCKS], ids=["rows", "blocks"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.near_copies("0-*")
def test_log_z_grows_with_alpha(seed: int, blocks: Any | None) -> None:
    problem = _random_problem(seed)
    values = [_log_z(problem, alpha=alpha, blocks=blocks) for alpha in np.linspace(0.0, 1.0, 6)]
    assert np.all(np.diff(values) > -ROUNDING * abs(values[0])), values
    assert values[-1] - values[0] > 1e-3


@each_grouping
def test_alpha_1_does_not_depend_on_the_conditional(blocks: Any | None) -> None:
    cases = [Case(1.0, blocks=blocks, noise="scale", bound=b) for b in ("tight", "standard")]
    models = [case.model() for case in cases]
    assert_close(*(model.pep_log_marginal_likelihood() for model in models))
    assert_all_close(*(gradients(m.training_loss, m.trainable_variables) for m in models))
    assert_all_close(*(model.predict_f(cases[0].problem.Xnew) for model in models))


def test_alpha_0_has_the_posterior_of_sgpr_and_another_gradient() -> None:
    problem = regression_problem(num_data=N)
    both = _create(problem), problem.model(gpflow.models.SGPR)
    assert_all_close(*(model.compute_qu() for model in both))
    # The loss of SGPR asks for more noise: that is what the scaled conditional takes away.
    of_noise = [
        gradients(model.training_loss, [model.likelihood.variance.unconstrained_variable])[0]
        for model in both
    ]
    assert of_noise[0] > of_noise[1] + 1.0


@each_grouping
def test_single_precision(blocks: Any | None) -> None:
    problem, powers = regression_problem(num_data=N), (0.0, 0.5, 1.0)
    expected = [_log_z(problem, alpha=alpha, blocks=blocks) for alpha in powers]
    gpflow.config.set_default_float(np.float32)
    parts = {name: getattr(problem, name).astype(np.float32) for name in ("X", "Y", "Z")}
    for alpha, of_double in zip(powers, expected):
        model = _create(problem._replace(**parts), alpha=alpha, blocks=blocks)
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
@each_bound
def test_log_z_is_between_its_bounds(bound: str) -> None:
    problem = _random_problem(2)
    model = _create(problem, bound)
    assert model.bound == bound
    with pytest.raises(AttributeError):
        model.bound = "another"
    assert model.elbo() <= _log_exact(problem) <= model.upper_bound()
