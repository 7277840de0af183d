"""Blurred inducing points: against points, GPflow's Multiscale, integration, in models."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import (
    InducingPoints,
    Multiscale,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Constant, Matern32, SquaredExponential, White
from helpers import (
    Array,
    assert_all_close,
    assert_close,
    finite_difference_gradient,
    regression_problem,
)

import gpflow_pep as pep
from gpflow_pep.inducing_variables import BlurredInducingPoints

M, D = 5, 2
PROBLEM = regression_problem(num_data=11, num_inducing=M)
Z, X = PROBLEM.Z, PROBLEM.X
_ROOT = np.random.default_rng(3).normal(size=[M, D, D]) * 0.4
SPHERICAL = np.linspace(0.05, 0.4, M)
DIAGONAL = np.linspace(0.05, 0.5, M * D).reshape(M, D)
FULL = _ROOT @ _ROOT.transpose(0, 2, 1)
COVARIANCES = {"spherical": SPHERICAL, "diagonal": DIAGONAL, "full": FULL}
every_covariance = pytest.mark.parametrize("covariance", COVARIANCES.values(), ids=COVARIANCES)


def _ard() -> SquaredExponential:
    return SquaredExponential(1.3, lengthscales=[0.8, 1.1])


KERNELS: dict[str, Callable[[], gpflow.kernels.Kernel]] = {
    "ARD": _ard,
    "one lengthscale": lambda: SquaredExponential(0.7, lengthscales=0.9),
    "active dimension": lambda: SquaredExponential(lengthscales=0.9, active_dims=[1]),
    "active dimensions in another order": lambda: SquaredExponential(
        lengthscales=[0.5, 0.9], active_dims=[1, 0]
    ),
    "active slice": lambda: SquaredExponential(lengthscales=[0.9], active_dims=slice(0, 1)),
    "constant": lambda: Constant(0.4),
    "sum": lambda: _ard() + Constant(0.4) + SquaredExponential(lengthscales=0.6, active_dims=[0]),
    "product": lambda: (
        Constant(0.4)
        * SquaredExponential(1.2, lengthscales=0.6, active_dims=[0])
        * SquaredExponential(0.8, lengthscales=0.9, active_dims=[1])
    ),
    "product of sums": lambda: (
        (_ard() + Constant(0.3)) * (SquaredExponential(lengthscales=0.7) + Constant(0.2))
    ),
}
every_kernel = pytest.mark.parametrize("make_kernel", KERNELS.values(), ids=KERNELS)


def _nodes(centre: Array, covariance: Array, count: int) -> tuple[Array, Array]:
    """Nodes [count², 2] and weights of Gauss-Hermite quadrature under N(centre, covariance)."""
    node, weight = np.polynomial.hermite_e.hermegauss(count)
    weight = weight / weight.sum()
    grid = np.stack(np.meshgrid(node, node), axis=-1).reshape(-1, 2)
    values, vectors = np.linalg.eigh(covariance)
    return centre + grid @ (vectors * np.sqrt(np.maximum(values, 0.0))).T, np.outer(
        weight, weight
    ).ravel()


@every_kernel
@every_covariance
def test_equal_averages_by_quadrature(make_kernel: Callable[[], Any], covariance: Array) -> None:
    # Three points and less blur, for few nodes to do.
    M = 3
    kernel, blurred = make_kernel(), BlurredInducingPoints(Z[:M], 0.12 * covariance[:M])
    nodes, weights = zip(*(_nodes(z, C, 22) for z, C in zip(Z, blurred.covariance.numpy())))
    weight = np.array(weights)  # [M, K]
    of_rows = kernel(np.concatenate(nodes), X).numpy().reshape(M, -1, len(X))
    assert_close(Kuf(blurred, kernel, X), np.einsum("mk,mkn->mn", weight, of_rows), 1e-9)
    between = kernel(np.concatenate(nodes), np.concatenate(nodes)).numpy()
    between = between.reshape(M, weight.shape[1], M, weight.shape[1])
    expected = np.einsum("mk,mkjl,jl->mj", weight, between, weight, optimize=True)
    assert_close(Kuu(blurred, kernel), expected, 1e-9)


@every_kernel
@pytest.mark.parametrize("axes", [0, 1, 2], ids=["spherical", "diagonal", "full"])
def test_points_without_blur(make_kernel: Callable[[], Any], axes: int) -> None:
    kernel = make_kernel()
    blurred, points = BlurredInducingPoints(Z, np.zeros([M, *[D] * axes])), InducingPoints(Z)
    assert_close(Kuu(blurred, kernel, jitter=0.1), Kuu(points, kernel, jitter=0.1), 1e-12)
    assert_close(Kuf(blurred, kernel, X), Kuf(points, kernel, X), 1e-12)
    in_batches = np.stack([X, X + 1.0])
    assert_close(Kuf(blurred, kernel, in_batches), Kuf(points, kernel, in_batches), 1e-12)


@pytest.mark.parametrize("lengthscales", [[0.8, 1.1], 0.9])
@pytest.mark.parametrize("covariance", [SPHERICAL, DIAGONAL], ids=["spherical", "diagonal"])
def test_equals_multiscale(covariance: Array, lengthscales: Any) -> None:
    """Multiscale's own scales are what the kernel's lengthscales grow by."""
    kernel = SquaredExponential(1.3, lengthscales=lengthscales)
    variances = covariance.reshape(M, -1)
    scales = np.sqrt(np.square(lengthscales) + variances) - lengthscales
    multiscale = Multiscale(Z, np.broadcast_to(scales, [M, D]))
    blurred = BlurredInducingPoints(Z, covariance)
    assert_close(Kuu(blurred, kernel, jitter=1e-6), Kuu(multiscale, kernel, jitter=1e-6), 1e-10)
    assert_close(Kuf(blurred, kernel, X), Kuf(multiscale, kernel, X), 1e-10)


@every_covariance
def test_covariances_are_kept(covariance: Array) -> None:
    blurred = BlurredInducingPoints(Z, covariance)
    expected = covariance if covariance.ndim == 3 else covariance.reshape(M, -1, 1) * np.eye(D)
    assert_close(blurred.covariance, expected, 1e-14)
    assert_close(blurred.covariance_sqrt.shape, covariance.shape)


def test_singular_covariances_are_kept() -> None:
    direction = np.array([[1.0, 2.0], [0.0, 0.0], [3.0, -1.0], [0.0, 1.0], [1.0, 0.0]])
    covariance = direction[:, :, None] * direction[:, None, :]
    assert_close(BlurredInducingPoints(Z, covariance).covariance, covariance, 1e-14)


def test_prior_covariance_stays_positive() -> None:
    """Far larger blur than the lengthscales, and points that nearly coincide."""
    Z_close = np.concatenate([Z, Z + 1e-9])
    covariance = np.concatenate([FULL, FULL])
    for factor in (1.0, 1e2, 1e6):
        K = Kuu(BlurredInducingPoints(Z_close, factor * covariance), _ard()).numpy()
        assert np.array_equal(K, K.T)
        assert np.linalg.eigvalsh(K).min() > -1e-14


def _total(blurred: BlurredInducingPoints, kernel: gpflow.kernels.Kernel) -> tf.Tensor:
    weights = tf.constant(np.random.default_rng(0).normal(size=[M, M + len(X)]))
    both = tf.concat([Kuu(blurred, kernel), Kuf(blurred, kernel, X)], axis=1)
    return tf.reduce_sum(weights * both)


@pytest.mark.parametrize("name", ["active dimension", "product of sums"])
@every_covariance
@pytest.mark.near_copies
def test_gradients(name: str, covariance: Array) -> None:
    kernel, blurred = KERNELS[name](), BlurredInducingPoints(Z, covariance)
    variables = (*blurred.trainable_variables, *kernel.trainable_variables)
    total = tf.function(lambda: _total(blurred, kernel), autograph=False)
    with tf.GradientTape() as tape:
        value = total()
    for variable, gradient in zip(variables, tape.gradient(value, variables)):
        expected = finite_difference_gradient(total, variable)
        assert_close(tf.convert_to_tensor(gradient), expected, 1e-7, scale=1.0)


def _regression(blurred: Any, alpha: float, chunk_size: int | None = None) -> Any:
    return PROBLEM.model(pep.models.PEPRegression, blurred, alpha=alpha, chunk_size=chunk_size)


@pytest.mark.near_copies("full")
@every_covariance
def test_models_of_both_packages_agree(covariance: Array) -> None:
    blurred = BlurredInducingPoints(Z, covariance)
    sgpr = PROBLEM.model(gpflow.models.SGPR, blurred)
    ours = _regression(blurred, alpha=0.0, chunk_size=4)
    assert_close(ours.pep_log_marginal_likelihood(), sgpr.elbo())
    assert_all_close(ours.predict_f(PROBLEM.Xnew), sgpr.predict_f(PROBLEM.Xnew))
    posterior = ours.posterior()
    svgp = gpflow.models.SVGP(
        PROBLEM.kernel(),
        gpflow.likelihoods.Gaussian(PROBLEM.noise_variance),
        blurred,
        q_mu=ours.q_mu,
        q_sqrt=ours.q_sqrt,
    )
    assert_close(svgp.elbo(PROBLEM.data), sgpr.elbo())
    full = svgp.predict_f(PROBLEM.Xnew, full_cov=True)
    assert_all_close(posterior.predict_f(PROBLEM.Xnew, full_cov=True), full)


def test_alpha_one_is_fitc() -> None:
    blurred = BlurredInducingPoints(Z, FULL)
    fitc = PROBLEM.model(gpflow.models.GPRFITC, blurred)
    ours = _regression(blurred, alpha=1.0)
    assert_close(ours.pep_log_marginal_likelihood(), fitc.fitc_log_marginal_likelihood())


def test_covariances_are_trained() -> None:
    model = _regression(BlurredInducingPoints(Z, FULL), alpha=0.5)
    before = model.training_loss().numpy()
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": 5}
    )
    assert model.training_loss() < before - 0.1
    assert np.abs(model.inducing_variable.covariance - FULL).max() > 1e-3


@pytest.mark.parametrize("separate", [False, True], ids=["shared", "separate"])
@pytest.mark.near_copies
def test_several_latent_functions(separate: bool) -> None:
    kernels = [_ard(), SquaredExponential(lengthscales=0.7)]
    parts = [BlurredInducingPoints(Z, FULL), BlurredInducingPoints(Z, DIAGONAL)]
    if separate:
        variables = SeparateIndependentInducingVariables(parts)
    else:
        variables = SharedIndependentInducingVariables(parts[0])
    kernel = gpflow.kernels.SeparateIndependent(kernels)
    both = Kuu(variables, kernel, jitter=1e-6)
    for k, (one, K) in enumerate(zip(kernels, both)):
        assert_close(K, Kuu(parts[k if separate else 0], one, jitter=1e-6))
    Y = np.where(X[:, :1] > 0.0, 1.0, 0.0)
    model = pep.models.PEP(
        (X, Y), kernel, gpflow.likelihoods.Softmax(2), variables, alpha=0.5, max_sweeps=50
    )
    assert np.isfinite(model.pep_log_marginal_likelihood())
    assert np.all(np.isfinite(model.predict_f(PROBLEM.Xnew)[1]))


@every_covariance
def test_behaves_as_a_module(covariance: Array, tmp_path: Path, capsys: Any) -> None:
    model = _regression(BlurredInducingPoints(Z, covariance), alpha=0.5)
    value = model.pep_log_marginal_likelihood().numpy()
    twin = copy.deepcopy(model)
    other = _regression(BlurredInducingPoints(Z + 0.1, 1.5 * covariance), alpha=0.5)
    saved = tf.train.Checkpoint(model=model).save(str(tmp_path / "model"))
    values = gpflow.utilities.read_values(model)
    model.inducing_variable.covariance_sqrt.assign(0.9 * model.inducing_variable.covariance_sqrt)
    assert abs(model.pep_log_marginal_likelihood() - value) > 1e-6
    assert_close(twin.pep_log_marginal_likelihood(), value)
    tf.train.Checkpoint(model=other).restore(saved).assert_consumed()
    assert_close(other.pep_log_marginal_likelihood(), value)
    gpflow.utilities.multiple_assign(model, values)
    assert_close(model.pep_log_marginal_likelihood(), value)
    gpflow.utilities.print_summary(model)
    assert "covariance_sqrt" in capsys.readouterr().out
    count = len(model.trainable_variables)
    gpflow.set_trainable(model.inducing_variable.covariance_sqrt, False)
    assert len(model.trainable_variables) == count - 1


@every_covariance
def test_float32(covariance: Array) -> None:
    expected = _regression(BlurredInducingPoints(Z, covariance), alpha=0.5)
    gpflow.config.set_default_float(np.float32)
    gpflow.config.set_default_jitter(1e-4)
    blurred = BlurredInducingPoints(Z.astype(np.float32), covariance.astype(np.float32))
    kernel = PROBLEM.kernel()
    data = tuple(part.astype(np.float32) for part in PROBLEM.data)
    model = pep.models.PEPRegression(data, kernel, blurred, alpha=0.5, noise_variance=0.09)
    value = model.pep_log_marginal_likelihood()
    assert value.dtype == tf.float32
    assert_close(value, expected.pep_log_marginal_likelihood(), 1e-3)


def test_compiled_with_xla() -> None:
    blurred, kernel = BlurredInducingPoints(Z, FULL), _ard()
    compiled = tf.function(lambda: _total(blurred, kernel), jit_compile=True, autograph=False)
    assert_close(compiled(), _total(blurred, kernel))


UNKNOWN = {
    "Matern": Matern32,
    "White": White,
    "sum": lambda: _ard() + Matern32(),
    "product": lambda: _ard() * White(),
    "change points": lambda: gpflow.kernels.ChangePoints([_ard(), Constant()], [0.0]),
}


@pytest.mark.parametrize("make_kernel", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_kernels_are_refused(make_kernel: Callable[[], Any]) -> None:
    blurred, kernel = BlurredInducingPoints(Z, FULL), make_kernel()
    for attempt in (
        lambda: Kuu(blurred, kernel),
        lambda: Kuf(blurred, kernel, X),
        lambda: pep.models.PEPRegression(PROBLEM.data, kernel, blurred),
        lambda: pep.models.PEP(PROBLEM.data, kernel, gpflow.likelihoods.StudentT(), blurred),
        lambda: pep.models.PEP(
            PROBLEM.data,
            gpflow.kernels.SharedIndependent(kernel, 1),
            gpflow.likelihoods.StudentT(),
            SharedIndependentInducingVariables(blurred),
        ),
    ):
        with pytest.raises(ValueError, match="SquaredExponential and Constant, and for Sum and"):
            attempt()


BAD_ARGUMENTS = {
    "one number": (Z, 0.1, r"got shape \(\), expected \(5,\) \(spherical\)"),
    "too few": (Z, np.ones(M - 1), r"got shape \(4,\), expected \(5,\) \(spherical\)"),
    "not square": (Z, np.ones([M, D, D + 1]), "expected .* Give one covariance"),
    "one axis": (Z[:, 0], SPHERICAL, r"Z: got shape \(5,\), expected two axes"),
    "NaN": (Z, np.full(M, np.nan), "got NaN or infinity"),
    "negative": (Z, np.array([1.0, 1.0, -0.5, 1.0, 1.0]), "negative variance .*-0.5, at point 2"),
    "indefinite": (Z, np.tile([[1.0, 2.0], [2.0, 1.0]], [M, 1, 1]), "negative variance"),
    "not symmetric": (Z, np.tile([[1.0, 0.5], [0.0, 1.0]], [M, 1, 1]), "got an asymmetric one"),
}


@pytest.mark.parametrize("Z, covariance, message", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_bad_arguments_are_refused(Z: Array, covariance: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BlurredInducingPoints(Z, covariance)


@pytest.mark.parametrize(
    "options", [{"active_dims": [2]}, {"lengthscales": [1.0, 1.0, 1.0]}], ids=["inputs", "ARD"]
)
def test_kernels_of_other_inputs_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=r"for 2 input\(s\), expected active inputs among these"):
        Kuu(BlurredInducingPoints(Z, FULL), SquaredExponential(**options))
