"""PEPRegression: its numbers beside the dense reference, models that it is or bounds,
gradients.
"""

from collections.abc import Callable
from typing import Any

import gpflow
import helpers
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from cases import regression as cases
from cases.regression import ALPHA_PER_ROW, CASES, UNEVEN_BLOCKS, Case, N
from gpflow import kernels as k
from gpflow.functions import Constant, Linear
from gpflow.likelihoods import Gaussian
from helpers import Array, assert_all_close, assert_close, gradients, regression_problem
from reference import regression as reference
from scipy.stats import norm

import gpflow_pep as pep

EVERYTHING = CASES["everything"]
PROBLEM = regression_problem(num_data=N)
#: Slack for rounding, relative to the size of what is compared.
ROUNDING = 1e-9
ONE_BLOCK = np.zeros(30, dtype=int)
TEN_BLOCKS = np.arange(30) // 3
each_grouping = pytest.mark.parametrize(
    "blocks", [None, UNEVEN_BLOCKS], ids=["rows", "blocks"]
)
by_chunks = pytest.mark.parametrize("chunk_size", [None, 4])
#: Chunks that end within the rows; all sizes for the case that has everything.
CHUNKED = (
    "alpha 0",
    "alpha per row",
    "uneven blocks, alpha 0.5",
    "one block",
    "three outputs",
)
SIZES = {**dict.fromkeys(CHUNKED, (3,)), "everything": (1, 3, N - 1, N, 1000)}


def log_z(model: Any) -> tf.Tensor:
    return model.pep_log_marginal_likelihood()


@pytest.mark.near_copies(
    "alpha 0",
    "alpha 1",
    "alpha per row",
    "uneven blocks, alpha 0.5",
    "blocks of one row",
    "alpha per block",
    "noise scale, alpha per block",
    "three outputs, alpha per block",
    "linear mean",
    "everything",
)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CASES)
def test_reference(name: str) -> None:
    """What is left out is beside the dense conditional of each row given the others."""
    case = CASES[name]
    model = case.model()
    Xnew = case.problem.Xnew
    arguments = case.reference_arguments()
    mean, cov = case.expected_prediction()
    variance = np.tile(np.diag(cov)[:, None], [1, case.num_outputs])
    assert_all_close(model.predict_f(Xnew), (mean, variance))
    cov = np.tile(cov, [case.num_outputs, 1, 1])
    assert_all_close(model.predict_f(Xnew, full_cov=True), (mean, cov))
    variance = variance + case.noise_at(Xnew)[:, None]
    assert_all_close(model.predict_y(Xnew), (mean, variance))
    density = np.sum(norm(mean, np.sqrt(variance)).logpdf(mean + 0.3), axis=-1)
    assert_close(model.predict_log_density((Xnew, mean + 0.3)), density)
    for one in (model, *(case.model(chunk_size=size) for size in SIZES.get(name, ()))):
        assert_close(log_z(one), reference.pep_log_z(*arguments))
        assert_all_close(one.compute_qu(), reference.pep_qu(*arguments))
        if case.blocks is None:
            assert_close(one.loo_log_density(), reference.loo_log_density(*arguments))


def test_svgp_with_the_whitened_q_predicts_the_same() -> None:
    model = EVERYTHING.model()
    problem = EVERYTHING.problem
    P = EVERYTHING.num_outputs
    M = len(problem.Z)
    assert model.q_mu.shape == (M, P) and model.q_sqrt.shape == (P, M, M)
    parts = model.kernel, model.likelihood, model.inducing_variable
    q = {"q_mu": model.q_mu, "q_sqrt": model.q_sqrt, "num_latent_gps": P}
    svgp = gpflow.models.SVGP(*parts, mean_function=model.mean_function, **q)
    for full in (False, True):
        expected = model.predict_f(problem.Xnew, full_cov=full)
        assert_all_close(svgp.predict_f(problem.Xnew, full_cov=full), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, chunk_size",
    [*((name, None) for name in ("everything", *CHUNKED[-2:])), ("alpha per row", 3)],
)
def test_xla_computes_the_same(name: str, chunk_size: int | None) -> None:
    model = CASES[name].model(chunk_size=chunk_size)
    Xnew = CASES[name].problem.Xnew
    by_xla = tf.function(helpers.value_and_gradients, autograph=False, jit_compile=True)
    loss, gradient = by_xla(model.training_loss, model.trainable_variables)
    assert_close(loss, model.training_loss())
    assert_all_close(
        gradient, gradients(model.training_loss, model.trainable_variables)
    )
    predict = tf.function(model.predict_f, jit_compile=True)
    assert_all_close(predict(Xnew), model.predict_f(Xnew))


def test_xla_refuses_blocks_in_several_chunks() -> None:
    """Blocks of several sizes in one loop have shapes that XLA cannot know, as the
    class says.
    """
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(EVERYTHING.model(chunk_size=3).training_loss, jit_compile=True)()


def multiscale(Z: Array) -> gpflow.inducing_variables.Multiscale:
    return gpflow.inducing_variables.Multiscale(
        Z, np.linspace(0.1, 0.9, Z.size).reshape(Z.shape)
    )


MORE = np.random.default_rng(1).uniform(-2.0, 2.0, [N + 3, 2])
FEATURES_AND_KERNELS: dict[str, Callable[[Array], tuple[Any, k.Kernel]]] = {
    "Multiscale": lambda Z: (multiscale(Z), PROBLEM.kernel()),
    "sum of kernels": lambda Z: (
        Z,
        k.Matern32(lengthscales=0.7) + k.Linear(active_dims=[1]),
    ),
    "product": lambda Z: (
        Z,
        k.RBF(active_dims=[0]) * k.Periodic(k.RBF(active_dims=[1])),
    ),
    "change points": lambda Z: (
        Z[:, :1],
        k.ChangePoints([k.Matern12(), k.RBF(1.0, 0.5)], [0.1]),
    ),
    "more inducing points than rows": lambda Z: (MORE, k.Matern12()),
}


# Change points, Multiscale.
@pytest.mark.near_copies("rows-None-M*", "blocks-4-c*")
@pytest.mark.parametrize("name", FEATURES_AND_KERNELS)
@by_chunks
@each_grouping
def test_other_features_and_kernels(
    name: str, blocks: Any | None, chunk_size: int | None
) -> None:
    """Beside the reference of GPflow's own matrices."""
    feature, kernel = FEATURES_AND_KERNELS[name](PROBLEM.Z)
    D = 1 if name == "change points" else 2
    X = PROBLEM.X[:, :D]
    Xnew = PROBLEM.Xnew[:, :D]
    noise = PROBLEM.noise_variance
    options = {
        "alpha": 0.4,
        "noise_variance": noise,
        "blocks": blocks,
        "chunk_size": chunk_size,
    }
    model = pep.PEPRegression((X, PROBLEM.Y), kernel, feature, **options)
    points = model.inducing_variable
    covariances = gpflow.covariances
    Kuu = covariances.Kuu(points, kernel, jitter=gpflow.config.default_jitter()).numpy()
    Kuf, Kus = (covariances.Kuf(points, kernel, rows).numpy() for rows in (X, Xnew))
    prior = reference.Prior(Kuu, Kuf, kernel(X).numpy())
    factors = reference.make_factors(N, 0.4, blocks)
    arguments = prior, PROBLEM.Y, np.full(N, noise), factors
    assert_close(log_z(model), reference.pep_log_z(*arguments))
    assert_all_close(model.compute_qu(), reference.pep_qu(*arguments))
    mean, cov = model.predict_f(Xnew, full_cov=True)
    expected = reference.pep_predict(*arguments, Kus, kernel(Xnew).numpy())
    assert_all_close((mean, cov[0]), expected)


# Where other models coincide with it or bound it.

# The arguments that a script gives to SGPR or GPRFITC, and now to PEPRegression.
SCRIPTS: dict[str, dict[str, Callable[[], Any]]] = {
    "plain": {"noise_variance": lambda: 0.09},
    "three outputs": {"noise_variance": lambda: 0.09, "outputs": lambda: 3},
    "linear mean": {"mean_function": lambda: Linear(cases.SLOPE, cases.OFFSET)},
    "mean and two outputs": {
        "outputs": lambda: 2,
        "mean_function": lambda: Constant([0.4, -0.1]),
    },
    "likelihood": {"likelihood": lambda: Gaussian(0.2)},
    "noise scale": {
        "likelihood": lambda: Gaussian(
            scale=Linear(cases.NOISE_SLOPE, cases.NOISE_OFFSET)
        )
    },
    "Multiscale": {"noise_variance": lambda: 0.09, "feature": lambda: multiscale},
    "default noise": {},
}
LIMITS = {
    "SGPR at 0": (gpflow.models.SGPR, 0.0),
    "GPRFITC at 1": (gpflow.models.GPRFITC, 1.0),
}


def _of_script(model_class: Any, name: str, **options: Any) -> Any:
    script = {**{key: make() for key, make in SCRIPTS[name].items()}, **options}
    problem = regression_problem(num_data=N, num_outputs=script.pop("outputs", 1))
    feature = script.pop("feature", np.copy)(problem.Z)
    return model_class(problem.data, problem.kernel(), feature, **script)


@pytest.mark.near_copies(
    "*-plain", "SGPR at 0-likelihood", "GPRFITC at 1-three outputs"
)
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("limit", LIMITS)
def test_gpflows_models_are_limits(script: str, limit: str) -> None:
    """In value, gradient, q(u), predictions and upper bound."""
    other_class, alpha = LIMITS[limit]
    ours = _of_script(pep.PEPRegression, script, alpha=alpha)
    other = _of_script(other_class, script)
    assert_close(
        ours.maximum_log_likelihood_objective(),
        other.maximum_log_likelihood_objective(),
    )
    named, others = map(helpers.trainable_by_name, (ours, other))
    assert named.keys() == others.keys()
    assert_all_close(
        gradients(ours.training_loss, [named[name] for name in others]),
        gradients(other.training_loss, [*others.values()]),
    )
    for full_cov in (False, True):
        both = (one.predict_f(PROBLEM.Xnew, full_cov) for one in (ours, other))
        assert_all_close(*both)
    assert_all_close(ours.predict_y(PROBLEM.Xnew), other.predict_y(PROBLEM.Xnew))
    if other_class is gpflow.models.SGPR:
        assert_all_close(ours.compute_qu(), other.compute_qu())
        if "outputs" not in SCRIPTS[script]:  # SGPR's is of one
            in_chunks = _of_script(pep.PEPRegression, script, alpha=0.5, chunk_size=4)
            for one in (ours, in_chunks):
                assert_close(one.upper_bound(), other.upper_bound())


def test_upper_bound_of_several_outputs_is_the_sum_of_theirs() -> None:
    """The outputs are independent given the kernel, so their log marginal likelihoods
    add.
    """
    problem = regression_problem(num_data=N, num_outputs=3)
    columns = [problem._replace(Y=problem.Y[:, p : p + 1]) for p in range(3)]
    together, *each = (float(_create(one).upper_bound()) for one in (problem, *columns))
    assert_close(together, sum(each))
    assert together >= _log_exact(problem)


@pytest.mark.near_copies("blocks")
@each_grouping
def test_inducing_points_at_all_the_rows_give_gpr(
    blocks: Any | None,
) -> None:
    gpflow.config.set_default_jitter(1e-13)
    problem = regression_problem(num_data=N, num_outputs=2)
    mean = Constant(0.4)
    options = {"blocks": blocks, "mean_function": mean}
    ours = problem.model(pep.PEPRegression, problem.X, **options)
    exact = problem.model(gpflow.models.GPR, mean_function=mean)
    expected = [exact.predict_f(problem.Xnew, full_cov) for full_cov in (False, True)]
    for alpha in (0.0, 1e-6, 0.3, 0.5, 1.0):
        ours.alpha.assign(np.broadcast_to(alpha, ours.alpha.shape))
        assert_close(log_z(ours), exact.log_marginal_likelihood())
        for full_cov, moments in zip((False, True), expected):
            assert_all_close(ours.predict_f(problem.Xnew, full_cov), moments)


@pytest.mark.near_copies("blocks")
@each_grouping
def test_continuous_in_alpha_at_0(blocks: Any | None) -> None:
    """At alpha = 1e-14 the difference is of the order of alpha itself, and so is its
    gradient's.
    """
    both = [Case(alpha=alpha, blocks=blocks).model() for alpha in (1e-14, 0.0)]
    assert_close(*map(log_z, both), rtol=1e-11)
    of_each = [
        gradients(model.training_loss, model.trainable_variables) for model in both
    ]
    assert_all_close(*of_each, rtol=1e-10)
    for alpha in (1e-15, 1e-12, 1e-9, 1e-6, 1e-4, 1e-2):
        case = Case(alpha=alpha, blocks=blocks)  # no digit is lost on the way
        expected = reference.pep_log_z(*case.reference_arguments())
        assert_close(log_z(case.model()), expected, rtol=1e-11)


# Bounds.


def _random_problem(seed: int) -> helpers.RegressionProblem:
    """Hyperparameters over orders of magnitude; every third one with targets that do
    not fit.
    """
    rng = np.random.default_rng(seed)
    problem = regression_problem(seed, num_data=30)
    order = np.argsort(problem.X[:, 0])
    Y = problem.Y if seed % 3 else 2.0 * rng.standard_t(2.0, size=problem.Y.shape)
    return problem._replace(
        X=problem.X[order],
        Y=Y[order],
        variance=float(np.exp(rng.normal())),
        lengthscales=np.exp(rng.normal(size=2)).tolist(),
        noise_variance=float(np.exp(rng.normal(-2.0, 1.5))),
    )


def _create(problem: helpers.RegressionProblem, **options: Any) -> Any:
    return problem.model(pep.PEPRegression, **{"alpha": 0.0, **options})


def _log_z(problem: helpers.RegressionProblem, **options: Any) -> float:
    return float(log_z(_create(problem, **options)))


def _log_exact(problem: helpers.RegressionProblem) -> float:
    K = problem.covariance(problem.X, problem.X)
    noise = problem.noise_variance
    return reference.exact_log_marginal_likelihood(K, problem.Y, np.full(len(K), noise))


@pytest.mark.parametrize("jitter", [1e-6, 1e-10])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.near_copies("0-*", "1-*")
def test_bounds_in_their_order(seed: int, jitter: float) -> None:
    """Lower bound, exact, upper bound."""
    gpflow.config.set_default_jitter(jitter)
    problem = _random_problem(seed)
    ladder = [
        _log_z(problem),
        _log_exact(problem),
        float(_create(problem).upper_bound()),
    ]
    assert np.all(np.diff(ladder) > -ROUNDING * max(map(abs, ladder))), ladder
    # Strictly so where inducing points do not suffice: the noise is what matters, not
    # rounding.
    assert np.all(np.diff(ladder) > 1e-3), ladder


@pytest.mark.near_copies("blocks")
@each_grouping
def test_single_precision(blocks: Any | None) -> None:
    powers = (0.0, 0.5, 1.0)
    expected = [_log_z(PROBLEM, alpha=alpha, blocks=blocks) for alpha in powers]
    gpflow.config.set_default_float(np.float32)
    single = [getattr(PROBLEM, name).astype(np.float32) for name in "XYZ"]
    for alpha, of_double in zip(powers, expected):
        problem = PROBLEM._replace(**dict(zip("XYZ", single)))
        model = _create(problem, alpha=alpha, blocks=blocks)
        assert log_z(model).dtype == tf.float32
        assert_close(log_z(model), np.float32(of_double), rtol=1e-4)
        for gradient in gradients(model.training_loss, model.trainable_variables):
            assert gradient.dtype == np.float32 and np.all(np.isfinite(gradient))


def test_surrogate_has_its_evidence() -> None:
    case = Case(alpha=0.3)
    model = case.model()
    weights, targets, log_constant = model.surrogate()
    Kuu = case.problem.prior().Kuu
    K = weights[0] @ Kuu @ tf.transpose(weights[0]) + np.eye(len(Kuu))
    evidence = reference.gaussian_log_density(targets.numpy().T, K.numpy())
    assert_close(evidence + log_constant, log_z(model))


def test_log_z_is_between_its_bounds() -> None:
    problem = _random_problem(2)
    model = _create(problem)
    assert model.elbo() <= _log_exact(problem) <= model.upper_bound()


# Gradients, against finite differences.


def _with_priors(**options: Any) -> "pep.models.PEPRegression":
    model = Case().model(**options)
    of = tfp.distributions
    model.kernel.lengthscales.prior = of.Gamma(
        np.array([2.0, 3.0]), np.array([1.0, 2.0])
    )
    model.likelihood.variance.prior = of.LogNormal(np.float64(-1.0), np.float64(0.5))
    model.inducing_variable.Z.prior = of.Normal(np.float64(0.0), np.float64(2.0))
    return model


def _multiscale(**options: Any) -> "pep.models.PEPRegression":
    return PROBLEM.model(pep.PEPRegression, multiscale(PROBLEM.Z), alpha=0.4, **options)


MODELS: dict[str, Callable[..., "pep.models.PEPRegression"]] = {
    "rows": CASES["alpha 0.5"].model,
    "blocks": CASES["uneven blocks, alpha 0.5"].model,
    "noise scale": Case(noise="scale", alpha=0.3).model,
    "noise variance": Case(noise="variance", alpha=ALPHA_PER_ROW).model,
    **{
        name: CASES[name].model
        for name in ("alpha per row", "alpha per block", "constant mean", "everything")
    },
    "Multiscale": _multiscale,
    "Multiscale, blocks": lambda **options: _multiscale(
        blocks=UNEVEN_BLOCKS, **options
    ),
    "priors": _with_priors,
}
#: Powers that one compiled function serves, by assigning them.
POWERS = {"rows": (0.0, 0.5, 1.0), "blocks": (0.0, 0.5, 1.0)}


@pytest.mark.near_copies("everything")
@pytest.mark.parametrize("name", MODELS)
def test_loss_gradient_is_the_finite_difference(name: str) -> None:
    """By chunks in a graph, and eager without."""
    model = MODELS[name]()
    in_chunks = MODELS[name](chunk_size=4)
    loss = tf.function(in_chunks.training_loss)
    variables = in_chunks.trainable_variables
    assert len(variables) >= 4
    for power in POWERS.get(name, (None,)):
        for one in (model, in_chunks) if power is not None else ():
            one.alpha.assign(power)
        eager = gradients(model.training_loss, model.trainable_variables)
        sizes = [float(np.max(np.abs(part))) for part in eager]
        assert min(sizes) > 1e-3, "the loss hardly depends on one of them"
        # A variable with a small gradient is differenced out of a loss that is large.
        tolerance = {"rtol": 1e-6, "scale": 0.01 * max(sizes)}
        graph = gradients(loss, variables)
        helpers.assert_gradients(loss, variables, eager, graph, **tolerance)
        assert_all_close(graph, eager, rtol=1e-9)
    assert loss.experimental_get_tracing_count() == 1


def test_loss_gradient_is_the_same_for_every_chunk_size() -> None:
    whole, *others = (
        gradients(model.training_loss, model.trainable_variables)
        for model in (
            EVERYTHING.model(chunk_size=size) for size in (N, None, 1, N - 1, 1000)
        )
    )
    for gradient in others:
        assert_all_close(gradient, whole, rtol=1e-9)


@by_chunks
def test_gradient_scales_with_what_comes_back(chunk_size: int | None) -> None:
    """Of log Z within something else it is the chain rule's; of some variables, theirs
    alone.
    """
    model = Case(alpha=0.3).model(chunk_size=chunk_size)
    variables = model.trainable_variables
    value = float(log_z(model))
    plain = gradients(lambda: log_z(model), variables)
    assert value < 0.0

    def composed() -> tf.Tensor:
        inner = log_z(model)
        return -2.5 * inner + tf.math.log(-inner) + model.kernel.variance

    variance = model.kernel.variance.unconstrained_variable
    own_term = gradients(
        lambda: tf.convert_to_tensor(model.kernel.variance), [variance]
    )[0]
    for variable, actual, gradient in zip(
        variables, gradients(composed, variables), plain
    ):
        expected = (-2.5 + 1.0 / value) * gradient
        assert_close(
            actual, expected + (own_term if variable is variance else 0.0), rtol=1e-9
        )
    gpflow.set_trainable([model.inducing_variable, model.kernel.variance], False)
    rest = {id(variable) for variable in model.trainable_variables}
    expected = [
        part for variable, part in zip(variables, plain) if id(variable) in rest
    ]
    assert len(expected) == len(variables) - 2
    actual = gradients(lambda: log_z(model), model.trainable_variables)
    assert_all_close(actual, expected, rtol=1e-10)


@pytest.mark.near_copies("0.0-4")
@pytest.mark.parametrize(
    "alpha, chunk_size",
    [(0.0, 4), (0.5, None), pytest.param(1.0, 4, marks=pytest.mark.slow)],
)
def test_prediction_gradient_is_the_finite_difference(
    alpha: float, chunk_size: int | None
) -> None:
    model = Case(alpha=alpha, mean="linear").model(chunk_size=chunk_size)
    Xnew = tf.Variable(Case().problem.Xnew)

    def some_of_the_prediction() -> tf.Tensor:
        mean, variance = model.predict_f(Xnew)
        return tf.reduce_sum(tf.sin(mean)) + tf.reduce_sum(tf.math.log(variance))

    variables = (Xnew, *model.trainable_variables)
    actual = gradients(some_of_the_prediction, variables)
    tolerance = {
        "rtol": 1e-6,
        "scale": 0.01 * max(float(np.max(np.abs(part))) for part in actual),
    }
    helpers.assert_gradients(
        tf.function(some_of_the_prediction), variables, actual, **tolerance
    )
