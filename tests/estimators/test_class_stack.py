"""What PEPClassifier does where nothing is named: components, their weights, classes in order."""

import pickle
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp
from scipy.stats import norm

from gpflow_pep.estimators import (
    PEPClassifier,
    PEPRegressor,
    class_stack,
    export_numpy,
    export_saved_model,
    load_estimator,
    save_estimator,
)
from gpflow_pep.estimators.class_stack import is_nearest, order_of_labels
from gpflow_pep.models import PEPClassification
from gpflow_pep.scoring import load_scorer
from gpflow_pep.scoring.predictive import Recalibration
from gpflow_pep.training.fitting.objectives import near_lengthscales

random = np.random.default_rng(0)
X = np.exp(random.normal(size=[45, 2]))
GRADE = np.searchsorted([-0.5, 0.5], np.log(X[:, 0]) + 0.2 * random.normal(size=45))
WORDS = np.array(["low", "medium", "high"])[GRADE]
XNEW = np.exp(random.normal(size=[12, 2]))


@pytest.fixture(scope="module")
def fitted() -> PEPClassifier:
    return PEPClassifier(random_state=0).fit(X, WORDS)


def test_components_are_mixed_by_rows_that_are_left_out(fitted: PEPClassifier) -> None:
    assert [part.inputs for part in fitted.components_[:2]] == ["yeo-johnson", "standard"]
    assert [part.likelihood for part in fitted.components_] == ["softmax", "softmax", "ordinal"]
    assert fitted.components_[1].n_iter_ <= class_stack.STEPS[2]
    assert not any(part.inducing_variable_.trainable_variables for part in fitted.components_)
    densities = np.stack([part.model_.loo_log_density() for part in fitted.components_])

    def objective(w: Any) -> float:  # of the weights, with the prior c = 0.1
        return float(np.sum(logsumexp(densities.T, axis=1, b=w)) + 1.5 * np.sum(np.log(w)))

    best = objective(fitted.weights_)
    for pair in ([0.0, 1e-3, -1e-3], [1e-3, -1e-3, 0.0], [-1e-3, 0.0, 1e-3]):
        for sign in (-1.0, 1.0):
            assert objective(fitted.weights_ + sign * np.array(pair)) < best
    assert fitted.summary().count("weight") == 3
    assert fitted.model_ is fitted.components_[int(np.argmax(fitted.weights_))].model_


def test_probabilities_are_those_of_the_classes_in_any_order(fitted: PEPClassifier) -> None:
    assert list(fitted.classes_) == ["high", "low", "medium"]
    assert list(fitted.components_[2].classes_) == ["low", "medium", "high"]
    mixed = np.zeros([len(XNEW), 3])
    for weight, part in zip(fitted.weights_, fitted.components_, strict=True):
        probability = part.posterior_.predict_probabilities(part._in_units(XNEW)).numpy()
        for column, label in enumerate(part.classes_):
            mixed[:, list(fitted.classes_).index(label)] += weight * probability[:, column]
    mixed **= fitted.recalibration_.scale**-2.0
    mixed /= mixed.sum(axis=1, keepdims=True)
    probability = fitted.predict_proba(XNEW)
    np.testing.assert_allclose(probability, mixed, atol=2e-7)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-12)
    right = fitted.predict(X) == WORDS
    assert right.mean() > 0.8
    label = probability[np.arange(12), np.argmax(probability, axis=1)]
    np.testing.assert_allclose(fitted.log_densities(XNEW, fitted.predict(XNEW)), np.log(label))


def test_rows_are_left_out_of_all_classes(fitted: PEPClassifier) -> None:
    for part in fitted.components_:
        probability = class_stack._left_out(part)
        labels = [list(part.classes_).index(word) for word in WORDS]
        density = np.exp(part.model_.loo_log_density())
        np.testing.assert_allclose(probability[np.arange(45), labels], density, atol=1e-6)
        np.testing.assert_allclose(probability.sum(axis=1), 1.0)


def test_recalibrated_by_rows_that_were_left_out(fitted: PEPClassifier) -> None:
    """The maximum on a grid, and labels whose probabilities are squares that do not sum to 1."""
    every = [class_stack._left_out(part)[:, part.columns_of(fitted)] for part in fitted.components_]
    mixed = np.tensordot(fitted.weights_, every, 1)
    label = np.searchsorted(fitted.classes_, WORDS)
    grid = np.linspace(-1.0, 1.0, 4001)
    powers = mixed ** np.exp(-2.0 * grid)[:, None, None]
    values = np.log(powers[:, np.arange(45), label] / powers.sum(axis=2)).sum(axis=1)
    best = grid[np.argmax(values - 0.5 * (grid / 0.2) ** 2)]
    np.testing.assert_allclose(np.log(fitted.recalibration_.scale), best, atol=5e-4)
    right = random.dirichlet([1.0, 1.0, 1.0], size=20_000)
    labels = np.argmax(right.cumsum(axis=1) > random.uniform(size=[20_000, 1]), axis=1)
    sure = right**2 / np.sum(right**2, axis=1, keepdims=True)
    recalibration = class_stack._recalibrated(sure, labels)
    np.testing.assert_allclose(recalibration.scale, np.sqrt(2.0), rtol=0.02)
    np.testing.assert_allclose(recalibration.probabilities(sure), right, atol=0.02)


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_probabilities_are_recalibrated_as_gaussian_densities_are(scale: float) -> None:
    places = np.linspace(-60.0, 60.0, 20_001)
    p, expected = (norm.pdf(places, 0.7, sd) for sd in (1.3, 1.3 * scale))
    p, expected = p / p.sum(), expected / expected.sum()
    found = Recalibration(None, scale).probabilities(p[None])[0]
    known = np.minimum(p, expected) > 1e-290  # others are too small for a number
    np.testing.assert_allclose(found[known], expected[known], rtol=1e-10)


def test_classes_without_order_have_a_component_with_wrong_labels() -> None:
    names = np.array(["b", "c", "a"])[GRADE]
    fitted = PEPClassifier(random_state=0).fit(X, names)
    (other,) = fitted.components_[2:]
    assert other.likelihood == "noisy_multiclass" and list(other.classes_) == ["a", "b", "c"]
    np.testing.assert_allclose(other.likelihood_.invlink.epsilon, 0.03)
    assert fitted.predict_proba(XNEW).shape == (12, 3)


def test_an_order_that_predicts_worse_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of classes whose order means nothing, though wrong ones happen to be neighbours."""
    monkeypatch.setattr(class_stack, "is_nearest", lambda *_: True)
    fitted = PEPClassifier(random_state=0).fit(X, np.array([1, 0, 2])[GRADE])
    assert [part.likelihood for part in fitted.components_][2:] == ["noisy_multiclass"]
    assert "Classes in order" in fitted.summary() and "not kept" in fitted.summary()


def test_equal_when_loaded_exported_and_pickled(fitted: PEPClassifier, tmp_path: Path) -> None:
    expected = fitted.predict_proba(XNEW)
    save_estimator(tmp_path / "model", fitted)
    for other in (load_estimator(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_allclose(other.predict_proba(XNEW), expected, rtol=1e-9)
        assert other.summary() == fitted.summary()
        assert list(other.predict(XNEW)) == list(fitted.predict(XNEW))
    export_numpy(tmp_path / "scorer", fitted)
    scorer = load_scorer(tmp_path / "scorer")
    np.testing.assert_allclose(scorer.predict_proba(XNEW), expected, rtol=1e-12)
    assert list(scorer.predict(XNEW)) == list(fitted.predict(XNEW))


@pytest.mark.slow
def test_equal_as_a_saved_model(fitted: PEPClassifier, tmp_path: Path) -> None:
    expected = fitted.predict_proba(XNEW)
    export_saved_model(tmp_path / "saved", fitted)
    predictor = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(predictor.predict_y(XNEW).probability, expected, atol=2e-7)


def test_what_is_named_is_one_model() -> None:
    for named in ({"alpha": 0.5}, {"num_inducing": 3}, {"ard": 0.5}, {"inputs": "yeo-johnson"}):
        fitted = PEPClassifier(**named, max_iterations=2, random_state=0)
        with pytest.warns(match="Training ended"):
            fitted.fit(X, GRADE > 0)
        assert fitted.components_ == (fitted,) and list(fitted.weights_) == [1.0]
        assert "inducing points" in fitted.summary()


@pytest.mark.parametrize("number, points", [("auto", 45), (7, 7)])
def test_points_that_are_not_trained(number: Any, points: int) -> None:
    options: dict[str, Any] = {"inducing": "rows", "num_inducing": number, "max_iterations": 2}
    with pytest.warns(match="Training ended"):
        fitted = PEPClassifier(random_state=0, **options).fit(X, GRADE > 0)
    Z = fitted.inducing_variable_.Z
    assert Z.shape == (points, 2) and not Z.trainable
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    if number == "auto":
        np.testing.assert_allclose(Z.numpy(), scaled, rtol=1e-12)


def test_lengthscales_are_alike_a_priori() -> None:
    """Log Z less the squares of log lengthscales around their mean, and what that does."""
    labels = (GRADE > 0).astype(float)[:, None]
    kernel = gpflow.kernels.Matern52(lengthscales=[0.5, 2.0])
    model = PEPClassification((X, labels), kernel, None, X[:5])
    logs = np.log([0.5, 2.0])
    penalty = np.sum((logs - logs.mean()) ** 2) / (2.0 * 0.7**2)
    log_z = float(model.pep_log_marginal_likelihood())
    np.testing.assert_allclose(near_lengthscales(0.7)(model), log_z - penalty, rtol=1e-6)
    ratios = []
    for spread in (0.05, 0.7, True):
        options: dict[str, Any] = {"ard": spread, "inducing": "rows", "kernel": "matern52"}
        fitted = PEPClassifier(random_state=0, **options).fit(X, GRADE > 0)
        scales = fitted.kernel_.lengthscales.numpy()
        ratios.append(scales.max() / scales.min())
    assert ratios[0] < 1.1 < ratios[1] < ratios[2]
    with pytest.raises(ValueError, match=r"ard: got 0\.5 with a SquaredExponential as the kernel"):
        PEPClassifier(gpflow.kernels.RBF(), ard=0.5).fit(X, GRADE > 0)
    with pytest.raises(ValueError, match=r"objective: got 'evidence\+loo', .* number as ard"):
        PEPRegressor(ard=0.5, objective="evidence+loo").fit(X, GRADE)
    for wrong in (0.0, -1.0, np.nan, "yes"):
        with pytest.raises(ValueError, match="ard: got"):
            PEPClassifier(ard=wrong).fit(X, GRADE > 0)


def test_many_rows_have_the_inputs_that_some_of_them_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(class_stack, "MANY_ROWS", 45)
    monkeypatch.setattr(class_stack, "SCOUT_ROWS", 40)
    fitted = PEPClassifier(random_state=0).fit(X, GRADE > 0)
    (part,) = fitted.components_
    assert part.inputs == "yeo-johnson" and fitted.inducing_variable_.Z.trainable
    assert fitted.summary().startswith("40 rows choose inputs.")
    with pytest.warns(match="The time was over"):
        hurried = PEPClassifier(random_state=0, max_seconds=1e-3).fit(X, GRADE > 0)
    assert hurried.components_[0].inputs == "standard"


@pytest.mark.parametrize(
    "labels, expected",
    [
        ([10, 9, 2], [2, 1, 0]),
        (["10", "9", "2"], [2, 1, 0]),
        (["High", "Low", "very low"], [2, 1, 0]),
        (["always", "never", "very_often"], None),
        (["severe", "mild", "none"], [2, 1, 0]),
        (["a", "b", "c"], None),
    ],
)
def test_orders_that_are_known(labels: list[Any], expected: list[int] | None) -> None:
    order = order_of_labels(np.array(labels))
    assert expected == (None if order is None else list(order))


def test_whether_wrong_classes_are_next_to_right_ones() -> None:
    near = np.array([[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]])
    assert is_nearest(near, np.arange(3))
    assert not is_nearest(near[:, [1, 0, 2]][[1, 0, 2]], np.arange(3))
