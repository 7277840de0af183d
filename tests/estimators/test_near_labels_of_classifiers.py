"""Classifiers whose predictions use near rows: chosen, saved, exported, refused."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_pep.estimators import (
    PEPClassifier,
    classifier,
    export_numpy,
    export_saved_model,
    load_estimator,
    save_estimator,
)
from gpflow_pep.scoring import load_scorer
from gpflow_pep.training import Ensemble
from gpflow_pep.training.fitting.objectives import copy_of

RNG = np.random.default_rng(5)
X = RNG.uniform(0.0, 4.0, (300, 2))
WORDS = np.array(["no", "yes"])
Y = WORDS[((np.floor(X[:, 0]) + np.floor(X[:, 1])) % 2).astype(int)]
XNEW = RNG.uniform(0.0, 4.0, (60, 2))
YNEW = WORDS[((np.floor(XNEW[:, 0]) + np.floor(XNEW[:, 1])) % 2).astype(int)]
SMALL: dict[str, Any] = {"num_inducing": 4, "max_iterations": 25, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")


@pytest.fixture(scope="module")
def fitted() -> PEPClassifier:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(classifier, "LEAST_ROWS", 300)
        return PEPClassifier(**SMALL).fit(X, Y)


def test_near_rows_are_known_where_that_pays(fitted: PEPClassifier) -> None:
    assert fitted.near_rows_ == 20 and len(fitted.model_.models) == 2
    assert fitted.score(XNEW, YNEW) > 0.7
    alone = PEPClassifier(**SMALL, near_rows=0).fit(X, Y)
    assert alone.near_rows_ == 0
    assert fitted.log_score(XNEW, YNEW) > alone.log_score(XNEW, YNEW) + 0.15
    few = PEPClassifier(**SMALL).fit(X, Y)  # rows, below LEAST_ROWS
    assert few.near_rows_ == 0
    np.testing.assert_array_equal(few.predict_proba(XNEW), alone.predict_proba(XNEW))


def test_probabilities_are_mixed(fitted: PEPClassifier) -> None:
    scaled = fitted.input_scaler_.transform(XNEW)
    of_one = [
        likelihood.predict_mean_and_var(scaled, *posterior.predict_f(scaled))[0][:, 0]
        for likelihood, posterior in zip(
            fitted.posterior_.likelihoods, fitted.posterior_.posteriors
        )
    ]
    expected = fitted.model_.weights.numpy() @ np.stack(of_one)
    probability = fitted.predict_proba(XNEW)
    np.testing.assert_allclose(probability[:, 1], expected, rtol=1e-6)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert fitted.far_rows([[2.0, 2.0], [90.0, 0.0]]).tolist() == [False, True]


def test_they_are_saved(fitted: PEPClassifier, tmp_path: Path) -> None:
    expected = fitted.predict_proba(XNEW)
    save_estimator(tmp_path / "model", fitted)
    loaded, pickled = load_estimator(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))
    for other in (loaded, pickled):
        assert other.near_rows_ == 20 and other.model_.near == fitted.model_.near
    np.testing.assert_allclose(loaded.predict_proba(XNEW), expected, rtol=1e-9)
    moments = pickled.model_.models[1].predict_f(XNEW[:3], near=20)
    for one, other in zip(moments, fitted.model_.models[1].predict_f(XNEW[:3], near=20)):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.slow
def test_they_are_exported(fitted: PEPClassifier, tmp_path: Path) -> None:
    export_saved_model(tmp_path / "saved", fitted)
    predictor = tf.saved_model.load(str(tmp_path / "saved"))
    expected = fitted.predict_proba(XNEW)
    np.testing.assert_allclose(predictor.predict_y(XNEW).probability, expected, rtol=1e-8)


def test_numpy_predicts_as_tensorflow_does(fitted: PEPClassifier, tmp_path: Path) -> None:
    expected = np.asarray(fitted.posterior_.predict_probabilities(fitted._inputs(XNEW)))
    export_numpy(tmp_path / "scorer", fitted)
    scorer = load_scorer(tmp_path / "scorer")
    for numpy_alone in (fitted, scorer):
        np.testing.assert_allclose(numpy_alone.predict_proba(XNEW), expected, rtol=0, atol=1e-8)
        one = np.concatenate([numpy_alone.predict_proba(row[None]) for row in XNEW])
        np.testing.assert_allclose(one, expected, rtol=0, atol=1e-8)
    assert fitted._numpy_ensemble is not None
    np.testing.assert_array_equal(scorer.far_rows(XNEW), fitted.far_rows(XNEW))


def test_of_another_power_tensorflow_predicts(fitted: PEPClassifier, tmp_path: Path) -> None:
    other = copy.copy(fitted)
    near = fitted.model_.models[1]
    models = [fitted.model_.models[0], copy_of(near)]
    models[1].alpha = 0.5
    other._set_model(Ensemble(models, fitted.model_.weights.numpy(), near=fitted.model_.near))
    assert other._numpy_ensemble is None and len(other.predict_proba(XNEW)) == len(XNEW)
    with pytest.raises(ValueError, match="near rows of Bernoulli, or of a power below 1"):
        export_numpy(tmp_path / "scorer", other)


@pytest.mark.slow
def test_minibatches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(classifier, "LEAST_ROWS", 300)
    model = PEPClassifier(**SMALL, batch_size=100).fit(X, Y)
    assert model.near_rows_ == 20 and model.score(XNEW, YNEW) > 0.7
    save_estimator(tmp_path / "model", model)
    loaded = load_estimator(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict_proba(XNEW), model.predict_proba(XNEW), rtol=1e-9)
    again = model.set_params(warm_start=True).fit(X, Y)
    assert again.near_rows_ == 20


@pytest.mark.slow
def test_several_powers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "LEAST_ROWS", 300)
    model = PEPClassifier(**SMALL, alpha="mix").fit(X, Y)
    assert model.near_rows_ == 20 and len(model.model_.models) == 4
    assert model.score(XNEW, YNEW) > 0.6


def test_a_quarter_of_the_seconds_is_for_near_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "LEAST_ROWS", 80)
    seconds: list[float] = []

    def instead(*_: Any, **options: Any) -> None:
        seconds.append(options["seconds"])

    monkeypatch.setattr(classifier, "ensemble_with_near_labels", instead)
    model = PEPClassifier(**{**SMALL, "max_iterations": 1}, max_seconds=80.0).fit(X[:80], Y[:80])
    assert model.near_rows_ == 0 and seconds == [20.0]
    assert model._seconds_of_points() == 60.0
    assert model.set_params(near_rows=0)._seconds_of_points() == 80.0


@pytest.mark.parametrize("value", ["many", 5, True, -1])
def test_the_argument(value: Any) -> None:
    with pytest.raises(ValueError, match=f"near_rows: got {value!r}, expected 'auto', 0 or None"):
        PEPClassifier(near_rows=value).fit(X, Y)
