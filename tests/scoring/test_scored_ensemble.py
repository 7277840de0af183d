"""Predictions of ensembles in NumPy against TensorFlow's posteriors."""

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.inducing_variables import InducingPoints
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from scipy.stats import norm

from gpflow_pep import PEPRegression
from gpflow_pep.estimators.describing import Describer
from gpflow_pep.estimators.numpy_parts import describe_posterior
from gpflow_pep.inducing_variables import BlurredInducingPoints
from gpflow_pep.scoring import ensemble
from gpflow_pep.scoring.predictive import Predictive
from gpflow_pep.scoring.stored import Reader
from gpflow_pep.scoring.units import Units
from gpflow_pep.training.choosing.ensemble import Ensemble, EnsemblePosterior, ensemble_posterior

RNG = np.random.default_rng(0)
X, XNEW = RNG.uniform(-2.0, 2.0, (40, 2)), RNG.uniform(-2.5, 2.5, (9, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.1 * RNG.normal(size=(40, 1))
Z = X[::4].copy()


def model(alpha: float = 0.5, noise: float = 0.05, **options: Any) -> PEPRegression:
    kernel = gpflow.kernels.SquaredExponential(1.2, [0.9, 1.1])
    return PEPRegression((X, Y), kernel, Z + alpha, alpha=alpha, noise_variance=noise, **options)


def three() -> EnsemblePosterior:
    models = [model(alpha, noise) for alpha, noise in ((0.0, 0.05), (0.5, 0.01), (1.0, 0.4))]
    return ensemble_posterior(Ensemble(models, np.array([0.2, 0.5, 0.3])))


def ensemble_parts(posterior: EnsemblePosterior) -> Any:
    """A posterior as the scorer reads it."""
    describe = Describer(values=True)
    return Reader(describe.arrays)(describe_posterior(posterior, describe))


def test_moments_of_f() -> None:
    posterior = three()
    prepared = ensemble.ensemble_of(ensemble_parts(posterior))
    for component, tensors in zip(prepared.components, posterior.posteriors, strict=True):
        for rows in (XNEW, XNEW[:1]):
            for new, expected in zip(
                ensemble.latent_moments(component, rows), tensors.predict_f(rows)
            ):
                assert_allclose(new, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("q_diag", [False, True])
def test_moments_of_several_latent_functions(q_diag: bool) -> None:
    q_sqrt = RNG.uniform(0.2, 0.9, (10, 3)) if q_diag else np.tril(RNG.normal(size=(3, 10, 10)))
    parts = gpflow.kernels.Matern52(0.8, [0.9, 1.1]), InducingPoints(Z)
    q_mu = RNG.normal(size=(10, 3))
    posterior = gpflow.posteriors.create_posterior(*parts, q_mu, q_sqrt, whiten=True)
    likelihood = gpflow.likelihoods.MultiClass(3)
    mixed = EnsemblePosterior([posterior], [posterior], [likelihood], [1.0])
    prepared = ensemble.ensemble_of(ensemble_parts(mixed))
    moments = ensemble.latent_moments(prepared.components[0], XNEW)
    for new, expected in zip(moments, posterior.predict_f(XNEW)):
        assert_allclose(new, expected, rtol=1e-10, atol=1e-11)


def test_predictions_of_a_mixture() -> None:
    posterior = three()
    prepared = ensemble.ensemble_of(ensemble_parts(posterior))
    mean, variance = posterior.predict_y(XNEW)
    new = ensemble.predictive(prepared, XNEW, Units()).moments()
    assert_allclose(new, [mean[:, 0], variance[:, 0]], rtol=1e-10)
    targets = RNG.normal(size=(9, 1))
    assert_allclose(
        ensemble.predictive(prepared, XNEW, Units()).log_densities(targets[:, 0]),
        posterior.predict_log_density((XNEW, targets)),
        rtol=1e-10,
    )


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = ensemble.ensemble_of(ensemble_parts(three()))
    whole = ensemble.predictive(prepared, XNEW, Units()).moments()
    monkeypatch.setattr(ensemble, "CHUNK", 4)
    assert_allclose(ensemble.predictive(prepared, XNEW, Units()).moments(), whole, rtol=1e-12)


def test_quantiles_are_those_of_tensorflow() -> None:
    posterior = three()
    prepared = ensemble.ensemble_of(ensemble_parts(posterior))
    q = np.array([1e-4, 0.05, 0.31, 0.5, 0.95, 0.999])
    expected = posterior.predict_quantiles(XNEW, q)[:, 0]
    new = ensemble.predictive(prepared, XNEW, Units()).quantiles(q)
    assert_allclose(new, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    "means, sds, weights",
    [
        ([0.0, 0.0], [1.0, 1.0], [0.5, 0.5]),
        ([0.0, 100.0], [1e-3, 1.0], [0.5, 0.5]),
        ([-3.0, 0.0, 9.0], [0.1, 5.0, 1e-6], [0.1, 0.1, 0.8]),
        ([0.0, 1e4], [1.0, 1.0], [1.0, 0.0]),
        ([2.0], [0.3], [1.0]),
    ],
)
def test_quantiles_against_another_root_search(
    means: Sequence[float], sds: Sequence[float], weights: Sequence[float]
) -> None:
    m, s, w = map(np.array, (means, sds, weights))
    q = np.array([1e-9, 0.05, 0.2500001, 0.5, 0.9, 1.0 - 1e-6])
    y = Predictive(m[:, None], s[:, None] ** 2, w).quantiles(q)[0]

    def root(q: float) -> float:
        ends = norm.ppf(q, m, s)
        if np.ptp(ends) == 0.0:
            return float(ends[0])
        cdf = lambda y: float(w @ norm.cdf(y, m, s)) - q  # noqa: E731
        return float(brentq(cdf, ends.min() - 1e-9, ends.max() + 1e-9, xtol=1e-14, rtol=1e-15))

    # Between modes the distribution function is flat: it is compared there, and y elsewhere.
    assert_allclose(norm.cdf(y[:, None], m, s) @ w, q, rtol=1e-7, atol=1e-13)
    steep = norm.pdf(y[:, None], m, s) @ w > 1e-4
    assert_allclose(y[steep], np.array([root(value) for value in q])[steep], rtol=1e-9, atol=1e-12)


def test_other_noise_has_no_quantiles() -> None:
    parts = ensemble_parts(three())
    for component in parts["components"]:
        component["likelihood"] = {
            "kind": "Poisson",
            "binsize": 1.0,
            "invlink": {"function": "exp"},
        }
    prepared = ensemble.ensemble_of(parts)
    with pytest.raises(ValueError, match="got the likelihood Poisson, expected Gaussian noise"):
        ensemble.predictive(prepared, XNEW, Units()).quantiles(np.array([0.5]))


def test_predictions_that_are_not_finite_are_refused() -> None:
    parts = ensemble_parts(three())
    for component in parts["components"]:
        component["kernel"] = {"kind": "Linear", "active_dims": slice(None), "variance": 1.0}
    prepared = ensemble.ensemble_of(parts)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="prediction: got NaN"):
        ensemble.predictive(prepared, np.full((1, 2), 1e200), Units())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mean_function": gpflow.mean_functions.Linear(np.ones((2, 1)))}, "mean_function: got L"),
        ({"points": BlurredInducingPoints(Z, np.tile(np.eye(2), (10, 1, 1)))}, "BlurredInducing"),
    ],
)
def test_other_parts_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    kernel = gpflow.kernels.SquaredExponential(1.2, [0.9, 1.1])
    points = options.pop("points", Z)
    posterior = ensemble_posterior(PEPRegression((X, Y), kernel, points, **options))
    with pytest.raises(ValueError, match=rf"{message}.*, expected .*save_estimator"):
        ensemble_parts(posterior)


@pytest.mark.parametrize("units", [Units(2.5, -1.0), Units(0.7, 0.2, True)])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_one_distribution_has_quantiles_densities_moments_and_scores(
    units: Units, shape: tuple[int, ...]
) -> None:
    means, sds = RNG.normal(size=(3, 4, *shape)), RNG.uniform(0.2, 1.0, (3, 4, *shape))
    w = np.array([0.2, 0.5, 0.3])
    predictive = Predictive(means, sds**2, w, units)

    def cdf(y: Any) -> Any:
        return np.tensordot(w, norm.cdf(units.transform(y), means, sds), 1)

    q = np.array([1e-6, 0.05, 0.5, 0.95, 1.0 - 1e-6])
    ends = predictive.quantiles(q)
    assert ends.shape == (4, *shape, 5)
    for place, probability in enumerate(q):
        assert_allclose(cdf(ends[..., place]), probability, rtol=1e-8)
    assert_allclose(predictive.normal_scores(ends[..., 3]), norm.ppf(0.95), rtol=1e-8)
    # By Gauss-Legendre panels over the model's units, from far below to far above.
    nodes, weights = np.polynomial.legendre.leggauss(400)
    g, weights = 12.0 * nodes, 12.0 * weights
    y = units.inverse_transform(g)
    slope = y * units.scale if units.logarithm else units.scale
    at = np.moveaxis(np.broadcast_to(y, (4, *shape, len(y))), -1, 0)
    density = np.stack([np.exp(predictive.log_densities(values)) for values in at], -1)
    assert_allclose(density @ (weights * slope), 1.0, rtol=1e-9)
    mean, variance = predictive.moments()
    assert_allclose(density @ (weights * slope * y), mean, rtol=1e-8)
    square = density @ (weights * slope * y**2)
    assert_allclose(square, variance + mean**2, rtol=1e-8)
