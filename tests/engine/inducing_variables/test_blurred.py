"""Blurred inducing points: against points, GPflow's Multiscale, integration,
in models.
"""

import copy
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.kernels import Constant, Matern32, SquaredExponential, White
from helpers import assert_all_close, assert_close, assert_gradients, regression_problem

import gpflow_pep as pep
from gpflow_pep.inducing_variables import BlurredInducingPoints

Array = Any
iv = gpflow.inducing_variables
M = 5
D = 2
PROBLEM = regression_problem(num_data=11, num_inducing=M)
Z = PROBLEM.Z
X = PROBLEM.X
_ROOT = np.random.default_rng(3).normal(size=[M, D, D]) * 0.4
COVARIANCES: dict[str, Array] = {
    "spherical": np.linspace(0.05, 0.4, M),
    "diagonal": np.linspace(0.05, 0.5, M * D).reshape(M, D),
    "full": _ROOT @ _ROOT.transpose(0, 2, 1),
}
DIAGONAL = COVARIANCES["diagonal"]
FULL = COVARIANCES["full"]
every_covariance = pytest.mark.parametrize(
    "covariance", COVARIANCES.values(), ids=COVARIANCES
)


def _ard() -> SquaredExponential:
    return SquaredExponential(1.3, lengthscales=[0.8, 1.1])


def _of(
    column: int, variance: float = 1.0, lengthscale: float = 0.6
) -> SquaredExponential:
    return SquaredExponential(variance, lengthscales=lengthscale, active_dims=[column])


KERNELS: dict[str, Any] = {
    "ARD": _ard,
    "one lengthscale": lambda: SquaredExponential(0.7, lengthscales=0.9),
    "active dimension": lambda: _of(1, lengthscale=0.9),
    "active dimensions in another order": lambda: SquaredExponential(
        lengthscales=[0.5, 0.9], active_dims=[1, 0]
    ),
    "active slice": lambda: SquaredExponential(
        lengthscales=[0.9], active_dims=slice(0, 1)
    ),
    "constant": lambda: Constant(0.4),
    "sum": lambda: _ard() + Constant(0.4) + _of(0),
    "product": lambda: Constant(0.4) * _of(0, 1.2) * _of(1, 0.8, 0.9),
    "product of sums": lambda: (
        (_ard() + Constant(0.3))
        * (SquaredExponential(lengthscales=0.7) + Constant(0.2))
    ),
}
every_kernel = pytest.mark.parametrize("make_kernel", KERNELS.values(), ids=KERNELS)


def _nodes(centre: Array, covariance: Array, count: int = 22) -> tuple[Array, Array]:
    """Nodes [count², 2] and weights of Gauss-Hermite quadrature under N(centre,
    covariance).
    """
    node, weight = np.polynomial.hermite_e.hermegauss(count)
    weight = weight / weight.sum()
    grid = np.stack(np.meshgrid(node, node), axis=-1).reshape(-1, 2)
    values, vectors = np.linalg.eigh(covariance)
    places = centre + grid @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return places, np.outer(weight, weight).ravel()


@pytest.mark.near_copies("full-*", "*-ARD")
@every_kernel
@every_covariance
def test_equal_averages_by_quadrature(make_kernel: Any, covariance: Array) -> None:
    # Three points and less blur, for few nodes to do.
    M = 3
    kernel = make_kernel()
    blurred = BlurredInducingPoints(Z[:M], 0.12 * covariance[:M])
    nodes, weights = zip(*(_nodes(z, C) for z, C in zip(Z, blurred.covariance.numpy())))
    weight, places = np.array(weights), np.concatenate(nodes)  # [M, K] and [M K, 2]
    of_rows = kernel(places, X).numpy().reshape(M, -1, len(X))
    assert_close(
        Kuf(blurred, kernel, X), np.einsum("mk,mkn->mn", weight, of_rows), 1e-9
    )
    between = (
        kernel(places, places).numpy().reshape(M, weight.shape[1], M, weight.shape[1])
    )
    expected = np.einsum("mk,mkjl,jl->mj", weight, between, weight, optimize=True)
    assert_close(Kuu(blurred, kernel), expected, 1e-9)


@every_kernel
def test_points_without_blur(make_kernel: Any) -> None:
    kernel = make_kernel()
    points = iv.InducingPoints(Z)
    in_batches = np.stack([X, X + 1.0])
    for axes in range(3):
        blurred = BlurredInducingPoints(Z, np.zeros([M, *[D] * axes]))
        assert_close(
            Kuu(blurred, kernel, jitter=0.1), Kuu(points, kernel, jitter=0.1), 1e-12
        )
        for rows in (X, in_batches):
            assert_close(Kuf(blurred, kernel, rows), Kuf(points, kernel, rows), 1e-12)


@pytest.mark.parametrize("lengthscales", [[0.8, 1.1], 0.9])
@pytest.mark.parametrize("name", ["spherical", "diagonal"])
def test_equals_multiscale(name: str, lengthscales: Any) -> None:
    """Multiscale's own scales are what the kernel's lengthscales grow by."""
    kernel = SquaredExponential(1.3, lengthscales=lengthscales)
    variances = COVARIANCES[name].reshape(M, -1)
    scales = np.sqrt(np.square(lengthscales) + variances) - lengthscales
    multiscale = iv.Multiscale(Z, np.broadcast_to(scales, [M, D]))
    blurred = BlurredInducingPoints(Z, COVARIANCES[name])
    assert_close(
        Kuu(blurred, kernel, jitter=1e-6), Kuu(multiscale, kernel, jitter=1e-6), 1e-10
    )
    assert_close(Kuf(blurred, kernel, X), Kuf(multiscale, kernel, X), 1e-10)


def test_covariances_are_kept() -> None:
    direction = np.array([[1.0, 2.0], [0.0, 0.0], [3.0, -1.0], [0.0, 1.0], [1.0, 0.0]])
    singular = direction[:, :, None] * direction[:, None, :]
    for covariance in (*COVARIANCES.values(), singular):
        blurred = BlurredInducingPoints(Z, covariance)
        expected = (
            covariance
            if covariance.ndim == 3
            else covariance.reshape(M, -1, 1) * np.eye(D)
        )
        assert_close(blurred.covariance, expected, 1e-14)
        assert blurred.covariance_sqrt.shape == covariance.shape


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
    kernel = KERNELS[name]()
    blurred = BlurredInducingPoints(Z, covariance)
    total = tf.function(lambda: _total(blurred, kernel), autograph=False)
    variables = (*blurred.trainable_variables, *kernel.trainable_variables)
    assert_gradients(total, variables, rtol=1e-7, scale=1.0)
    compiled = tf.function(
        lambda: _total(blurred, kernel), jit_compile=True, autograph=False
    )
    assert_close(compiled(), total())


@pytest.mark.near_copies("full")
@every_covariance
def test_models_of_both_packages_agree(covariance: Array) -> None:
    blurred = BlurredInducingPoints(Z, covariance)
    data = PROBLEM.data
    sgpr, fitc = (
        PROBLEM.model(k, blurred) for k in (gpflow.models.SGPR, gpflow.models.GPRFITC)
    )
    ours, at_one = (
        PROBLEM.model(pep.PEPRegression, blurred, alpha=alpha, chunk_size=4)
        for alpha in (0.0, 1.0)
    )
    assert_close(
        at_one.pep_log_marginal_likelihood(), fitc.fitc_log_marginal_likelihood()
    )
    assert_close(ours.pep_log_marginal_likelihood(), sgpr.elbo())
    assert_all_close(ours.predict_f(PROBLEM.Xnew), sgpr.predict_f(PROBLEM.Xnew))
    noise = gpflow.likelihoods.Gaussian(PROBLEM.noise_variance)
    q = (ours.q_mu, ours.q_sqrt)
    svgp = gpflow.models.SVGP(PROBLEM.kernel(), noise, blurred, q_mu=q[0], q_sqrt=q[1])
    assert_close(svgp.elbo(data), sgpr.elbo())
    full = svgp.predict_f(PROBLEM.Xnew, full_cov=True)
    assert_all_close(ours.posterior().predict_f(PROBLEM.Xnew, full_cov=True), full)


@pytest.mark.parametrize("separate", [False, True], ids=["shared", "separate"])
@pytest.mark.near_copies
def test_several_latent_functions(separate: bool) -> None:
    kernels = [_ard(), SquaredExponential(lengthscales=0.7)]
    second = DIAGONAL if separate else FULL
    parts = [BlurredInducingPoints(Z, covariance) for covariance in (FULL, second)]
    several = iv.SeparateIndependentInducingVariables(parts)
    variables = several if separate else iv.SharedIndependentInducingVariables(parts[0])
    kernel = gpflow.kernels.SeparateIndependent(kernels)
    for K, part, one in zip(
        Kuu(variables, kernel, jitter=1e-6), parts, kernels, strict=True
    ):
        assert_close(K, Kuu(part, one, jitter=1e-6))
    rows = (X, np.where(X[:, :1] > 0.0, 1.0, 0.0))
    likelihood = gpflow.likelihoods.Softmax(2)
    model = pep.models.PEP(
        rows, kernel, likelihood, variables, alpha=0.5, max_sweeps=50
    )
    assert np.isfinite(model.pep_log_marginal_likelihood())
    assert np.all(np.isfinite(model.predict_f(PROBLEM.Xnew)[1]))


# As parts of models: copied, stored, saved, trained, in float32.


def _svgp(data: Any, variable: Any) -> Any:
    q_mu = np.linspace(-1.0, 1.0, M, dtype=data[0].dtype)[:, None]
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gpflow.models.SVGP(PROBLEM.kernel(), likelihood, variable, q_mu=q_mu)


def _pep(data: Any, variable: Any) -> Any:
    labels = data[0], (data[1] > 0.4).astype(data[0].dtype)
    tolerance = 1e-3 if data[0].dtype == np.float32 else 1e-8
    likelihood = gpflow.likelihoods.Bernoulli()
    return pep.models.PEP(
        labels, PROBLEM.kernel(), likelihood, variable, tolerance=tolerance
    )


def _regression(data: Any, variable: Any) -> Any:
    return pep.models.PEPRegression(data, PROBLEM.kernel(), variable)


def _create(create: Any, covariance: Array, dtype: Any = np.float64) -> Any:
    data = tuple(part.astype(dtype) for part in PROBLEM.data)
    return create(
        data, BlurredInducingPoints(Z.astype(dtype), covariance.astype(dtype))
    )


every_model = pytest.mark.parametrize(
    "create, name",
    [
        *((_regression, name) for name in ("full", "spherical", "diagonal")),
        (_pep, "diagonal"),
        (_svgp, "diagonal"),
    ],
)


@pytest.mark.slow
@every_model
@pytest.mark.near_copies
def test_trained_copied_and_saved(
    create: Any, name: str, tmp_path: Path, capsys: Any
) -> None:
    model = _create(create, COVARIANCES[name])
    Xnew = PROBLEM.Xnew
    external = isinstance(model, gpflow.models.SVGP)
    loss = (
        model.training_loss_closure(PROBLEM.data) if external else model.training_loss
    )
    before = float(loss())
    parts = model.inducing_variable.trainable_variables
    start = [part.numpy().copy() for part in parts]
    gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, options={"maxiter": 3}
    )
    assert float(loss()) < before
    assert all(np.max(np.abs(part - old)) > 1e-5 for part, old in zip(parts, start))
    expected = [part.numpy() for part in model.predict_f(Xnew)]
    stored = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    twin = copy.deepcopy(model)
    other = _create(create, COVARIANCES[name])
    posterior = model.posterior(gpflow.posteriors.PrecomputeCacheType.VARIABLE)
    spec = [tf.TensorSpec([None, 2], tf.float64)]
    posterior.compiled = tf.function(posterior.predict_f, input_signature=spec)
    tf.saved_model.save(posterior, str(tmp_path / "saved"))
    values = gpflow.utilities.read_values(model)
    for parameter in model.inducing_variable.trainable_parameters:
        parameter.assign(parameter + 0.05)
    assert np.max(np.abs(model.predict_f(Xnew)[0] - expected[0])) > 1e-6
    tf.train.Checkpoint(model=other).restore(stored)
    gpflow.utilities.multiple_assign(model, values)
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    for predict in (twin.predict_f, other.predict_f, model.predict_f, loaded.compiled):
        assert_all_close(predict(Xnew), expected, rtol=1e-6)
    gpflow.utilities.print_summary(model)
    assert "covariance_sqrt" in capsys.readouterr().out
    count = len(model.trainable_variables)
    gpflow.set_trainable(model.inducing_variable.covariance_sqrt, False)
    assert len(model.trainable_variables) == count - 1


@every_model
@pytest.mark.near_copies
def test_float32(create: Any, name: str) -> None:
    expected = _create(create, COVARIANCES[name]).predict_f(PROBLEM.Xnew)
    gpflow.config.set_default_float(np.float32)
    gpflow.config.set_default_jitter(1e-5)
    model = _create(create, COVARIANCES[name], np.float32)
    for actual, in_double in zip(
        model.predict_f(PROBLEM.Xnew.astype(np.float32)), expected
    ):
        assert actual.dtype == tf.float32
        assert_close(actual, in_double, rtol=1e-2)


UNKNOWN = {
    "Matern": Matern32,
    "White": White,
    "sum": lambda: _ard() + Matern32(),
    "product": lambda: _ard() * White(),
    "change points": lambda: gpflow.kernels.ChangePoints([_ard(), Constant()], [0.0]),
}


@pytest.mark.parametrize("make_kernel", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_kernels_are_refused(make_kernel: Any) -> None:
    blurred = BlurredInducingPoints(Z, FULL)
    kernel = make_kernel()
    data = PROBLEM.data
    student = gpflow.likelihoods.StudentT()
    shared = gpflow.kernels.SharedIndependent(kernel, 1)
    several = iv.SharedIndependentInducingVariables(blurred)
    for attempt in (
        lambda: Kuu(blurred, kernel),
        lambda: Kuf(blurred, kernel, X),
        lambda: pep.models.PEPRegression(data, kernel, blurred),
        lambda: pep.models.PEP(data, kernel, student, blurred),
        lambda: pep.models.PEP(data, shared, student, several),
    ):
        with pytest.raises(
            ValueError, match="SquaredExponential, Constant, and Sum and"
        ):
            attempt()


BAD_ARGUMENTS = {
    "one number": (Z, 0.1, r"got shape \(\), expected \(5,\) \(spherical\)"),
    "too few": (Z, np.ones(M - 1), r"got shape \(4,\), expected \(5,\) \(spherical\)"),
    "not square": (Z, np.ones([M, D, D + 1]), "expected .* Pass one covariance"),
    "one axis": (Z[:, 0], np.ones(M), r"Z: got shape \(5,\), expected two axes"),
    "NaN": (Z, np.full(M, np.nan), "got NaN or infinity"),
    "negative": (
        Z,
        np.array([1.0, 1.0, -0.5, 1.0, 1.0]),
        "negative variance .*-0.5, at point 2",
    ),
    "indefinite": (
        Z,
        np.tile([[1.0, 2.0], [2.0, 1.0]], [M, 1, 1]),
        "negative variance",
    ),
    "not symmetric": (
        Z,
        np.tile([[1.0, 0.5], [0.0, 1.0]], [M, 1, 1]),
        "got an asymmetric matrix",
    ),
}


@pytest.mark.parametrize(
    "Z, covariance, message", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS
)
def test_bad_arguments_are_refused(Z: Array, covariance: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BlurredInducingPoints(Z, covariance)


def test_kernels_of_other_inputs_are_refused() -> None:
    for options in ({"active_dims": [2]}, {"lengthscales": [1.0, 1.0, 1.0]}):
        with pytest.raises(
            ValueError, match=r"for 2 input\(s\), expected active inputs among"
        ):
            Kuu(BlurredInducingPoints(Z, FULL), SquaredExponential(**options))
