"""PEP against the dense reference: sites, q(u), log Z, predictions; what it does with sites; and
its gradients against finite differences.
"""

from collections.abc import Callable, Sequence
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
    N,
    compiled,
    each_case,
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
    assert_gradients,
    gradients,
    load_example,
    trainable_by_name,
    value_and_gradients,
)
from reference import sites as pep_reference
from reference.regression import squared_exponential_prior

import gpflow_pep as pep

Moments = tuple[Array, Array]


def _expected(name: str, power: str) -> tuple[Moments, Moments]:
    """Moments of q(u), and of f at new rows with the mean function: [., L] and [L, ., .]."""
    problem, sites = reference_sites(name, power)
    q, of_case = pep_reference.posterior(problem, sites), CASES[name].problem
    new = [of_case.covariance(Z, of_case.Xnew) for Z in (of_case.Z, of_case.Xnew)]
    of_u = zip(*(one.moments() for one in q))
    of_f = zip(*(pep_reference.predict(one, p, *new) for one, p in zip(q, problem.priors)))
    (mean_u, cov_u), (mean_f, cov_f) = (map(np.stack, pair) for pair in (of_u, of_f))
    return (mean_u.T, cov_u), (mean_f.T + MEANS[: len(q)], cov_f)


def _expected_log_z(name: str, power: str) -> float:
    return pep_reference.log_z(*reference_sites(name, power))


@pytest.mark.parametrize("power", ALPHAS)
@each_case
def test_the_fixed_point_is_the_reference(name: str, power: str) -> None:
    problem, sites = reference_sites(name, power)
    model, _, loss_and_gradients, _ = compiled(name)
    model.alpha.assign(ALPHAS[power])
    loss, _ = loss_and_gradients()
    assert model.last_inference.converged
    assert_close(loss, -_expected_log_z(name, power))
    nu, tau = model.sites.nu.numpy(), model.sites.tau.numpy()
    latent = range(CASES[name].num_latent)
    w = np.array([[problem.direction(n, k) for k in latent] for n in range(N)])
    assert_close(nu[..., None] * w, [[site.T1 for site in row] for row in sites])
    outer = w[..., :, None] * w[..., None, :]
    assert_close(tau[..., None, None] * outer, [[site.T2 for site in row] for row in sites])


@each_case
def test_what_powers_reach_through_the_sites_alone(name: str) -> None:
    model, power = compiled(name).model, "alpha per row"
    model.alpha.assign(ALPHAS[power])
    of_u, of_f = _expected(name, power)
    assert_all_close(model.compute_qu(), of_u)
    assert_all_close(model.predict_f(CASES[name].problem.Xnew, full_cov=True), of_f)
    left_out = pep_reference.leave_one_out(*reference_sites(name, power))
    assert_close(model.loo_log_density(), left_out)


@pytest.mark.parametrize("name", ["probit", "RobustMax"])
@pytest.mark.near_copies
def test_predictions_follow_from_the_prediction_of_f(name: str) -> None:
    case, model = CASES[name], compiled(name).model
    model.alpha.assign(ALPHAS["alpha 0.5"])
    Xnew, Ynew = case.problem.Xnew, case.Y[: len(case.problem.Xnew)]
    moments = model.predict_f(Xnew)
    mean, covariance = _expected(name, "alpha 0.5")[1]
    assert_all_close(moments, (mean, np.diagonal(covariance, axis1=1, axis2=2).T))
    likelihood = gpflow.utilities.deepcopy(model.likelihood)
    likelihood.num_gauss_hermite_points = 200
    if name == "RobustMax":  # GPflow squashes by 1e-6: probabilities do not sum to 1
        likelihood.invlink._squash = 0.0
    assert_all_close(model.predict_y(Xnew), likelihood.predict_mean_and_var(Xnew, *moments))
    density = likelihood.predict_log_density(Xnew, *moments, Ynew)
    assert_close(model.predict_log_density((Xnew, Ynew)), density)
    assert model.predict_f_samples(Xnew, 3).shape == (3, len(Xnew), case.num_latent)
    for cache in ("tensor", "variable"):
        assert_all_close(model.posterior(cache).predict_f(Xnew), moments)
    assert_all_close(model.posterior("nocache").fused_predict_f(Xnew), moments)


def test_chunks_do_not_change_anything() -> None:
    powers, whole = ALPHAS["alpha per row"], compiled("probit").model
    model = CASES["probit"].model(alpha=powers, chunk_size=4)
    whole.alpha.assign(powers)
    variables = list(trainable_by_name(model).values())
    loss, actual = value_and_gradients(model.training_loss, variables)
    expected_loss, expected = compiled("probit").loss_and_gradients()
    assert_close(loss, expected_loss, rtol=1e-11)
    largest = max(float(np.max(np.abs(gradient))) for gradient in expected)
    assert_all_close(actual, expected, rtol=1e-9, scale=largest)
    for one, other in zip(model.read_sites(), whole.read_sites()):
        assert_close(one, other, rtol=1e-9)
    assert_close(model.loo_log_density(), whole.loo_log_density(), rtol=1e-9)


# Several latent functions.


def _of_classes(kernel: Any, inducing_variable: Any) -> "pep.models.PEP":
    options = {"kernel": kernel, "inducing_variable": inducing_variable}
    return CASES["RobustMax"].model(alpha=ALPHAS["alpha per row"], **options)


@pytest.mark.slow
def test_shared_latent_functions_are_separate_ones_that_are_equal() -> None:
    problem = CASES["RobustMax"].problem
    points = [InducingPoints(problem.Z) for _ in range(NUM_CLASSES)]
    shared = SharedIndependentInducingVariables(points[0])
    separate = SeparateIndependentInducingVariables(points)
    wrapped = SharedIndependent(problem.kernel(), output_dim=NUM_CLASSES)
    kernels = SeparateIndependent([problem.kernel() for _ in range(NUM_CLASSES)])
    for parts in ((wrapped, shared), (wrapped, separate), (kernels, shared)):
        model = _of_classes(*parts)
        expected = _expected_log_z("RobustMax", "alpha per row")
        assert_close(model.pep_log_marginal_likelihood(), expected)
        of_f = _expected("RobustMax", "alpha per row")[1]
        assert_all_close(model.predict_f(problem.Xnew, full_cov=True), of_f)


@pytest.mark.slow
def test_a_class_without_rows_on_inputs_in_a_line() -> None:
    """RobustMax is not log-concave; sequential Power EP has a fixed point here and finds it."""
    X = np.linspace(-1.0, 1.0, 14).reshape(7, 2)
    Y = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0])[:, None]
    likelihood = gpflow.likelihoods.MultiClass(NUM_CLASSES)
    model = pep.models.PEP((X, Y), SquaredExponential(), likelihood, X[::3], alpha=0.5)
    prior = squared_exponential_prior(X, X[::3], 1.0, 1.0, gpflow.config.default_jitter())
    probabilities = 1.0 - 1e-3, 1e-3 / (NUM_CLASSES - 1)
    factors = [pep_reference.largest_latent_factor(int(y), *probabilities) for y in Y[:, 0]]
    means, alpha = np.zeros([7, NUM_CLASSES]), np.full(7, 0.5)
    problem = pep_reference.Problem([prior] * NUM_CLASSES, means, factors, alpha)
    expected = pep_reference.log_z(problem, pep_reference.fixed_point(problem))
    actual = tf.function(model.pep_log_marginal_likelihood)()
    assert model.last_inference.converged, model.last_inference
    assert_close(actual, expected)


@pytest.mark.slow
def test_latent_functions_of_their_own() -> None:
    """Each class with another kernel and other inducing inputs, at a power for each row."""
    case = CASES["RobustMax"]
    X, Xnew, jitter = case.problem.X, case.problem.Xnew, gpflow.config.default_jitter()
    parameters = [(1.3, [0.8, 1.1]), (0.7, [1.0, 0.9]), (1.0, [0.7, 0.7])]
    inputs = [case.problem.Z + shift for shift in (0.0, 0.2, -0.3)]
    model = _of_classes(
        SeparateIndependent([SquaredExponential(*each) for each in parameters]),
        SeparateIndependentInducingVariables([InducingPoints(Z) for Z in inputs]),
    )
    priors = [squared_exponential_prior(X, Z, *p, jitter) for Z, p in zip(inputs, parameters)]
    problem = case.reference_problem(ALPHAS["alpha per row"])._replace(priors=priors)
    sites = pep_reference.fixed_point(problem)
    assert_close(model.pep_log_marginal_likelihood(), pep_reference.log_z(problem, sites))
    mean, covariance = model.predict_f(Xnew, full_cov=True)
    q = pep_reference.posterior(problem, sites)
    for k, (natural, prior, Z, each) in enumerate(zip(q, priors, inputs, parameters)):
        of_new = squared_exponential_prior(Xnew, Z, *each)
        expected = pep_reference.predict(natural, prior, of_new.Kuf, of_new.Kff)
        assert_all_close((mean[:, k], covariance[k]), (expected[0] + MEANS[k], expected[1]))


# What the cache of sites must not do.


def test_a_prediction_is_never_stale() -> None:
    case = CASES["probit"]
    model, fresh, Xnew = case.model(alpha=0.5), case.model(alpha=0.5), case.problem.Xnew
    model.predict_f(Xnew)
    for one in (model, fresh):
        one.kernel.variance.assign(2.9)
        one.alpha.assign(1.0)
        one.mean_function.c.assign([-0.4])
    posterior = fresh.posterior()
    assert_all_close(model.predict_f(Xnew), fresh.predict_f(Xnew), rtol=1e-9)
    for one in (model, fresh):
        one.kernel.variance.assign(0.8)
    posterior.update_cache()
    assert_all_close(posterior.predict_f(Xnew), model.predict_f(Xnew), rtol=1e-9)


def test_a_converged_model_costs_one_sweep_as_do_copies_and_checkpoints(tmp_path: Path) -> None:
    model = CASES["probit"].model(alpha=0.5)
    first = model.update_sites()
    assert first.converged and first.num_sweeps > 2
    assert first.residual < TIGHT
    again = model.update_sites()
    assert again.converged and again.num_sweeps == 1
    assert model.last_inference == again
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    read, twin = CASES["probit"].model(alpha=0.5), gpflow.utilities.deepcopy(model)
    assert not np.any(read.sites.nu)
    tf.train.Checkpoint(model=read).read(path).assert_existing_objects_matched()
    sites = [part.numpy() for part in (model.sites.nu, model.sites.tau)]
    for other in (read, twin):
        np.testing.assert_array_equal([other.sites.nu, other.sites.tau], sites)
        assert other.update_sites().num_sweeps == 1
    twin.kernel.variance.assign(3.0)
    twin.update_sites()
    assert not np.allclose(twin.sites.nu, sites[0])
    np.testing.assert_array_equal([model.sites.nu, model.sites.tau], sites)
    model.kernel.variance.assign(1.31)
    nearby = model.update_sites()
    assert nearby.converged and 1 < nearby.num_sweeps < first.num_sweeps


def test_an_unfinished_inner_loop_says_so_and_stays_usable() -> None:
    model = CASES["probit"].model(alpha=0.5, max_sweeps=2)
    with pytest.warns(pep.models.ConvergenceWarning, match="residual"):
        loss = model.training_loss()
    assert np.isfinite(loss)
    record = model.last_inference
    assert not record.converged and record.residual > TIGHT
    assert record.num_sweeps == 4  # two, and two of the fallback, too few for "continuation"
    expected = _expected_log_z("probit", "alpha 0.5")
    for options in ({"max_sweeps": 100}, {"damping": 0.3, "max_sweeps": 500, "fresh": True}):
        assert model.update_sites(**options).converged
        assert_close(model.pep_log_marginal_likelihood(), expected)


def test_log_z_does_not_depend_on_where_the_sites_start(rng: np.random.Generator) -> None:
    model, loss, *_ = compiled("Poisson")
    model.alpha.assign(ALPHAS["alpha 0.5"])
    for spread in (0.1, 10.0, 1e6):
        for part in (model.sites.nu, model.sites.tau):
            part.assign(spread * rng.standard_normal([N, 1]))
        assert_close(loss(), -_expected_log_z("Poisson", "alpha 0.5"))
        assert model.last_inference.converged


def test_how_exact_the_training_loss_is_can_change_without_another_trace() -> None:
    model = CASES["probit"].model(alpha=0.5, tolerance=None)
    loss = tf.function(model.training_loss, autograph=False)
    loss()
    assert model.last_inference.residual > 1e-6 and model.last_inference.converged
    model.loss_tolerance.assign(0.0)
    exact = loss()
    assert model.last_inference.residual < model.tolerance == 1e-6
    assert_close(-exact, model.pep_log_marginal_likelihood(), rtol=1e-12)
    assert loss.experimental_get_tracing_count() == 1
    assert CASES["probit"].model(alpha=0.5, tolerance=1e-3).loss_tolerance.numpy() == 0.0


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
    assert model.update_sites(max_sweeps=1).residual < 10.0 * model.tolerance
    assert np.all(np.isfinite(model.loo_log_density()))


# Gradients of the converged loss, in every trainable variable.

#: What the likelihoods bring to be trained.
OF_LIKELIHOOD = {
    "Gaussian": {".likelihood.variance"},
    "Gamma": {".likelihood.shape"},
    "Beta": {".likelihood.scale"},
    "Ordinal": {".likelihood.sigma"},
    "Student-t": {".likelihood.scale"},
}
OF_ALL = {".kernel.variance", ".kernel.lengthscales", ".inducing_variable.Z", ".mean_function.c"}


def _check(loss: Callable[[], tf.Tensor], actual: Any, variables: Sequence[tf.Variable]) -> None:
    sizes = [float(np.max(np.abs(tf.convert_to_tensor(part)))) for part in actual]
    assert min(sizes) > 1e-3, "the loss hardly depends on one of them"
    # A variable with a small gradient is differenced out of a loss that is large.
    assert_gradients(loss, variables, actual, rtol=1e-6, scale=0.01 * max(sizes))


@pytest.mark.parametrize("power", ["alpha 0", "alpha 0.5", "alpha 1", "alpha per row"])
@each_case
@pytest.mark.near_copies("Gaussian-*", "Poisson-alpha 0", "RobustMax-alpha 0", "probit-alpha 0.5")
def test_loss_gradient_is_the_finite_difference(name: str, power: str) -> None:
    model, loss, loss_and_gradients, variables = compiled(name)
    assert variables.keys() == OF_ALL | OF_LIKELIHOOD.get(name, set())
    model.alpha.assign(ALPHAS[power])
    _check(loss, loss_and_gradients()[1], [*variables.values()])


def test_eager_gradient_is_the_compiled_one() -> None:
    model, _, loss_and_gradients, variables = compiled("Poisson")
    model.alpha.assign(ALPHAS["alpha per row"])
    _, expected = loss_and_gradients()
    assert_all_close(gradients(model.training_loss, [*variables.values()]), expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Gaussian", "probit"])
def test_xla_compiles_value_and_gradient(name: str) -> None:
    model, _, loss_and_gradients, variables = compiled(name)
    model.alpha.assign(ALPHAS["alpha per row"])
    expected_loss, expected = loss_and_gradients()
    # From the start, so that the loop has something to do.
    for site in (model.sites.nu, model.sites.tau):
        site.assign(tf.zeros_like(site))
    by_xla = tf.function(value_and_gradients, autograph=False, jit_compile=True)
    loss, actual = by_xla(model.training_loss, [*variables.values()])
    assert model.last_inference.num_sweeps > (1 if name == "Gaussian" else 2)
    assert_close(loss, expected_loss, rtol=1e-10)
    assert_all_close(actual, expected, rtol=1e-8)
