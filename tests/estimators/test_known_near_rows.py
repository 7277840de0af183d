"""Regressors whose predictions use near rows: chosen, in all predictions, saved and exported."""

import pickle
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import norm
from sklearn.base import clone

from gpflow_pep.estimators import (
    PEPRegressor,
    export_numpy,
    export_saved_model,
    load_estimator,
    save_estimator,
    trainer,
)
from gpflow_pep.scoring import load_scorer
from gpflow_pep.scoring.ensemble import predictive
from gpflow_pep.scoring.units import Units
from gpflow_pep.training import NearRows

RNG = np.random.default_rng(5)
X = RNG.uniform(0.0, 10.0, (80, 1))
Y = 50.0 + 9.0 * np.sin(3.0 * X[:, 0]) + 0.5 * RNG.standard_normal(80)
XNEW = np.linspace(0.3, 9.7, 7)[:, None]
SMALL: dict[str, Any] = {"num_inducing": 5, "max_iterations": 2, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")


def too_few_points() -> PEPRegressor:
    return PEPRegressor(gpflow.kernels.Matern32(lengthscales=0.15), **SMALL)


@pytest.fixture(scope="module")
def fitted() -> PEPRegressor:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trainer, "LEAST_ROWS", 80)
        return too_few_points().fit(X, Y)


def test_near_rows_are_known_where_that_pays(fitted: PEPRegressor) -> None:
    assert fitted.near_rows_ == 40 and len(fitted.model_.models) == 6
    alone = clone(fitted).set_params(near_rows=0).fit(X, Y)
    assert alone.near_rows_ == 0 and len(alone.model_.models) == 3
    truth = 50.0 + 9.0 * np.sin(3.0 * XNEW[:, 0])
    errors = [np.abs(each.predict(XNEW) - truth).mean() for each in (fitted, alone)]
    assert errors[0] < 0.5 * errors[1]
    few = too_few_points().fit(X, Y)  # rows, below LEAST_ROWS
    assert few.near_rows_ == 0
    np.testing.assert_allclose(few.predict(XNEW), alone.predict(XNEW), rtol=1e-12)


def test_all_predictions_know_them(fitted: PEPRegressor) -> None:
    scaled = (XNEW - X.mean()) / X.std()
    parts = [np.stack(part)[..., 0] for part in zip(*fitted.posterior_.components_of_y(scaled))]
    m, s = parts[0] * Y.std() + Y.mean(), np.sqrt(parts[1]) * Y.std()
    w = fitted.model_.weights.numpy()[:, None]
    mean, sd = fitted.predict(XNEW, return_std=True)
    np.testing.assert_allclose(mean, (w * m).sum(0))
    np.testing.assert_allclose(sd**2, (w * (s**2 + (m - mean) ** 2)).sum(0))
    _, covariance = fitted.predict(XNEW, return_cov=True)
    np.testing.assert_allclose(np.diag(covariance), sd**2)
    low, high = fitted.predict_interval(XNEW, 0.8).T
    np.testing.assert_allclose((w * norm.cdf(low, m, s)).sum(0), 0.1, rtol=1e-8)
    np.testing.assert_allclose((w * norm.cdf(high, m, s)).sum(0), 0.9, rtol=1e-8)
    density = np.log((w * norm.pdf(mean, m, s)).sum(0))
    np.testing.assert_allclose(fitted.log_densities(XNEW, mean), density)
    draws = fitted.sample_y(XNEW, 2000, random_state=0)
    assert (np.abs(draws.mean(1) - mean) < 5.0 * sd / np.sqrt(2000)).all()
    from_model = fitted.model_.predict_y(scaled)[0].numpy()[:, 0]
    np.testing.assert_allclose(from_model * Y.std() + Y.mean(), mean, rtol=1e-9)
    assert fitted.far_rows([[5.0], [90.0]]).tolist() == [False, True]


def test_they_are_saved(fitted: PEPRegressor, tmp_path: Path) -> None:
    expected = fitted.predict(XNEW, return_std=True)
    save_estimator(tmp_path / "model", fitted)
    for other in (load_estimator(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_allclose(other.predict(XNEW, return_std=True), expected, rtol=1e-12)
        assert other.near_rows_ == fitted.near_rows_ and other.model_.near == fitted.model_.near
        assert len({id(model) for model in other.model_.models}) == 3
        assert isinstance(other.model_.near[-1], NearRows)


@pytest.mark.slow
def test_they_are_exported(fitted: PEPRegressor, tmp_path: Path) -> None:
    export_saved_model(tmp_path / "saved", fitted)
    predictor = tf.saved_model.load(str(tmp_path / "saved"))
    mean, variance = predictor.predict_y(XNEW)
    expected = fitted.predict(XNEW, return_std=True)
    np.testing.assert_allclose(mean[:, 0], expected[0], rtol=1e-8)
    np.testing.assert_allclose(np.sqrt(variance[:, 0]), expected[1], rtol=1e-8)


def test_numpy_predicts_as_tensorflow_does(fitted: PEPRegressor, tmp_path: Path) -> None:
    scaled = fitted._inputs(XNEW)
    parts = [np.stack(part)[..., 0] for part in zip(*fitted.posterior_.components_of_y(scaled))]
    export_numpy(tmp_path / "scorer", fitted)
    scorer = load_scorer(tmp_path / "scorer")
    for numpy_alone in (fitted._numpy_ensemble, scorer._ensembles[0]):
        found = predictive(numpy_alone, scaled, Units())
        np.testing.assert_allclose(found.means, parts[0], rtol=0, atol=1e-8)
        np.testing.assert_allclose(found.variances, parts[1], rtol=1e-8)
    for one, other in zip(
        scorer.predict(XNEW, return_std=True), fitted.predict(XNEW, return_std=True), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    with np.load(tmp_path / "scorer" / "arrays.npz") as arrays:  # of six components, once
        assert sum(array.shape == X.shape for array in arrays.values()) == 2  # X, and targets


@pytest.mark.slow
def test_several_outputs_without_mixing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "LEAST_ROWS", 80)
    two = np.column_stack([Y, -Y])
    both = too_few_points().set_params(num_latent=0).fit(X, two)
    mean, sd = both.predict(XNEW, return_std=True)
    assert both.near_rows_ == 40 and mean.shape == sd.shape == (7, 2)
    np.testing.assert_allclose(mean[:, 0], -mean[:, 1], rtol=1e-8)
    two[3, 1] = np.nan
    assert too_few_points().set_params(num_latent=0).fit(X, two).near_rows_ == 0


def test_the_argument() -> None:
    for value in ("many", 3):
        with pytest.raises(ValueError, match=f"near_rows: got {value!r}, expected 'auto', 0 or N"):
            PEPRegressor(near_rows=value).fit(X, Y)
    assert PEPRegressor(near_rows=None, alpha=0.5, **SMALL).fit(X, Y).near_rows_ == 0
    assert PEPRegressor(alpha=0.5, **SMALL).fit(X, Y).near_rows_ == 0
