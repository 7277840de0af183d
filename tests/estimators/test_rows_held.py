"""How many training rows the files of estimators hold, beside what they hold."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpflow_pep.estimators import (
    PEPClassifier,
    PEPRegressor,
    SeparateRegressors,
    export_numpy,
    load_estimator,
    save_estimator,
)
from gpflow_pep.estimators.rows_held import RowsHeld

RNG = np.random.default_rng(0)
X = 5.0 + RNG.normal(size=(30, 2))
Y = np.sin(X[:, 0])
LABELS = np.digitize(X[:, 1], [4.5, 5.5])
TWO = np.stack([Y, np.where(np.arange(30) < 6, np.nan, X[:, 1])], axis=1)
FEW: dict[str, Any] = {"num_inducing": 6, "near_rows": 0, "random_state": 0}
RANDOM = FEW | {"inducing": "random", "alpha": 0.5}


def some_rows() -> Any:
    """Points in the model's units, the first rows, which are not trained."""
    points = (X[:4] - X.mean(axis=0)) / X.std(axis=0)
    fixed = gpflow.inducing_variables.InducingPoints(points)
    gpflow.set_trainable(fixed, False)
    return fixed


#: Estimators, rows and targets, and how many rows the folders hold, where that is known
#: without a look at them.
CASES: dict[str, tuple[Callable[[], Any], Any, Any, tuple[int, ...] | None]] = {
    "default": (lambda: PEPRegressor(random_state=0), X, Y, (30, 30, 30)),
    "exact": (lambda: PEPRegressor(inducing="rows", alpha=0.5), X, Y, (30, 30, 30)),
    "centres": (lambda: PEPRegressor(alpha=0.5, **FEW), X, Y, None),
    "random rows": (lambda: PEPRegressor(**RANDOM), X, Y, (30, 30, 6)),
    "unscaled": (
        lambda: PEPRegressor(standardize=False, **RANDOM),
        X,
        Y,
        (30, 30, 6),
    ),
    "minibatches": (
        lambda: PEPRegressor(
            inducing=some_rows(), alpha=0.5, batch_size=10, max_iterations=1
        ),
        X,
        Y,
        (30, 4, 4),
    ),
    "copies": (
        lambda: PEPRegressor(random_state=0),
        np.concatenate([X, X[:5]]),
        np.append(Y, Y[:5]),
        (35, 35, 35),
    ),
    "classes": (lambda: PEPClassifier(**FEW), X, LABELS, None),
    "three models of classes": (lambda: PEPClassifier(), X, LABELS, (30, 30, 30)),
    "columns": (lambda: PEPRegressor(num_latent=0, **FEW), X, TWO, None),
    "several columns": (lambda: PEPRegressor(max_seconds=5), X, TWO, None),
    "separate": (lambda: SeparateRegressors(PEPRegressor(**FEW)), X, TWO, None),
}
pytestmark = pytest.mark.usefixtures("no_training")


def scalers_of(estimator: Any) -> list[Any]:
    """What changes inputs to the units of each model in an estimator."""
    parts = getattr(estimator, "estimators_", [estimator])
    return [single.scaler for part in parts for single in part.mixture_.singles()]


def readable(folder: Path, estimator: Any, X: Any) -> int:
    """How many rows X can be read in the arrays of a folder, in any units there."""
    found = np.zeros(len(X), dtype=bool)
    with np.load(folder / "arrays.npz") as arrays:
        wide = [arrays[name] for name in arrays]
    wide = [array for array in wide if array.ndim == 2 and array.shape[1] == X.shape[1]]
    for scaler in scalers_of(estimator):
        rows = scaler.transform(X)
        for array in wide:
            distances = np.abs(rows[:, None] - array[None]).max(axis=2)
            found |= distances.min(axis=1) < 1e-9
    return int(np.sum(found))


@pytest.mark.near_copies("minibatches", "columns", "exact")
@pytest.mark.filterwarnings("ignore")  # of copies, and of training that was cut short
@pytest.mark.parametrize("name", CASES)
def test_the_count_is_that_of_the_files(name: str, tmp_path: Path) -> None:
    make, inputs, targets, expected = CASES[name]
    fitted = make().fit(inputs, targets)
    held = fitted.rows_held_
    assert held.training == len(inputs)
    assert held == (expected or held)
    save_estimator(tmp_path / "model", fitted)
    assert held.model == readable(tmp_path / "model", fitted, inputs)
    assert load_estimator(tmp_path / "model").rows_held_ == held
    if name != "separate":
        text = (tmp_path / "model" / "model.json").read_text()
        (described,) = json.loads(text)["estimators"]
        assert described["training_rows"] == held.in_model()
    if targets.ndim == 1:
        export_numpy(tmp_path / "scorer", fitted)
        assert held.scorer == readable(tmp_path / "scorer", fitted, inputs)
        text = (tmp_path / "scorer" / "scorer.json").read_text()
        assert json.loads(text)["training_rows"] == held.in_scorer()


def test_trained_points_and_rows_without_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()  # train
    rows = np.concatenate([X, np.full((2, 2), np.nan)])
    settings = RANDOM | {"num_inducing": 3, "max_iterations": 3}
    with pytest.warns(UserWarning):
        fitted = PEPRegressor("rbf", **settings).fit(rows, np.append(Y, [0.0, 1.0]))
    assert fitted.rows_held_ == (30, 30, 0)


def test_a_second_fit_counts_anew_and_a_pipeline_has_the_count(tmp_path: Path) -> None:
    model = PEPRegressor(**RANDOM).fit(X, Y)
    assert model.fit(X[:20], Y[:20]).rows_held_ == (20, 20, 6)
    export_numpy(tmp_path, make_pipeline(StandardScaler(), model).fit(X, Y))
    text = (tmp_path / "scorer.json").read_text()
    assert json.loads(text)["training_rows"] == "6 of 30 training rows are in it"


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (RowsHeld(178, 178, 128), "128 of 178 training rows are in it"),
        (RowsHeld(178, 178, 1), "1 of 178 training rows is in it"),
        (RowsHeld(178, 178, 0), "0 of 178 training rows are in it"),
        (RowsHeld(1, 1, 1), "1 of 1 training row is in it"),
    ],
)
def test_the_sentence(held: RowsHeld, words: str) -> None:
    assert held.in_scorer() == words
