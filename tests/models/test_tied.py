"""APEP, ARPEP and RPAPEP: beside the reference, SVGP and limits; gradients, optimisers,
several outputs, refusals.
"""

import warnings
from functools import partial
from typing import Any

import gpflow
import helpers
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tf_keras
from cases.pep import CASES, N
from cases.tied import (
    ALPHAS,
    LIKELIHOODS,
    MODELS,
    NUM_DATA,
    create,
    data_of,
    random_start,
    svgp,
)
from gpflow import inducing_variables as iv
from gpflow import kernels as k
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass, Poisson
from gpflow.optimizers import NaturalGradient
from helpers import Array, assert_all_close, assert_close, gradients, regression_problem
from reference import tied as tied_reference

import gpflow_pep as pep
from gpflow_pep.engine.energies import tied as tied_energies
from gpflow_pep.engine.sites.posterior import WhitenedGaussian

ROWS = [3, 4, 8]  # a batch
NOISE = 0.3
TWO = regression_problem(1, num_outputs=2)
each_model = pytest.mark.parametrize("model_name", MODELS)


@pytest.mark.near_copies("ARPEP-probit", "ARPEP-RobustMax", "*-Gaussian")
@pytest.mark.parametrize("name", LIKELIHOODS)
@each_model
def test_reference(model_name: str, name: str) -> None:
    start = random_start(name)
    model = create(model_name, name, start)
    for alpha in ALPHAS:
        model.alpha.assign(alpha)
        for num_data, rows in ((NUM_DATA, range(N)), (5, ROWS), (1, [2])):
            model.num_data = num_data
            value = model.pep_log_marginal_likelihood(data_of(name, list(rows)))
            assert_close(
                value, start.log_z(model_name, alpha, num_data, rows), rtol=1e-8
            )


@pytest.mark.near_copies("APEP")
@each_model
def test_coordinates(model_name: str) -> None:
    """The energy, predictions and q(u) do not depend on the coordinates that q is held
    in.
    """
    start = random_start("RobustMax")
    name = "RobustMax"
    white, plain = (
        create(model_name, name, start, whiten=w, alpha=0.3) for w in (True, False)
    )
    q = start.q_mu, start.q_sqrt @ start.q_sqrt.transpose(0, 2, 1)
    for model in (white, plain):
        log_z = model.pep_log_marginal_likelihood(data_of(name))
        assert_close(log_z, start.log_z(model_name, 0.3))
        assert_all_close(model.compute_qu(), q)
    Xnew = CASES[name].problem.Xnew
    assert_all_close(plain.predict_f(Xnew, True), white.predict_f(Xnew, True))
    assert_all_close((plain.q_mu, plain.q_sqrt), (start.q_mu, start.q_sqrt))
    assert_close(white.q_sqrt, start.whitened()[1])


@pytest.mark.near_copies("APEP-*", "ARPEP-Gaussian-*")
@pytest.mark.parametrize(
    "name, rtol",
    [("Gaussian", 1e-10), ("Poisson", 1e-10), ("probit", 1e-3), ("RobustMax", 1e-3)],
)
@each_model
def test_alpha_0_is_svgp(model_name: str, name: str, rtol: float) -> None:
    """GPflow's variational expectation is in closed form, or by its quadrature; also at
    first.
    """
    start = random_start(name, seed=1)
    data = data_of(name)
    expected = svgp(name, start).elbo(data)
    for whiten in (False, True) if name == "Gaussian" else ():
        nothing: dict[str, Any] = {"q_mu": None, "q_sqrt": None, "whiten": whiten}
        first = create(model_name, name, start, alpha=0.0, **nothing)
        elbo = svgp(name, start, **nothing).elbo(data)
        assert_close(first.pep_log_marginal_likelihood(data), elbo)
    model = create(model_name, name, start, alpha=0.0)
    at_0 = model.pep_log_marginal_likelihood(data)
    assert_close(at_0, expected, rtol=rtol)
    model.alpha.assign(1e-6)
    near_0 = model.pep_log_marginal_likelihood(data)
    assert_close(near_0, at_0, rtol=1e-5)
    assert abs(near_0 - at_0) > 1e-8


def test_apep_with_one_row_and_a_site_on_it_is_ep() -> None:
    """One row, one factor: at alpha = 1 the cavity is the prior, and Z the exact
    evidence.
    """
    start = random_start("probit")
    model = create("APEP", "probit", start, alpha=1.0, num_data=1)
    prior = svgp("probit", start, q_mu=None, q_sqrt=None, num_data=1)
    X, Y = data_of("probit", [4])
    arguments = model.likelihood, X, *prior.predict_f(X), Y, 1.0
    expected = pep.likelihoods.log_power_expectation(*arguments)
    assert_close(model.pep_log_marginal_likelihood((X, Y)), expected[0])


class TestManyRows:
    """The rest of the energy, in whitened coordinates, beside 100 decimal digits."""

    # Random roots of covariances, one narrow, that are narrower than the prior.
    Q_MU = np.random.default_rng(0).standard_normal([3, 1])
    Q_SQRT = np.array([[[0.7, 0.0, 0.0], [0.2, 0.05, 0.0], [-0.1, 0.3, 0.4]]])

    def _expected(self, name: str, alpha: float, num_data: int) -> float:
        covariance = self.Q_SQRT[0] @ self.Q_SQRT[0].T
        q = tied_reference.natural(self.Q_MU[:, 0], covariance)
        prior = tied_reference.natural(np.zeros(3), np.eye(3))
        return float(tied_reference.rest(name.upper(), prior, q, alpha, num_data))

    @pytest.mark.parametrize("num_data", [1, 100, 10**9, 10**15])
    @pytest.mark.parametrize("name", ["apep", "rpapep"])
    def test_rest(self, name: str, num_data: int) -> None:
        q = WhitenedGaussian(tf.constant(self.Q_MU), tf.constant(self.Q_SQRT))
        for alpha in (0.0, 1e-12, 1e-6, 0.01, 0.5, 1.0):
            energy = getattr(tied_energies, name)(q, alpha, num_data)
            assert_close(
                energy.rest, self._expected(name, alpha, num_data), 1e-13, scale=1.0
            )

    def test_gradient_of_many_rows_is_that_of_infinitely_many(self) -> None:
        """Where both are ARPEP's, but for the power of the prior in RPAPEP."""
        both = tf.constant(self.Q_MU), tf.constant(self.Q_SQRT)

        def slopes(name: str, alpha: float, num_data: int) -> list[Array]:
            energy = getattr(tied_energies, name)

            def rest():
                return energy(WhitenedGaussian(*both), alpha, num_data).rest

            return [np.tril(part) for part in gradients(rest, both)]

        assert_all_close(slopes("apep", 1.0, 10**9), slopes("arpep", 1.0, 1), rtol=1e-7)
        assert_all_close(slopes("apep", 0.0, 1), slopes("arpep", 1.0, 1), rtol=1e-12)


@pytest.mark.near_copies("APEP")
@each_model
def test_compiled_functions_see_another_num_data(model_name: str) -> None:
    start = random_start("Gaussian")
    rows = data_of("Gaussian", ROWS)
    model = create(model_name, "Gaussian", start, alpha=0.3, num_data=10)
    before = len(model.variables)
    compiled = tf.function(model.pep_log_marginal_likelihood)
    for num_data in (10, 5, 10**6):
        model.num_data = num_data
        assert model.num_data == num_data
        assert_close(
            compiled(rows), start.log_z(model_name, 0.3, num_data, ROWS), rtol=1e-8
        )
    model.num_data = 2
    with pytest.raises(
        (ValueError, tf.errors.InvalidArgumentError), match="more rows than num_da"
    ):
        compiled(rows)
    assert compiled.experimental_get_tracing_count() == 1
    for wrong in (None, 0, 2.5):
        with pytest.raises(ValueError, match="number of rows of the whole data set"):
            model.num_data = wrong
    assert model.num_data == 2 and len(model.variables) == before
    assert gpflow.utilities.deepcopy(model).num_data == 2


# As GPflow models.


@pytest.mark.near_copies("APEP-True", "ARPEP-False")
@pytest.mark.parametrize("whiten", [True, False])
@each_model
def test_gradients(model_name: str, whiten: bool) -> None:
    model = create(
        model_name, "probit", random_start("probit"), whiten=whiten, num_data=12
    )
    data = tuple(map(tf.constant, data_of("probit", slice(0, 5))))
    loss = tf.function(lambda: model.training_loss(data), autograph=False)
    tolerance = {"step": 1e-4, "rtol": 1e-7, "scale": 1.0}
    helpers.assert_gradients(loss, model.trainable_variables, **tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Gaussian", "RobustMax"])
@each_model
@pytest.mark.near_copies("APEP-Gaussian")  # XLA takes long over the others
def test_xla_compiles_value_and_gradient(model_name: str, name: str) -> None:
    model = create(model_name, name, random_start(name), alpha=0.5)
    loss = partial(model.training_loss, tuple(map(tf.constant, data_of(name))))
    compiled = tf.function(
        helpers.value_and_gradients, jit_compile=True, autograph=False
    )
    value, gradient = compiled(loss, model.trainable_variables)
    assert_close(value, loss(), rtol=1e-8)
    assert_all_close(gradient, gradients(loss, model.trainable_variables), rtol=1e-8)


@pytest.mark.parametrize("power", [0.4, 0.7, 1e-9, -0.5])
def test_tempered_gradient(power: float) -> None:
    rng = np.random.default_rng(0)
    root = tf.Variable(np.tril(0.2 * rng.standard_normal([2, 3, 3])) + 0.5 * np.eye(3))
    weights = [rng.standard_normal(shape) for shape in ([2, 3, 3], [2])]

    def weighted() -> tf.Tensor:
        parts = tied_energies._tempered(tf.linalg.band_part(root, -1, 0), power)
        return sum(tf.reduce_sum(w * part) for w, part in zip(weights, parts))

    # Of log P / power by TensorFlow's logarithm.
    tolerance = 1e-8 if power > 1e-6 else 1e-4
    helpers.assert_gradients(weighted, [root], rtol=tolerance)


@pytest.mark.near_copies("APEP-True", "RPAPEP-False")
@pytest.mark.parametrize("whiten", [True, False])
@each_model
def test_natural_gradient(model_name: str, whiten: bool) -> None:
    """At alpha = 0 and a Gaussian likelihood one step is enough, for SVGP as for us."""
    start = random_start("Gaussian")
    data = data_of("Gaussian")
    ours = create(model_name, "Gaussian", start, alpha=0.0, whiten=whiten)
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


@pytest.mark.slow
@each_model
@pytest.mark.near_copies("APEP")
def test_learns_from_a_stream_of_batches(model_name: str) -> None:
    """GPflow's loop over tf.data with Adam, labels of an integer type."""
    problem = regression_problem(0, num_data=100, num_inducing=8)
    X = problem.X
    Y = np.where(problem.Y > 0.4, 1, 0)
    batches = iter(
        tf.data.Dataset.from_tensor_slices((X, Y)).repeat().shuffle(100, 0).batch(50)
    )
    model = MODELS[model_name](problem.kernel(), Bernoulli(), problem.Z, num_data=100)
    before = float(model.training_loss((X, Y)))
    optimizer = tf_keras.optimizers.Adam(0.05)
    loss = model.training_loss_closure(batches)
    step = tf.function(lambda: optimizer.minimize(loss, model.trainable_variables))
    for _ in range(100):
        step()
    assert float(model.training_loss((X, Y))) < before - 10.0
    assert np.mean((model.predict_y(X)[0] > 0.5) == Y) > 0.7


def _several_outputs() -> dict[str, tuple[Any, Any, int]]:
    Z = regression_problem(0, num_inducing=4).Z
    one = k.SquaredExponential(lengthscales=0.7)
    other = k.Matern32(variance=1.4)
    points = iv.InducingPoints(Z)
    shared = iv.SharedIndependentInducingVariables(points)
    separate = iv.SeparateIndependentInducingVariables(
        [points, iv.InducingPoints(Z - 0.3)]
    )
    mixing = k.LinearCoregionalization(
        [one, other], np.array([[1.0, 0.3], [-0.4, 0.8]])
    )
    return {
        "one kernel": (one, points, 2),
        "shared": (k.SharedIndependent(one, 2), shared, 2),
        "separate": (k.SeparateIndependent([one, other]), separate, 2),
        "separate kernels": (k.SeparateIndependent([one, other]), shared, 2),
        "coregionalised": (mixing, shared, 2),
        "coregionalised, separate": (mixing, separate, 2),
        "fully correlated": (k.SharedIndependent(one, 2), points, 1),
    }


def _parts_and_q(outputs: str) -> tuple[tuple[Any, ...], dict[str, Any], int]:
    kernel, inducing_variable, num_latent = _several_outputs()[outputs]
    size = 8 if outputs == "fully correlated" else 4
    rng = np.random.default_rng(0)
    q_mu = rng.standard_normal([size, num_latent])
    q_sqrt = np.tril(
        0.2 * rng.standard_normal([num_latent, size, size])
    ) + 0.6 * np.eye(size)
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
    log_density = scipy.stats.multivariate_normal(
        mean, covariance + NOISE / alpha * np.eye(2)
    )
    to_power = (1.0 - alpha) * np.log(2.0 * np.pi * NOISE) - np.log(alpha)
    return float((to_power + log_density.logpdf(y)) / alpha)


@pytest.mark.near_copies("0.3-*")
@pytest.mark.parametrize("outputs", ["coregionalised", "fully correlated"])
@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.3, 0.5, 1.0])
def test_correlated_outputs(outputs: str, alpha: float) -> None:
    (X, Y), (parts, q, num_latent) = TWO.data, _parts_and_q(outputs)
    q["num_data"] = len(X)
    model = pep.models.ARPEP(*parts, alpha=alpha, **q)
    svgp = gpflow.models.SVGP(*parts, num_latent_gps=num_latent, **q)
    mean, covariance = (
        part.numpy() for part in svgp.predict_f(X, full_output_cov=True)
    )
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
    loss = tf.function(lambda: model.training_loss(TWO.data))
    helpers.assert_gradients(loss, variables, rtol=1e-7)


def test_other_likelihoods_of_correlated_outputs_are_refused_above_alpha_0() -> None:
    (kernel, _, points), q, _ = _parts_and_q("coregionalised")
    model = pep.models.ARPEP(kernel, Poisson(), points, alpha=0.5, **q)
    counts = TWO.X, np.round(np.exp(TWO.Y))
    with pytest.raises(
        ValueError, match=r"alpha: got .*Coregionalization.*Poisson, expected"
    ):
        model.training_loss(counts)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="correlates the latent functions"
    ):
        tf.function(model.training_loss)(counts)
    model.alpha.assign(0.0)
    assert np.isfinite(float(model.training_loss(counts)))


def test_no_jitter_where_the_default_is_enough() -> None:
    """Wrappers of several outputs add the default jitter after the inducing variables'
    own.
    """
    line = np.linspace(-0.5, 0.5, 30)[:, None]
    assert np.any(np.isnan(tf.linalg.cholesky(k.SquaredExponential()(line))))
    shared = iv.SharedIndependentInducingVariables(iv.InducingPoints(line))
    kernel = k.SharedIndependent(k.SquaredExponential(), 2)
    model = pep.models.ARPEP(kernel, Gaussian(), shared, num_latent_gps=2, num_data=30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict_f(line)


def test_q_of_another_model() -> None:
    """Parameters and tensors are taken as start, too; the number of latents
    is theirs.
    """
    start = random_start("RobustMax")
    first = create("ARPEP", "RobustMax", start)
    q = {"q_mu": first.q_mu, "q_sqrt": tf.convert_to_tensor(first.q_sqrt)}
    points = iv.InducingPoints(first.inducing_variable.Z)
    for model_class in MODELS.values():
        second = model_class(
            k.SquaredExponential(), MultiClass(3), points, num_data=7, **q
        )
        assert second.num_latent_gps == 3
        assert_all_close((second.q_mu, second.q_sqrt), (first.q_mu, first.q_sqrt))
