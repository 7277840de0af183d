"""What every model, mixture, estimator and saved model predicts is as accurate as its
integrals.
"""

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
from helpers import assert_close
from reference import tilted as reference
from scipy.special import gammaln
from scipy.stats import norm
from scipy.stats import t as student

import gpflow_pep as pep

L = gpflow.likelihoods
K = gpflow.kernels
X = np.linspace(-2.0, 2.0, 20)[:, None]
F = np.sin(3.0 * X)
Z = X[::4].copy()
EDGES = np.array([-0.5, 0.5])
#: Near the rows, and further and further away from them.
XNEW = np.array([[0.1], [2.3], [4.0], [9.0]])
Density = Any


def _student(y: float, mean: float, variance: float, scale: float = 0.02) -> float:
    def density(f):
        return student.logpdf(y, 3.0, f, scale)

    return reference.log_power_expectation(density, mean, variance, 1.0, [y])


def _poisson(y: float, mean: float, variance: float) -> float:
    def density(f):
        return y * f - np.exp(np.minimum(f, 600.0)) - gammaln(y + 1.0)

    return reference.log_power_expectation(density, mean, variance, 1.0, [np.log(y)])


COUNTS = np.floor(np.exp(2.0 + F))
OTHERS = np.array([[5.0], [900.0], [20.0], [1.0]])
#: A likelihood, its targets, new targets and their density.
KINDS: dict[str, tuple[Any, Any, Any, Density]] = {
    "StudentT": (lambda: L.StudentT(0.02, 3.0), F, np.sin(3.0 * XNEW) + 0.1, _student),
    "Poisson": (L.Poisson, COUNTS, OTHERS, _poisson),
}
RULES: list[Density] = [partial(_student, scale=0.5), _poisson]


def _pep(*parts: Any) -> Any:
    return pep.PEP(*parts, Z.copy(), alpha=1.0)


def _tied(kind: type, data: Any, kernel: Any, likelihood: Any) -> Any:
    return kind(kernel, likelihood, Z.copy(), num_data=20)


MODELS: dict[str, Any] = {
    "PEP": _pep,
    **{
        kind.__name__: partial(_tied, kind)
        for kind in (pep.APEP, pep.ARPEP, pep.RPAPEP)
    },
    "Ensemble": lambda *parts: pep.training.ensemble_of_models([_pep(*parts)]),
}


@pytest.mark.near_copies("PEP-*", "Ensemble-StudentT", "ARPEP-Poisson")
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", list(MODELS))
def test_densities(name: str, kind: str) -> None:
    create, Y, targets, density = KINDS[kind]
    model = MODELS[name](
        (X, Y), K.Matern32(25.0 if kind == "Poisson" else 1.0), create()
    )
    mean, variance = (np.asarray(part)[:, 0] for part in model.predict_f(XNEW))
    expected = [
        density(*row) for row in zip(targets[:, 0], mean, variance, strict=True)
    ]
    np.testing.assert_allclose(
        model.predict_log_density((XNEW, targets)), expected, rtol=1e-6
    )


@pytest.mark.near_copies("mixed")
@pytest.mark.parametrize("sources", ["shared", "mixed"])
def test_densities_of_several_columns(sources: str) -> None:
    kernel = K.Matern32(4.0)
    likelihood = pep.likelihoods.PerOutput([L.StudentT(0.5), L.Poisson()])
    if sources == "mixed":
        kernel = K.LinearCoregionalization([kernel], W=[[0.5], [1.0]])
    data = X, np.hstack([F, COUNTS])
    model = pep.PEP(data, kernel, likelihood, Z.copy(), alpha=1.0, max_sweeps=20)
    targets = np.hstack([np.sin(3.0 * XNEW) + 0.1, OTHERS])
    mean, variance = map(np.asarray, model.predict_f(XNEW))
    rows = zip(targets, mean, variance)
    expected = [
        sum(rule(*of_one) for rule, *of_one in zip(RULES, *row)) for row in rows
    ]
    np.testing.assert_allclose(
        model.predict_log_density((XNEW, targets)), expected, rtol=1e-6
    )
    rate = np.exp(mean[:, 1] + variance[:, 1] / 2)
    right = rate + rate**2 * np.expm1(variance[:, 1])
    np.testing.assert_allclose(model.predict_y(XNEW)[1][:, 1], right, rtol=1e-9)


@pytest.mark.parametrize(
    "likelihood", [L.MultiClass(3), L.Softmax(3), L.Ordinal(EDGES)]
)
def test_classes_have_densities_for_the_labels_that_the_model_takes(
    likelihood: Any,
) -> None:
    count = getattr(likelihood, "num_classes", 1)
    q_mu = np.random.default_rng(1).normal(size=(len(Z), count))
    options: dict[str, Any] = {"num_data": 20, "num_latent_gps": count, "q_mu": q_mu}
    model = pep.ARPEP(K.Matern32(4.0), likelihood, Z.copy(), **options)
    probability = np.exp(
        [model.predict_log_density((XNEW, XNEW * 0.0 + c)) for c in range(3)]
    )
    total = 1.0 - 2e-3 + 3e-6 if isinstance(likelihood, L.Ordinal) else 1.0
    np.testing.assert_allclose(probability.sum(axis=0), total, rtol=5e-6)
    mean = np.asarray(model.predict_y(XNEW)[0])
    right = (
        probability.T
        if mean.shape[1] == 3
        else probability.T @ [[0.0], [1.0], [2.0]] / total
    )
    np.testing.assert_allclose(mean, right, rtol=5e-6)
    assert np.array_equal(mean, model.predict_y(XNEW)[0])


def test_gaussian_noise_and_full_covariances() -> None:
    model = pep.PEPRegression((X, F), K.Matern32(), Z.copy(), noise_variance=0.1)
    mean, variance = map(np.asarray, model.predict_f(XNEW))
    expected = norm.logpdf(0.3, mean, np.sqrt(variance + 0.1))[:, 0]
    assert_close(model.predict_log_density((XNEW, 0.3 + 0.0 * XNEW)), expected)
    model = MODELS["PEP"]((X, F), K.Matern32(), L.StudentT())
    for method, argument in (
        (model.predict_y, XNEW),
        (model.predict_log_density, (XNEW, XNEW)),
    ):
        with pytest.raises(NotImplementedError):
            method(argument, full_cov=True)
