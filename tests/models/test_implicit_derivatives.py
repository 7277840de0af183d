"""Derivatives of what depends on converged sites, against finite differences."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from cases.pep import ALPHAS, CASES, N
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.kernels import SeparateIndependent, SquaredExponential
from helpers import Array, assert_close, gradients, trainable_by_name

import gpflow_pep as pep
from gpflow_pep.engine.energies.point import _energy_of
from gpflow_pep.engine.sites.implicit import _solve_adjoint
from gpflow_pep.engine.sites.posterior import Sites
from gpflow_pep.engine.sites.sweep import row_prior, sweep

Function = Callable[[], tf.Tensor]
RTOL = 1e-7
RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal(100)


def weighted(values: Any) -> tf.Tensor:
    """A sum with weights, which notices each part."""
    flat = tf.reshape(values, [-1])
    return tf.reduce_sum(flat * WEIGHTS[: flat.shape[0]])


#: Functions of converged sites, with rows of the model's own data that moved a little.
FUNCTIONS: dict[str, Callable[[Any], tf.Tensor]] = {
    "predict_f": lambda model: weighted(model.predict_f(model.data[0][:3] + 0.1)[0]),
    "loo_log_density": lambda model: weighted(model.loo_log_density()),
    "predict_log_density": lambda model: weighted(
        model.predict_log_density((model.data[0][:3] + 0.1, model.data[1][:3]))
    ),
    "q_mu": lambda model: weighted(model.q_mu),
}
OTHERS: dict[str, Callable[[Any], tf.Tensor]] = {
    "variance of predict_f": lambda model: weighted(
        model.predict_f(model.data[0][:3], full_cov=True)[1]
    ),
    "posterior": lambda model: weighted(model.posterior().predict_f(model.data[0][:3])[1]),
    "q_sqrt": lambda model: weighted(model.q_sqrt),
    "compute_qu": lambda model: weighted(model.compute_qu()[1]),
    "sites": lambda model: weighted(tf.stack(model.converged_rows()[2:4])),
    "surrogate": lambda model: tf.reduce_sum(tf.square(model.surrogate().targets)),
}


def parts_of(model: Any) -> list[tf.Variable]:
    return list(trainable_by_name(model).values())


def along(vectors: Sequence[Any], direction: Sequence[Any]) -> Array:
    pairs = zip(vectors, direction, strict=True)
    total: Array = np.sum([np.sum(np.asarray(part) * other) for part, other in pairs])
    return total


def directional(
    functions: Sequence[Callable[[], Any]], variables: Sequence[tf.Variable], direction: Any
) -> list[Array]:
    """The derivative of each function along a direction, by five points."""
    start = [variable.numpy() for variable in variables]
    slopes = [np.zeros(())] * len(functions)
    for offset, weight in ((-2, 1.0), (-1, -8.0), (1, 8.0), (2, -1.0)):
        for variable, value, part in zip(variables, start, direction, strict=True):
            variable.assign(value + 1e-3 * offset * part)
        values = [np.asarray(function()) for function in functions]
        slopes = [s + weight * v / 12e-3 for s, v in zip(slopes, values, strict=True)]
    for variable, value in zip(variables, start, strict=True):
        variable.assign(value)
    return slopes


def check(model: Any, functions: Any, rtol: float = RTOL) -> None:
    """All trainable variables move at once, each in a direction of its own."""
    variables = parts_of(model)
    random = np.random.default_rng(0)  # the same direction in whichever order tests run
    direction = [random.standard_normal(variable.shape) for variable in variables]
    bound = [lambda function=function: function(model) for function in functions.values()]
    expected = directional(bound, variables, direction)
    for function, slope in zip(bound, expected, strict=True):
        gradient = gradients(function, variables)
        assert_close(along(gradient, direction), slope, rtol=rtol, scale=0.1)
        assert_record(model)


def assert_record(model: Any) -> None:
    info = model.last_adjoint
    assert 1 <= info.num_products <= 2 * N * model.num_latent_gps and info.residual < 1e-8


@pytest.mark.near_copies("probit-0.5")
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    "name",
    [
        "probit",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("Gaussian", "Poisson")),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("Student-t", "RobustMax")),
    ],
)
def test_gradient_table(name: str, alpha: float) -> None:
    check(CASES[name].model(alpha=alpha), FUNCTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("Student-t", marks=pytest.mark.slow), "RobustMax"])
def test_powers_of_rows(name: str) -> None:
    model = CASES[name].model(alpha=ALPHAS["alpha per row"])
    check(model, {"loo_log_density": FUNCTIONS["loo_log_density"]})


@pytest.mark.slow
def test_all_that_depends_on_sites() -> None:
    check(CASES["probit"].model(alpha=0.5), OTHERS, rtol=1e-6)


@pytest.mark.slow
def test_memory() -> None:
    case = CASES["probit"]
    memory = case.model(alpha=0.5).remember()
    model = case.model(alpha=0.5, data=case.rows(slice(0, 6)), memory=memory)
    model.kernel.variance.assign(0.8)
    check(model, {"q_mu": FUNCTIONS["q_mu"]})


@pytest.mark.slow
def test_latent_functions_with_kernels_of_their_own() -> None:
    kernel = SeparateIndependent([SquaredExponential(lengthscales=0.5 + k / 2) for k in range(3)])
    Z = InducingPoints(CASES["RobustMax"].problem.Z)
    points = SharedIndependentInducingVariables(Z)
    model = CASES["RobustMax"].model(alpha=0.5, kernel=kernel, inducing_variable=points)
    check(model, {"q_mu": FUNCTIONS["q_mu"]})


@pytest.mark.slow
def test_chunks_do_not_matter() -> None:
    models = [CASES["Poisson"].model(alpha=0.5, chunk_size=size) for size in (None, 3)]
    for name in ("q_mu", "loo_log_density"):
        whole, in_chunks = (
            gradients(lambda: FUNCTIONS[name](model), parts_of(model))  # noqa: B023
            for model in models
        )
        for part, other in zip(whole, in_chunks, strict=True):
            assert_close(part, other)


@pytest.mark.parametrize("name", ["Student-t", pytest.param("RobustMax", marks=pytest.mark.slow)])
def test_evidence_needs_no_adjoint(name: str) -> None:
    """It is stationary in the sites: a test of T, whose fixed point they are."""
    model = CASES[name].model(alpha=0.3)
    variables, converged = parts_of(model), model._converge()
    sites = Sites(*map(tf.identity, converged.fixed_point.sites))
    by_sites = gradients(lambda: _energy_of(converged.problem, sites), [*sites])
    assert max(np.max(np.abs(part)) for part in by_sites) < 1e-9
    adjoint, _ = _solve_adjoint(converged.problem, converged.fixed_point, Sites(*by_sites), "log Z")
    assert max(np.max(np.abs(part)) for part in adjoint) < 1e-8
    expected = gradients(model.pep_log_marginal_likelihood, variables)
    by_function = gradients(
        lambda: _energy_of(model.site_problem(), Sites(*model.converged_rows()[2:4])), variables
    )
    for part, other in zip(by_function, expected, strict=True):
        assert_close(part, other, rtol=1e-7, scale=0.1)
    assert_close(_energy_of(converged.problem, sites), model.pep_log_marginal_likelihood())


@pytest.mark.parametrize("name", ["probit", pytest.param("RobustMax", marks=pytest.mark.slow)])
def test_adjoint_is_the_solution_of_the_dense_equations(name: str) -> None:
    """Whose matrix comes from differences of whole sweeps."""
    model = CASES[name].model(alpha=0.5)
    problem, fixed_point, *_ = model._converge()
    start = np.stack(fixed_point.sites)

    def target(sites: Array) -> Array:
        at = Sites(*map(tf.constant, sites))
        return np.stack(sweep(problem, row_prior(problem, at), at).target)

    columns, step = [], 1e-4
    for index in np.ndindex(start.shape):
        change = np.zeros_like(start)
        change[index] = step
        column = (target(start + change) - target(start - change)) / (2.0 * step)
        columns.append(np.ravel(column))
    by_sites = RNG.standard_normal(start.shape)
    matrix = np.eye(start.size) - np.stack(columns)  # I less the transpose of T's derivative
    expected = np.linalg.solve(matrix, np.ravel(by_sites)).reshape(start.shape)
    adjoint, _ = _solve_adjoint(problem, fixed_point, Sites(*by_sites), "a number")
    assert_close(np.stack(adjoint), expected, rtol=1e-6)


@pytest.mark.near_copies("0.5-probit")
@pytest.mark.parametrize(
    "name",
    [
        "probit",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("Student-t", "RobustMax")),
    ],
)
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_products_with_the_hessian_of_the_loss(name: str, alpha: float) -> None:
    model = CASES[name].model(alpha=alpha)
    variables = parts_of(model)
    vector = [RNG.standard_normal(variable.shape) for variable in variables]

    def gradient() -> Array:
        return flat(gradients(model.training_loss, variables))

    with tf.GradientTape() as tape:
        first = gradient_tensors(model.training_loss, variables)
        slope = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(first, vector, strict=True)])
    product = tape.gradient(slope, variables)
    assert_record(model)
    assert_close(flat(product), directional([gradient], variables, vector)[0], rtol=RTOL)


def flat(parts: Any) -> Array:
    return np.concatenate([np.ravel(tf.convert_to_tensor(part)) for part in parts])


def gradient_tensors(function: Function, variables: Any) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        value = function()
    parts: list[tf.Tensor] = tape.gradient(value, variables)
    return parts


@pytest.mark.near_copies("probit-0.5")
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    "name",
    [
        "probit",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("Student-t", "RobustMax")),
    ],
)
def test_graphs_compute_the_same(name: str, alpha: float) -> None:
    model = CASES[name].model(alpha=alpha)
    variables = parts_of(model)
    function = FUNCTIONS["q_mu"]
    expected = gradient_tensors(lambda: function(model), variables)

    @functools.partial(tf.function, autograph=False)
    def compiled() -> list[tf.Tensor]:
        return gradient_tensors(lambda: function(model), variables)

    outside = tf.function(lambda: function(model), autograph=False)
    for actual in (compiled(), gradient_tensors(outside, variables)):
        for part, other in zip(actual, expected, strict=True):
            assert_close(part, other, rtol=1e-7, scale=0.1)


@pytest.mark.slow
def test_optimisers_outside_of_the_graph() -> None:
    """GPflow's, which compiles and has its tape inside, and Keras's, which has it outside."""
    ends = []
    for compile in (False, True):
        model = CASES["probit"].model(alpha=0.5)
        loss = lambda: -tf.reduce_sum(model.loo_log_density())  # noqa: B023, E731
        loss = tf.function(loss, autograph=False) if compile else loss
        optimizer, variables = tf_keras.optimizers.SGD(0.05), parts_of(model)
        for _ in range(3):
            optimizer.minimize(loss, variables)
        ends.append(flat(variables))
    assert_close(ends[1], ends[0], rtol=1e-7)
    options = {"maxiter": 200}
    gpflow.optimizers.Scipy().minimize(loss, variables, compile=True, options=options)
    assert np.max(np.abs(flat(gradients(loss, variables)))) < 1e-3


@pytest.mark.slow
def test_jacobian_by_one_gradient_after_another() -> None:
    model = CASES["probit"].model(alpha=0.5)
    variable = model.kernel.lengthscales.unconstrained_variable
    with tf.GradientTape(persistent=True) as tape:
        mean = model.q_mu[:, 0]
    jacobian = tape.jacobian(mean, variable, experimental_use_pfor=False)
    assert_close(jacobian[2], gradients(lambda: model.q_mu[2, 0], [variable])[0])
    with pytest.raises(ValueError, match="experimental_use_pfor to False"):
        tape.jacobian(mean, variable)


def test_sites_away_from_their_fixed_point_are_refused() -> None:
    model = CASES["Student-t"].model(alpha=0.5, max_sweeps=1)
    with (
        pytest.warns(pep.models.ConvergenceWarning),
        pytest.raises(
            ValueError,
            match=r"derivative of q\(v\): got sites that did not converge, .* residual: .*clipped",
        ),
    ):
        gradients(lambda: model.q_mu, parts_of(model))


def test_rows_of_several_processes_are_refused() -> None:
    class Two(pep.engine.numerics.chunks.Reduction):
        count = 2

    model = CASES["probit"].model(alpha=0.5)
    model.reduction = Two()
    with pytest.raises(ValueError, match=r"a derivative of q\(v\)"):
        gradients(lambda: model.q_mu, parts_of(model))


@pytest.mark.slow
def test_flat_direction_in_sites() -> None:
    """A level of all classes that nothing but the prior knows, which is nearly flat."""
    X = np.linspace(-1.0, 1.0, 8)[:, None]
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1])[:, None]
    kernel = SquaredExponential(variance=1e4, lengthscales=0.7)
    likelihood = gpflow.likelihoods.MultiClass(3)
    model = pep.PEPClassification(
        (X, labels), kernel, likelihood, X[::3].copy(), alpha=0.5, tolerance=1e-11
    )
    gpflow.set_trainable(model.inducing_variable, False)
    probability = {"probability": lambda model: weighted(model.predict_y(X[:4] + 0.05)[0])}
    check(model, probability, rtol=1e-6)
