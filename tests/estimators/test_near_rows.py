"""Estimators whose predictions use near rows: chosen, in all predictions and forms,
refused.
"""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
from cases.forms import check_forms, check_mixture, forms, saved
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from gpflow_pep.distributions import Units
from gpflow_pep.estimators import PEPClassifier, PEPRegressor, export_numpy
from gpflow_pep.estimators.single import classes as single_classes
from gpflow_pep.estimators.single import trainer
from gpflow_pep.estimators.single.classes import SingleClassifier
from gpflow_pep.scoring.components import predictive
from gpflow_pep.training import Ensemble, NearRows
from gpflow_pep.training.choosing import near
from gpflow_pep.training.fitting.objectives import copy_of

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


def test_near_rows_are_known_where_that_pays(
    fitted: PEPRegressor, monkeypatch: Any
) -> None:
    monkeypatch.setattr(trainer, "LEAST_ROWS", 80)
    assert fitted.near_rows_ == 40 and len(fitted.model_.models) == 6
    alone = clone(fitted).set_params(near_rows=0).fit(X, Y)
    assert alone.near_rows_ == 0 and len(alone.model_.models) == 3
    truth = 50.0 + 9.0 * np.sin(3.0 * XNEW[:, 0])
    errors = [np.abs(each.predict(XNEW) - truth).mean() for each in (fitted, alone)]
    assert errors[0] < 0.5 * errors[1]


def components_of_y(fitted: PEPRegressor) -> list[Any]:
    parts = fitted.posterior_.components_of_y(fitted.input_scaler_.transform(XNEW))
    return [np.stack(part)[..., 0] for part in zip(*parts)]


def test_all_predictions_know_them(fitted: PEPRegressor) -> None:
    means, variances = components_of_y(fitted)
    m = means * Y.std() + Y.mean()
    s = np.sqrt(variances) * Y.std()
    check_mixture(fitted, XNEW, fitted.model_.weights.numpy()[:, None], m, s, rtol=1e-7)
    mean = fitted.predict(XNEW)
    from_model = fitted.model_.predict_y((XNEW - X.mean()) / X.std())[0].numpy()[:, 0]
    assert_allclose(from_model * Y.std() + Y.mean(), mean, rtol=1e-9)
    assert fitted.far_rows([[5.0], [90.0]]).tolist() == [False, True]


def test_all_forms_know_them(fitted: PEPRegressor, tmp_path: Path) -> None:
    parts = components_of_y(fitted)
    *estimators, of_numpy = check_forms(fitted, tmp_path, XNEW, Y[:7], rtol=1e-12)
    for other in estimators:
        assert (
            other.near_rows_ == fitted.near_rows_
            and other.model_.near == fitted.model_.near
        )
        assert len({id(model) for model in other.model_.models}) == 3
        assert isinstance(other.model_.near[-1], NearRows)
    for mixture in (
        fitted.mixture_.heaviest.mixture_in_numpy(),
        of_numpy._models[0][:2],
    ):
        found = predictive(*mixture, fitted.input_scaler_.transform(XNEW), Units())
        assert_allclose(found.means, parts[0], rtol=0, atol=1e-8)
        assert_allclose(found.variances, parts[1], rtol=1e-8)
    # Of six components, once.
    with np.load(tmp_path / "scorer" / "arrays.npz") as arrays:
        # X, and targets.
        assert sum(array.shape == X.shape for array in arrays.values()) == 2
    assert fitted.rows_held_ == (80, 80, 80)


@pytest.mark.slow
def test_several_outputs_without_mixing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "LEAST_ROWS", 80)
    two = np.column_stack([Y, -Y])
    both = too_few_points().set_params(num_latent=0).fit(X, two)
    mean, sd = both.predict(XNEW, return_std=True)
    assert both.near_rows_ == 40 and mean.shape == sd.shape == (7, 2)
    assert_allclose(mean[:, 0], -mean[:, 1], rtol=1e-8)
    two[3, 1] = np.nan
    assert too_few_points().set_params(num_latent=0).fit(X, two).near_rows_ == 0


def test_one_power_has_none_by_itself_and_few_rows_neither(no_training: None) -> None:
    assert too_few_points().fit(X, Y).near_rows_ == 0
    for options in ({"near_rows": None}, {}):
        assert PEPRegressor(alpha=0.5, **options, **SMALL).fit(X, Y).near_rows_ == 0


# Classifiers: the squares of a chessboard, more than four points can follow.
WORDS = np.array(["no", "yes"])
ROWS, NEW = np.split(np.random.default_rng(5).uniform(0.0, 4.0, (360, 2)), [300])
LABELS, EXPECTED = (
    WORDS[(np.floor(rows).sum(axis=1) % 2).astype(int)] for rows in (ROWS, NEW)
)
FEW: dict[str, Any] = {"num_inducing": 4, "max_iterations": 25, "random_state": 0}


@pytest.fixture(scope="module")
def labels() -> PEPClassifier:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(single_classes, "LEAST_ROWS", 300)
        return PEPClassifier(**FEW).fit(ROWS, LABELS)


@pytest.mark.slow
def test_near_labels_are_known_where_that_pays(labels: PEPClassifier) -> None:
    assert labels.near_rows_ == 20 and len(labels.model_.models) == 2
    assert labels.score(NEW, EXPECTED) > 0.7
    alone = PEPClassifier(**FEW, near_rows=0).fit(ROWS, LABELS)
    assert alone.near_rows_ == 0
    assert labels.log_score(NEW, EXPECTED) > alone.log_score(NEW, EXPECTED) + 0.15
    few = PEPClassifier(**{**FEW, "max_iterations": 2}).fit(ROWS[:40], LABELS[:40])
    assert few.near_rows_ == 0  # below LEAST_ROWS


@pytest.mark.slow
def test_probabilities_are_mixed(labels: PEPClassifier) -> None:
    scaled = labels.input_scaler_.transform(NEW)
    posterior = labels.posterior_
    of_one = [
        likelihood.predict_mean_and_var(scaled, *one.predict_f(scaled))[0][:, 0]
        for likelihood, one in zip(
            posterior.likelihoods, posterior.posteriors, strict=True
        )
    ]
    probability = labels.predict_proba(NEW)
    mixed = labels.model_.weights.numpy() @ np.stack(of_one)
    assert_allclose(probability[:, 1], mixed, rtol=1e-6)
    assert_allclose(probability.sum(axis=1), 1.0)
    assert labels.far_rows([[2.0, 2.0], [90.0, 0.0]]).tolist() == [False, True]


@pytest.mark.slow
def test_all_forms_know_near_labels(labels: PEPClassifier, tmp_path: Path) -> None:
    loaded, pickled, of_numpy = forms(labels, tmp_path)
    for other in (loaded, pickled):
        assert other.near_rows_ == 20 and other.model_.near == labels.model_.near
    assert_allclose(loaded.predict_proba(NEW), labels.predict_proba(NEW), rtol=1e-9)
    moments = (
        each.model_.models[1].predict_f(NEW[:3], near=20) for each in (pickled, labels)
    )
    for one, other in zip(*moments, strict=True):
        assert_allclose(one, other, rtol=1e-12)
    expected = np.asarray(
        labels.posterior_.predict_probabilities(labels.input_scaler_.transform(NEW))
    )
    for numpy_alone in (labels, of_numpy):
        assert_allclose(numpy_alone.predict_proba(NEW), expected, rtol=0, atol=1e-8)
        one = np.concatenate([numpy_alone.predict_proba(row[None]) for row in NEW])
        assert_allclose(one, expected, rtol=0, atol=1e-8)
    assert labels.mixture_.heaviest.mixture_in_numpy()[0]
    assert_array_equal(of_numpy.far_rows(NEW), labels.far_rows(NEW))


@pytest.mark.slow
def test_of_another_power_tensorflow_predicts(
    labels: PEPClassifier, tmp_path: Path
) -> None:
    other = copy.deepcopy(labels)
    model = labels.model_
    models = [model.models[0], copy_of(model.models[1])]
    models[1].alpha = 0.5
    single = other.mixture_.heaviest
    single.set_model(Ensemble(models, model.weights.numpy(), near=model.near))
    assert single.mixture_in_numpy()[0] == ()
    assert len(other.predict_proba(NEW)) == len(NEW)
    with pytest.raises(
        ValueError, match="near rows of Bernoulli, or of a power below 1"
    ):
        export_numpy(tmp_path / "scorer", other)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, number", [({"batch_size": 100}, 2), ({"alpha": "mix"}, 4)]
)
def test_minibatches_and_several_powers(
    options: Any, number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(single_classes, "LEAST_ROWS", 300)
    model = PEPClassifier(**FEW, **options).fit(ROWS, LABELS)
    assert model.near_rows_ == 20 and model.score(NEW, EXPECTED) > 0.6
    assert len(model.model_.models) == number
    again = saved(model, tmp_path).predict_proba(NEW)
    assert_allclose(again, model.predict_proba(NEW), rtol=1e-9)
    assert model.set_params(warm_start=True).fit(ROWS, LABELS).near_rows_ == 20


def test_a_quarter_of_the_seconds_is_for_near_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(single_classes, "LEAST_ROWS", 80)
    seconds: list[float] = []

    def instead(*_, **options):
        return seconds.append(options["seconds"])

    monkeypatch.setattr(near, "ensemble_with_near_labels", instead)
    options = {**FEW, "max_iterations": 1, "max_seconds": 80.0}
    model = PEPClassifier(**options).fit(ROWS[:80], LABELS[:80])
    assert model.near_rows_ == 0 and seconds == [20.0]
    settings = model.mixture_.settings
    for near_rows, expected in (("auto", 60.0), (0, 80.0)):
        single = SingleClassifier(replace(settings, near_rows=near_rows))
        assert single.seconds_of_points(80) == expected
