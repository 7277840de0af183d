"""PEP with a scaled conditional at alpha = 0: against the reference, and what it bounds."""

import itertools
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.pep import (
    CASES,
    TIGHT,
    N,
    plain_probit_link,
    poisson_log_density,
    probit_log_density,
)
from helpers import (
    Array,
    assert_all_close,
    assert_close,
    finite_difference_gradient,
    gradients,
    regression_problem,
    trainable_by_name,
    value_and_gradients,
)
from reference import sites as pep_reference

import gpflow_pep as pep

ENDS = np.where(np.arange(N) % 2, 0.0, 1.0)


def scaled_model(name: str, alpha: Any = 0.0, **options: Any) -> "pep.models.PEP":
    return CASES[name].model(alpha=alpha, conditional="scaled", **options)


def reference_log_z(name: str, alpha: Array) -> tuple[pep_reference.Problem, pep_reference.Sites]:
    problem = CASES[name].reference_problem(alpha)._replace(conditional="scaled")
    return problem, pep_reference.fixed_point(problem)


@pytest.mark.parametrize(
    "name, alpha",
    [
        *((name, ENDS) for name in ("probit", "RobustMax")),
        *(
            (name, 0.0 * ENDS)
            for name in ("probit", "Poisson", "RobustMax", "Student-t", "Ordinal")
        ),
    ],
)
@pytest.mark.near_copies
def test_the_fixed_point_is_the_reference(name: str, alpha: Array) -> None:
    problem, sites = reference_log_z(name, alpha)
    model = scaled_model(name, alpha)
    assert_close(
        tf.function(model.pep_log_marginal_likelihood)(), pep_reference.log_z(problem, sites)
    )
    assert model.last_inference.converged
    moments = [one.moments() for one in pep_reference.posterior(problem, sites)]
    mean, covariance = model.compute_qu()
    assert_close(mean, np.stack([mean for mean, _ in moments], axis=-1))
    assert_close(covariance, [covariance for _, covariance in moments])
    assert_close(model.loo_log_density(), pep_reference.leave_one_out(problem, sites))
    in_chunks = scaled_model(name, alpha, chunk_size=4)
    assert_close(in_chunks.pep_log_marginal_likelihood(), model.pep_log_marginal_likelihood())


@pytest.mark.parametrize("name", ["probit", "Gaussian", "Poisson", "RobustMax", "Student-t"])
@pytest.mark.near_copies
def test_gradient_is_the_finite_difference_of_converged_energies(name: str) -> None:
    model = scaled_model(name, np.where(np.arange(N) < 2, 1.0, 0.0))
    variables = trainable_by_name(model)
    loss_and_gradients = tf.function(
        lambda: value_and_gradients(model.training_loss, list(variables.values()))
    )
    _, actual = loss_and_gradients()
    largest = max(float(np.max(np.abs(gradient))) for gradient in actual)
    for gradient, (path, variable) in zip(actual, variables.items()):
        expected = finite_difference_gradient(lambda: loss_and_gradients()[0], variable)
        assert np.max(np.abs(expected)) > 1e-3, f"the loss hardly depends on {path}"
        assert_close(gradient, expected, rtol=1e-6, scale=0.01 * largest)


@pytest.mark.parametrize("alpha", [0.0, 1.0, "both"])
def test_gaussian_likelihood_is_regression(alpha: Any) -> None:
    case, power = CASES["Gaussian"], ENDS if alpha == "both" else alpha
    model = scaled_model("Gaussian", power)
    regression = case.regression(alpha=power, conditional="scaled")
    assert_close(model.pep_log_marginal_likelihood(), regression.pep_log_marginal_likelihood())
    assert_all_close(
        gradients(model.training_loss, list(trainable_by_name(model).values())),
        gradients(regression.training_loss, list(trainable_by_name(regression).values())),
        scale=1.0,
    )
    assert_all_close(
        model.predict_f(case.problem.Xnew, full_cov=True),
        regression.predict_f(case.problem.Xnew, full_cov=True),
    )


def test_leave_one_out_is_regression_without_the_row() -> None:
    case = CASES["Gaussian"]
    rest = case.rows(np.arange(N) != 3)
    refitted = case.regression(data=rest, alpha=0.0, conditional="scaled")
    actual = scaled_model("Gaussian").loo_log_density()[3]
    assert_close(actual, refitted.predict_log_density(case.rows([3]))[0])


@pytest.mark.parametrize("name", ["probit", "RobustMax"])
@pytest.mark.near_copies
def test_alpha_1_does_not_depend_on_the_conditional(name: str) -> None:
    models = [CASES[name].model(alpha=1.0, conditional=c) for c in ("scaled", "prior")]
    one, other = (model.pep_log_marginal_likelihood() for model in models)
    assert_close(one, other, rtol=1e-12)


# Bounds, for so few rows that the log evidence is a sum over a grid.

EVIDENCE = {
    "probit": (gpflow.likelihoods.Bernoulli, probit_log_density, [1.0, 0.0, 1.0]),
    "plain probit": (
        lambda: gpflow.likelihoods.Bernoulli(invlink=plain_probit_link),
        lambda f, y: probit_log_density(f, y, 0.0),
        [1.0, 0.0, 1.0],
    ),
    "Poisson": (gpflow.likelihoods.Poisson, poisson_log_density, [0.0, 3.0, 1.0]),
}


def _log_evidence(name: str, K: Array, targets: list[float]) -> float:
    """By Gauss and Hermite's rule in as many dimensions as there are rows."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    log_weights = np.log(weights / np.sum(weights))
    white = np.array(list(itertools.product(nodes, repeat=len(K))))
    total = sum(np.meshgrid(*[log_weights] * len(K), indexing="ij")).ravel()
    f = white @ np.linalg.cholesky(K).T
    total = total + sum(EVIDENCE[name][1](f[:, n], y) for n, y in enumerate(targets))
    return float(np.logaddexp.reduce(total))


@pytest.mark.parametrize(
    "name, jitter",
    [("probit", 1e-6), ("Poisson", 1e-10), ("plain probit", 1e-6), ("probit", 1e-10)],
)
@pytest.mark.slow
def test_between_svgp_and_the_log_evidence(name: str, jitter: float) -> None:
    gpflow.config.set_default_jitter(jitter)
    likelihood, _, targets = EVIDENCE[name]
    X = np.array([[-0.6], [0.1], [0.9]])
    for variance, lengthscale in ((0.5, 0.4), (1.5, 0.7)):
        kernel = gpflow.kernels.SquaredExponential(variance=variance, lengthscales=lengthscale)
        svgp, scaled = (
            pep.models.PEP(
                (X, np.array(targets)[:, None]),
                kernel,
                likelihood(),
                X[:1] + 0.2,
                alpha=0.0,
                conditional=conditional,
                tolerance=TIGHT,
            )
            for conditional in ("prior", "scaled")
        )
        exact = _log_evidence(name, kernel(X).numpy() + 1e-12 * np.eye(3), targets)
        lower, value, proved = (
            float(log_z())
            for log_z in (
                svgp.pep_log_marginal_likelihood,
                scaled.pep_log_marginal_likelihood,
                scaled.certified_bound,
            )
        )
        assert lower + 1e-4 < proved <= value + 1e-12
        assert value < exact


@pytest.mark.parametrize("name", ["probit", "Poisson", "Gaussian"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.near_copies
def test_never_below_svgp(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = regression_problem(seed, num_data=20)._replace(
        variance=float(np.exp(rng.normal())), lengthscales=np.exp(rng.normal(size=2)).tolist()
    )
    case = CASES[name]
    svgp, scaled = (
        pep.models.PEP(
            (problem.X, case.targets(problem.Y)),
            problem.kernel(),
            case.likelihood(),
            problem.Z,
            alpha=0.0,
            conditional=conditional,
        )
        for conditional in ("prior", "scaled")
    )
    gain = scaled.pep_log_marginal_likelihood() - svgp.pep_log_marginal_likelihood()
    assert float(gain) > 1e-4


def _shortfalls(model: "pep.models.PEP", log_density: Any) -> Array:
    """The definition, by a fine grid of S and a rule of many nodes; one latent function."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    weights = weights / np.sum(weights)
    W = np.linalg.inv(np.linalg.cholesky(CASES["probit"].problem.prior().Kuu))
    problem = CASES["probit"].problem
    A = W @ problem.prior().Kuf
    d = np.diag(problem.prior().Kff) - np.sum(A**2, axis=0)
    nu, tau = model.sites.nu.numpy()[:, 0], model.sites.tau.numpy()[:, 0]
    V = np.linalg.inv(np.eye(len(A)) + (A * tau) @ A.T)
    m = A.T @ V @ A @ nu + float(model.mean_function.c.numpy()[0])
    s = np.einsum("mn,mk,kn->n", A, V, A)
    Y = model.data[1].numpy()[:, 0]

    def g(part: float, fraction: float) -> Array:
        precision = part * np.maximum(tau, 0.0)
        S = fraction * d / (1.0 + precision * d)
        f = m[:, None] + np.sqrt(s + S)[:, None] * nodes
        phi = np.array([weights @ log_density(f[n], Y[n]) for n in range(N)])
        return phi + 0.5 * precision * S - 0.5 * np.log(1.0 + precision * d)

    fine = np.linspace(0.0, 1.0, 201)
    proved = [np.min([g(k, x) for x in fine], axis=0) for k in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return g(1.0, 1.0) - np.max(proved, axis=0)


@pytest.mark.parametrize(
    "name, log_density", [("probit", probit_log_density), ("Poisson", poisson_log_density)]
)
@pytest.mark.slow
def test_certificate_is_the_definition(name: str, log_density: Any) -> None:
    model = scaled_model(name)
    rows = model.certified_rows().numpy()
    expected = _shortfalls(model, log_density)
    assert np.array_equal(rows, expected < 1e-7)
    # A grid of 17 misses a little of what one of 201 finds.
    lacking = float(model.pep_log_marginal_likelihood() - model.certified_bound())
    assert lacking == pytest.approx(np.sum(expected), rel=0.05, abs=1e-9)
    in_chunks = scaled_model(name, chunk_size=3)
    assert np.array_equal(tf.function(in_chunks.certified_rows)(), rows)


@pytest.mark.slow
def test_which_rows_are_certified() -> None:
    assert np.all(scaled_model("Gaussian").certified_rows())
    # Counts above 0 have a concave expectation; far from it, a tangent is above.
    assert not np.all(scaled_model("Poisson").certified_rows())
    # The prior's conditional needs no certificate.
    plain = CASES["Poisson"].model(alpha=0.0)
    assert np.all(plain.certified_rows())
    assert_close(plain.certified_bound(), plain.pep_log_marginal_likelihood(), rtol=1e-12)


@pytest.mark.slow
def test_certificate_of_several_latent_functions() -> None:
    model = scaled_model("RobustMax")
    rows = model.certified_rows().numpy()
    assert rows.shape == (N,) and rows.dtype == bool
    assert float(model.certified_bound()) <= float(model.pep_log_marginal_likelihood())


# Powers that are refused.


def test_powers_between_0_and_1_are_refused() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1.*expected 0 or 1.*[Aa]ssign"):
        scaled_model("probit", 0.5)
    model = scaled_model("probit", ENDS)
    model.alpha.assign(np.linspace(0.0, 1.0, N))
    for method in (model.pep_log_marginal_likelihood, model.natural_of_v, model.update_sites):
        with pytest.raises(ValueError, match="between 0 and 1"):
            method()
    with pytest.raises(tf.errors.InvalidArgumentError, match="between 0 and 1"):
        tf.function(model.pep_log_marginal_likelihood)()


@pytest.mark.parametrize("what", ["certified_rows", "certified_bound"])
def test_certificate_is_refused_where_log_z_is_no_bound(what: str) -> None:
    with pytest.raises(ValueError, match=f"{what}: got .*expected 0"):
        getattr(scaled_model("probit", ENDS), what)()


# Other ways to the sites.


@pytest.mark.slow
def test_sequential_updates_reach_the_same_sites() -> None:
    model = scaled_model("probit")
    expected = model.pep_log_marginal_likelihood()
    nu = model.sites.nu.numpy()
    info = model.update_sites(fresh=True, sequential=True)
    assert info.converged
    assert_close(model.sites.nu, nu, rtol=1e-8)
    assert_close(model.pep_log_marginal_likelihood(), expected, rtol=1e-10)


def test_minibatches_of_all_rows_are_the_whole() -> None:
    model = scaled_model("probit")
    expected = model.training_loss()
    loss = model.minibatch_training_loss_closure(N, seed=0, compile=False)
    assert_close(loss(), expected, rtol=1e-8)


@pytest.mark.slow
def test_several_latent_functions_from_no_sites() -> None:
    """By easier problems first, whose powers are not 0."""
    model = scaled_model("RobustMax", fresh_sites=True)
    again = scaled_model("RobustMax")
    assert_close(
        model.pep_log_marginal_likelihood(), again.pep_log_marginal_likelihood(), rtol=1e-9
    )


@pytest.mark.parametrize("name", ["probit", "RobustMax"])
@pytest.mark.near_copies
def test_single_precision(name: str) -> None:
    case = CASES[name]
    expected = scaled_model(name).pep_log_marginal_likelihood().numpy()
    gpflow.config.set_default_float(np.float32)
    problem = case.problem
    mean = gpflow.functions.Constant(case.mean_function().c.numpy().astype(np.float32))
    model = pep.models.PEP(
        (problem.X.astype(np.float32), case.Y.astype(np.float32)),
        problem.kernel(),
        case.likelihood(),
        problem.Z.astype(np.float32),
        alpha=0.0,
        conditional="scaled",
        mean_function=mean,
    )
    assert_close(model.pep_log_marginal_likelihood(), np.float32(expected), rtol=1e-4)
    assert model.certified_rows().shape == (N,)
    for gradient in gradients(model.training_loss, model.trainable_variables):
        assert gradient.dtype == np.float32 and np.all(np.isfinite(gradient))


def test_classification_takes_it() -> None:
    case = CASES["probit"]
    model = pep.models.PEPClassification(
        (case.problem.X, case.Y),
        case.problem.kernel(),
        None,
        case.problem.Z,
        alpha=0.0,
        conditional="scaled",
        mean_function=case.mean_function(),
        tolerance=TIGHT,
    )
    assert model.conditional == "scaled"
    expected = scaled_model("probit").pep_log_marginal_likelihood()
    assert_close(model.pep_log_marginal_likelihood(), expected)
