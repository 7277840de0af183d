"""APEP, ARPEP and RPAPEP as GPflow models: gradients, optimisers, several outputs, refusals."""

import warnings
from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats
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
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass, Poisson
from gpflow.optimizers import NaturalGradient
from helpers import (
    Array,
    assert_all_close,
    assert_close,
    assert_gradients,
    regression_problem,
    value_and_gradients,
)

import gpflow_pep as pep
from gpflow_pep.engine.energies.tied import _tempered

NOISE, TWO = 0.3, regression_problem(1, num_outputs=2)
each_model = pytest.mark.parametrize("model_class", MODELS.values(), ids=MODELS)


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("model_name", MODELS)
@pytest.mark.near_copies("APEP-True", "ARPEP-False", "RPAPEP-True")
def test_gradients(model_name: str, whiten: bool) -> None:
    model = create(model_name, "probit", random_start("probit"), whiten=whiten, num_data=12)
    data = tuple(map(tf.constant, data_of("probit", slice(0, 5))))
    loss = tf.function(lambda: model.training_loss(data), autograph=False)
    assert_gradients(loss, model.trainable_variables, step=1e-4, rtol=1e-7, scale=1.0)


@pytest.mark.parametrize("name", ["Gaussian", "RobustMax"])
@pytest.mark.parametrize("model_name", MODELS)
@pytest.mark.near_copies("APEP-Gaussian")  # XLA takes long over the others
def test_xla_compiles_value_and_gradient(model_name: str, name: str) -> None:
    model = create(model_name, name, random_start(name), alpha=0.5)
    loss = partial(model.training_loss, tuple(map(tf.constant, data_of(name))))
    expected, expected_gradient = value_and_gradients(loss, model.trainable_variables)
    compiled = tf.function(value_and_gradients, jit_compile=True, autograph=False)
    value, gradient = compiled(loss, model.trainable_variables)
    assert_close(value, expected, rtol=1e-8)
    assert_all_close(gradient, expected_gradient, rtol=1e-8)


@pytest.mark.parametrize("power", [0.4, 0.7, 1e-9, -0.5])
def test_tempered_gradient(power: float) -> None:
    rng = np.random.default_rng(0)
    root = tf.Variable(np.tril(0.2 * rng.standard_normal([2, 3, 3])) + 0.5 * np.eye(3))
    weights = [rng.standard_normal(shape) for shape in ([2, 3, 3], [2])]

    def weighted() -> tf.Tensor:
        parts = _tempered(tf.linalg.band_part(root, -1, 0), power)
        return sum(tf.reduce_sum(w * part) for w, part in zip(weights, parts))

    tolerance = 1e-8 if power > 1e-6 else 1e-4  # of log P / power by TensorFlow's logarithm
    assert_gradients(weighted, [root], rtol=tolerance)


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.near_copies("APEP-True", "ARPEP-True", "RPAPEP-False")
def test_natural_gradient(name: str, whiten: bool) -> None:
    """At alpha = 0 and a Gaussian likelihood one step is enough, for SVGP as for us."""
    start, data = random_start("Gaussian"), data_of("Gaussian")
    ours = create(name, "Gaussian", start, alpha=0.0, whiten=whiten)
    theirs = svgp("Gaussian", start)

    def step(model: Any, gamma: float) -> None:
        loss = model.training_loss_closure(data, compile=False)
        NaturalGradient(gamma).minimize(loss, [(model.q_mu, model.q_sqrt)])

    for model in (ours, theirs):
        step(model, 1.0)
    assert_close(ours.training_loss(data), theirs.training_loss(data))
    assert_all_close(ours.predict_f(data[0]), theirs.predict_f(data[0]), rtol=1e-6)
    again = float(ours.training_loss(data))
    ours.alpha.assign(0.5)
    before = float(ours.training_loss(data))
    for _ in range(3):
        step(ours, 0.5)
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
    step = tf.function(lambda: optimizer.minimize(loss, model.trainable_variables))
    for _ in range(100):
        step()
    assert float(model.training_loss((X, Y))) < before - 20.0
    assert np.mean((model.predict_y(X)[0] > 0.5) == Y) > 0.7


def _several_outputs() -> dict[str, tuple[Any, Any, int]]:
    Z = regression_problem(0, num_inducing=4).Z
    one, other = SquaredExponential(lengthscales=0.7), Matern32(variance=1.4)
    points = InducingPoints(Z)
    shared = SharedIndependentInducingVariables(points)
    separate = SeparateIndependentInducingVariables([points, InducingPoints(Z - 0.3)])
    mixing = LinearCoregionalization([one, other], np.array([[1.0, 0.3], [-0.4, 0.8]]))
    return {
        "one kernel": (one, points, 2),
        "shared": (SharedIndependent(one, 2), shared, 2),
        "separate": (SeparateIndependent([one, other]), separate, 2),
        "separate kernels": (SeparateIndependent([one, other]), shared, 2),
        "coregionalised": (mixing, shared, 2),
        "coregionalised, separate": (mixing, separate, 2),
        "fully correlated": (SharedIndependent(one, 2), points, 1),
    }


def _parts_and_q(outputs: str) -> tuple[tuple[Any, ...], dict[str, Any], int]:
    kernel, inducing_variable, num_latent = _several_outputs()[outputs]
    size, rng = 8 if outputs == "fully correlated" else 4, np.random.default_rng(0)
    q_mu = rng.standard_normal([size, num_latent])
    q_sqrt = np.tril(0.2 * rng.standard_normal([num_latent, size, size])) + 0.6 * np.eye(size)
    parts = kernel, Gaussian(NOISE), inducing_variable
    return parts, {"q_mu": q_mu, "q_sqrt": q_sqrt, "num_data": 50}, num_latent


@pytest.mark.parametrize("outputs", _several_outputs())
@pytest.mark.near_copies
def test_several_outputs(outputs: str) -> None:
    """Whatever SVGP takes, at alpha = 0 with the same value and predictions."""
    parts, q, num_latent = _parts_and_q(outputs)
    theirs = gpflow.models.SVGP(*parts, num_latent_gps=num_latent, **q)
    elbo = theirs.elbo(TWO.data)
    for kind in MODELS.values():
        ours = kind(*parts, alpha=0.0, **q)
        assert_close(ours.pep_log_marginal_likelihood(TWO.data), elbo)
        expected = theirs.predict_f(TWO.Xnew, True, True)
        assert_all_close(ours.predict_f(TWO.Xnew, True, True), expected)
    mean, covariance = ours.compute_qu()
    q.update(q_mu=mean, q_sqrt=np.linalg.cholesky(covariance), whiten=False)
    model = pep.models.APEP(*parts, alpha=0.0, **q)
    assert_close(model.pep_log_marginal_likelihood(TWO.data), elbo)
    assert_close(model.q_sqrt, q["q_sqrt"])


# A q that correlates the outputs of a row: the tilted integral is over all at once.


def _tilted(mean: Array, covariance: Array, y: Array, alpha: float) -> float:
    """The product of Gaussians, by the density of y under noise / alpha."""
    if alpha == 0.0:
        expected = scipy.stats.norm.logpdf(y, mean, np.sqrt(NOISE))
        return float(np.sum(expected - 0.5 * np.diagonal(covariance) / NOISE))
    log_density = scipy.stats.multivariate_normal(mean, covariance + NOISE / alpha * np.eye(2))
    to_power = (1.0 - alpha) * np.log(2.0 * np.pi * NOISE) - np.log(alpha)
    return float((to_power + log_density.logpdf(y)) / alpha)


@pytest.mark.near_copies("0.3-*", "1.0-*")
@pytest.mark.parametrize("outputs", ["coregionalised", "fully correlated"])
@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.3, 0.5, 1.0])
def test_correlated_outputs(outputs: str, alpha: float) -> None:
    (X, Y), (parts, q, num_latent) = TWO.data, _parts_and_q(outputs)
    q["num_data"] = len(X)
    model = pep.models.ARPEP(*parts, alpha=alpha, **q)
    svgp = gpflow.models.SVGP(*parts, num_latent_gps=num_latent, **q)
    mean, covariance = (part.numpy() for part in svgp.predict_f(X, full_output_cov=True))
    assert np.max(np.abs(covariance[:, 0, 1])) > 0.05  # there is something to lose
    ell = [_tilted(*row, alpha) for row in zip(mean, covariance, Y)]
    # The product of densities loses digits as 1 / alpha; the model does not.
    rtol = 1e-8 if alpha != 1e-6 else 1e-5
    expected = np.sum(ell) - float(svgp.prior_kl())
    assert_close(model.pep_log_marginal_likelihood((X, Y)), expected, rtol=rtol)


@pytest.mark.parametrize("alpha", [0.5, 0.0, 1.0])
@pytest.mark.slow
def test_gradients_of_correlated_outputs(alpha: float) -> None:
    parts, q, _ = _parts_and_q("coregionalised")
    model = pep.models.RPAPEP(*parts, alpha=alpha, **q)
    parameters = model.kernel.W, model.likelihood.variance, model.q_mu
    variables = [parameter.unconstrained_variable for parameter in parameters]
    assert_gradients(tf.function(lambda: model.training_loss(TWO.data)), variables, rtol=1e-7)


def test_other_likelihoods_of_correlated_outputs_are_refused_above_alpha_0() -> None:
    (kernel, _, points), q, _ = _parts_and_q("coregionalised")
    model = pep.models.ARPEP(kernel, Poisson(), points, alpha=0.5, **q)
    counts = TWO.X, np.round(np.exp(TWO.Y))
    with pytest.raises(ValueError, match=r"alpha: got .*Coregionalization.*Poisson, expected"):
        model.training_loss(counts)
    with pytest.raises(tf.errors.InvalidArgumentError, match="correlates the latent functions"):
        tf.function(model.training_loss)(counts)
    model.alpha.assign(0.0)
    assert np.isfinite(float(model.training_loss(counts)))


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
