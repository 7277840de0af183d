"""APEP, ARPEP and RPAPEP as GPflow models: gradients, optimisers, several outputs, refusals."""

import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from cases.tied import MODELS, create, data_of, random_start, svgp
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    LinearCoregionalization,
    Matern32,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
)
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass
from gpflow.optimizers import NaturalGradient
from helpers import (
    assert_all_close,
    assert_close,
    finite_difference_gradient,
    regression_problem,
    trainable_by_name,
    value_and_gradients,
)
from reference.tied import to_decimals

import gpflow_pep as pep
from gpflow_pep.engine.energies.tied import _tempered

each_model = pytest.mark.parametrize("model_class", MODELS.values(), ids=MODELS)


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("model_name", MODELS)
@pytest.mark.near_copies("APEP-True", "ARPEP-False", "RPAPEP-True")
def test_gradients(model_name: str, whiten: bool) -> None:
    name = "probit"
    model = create(model_name, name, random_start(name), whiten=whiten, num_data=12)
    data = tuple(map(tf.constant, data_of(name, slice(0, 5))))
    variables = trainable_by_name(model)
    loss_and_gradients = tf.function(
        lambda: value_and_gradients(lambda: model.training_loss(data), list(variables.values())),
        autograph=False,
    )
    _, gradients = loss_and_gradients()
    for variable, gradient in zip(variables.values(), gradients):
        expected = finite_difference_gradient(lambda: loss_and_gradients()[0], variable, step=1e-4)
        assert_close(gradient, expected, rtol=1e-7, scale=1.0)


@pytest.mark.parametrize("power", [0.4, 0.7, 1e-9, -0.5])
def test_tempered_gradient(power: float) -> None:
    rng = np.random.default_rng(0)
    root = tf.Variable(np.tril(0.2 * rng.standard_normal([2, 3, 3])) + 0.5 * np.eye(3))
    weights = [rng.standard_normal(shape) for shape in ([2, 3, 3], [2])]

    def weighted() -> tf.Tensor:
        parts = _tempered(tf.linalg.band_part(root, -1, 0), power)
        return sum(tf.reduce_sum(w * part) for w, part in zip(weights, parts))

    with tf.GradientTape() as tape:
        value = weighted()
    expected = finite_difference_gradient(weighted, root)
    tolerance = 1e-8 if power > 1e-6 else 1e-4  # of log P / power by TensorFlow's logarithm
    assert_close(tape.gradient(value, root), expected, rtol=tolerance)


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.near_copies("APEP-True", "ARPEP-True", "RPAPEP-False")
def test_natural_gradient(name: str, whiten: bool) -> None:
    """At alpha = 0 and a Gaussian likelihood one step is enough, for SVGP as for us."""
    start, data = random_start("Gaussian"), data_of("Gaussian")
    ours = create(name, "Gaussian", start, alpha=0.0, whiten=whiten)
    theirs = svgp("Gaussian", start)
    for model in (ours, theirs):
        NaturalGradient(1.0).minimize(
            model.training_loss_closure(data, compile=False), [(model.q_mu, model.q_sqrt)]
        )
    assert_close(ours.training_loss(data), theirs.training_loss(data))
    assert_all_close(ours.predict_f(data[0]), theirs.predict_f(data[0]), rtol=1e-6)
    again = float(ours.training_loss(data))
    ours.alpha.assign(0.5)
    before = float(ours.training_loss(data))
    for _ in range(3):
        NaturalGradient(0.5).minimize(
            ours.training_loss_closure(data, compile=False), [(ours.q_mu, ours.q_sqrt)]
        )
    assert float(ours.training_loss(data)) < before < again


@each_model
@pytest.mark.near_copies("APEP")
def test_learns_from_a_stream_of_batches(model_class: Any) -> None:
    """GPflow's loop over tf.data with Adam, labels of an integer type."""
    problem = regression_problem(0, num_data=200, num_inducing=8)
    X, Y = problem.X, np.where(problem.Y > 0.4, 1, 0)
    batches = iter(tf.data.Dataset.from_tensor_slices((X, Y)).repeat().shuffle(200, 0).batch(50))
    model = model_class(problem.kernel(), Bernoulli(), problem.Z, num_data=200)
    before = float(model.training_loss((X, Y)))
    loss = model.training_loss_closure(batches)
    optimizer = tf_keras.optimizers.Adam(0.05)
    variables = model.trainable_variables

    @tf.function
    def step() -> None:
        optimizer.minimize(loss, variables)

    for _ in range(100):
        step()
    assert float(model.training_loss((X, Y))) < before - 20.0
    assert np.mean((model.predict_y(X)[0] > 0.5) == Y) > 0.7


def _several_outputs() -> dict[str, Callable[[], tuple[Any, Any, int]]]:
    Z = regression_problem(0, num_inducing=4).Z

    def kernels() -> list[gpflow.kernels.Kernel]:
        return [SquaredExponential(lengthscales=0.7), Matern32(variance=1.4)]

    def separate() -> SeparateIndependentInducingVariables:
        return SeparateIndependentInducingVariables([InducingPoints(Z), InducingPoints(Z - 0.3)])

    def shared() -> SharedIndependentInducingVariables:
        return SharedIndependentInducingVariables(InducingPoints(Z))

    W = np.array([[1.0, 0.3], [-0.4, 0.8]])
    return {
        "one kernel": lambda: (kernels()[0], InducingPoints(Z), 2),
        "shared": lambda: (SharedIndependent(kernels()[0], 2), shared(), 2),
        "separate": lambda: (SeparateIndependent(kernels()), separate(), 2),
        "separate kernels": lambda: (SeparateIndependent(kernels()), shared(), 2),
        "coregionalised": lambda: (LinearCoregionalization(kernels(), W), shared(), 2),
        "coregionalised, separate": lambda: (LinearCoregionalization(kernels(), W), separate(), 2),
        "fully correlated": lambda: (SharedIndependent(kernels()[0], 2), InducingPoints(Z), 1),
    }


@pytest.mark.parametrize("outputs", _several_outputs())
@pytest.mark.near_copies
def test_several_outputs(outputs: str) -> None:
    """Whatever SVGP takes, at alpha = 0 with the same value and predictions."""
    kernel, inducing_variable, num_latent = _several_outputs()[outputs]()
    size = 8 if outputs == "fully correlated" else 4
    rng = np.random.default_rng(0)
    q_mu = rng.standard_normal([size, num_latent])
    root = 0.02 * rng.standard_normal([num_latent, size, size])
    q_sqrt = np.tril(root, -1) + 0.1 * np.eye(size)
    arguments = kernel, Gaussian(0.1), inducing_variable
    options: dict[str, Any] = {"q_mu": q_mu, "q_sqrt": q_sqrt, "num_data": 50}
    problem = regression_problem(1, num_outputs=2)
    theirs = gpflow.models.SVGP(*arguments, num_latent_gps=num_latent, **options)
    elbo = theirs.elbo(problem.data)
    for model_class in MODELS.values():
        ours = model_class(*arguments, alpha=0.0, **options)
        assert_close(ours.pep_log_marginal_likelihood(problem.data), elbo)
    expected = theirs.predict_f(problem.Xnew, True, True)
    assert_all_close(ours.predict_f(problem.Xnew, True, True), expected)
    mean, covariance = ours.compute_qu()
    plain = {"q_mu": mean, "q_sqrt": np.linalg.cholesky(covariance), "whiten": False}
    model = pep.models.APEP(*arguments, alpha=0.0, num_data=50, **plain)
    assert_close(model.pep_log_marginal_likelihood(problem.data), elbo)
    assert_close(model.q_sqrt, plain["q_sqrt"])


def test_no_jitter_where_the_default_is_enough() -> None:
    """Wrappers of several outputs add the default jitter after the inducing variables' own."""
    line = np.linspace(-0.5, 0.5, 30)[:, None]
    assert np.any(np.isnan(tf.linalg.cholesky(SquaredExponential()(line))))
    shared = SharedIndependentInducingVariables(InducingPoints(line))
    kernel = SharedIndependent(SquaredExponential(), 2)
    model = pep.models.ARPEP(kernel, Gaussian(), shared, num_latent_gps=2, num_data=30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_f(line)


def test_q_of_another_model() -> None:
    """Parameters and tensors are taken as start, too; the number of latents is theirs."""
    start = random_start("RobustMax")
    first = create("ARPEP", "RobustMax", start)
    for model_class in MODELS.values():
        second = model_class(
            SquaredExponential(),
            MultiClass(3),
            InducingPoints(first.inducing_variable.Z),
            num_data=7,
            q_mu=first.q_mu,
            q_sqrt=tf.convert_to_tensor(first.q_sqrt),
        )
        assert second.num_latent_gps == 3
        assert_close(second.q_mu, first.q_mu)
        assert_close(second.q_sqrt, first.q_sqrt)


def test_reference_refuses_improper_gaussians() -> None:
    from reference.tied import Natural

    with pytest.raises(ValueError, match="positive definite"):
        Natural(to_decimals([0.0]), to_decimals([[-1.0]])).log_normaliser()
