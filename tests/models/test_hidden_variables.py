"""Derivatives in variables that GPflow does not list, against finite differences."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close, finite_difference_gradient, gradients

import gpflow_pep as pep

rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, (12, 1))
Y = (np.sin(2.0 * X) > 0.0) * 1.0
Z, XNEW = np.linspace(-1.5, 1.5, 4)[:, None], np.array([[-0.3], [0.8]])

Read = Callable[[], tf.Tensor]


class Stretched(gpflow.kernels.SquaredExponential):
    """Of inputs times a number that a function reads."""

    def __init__(self, read: Read) -> None:
        super().__init__()
        self._read = read

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        factor = self._read()
        return super().K(factor * X, None if X2 is None else factor * X2)


class Slope(gpflow.mean_functions.MeanFunction):
    def __init__(self, read: Read) -> None:
        super().__init__()
        self._read = read

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return self._read() * X


def by_keras() -> tuple[tf.Variable, Read]:
    """A layer of Keras 3, which is no ``tf.Module``."""
    layer = tf.keras.layers.Dense(1, use_bias=False, dtype="float64")
    layer.build((None, 1))
    variable = layer.trainable_variables[0].value
    variable.assign([[0.8]])
    return variable, lambda: layer(tf.ones([1, 1], tf.float64))[0, 0]


def by_closure() -> tuple[tf.Variable, Read]:
    variable = tf.Variable(0.8, dtype=tf.float64)
    return variable, lambda: tf.convert_to_tensor(variable)


def softplus_of(read: Read) -> gpflow.likelihoods.Likelihood:
    return gpflow.likelihoods.Poisson(invlink=lambda f: tf.nn.softplus(read() * f))


#: What a function of a hidden variable is in.
PLACES: dict[str, Callable[[Read], dict[str, Any]]] = {
    "kernel": lambda read: {"kernel": Stretched(read)},
    "mean function": lambda read: {"mean_function": Slope(read)},
    "likelihood": lambda read: {"likelihood": softplus_of(read)},
}
FUNCTIONS: dict[str, Callable[[Any], tf.Tensor]] = {
    "log Z": lambda model: model.pep_log_marginal_likelihood(),
    "predict_f": lambda model: tf.reduce_sum(model.predict_f(XNEW)[0]),
    "loo_log_density": lambda model: tf.reduce_sum(model.loo_log_density()),
}


def model_with(place: str, read: Read, **options: Any) -> pep.PEP:
    parts = {
        "kernel": gpflow.kernels.SquaredExponential(),
        "likelihood": gpflow.likelihoods.Bernoulli(),
        **PLACES[place](read),
    }
    return pep.PEP((X, Y), inducing_variable=Z, alpha=0.5, tolerance=1e-11, **parts, **options)


@pytest.mark.near_copies
@pytest.mark.parametrize(
    ("place", "make"), [("kernel", by_keras), *((p, by_closure) for p in PLACES)]
)
def test_first_derivatives(place: str, make: Callable[[], tuple[tf.Variable, Read]]) -> None:
    variable, read = make()
    model = model_with(place, read)
    assert not any(variable is listed for listed in model.variables)

    def all_together() -> tf.Tensor:
        return tf.add_n([(k + 1.0) * of(model) for k, of in enumerate(FUNCTIONS.values())])

    expected = finite_difference_gradient(all_together, variable)
    assert_close(gradients(all_together, [variable])[0], expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_and_in_chunks(place: str, name: str) -> None:
    variable, read = by_closure()
    model = model_with(place, read, chunk_size=5)
    compiled = tf.function(lambda: FUNCTIONS[name](model), autograph=False)
    expected = finite_difference_gradient(compiled, variable)
    assert_close(gradients(compiled, [variable])[0], expected, rtol=1e-5)


@pytest.mark.near_copies("kernel")
@pytest.mark.parametrize("place", PLACES)
def test_second_derivatives_of_the_loss(place: str) -> None:
    variable, read = by_closure()
    model = model_with(place, read)

    def slope() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return tape.gradient(loss, variable)

    (actual,) = gradients(slope, [variable])
    assert_close(actual, finite_difference_gradient(slope, variable), rtol=1e-5)


def test_a_likelihood_that_is_not_trained() -> None:
    likelihood = gpflow.likelihoods.Gaussian(0.2)
    gpflow.set_trainable(likelihood, False)
    variable = likelihood.variance.unconstrained_variable
    kernel = gpflow.kernels.SquaredExponential()
    model = pep.PEP((X, Y), kernel, likelihood, Z, alpha=0.5, tolerance=1e-11)
    with tf.GradientTape() as tape:
        tape.watch(variable)
        value = model.pep_log_marginal_likelihood()
    expected = finite_difference_gradient(model.pep_log_marginal_likelihood, variable)
    assert_close(tape.gradient(value, variable), expected, rtol=1e-5)
