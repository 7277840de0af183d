"""What Power EP knows of each row: moments that match, and contributions that add up to log Z."""

from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.integrate
import tensorflow as tf
from cases.pep import ALPHAS, CASES, poisson_log_density
from helpers import assert_close, regression_problem

import gpflow_pep as pep
from gpflow_pep.energies.row_terms import RowTerms

NAMES = ("probit", "Poisson", "Student-t", "RobustMax")


def assert_adds_up(model: Any, terms: RowTerms) -> None:
    log_z = model.pep_log_marginal_likelihood()
    assert_close(tf.reduce_sum(terms.contribution), log_z, rtol=1e-10)


@pytest.mark.near_copies
@pytest.mark.parametrize("name", NAMES)
def test_terms_of_sites(name: str) -> None:
    model = CASES[name].model(alpha=ALPHAS["alpha per row"])
    for power in ("alpha 0", "alpha per row", "alpha 1"):
        model.alpha = ALPHAS[power]
        terms = model.row_terms()
        assert_adds_up(model, terms)
        assert_close(terms.tilted_mean, terms.mean)
        assert_close(terms.tilted_variance, terms.variance)
        assert_close(terms.loo_log_density, model.loo_log_density())
        assert_close(terms.nu, model.sites.nu)
        assert_close(terms.tau, model.sites.tau)
        precision = 1.0 / terms.variance - ALPHAS[power][:, None] * terms.tau
        assert_close(terms.cavity_variance, 1.0 / precision)
        mean, variance = model.predict_f(model.data[0])
        assert_close(terms.mean + terms.prior_mean, mean)
        assert_close(terms.variance + terms.residual_variance, variance, rtol=1e-5)  # jitter


def test_tilted_moments_are_those_of_an_integral() -> None:
    """Over h, and over the residual, by SciPy."""
    alpha, row = 0.3, 2
    model = CASES["Poisson"].model(alpha=alpha)
    at = {key: part.numpy()[row] for key, part in model.row_terms()._asdict().items()}
    (y,), (d,), (mu,) = model.data[1].numpy()[row], at["residual_variance"], at["prior_mean"]
    (m,), (s,) = at["cavity_mean"], at["cavity_variance"]

    def moment(power: int) -> float:
        def term(z: float, h: float) -> float:
            log_cavity = -0.5 * (h - m) ** 2 / s - 0.5 * z**2 - np.log(2.0 * np.pi * np.sqrt(s))
            log_density = poisson_log_density(np.array(h + mu + z * np.sqrt(d)), y)
            return float(h**power * np.exp(log_cavity + alpha * log_density))

        low, high = m - 8.0 * np.sqrt(s), m + 8.0 * np.sqrt(s)
        return float(scipy.integrate.dblquad(term, low, high, -8.0, 8.0, epsrel=1e-9)[0])

    total, first, second = map(moment, range(3))
    assert_close(at["log_normaliser"], np.log(total) / alpha, rtol=1e-7)
    assert_close(at["tilted_mean"][0], first / total, rtol=1e-7)
    assert_close(at["tilted_variance"][0], second / total - (first / total) ** 2, rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_regression_has_the_terms_of_its_sites(alpha: float) -> None:
    model = CASES["Gaussian"].regression(alpha=alpha)
    terms = model.row_terms()
    assert_adds_up(model, terms)
    for part, other in zip(terms, CASES["Gaussian"].model(alpha=alpha).row_terms(), strict=True):
        assert_close(part, other)


def test_regression_of_several_outputs_in_chunks() -> None:
    problem = regression_problem(num_outputs=2)
    models = [problem.model(pep.PEPRegression, chunk_size=size) for size in (None, 5)]
    whole, in_chunks = (model.row_terms() for model in models)
    assert_adds_up(models[0], whole)
    assert whole.nu.shape == (17, 2) and whole.contribution.shape == (17,)
    for part, other in zip(whole, in_chunks, strict=True):
        assert_close(part, other)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_terms_with_a_scaled_conditional(alpha: float) -> None:
    options = {"alpha": alpha, "conditional": "scaled"}
    for model in (CASES["probit"].model(**options), CASES["Gaussian"].regression(**options)):
        assert_adds_up(model, model.row_terms())


def test_table() -> None:
    table = CASES["RobustMax"].model().row_terms().frame()
    assert {"nu_0", "tau_2", "contribution", "loo_log_density"} <= set(table.columns)
    assert table.shape == (10, 3 * 10 + 3)
    single = CASES["probit"].model().row_terms()
    assert list(single.frame().columns) == list(RowTerms._fields)
    assert_close(single.frame()["tau"], single.tau[:, 0])


def test_refusals() -> None:
    problem = regression_problem()
    regression = problem.model(pep.PEPRegression)
    variable = regression.kernel.variance.unconstrained_variable
    remembering = problem.model(pep.PEPRegression, memory=regression.remember())
    tied = pep.ARPEP(problem.kernel(), gpflow.likelihoods.Gaussian(), problem.Z, num_data=17)
    blocks = problem.model(pep.PEPRegression, blocks=np.arange(17) // 5)
    scaled = problem.model(pep.PEPRegression, conditional="scaled")
    for model, message in (
        (remembering, "row_terms: got a model with a memory"),
        (tied, "got ARPEP, whose rows share one site"),
        (blocks, "blocks or neighbours"),
        (scaled, "row_terms: got a power between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            model.row_terms()
    with tf.GradientTape() as tape:
        terms = regression.row_terms()
    with pytest.raises(ValueError, match="derivative of row_terms"):
        tape.gradient(terms.tau, variable)
