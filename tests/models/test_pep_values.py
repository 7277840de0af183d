"""PEP against the dense reference and golden numbers: sites, q(u), log Z, predictions."""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.pep import (
    ALPHAS,
    CASES,
    MEANS,
    NUM_CLASSES,
    TIGHT,
    M,
    N,
    compiled,
    each_case,
    plain_probit_link,
    reference_sites,
)
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import SeparateIndependent, SharedIndependent, SquaredExponential
from helpers import (
    Array,
    assert_all_close,
    assert_close,
    golden_problem,
    load_example,
    trainable_by_name,
    value_and_gradients,
)
from reference import sites as pep_reference
from reference.golden import (
    GOLDEN_MULTI_CLASS,
    GOLDEN_POISSON,
    GOLDEN_PROBIT,
    GOLDEN_SITE_MEAN,
    GOLDEN_SITE_VARIANCE,
    GOLDEN_SQUEEZED_PROBIT,
    golden_classes,
    golden_targets,
)
from reference.regression import squared_exponential_prior

import gpflow_pep as pep

GOLDEN_RTOL = 1e-10
NO_JITTER = 1e-16


def _expected_prediction(
    problem: pep_reference.Problem, q: list[pep_reference.Natural], X: Array, case: Any
) -> tuple[Array, Array]:
    """Mean [S, L] with the mean function, covariance [L, S, S]."""
    of_case = case.problem
    Kus, Kss = of_case.covariance(of_case.Z, X), of_case.covariance(X, X)
    moments = [pep_reference.predict(one, p, Kus, Kss) for one, p in zip(q, problem.priors)]
    means, covariances = zip(*moments)
    return np.stack(means, axis=-1) + MEANS[: case.num_latent], np.stack(covariances)


@pytest.mark.parametrize("power", ALPHAS)
@each_case
def test_the_fixed_point_is_the_reference(name: str, power: str) -> None:
    case = CASES[name]
    problem, sites = reference_sites(name, power)
    model, _, loss_and_gradients, _ = compiled(name)
    model.alpha.assign(ALPHAS[power])
    loss, _ = loss_and_gradients()
    assert model.last_inference.converged
    assert_close(loss, -pep_reference.log_z(problem, sites))

    nu, tau = model.sites.nu.numpy(), model.sites.tau.numpy()
    assert nu.shape == tau.shape == (N, case.num_latent)
    directions = np.array(
        [[problem.direction(n, k) for k in range(case.num_latent)] for n in range(N)]
    )
    outer = directions[..., :, None] * directions[..., None, :]
    assert_close(nu[..., None] * directions, [[site.T1 for site in row] for row in sites])
    assert_close(tau[..., None, None] * outer, [[site.T2 for site in row] for row in sites])


# Powers reach q and predictions through the sites alone.
@pytest.mark.near_copies("*-alpha per row")
@pytest.mark.parametrize("power", ALPHAS)
@each_case
def test_q_and_predictions_are_the_reference(name: str, power: str) -> None:
    case = CASES[name]
    problem, q = _reference_q(name, power)
    model = compiled(name).model
    model.alpha.assign(ALPHAS[power])
    mean, covariance = model.compute_qu()
    expected = [one.moments() for one in q]
    assert_close(mean, np.stack([mean for mean, _ in expected], axis=-1))
    assert_close(covariance, [cov for _, cov in expected])

    mean, covariance = model.predict_f(case.problem.Xnew, full_cov=True)
    expected_mean, expected_cov = _expected_prediction(problem, q, case.problem.Xnew, case)
    assert_close(mean, expected_mean)
    assert_close(covariance, expected_cov)


@pytest.mark.parametrize("power", ["alpha per row", "alpha 0", "alpha 1"])
@pytest.mark.parametrize("name", ["probit", "RobustMax"])
@pytest.mark.near_copies("probit-*", "*-alpha per row")
def test_leave_one_out_is_the_reference(name: str, power: str) -> None:
    problem, sites = reference_sites(name, power)
    model = compiled(name).model
    model.alpha.assign(ALPHAS[power])
    assert_close(model.loo_log_density(), pep_reference.leave_one_out(problem, sites))


@pytest.mark.parametrize("name", ["probit", "RobustMax"])
@pytest.mark.near_copies
def test_predictions_follow_from_the_prediction_of_f(name: str) -> None:
    case = CASES[name]
    model = compiled(name).model
    model.alpha.assign(ALPHAS["alpha 0.5"])
    Xnew, Ynew = case.problem.Xnew, case.Y[: len(case.problem.Xnew)]
    mean, variance = model.predict_f(Xnew)
    expected_mean, expected_covariance = _expected_prediction(
        *_reference_q(name, "alpha 0.5"), Xnew, case
    )
    assert_close(mean, expected_mean)
    assert_close(variance, np.diagonal(expected_covariance, axis1=1, axis2=2).T)
    likelihood = gpflow.utilities.deepcopy(model.likelihood)
    likelihood.num_gauss_hermite_points = 200
    if name == "RobustMax":  # GPflow squashes by 1e-6: probabilities do not sum to 1
        likelihood.invlink._squash = 0.0
    assert_all_close(model.predict_y(Xnew), likelihood.predict_mean_and_var(Xnew, mean, variance))
    assert_close(
        model.predict_log_density((Xnew, Ynew)),
        likelihood.predict_log_density(Xnew, mean, variance, Ynew),
    )
    assert model.predict_f_samples(Xnew, 3).shape == (3, len(Xnew), case.num_latent)
    for cache in ("tensor", "variable"):
        assert_all_close(model.posterior(cache).predict_f(Xnew), (mean, variance))
    assert_all_close(model.posterior("nocache").fused_predict_f(Xnew), (mean, variance))


def _reference_q(
    name: str, power: str
) -> tuple[pep_reference.Problem, list[pep_reference.Natural]]:
    problem, sites = reference_sites(name, power)
    return problem, pep_reference.posterior(problem, sites)


@pytest.mark.slow
def test_one_power_for_all_rows() -> None:
    for alpha in (0.0, 0.3, 1.0):
        model = CASES["probit"].model(alpha=alpha)
        expected = pep_reference.log_z(*reference_sites("probit", f"alpha {alpha:g}"))
        assert_close(model.pep_log_marginal_likelihood(), expected)


@pytest.mark.parametrize("chunk_size", [4, 1, 1000])
@pytest.mark.near_copies
def test_chunks_do_not_change_anything(chunk_size: int) -> None:
    whole = compiled("probit").model
    model = CASES["probit"].model(alpha=ALPHAS["alpha per row"], chunk_size=chunk_size)
    whole.alpha.assign(ALPHAS["alpha per row"])
    loss, gradients = value_and_gradients(
        model.training_loss, list(trainable_by_name(model).values())
    )
    expected_loss, expected_gradients = compiled("probit").loss_and_gradients()
    assert_close(loss, expected_loss, rtol=1e-11)
    largest = max(float(np.max(np.abs(gradient))) for gradient in expected_gradients)
    assert_all_close(gradients, expected_gradients, rtol=1e-9, scale=largest)
    assert_close(model.sites.nu, whole.sites.nu, rtol=1e-9)
    assert_close(model.sites.tau, whole.sites.tau, rtol=1e-9)
    assert_close(model.loo_log_density(), whole.loo_log_density(), rtol=1e-9)


# Golden numbers.


def _golden_model(kind: str, likelihood: gpflow.likelihoods.Likelihood, alpha: float) -> Any:
    gpflow.config.set_default_jitter(NO_JITTER)
    problem, mean, *_ = golden_problem()
    return pep.models.PEP(
        (problem.X, golden_targets(kind)),
        problem.kernel(),
        likelihood,
        problem.Z,
        alpha=alpha,
        mean_function=gpflow.functions.Constant(mean),
        tolerance=TIGHT,
    )


def _plain_probit() -> gpflow.likelihoods.Bernoulli:
    return gpflow.likelihoods.Bernoulli(invlink=plain_probit_link)


@pytest.mark.parametrize("alpha, expected", GOLDEN_PROBIT.items())
def test_golden_probit(alpha: float, expected: float) -> None:
    model = _golden_model("labels", _plain_probit(), alpha)
    assert_close(model.pep_log_marginal_likelihood(), expected, rtol=1e-8)


def test_golden_site() -> None:
    model = _golden_model("labels", _plain_probit(), 0.5)
    assert model.update_sites().converged
    nu, tau = float(model.sites.nu[2, 0]), float(model.sites.tau[2, 0])
    assert_close(nu / tau, GOLDEN_SITE_MEAN, rtol=1e-8)
    assert_close(1.0 / tau, GOLDEN_SITE_VARIANCE, rtol=1e-8)


def test_golden_squeezed_probit() -> None:
    model = _golden_model("labels", gpflow.likelihoods.Bernoulli(), 0.5)
    assert_close(model.pep_log_marginal_likelihood(), GOLDEN_SQUEEZED_PROBIT, rtol=GOLDEN_RTOL)


def test_golden_poisson() -> None:
    model = _golden_model("counts", gpflow.likelihoods.Poisson(), 0.5)
    assert_close(model.pep_log_marginal_likelihood(), GOLDEN_POISSON, rtol=GOLDEN_RTOL)


def test_golden_multi_class() -> None:
    """Another kernel and other inducing variables for each class."""
    gpflow.config.set_default_jitter(NO_JITTER)
    problem, mean, *_ = golden_problem()
    kernels = SeparateIndependent(
        [
            SquaredExponential(variance=variance, lengthscales=list(lengthscales))
            for _, variance, lengthscales in golden_classes()
        ]
    )
    variables = SeparateIndependentInducingVariables(
        # As many for each, as GPflow wants: one is so far away that no row sees it.
        [
            InducingPoints(np.vstack([Z, np.full([4 - len(Z), 2], 1e3)]))
            for Z, *_ in golden_classes()
        ]
    )
    model = pep.models.PEP(
        (problem.X, golden_targets("classes")),
        kernels,
        CASES["RobustMax"].likelihood(),
        variables,
        mean_function=gpflow.functions.Constant(np.full(NUM_CLASSES, mean)),
        tolerance=TIGHT,
    )
    log_z = tf.function(model.pep_log_marginal_likelihood)
    for alpha, expected in GOLDEN_MULTI_CLASS.items():
        model.alpha.assign(alpha)
        assert_close(log_z(), expected, rtol=1e-9)


# Several latent functions.


def _multi_class_model(kernel: Any, inducing_variable: Any) -> "pep.models.PEP":
    return CASES["RobustMax"].model(
        kernel=kernel, inducing_variable=inducing_variable, alpha=ALPHAS["alpha per row"]
    )


@pytest.mark.slow
def test_shared_latent_functions_are_separate_ones_that_are_equal() -> None:
    problem = CASES["RobustMax"].problem
    shared = SharedIndependentInducingVariables(InducingPoints(problem.Z))
    separate = SeparateIndependentInducingVariables(
        [InducingPoints(problem.Z) for _ in range(NUM_CLASSES)]
    )
    wrapped = SharedIndependent(problem.kernel(), output_dim=NUM_CLASSES)
    kernels = SeparateIndependent([problem.kernel() for _ in range(NUM_CLASSES)])
    expected = pep_reference.log_z(*reference_sites("RobustMax", "alpha per row"))
    q = _reference_q("RobustMax", "alpha per row")
    prediction = _expected_prediction(*q, problem.Xnew, CASES["RobustMax"])
    for one, other in ((wrapped, shared), (wrapped, separate), (kernels, shared)):
        model = _multi_class_model(one, other)
        assert_close(model.pep_log_marginal_likelihood(), expected)
        assert_all_close(model.predict_f(problem.Xnew, full_cov=True), prediction)


@pytest.mark.slow
def test_a_class_without_rows_on_inputs_in_a_line() -> None:
    """RobustMax is not log-concave; sequential Power EP has a fixed point here and finds it."""
    X = np.linspace(-1.0, 1.0, 14).reshape(7, 2)
    Y = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    Z, epsilon = X[::3], 1e-3
    model = pep.models.PEP(
        (X, Y[:, None]),
        SquaredExponential(),
        gpflow.likelihoods.MultiClass(NUM_CLASSES),
        Z,
        alpha=0.5,
    )
    prior = squared_exponential_prior(X, Z, 1.0, 1.0, gpflow.config.default_jitter())
    high, low = 1.0 - epsilon, epsilon / (NUM_CLASSES - 1)
    problem = pep_reference.Problem(
        priors=[prior] * NUM_CLASSES,
        means=np.zeros([7, NUM_CLASSES]),
        factors=[pep_reference.largest_latent_factor(int(y), high, low) for y in Y],
        alpha=np.full(7, 0.5),
    )
    expected = pep_reference.log_z(problem, pep_reference.fixed_point(problem))
    actual = tf.function(model.pep_log_marginal_likelihood)()
    assert model.last_inference.converged, model.last_inference
    assert_close(actual, expected)


@pytest.mark.slow
def test_latent_functions_of_their_own() -> None:
    """Each class with another kernel and other inducing inputs, at a power for each row."""
    case = CASES["RobustMax"]
    X, Xnew = case.problem.X, case.problem.Xnew
    shifts, variances = (0.0, 0.2, -0.3), (1.3, 0.7, 1.0)
    scales = ([0.8, 1.1], [1.0, 0.9], [0.7, 0.7])
    inputs = [case.problem.Z + shift for shift in shifts]
    model = _multi_class_model(
        SeparateIndependent(
            [SquaredExponential(variance=v, lengthscales=s) for v, s in zip(variances, scales)]
        ),
        SeparateIndependentInducingVariables([InducingPoints(Z) for Z in inputs]),
    )
    jitter = gpflow.config.default_jitter()
    priors = [
        squared_exponential_prior(X, Z, v, s, jitter) for Z, v, s in zip(inputs, variances, scales)
    ]
    problem = case.reference_problem(ALPHAS["alpha per row"])._replace(priors=priors)
    sites = pep_reference.fixed_point(problem)
    assert_close(model.pep_log_marginal_likelihood(), pep_reference.log_z(problem, sites))
    mean, covariance = model.predict_f(Xnew, full_cov=True)
    q = pep_reference.posterior(problem, sites)
    for k, (natural, prior, Z, v, s) in enumerate(zip(q, priors, inputs, variances, scales)):
        of_new = squared_exponential_prior(Xnew, Z, v, s)
        expected_mean, expected_covariance = pep_reference.predict(
            natural, prior, of_new.Kuf, of_new.Kff
        )
        assert_close(mean[:, k], expected_mean + MEANS[k])
        assert_close(covariance[k], expected_covariance)


# What the cache of sites must not do.


def test_a_prediction_is_never_stale() -> None:
    case = CASES["probit"]
    model = case.model(alpha=0.5)
    Xnew = case.problem.Xnew
    model.predict_f(Xnew)
    fresh = case.model(alpha=0.5)
    model.kernel.variance.assign(2.9)
    model.alpha.assign(1.0)
    model.mean_function.c.assign([-0.4])
    for one, value in ((fresh.kernel.variance, 2.9), (fresh.alpha, 1.0)):
        one.assign(value)
    fresh.mean_function.c.assign([-0.4])
    posterior = fresh.posterior()
    assert_all_close(model.predict_f(Xnew), fresh.predict_f(Xnew), rtol=1e-9)
    fresh.kernel.variance.assign(0.8)
    model.kernel.variance.assign(0.8)
    posterior.update_cache()
    assert_all_close(posterior.predict_f(Xnew), model.predict_f(Xnew), rtol=1e-9)


def test_a_converged_model_costs_one_sweep() -> None:
    model = CASES["probit"].model(alpha=0.5)
    first = model.update_sites()
    assert first.converged and first.num_sweeps > 2
    assert first.residual < TIGHT
    again = model.update_sites()
    assert again.converged and again.num_sweeps == 1
    assert model.last_inference == again
    model.kernel.variance.assign(1.31)
    nearby = model.update_sites()
    assert nearby.converged and 1 < nearby.num_sweeps < first.num_sweeps


def test_an_unfinished_inner_loop_says_so_and_stays_usable() -> None:
    model = CASES["probit"].model(alpha=0.5, max_sweeps=2)
    with pytest.warns(pep.models.ConvergenceWarning, match="residual"):
        loss = model.training_loss()
    assert np.isfinite(loss)
    record = model.last_inference
    assert not record.converged
    assert record.num_sweeps == 4  # two, and two of the fallback, too few for "continuation"
    assert record.residual > TIGHT
    mended = model.update_sites(max_sweeps=100)
    assert mended.converged
    expected = pep_reference.log_z(*reference_sites("probit", "alpha 0.5"))
    assert_close(model.pep_log_marginal_likelihood(), expected)


def test_damping_reaches_the_same_fixed_point() -> None:
    model = CASES["probit"].model(alpha=0.5)
    record = model.update_sites(damping=0.3, max_sweeps=500)
    assert record.converged
    expected = pep_reference.log_z(*reference_sites("probit", "alpha 0.5"))
    assert_close(model.pep_log_marginal_likelihood(), expected)


def test_log_z_does_not_depend_on_where_the_sites_start(rng: np.random.Generator) -> None:
    model, loss, *_ = compiled("Poisson")
    model.alpha.assign(ALPHAS["alpha 0.5"])
    expected = pep_reference.log_z(*reference_sites("Poisson", "alpha 0.5"))
    for spread in (0.1, 10.0, 1e6):
        model.sites.nu.assign(spread * rng.standard_normal([N, 1]))
        model.sites.tau.assign(spread * rng.standard_normal([N, 1]))
        assert_close(loss(), -expected)
        assert model.last_inference.converged


def test_copies_have_sites_of_their_own() -> None:
    model = CASES["probit"].model(alpha=0.5)
    model.update_sites()
    twin = gpflow.utilities.deepcopy(model)
    assert twin.update_sites().num_sweeps == 1
    before = model.sites.nu.numpy()
    twin.kernel.variance.assign(3.0)
    twin.update_sites()
    assert not np.allclose(twin.sites.nu, before)
    np.testing.assert_array_equal(model.sites.nu, before)


def test_how_exact_the_training_loss_is_can_change_without_another_trace() -> None:
    model, traced = CASES["probit"].model(alpha=0.5, tolerance=None), []

    @tf.function(autograph=False)
    def loss() -> tf.Tensor:
        traced.append(True)
        return model.training_loss()

    loss()
    assert model.last_inference.residual > 1e-6 and model.last_inference.converged
    model.loss_tolerance.assign(0.0)
    exact = loss()
    assert model.last_inference.residual < model.tolerance == 1e-6
    assert_close(-exact, model.pep_log_marginal_likelihood(), rtol=1e-12)
    assert len(traced) == 1
    assert CASES["probit"].model(alpha=0.5, tolerance=1e-3).loss_tolerance.numpy() == 0.0


def test_checkpoint_holds_the_sites(tmp_path: Any) -> None:
    model = CASES["probit"].model(alpha=0.5)
    model.update_sites()
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    other = CASES["probit"].model(alpha=0.5)
    assert not np.any(other.sites.nu)
    tf.train.Checkpoint(model=other).read(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(other.sites.nu, model.sites.nu)
    np.testing.assert_array_equal(other.sites.tau, model.sites.tau)
    assert other.update_sites().num_sweeps == 1


def test_sites_are_not_trained() -> None:
    model = CASES["probit"].model()
    names = trainable_by_name(model)
    assert names and not any("sites" in name for name in names)
    assert model.sites.nu.numpy().shape == model.sites.tau.numpy().shape == (N, 1)
    assert model.inducing_variable.Z.shape == (M, 2)


@pytest.mark.slow
def test_a_fixed_point_that_is_found_from_smaller_powers() -> None:
    """Outliers under Student's t at power 1, where no sites are far from every fixed point."""
    stress = load_example("benchmarks/stress.py")
    X, Y, likelihood = stress.outliers(Path())
    Z = stress.inducing_inputs(X)["at the rows"]
    kernel = gpflow.kernels.SquaredExponential(variance=1e4, lengthscales=0.3)
    model = pep.models.PEP((X, Y), kernel, likelihood, Z, alpha=1.0)
    tf.function(model.pep_log_marginal_likelihood, autograph=False)()
    record = model.last_inference
    assert record.converged and record.fallback == "continuation"
    # One more sweep finds the sites where they want to be, and q proper.
    looked = model.update_sites(max_sweeps=1)
    assert looked.residual < 10.0 * model.tolerance
    assert np.all(np.isfinite(model.loo_log_density()))
