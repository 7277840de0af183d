"""PEP: beside the dense reference, where other models coincide with it, by minibatches,
and its gradients against finite differences.
"""

from pathlib import Path
from typing import Any

import gpflow
import helpers
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from cases.pep import (
    ALPHAS,
    CASES,
    MEANS,
    TIGHT,
    N,
    compiled,
    each_case,
    reference_sites,
)
from gpflow import inducing_variables as iv
from gpflow.kernels import SeparateIndependent, SharedIndependent, SquaredExponential
from helpers import (
    Array,
    assert_all_close,
    assert_close,
    gradients,
    value_and_gradients,
)
from reference import sites as pep_reference
from reference.regression import squared_exponential_prior

import gpflow_pep as pep


def _expected(
    name: str, power: str
) -> "tuple[tuple[Array, Array], tuple[Array, Array]]":
    """Moments of q(u), and of f at new rows with the mean function: [., L] and [L, .,
    .].
    """
    problem, sites = reference_sites(name, power)
    q = pep_reference.posterior(problem, sites)
    of_case = CASES[name].problem
    new = [of_case.covariance(Z, of_case.Xnew) for Z in (of_case.Z, of_case.Xnew)]
    of_u = zip(*(one.moments() for one in q))
    of_f = zip(
        *(pep_reference.predict(one, p, *new) for one, p in zip(q, problem.priors))
    )
    (mean_u, cov_u), (mean_f, cov_f) = (map(np.stack, pair) for pair in (of_u, of_f))
    return (mean_u.T, cov_u), (mean_f.T + MEANS[: len(q)], cov_f)


def _expected_log_z(name: str, power: str) -> float:
    return pep_reference.log_z(*reference_sites(name, power))


@pytest.mark.near_copies(
    "probit*", "Student-t*", "Poisson-alpha 0.5", "RobustMax-alpha 0.5"
)
@pytest.mark.parametrize("power", ALPHAS)
@each_case
def test_the_fixed_point_is_the_reference(name: str, power: str) -> None:
    problem, sites = reference_sites(name, power)
    model, _, loss_and_gradients, _ = compiled(name)
    model.alpha.assign(ALPHAS[power])
    loss, _ = loss_and_gradients()
    assert model.last_inference.converged
    assert_close(loss, -_expected_log_z(name, power))
    nu = model.sites.nu.numpy()
    tau = model.sites.tau.numpy()
    latent = range(CASES[name].num_latent)
    w = np.array([[problem.direction(n, k) for k in latent] for n in range(N)])
    assert_close(nu[..., None] * w, [[site.T1 for site in row] for row in sites])
    outer = w[..., :, None] * w[..., None, :]
    assert_close(
        tau[..., None, None] * outer, [[site.T2 for site in row] for row in sites]
    )


@pytest.mark.near_copies("probit", "Student-t", "RobustMax")
@each_case
def test_what_powers_reach_through_the_sites_alone(name: str) -> None:
    model = compiled(name).model
    power = "alpha per row"
    model.alpha.assign(ALPHAS[power])
    of_u, of_f = _expected(name, power)
    assert_all_close(model.compute_qu(), of_u)
    assert_all_close(model.predict_f(CASES[name].problem.Xnew, full_cov=True), of_f)
    left_out = pep_reference.leave_one_out(*reference_sites(name, power))
    assert_close(model.loo_log_density(), left_out)


@pytest.mark.parametrize("name", ["probit", "RobustMax"])
@pytest.mark.near_copies
def test_predictions_follow_from_the_prediction_of_f(name: str) -> None:
    case = CASES[name]
    model = compiled(name).model
    model.alpha.assign(ALPHAS["alpha 0.5"])
    Xnew = case.problem.Xnew
    Ynew = case.Y[: len(case.problem.Xnew)]
    moments = model.predict_f(Xnew)
    mean, covariance = _expected(name, "alpha 0.5")[1]
    assert_all_close(moments, (mean, np.diagonal(covariance, axis1=1, axis2=2).T))
    likelihood = gpflow.utilities.deepcopy(model.likelihood)
    likelihood.num_gauss_hermite_points = 200
    if name == "RobustMax":  # GPflow squashes by 1e-6: probabilities do not sum to 1
        likelihood.invlink._squash = 0.0
    assert_all_close(
        model.predict_y(Xnew), likelihood.predict_mean_and_var(Xnew, *moments)
    )
    density = likelihood.predict_log_density(Xnew, *moments, Ynew)
    assert_close(model.predict_log_density((Xnew, Ynew)), density)


def test_chunks_do_not_change_anything() -> None:
    powers = ALPHAS["alpha per row"]
    whole = compiled("probit").model
    model = CASES["probit"].model(alpha=powers, chunk_size=4)
    whole.alpha.assign(powers)
    variables = list(helpers.trainable_by_name(model).values())
    loss, actual = value_and_gradients(model.training_loss, variables)
    expected_loss, expected = compiled("probit").loss_and_gradients()
    assert_close(loss, expected_loss, rtol=1e-11)
    largest = max(float(np.max(np.abs(gradient))) for gradient in expected)
    assert_all_close(actual, expected, rtol=1e-9, scale=largest)
    assert_all_close(model.read_sites(), whole.read_sites(), rtol=1e-9)
    assert_close(model.loo_log_density(), whole.loo_log_density(), rtol=1e-9)


# Several latent functions.


@pytest.mark.slow
def test_a_class_without_rows_on_inputs_in_a_line() -> None:
    """RobustMax is not log-concave; sequential Power EP has a fixed point here and
    finds it.
    """
    X = np.linspace(-1.0, 1.0, 14).reshape(7, 2)
    Y = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0])[:, None]
    likelihood = gpflow.likelihoods.MultiClass(3)
    model = pep.models.PEP((X, Y), SquaredExponential(), likelihood, X[::3], alpha=0.5)
    prior = squared_exponential_prior(
        X, X[::3], 1.0, 1.0, gpflow.config.default_jitter()
    )
    factors = [
        pep_reference.largest_latent_factor(int(y), 1.0 - 1e-3, 5e-4) for y in Y[:, 0]
    ]
    problem = pep_reference.Problem(
        [prior] * 3, np.zeros([7, 3]), factors, np.full(7, 0.5)
    )
    expected = pep_reference.log_z(problem, pep_reference.fixed_point(problem))
    actual = tf.function(model.pep_log_marginal_likelihood)()
    assert model.last_inference.converged, model.last_inference
    assert_close(actual, expected)


@pytest.mark.slow
def test_latent_functions_of_their_own() -> None:
    """Each class with another kernel and other inducing inputs, at a power for each
    row; and those that share both.
    """
    case = CASES["RobustMax"]
    powers = {"alpha": ALPHAS["alpha per row"]}
    shared = iv.SharedIndependentInducingVariables(iv.InducingPoints(case.problem.Z))
    wrapped = SharedIndependent(case.problem.kernel(), output_dim=3)
    model = case.model(kernel=wrapped, inducing_variable=shared, **powers)
    expected = _expected_log_z("RobustMax", "alpha per row")
    assert_close(model.pep_log_marginal_likelihood(), expected)
    X = case.problem.X
    Xnew = case.problem.Xnew
    jitter = gpflow.config.default_jitter()
    parameters = [(1.3, [0.8, 1.1]), (0.7, [1.0, 0.9]), (1.0, [0.7, 0.7])]
    inputs = [case.problem.Z + shift for shift in (0.0, 0.2, -0.3)]
    kernel = SeparateIndependent([SquaredExponential(*each) for each in parameters])
    points = iv.SeparateIndependentInducingVariables(
        [iv.InducingPoints(Z) for Z in inputs]
    )
    model = case.model(kernel=kernel, inducing_variable=points, **powers)
    priors = [
        squared_exponential_prior(X, Z, *p, jitter) for Z, p in zip(inputs, parameters)
    ]
    problem = case.reference_problem(ALPHAS["alpha per row"])._replace(priors=priors)
    sites = pep_reference.fixed_point(problem)
    assert_close(
        model.pep_log_marginal_likelihood(), pep_reference.log_z(problem, sites)
    )
    mean, covariance = model.predict_f(Xnew, full_cov=True)
    q = pep_reference.posterior(problem, sites)
    for k, (natural, prior, Z, each) in enumerate(zip(q, priors, inputs, parameters)):
        of_new = squared_exponential_prior(Xnew, Z, *each)
        expected = pep_reference.predict(natural, prior, of_new.Kuf, of_new.Kff)
        assert_all_close(
            (mean[:, k], covariance[k]), (expected[0] + MEANS[k], expected[1])
        )


# What the cache of sites must not do.


def test_a_prediction_is_never_stale() -> None:
    case = CASES["probit"]
    model = case.model(alpha=0.5)
    fresh = case.model(alpha=0.5)
    Xnew = case.problem.Xnew
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


def test_a_converged_model_costs_one_sweep_as_do_copies_and_checkpoints(
    tmp_path: Path,
) -> None:
    model = CASES["probit"].model(alpha=0.5)
    first = model.update_sites()
    assert first.converged and first.num_sweeps > 2
    assert first.residual < TIGHT
    again = model.update_sites()
    assert again.converged and again.num_sweeps == 1
    assert model.last_inference == again
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    read = CASES["probit"].model(alpha=0.5)
    twin = gpflow.utilities.deepcopy(model)
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
    # Two, and two of the fallback, too few for "continuation".
    assert record.num_sweeps == 4
    expected = _expected_log_z("probit", "alpha 0.5")
    for options in (
        {"max_sweeps": 100},
        {"damping": 0.3, "max_sweeps": 500, "fresh": True},
    ):
        assert model.update_sites(**options).converged
        assert_close(model.pep_log_marginal_likelihood(), expected)


def test_log_z_does_not_depend_on_where_the_sites_start(
    rng: np.random.Generator,
) -> None:
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
    assert (
        CASES["probit"].model(alpha=0.5, tolerance=1e-3).loss_tolerance.numpy() == 0.0
    )


@pytest.mark.slow
def test_a_fixed_point_that_is_found_from_smaller_powers() -> None:
    """Outliers under Student's t at power 1, where no sites are far from every fixed
    point.
    """
    stress = helpers.load_example("benchmarks/stress.py")
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
OF_LIKELIHOOD = {"Gaussian": "variance", "Gamma": "shape", "Ordinal": "sigma"}
OF_LIKELIHOOD |= {"Beta": "scale", "Student-t": "scale"}
OF_ALL = {
    ".kernel.variance",
    ".kernel.lengthscales",
    ".inducing_variable.Z",
    ".mean_function.c",
}


@pytest.mark.near_copies("Poisson-alpha 0", "RobustMax-alpha 0", "probit-alpha 0.5")
@pytest.mark.parametrize("power", ["alpha 0", "alpha 0.5", "alpha 1", "alpha per row"])
@each_case
def test_loss_gradient_is_the_finite_difference(name: str, power: str) -> None:
    model, loss, loss_and_gradients, variables = compiled(name)
    of_likelihood = (
        {f".likelihood.{OF_LIKELIHOOD[name]}"} if name in OF_LIKELIHOOD else set()
    )
    assert variables.keys() == OF_ALL | of_likelihood
    model.alpha.assign(ALPHAS[power])
    actual = loss_and_gradients()[1]
    sizes = [float(np.max(np.abs(part))) for part in actual]
    assert min(sizes) > 1e-3, "the loss hardly depends on one of them"
    # A variable with a small gradient is differenced out of a loss that is large.
    tolerance = {"rtol": 1e-6, "scale": 0.01 * max(sizes)}
    helpers.assert_gradients(loss, [*variables.values()], actual, **tolerance)


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


# Where other models coincide with it.

#: Of a rule with 150 points.
SVGP_RTOL = {
    "probit": 1e-7,
    "logit": 1e-7,
    "Poisson": 1e-8,
    "Student-t": 1e-6,
    "RobustMax": 1e-7,
}


def _svgp(name: str) -> gpflow.models.SVGP:
    case = CASES[name]
    likelihood = case.likelihood()
    if isinstance(likelihood, gpflow.likelihoods.MultiClass):
        likelihood.num_gauss_hermite_points = 150
        likelihood.invlink._squash = 0.0  # it clips its normal distribution functions
    else:
        likelihood.quadrature = gpflow.quadrature.NDiagGHQuadrature(1, 150)
    options = {"mean_function": case.mean_function(), "num_latent_gps": case.num_latent}
    parts = case.problem.kernel(), likelihood, case.problem.Z
    return gpflow.models.SVGP(*parts, **options, whiten=False)


@pytest.mark.parametrize("name", SVGP_RTOL)
@pytest.mark.near_copies("Poisson", "probit")
def test_alpha_0_is_svgp_at_its_best_q(name: str) -> None:
    """At our q(u) SVGP's bound is our log Z, predictions are ours, and its gradient is
    zero.
    """
    case = CASES[name]
    svgp = _svgp(name)
    rtol = SVGP_RTOL[name]
    model, loss, *_ = compiled(name)
    model.alpha.assign(ALPHAS["alpha 0"])
    log_z = -loss()
    mean, covariance = model.compute_qu()
    svgp.q_mu.assign(mean)
    svgp.q_sqrt.assign(tf.linalg.cholesky(covariance))
    data = case.problem.X, case.Y
    assert_close(log_z, svgp.elbo(data), rtol=rtol)
    moments, expected = (
        one.predict_f(case.problem.Xnew, full_cov=True) for one in (model, svgp)
    )
    assert_all_close(moments, expected, rtol=100.0 * rtol)
    q = [part.unconstrained_variable for part in (svgp.q_mu, svgp.q_sqrt)]

    def steepness() -> float:
        return max(
            np.max(np.abs(part)) for part in gradients(lambda: svgp.elbo(data), q)
        )

    at_the_best = steepness()
    svgp.q_mu.assign(mean + 0.1)
    assert at_the_best < 1e-6 * steepness()


@pytest.mark.near_copies("alpha 0.5", "alpha per row")
@pytest.mark.parametrize("power", ALPHAS)
def test_gaussian_likelihood_is_regression(power: str) -> None:
    case = CASES["Gaussian"]
    alpha = ALPHAS[power]
    model = case.model(alpha=alpha)
    regression = case.regression(alpha=alpha)
    # BYT17, Remark 4: from no sites one undamped sweep; the other one finds nothing
    # left to do.
    record = model.update_sites()
    assert record.converged and record.num_sweeps == 2
    assert_close(
        model.pep_log_marginal_likelihood(), regression.pep_log_marginal_likelihood()
    )
    moments, expected = (
        m.predict_f(case.problem.Xnew, full_cov=True) for m in (model, regression)
    )
    assert_all_close(moments, expected)


def test_log_z_does_not_lose_its_digits_to_precise_sites() -> None:
    """Rows that know nothing of each other, where sites say 1e18 times what the prior
    does.
    """
    variance, noise = 2.0**40, 1e-6  # its root is a float, so that Kuu loses nothing
    X = np.linspace(0.0, 1e6, 7)[:, None]
    Y = 1e6 * np.sin(X)
    likelihood = gpflow.likelihoods.Gaussian(noise, variance_lower_bound=0.1 * noise)
    model = pep.PEP((X, Y), gpflow.kernels.SquaredExponential(variance), likelihood, X)
    expected = np.sum(scipy.stats.norm.logpdf(Y, scale=np.sqrt(variance + noise)))
    for alpha in (0.0, 1e-6, 0.3, 0.5):
        model.alpha.assign(alpha)
        assert_close(model.pep_log_marginal_likelihood(), expected)


@pytest.mark.near_copies("probit*")
@pytest.mark.parametrize(
    "name, alpha",
    [("Gaussian", 0.5), ("probit", 1.0), ("Poisson", 0.5), ("Gaussian", 0.0)],
)
def test_leave_one_out_is_a_refit_without_the_row(name: str, alpha: float) -> None:
    """Exact for Gaussian noise, as other rows' sites do not depend on the row; near
    otherwise.
    """
    case = CASES[name]
    exact = name == "Gaussian"
    actual = case.model(alpha=alpha).loo_log_density().numpy()
    for row in range(N) if exact else (1, 4):
        rest = {"data": case.rows(np.arange(N) != row), "alpha": alpha}
        refitted = (
            case.regression(**rest) if exact else case.model(**rest, tolerance=None)
        )
        expected = refitted.predict_log_density(case.rows([row]))
        assert_close(actual[row], expected[0], rtol=1e-8 if exact else 0.02)


@pytest.mark.parametrize("name", ["probit", "Poisson", "RobustMax"])
def test_continuous_in_alpha_at_0(name: str) -> None:
    model, loss, *_ = compiled(name)
    values = []
    for alpha in (0.0, 1e-12, 1e-6):
        model.alpha.assign(np.full(N, alpha))
        values.append(float(loss()))
    assert_close(values[1], values[0], rtol=1e-11)
    assert_close(values[2], values[0], rtol=1e-5)
    assert values[2] != values[0]


# By minibatches: the same loss and gradient on average, and the same sites in the end.

BATCH = N // 2


def _loss(model: Any, **options: Any) -> Any:
    return model.minibatch_training_loss_closure(
        **{"batch_size": BATCH, "seed": 0, **options}
    )


@pytest.mark.parametrize(
    "name, power",
    [
        ("probit", "alpha 0"),
        ("Student-t", "alpha per row"),
        ("RobustMax", "alpha per row"),
    ],
)
@pytest.mark.near_copies
def test_batches_add_up_to_the_whole(name: str, power: str) -> None:
    """At the fixed point sites stay where they are, and the batches' mean is the full
    batch.
    """
    assert N % BATCH == 0
    model, whole, *_ = compiled(name)
    model.alpha.assign(ALPHAS[power])
    value, gradient = value_and_gradients(whole, model.trainable_variables)
    sites = [part.numpy() for part in model.read_sites()]
    loss = _loss(model)
    count = N // BATCH
    of_each = [
        value_and_gradients(loss, model.trainable_variables) for _ in range(count)
    ]
    values, slopes = zip(*of_each)
    assert np.ptp(values) > 1e-3
    assert_close(np.mean(values), value, rtol=1e-7)
    assert_all_close(
        [np.mean(parts, axis=0) for parts in zip(*slopes)], gradient, rtol=1e-6
    )
    assert_all_close(model.read_sites(), sites, rtol=1e-6)


@pytest.mark.slow
def test_sites_get_to_the_fixed_point_batch_by_batch() -> None:
    model, expected = (CASES["probit"].model(alpha=0.5) for _ in range(2))
    expected.update_sites()
    loss = _loss(model)
    for _ in range(40):
        loss()
    assert_all_close(model.read_sites(), expected.read_sites(), rtol=1e-4)
    assert model.update_sites().num_sweeps < expected.last_inference.num_sweeps


@pytest.mark.slow
def test_the_seed_decides() -> None:
    model = CASES["probit"].model(alpha=0.5)

    def losses(seed: int, compile: bool) -> list[float]:
        for part in (model.sites.nu, model.sites.tau):
            part.assign(tf.zeros_like(part))
        loss = _loss(model, batch_size=4, seed=seed, compile=compile)
        return [float(loss()) for _ in range(4)]

    first = losses(1, compile=True)
    assert_close(losses(1, compile=False), first, rtol=1e-9)
    assert not np.allclose(losses(2, compile=False), first)


@pytest.mark.slow
def test_totals_are_those_of_the_parameters_after_an_epoch() -> None:
    """With stale totals the loss is another one; a refresh mends it."""
    model = CASES["probit"].model(alpha=0.5)
    model.update_sites()
    loss = _loss(model, batch_size=N, refresh_every=2)
    loss()
    model.kernel.variance.assign(2.0)
    stale = float(loss())
    refreshed = float(loss())
    for _ in range(20):
        settled = float(loss())
    expected = float(model.training_loss())
    assert_close(settled, expected, rtol=1e-6)
    assert abs(refreshed - expected) < abs(stale - expected)


@pytest.mark.slow
def test_improper_sites_are_mended() -> None:
    """Negative precisions that fit no longer: they are given up, and nothing is NaN."""
    model = CASES["Student-t"].model(alpha=0.5)
    model.sites.tau.assign(np.full([N, 1], -50.0))
    loss = _loss(model, compile=False)
    assert np.all(np.isfinite([loss().numpy() for _ in range(6)]))
    assert model.update_sites().converged


@pytest.mark.slow
def test_data_of_another_length_are_refused() -> None:
    X = np.random.default_rng(0).standard_normal((12, 1))
    Y = np.ones((12, 1))
    data = tuple(tf.Variable(part, shape=[None, 1], trainable=False) for part in (X, Y))
    parts = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian()
    loss = _loss(pep.models.PEP(data, *parts, X[:3]), batch_size=4)
    loss()
    for variable, value in zip(data, (X, Y)):
        variable.assign(value[:8])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Make the loss again"):
        loss()
