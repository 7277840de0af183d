"""Many paths of each model have the mean and covariance that it predicts."""

from typing import Any

import gpflow
import numpy as np
import pytest
from cases.models import MODELS, XNEW, D, M, ModelCase, Z
from gpflow import kernels
from helpers import regression_problem, worst_z

import gpflow_pep as pep
from gpflow_pep.inducing_variables import BlurredInducingPoints

pytestmark = pytest.mark.near_copies
NUM_PATHS = 2000
PROBLEM = regression_problem(3, num_data=15)
LABELS = np.where(PROBLEM.Y > 0.4, 1.0, 0.0)
each_power = pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
SE = kernels.SquaredExponential
lik = gpflow.likelihoods
iv = gpflow.inducing_variables


def assert_moments(model: Any, seed: int = 0, of_all: bool = False) -> None:
    """By z-scores, over rows and over outputs, or both; few features are
    right already.
    """
    # [S, N, P]
    values = model.paths(NUM_PATHS, num_features=32, seed=seed)(XNEW).numpy()
    for full_cov in (True, False):
        mean, covariance = model.predict_f(
            XNEW, full_cov=full_cov, full_output_cov=not full_cov
        )
        axes = [0, 2, 1] if full_cov else [0, 1, 2]
        mean = np.transpose(mean[None], axes)[0]
        assert worst_z(np.transpose(values, axes), mean, covariance) < 4.0
    if of_all:
        mean, covariance = model.predict_f(XNEW, full_cov=True, full_output_cov=True)
        size = values[0].size
        flat = (
            values.reshape(-1, size),
            np.ravel(mean),
            np.reshape(covariance, (size, size)),
        )
        assert worst_z(*flat) < 4.5


def with_random_q(model: Any) -> Any:
    if isinstance(model, gpflow.models.ExternalDataTrainingLossMixin):
        random = np.random.default_rng(1)
        model.q_mu.assign(random.standard_normal(model.q_mu.shape))
        root = 0.3 * random.standard_normal(model.q_sqrt.shape)
        model.q_sqrt.assign(np.tril(root + 0.5 * np.eye(model.q_sqrt.shape[2])))
    return model


@each_power
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in MODELS])
def test_every_model_at_each_alpha(case: ModelCase, alpha: float) -> None:
    assert_moments(with_random_q(case.create(case.data(0), Z, alpha=alpha)))


@each_power
@pytest.mark.parametrize(
    "likelihood, Y",
    [
        (lik.StudentT(0.3), PROBLEM.Y),
        (lik.Poisson(), np.round(np.exp(PROBLEM.Y))),
        (lik.Bernoulli(), LABELS),
    ],
)
def test_likelihoods(likelihood: Any, Y: Any, alpha: float) -> None:
    assert_moments(
        pep.PEP((PROBLEM.X, Y), PROBLEM.kernel(), likelihood, Z.copy(), alpha=alpha)
    )


ROOTS = np.tril(np.random.default_rng(0).uniform(0.1, 0.5, (len(Z), D, D)))
BLURS = {
    "blurred": ROOTS @ np.transpose(ROOTS, [0, 2, 1]),
    "spherical": 0.3 * np.ones(len(Z)),
}


def with_kernel(kernel: kernels.Kernel) -> Any:
    return lambda: pep.PEPRegression(PROBLEM.data, kernel, Z.copy(), noise_variance=0.1)


def with_blur(name: str, alpha: float) -> Any:
    kernel = PROBLEM.kernel() * SE(
        active_dims=[0], lengthscales=2.0
    ) + kernels.Constant(0.2)
    points = BlurredInducingPoints(Z.copy(), BLURS[name])
    options = {"alpha": alpha, "noise_variance": 0.1}
    return lambda: pep.PEPRegression(PROBLEM.data, kernel, points, **options)


def tied(*parts: Any, **options: Any) -> Any:
    return lambda: pep.ARPEP(
        *parts, Z.copy(), num_data=20, q_mu=np.ones([len(Z), 1]), **options
    )


def several_columns(missing: bool) -> Any:
    problem = regression_problem(3, num_data=15, num_outputs=2)
    holes = (np.arange(15)[:, None] % 3 == [0, 1]) & missing
    return problem._replace(Y=np.where(holes, np.nan, problem.Y)).model(
        pep.PEPRegression
    )


def with_memory() -> Any:
    """What else made q does not matter."""
    memory = PROBLEM.model(pep.PEPRegression).remember(alpha=0.5)
    return regression_problem(4, num_data=12).model(pep.PEPRegression, memory=memory)


#: By parts: kernels, inducing variables, forms of q, data.
PARTS_OF_MODELS: dict[str, Any] = {
    "Matern12": with_kernel(kernels.Matern12(lengthscales=[0.8, 1.1])),
    "Matern32": with_kernel(kernels.Matern32(active_dims=[1])),
    "Matern52": with_kernel(kernels.Matern52(variance=0.6, lengthscales=1.3)),
    "RationalQuadratic": with_kernel(kernels.RationalQuadratic(alpha=0.7)),
    "sum": with_kernel(
        SE(active_dims=[0]) + kernels.Linear(0.3) + kernels.Constant(0.4)
    ),
    "product": with_kernel(SE(lengthscales=0.8) * kernels.Matern32(lengthscales=3.0)),
    "linear times stationary": with_kernel(
        kernels.Linear([0.3, 0.5]) * SE(lengthscales=2.0)
    ),
    "periodic and polynomial": with_kernel(
        kernels.Periodic(SE(active_dims=[0]), period=1.7)
        + kernels.Polynomial(2, variance=0.2)
    ),
    **{f"{n}, {a}": with_blur(n, a) for n in BLURS for a in (0.0, 0.5, 1.0)},
    "not whitened": tied(SE(), lik.Bernoulli(), whiten=False),
    "diagonal q": tied(SE(), lik.Bernoulli(), q_diag=True),
    "two columns": lambda: several_columns(False),
    "missing targets": lambda: several_columns(True),
    "memory": with_memory,
    # Without labels blocks predict from u alone.
    "blocks": lambda: PROBLEM.model(pep.PEPRegression, blocks=np.arange(15) // 5),
}
FAST = (
    "Matern12",
    "blurred, 0.0",
    "not whitened",
    "diagonal q",
    "two columns",
    "missing targets",
)


@pytest.mark.near_copies(*FAST, "memory", "blocks")
@pytest.mark.parametrize("name", PARTS_OF_MODELS)
def test_parts_of_models(name: str) -> None:
    assert_moments(PARTS_OF_MODELS[name]())


def test_other_moments() -> None:
    """Of a kernel of numbered outputs; of exact regression, with inducing points at all
    data.
    """
    X, rows = (
        np.column_stack([A[:, 0], np.arange(len(A)) % 2]) for A in (PROBLEM.X, XNEW)
    )
    kernel = SE(active_dims=[0]) * kernels.Coregion(2, 1, active_dims=[1])
    numbered = pep.PEPRegression(
        (X, PROBLEM.Y), kernel, X[:5].copy(), noise_variance=0.1
    )
    at_all = PROBLEM.model(pep.PEPRegression, PROBLEM.X.copy(), alpha=1.0)
    exact = PROBLEM.model(gpflow.models.GPR)
    for model, Xnew, expected in ((numbered, rows, numbered), (at_all, XNEW, exact)):
        mean, covariance = expected.predict_f(Xnew, full_cov=True)
        values = model.paths(NUM_PATHS, 32)(Xnew)
        assert worst_z(values[..., 0], mean[:, 0], covariance[0]) < 4.0


def test_points_that_coincide() -> None:
    """The jitter that the factorisation needs is part of the covariance of u."""
    with pytest.warns(pep.engine.numerics.linalg.JitterWarning):
        gpflow.config.set_default_jitter(0.0)
        assert_moments(PROBLEM.model(pep.PEPRegression, np.vstack([Z, Z])))


def shared() -> Any:
    return iv.SharedIndependentInducingVariables(iv.InducingPoints(Z.copy()))


def separate() -> Any:
    return iv.SeparateIndependentInducingVariables(
        [iv.InducingPoints(Z + k) for k in (0.0, 0.3)]
    )


MIXING = np.array([[1.0, 0.5], [-0.3, 0.8], [0.2, 0.1]])
PARTS = [SE(lengthscales=0.8), kernels.Matern32()]
#: Kernel and inducing variables.
SEVERAL: dict[str, Any] = {
    "one kernel": lambda: (SE(), iv.InducingPoints(Z.copy())),
    "shared": lambda: (kernels.SharedIndependent(SE(), 2), shared()),
    "shared kernel, separate points": lambda: (
        kernels.SharedIndependent(SE(), 2),
        separate(),
    ),
    "separate kernels, shared points": lambda: (
        kernels.SeparateIndependent(PARTS),
        shared(),
    ),
    "separate": lambda: (kernels.SeparateIndependent(PARTS), separate()),
    "mixed": lambda: (kernels.LinearCoregionalization(PARTS, MIXING), shared()),
    "mixed, separate points": lambda: (
        kernels.LinearCoregionalization(PARTS, MIXING),
        separate(),
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_outputs(name: str) -> None:
    kernel, variables = SEVERAL[name]()
    mean = gpflow.functions.Constant(0.7)
    options = {"num_data": 20, "num_latent_gps": 2, "mean_function": mean}
    assert_moments(
        with_random_q(pep.ARPEP(kernel, lik.Gaussian(), variables, **options))
    )


MIXED_DATA = regression_problem(3, num_data=15, num_outputs=3).data
#: So few of two outputs are known that the latent functions are hard to tell apart.
MIXED_DATA[1][np.arange(15) % 5 != 0, 1:] = np.nan


def mixed_regression() -> pep.PEPRegression:
    mixing = kernels.LinearCoregionalization(PARTS, MIXING)
    return pep.PEPRegression(MIXED_DATA, mixing, separate(), noise_variance=0.1)


def mixed_pep() -> pep.PEP:
    """Labels beside numbers, of which some are missing, and points of each latent
    function.
    """
    Y = np.column_stack([PROBLEM.Y, LABELS, PROBLEM.Y**2])
    Y[::3, 0] = Y[1::4, 2] = np.nan
    return pep.PEP(
        (PROBLEM.X, Y),
        kernels.LinearCoregionalization(PARTS, MIXING),
        pep.likelihoods.PerOutput(
            [lik.Gaussian(0.1), lik.Bernoulli(), lik.StudentT(0.3)]
        ),
        separate(),
        mean_function=gpflow.functions.Constant([0.1, 0.0, 0.4]),
    )


@pytest.mark.parametrize("create", [mixed_regression, mixed_pep])
def test_mixtures_under_one_gaussian_over_all(create: Any) -> None:
    model = create()
    assert_moments(model, of_all=True)
    # q correlates what latent functions that are independent a priori have in common.
    q = model.q_sqrt.numpy()[0] @ model.q_sqrt.numpy()[0].T
    assert np.max(np.abs(q[:M, M:])) > 0.1
