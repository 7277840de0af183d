"""PEP where other models are known to coincide with it."""

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from cases.pep import ALPHAS, CASES, TIGHT, N, compiled, plain_probit_link
from helpers import assert_all_close, assert_close, golden_problem, gradients
from reference import sites as pep_reference
from reference.regression import squared_exponential

import gpflow_pep as pep

NUM_QUADRATURE = 150
#: Of the rule with so many points.
SVGP_RTOL = {"probit": 1e-7, "logit": 1e-7, "Poisson": 1e-8, "Student-t": 1e-6, "RobustMax": 1e-7}


def _svgp(name: str) -> gpflow.models.SVGP:
    case = CASES[name]
    likelihood = case.likelihood()
    if isinstance(likelihood, gpflow.likelihoods.MultiClass):
        likelihood.num_gauss_hermite_points = NUM_QUADRATURE
        likelihood.invlink._squash = 0.0  # it clips its normal distribution functions
    else:
        likelihood.quadrature = gpflow.quadrature.NDiagGHQuadrature(1, NUM_QUADRATURE)
    return gpflow.models.SVGP(
        case.problem.kernel(),
        likelihood,
        case.problem.Z,
        mean_function=case.mean_function(),
        num_latent_gps=case.num_latent,
        whiten=False,
    )


@pytest.mark.parametrize("name", SVGP_RTOL)
@pytest.mark.near_copies("Poisson", "probit")
def test_alpha_0_is_svgp_at_its_best_q(name: str) -> None:
    """At our q(u) SVGP's bound is our log Z, predictions are ours, and its gradient is zero."""
    case, svgp, rtol = CASES[name], _svgp(name), SVGP_RTOL[name]
    model, loss, *_ = compiled(name)
    model.alpha.assign(ALPHAS["alpha 0"])
    log_z = -loss()
    mean, covariance = model.compute_qu()
    svgp.q_mu.assign(mean)
    svgp.q_sqrt.assign(tf.linalg.cholesky(covariance))
    data = case.problem.X, case.Y
    assert_close(log_z, svgp.elbo(data), rtol=rtol)
    assert_all_close(
        model.predict_f(case.problem.Xnew, full_cov=True),
        svgp.predict_f(case.problem.Xnew, full_cov=True),
        rtol=100.0 * rtol,
    )

    def steepness() -> float:
        of_q = gradients(
            lambda: svgp.elbo(data),
            [svgp.q_mu.unconstrained_variable, svgp.q_sqrt.unconstrained_variable],
        )
        return max(float(np.max(np.abs(gradient))) for gradient in of_q)

    at_the_best = steepness()
    svgp.q_mu.assign(mean + 0.1)
    assert at_the_best < 1e-6 * steepness()


@pytest.mark.parametrize("power", ALPHAS)
def test_gaussian_likelihood_is_regression(power: str) -> None:
    case = CASES["Gaussian"]
    model = case.model(alpha=ALPHAS[power])
    regression = case.regression(alpha=ALPHAS[power])
    # BYT17, Remark 4: from no sites one undamped sweep; the other one finds nothing left to do.
    record = model.update_sites()
    assert record.converged
    assert record.num_sweeps == 2
    assert_close(model.pep_log_marginal_likelihood(), regression.pep_log_marginal_likelihood())
    assert_all_close(
        model.predict_f(case.problem.Xnew, full_cov=True),
        regression.predict_f(case.problem.Xnew, full_cov=True),
    )


def test_log_z_does_not_lose_its_digits_to_precise_sites() -> None:
    """Rows that know nothing of each other: log Z is that of each, where sites say 1e18 times what
    the prior does, and the paper's terms are 1e18 times their sum."""
    variance, noise = 2.0**40, 1e-6  # its root is a float, so that Kuu loses nothing
    X = np.linspace(0.0, 1e6, 7)[:, None]
    Y = 1e6 * np.sin(X)
    model = pep.models.PEP(
        (X, Y),
        gpflow.kernels.SquaredExponential(variance=variance),
        gpflow.likelihoods.Gaussian(variance=noise, variance_lower_bound=0.1 * noise),
        X,
    )
    expected = np.sum(scipy.stats.norm.logpdf(Y, scale=np.sqrt(variance + noise)))
    for alpha in (0.0, 1e-6, 0.3, 0.5):
        model.alpha.assign(alpha)
        assert_close(model.pep_log_marginal_likelihood(), expected)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.near_copies("0.5")
def test_leave_one_out_is_regression_without_the_row(alpha: float) -> None:
    """Exact for Gaussian noise: the other rows' sites do not depend on the row."""
    case = CASES["Gaussian"]
    actual = case.model(alpha=alpha).loo_log_density()
    expected = []
    for row in range(N):
        refitted = case.regression(data=case.rows(np.arange(N) != row), alpha=alpha)
        expected.append(refitted.predict_log_density(case.rows([row])).numpy()[0])
    assert_close(actual, expected)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
@pytest.mark.parametrize("name", ["probit", "Poisson"])
@pytest.mark.near_copies("probit-1.0")
def test_leave_one_out_is_near_a_refit(name: str, alpha: float) -> None:
    case = CASES[name]
    actual = case.model(alpha=alpha).loo_log_density().numpy()
    for row in (1, 4):
        rest = case.rows(np.arange(N) != row)
        refitted = case.model(data=rest, alpha=alpha, tolerance=None)
        left_out = refitted.predict_log_density(case.rows([row]))
        assert_close(actual[row], left_out[0], rtol=0.02)


def test_all_rows_as_inducing_inputs_at_alpha_1_is_textbook_ep() -> None:
    """Rasmussen & Williams (2006), section 3.6, whose probit is not squeezed."""
    gpflow.config.set_default_jitter(1e-12)
    golden = golden_problem().problem
    signs = np.array([1, -1, 1, 1, -1, 1, -1, -1, 1])
    likelihood = gpflow.likelihoods.Bernoulli(invlink=plain_probit_link)
    model = pep.models.PEP(
        (golden.X, 0.5 * (signs[:, None] + 1.0)),
        golden.kernel(),
        likelihood,
        golden.X,
        alpha=1.0,
        tolerance=TIGHT,
    )
    K = squared_exponential(golden.X, golden.X, golden.variance, golden.lengthscales)
    expected = pep_reference.classification_ep(K, signs)
    assert_close(model.pep_log_marginal_likelihood(), expected.log_z)
    assert_close(model.sites.nu[:, 0], expected.nu)
    assert_close(model.sites.tau[:, 0], expected.tau)
    mean, covariance = model.predict_f(golden.X, full_cov=True)
    assert_close(mean[:, 0], expected.mean)
    assert_close(covariance[0], expected.covariance)


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
