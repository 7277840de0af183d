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
    finite_difference_gradient,
    gradients,
    regression_problem,
    trainable_by_name,
)

import gpflow_pep as pep

RTOL = 1e-6


def _with_priors(chunk_size: int | None) -> "pep.models.PEPRegression":
    model = Case().model(chunk_size=chunk_size)
    model.kernel.lengthscales.prior = tfp.distributions.Gamma(
        np.array([2.0, 3.0]), np.array([1.0, 2.0])
    )
    model.likelihood.variance.prior = tfp.distributions.LogNormal(np.float64(-1.0), np.float64(0.5))
    model.inducing_variable.Z.prior = tfp.distributions.Normal(np.float64(0.0), np.float64(2.0))
    return model


def _with_features(
    make_feature: Callable[[Any], Any], blocks: Any | None = None
) -> Callable[[int | None], "pep.models.PEPRegression"]:
    def create(chunk_size: int | None) -> "pep.models.PEPRegression":
        problem = regression_problem(num_data=N)
        return problem.model(
            pep.models.PEPRegression,
            make_feature(problem),
            alpha=0.4,
            blocks=blocks,
            chunk_size=chunk_size,
        )

    return create


def _multiscale(problem: Any) -> gpflow.inducing_variables.Multiscale:
    return gpflow.inducing_variables.Multiscale(problem.Z, np.linspace(0.1, 0.9, 10).reshape(5, 2))


def _of_case(case: Case) -> Callable[[int | None], "pep.models.PEPRegression"]:
    return lambda chunk_size: case.model(chunk_size=chunk_size)


MODELS: dict[str, Callable[[int | None], "pep.models.PEPRegression"]] = {
    "rows": _of_case(CASES["alpha 0.5"]),
    "alpha per row": _of_case(CASES["alpha per row"]),
    "blocks": _of_case(CASES["uneven blocks, alpha 0.5"]),
    "alpha per block": _of_case(CASES["alpha per block"]),
    "noise scale": _of_case(Case(noise="scale", alpha=0.3)),
    "noise variance": _of_case(Case(noise="variance", alpha=ALPHA_PER_ROW)),
    "constant mean": _of_case(CASES["constant mean"]),
    "everything": _of_case(CASES["everything"]),
    "Multiscale": _with_features(_multiscale),
    "Multiscale, blocks": _with_features(_multiscale, UNEVEN_BLOCKS),
    "priors": _with_priors,
    "scaled": _of_case(Case(bound="tight", noise="variance", alpha=ALPHA_PER_ROW)),
    "scaled, everything": _of_case(CASES["scaled, everything"]),
}
#: Each of these is a part of another one here.
PARTS = ("alpha per block", "noise scale", "constant mean", "Multiscale")
#: Powers that one compiled function serves, by assigning them.
POWERS = {"rows": (0.0, 0.5, 1.0), "blocks": (0.0, 0.5, 1.0)}
each_model = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in PARTS else []) for name in MODELS],
)


@each_model
@pytest.mark.near_copies("blocks", "everything")
def test_loss_gradient_is_the_finite_difference(name: str) -> None:
    model, by_chunks = MODELS[name](None), MODELS[name](4)
    loss = tf.function(model.training_loss)
    named = trainable_by_name(model)
    assert len(named) == len(model.trainable_variables) >= 4
    for power in POWERS.get(name, (None,)):
        if power is not None:
            model.alpha.assign(power)
            by_chunks.alpha.assign(power)
        in_graph = gradients(loss, list(named.values()))
        in_eager = gradients(model.training_loss, list(named.values()))
        chunked = gradients(by_chunks.training_loss, list(trainable_by_name(by_chunks).values()))
        largest = max(float(np.max(np.abs(gradient))) for gradient in in_graph)
        for index, (path, variable) in enumerate(named.items()):
            expected = finite_difference_gradient(loss, variable)
            assert np.max(np.abs(expected)) > 1e-3, f"the loss hardly depends on {path}"
            for actual in (in_graph[index], in_eager[index], chunked[index]):
                # A variable with a small gradient is differenced out of a loss that is large.
                assert_close(actual, expected, rtol=RTOL, scale=0.01 * largest)
    assert loss.experimental_get_tracing_count() == 1


CHUNKED_MODELS = [
    "alpha per row",
    "everything",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("rows", "noise variance", "Multiscale, blocks")
    ),
]


@pytest.mark.parametrize("name", CHUNKED_MODELS)
@pytest.mark.near_copies
def test_loss_gradient_is_the_same_for_every_chunk_size(name: str) -> None:
    def gradient(chunk_size: int | None) -> Any:
        model = MODELS[name](chunk_size)
        return gradients(model.training_loss, list(trainable_by_name(model).values()))

    whole = gradient(N)
    for chunk_size in (None, 1, 4, N - 1, 1000):
        assert_all_close(gradient(chunk_size), whole, rtol=1e-9)


@pytest.mark.parametrize("chunk_size", [None, 4])
def test_gradient_scales_with_what_comes_back(chunk_size: int | None) -> None:
    """A loss that uses log Z within something else: its gradient is the chain rule's."""
    model = Case(alpha=0.3).model(chunk_size=chunk_size)
    variables = list(trainable_by_name(model).values())
    plain = gradients(model.pep_log_marginal_likelihood, variables)

    def composed() -> tf.Tensor:
        log_z = model.pep_log_marginal_likelihood()
        return -2.5 * log_z + tf.math.log(-log_z) + model.kernel.variance

    value = float(model.pep_log_marginal_likelihood())
    assert value < 0.0
    variance = model.kernel.variance.unconstrained_variable
    own_term = gradients(lambda: tf.convert_to_tensor(model.kernel.variance), [variance])[0]
    for variable, actual, gradient in zip(variables, gradients(composed, variables), plain):
        expected = (-2.5 + 1.0 / value) * gradient
        assert_close(actual, expected + (own_term if variable is variance else 0.0), rtol=1e-9)


@pytest.mark.parametrize("chunk_size", [None, 4])
def test_gradient_in_some_variables_only(chunk_size: int | None) -> None:
    model = Case(alpha=0.3).model(chunk_size=chunk_size)
    everything = dict(
        zip(
            trainable_by_name(model),
            gradients(model.training_loss, list(trainable_by_name(model).values())),
        )
    )
    gpflow.set_trainable(model.inducing_variable, False)
    gpflow.set_trainable(model.kernel.variance, False)
    rest = trainable_by_name(model)
    assert 0 < len(rest) < len(everything)
    for name, actual in zip(rest, gradients(model.training_loss, list(rest.values()))):
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

    compiled = tf.function(some_of_the_prediction)
    variables: tuple[tf.Variable, ...] = (Xnew, *trainable_by_name(model).values())
    actual = gradients(some_of_the_prediction, variables)
    largest = max(float(np.max(np.abs(gradient))) for gradient in actual)
    for variable, gradient in zip(variables, actual):
        expected = finite_difference_gradient(compiled, variable)
        assert_close(gradient, expected, rtol=RTOL, scale=0.01 * largest)
