"""Reference values of high accuracy on nine rows: of the references, and of
the models.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
from cases.pep import (
    CASES,
    EPSILON,
    plain_probit_link,
    poisson_log_density,
    probit_log_density,
)
from gpflow.functions import Constant, Linear
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
)
from gpflow.kernels import SeparateIndependent, SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, Poisson
from helpers import assert_close, golden_problem

import gpflow_pep as pep
from reference import regression as reference
from reference import sites as pep_reference

#: The values are correct to the digits shown; jitter 0.
ATOL = 2e-10
PROBLEM, MEAN, NOISE_OF_ROW, BLOCKS, ALPHA_OF_BLOCK = golden_problem()
(X, Y), Z = PROBLEM.data, PROBLEM.Z
TARGETS = {
    "labels": np.where(Y > 0.1, 1.0, 0.0),
    "counts": np.round(np.exp(Y)),
    "classes": (
        1.0
        * np.argmax(
            [np.sin(3.0 * X[:, 0]), np.cos(2.0 * X[:, 1]), np.full(9, 0.3)], axis=0
        )[:, None]
    ),
}


@pytest.fixture(autouse=True)
def no_jitter() -> Iterator[None]:
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-16)):
        yield


def _regression(alpha: Any, of_rows: bool) -> tuple[tuple[Any, ...], pep.PEPRegression]:
    """The reference's arguments and a model; with noise, block and power of each row,
    or not.
    """
    blocks, noise = (BLOCKS, NOISE_OF_ROW) if of_rows else (None, np.full(9, 0.05))
    # The rows' inputs -1 + n/4 make 0.02 + 0.01 n linear in them: 0.06 + 0.04 x.
    likelihood = Gaussian(
        Linear(np.array([[0.04], [0.0]]), np.array([0.06])) if of_rows else 0.05
    )
    options = {
        "blocks": blocks,
        "likelihood": likelihood,
        "mean_function": Constant(MEAN),
    }
    model = pep.PEPRegression(PROBLEM.data, PROBLEM.kernel(), Z, alpha=alpha, **options)
    factors = reference.make_factors(9, alpha, blocks)
    return (PROBLEM.prior(jitter=0.0), Y - MEAN, noise, factors), model


def _assert_golden(actual: Any, expected: float, tolerance: float = ATOL) -> None:
    assert float(actual) == pytest.approx(expected, rel=0.0, abs=tolerance)


@pytest.mark.parametrize(
    "alpha, of_rows, expected",
    [
        (0.0, False, -39.7297455185),
        (0.5, False, -14.4752081809),
        (1.0, False, -9.3547292403),
        (ALPHA_OF_BLOCK, True, -33.9082299257),
    ],
)
def test_regression(alpha: Any, of_rows: bool, expected: float) -> None:
    arguments, model = _regression(alpha, of_rows)
    for log_z in (reference.pep_log_z(*arguments), model.pep_log_marginal_likelihood()):
        _assert_golden(log_z, expected)


def test_predictions_of_regression() -> None:
    arguments, model = _regression(0.5, False)
    Xnew = PROBLEM.Xnew
    covariance = PROBLEM.covariance
    mean, cov = reference.pep_predict(
        *arguments, covariance(Z, Xnew), covariance(Xnew, Xnew)
    )
    of_model = model.predict_f(Xnew, full_cov=True)
    for first, second in ((mean[0] + MEAN, cov), (of_model[0][0], of_model[1][0])):
        _assert_golden(first[0], 0.1109158901)
        _assert_golden(second[1, 1], 0.2387483927)
    exact = reference.exact_log_marginal_likelihood(
        covariance(X, X), Y - MEAN, np.full(9, 0.05)
    )
    _assert_golden(exact, -8.0084448244)


_plain_probit = partial(Bernoulli, invlink=plain_probit_link)
#: Targets, log density, likelihood, and the relative error of the model's quadrature.
KINDS: dict[str, tuple[str, Callable[..., Any], Callable[[], Any], float]] = {
    "plain probit": (
        "labels",
        lambda f, y: probit_log_density(f, y, 0.0),
        _plain_probit,
        1e-8,
    ),
    "probit": ("labels", probit_log_density, Bernoulli, 1e-10),
    "Poisson": ("counts", poisson_log_density, Poisson, 1e-10),
}


@pytest.mark.near_copies("plain probit-0.5*")
@pytest.mark.parametrize(
    "kind, alpha, expected",
    [
        ("plain probit", 0.0, -5.6554571323),
        ("plain probit", 0.5, -5.3710956836),
        ("plain probit", 1.0, -5.1368435603),
        ("probit", 0.5, -5.3737323838),
        ("Poisson", 0.5, -14.1259004957),
    ],
)
def test_sites(kind: str, alpha: float, expected: float) -> None:
    name, log_density, likelihood, rtol = KINDS[kind]
    densities = [lambda f, y=y: log_density(f, y) for y in TARGETS[name][:, 0]]
    factors = [*map(pep_reference.scalar_factor, densities)]
    prior = PROBLEM.prior(jitter=0.0)
    means = np.full([9, 1], MEAN)
    problem = pep_reference.Problem([prior], means, factors, np.full(9, alpha))
    sites = pep_reference.fixed_point(problem)
    _assert_golden(pep_reference.log_z(problem, sites), expected)
    options = {"alpha": alpha, "mean_function": Constant(MEAN), "tolerance": 1e-11}
    model = pep.PEP((X, TARGETS[name]), PROBLEM.kernel(), likelihood(), Z, **options)
    assert_close(model.pep_log_marginal_likelihood(), expected, rtol=rtol)
    if (kind, alpha) == ("plain probit", 0.5):
        site = sites[2][0]
        w = problem.direction(2, 0)
        of_reference = site.T1 @ w / (w @ w), w @ site.T2 @ w / (w @ w) ** 2
        of_model = float(model.sites.nu[2, 0]), float(model.sites.tau[2, 0])
        for (nu, tau), tolerance in ((of_reference, ATOL), (of_model, 3e-8)):
            _assert_golden(nu / tau, -2.3392408912, tolerance)
            _assert_golden(1.0 / tau, 3.2030877083, tolerance)


@pytest.mark.slow
@pytest.mark.near_copies("0.5-*")
@pytest.mark.parametrize(
    "alpha, expected",
    [(0.0, -26.0547220462), (0.5, -17.1622919880), (1.0, -11.6639524167)],
)
def test_three_classes(alpha: float, expected: float) -> None:
    """Another kernel and other inducing inputs for each class."""
    classes = [
        (Z, 1.3, [0.7, 1.1]),
        (Z + 0.1, 0.8, [0.9, 0.9]),
        (Z[:3] - 0.05, 1.1, [0.6, 1.3]),
    ]
    priors = [reference.squared_exponential_prior(X, *parts) for parts in classes]
    labels = TARGETS["classes"]
    high = 1.0 - EPSILON
    low = EPSILON / 2.0
    factors = [
        pep_reference.largest_latent_factor(int(y), high, low) for y in labels[:, 0]
    ]
    problem = pep_reference.Problem(
        priors, np.full([9, 3], MEAN), factors, np.full(9, alpha)
    )
    value = pep_reference.log_z(problem, pep_reference.fixed_point(problem))
    _assert_golden(value, expected)
    # As many for each, as GPflow wants: one is so far away that no row sees it.
    far = [np.full([4 - len(inputs), 2], 1e3) for inputs, *_ in classes]
    points = [
        InducingPoints(np.vstack([one[0], more])) for one, more in zip(classes, far)
    ]
    kernel = SeparateIndependent(
        [SquaredExponential(*parameters) for _, *parameters in classes]
    )
    several = SeparateIndependentInducingVariables(points)
    mean = Constant(np.full(3, MEAN))
    options = {"mean_function": mean, "alpha": alpha, "tolerance": 1e-11}
    model = pep.PEP(
        (X, labels), kernel, CASES["RobustMax"].likelihood(), several, **options
    )
    assert_close(model.pep_log_marginal_likelihood(), expected, rtol=1e-9)


def test_tied_models() -> None:
    i = np.arange(4.0)

    def check(kind: Any, alpha: float, q_mu: Any, q_sqrt: Any, expected: float) -> None:
        q = {
            "q_mu": q_mu[:, None],
            "q_sqrt": q_sqrt[None],
            "whiten": False,
            "num_data": 9,
        }
        parts = PROBLEM.kernel(), _plain_probit(), Z
        model = kind(*parts, alpha=alpha, mean_function=Constant(MEAN), **q)
        value = model.pep_log_marginal_likelihood((X, TARGETS["labels"]))
        assert_close(value, expected, rtol=1e-10)

    root = np.diag(0.6 + 0.05 * i) + np.tril(0.1 * np.sin(i[:, None] + 2.0 * i), -1)
    free = 0.5 * np.cos(1.0 + i), root
    check(pep.ARPEP, 0.5, *free, -8.7780700882)
    for kind in (pep.APEP, pep.ARPEP, pep.RPAPEP):
        check(kind, 0.0, *free, -10.1486075279)
    E = np.cos(i[:, None] * (1.0 + i))
    precision = np.linalg.inv(PROBLEM.prior(0.0).Kuu) + 0.4 * E @ E.T + 0.3 * np.eye(4)
    covariance = np.linalg.inv(precision)
    with_sites = covariance @ np.sin(1.0 + 2.0 * i), np.linalg.cholesky(covariance)
    check(pep.APEP, 0.5, *with_sites, -8.0596823488)
