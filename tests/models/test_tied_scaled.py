"""Tied models with the scaled conditional: beside dense NumPy, bounds on both sides, refusals."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
from cases.tied import MODELS
from helpers import (
    Array,
    assert_close,
    finite_difference_gradient,
    regression_problem,
    value_and_gradients,
)

import gpflow_pep as pep

N, M = 11, 4
PROBLEM = regression_problem(3, num_data=N, num_inducing=M)
JITTER = 1e-6
NOISE = 0.2
COUNTS = np.floor(np.exp(PROBLEM.Y))
LABELS = 1.0 * (PROBLEM.Y > 0.4)
NEAR_COPIES = {
    ("APEP", "Poisson"),
    ("APEP", "probit"),
    ("RPAPEP", "Gaussian"),
    ("RPAPEP", "Poisson"),
}
DATA = {"Gaussian": PROBLEM.Y, "Poisson": COUNTS, "probit": LABELS}
LIKELIHOODS: dict[str, Callable[[], gpflow.likelihoods.Likelihood]] = {
    "Gaussian": lambda: gpflow.likelihoods.Gaussian(NOISE),
    "Poisson": gpflow.likelihoods.Poisson,
    "probit": gpflow.likelihoods.Bernoulli,
}
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(100)


def rows_of_prior() -> tuple[Array, Array]:
    """A [M, N] and residual variances, of dense matrices."""
    kernel = PROBLEM.kernel()
    Kuu = kernel(PROBLEM.Z).numpy() + JITTER * np.eye(M)
    A = np.linalg.solve(np.linalg.cholesky(Kuu), kernel(PROBLEM.Z, PROBLEM.X).numpy())
    return A, np.diag(kernel(PROBLEM.X)) - np.sum(A**2, axis=0)


def random_q(seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    root = np.tril(0.2 * rng.standard_normal([M, M]), -1) + np.diag(rng.uniform(0.1, 0.9, M))
    return 0.7 * rng.standard_normal([M, 1]), root[None]


def create(
    name: str, q: tuple[Array, Array], model: Any = "ARPEP", alpha: float = 0.0, **options: Any
) -> Any:
    return MODELS[model](
        PROBLEM.kernel(),
        LIKELIHOODS[name](),
        PROBLEM.Z,
        alpha=alpha,
        q_mu=q[0],
        q_sqrt=q[1],
        **{"num_data": N, "conditional": "scaled", **options},
    )


def expectation(name: str, y: float, m: float, s: float) -> float:
    """E[log p(y | f)] under N(m, s)."""
    if name == "Gaussian":
        return -0.5 * np.log(2 * np.pi * NOISE) - 0.5 * ((y - m) ** 2 + s) / NOISE
    if name == "Poisson":
        return y * m - np.exp(m + 0.5 * s) - scipy.special.gammaln(y + 1.0)
    f = m + np.sqrt(s) * NODES
    sign = 2.0 * y - 1.0
    p = 1e-3 + (1.0 - 2e-3) * scipy.stats.norm.cdf(sign * f)
    return float(np.sum(WEIGHTS * np.log(p)) / np.sqrt(2 * np.pi))


def dense_bound(name: str, q: tuple[Array, Array]) -> float:
    """Each scale by iteration to the end, with the slope by differences."""
    A, d = rows_of_prior()
    m, S = q[0][:, 0], q[1][0] @ q[1][0].T
    value = -0.5 * (np.trace(S) + m @ m - M - np.linalg.slogdet(S)[1])
    for n in range(N):
        mean, s, y = A[:, n] @ m, A[:, n] @ S @ A[:, n], DATA[name][n, 0]
        v, step = 1.0, 1e-5
        for _ in range(100):
            at = s + v * d[n]
            slope = expectation(name, y, mean, at + step) - expectation(name, y, mean, at - step)
            v = 1.0 / (1.0 + max(-slope / step, 0.0) * d[n])
        value += expectation(name, y, mean, s + v * d[n]) + 0.5 * (np.log(v) - v + 1.0)
    return value


@pytest.mark.parametrize(
    "model_name, name",
    [
        # The scale is the same function in all three.
        pytest.param(model, name, marks=[pytest.mark.slow] if (model, name) in NEAR_COPIES else [])
        for model in MODELS
        for name in DATA
    ],
)
@pytest.mark.near_copies("ARPEP-probit")
def test_reference(model_name: str, name: str) -> None:
    data = PROBLEM.X, DATA[name]
    for seed in range(3):
        q = random_q(seed)
        model = create(name, q, model_name)
        value = model.pep_log_marginal_likelihood(data)
        # A few steps of the iteration, in whose error the value is of second order.
        assert_close(value, dense_bound(name, q), rtol=1e-6 if name == "Poisson" else 1e-8)
        svgp = gpflow.models.SVGP(
            PROBLEM.kernel(), LIKELIHOODS[name](), PROBLEM.Z, q_mu=q[0], q_sqrt=q[1], num_data=N
        )
        assert value > svgp.elbo(data) + 0.1
        assert model.conditional == "scaled"
    compiled = tf.function(model.pep_log_marginal_likelihood, autograph=False)
    assert_close(compiled(tuple(map(tf.constant, data))), value, rtol=1e-12)


def test_gaussian_is_a_bound_and_titsias_at_its_optimum() -> None:
    """Titsias (2025): log N(y; 0, A'A + noise I), less half of log(1 + d / noise) of each row."""
    data = PROBLEM.X, PROBLEM.Y
    exact = gpflow.models.GPR(data, PROBLEM.kernel(), noise_variance=NOISE)
    A, d = rows_of_prior()
    covariance = A.T @ A + NOISE * np.eye(N)
    best = scipy.stats.multivariate_normal.logpdf(PROBLEM.Y[:, 0], np.zeros(N), covariance)
    best -= 0.5 * np.sum(np.log1p(d / NOISE))
    assert best < exact.log_marginal_likelihood()
    for seed in range(5):
        assert create("Gaussian", random_q(seed)).pep_log_marginal_likelihood(data) < best
    B = np.eye(M) + A @ A.T / NOISE
    S = np.linalg.inv(B)
    optimum = S @ A @ PROBLEM.Y / NOISE, np.linalg.cholesky(S)[None]
    for model in MODELS:
        value = create("Gaussian", optimum, model).pep_log_marginal_likelihood(data)
        assert_close(value, best, rtol=1e-10)


@pytest.mark.parametrize("name, tolerance", [("Gaussian", 1e-6), ("Poisson", 1e-3)])
@pytest.mark.near_copies
def test_gradients(name: str, tolerance: float) -> None:
    """The scales are constants for differentiation, because the bound is stationary in them."""
    model = create(name, random_q(0))
    data = tf.constant(PROBLEM.X), tf.constant(DATA[name])
    variables = model.trainable_variables
    loss_and_gradients = tf.function(
        lambda: value_and_gradients(lambda: model.training_loss(data), variables), autograph=False
    )
    _, gradients = loss_and_gradients()
    for variable, gradient in zip(variables, gradients):
        expected = finite_difference_gradient(lambda: loss_and_gradients()[0], variable, step=1e-4)
        assert_close(gradient, expected, rtol=tolerance, scale=1.0)


def test_batches_are_unbiased() -> None:
    model = create("Poisson", random_q(0), num_data=10)
    values = [
        model.pep_log_marginal_likelihood((PROBLEM.X[i : i + 2], COUNTS[i : i + 2]))
        for i in range(0, 10, 2)
    ]
    whole = model.pep_log_marginal_likelihood((PROBLEM.X[:10], COUNTS[:10]))
    assert_close(np.mean(values), whole, rtol=1e-12)
    assert np.std(values) > 0.1


def test_coordinates() -> None:
    q = random_q(0)
    L = np.linalg.cholesky(PROBLEM.kernel()(PROBLEM.Z).numpy() + JITTER * np.eye(M))
    plain = create("Poisson", (L @ q[0], L @ q[1]), whiten=False)
    data = PROBLEM.X, COUNTS
    expected = create("Poisson", q).pep_log_marginal_likelihood(data)
    assert_close(plain.pep_log_marginal_likelihood(data), expected)


def test_several_latent_functions() -> None:
    """Separate kernels, shared points: the bound is above SVGP's."""
    kernels = [PROBLEM.kernel(), gpflow.kernels.Matern32(variance=0.7)]
    arguments = (
        gpflow.kernels.SeparateIndependent(kernels),
        gpflow.likelihoods.Gaussian(NOISE),
        gpflow.inducing_variables.SharedIndependentInducingVariables(
            gpflow.inducing_variables.InducingPoints(PROBLEM.Z)
        ),
    )
    data = PROBLEM.X, np.hstack([PROBLEM.Y, COUNTS])
    theirs = gpflow.models.SVGP(*arguments, num_latent_gps=2, num_data=N)
    ours = pep.models.ARPEP(
        *arguments, num_latent_gps=2, num_data=N, alpha=0.0, conditional="scaled"
    )
    _, d = rows_of_prior()
    Kuf, Kuu = kernels[1](PROBLEM.Z, PROBLEM.X).numpy(), kernels[1](PROBLEM.Z).numpy()
    other = 0.7 - np.sum(Kuf * np.linalg.solve(Kuu + JITTER * np.eye(M), Kuf), axis=0)
    ratio = np.concatenate([d, other]) / NOISE
    gain = 0.5 * np.sum(ratio - np.log1p(ratio))
    assert_close(ours.pep_log_marginal_likelihood(data), theirs.elbo(data) + gain, rtol=1e-9)


@pytest.mark.parametrize("model_name", MODELS)
def test_at_power_1_any_scale_drops_out(model_name: str) -> None:
    data = PROBLEM.X, LABELS
    scaled, prior = (
        create("probit", random_q(0), model_name, alpha=1.0, conditional=conditional)
        for conditional in ("scaled", "prior")
    )
    assert prior.conditional == "prior"
    expected = prior.pep_log_marginal_likelihood(data)
    assert_close(scaled.pep_log_marginal_likelihood(data), expected)


def test_powers_between_are_refused() -> None:
    with pytest.raises(ValueError, match=r"alpha: got .*conditional='scaled', expected 0 or 1"):
        create("Gaussian", random_q(0), alpha=0.5)
    model = create("Gaussian", random_q(0))
    model.alpha.assign(0.5)
    with pytest.raises(ValueError, match=r"alpha: got .*conditional='scaled', expected 0 or 1"):
        model.training_loss((PROBLEM.X, PROBLEM.Y))


def test_other_names_and_mixed_outputs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"conditional: got 'tight', expected .*prior.*scaled"):
        create("Gaussian", random_q(0), conditional="tight")
    kernel = gpflow.kernels.LinearCoregionalization([PROBLEM.kernel()], np.ones([2, 1]))
    points = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(PROBLEM.Z)
    )
    with pytest.raises(ValueError, match="LinearCoregionalization, which mixes"):
        pep.models.ARPEP(
            kernel,
            gpflow.likelihoods.Gaussian(),
            points,
            num_data=N,
            alpha=0.0,
            conditional="scaled",
        )
