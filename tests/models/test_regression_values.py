"""PEPRegression's numbers against the dense reference."""

import warnings
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.regression import CASES, UNEVEN_BLOCKS, Case, N
from gpflow.kernels import RBF, ChangePoints, Linear, Matern12, Matern32, Periodic
from helpers import (
    assert_all_close,
    assert_close,
    gradients,
    regression_problem,
    value_and_gradients,
)
from reference import regression as reference
from scipy.stats import norm

import gpflow_pep as pep

EVERYTHING = CASES["everything"]
XNEW, P = EVERYTHING.problem.Xnew, EVERYTHING.num_outputs
CHUNKED_CASES = (
    *("alpha 0", "alpha per row", "everything", "uneven blocks, alpha 0.5", "one block"),
    *("three outputs", "scaled, alpha per row", "scaled, everything"),
)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_reference(case: Case) -> None:
    """What is left out is beside the dense conditional of each row given the others."""
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


def test_predictions_of_targets_and_their_densities(rng: np.random.Generator) -> None:
    model, Ynew = EVERYTHING.model(), rng.standard_normal([len(XNEW), P])
    mean, cov = EVERYTHING.expected_prediction()
    variance = np.tile((np.diag(cov) + EVERYTHING.noise_at(XNEW))[:, None], [1, P])
    assert_all_close(model.predict_y(XNEW), (mean, variance))
    density = np.sum(norm(mean, np.sqrt(variance)).logpdf(Ynew), axis=-1)
    assert_close(model.predict_log_density((XNEW, Ynew)), density)


@pytest.mark.parametrize("full_cov", [True, False])
def test_moments_of_samples(full_cov: bool) -> None:
    tf.random.set_seed(3)
    samples = EVERYTHING.model().predict_f_samples(XNEW, 20_000, full_cov=full_cov)
    mean, cov = EVERYTHING.expected_prediction()
    cov = cov if full_cov else np.diag(np.diag(cov))
    assert samples.shape == (20_000, len(XNEW), P)
    deviation, sd = samples.numpy() - mean, np.sqrt(np.diag(cov))
    # Five standard errors of a mean and of a covariance.
    assert np.all(np.abs(deviation.mean(axis=0)) < 5.0 * sd[:, None] / 20_000**0.5)
    actual = np.einsum("nsp,ntp->pst", deviation, deviation) / 20_000
    assert np.all(np.abs(actual - cov) < 5.0 * np.outer(sd, sd) * (2.0 / 20_000) ** 0.5)


# Chunks that end within the rows, for each case; all sizes for the one that has everything.
@pytest.mark.parametrize("name", CHUNKED_CASES)
def test_chunk_size_changes_nothing(name: str) -> None:
    case = CASES[name]
    arguments = case.reference_arguments()
    for chunk_size in (1, 3, N - 1, N, 1000) if name == "everything" else (3,):
        model = case.model(chunk_size=chunk_size)
        assert_close(model.pep_log_marginal_likelihood(), reference.pep_log_z(*arguments))
        assert_all_close(model.compute_qu(), reference.pep_qu(*arguments))


def test_posteriors_and_svgp_with_the_whitened_q_predict_the_same() -> None:
    model = EVERYTHING.model()
    M = len(EVERYTHING.problem.Z)
    assert model.q_mu.shape == (M, P) and model.q_sqrt.shape == (P, M, M)
    svgp = gpflow.models.SVGP(
        model.kernel,
        model.likelihood,
        model.inducing_variable,
        mean_function=model.mean_function,
        num_latent_gps=P,
        q_mu=model.q_mu,
        q_sqrt=model.q_sqrt,
    )
    assert model.posterior().cache is not None
    cached = [model.posterior(cache) for cache in ("tensor", "variable")]
    methods = [one.predict_f for one in (svgp, *cached)]
    methods += [one.fused_predict_f for one in (*cached, *map(model.posterior, ("nocache", None)))]
    for full_cov in (False, True):
        expected = model.predict_f(XNEW, full_cov=full_cov)
        for method in methods:
            assert_all_close(method(XNEW, full_cov=full_cov), expected)


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
    assert_all_close(gradient, gradients(model.training_loss, model.trainable_variables))
    assert_all_close(predict(Xnew), model.predict_f(Xnew))


def test_xla_refuses_blocks_in_several_chunks() -> None:
    """Blocks of several sizes in one loop have shapes that XLA cannot know, as the class says."""
    model = CASES["everything"].model(chunk_size=3)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(model.training_loss, jit_compile=True)()


PROBLEM = regression_problem(num_data=N)
Z = PROBLEM.Z
FEATURES_AND_KERNELS: dict[str, Any] = {
    "Multiscale": lambda: (
        gpflow.inducing_variables.Multiscale(Z, np.linspace(0.1, 0.9, 10).reshape(5, 2)),
        PROBLEM.kernel(),
    ),
    "sum of kernels": lambda: (Z, Matern32(lengthscales=0.7) + Linear(active_dims=[1])),
    "product on active dimensions": lambda: (
        gpflow.inducing_variables.InducingPoints(Z),
        RBF(active_dims=[0]) * Periodic(RBF(active_dims=[1])),
    ),
    "change points": lambda: (
        Z[:, :1],
        ChangePoints([Matern12(), RBF(lengthscales=0.5)], [0.1], 3.0),
    ),
    "more inducing points than rows": lambda: (
        np.random.default_rng(1).uniform(-2.0, 2.0, [N + 3, 2]),
        Matern12(),
    ),
}


@pytest.mark.near_copies("rows-[cM]*", "blocks by chunks-[cM]*")  # change points, Multiscale
@pytest.mark.parametrize("name", FEATURES_AND_KERNELS)
@pytest.mark.parametrize(
    "blocks, chunk_size",
    [
        pytest.param(None, None, id="rows"),
        pytest.param(UNEVEN_BLOCKS, 4, id="blocks by chunks"),
        pytest.param(None, 4, id="rows by chunks"),
        pytest.param(UNEVEN_BLOCKS, None, id="blocks"),
    ],
)
def test_other_features_and_kernels(name: str, blocks: Any | None, chunk_size: int | None) -> None:
    """Beside the reference of GPflow's own matrices."""
    feature, kernel = FEATURES_AND_KERNELS[name]()
    D = 1 if name == "change points" else 2
    X, Xnew, noise = PROBLEM.X[:, :D], PROBLEM.Xnew[:, :D], PROBLEM.noise_variance
    options = {"alpha": 0.4, "noise_variance": noise, "blocks": blocks, "chunk_size": chunk_size}
    model = pep.models.PEPRegression((X, PROBLEM.Y), kernel, feature, **options)
    points, covariances = model.inducing_variable, gpflow.covariances
    Kuu = covariances.Kuu(points, kernel, jitter=gpflow.config.default_jitter()).numpy()
    Kuf, Kus = (covariances.Kuf(points, kernel, rows).numpy() for rows in (X, Xnew))
    prior = reference.Prior(Kuu, Kuf, kernel(X).numpy())
    factors = reference.make_factors(N, 0.4, blocks)
    arguments = prior, PROBLEM.Y, np.full(N, noise), factors
    assert_close(model.pep_log_marginal_likelihood(), reference.pep_log_z(*arguments))
    assert_all_close(model.compute_qu(), reference.pep_qu(*arguments))
    mean, cov = model.predict_f(Xnew, full_cov=True)
    expected = reference.pep_predict(*arguments, Kus, kernel(Xnew).numpy())
    assert_all_close((mean, cov[0]), expected)


def test_default_arguments() -> None:
    model = pep.models.PEPRegression(PROBLEM.data, PROBLEM.kernel(), Z)
    assert float(model.alpha.numpy()) == 0.5
    assert float(model.likelihood.variance.numpy()) == 1.0
    factors = reference.make_factors(N, 0.5)
    expected = reference.pep_log_z(PROBLEM.prior(), PROBLEM.Y, np.ones(N), factors)
    assert_close(model.pep_log_marginal_likelihood(), expected)


def test_well_conditioned_model_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = CASES["alpha 0.5"].model()
        model.training_loss()
        model.predict_f(CASES["alpha 0.5"].problem.Xnew)
