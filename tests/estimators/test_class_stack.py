"""What PEPClassifier does where nothing is named: components, their weights, classes in
order.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from cases.forms import check_forms
from numpy.testing import assert_allclose
from scipy.special import logsumexp, softmax
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from gpflow_pep.distributions import Recalibration
from gpflow_pep.engine.factors import tilted_derivatives
from gpflow_pep.engine.left_out_rows import numbers_of_copies
from gpflow_pep.estimators import PEPClassifier
from gpflow_pep.estimators.recipe import classes as class_stack
from gpflow_pep.estimators.recipe.classes import is_ordinal, order_of_labels
from gpflow_pep.estimators.recipe.recipe import Recipe
from gpflow_pep.estimators.single import classes as single_classes
from gpflow_pep.estimators.single.classes import SingleClassifier
from gpflow_pep.estimators.single.left_out_labels import _compiled_probit
from gpflow_pep.estimators.single.settings import ModelSettings
from gpflow_pep.models import PEPClassification
from gpflow_pep.training import Ensemble
from gpflow_pep.training.choosing import near
from gpflow_pep.training.fitting.objectives import near_lengthscales
from gpflow_pep.training.fitting.points import with_data

random = np.random.default_rng(0)
X = np.exp(random.normal(size=[45, 2]))
GRADE = np.searchsorted([-0.5, 0.5], np.log(X[:, 0]) + 0.2 * random.normal(size=45))
WORDS = np.array(["low", "medium", "high"])[GRADE]
XNEW = np.exp(random.normal(size=[12, 2]))
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")


@pytest.fixture(scope="module")
def fitted() -> PEPClassifier:
    return PEPClassifier(random_state=0, max_iterations=12).fit(X, WORDS)


def test_components_are_mixed_by_rows_that_are_left_out(fitted: PEPClassifier) -> None:
    assert [part.settings.inputs for part in fitted.components_[:2]] == [
        "yeo-johnson",
        "standard",
    ]
    assert [part.settings.likelihood for part in fitted.components_] == [
        "softmax",
        "softmax",
        "ordinal",
    ]
    assert fitted.components_[1].num_iterations <= class_stack.STEPS[2]
    assert not any(
        part.inducing_variable.trainable_variables for part in fitted.components_
    )
    densities = np.log(
        [
            part.left_out()[np.arange(45), numbers_of(fitted)]
            for part in fitted.components_
        ]
    )

    def objective(w: Any) -> float:  # of the weights, with the prior c = 0.1
        return float(
            np.sum(logsumexp(densities.T, axis=1, b=w)) + 1.5 * np.sum(np.log(w))
        )

    best = objective(fitted.weights_)
    for pair in ([0.0, 1e-3, -1e-3], [1e-3, -1e-3, 0.0], [-1e-3, 0.0, 1e-3]):
        for sign in (-1.0, 1.0):
            assert objective(fitted.weights_ + sign * np.array(pair)) < best
    assert fitted.summary().count("weight") == 3
    assert fitted.model_ is fitted.components_[int(np.argmax(fitted.weights_))].model


def test_probabilities_are_those_of_the_classes_in_any_order(
    fitted: PEPClassifier,
) -> None:
    assert list(fitted.classes_) == ["high", "low", "medium"]
    assert fitted.components_[2].settings.order == (1, 2, 0)
    mixed = np.zeros([len(XNEW), 3])
    for weight, part in zip(fitted.weights_, fitted.components_, strict=True):
        rows = part.in_units(XNEW)
        probability = part.posterior.predict_probabilities(rows).numpy()
        for column, place in enumerate(part.settings.order or (0, 1, 2)):
            mixed[:, place] += weight * probability[:, column]
    mixed **= fitted.recalibration_.scale**-2.0
    mixed /= mixed.sum(axis=1, keepdims=True)
    probability = fitted.predict_proba(XNEW)
    assert_allclose(probability, mixed, atol=2e-7)
    assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-12)
    assert (fitted.predict(X) == WORDS).mean() > 0.8
    label = probability[np.arange(12), np.argmax(probability, axis=1)]
    assert_allclose(fitted.log_densities(XNEW, fitted.predict(XNEW)), np.log(label))


def numbers_of(fitted: PEPClassifier) -> list[int]:
    """Give the columns of the rows' labels in probabilities."""
    return [list(fitted.classes_).index(word) for word in WORDS]


@pytest.mark.slow
def test_rows_are_left_out_of_all_classes(fitted: PEPClassifier) -> None:
    """Several functions keep the sites of the other rows. One function finds them
    again, as a refit does: without that the row of most change differs by .01.
    """
    for part in fitted.components_:
        probability = part.left_out()
        assert_allclose(probability.sum(axis=1), 1.0)
        found = probability[np.arange(45), numbers_of(fitted)]
        with_these_sites = np.exp(part.model.loo_log_density())
        if part.settings.likelihood == "softmax":
            assert_allclose(found, with_these_sites, atol=1e-6)
            continue
        inputs, labels = map(np.asarray, part.model.data)
        row = int(np.argmax(np.abs(found - with_these_sites)))
        others = np.arange(45) != row
        refit = with_data(part.model, (inputs[others], labels[others]))
        row_alone = inputs[[row]], labels[[row]]
        expected = np.exp(refit.predict_log_density(row_alone))
        assert np.abs(with_these_sites[row] - expected) > 0.005
        assert_allclose(found[row], expected, atol=0.001)


def test_recalibrated_by_rows_that_were_left_out(fitted: PEPClassifier) -> None:
    """The maximum on a grid, and labels whose probabilities are squares that do not sum
    to 1.
    """
    every = [part.left_out() for part in fitted.components_]
    mixed = np.tensordot(fitted.weights_, every, 1)
    label = np.searchsorted(fitted.classes_, WORDS)
    grid = np.linspace(-1.0, 1.0, 4001)
    powers = mixed ** np.exp(-2.0 * grid)[:, None, None]
    values = np.log(powers[:, np.arange(45), label] / powers.sum(axis=2)).sum(axis=1)
    best = grid[np.argmax(values - 0.5 * (grid / 0.2) ** 2)]
    assert_allclose(np.log(fitted.recalibration_.scale), best, atol=5e-4)
    right = random.dirichlet([1.0, 1.0, 1.0], size=20_000)
    labels = np.argmax(right.cumsum(axis=1) > random.uniform(size=[20_000, 1]), axis=1)
    sure = right**2 / np.sum(right**2, axis=1, keepdims=True)
    recalibration = class_stack._recalibrated(sure, labels)
    assert_allclose(recalibration.scale, np.sqrt(2.0), rtol=0.02)
    assert_allclose(recalibration.probabilities(sure), right, atol=0.02)


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_probabilities_are_recalibrated_as_gaussian_densities_are(scale: float) -> None:
    places = np.linspace(-60.0, 60.0, 20_001)
    p, expected = (norm.pdf(places, 0.7, sd) for sd in (1.3, 1.3 * scale))
    p = p / p.sum()
    expected = expected / expected.sum()
    found = Recalibration(None, scale).probabilities(p[None])[0]
    known = np.minimum(p, expected) > 1e-290  # others are too small for a number
    assert_allclose(found[known], expected[known], rtol=1e-10)


@pytest.mark.near_copies("names0*")
@pytest.mark.parametrize(
    "names, ordinal, line",
    [(["b", "c", "a"], False, ""), ([1, 0, 2], True, "not kept")],
)
def test_classes_without_order_have_a_component_with_wrong_labels(
    names: list[Any], ordinal: bool, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words, or numbers whose order means nothing, though it is taken for one."""
    if ordinal:
        monkeypatch.setattr(class_stack, "is_ordinal", lambda *_: True)
    fitted = PEPClassifier(random_state=0, max_iterations=3).fit(
        X, np.array(names)[GRADE]
    )
    (other,) = fitted.components_[2:]
    assert other.settings.likelihood == "noisy_multiclass"
    assert other.settings.order is None and list(fitted.classes_) == sorted(names)
    assert_allclose(other.likelihood.invlink.epsilon, 0.03)
    assert fitted.predict_proba(XNEW).shape == (12, 3)
    assert (
        line in fitted.summary() and ("Classes in order" in fitted.summary()) == ordinal
    )


def test_components_stay_where_the_ordinal_one_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(recipe: Recipe, candidate: ModelSettings, **options: Any) -> Any:
        if candidate.likelihood != "softmax":
            raise ValueError("no factor")
        return train(recipe, candidate, **options)

    train = Recipe.train
    monkeypatch.setattr(Recipe, "train", failing)
    fitted = PEPClassifier(random_state=0, max_iterations=3).fit(X, WORDS)
    inputs = [part.settings.inputs for part in fitted.components_]
    assert inputs == ["yeo-johnson", "standard"]


def test_all_forms_predict_the_same(fitted: PEPClassifier, tmp_path: Path) -> None:
    check_forms(fitted, tmp_path, XNEW, None)


@pytest.mark.near_copies("named0*", "named3*")
@pytest.mark.parametrize(
    "named, points",
    [
        ({"alpha": 0.5}, 4),
        ({"num_inducing": 3}, 3),
        ({"kernel": "matern32"}, 4),
        ({"inducing": "rows", "num_inducing": "auto"}, 45),
        ({"inducing": "rows", "num_inducing": 7}, 7),
    ],
)
def test_settings_that_give_one_model(
    named: Any, points: int, no_training: None
) -> None:
    fitted = PEPClassifier(**{"num_inducing": 4, **named}, random_state=0).fit(
        X, GRADE > 0
    )
    assert len(fitted.components_) == 1 and list(fitted.weights_) == [1.0]
    assert "inducing points" in fitted.summary()
    assert fitted.summary().startswith("One model, because ")
    Z = fitted.inducing_variable_.Z
    assert Z.shape == (points, 2) and Z.trainable == ("inducing" not in named)
    if points == 45:
        assert_allclose(Z.numpy(), (X - X.mean(axis=0)) / X.std(axis=0), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.near_copies("settings1*")
@pytest.mark.parametrize(
    "settings, likelihoods, inputs",
    [
        ({"standardize": False}, ["softmax", "ordinal"], "standard"),
        ({"likelihood": "multiclass"}, ["multiclass"] * 2, None),
        (
            {"likelihood": "ordinal", "order": ["low", "medium", "high"]},
            ["ordinal"] * 2,
            None,
        ),
        ({"kernel": "additive", "ard": 0.5}, ["softmax", "softmax", "ordinal"], None),
    ],
)
def test_settings_that_all_models_take(
    settings: dict[str, Any], likelihoods: list[str], inputs: str | None
) -> None:
    fitted = PEPClassifier(random_state=0, max_iterations=2, **settings).fit(X, WORDS)
    parts = [part.settings for part in fitted.components_]
    assert [part.likelihood for part in parts] == likelihoods
    for name in {"kernel", "ard"} & set(settings):
        assert {getattr(part, name) for part in parts} == {settings[name]}
    if inputs is not None:
        assert {part.inputs for part in parts} == {inputs}
    assert ", all models with " in fitted.summary().splitlines()[0]
    assert fitted.classes_.tolist() == ["high", "low", "medium"]
    assert np.array_equal(fitted.order_, settings.get("order"))
    assert fitted.score(X, WORDS) > 0.6
    assert_allclose(fitted.predict_proba(XNEW).sum(axis=1), 1.0)


@pytest.mark.slow
def test_lengthscales_are_alike_a_priori() -> None:
    """Log Z less the squares of log lengthscales around their mean, and what
    that does.
    """
    labels = (GRADE > 0).astype(float)[:, None]
    kernel = gpflow.kernels.Matern52(lengthscales=[0.5, 2.0])
    model = PEPClassification((X, labels), kernel, None, X[:5])
    logs = np.log([0.5, 2.0])
    penalty = np.sum((logs - logs.mean()) ** 2) / (2.0 * 0.7**2)
    log_z = float(model.pep_log_marginal_likelihood())
    assert_allclose(near_lengthscales(0.7)(model), log_z - penalty, rtol=1e-6)
    ratios = [1.1]
    for spread in (0.05, 0.7, True):
        options: dict[str, Any] = {
            "ard": spread,
            "inducing": "rows",
            "kernel": "matern52",
        }
        fitted = PEPClassifier(random_state=0, max_iterations=15, **options).fit(
            X, GRADE > 0
        )
        scales = fitted.kernel_.lengthscales.numpy()
        ratios.append(scales.max() / scales.min())
    assert ratios[1] < ratios[0] < ratios[2] < ratios[3]


def waves_beside_a_slope(num_rows: int, num_classes: int) -> tuple[Any, Any, Any]:
    """Draw inputs, labels and their true probabilities."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-2.0, 2.0, size=[num_rows, 2])
    slope = 3.0 * inputs[:, 0]
    wave = 4.0 * np.sin(7.0 * inputs[:, 1])
    nothing = np.zeros(num_rows)
    f = [nothing, slope + wave] if num_classes == 2 else [nothing, slope, wave]
    p = softmax(np.transpose(f), axis=1)
    labels = np.argmax(p.cumsum(axis=1) > rng.uniform(size=[num_rows, 1]), axis=1)
    return inputs, labels, p


@pytest.mark.near_copies("2-*")
@pytest.mark.parametrize("num_classes, most", [(2, 0.1), (3, 0.2)])
def test_fine_parts_are_found_beside_a_slope(num_classes: int, most: float) -> None:
    """From lengthscales √D alone the wave is taken for noise: the divergence from the
    true probabilities is .23 of two classes and .32 of three.
    """
    rows, labels, p = waves_beside_a_slope(500, num_classes)
    likelihood = "auto" if num_classes == 2 else "softmax"
    model = PEPClassifier(random_state=0, inputs="standard", likelihood=likelihood)
    model.fit(rows[:200], labels[:200])
    assert len(model.components_) == 1
    lengthscales = model.kernel_.lengthscales.numpy()
    assert lengthscales[1] < 0.5 < 1.0 < lengthscales[0]
    q = model.predict_proba(rows[200:])
    divergence = np.mean(np.sum(p[200:] * np.log(p[200:] / q), axis=1))
    assert divergence < most


@pytest.mark.slow
def test_fine_start_has_a_limit_of_steps() -> None:
    """A few of them are judged, and training goes on from there."""
    rows, labels, _ = waves_beside_a_slope(150, 2)
    options: dict[str, Any] = {"random_state": 0, "inputs": "standard"}
    steps = class_stack.STEPS_OF_FINE + 2
    with pytest.warns(ConvergenceWarning, match="after 2 steps: .*LIMIT"):
        limited = PEPClassifier(max_iterations=steps, **options).fit(rows, labels)
    assert limited.n_iter_ == limited.record_.iterations == steps
    assert limited.kernel_.lengthscales.numpy()[1] < 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        free = PEPClassifier(**options).fit(rows, labels)
    assert free.record_.converged and free.n_iter_ <= class_stack.STEPS_FROM_FINE[0]


def test_smooth_start_stays_where_there_is_nothing_fine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And where the fine start fails."""

    def failing(*_: Any, **__: Any) -> Any:
        raise ValueError("no factor")

    rows = X[:, :1]
    labels = GRADE > 0
    options: dict[str, Any] = {"random_state": 0, "inputs": "standard"}
    fitted = PEPClassifier(**options).fit(rows, labels)
    monkeypatch.setattr(SingleClassifier, "after_few_steps", failing)
    smooth = PEPClassifier(**options).fit(rows, labels)
    scales = [model.kernel_.lengthscales.numpy() for model in (fitted, smooth)]
    assert_allclose(*scales, rtol=1e-12)


@pytest.mark.slow
def test_many_rows_have_the_inputs_that_some_of_them_choose(monkeypatch: Any) -> None:
    monkeypatch.setattr(class_stack, "MANY_ROWS", 45)
    monkeypatch.setattr(class_stack, "SCOUT_ROWS", 40)
    fitted = PEPClassifier(random_state=0, max_iterations=10).fit(X, GRADE > 0)
    (part,) = fitted.components_
    assert (
        part.settings.inputs == "yeo-johnson" and fitted.inducing_variable_.Z.trainable
    )
    assert fitted.summary().splitlines()[1].startswith("40 rows, 2 inputs, 2 classes")
    with pytest.warns(match="The time ran out"):
        hurried = PEPClassifier(random_state=0, max_seconds=1e-3).fit(X, GRADE > 0)
    assert hurried.components_[0].settings.inputs == "standard"


@pytest.mark.slow
@pytest.mark.near_copies("True")
@pytest.mark.parametrize("has_inputs", [False, True])
def test_many_rows_start_where_some_of_them_find_fine_parts(
    has_inputs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From lengthscales √D alone the wave is taken for noise."""
    monkeypatch.setattr(class_stack, "MANY_ROWS", 250)
    monkeypatch.setattr(class_stack, "SCOUT_ROWS", 60)
    monkeypatch.setattr(class_stack, "ROWS_OF_STARTS", 200)
    rows, labels, p = waves_beside_a_slope(550, 2)
    options: dict[str, Any] = {"inputs": "standard"} if has_inputs else {}
    model = PEPClassifier(random_state=0, max_iterations=15, **options)
    model.fit(rows[:250], labels[:250])
    assert model.inducing_variable_.Z.trainable
    assert "200 rows: short lengthscales are the better start." in model.summary()
    lengthscales = model.kernel_.lengthscales.numpy()
    assert lengthscales[1] < 0.5 < 1.0 < lengthscales[0]
    q = model.predict_proba(rows[250:])
    divergence = np.mean(np.sum(p[250:] * np.log(p[250:] / q), axis=1))
    assert divergence < 0.1


def test_components_have_no_near_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ensemble with near rows has no sites, by which rows are left out."""
    for room in (class_stack, single_classes):
        monkeypatch.setattr(room, "LEAST_ROWS", 45)

    def ensemble(model, *_, **__):
        return Ensemble([model], [1.0])

    monkeypatch.setattr(near, "ensemble_with_near_labels", ensemble)
    fitted = PEPClassifier(random_state=0).fit(X, GRADE > 0)
    assert [p.record.converged for p in fitted.components_] == [
        True
    ] * 2 and not fitted.near_rows_


@pytest.mark.slow
def test_labels_that_near_rows_predict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Few for a chessboard.
    for name, value in (
        ("LEAST_ROWS", 500),
        ("POINTS_OF_AN_INPUT", 2),
    ):
        monkeypatch.setattr(class_stack, name, value)
    monkeypatch.setattr(single_classes, "LEAST_ROWS", 500)
    inputs = 6.0 * random.uniform(size=[700, 2])
    labels = np.floor(inputs) @ [1, 1] % 2
    fitted = PEPClassifier(random_state=0).fit(inputs[:500], labels[:500])
    assert (
        fitted.near_rows_ == 20
        and len(fitted.weights_) == 1
        and "near rows" in fitted.summary()
    )
    assert fitted.log_score(inputs[500:], labels[500:]) > -0.45  # chance is -0.69
    check_forms(fitted, tmp_path, inputs[500:520], None)


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


@pytest.mark.parametrize("spread", [0.5, 0.0])
@pytest.mark.parametrize("order, expected", [([0, 1, 2], True), ([1, 0, 2], False)])
def test_whether_one_function_and_thresholds_predict_labels(
    order: list[int], spread: float, expected: bool
) -> None:
    """By probabilities of a cumulative logit, with errors or none, whose classes are
    renamed.
    """
    f = 3.0 * random.normal(size=[400, 1]) + np.array([2.0, -2.0])
    p = -np.diff(1.0 / (1.0 + np.exp(-f)), axis=1, prepend=1.0, append=0.0)
    labels = np.argmax(p.cumsum(axis=1) > random.uniform(size=[400, 1]), axis=1)
    p *= np.exp(spread * random.normal(size=p.shape))
    p /= p.sum(axis=1, keepdims=True)
    assert is_ordinal(p, labels, np.array(order)) == expected
    assert is_ordinal(p[:, order], np.argsort(order)[labels], np.arange(3)) == expected


@pytest.mark.near_copies("20.0*")
@pytest.mark.parametrize(
    "variance, num_inducing, has_copies", [(700.0, 24, False), (20.0, 12, True)]
)
def test_rows_are_left_out_as_by_refits(
    variance: float, num_inducing: int, has_copies: bool, no_training: None
) -> None:
    """The sites of the others change without a row, most at large kernel variances."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(24, 2))
    labels = np.sin(2.0 * rows[:, 1]) + rows[:, 0] + 0.3 * rng.normal(size=24) > 0.0
    if has_copies:
        rows[[20, 21]], labels[[20, 21]] = rows[3], labels[3]
    settings = replace(
        class_stack.COMMON,
        likelihood="bernoulli",
        num_inducing=num_inducing,
        num_classes=2,
    )
    part = SingleClassifier(settings).fit(rows, 1.0 * labels[:, None])
    model: Any = part.model
    model.kernel.variance.assign(variance)
    model.kernel.lengthscales.assign([2.0, 2.0])
    copies = numbers_of_copies(rows, 1.0 * labels[:, None])
    found = part.left_out(copies)
    inputs, targets = map(np.asarray, model.data)
    for row in (0, 3):
        others = (rows != rows[row]).any(axis=1)
        without = with_data(model, (inputs[others], targets[others]))
        expected = without.predict_y(inputs[row : row + 1])[0].numpy()[0, 0]
        assert_allclose(found[row, 1], expected, atol=0.01)


def test_integrals_of_labels_are_compiled_once_for_all_models() -> None:
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(2, 30, 1))
    signs = 1.0 * (rng.uniform(size=[30, 1]) < 0.5)
    rows = [tf.constant(array) for array in (mean, variance**2, signs)]
    compiled = _compiled_probit(tf.float64)
    assert compiled is _compiled_probit(tf.float64)
    power = tf.constant(0.5, tf.float64)
    inputs = tf.zeros([30, 4], tf.float64)
    likelihood = gpflow.likelihoods.Bernoulli()
    expected = tilted_derivatives(likelihood, inputs, *rows, power)
    for values in zip(compiled(*rows, power), expected):
        assert_allclose(*values, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_words_need_an_order_for_the_ordinal_likelihood() -> None:
    words = ["stable", "worse", "admitted"]
    x = np.linspace(-1.0, 1.0, 30)[:, None]
    labels = np.repeat(words, 10)
    options: Any = {"num_inducing": 4, "likelihood": "ordinal", "max_iterations": 20}
    with pytest.raises(ValueError, match=r"the words 'admitted', .*Pass order=\[...\]"):
        PEPClassifier(**options).fit(x, labels)
    model = PEPClassifier(order=words, **options).fit(x, labels)
    assert list(model.order_) == words and list(model.classes_) == sorted(words)
    assert list(model.predict(x[[0, 15, 29]])) == words
    with pytest.raises(ValueError, match=r"order: got 'stable', 'worse' without 'adm"):
        PEPClassifier(order=words[:2], **options).fit(x, labels)
    with pytest.raises(
        ValueError, match=r"order: got an order for the likelihood 'auto'"
    ):
        PEPClassifier(order=words, num_inducing=4).fit(x, labels)
