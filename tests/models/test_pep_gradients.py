"""The gradient of PEP's converged loss, against finite differences, in every trainable variable."""

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases.pep import ALPHAS, CASES, NUM_CLASSES, compiled, each_case
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.kernels import SeparateIndependent
from helpers import (
    Array,
    assert_all_close,
    assert_close,
    finite_difference_gradient,
    gradients,
    trainable_by_name,
    value_and_gradients,
)

RTOL = 1e-6
#: What the likelihoods bring to be trained.
OF_LIKELIHOOD = {
    "Gaussian": {".likelihood.variance"},
    "Gamma": {".likelihood.shape"},
    "Beta": {".likelihood.scale"},
    "Ordinal": {".likelihood.sigma"},
    "Student-t": {".likelihood.scale"},
}
OF_ALL = {".kernel.variance", ".kernel.lengthscales", ".inducing_variable.Z", ".mean_function.c"}


def _check(
    loss: Callable[[], tf.Tensor], actual: dict[str, Array], variables: dict[str, tf.Variable]
) -> None:
    largest = max(float(np.max(np.abs(gradient))) for gradient in actual.values())
    for name, variable in variables.items():
        expected = finite_difference_gradient(loss, variable)
        assert np.max(np.abs(expected)) > 1e-3, f"the loss hardly depends on {name}"
        # A variable with a small gradient is differenced out of a loss that is large.
        assert_close(actual[name], expected, rtol=RTOL, scale=0.01 * largest)


@pytest.mark.parametrize("power", ["alpha 0", "alpha 0.5", "alpha 1", "alpha per row"])
@each_case
@pytest.mark.near_copies("Gaussian-*", "Poisson-alpha 0", "RobustMax-alpha 0", "probit-alpha 0.5")
def test_loss_gradient_is_the_finite_difference(name: str, power: str) -> None:
    model, loss, loss_and_gradients, variables = compiled(name)
    assert variables.keys() == OF_ALL | OF_LIKELIHOOD.get(name, set())
    model.alpha.assign(ALPHAS[power])
    _, of_graph = loss_and_gradients()
    actual = {key: tf.convert_to_tensor(g).numpy() for key, g in zip(variables, of_graph)}
    _check(loss, actual, variables)


def test_eager_gradient_is_the_compiled_one() -> None:
    model, _, loss_and_gradients, variables = compiled("Poisson")
    model.alpha.assign(ALPHAS["alpha per row"])
    _, expected = loss_and_gradients()
    in_eager = gradients(model.training_loss, list(variables.values()))
    assert_all_close(in_eager, expected, rtol=1e-9)


@pytest.mark.slow
def test_latent_functions_of_their_own() -> None:
    case = CASES["RobustMax"]
    kernels = [case.problem.kernel() for _ in range(NUM_CLASSES)]
    for k, kernel in enumerate(kernels):
        kernel.variance.assign(0.8 + 0.3 * k)
    points = [InducingPoints(case.problem.Z + 0.2 * k) for k in range(NUM_CLASSES)]
    model = case.model(
        kernel=SeparateIndependent(kernels),
        inducing_variable=SeparateIndependentInducingVariables(points),
        mean_function=None,
        alpha=0.5,
        chunk_size=4,
    )
    variables = trainable_by_name(model)
    assert len(variables) == 3 * NUM_CLASSES
    loss_and_gradients = tf.function(
        lambda: value_and_gradients(model.training_loss, list(variables.values()))
    )
    actual = {key: g.numpy() for key, g in zip(variables, loss_and_gradients()[1])}
    some = {key: variables[key] for key in variables if "kernel" in key or "[1]" in key}
    _check(lambda: loss_and_gradients()[0], actual, some)


def test_priors_join_the_loss() -> None:
    model = CASES["probit"].model(alpha=0.5)
    variable = model.kernel.variance.unconstrained_variable
    without = gradients(model.training_loss, [variable])[0]
    model.kernel.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    of_prior = gradients(model.log_prior_density, [variable])[0]
    assert abs(of_prior) > 0.1
    assert_close(gradients(model.training_loss, [variable])[0], without - of_prior, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Gaussian", "probit"])
def test_xla_compiles_value_and_gradient(name: str) -> None:
    model, _, loss_and_gradients, variables = compiled(name)
    model.alpha.assign(ALPHAS["alpha per row"])
    expected_loss, expected = loss_and_gradients()
    # From the start, so that the loop has something to do.
    for site in (model.sites.nu, model.sites.tau):
        site.assign(tf.zeros_like(site))
    by_xla = tf.function(
        lambda: value_and_gradients(model.training_loss, list(variables.values())),
        autograph=False,
        jit_compile=True,
    )
    loss, actual = by_xla()
    assert model.last_inference.num_sweeps > (1 if name == "Gaussian" else 2)
    assert_close(loss, expected_loss, rtol=1e-10)
    assert_all_close(actual, expected, rtol=1e-8)


def test_scipy_trains() -> None:
    model, loss, _, variables = compiled("probit")
    model.alpha.assign(ALPHAS["alpha 0.5"])
    before, start = float(loss()), {name: one.numpy() for name, one in variables.items()}
    some = [one for name, one in variables.items() if not name.endswith(".Z")]
    assert len(some) == len(variables) - 1
    result = gpflow.optimizers.Scipy().minimize(loss, some, compile=False, options={"maxiter": 8})
    assert result.fun < before - 0.05
    assert_close(loss(), result.fun, rtol=1e-9)
    assert model.last_inference.converged
    for name, variable in variables.items():
        variable.assign(start[name])
