"""The gradient of PEPRegression's loss and predictions, against finite differences."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases.regression import ALPHA_PER_ROW, CASES, UNEVEN_BLOCKS, Case, N
from helpers import (
    assert_all_close,
    assert_close,
    assert_gradients,
    gradients,
    regression_problem,
    trainable_by_name,
)

import gpflow_pep as pep

RTOL = 1e-6
Create = Callable[..., "pep.models.PEPRegression"]


def _with_priors(**options: Any) -> "pep.models.PEPRegression":
    model, of = Case().model(**options), tfp.distributions
    model.kernel.lengthscales.prior = of.Gamma(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    model.likelihood.variance.prior = of.LogNormal(np.float64(-1.0), np.float64(0.5))
    model.inducing_variable.Z.prior = of.Normal(np.float64(0.0), np.float64(2.0))
    return model


def _multiscale(blocks: Any = None) -> Create:
    def create(**options: Any) -> "pep.models.PEPRegression":
        problem = regression_problem(num_data=N)
        widths = np.linspace(0.1, 0.9, 10).reshape(5, 2)
        points = gpflow.inducing_variables.Multiscale(problem.Z, widths)
        return problem.model(pep.PEPRegression, points, alpha=0.4, blocks=blocks, **options)

    return create


MODELS: dict[str, Create] = {
    "rows": CASES["alpha 0.5"].model,
    "alpha per row": CASES["alpha per row"].model,
    "blocks": CASES["uneven blocks, alpha 0.5"].model,
    "alpha per block": CASES["alpha per block"].model,
    "noise scale": Case(noise="scale", alpha=0.3).model,
    "noise variance": Case(noise="variance", alpha=ALPHA_PER_ROW).model,
    "constant mean": CASES["constant mean"].model,
    "everything": CASES["everything"].model,
    "Multiscale": _multiscale(),
    "Multiscale, blocks": _multiscale(UNEVEN_BLOCKS),
    "priors": _with_priors,
    "scaled": Case(bound="tight", noise="variance", alpha=ALPHA_PER_ROW).model,
    "scaled, everything": CASES["scaled, everything"].model,
}
#: Powers that one compiled function serves, by assigning them.
POWERS = {"rows": (0.0, 0.5, 1.0), "blocks": (0.0, 0.5, 1.0)}
by_chunks = pytest.mark.parametrize("chunk_size", [None, 4])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.near_copies("blocks", "everything")
def test_loss_gradient_is_the_finite_difference(name: str) -> None:
    model, in_chunks = MODELS[name](), MODELS[name](chunk_size=4)
    loss, variables = tf.function(model.training_loss), model.trainable_variables
    assert len(variables) >= 4
    for power in POWERS.get(name, (None,)):
        if power is not None:
            model.alpha.assign(power)
            in_chunks.alpha.assign(power)
        eager = gradients(model.training_loss, variables)
        sizes = [float(np.max(np.abs(part))) for part in eager]
        assert min(sizes) > 1e-3, "the loss hardly depends on one of them"
        # A variable with a small gradient is differenced out of a loss that is large.
        graph = gradients(loss, variables)
        assert_gradients(loss, variables, eager, graph, rtol=RTOL, scale=0.01 * max(sizes))
        chunked = gradients(in_chunks.training_loss, in_chunks.trainable_variables)
        assert_all_close(chunked, eager, rtol=1e-9)
    assert loss.experimental_get_tracing_count() == 1


def test_loss_gradient_is_the_same_for_every_chunk_size() -> None:
    def gradient(chunk_size: int | None) -> Any:
        model = MODELS["everything"](chunk_size=chunk_size)
        return gradients(model.training_loss, model.trainable_variables)

    whole = gradient(N)
    for chunk_size in (None, 1, N - 1, 1000):
        assert_all_close(gradient(chunk_size), whole, rtol=1e-9)


@by_chunks
def test_gradient_scales_with_what_comes_back(chunk_size: int | None) -> None:
    """A loss that uses log Z within something else: its gradient is the chain rule's."""
    model = Case(alpha=0.3).model(chunk_size=chunk_size)
    variables, log_z = model.trainable_variables, model.pep_log_marginal_likelihood
    value, plain = float(log_z()), gradients(log_z, variables)
    assert value < 0.0

    def composed() -> tf.Tensor:
        log_z = model.pep_log_marginal_likelihood()
        return -2.5 * log_z + tf.math.log(-log_z) + model.kernel.variance

    variance = model.kernel.variance.unconstrained_variable
    own_term = gradients(lambda: tf.convert_to_tensor(model.kernel.variance), [variance])[0]
    for variable, actual, gradient in zip(variables, gradients(composed, variables), plain):
        expected = (-2.5 + 1.0 / value) * gradient
        assert_close(actual, expected + (own_term if variable is variance else 0.0), rtol=1e-9)


@by_chunks
def test_gradient_in_some_variables_only(chunk_size: int | None) -> None:
    model = Case(alpha=0.3).model(chunk_size=chunk_size)
    named = trainable_by_name(model)
    everything = dict(zip(named, gradients(model.training_loss, [*named.values()])))
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow.set_trainable(model.kernel.variance, False)
    rest = trainable_by_name(model)
    assert 0 < len(rest) < len(everything)
    for name, actual in zip(rest, gradients(model.training_loss, [*rest.values()])):
        assert_close(actual, everything[name], rtol=1e-10)


@pytest.mark.parametrize(
    "alpha, chunk_size", [(0.0, 4), (0.5, None), pytest.param(1.0, 4, marks=pytest.mark.slow)]
)
def test_prediction_gradient_is_the_finite_difference(alpha: float, chunk_size: int | None) -> None:
    model = Case(alpha=alpha, mean="linear").model(chunk_size=chunk_size)
    Xnew = tf.Variable(Case().problem.Xnew)

    def some_of_the_prediction() -> tf.Tensor:
        mean, variance = model.predict_f(Xnew)
        return tf.reduce_sum(tf.sin(mean)) + tf.reduce_sum(tf.math.log(variance))

    variables = (Xnew, *model.trainable_variables)
    actual = gradients(some_of_the_prediction, variables)
    scale = 0.01 * max(float(np.max(np.abs(gradient))) for gradient in actual)
    assert_gradients(some_of_the_prediction, variables, actual, rtol=RTOL, scale=scale)
