"""APEP, ARPEP and RPAPEP as GPflow models: gradients, optimisers, several outputs, refusals."""

import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
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
from helpers import assert_close, finite_difference_gradient, regression_problem
from pep_cases import trainable_by_name
from tied_cases import MODELS, create, data_of, random_start, svgp
from tied_reference import to_decimals

import gpflow_pep as pep
from gpflow_pep.ops.tempered import tempered

each_model = pytest.mark.parametrize("model_class", MODELS.values(), ids=MODELS)
FREE = [pep.models.ARPEP, pep.models.RPAPEP]


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("model_name", MODELS)
def test_gradients(model_name: str, whiten: bool) -> None:
    name = "probit"
    model = create(model_name, name, random_start(name), whiten=whiten, num_data=12)
    data = tuple(map(tf.constant, data_of(name, slice(0, 5))))
    variables = trainable_by_name(model)

    @tf.function
    def loss_and_gradients() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss(data)
        return loss, tape.gradient(loss, list(variables.values()))

    _, gradients = loss_and_gradients()
    for variable, gradient in zip(variables.values(), gradients):
        expected = finite_difference_gradient(lambda: loss_and_gradients()[0], variable, step=1e-4)
        assert_close(gradient, expected, rtol=1e-7, scale=1.0)


@pytest.mark.parametrize("power, shift", [(0.4, 1.0), (0.7, 0.0), (1e-9, 1.0), (-0.5, 0.0)])
def test_tempered_gradient(power: float, shift: float) -> None:
    rng = np.random.default_rng(0)
    root = tf.Variable(np.tril(0.2 * rng.standard_normal([2, 3, 3])) + 0.5 * np.eye(3))
    weights = [rng.standard_normal(shape) for shape in ([2, 3, 3], [2])]

    def weighted() -> tf.Tensor:
        parts = tempered(tf.linalg.band_part(root, -1, 0), power, shift)
        return sum(tf.reduce_sum(w * part) for w, part in zip(weights, parts))

    with tf.GradientTape() as tape:
        value = weighted()
    expected = finite_difference_gradient(weighted, root)
    tolerance = 1e-8 if power > 1e-6 else 1e-4  # of log P / power by TensorFlow's logarithm
    assert_close(tape.gradient(value, root), expected, rtol=tolerance)


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("model_class", FREE)
def test_natural_gradient(model_class: Any, whiten: bool) -> None:
    """At alpha = 0 and a Gaussian likelihood one step is enough, for SVGP as for us."""
    start, data = random_start("Gaussian"), data_of("Gaussian")
    name = model_class.__name__
    ours = create(name, "Gaussian", start, alpha=0.0, whiten=whiten)
    theirs = svgp("Gaussian", start)
    for model in (ours, theirs):
        NaturalGradient(1.0).minimize(
            model.training_loss_closure(data, compile=False), [(model.q_mu, model.q_sqrt)]
        )
    assert_close(ours.training_loss(data), theirs.training_loss(data))
    for actual, expected in zip(ours.predict_f(data[0]), theirs.predict_f(data[0])):
        assert_close(actual, expected, rtol=1e-6)
    again = float(ours.training_loss(data))
    ours.alpha.assign(0.5)
    before = float(ours.training_loss(data))
    for _ in range(3):
        NaturalGradient(0.5).minimize(
            ours.training_loss_closure(data, compile=False), [(ours.q_mu, ours.q_sqrt)]
        )
    assert float(ours.training_loss(data)) < before < again


@each_model
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
    for one, other in zip(ours.predict_f(problem.Xnew, True, True), expected):
        assert_close(one, other)
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


X = np.linspace(-1.0, 1.0, 14).reshape(7, 2)
LABELS = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0])[:, None]
REMEDY = re.compile(
    r"\b(pass|give|use|leave|reshape|remove|cast|recode|add|check|choose|create)\b|\[:, None\]",
    re.I,
)


def _model(model_class: Any, **changes: Any) -> Any:
    arguments = {
        "kernel": SquaredExponential(),
        "likelihood": Bernoulli(),
        "inducing_variable": X[:3],
        "num_data": 7,
        **changes,
    }
    return model_class(**arguments)


def _kernel_in_single_precision() -> SquaredExponential:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        return SquaredExponential()


class Refused(NamedTuple):
    """Arguments, and regular expressions that the message must contain."""

    changes: Callable[[], dict[str, Any]]
    got: str
    expected: str


CONSTRUCTION = {
    "num_data missing": Refused(lambda: {"num_data": None}, "None", "number of rows"),
    "num_data 0": Refused(lambda: {"num_data": 0}, r"\b0\b", "at least 1"),
    "num_data 2.5": Refused(lambda: {"num_data": 2.5}, r"2\.5", "number of rows"),
    "num_data NaN": Refused(lambda: {"num_data": np.nan}, "nan", "number of rows"),
    "num_data of a wrong type": Refused(lambda: {"num_data": "7"}, "'7'", "number of rows"),
    "alpha 1.5": Refused(lambda: {"alpha": 1.5}, r"1\.5", r"\[0, 1\]"),
    "alpha for each row": Refused(lambda: {"alpha": np.ones(7)}, r"\(7,\)", "one number"),
    "no kernel": Refused(lambda: {"kernel": 1.0}, "float", "Kernel"),
    "no likelihood": Refused(lambda: {"likelihood": "probit"}, "str", "likelihoods"),
    "no inducing inputs": Refused(lambda: {"inducing_variable": X[:0]}, r"\b0\b", "at least 1"),
    "1-D inducing inputs": Refused(lambda: {"inducing_variable": X[:, 0]}, r"\(7,\)", r"\[M, D\]"),
    "no latent functions": Refused(lambda: {"num_latent_gps": 0}, r"\b0\b", "at least 1"),
    "half a latent function": Refused(lambda: {"num_latent_gps": 0.5}, r"0\.5", "whole"),
    "q_mu too short": Refused(lambda: {"q_mu": np.zeros([2, 1])}, r"\(2, 1\)", r"\(3, 1\)"),
    "1-D q_mu": Refused(lambda: {"q_mu": np.zeros(3)}, r"\(3,\)", r"\(3, 3\)"),
    "NaN in q_mu": Refused(lambda: {"q_mu": np.full([3, 1], np.nan)}, "NaN", "finite"),
    "q_sqrt of other latents": Refused(
        lambda: {"q_mu": np.zeros([3, 1]), "q_sqrt": np.zeros([2, 3, 3])},
        r"\(2, 3, 3\)",
        r"\(1, 3, 3\)",
    ),
    "diagonal q_sqrt": Refused(lambda: {"q_sqrt": np.ones([3, 1])}, r"\(3, 1\)", r"\(3, 3, 3\)"),
    "q_sqrt not triangular": Refused(
        lambda: {"q_sqrt": np.ones([1, 3, 3])}, "above the diagonal", "lower triangular"
    ),
    "float32 kernel": Refused(
        lambda: {"kernel": _kernel_in_single_precision()}, "float32", "float64"
    ),
}
BATCH = {
    "no pair": Refused(lambda: {"data": X}, "ndarray", "pair"),
    "NaN in X": Refused(lambda: {"data": (X * np.nan, LABELS)}, "NaN", "finite"),
    "label 2": Refused(lambda: {"data": (X, LABELS * 2)}, r"\b2\b", "0 or 1"),
    "integer label 2": Refused(lambda: {"data": (X, LABELS.astype(int) * 2)}, r"\b2\b", "0 or 1"),
    "float32 X": Refused(lambda: {"data": (X.astype(np.float32), LABELS)}, "float32", "float64"),
    "another column in X": Refused(
        lambda: {"data": (np.hstack([X, X]), LABELS)}, r"\b2\b", r"\b4\b"
    ),
    "two columns of labels": Refused(
        lambda: {"data": (X, np.hstack([LABELS, LABELS]))}, r"\b2\b", r"\b1\b"
    ),
    "fewer labels": Refused(lambda: {"data": (X, LABELS[:4])}, r"\b7\b", r"\b4\b"),
    "no rows": Refused(lambda: {"data": (X[:0], LABELS[:0])}, r"\(0, 2\)", "one row"),
    "too few latent functions": Refused(
        lambda: {"likelihood": MultiClass(3), "data": (X, LABELS)}, r"\b1\b", r"\b3\b"
    ),
    "negative count": Refused(
        lambda: {"likelihood": Poisson(), "data": (X, -LABELS)}, "-1", "whole numbers"
    ),
}


def _assert_explains(error: Any, refused: Refused) -> None:
    message = str(error.value)
    assert re.search(refused.got, message), message
    assert re.search(refused.expected, message), message
    assert REMEDY.search(message), message


@pytest.mark.parametrize("case", CONSTRUCTION)
@each_model
def test_refused_at_construction(model_class: Any, case: str) -> None:
    with pytest.raises(ValueError) as error:
        _model(model_class, **CONSTRUCTION[case].changes())
    _assert_explains(error, CONSTRUCTION[case])


@pytest.mark.parametrize("case", BATCH)
def test_refused_batch(case: str) -> None:
    changes = BATCH[case].changes()
    data = changes.pop("data")
    model = _model(pep.models.ARPEP, **changes)
    with pytest.raises(ValueError) as error:
        model.pep_log_marginal_likelihood(data)
    _assert_explains(error, BATCH[case])


@each_model
def test_nan_in_a_parameter_is_named(model_class: Any) -> None:
    model = _model(model_class)
    compiled = tf.function(model.pep_log_marginal_likelihood)
    model.q_mu.unconstrained_variable.assign(model.q_mu * np.nan)  # as an optimiser might
    for function in (lambda: model.pep_log_marginal_likelihood((X, LABELS)), model.posterior):
        with pytest.raises(ValueError, match="q: got NaN"):
            function()
    with pytest.raises(tf.errors.InvalidArgumentError, match="got NaN"):
        compiled((tf.constant(X), tf.constant(LABELS)))
    model.q_mu.assign(np.zeros([3, 1]))
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    with pytest.raises(ValueError, match="log marginal likelihood: got NaN"):
        model.pep_log_marginal_likelihood((X, LABELS))


@pytest.mark.parametrize("scale", [1.0, 1.2])
def test_apep_refuses_a_q_as_wide_as_the_prior(scale: float) -> None:
    q_sqrt = np.diag([0.1, scale, 0.3])[None]
    with pytest.raises(ValueError, match=r"q_sqrt: got 1.*expected less than 1.*Leave q_sqrt out"):
        _model(pep.models.APEP, q_sqrt=q_sqrt)


def test_q_of_another_model() -> None:
    """Parameters and tensors are taken as start, too; the number of latents is theirs."""
    start = random_start("RobustMax")
    first = create("ARPEP", "RobustMax", start)
    for model_class in MODELS.values():
        second = _model(
            model_class,
            likelihood=MultiClass(3),
            inducing_variable=InducingPoints(first.inducing_variable.Z),
            q_mu=first.q_mu,
            q_sqrt=tf.convert_to_tensor(first.q_sqrt),
        )
        assert second.num_latent_gps == 3
        assert_close(second.q_mu, first.q_mu)
        assert_close(second.q_sqrt, first.q_sqrt)


def test_reference_refuses_improper_gaussians() -> None:
    from tied_reference import Natural

    with pytest.raises(ValueError, match="positive definite"):
        Natural(to_decimals([0.0]), to_decimals([[-1.0]])).log_normaliser()
