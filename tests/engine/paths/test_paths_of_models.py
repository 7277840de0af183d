"""Many paths of each model have the mean and covariance that it predicts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.models import MODELS, XNEW, D, M, ModelCase, Z
from gpflow import kernels
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from helpers import Array, assert_close, regression_problem

import gpflow_pep as pep
from gpflow_pep.inducing_variables import BlurredInducingPoints

pytestmark = pytest.mark.near_copies

NUM_PATHS = 2000
PROBLEM = regression_problem(3, num_data=15)
POSITIVE = np.round(np.exp(PROBLEM.Y))
LABELS = np.where(PROBLEM.Y > 0.4, 1.0, 0.0)


def assert_moments(model: Any, num_features: int = 32, limit: float = 4.0, seed: int = 0) -> None:
    """All means and covariances over rows, and over outputs, by z-scores.

    Few features: with them the moments are right already, and the paths quick.
    """
    paths = model.paths(NUM_PATHS, num_features=num_features, seed=seed)
    values = paths(XNEW).numpy()  # [S, N, P]
    for full_cov in (True, False):
        moments = model.predict_f(XNEW, full_cov=full_cov, full_output_cov=not full_cov)
        mean, covariance = map(np.asarray, moments)
        apart = values - mean
        equation = "snp,smp->spnm" if full_cov else "snp,snq->snpq"
        products = np.einsum(equation, apart, apart)
        z = (products.mean(0) - covariance) / (products.std(0) / np.sqrt(NUM_PATHS) + 1e-12)
        assert np.max(np.abs(z)) < limit
    deviation = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2) / NUM_PATHS)
    assert np.max(np.abs(apart.mean(0)) / deviation) < limit


def with_random_q(model: Any) -> Any:
    """Tied models start from the prior."""
    if isinstance(model, gpflow.models.ExternalDataTrainingLossMixin):
        random = np.random.default_rng(1)
        model.q_mu.assign(random.standard_normal(model.q_mu.shape))
        root = 0.3 * random.standard_normal(model.q_sqrt.shape) + 0.5 * np.eye(
            model.q_sqrt.shape[2]
        )
        model.q_sqrt.assign(np.tril(root))
    return model


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in MODELS])
def test_every_model_at_each_alpha(case: ModelCase, alpha: float) -> None:
    assert_moments(with_random_q(case.create(case.data(0), Z, alpha=alpha)))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    ("likelihood", "Y"),
    [
        (gpflow.likelihoods.StudentT(0.3), PROBLEM.Y),
        (gpflow.likelihoods.Poisson(), POSITIVE),
        (gpflow.likelihoods.Bernoulli(), LABELS),
    ],
    ids=["StudentT", "Poisson", "Bernoulli"],
)
def test_likelihoods(likelihood: Any, Y: Array, alpha: float) -> None:
    model = pep.PEP((PROBLEM.X, Y), PROBLEM.kernel(), likelihood, Z.copy(), alpha=alpha)
    assert_moments(model)


SE = kernels.SquaredExponential
KERNELS: dict[str, Callable[[], kernels.Kernel]] = {
    "Matern12": lambda: kernels.Matern12(lengthscales=[0.8, 1.1]),
    "Matern32": lambda: kernels.Matern32(active_dims=[1]),
    "Matern52": lambda: kernels.Matern52(variance=0.6, lengthscales=1.3),
    "RationalQuadratic": lambda: kernels.RationalQuadratic(alpha=0.7),
    "sum": lambda: SE(active_dims=[0]) + kernels.Linear(0.3) + kernels.Constant(0.4),
    "product": lambda: SE(lengthscales=0.8) * kernels.Matern32(lengthscales=3.0),
    "linear times stationary": lambda: kernels.Linear([0.3, 0.5]) * SE(lengthscales=2.0),
    "periodic and polynomial": lambda: (
        kernels.Periodic(SE(active_dims=[0]), period=1.7) + kernels.Polynomial(2, variance=0.2)
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name: str) -> None:
    assert_moments(pep.PEPRegression(PROBLEM.data, KERNELS[name](), Z.copy(), noise_variance=0.1))


def test_kernel_of_numbered_outputs() -> None:
    """With the number of the output as a column."""
    X = np.column_stack([PROBLEM.X[:, 0], np.arange(len(PROBLEM.X)) % 2])
    kernel = SE(active_dims=[0]) * kernels.Coregion(2, 1, active_dims=[1])
    model = pep.PEPRegression((X, PROBLEM.Y), kernel, X[:5].copy(), noise_variance=0.1)
    rows = np.column_stack([XNEW[:, 0], np.arange(len(XNEW)) % 2])
    values = model.paths(NUM_PATHS, 32)(rows).numpy()[:, :, 0]
    mean, covariance = (np.asarray(part) for part in model.predict_f(rows, full_cov=True))
    z = (values.mean(0) - mean[:, 0]) / np.sqrt(np.diagonal(covariance[0]) / NUM_PATHS)
    assert np.max(np.abs(z)) < 4.0
    assert_close(np.cov(values.T), covariance[0], rtol=0.1)


ROOTS = np.tril(np.random.default_rng(0).uniform(0.1, 0.5, (len(Z), D, D)))
VARIABLES: dict[str, Callable[[], Any]] = {
    "blurred": lambda: BlurredInducingPoints(Z.copy(), ROOTS @ np.transpose(ROOTS, [0, 2, 1])),
    "spherical": lambda: BlurredInducingPoints(Z.copy(), 0.3 * np.ones(len(Z))),
}


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", VARIABLES)
def test_inducing_variables(name: str, alpha: float) -> None:
    kernel = PROBLEM.kernel() * SE(active_dims=[0], lengthscales=2.0) + kernels.Constant(0.2)
    assert_moments(
        pep.PEPRegression(PROBLEM.data, kernel, VARIABLES[name](), alpha=alpha, noise_variance=0.1)
    )


def test_points_that_coincide() -> None:
    """The jitter that the factorisation needs is part of the covariance of u."""
    with pytest.warns(pep.engine.numerics.linalg.JitterWarning):
        gpflow.config.set_default_jitter(0.0)
        model = pep.PEPRegression(
            PROBLEM.data, PROBLEM.kernel(), np.vstack([Z, Z]), noise_variance=0.1
        )
        assert_moments(model)


def shared() -> Any:
    return SharedIndependentInducingVariables(InducingPoints(Z.copy()))


def separate() -> Any:
    return SeparateIndependentInducingVariables([InducingPoints(Z + k) for k in (0.0, 0.3)])


MIXING = np.array([[1.0, 0.5], [-0.3, 0.8], [0.2, 0.1]])
PARTS = [SE(lengthscales=0.8), kernels.Matern32()]
#: Kernel and inducing variables.
SEVERAL: dict[str, Callable[[], tuple[Any, Any]]] = {
    "one kernel": lambda: (SE(), InducingPoints(Z.copy())),
    "shared": lambda: (kernels.SharedIndependent(SE(), 2), shared()),
    "shared kernel, separate points": lambda: (kernels.SharedIndependent(SE(), 2), separate()),
    "separate kernels, shared points": lambda: (kernels.SeparateIndependent(PARTS), shared()),
    "separate": lambda: (kernels.SeparateIndependent(PARTS), separate()),
    "mixed": lambda: (kernels.LinearCoregionalization(PARTS, MIXING), shared()),
    "mixed, separate points": lambda: (kernels.LinearCoregionalization(PARTS, MIXING), separate()),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_outputs(name: str) -> None:
    kernel, variables = SEVERAL[name]()
    random = np.random.default_rng(1)
    size, number = 4, 2
    root = np.tril(0.2 * random.standard_normal((number, size, size))) + 0.5 * np.eye(size)
    model = pep.ARPEP(
        kernel,
        gpflow.likelihoods.Gaussian(),
        variables,
        num_data=20,
        q_mu=random.standard_normal([size, number]),
        q_sqrt=root,
        mean_function=gpflow.functions.Constant(0.7),
    )
    assert_moments(model)


MIXED_DATA = regression_problem(3, num_data=15, num_outputs=3).data
#: So few of two outputs are known that the latent functions are hard to tell apart.
MIXED_DATA[1][np.arange(15) % 5 != 0, 1:] = np.nan


def mixed_regression() -> pep.PEPRegression:
    mixing = kernels.LinearCoregionalization(PARTS, MIXING)
    return pep.PEPRegression(MIXED_DATA, mixing, separate(), noise_variance=0.1)


def mixed_pep() -> pep.PEP:
    """Labels beside numbers, of which some are missing, and points of each latent function."""
    Y = np.column_stack([PROBLEM.Y, LABELS, PROBLEM.Y**2])
    Y[::3, 0] = Y[1::4, 2] = np.nan
    parts = [gpflow.likelihoods.Gaussian(0.1), gpflow.likelihoods.Bernoulli()]
    return pep.PEP(
        (PROBLEM.X, Y),
        kernels.LinearCoregionalization(PARTS, MIXING),
        pep.likelihoods.PerOutput([*parts, gpflow.likelihoods.StudentT(0.3)]),
        separate(),
        mean_function=gpflow.functions.Constant([0.1, 0.0, 0.4]),
    )


@pytest.mark.parametrize("create", [mixed_regression, mixed_pep])
def test_mixtures_under_one_gaussian_over_all(create: Callable[[], Any]) -> None:
    model = create()
    assert_moments(model)
    # Covariances between the outputs of different rows, too.
    values = model.paths(NUM_PATHS, num_features=32, seed=1)(XNEW).numpy()
    moments = model.predict_f(XNEW, full_cov=True, full_output_cov=True)
    mean, covariance = map(np.asarray, moments)
    products = np.einsum("snp,smq->snpmq", values - mean, values - mean)
    z = (products.mean(0) - covariance) / (products.std(0) / np.sqrt(NUM_PATHS))
    assert np.max(np.abs(z)) < 4.5
    # q correlates what latent functions that are independent a priori have in common.
    q = model.q_sqrt.numpy()[0] @ model.q_sqrt.numpy()[0].T
    assert np.max(np.abs(q[:M, M:])) > 0.1


def test_paths_of_a_mixture_are_functions(tmp_path: Path) -> None:
    """The same in all calls and by the same seed, differentiable, saved, and new by update."""
    model = mixed_regression()
    paths, again = (model.paths(3, num_features=16, seed=2) for _ in range(2))
    X = tf.constant(XNEW)
    values = paths(X)
    assert values.shape == (3, len(XNEW), 3)
    assert np.array_equal(values, again(X))
    assert_close(paths(X[2:4]), values[:, 2:4], rtol=1e-12)
    with tf.GradientTape() as tape:
        tape.watch(X)
        total = tf.reduce_sum(tf.sin(paths(X)))
    gradient = tape.gradient(total, X).numpy()
    for place in ((0, 0), (3, 1)):
        step = np.zeros(XNEW.shape)
        step[place] = 1e-5
        ends = [float(tf.reduce_sum(tf.sin(paths(XNEW + sign * step)))) for sign in (1, -1)]
        assert_close(gradient[place], (ends[0] - ends[1]) / 2e-5, rtol=1e-7)
    paths.compiled = tf.function(
        paths.__call__, input_signature=[tf.TensorSpec([None, D], tf.float64)]
    )
    tf.saved_model.save(paths, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert_close(loaded.compiled(X), values, rtol=1e-12)
    model.data = tuple(part[4:] for part in MIXED_DATA)
    model.kernel.W.assign(MIXING[::-1])
    paths.update()
    fresh = model.paths(3, num_features=16, seed=2)
    assert_close(paths(X), fresh(X), rtol=1e-9)
    assert np.max(np.abs(fresh(X) - values)) > 0.1


def test_missing_targets() -> None:
    problem = regression_problem(3, num_data=15, num_outputs=2)
    Y = np.where(np.arange(15)[:, None] % 3 == [0, 1], np.nan, problem.Y)
    assert_moments(problem._replace(Y=Y).model(pep.PEPRegression))


def test_regression_of_several_columns() -> None:
    problem = regression_problem(3, num_data=15, num_outputs=2)
    assert_moments(problem.model(pep.PEPRegression))


def test_unwhitened_and_diagonal_q() -> None:
    for options in ({"whiten": False}, {"q_diag": True}):
        model = pep.ARPEP(
            SE(),
            gpflow.likelihoods.Bernoulli(),
            Z.copy(),
            num_data=20,
            q_mu=np.ones([len(Z), 1]),
            **options,
        )
        assert_moments(model)


def test_inducing_points_at_all_data_give_the_exact_posterior() -> None:
    exact = PROBLEM.model(gpflow.models.GPR)
    model = PROBLEM.model(pep.PEPRegression, PROBLEM.X.copy(), alpha=1.0)
    values = model.paths(NUM_PATHS, 32)(XNEW).numpy()[:, :, 0]
    mean, covariance = (np.asarray(part) for part in exact.predict_f(XNEW, full_cov=True))
    z = (values.mean(0) - mean[:, 0]) / np.sqrt(np.diagonal(covariance[0]) / NUM_PATHS)
    assert np.max(np.abs(z)) < 4.0
    apart = values - mean[:, 0]
    products = apart[:, :, None] * apart[:, None, :]
    z = (products.mean(0) - covariance[0]) / (products.std(0) / np.sqrt(NUM_PATHS))
    assert np.max(np.abs(z)) < 4.0


def test_memory_and_blocks() -> None:
    """What else made q does not matter; without labels blocks predict from u alone."""
    first = PROBLEM.model(pep.PEPRegression)
    other = regression_problem(4, num_data=12)
    assert_moments(other.model(pep.PEPRegression, memory=first.remember(alpha=0.5)))
    assert_moments(PROBLEM.model(pep.PEPRegression, blocks=np.arange(15) // 5))


def test_mixture_draws_the_component_first() -> None:
    models = [PROBLEM.model(pep.PEPRegression, alpha=alpha) for alpha in (0.0, 1.0)]
    models[1].kernel.variance.assign(3.0)
    models[1].mean_function = gpflow.functions.Constant(2.0)
    assert_moments(pep.training.Ensemble(models, np.array([0.3, 0.7])))


def test_component_of_a_mixture() -> None:
    models = [PROBLEM.model(pep.PEPRegression, alpha=alpha) for alpha in (0.0, 1.0)]
    mixture = pep.training.Ensemble(models, np.array([0.25, 0.75]))
    paths = mixture.paths(400, 4, seed=1)
    assert 0.68 < np.mean(paths.component.numpy()) < 0.82
    X = tf.constant(XNEW)
    assert_close(paths.each(tf.tile(X[None], [400, 1, 1])), paths(X), rtol=1e-12)
    values, component = paths(X).numpy(), paths.component.numpy()
    paths.resample(2)
    assert np.any(paths.component.numpy() != component)
    paths.resample(1)
    assert np.all(paths(X).numpy() == values)
    mixture.weights.assign([0.0, 1.0])
    paths.update()
    assert np.all(paths.component.numpy() == 1)
