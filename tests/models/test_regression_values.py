"""PEPRegression's numbers against the dense reference."""

import warnings
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.regression import CASES, UNEVEN_BLOCKS, Case, N
from gpflow.posteriors import PrecomputeCacheType
from helpers import (
    GOLDEN_LOG_Z,
    GOLDEN_LOG_Z_BLOCKS,
    GOLDEN_MEAN,
    GOLDEN_VARIANCE,
    Array,
    RegressionProblem,
    assert_all_close,
    assert_close,
    golden_problem,
    gradients,
    regression_problem,
    value_and_gradients,
)
from reference import regression as reference
from scipy.stats import norm

import gpflow_pep as pep

slow = pytest.mark.slow
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())

SOME_CASES = {name: CASES[name] for name in ("alpha 0", "alpha per row", "everything")}
CHUNKED_CASES = (
    *SOME_CASES,
    "uneven blocks, alpha 0.5",
    "one block",
    "three outputs",
    "scaled, alpha per row",
    "scaled, everything",
)
some_cases = pytest.mark.parametrize("case", SOME_CASES.values(), ids=SOME_CASES.keys())


@each_case
def test_reference(case: Case) -> None:
    """Log Z, q(u), predictions and, beside the dense conditional of each row given the others, what
    was left out.
    """
    model, Xnew, arguments = case.model(), case.problem.Xnew, case.reference_arguments()
    assert_close(model.pep_log_marginal_likelihood(), reference.pep_log_z(*arguments))
    assert_all_close(model.compute_qu(), reference.pep_qu(*arguments))
    mean, cov = case.expected_prediction()
    variance = np.tile(np.diag(cov)[:, None], [1, case.num_outputs])
    assert_all_close(model.predict_f(Xnew), (mean, variance))
    cov = np.tile(cov, [case.num_outputs, 1, 1])
    assert_all_close(model.predict_f(Xnew, full_cov=True), (mean, cov))
    if case.blocks is None:
        expected = reference.loo_log_density(*arguments)
        for one in (model, case.model(chunk_size=4)):
            assert_close(one.loo_log_density(), expected)


@some_cases
def test_predict_y_and_log_density(case: Case, rng: np.random.Generator) -> None:
    model, Xnew = case.model(), case.problem.Xnew
    Ynew = rng.standard_normal([len(Xnew), case.num_outputs])
    expected_mean, expected_cov = case.expected_prediction()
    expected_variance = np.tile(
        (np.diag(expected_cov) + case.noise_at(Xnew))[:, None], [1, case.num_outputs]
    )
    mean, variance = model.predict_y(Xnew)
    assert_close(mean, expected_mean)
    assert_close(variance, expected_variance)
    assert_close(
        model.predict_log_density((Xnew, Ynew)),
        np.sum(norm(expected_mean, np.sqrt(expected_variance)).logpdf(Ynew), axis=-1),
    )


@some_cases
@pytest.mark.parametrize("full_cov", [True, False])
def test_moments_of_predict_f_samples(case: Case, full_cov: bool) -> None:
    tf.random.set_seed(3)
    S, P, num_samples = len(case.problem.Xnew), case.num_outputs, 20_000
    samples = case.model().predict_f_samples(case.problem.Xnew, num_samples, full_cov=full_cov)
    expected_mean, expected_cov = case.expected_prediction()
    if not full_cov:
        expected_cov = np.diag(np.diag(expected_cov))
    assert samples.shape == (num_samples, S, P)
    deviation = samples.numpy() - expected_mean
    sd = np.sqrt(np.diag(expected_cov))
    # Five standard errors of a mean and of a covariance.
    assert np.all(np.abs(deviation.mean(axis=0)) < 5.0 * sd[:, None] / num_samples**0.5)
    covariance = np.einsum("nsp,ntp->pst", deviation, deviation) / num_samples
    assert np.all(
        np.abs(covariance - expected_cov) < 5.0 * np.outer(sd, sd) * (2.0 / num_samples) ** 0.5
    )


# Chunks that end within the rows, for each case; all sizes for the one that has everything.
@pytest.mark.parametrize("name", CHUNKED_CASES)
def test_chunk_size_changes_nothing(name: str) -> None:
    case = CASES[name]
    arguments = case.reference_arguments()
    for chunk_size in (1, 3, N - 1, N, 1000) if name == "everything" else (3,):
        model = case.model(chunk_size=chunk_size)
        assert_close(model.pep_log_marginal_likelihood(), reference.pep_log_z(*arguments))
        assert_all_close(model.compute_qu(), reference.pep_qu(*arguments))


def _golden_model(alpha: Any, *, per_row: bool = False) -> "pep.models.PEPRegression":
    problem, mean, noise_of_row, blocks, _ = golden_problem()
    # The rows' inputs -1 + n/4 make 0.02 + 0.01 n linear in them: 0.06 + 0.04 x.
    noise = gpflow.functions.Linear(np.array([[0.04], [0.0]]), np.array([0.06]))
    assert_close(noise(problem.X)[:, 0], noise_of_row, rtol=1e-14)
    return pep.models.PEPRegression(
        problem.data,
        problem.kernel(),
        problem.Z,
        alpha=alpha,
        blocks=blocks if per_row else None,
        likelihood=gpflow.likelihoods.Gaussian(noise if per_row else problem.noise_variance),
        mean_function=gpflow.functions.Constant(mean),
    )


@pytest.fixture
def tiny_jitter() -> None:
    gpflow.config.set_default_jitter(1e-14)


@pytest.mark.usefixtures("tiny_jitter")
class TestGolden:
    @pytest.mark.parametrize("alpha, expected", GOLDEN_LOG_Z.items())
    def test_log_z(self, alpha: float, expected: float) -> None:
        log_z = float(_golden_model(alpha).pep_log_marginal_likelihood())
        assert log_z == pytest.approx(expected, rel=0.0, abs=1e-9)

    def test_log_z_of_blocks(self) -> None:
        alpha = golden_problem().alpha_of_block
        log_z = float(_golden_model(alpha, per_row=True).pep_log_marginal_likelihood())
        assert log_z == pytest.approx(GOLDEN_LOG_Z_BLOCKS, rel=0.0, abs=1e-9)

    def test_predictions(self) -> None:
        mean, variance = _golden_model(0.5).predict_f(golden_problem().problem.Xnew)
        assert float(mean[0, 0]) == pytest.approx(GOLDEN_MEAN, rel=0.0, abs=1e-9)
        assert float(variance[1, 0]) == pytest.approx(GOLDEN_VARIANCE, rel=0.0, abs=1e-9)


@some_cases
class TestPosterior:
    def test_caches(self, case: Case) -> None:
        """GPflow's names of them, its enumeration, and its default."""
        model, Xnew = case.model(), case.problem.Xnew
        expected = {full: model.predict_f(Xnew, full_cov=full) for full in (False, True)}
        for cache in ("tensor", PrecomputeCacheType.VARIABLE, None):
            posterior = model.posterior(cache)
            methods = [posterior.fused_predict_f] + [posterior.predict_f] * (cache is not None)
            for full_cov, moments in expected.items():
                for method in methods:
                    assert_all_close(method(Xnew, full_cov=full_cov), moments)
        for cache in (PrecomputeCacheType.NOCACHE, "nocache", "variable", "tensor"):
            assert isinstance(model.posterior(cache), gpflow.posteriors.AbstractPosterior)
        assert model.posterior().cache is not None

    def test_new_posterior_follows_new_parameters(self, case: Case) -> None:
        model, Xnew = case.model(), case.problem.Xnew
        before, _ = model.posterior().predict_f(Xnew)
        model.kernel.lengthscales.assign([0.5, 0.6])
        after, _ = model.posterior().predict_f(Xnew)
        assert_close(after, model.predict_f(Xnew)[0])
        assert np.max(np.abs(after - before)) > 1e-3

    def test_batched_inputs(self, case: Case) -> None:
        """By the fused prediction: GPflow's cached one takes no leading dimensions."""
        model, Xnew = case.model(), case.problem.Xnew
        batched = np.stack([Xnew, Xnew[::-1]])
        for actual, plain in zip(model.predict_f(batched), model.predict_f(Xnew)):
            assert_close(actual, np.stack([plain, plain[::-1]]))


@some_cases
def test_svgp_with_the_whitened_q_predicts_the_same(case: Case) -> None:
    model, Xnew = case.model(), case.problem.Xnew
    L, M = case.num_outputs, len(case.problem.Z)
    assert model.q_mu.shape == (M, L)
    assert model.q_sqrt.shape == (L, M, M)
    svgp = gpflow.models.SVGP(
        model.kernel,
        model.likelihood,
        model.inducing_variable,
        mean_function=model.mean_function,
        num_latent_gps=L,
        q_mu=model.q_mu,
        q_sqrt=model.q_sqrt,
        whiten=True,
    )
    for full_cov in (False, True):
        assert_all_close(
            svgp.predict_f(Xnew, full_cov=full_cov), model.predict_f(Xnew, full_cov=full_cov)
        )


@pytest.mark.parametrize(
    "name, chunk_size, jit_compile",
    [
        ("everything", None, False),
        ("everything", None, True),
        ("alpha per row", 3, False),
        ("alpha per row", 3, True),
        ("alpha per row", None, True),
        ("scaled, everything", None, True),
    ],
)
@pytest.mark.near_copies
def test_compiled(name: str, chunk_size: int | None, jit_compile: bool) -> None:
    case = CASES[name]
    model, Xnew = case.model(chunk_size=chunk_size), case.problem.Xnew
    compiled = tf.function(
        lambda: value_and_gradients(model.training_loss, model.trainable_variables),
        autograph=False,
        jit_compile=jit_compile,
    )
    predict = tf.function(model.predict_f, jit_compile=jit_compile)
    loss, gradient = compiled()
    assert_close(loss, model.training_loss())
    for actual, expected in zip(
        gradient, gradients(model.training_loss, model.trainable_variables)
    ):
        assert_close(tf.convert_to_tensor(actual), expected)
    assert_all_close(predict(Xnew), model.predict_f(Xnew))


def test_xla_refuses_blocks_in_several_chunks() -> None:
    """Blocks of several sizes in one loop have shapes that XLA cannot know, as the class says."""
    model = CASES["everything"].model(chunk_size=3)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(model.training_loss, jit_compile=True)()


def test_compiled_loss_is_traced_once_and_follows_assignments() -> None:
    model = CASES["alpha 0.5"].model()
    traces = []

    @tf.function
    def log_z() -> tf.Tensor:
        traces.append(None)
        return model.pep_log_marginal_likelihood()

    for alpha in (0.5, 0.0, 0.3, 1.0):
        model.alpha.assign(alpha)
        expected = reference.pep_log_z(*Case(alpha=alpha).reference_arguments())
        assert_close(log_z(), expected)
        assert_close(model.pep_log_marginal_likelihood(), expected)
    assert len(traces) == 1


def _gpflow_prior(model: "pep.models.PEPRegression", X: Array) -> reference.Prior:
    """For features and kernels that the reference does not know: GPflow's own matrices."""
    Z, kernel = model.inducing_variable, model.kernel
    return reference.Prior(
        gpflow.covariances.Kuu(Z, kernel, jitter=gpflow.config.default_jitter()).numpy(),
        gpflow.covariances.Kuf(Z, kernel, X).numpy(),
        kernel(X).numpy(),
    )


def _multiscale(problem: RegressionProblem) -> gpflow.inducing_variables.Multiscale:
    return gpflow.inducing_variables.Multiscale(problem.Z, np.linspace(0.1, 0.9, 10).reshape(5, 2))


FEATURES_AND_KERNELS = {
    "Multiscale": (_multiscale, RegressionProblem.kernel),
    "sum of kernels": (
        lambda problem: problem.Z,
        lambda problem: (
            gpflow.kernels.Matern32(lengthscales=0.7) + gpflow.kernels.Linear(active_dims=[1])
        ),
    ),
    "product on active dimensions": (
        lambda problem: gpflow.inducing_variables.InducingPoints(problem.Z),
        lambda problem: (
            gpflow.kernels.RBF(active_dims=[0])
            * gpflow.kernels.Periodic(gpflow.kernels.RBF(active_dims=[1]))
        ),
    ),
    "change points": (
        lambda problem: problem.Z[:, :1],
        lambda problem: gpflow.kernels.ChangePoints(
            [gpflow.kernels.Matern12(), gpflow.kernels.RBF(lengthscales=0.5)], [0.1], 3.0
        ),
    ),
    "more inducing points than rows": (
        lambda problem: np.random.default_rng(1).uniform(-2.0, 2.0, [N + 3, 2]),
        lambda problem: gpflow.kernels.Matern12(),
    ),
}


@pytest.mark.near_copies("*change points*", "*Multiscale*")
@pytest.mark.parametrize(
    "make_feature, make_kernel", FEATURES_AND_KERNELS.values(), ids=FEATURES_AND_KERNELS.keys()
)
@pytest.mark.parametrize(
    "blocks, chunk_size",
    [
        pytest.param(None, None, id="rows"),
        pytest.param(UNEVEN_BLOCKS, 4, id="blocks by chunks"),
        pytest.param(None, 4, marks=slow, id="rows by chunks"),
        pytest.param(UNEVEN_BLOCKS, None, marks=slow, id="blocks"),
    ],
)
def test_other_features_and_kernels(
    make_feature: Callable[[RegressionProblem], Any],
    make_kernel: Callable[[RegressionProblem], gpflow.kernels.Kernel],
    blocks: Any | None,
    chunk_size: int | None,
) -> None:
    problem = regression_problem(num_data=N)
    feature, kernel = make_feature(problem), make_kernel(problem)
    if isinstance(feature, np.ndarray):
        problem = problem._replace(
            X=problem.X[:, : feature.shape[1]], Xnew=problem.Xnew[:, : feature.shape[1]]
        )
    model = pep.models.PEPRegression(
        problem.data,
        kernel,
        feature,
        alpha=0.4,
        noise_variance=problem.noise_variance,
        blocks=blocks,
        chunk_size=chunk_size,
    )
    prior = _gpflow_prior(model, problem.X)
    arguments = (
        prior,
        problem.Y,
        np.full(N, problem.noise_variance),
        reference.make_factors(N, 0.4, blocks),
    )
    assert_close(model.pep_log_marginal_likelihood(), reference.pep_log_z(*arguments))
    assert_all_close(model.compute_qu(), reference.pep_qu(*arguments))
    expected_mean, expected_cov = reference.pep_predict(
        *arguments,
        gpflow.covariances.Kuf(model.inducing_variable, kernel, problem.Xnew).numpy(),
        kernel(problem.Xnew).numpy(),
    )
    mean, cov = model.predict_f(problem.Xnew, full_cov=True)
    assert_close(mean, expected_mean)
    assert_close(cov[0], expected_cov)


def test_default_arguments() -> None:
    problem = regression_problem(num_data=N)
    model = pep.models.PEPRegression(problem.data, problem.kernel(), problem.Z)
    assert float(model.alpha.numpy()) == 0.5
    assert float(model.likelihood.variance.numpy()) == 1.0
    assert_close(
        model.pep_log_marginal_likelihood(),
        reference.pep_log_z(problem.prior(), problem.Y, np.ones(N), reference.make_factors(N, 0.5)),
    )


def test_well_conditioned_model_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = CASES["alpha 0.5"].model()
        model.training_loss()
        model.predict_f(CASES["alpha 0.5"].problem.Xnew)
