"""PEP where other models are known to coincide with it."""

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from cases.pep import ALPHAS, CASES, N, compiled
from helpers import assert_all_close, assert_close, gradients

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
    moments, expected = (one.predict_f(case.problem.Xnew, full_cov=True) for one in (model, svgp))
    assert_all_close(moments, expected, rtol=100.0 * rtol)
    q = [part.unconstrained_variable for part in (svgp.q_mu, svgp.q_sqrt)]

    def steepness() -> float:
        return max(np.max(np.abs(part)) for part in gradients(lambda: svgp.elbo(data), q))

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
    assert record.converged and record.num_sweeps == 2
    assert_close(model.pep_log_marginal_likelihood(), regression.pep_log_marginal_likelihood())
    moments, expected = (m.predict_f(case.problem.Xnew, full_cov=True) for m in (model, regression))
    assert_all_close(moments, expected)


def test_log_z_does_not_lose_its_digits_to_precise_sites() -> None:
    """Rows that know nothing of each other, where sites say 1e18 times what the prior does."""
    variance, noise = 2.0**40, 1e-6  # its root is a float, so that Kuu loses nothing
    X = np.linspace(0.0, 1e6, 7)[:, None]
    Y = 1e6 * np.sin(X)
    likelihood = gpflow.likelihoods.Gaussian(noise, variance_lower_bound=0.1 * noise)
    model = pep.PEP((X, Y), gpflow.kernels.SquaredExponential(variance), likelihood, X)
    expected = np.sum(scipy.stats.norm.logpdf(Y, scale=np.sqrt(variance + noise)))
    for alpha in (0.0, 1e-6, 0.3, 0.5):
        model.alpha.assign(alpha)
        assert_close(model.pep_log_marginal_likelihood(), expected)


@pytest.mark.parametrize(
    "name, alpha", [("Gaussian", 0.5), ("probit", 1.0), ("Poisson", 0.5), ("Gaussian", 0.0)]
)
@pytest.mark.near_copies("Gaussian-0.5", "probit-1.0")
def test_leave_one_out_is_a_refit_without_the_row(name: str, alpha: float) -> None:
    """Exact for Gaussian noise, as other rows' sites do not depend on the row; near otherwise."""
    case = CASES[name]
    exact = name == "Gaussian"
    actual = case.model(alpha=alpha).loo_log_density().numpy()
    for row in range(N) if exact else (1, 4):
        rest = {"data": case.rows(np.arange(N) != row), "alpha": alpha}
        refitted = case.regression(**rest) if exact else case.model(**rest, tolerance=None)
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
