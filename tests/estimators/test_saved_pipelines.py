"""Pipelines and other estimators of scikit-learn's around ours, on disk and back."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from cases.readers import rewrite
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.compose import (
    TransformedTargetRegressor,
    make_column_selector,
    make_column_transformer,
)
from sklearn.ensemble import VotingRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)
from skops import io

from gpflow_pep.estimators import PEPClassifier, PEPRegressor, load_estimator, save_estimator
from gpflow_pep.tables import Format, TableEncoder

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"a": 100.0 + 9.0 * RNG.normal(size=24), "b": RNG.normal(size=24)})
TABLE["c"] = RNG.choice(["u", "v", "w"], 24).astype(object)
TABLE.loc[4, "b"] = np.nan
Y = np.exp(np.sin(TABLE["a"] / 9.0))
LABELS = np.where(Y > 1.0, "high", "low")
NUMBERS = TABLE[["a"]]
pytestmark = pytest.mark.usefixtures("no_training")


def regressor() -> PEPRegressor:
    return PEPRegressor(num_inducing=4, random_state=0)


def encoder() -> TableEncoder:
    return TableEncoder({"a": Format("number"), "b": Format("number"), "c": Format("text")})


CASES = {
    "quantiles": lambda: (make_pipeline(QuantileTransformer(n_quantiles=9), regressor()), NUMBERS),
    "function": lambda: (make_pipeline(FunctionTransformer(np.log1p), regressor()), NUMBERS),
    "splines": lambda: (make_pipeline(SplineTransformer(), regressor()), NUMBERS),
    "best": lambda: (make_pipeline(SelectKBest(f_regression, k=1), regressor()), NUMBERS),
    "encoder": lambda: (make_pipeline(encoder(), StandardScaler(), regressor()), TABLE),
    "columns": lambda: (
        make_pipeline(
            make_column_transformer(
                (OneHotEncoder(handle_unknown="ignore"), ["c"]),
                (SimpleImputer(add_indicator=True), ["a", "b"]),
            ),
            regressor(),
        ),
        TABLE,
    ),
    "selected columns": lambda: (
        make_pipeline(
            make_column_transformer(
                (OrdinalEncoder(), make_column_selector("c")),
                (SimpleImputer(), make_column_selector(dtype_include=np.number)),
            ),
            regressor(),
        ),
        TABLE,
    ),
    "logarithm of the target": lambda: (
        TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp),
        NUMBERS,
    ),
    "target's quantiles": lambda: (
        TransformedTargetRegressor(regressor(), transformer=QuantileTransformer(n_quantiles=9)),
        NUMBERS,
    ),
    "several": lambda: (VotingRegressor([("x", regressor()), ("y", regressor())]), NUMBERS),
    "search": lambda: (GridSearchCV(regressor(), {"alpha": [0.0, 1.0]}, cv=2), NUMBERS),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.near_copies("several")
def test_predictions_are_identical(name: str, tmp_path: Path) -> None:
    estimator, X = CASES[name]()
    estimator.fit(X, Y)
    save_estimator(tmp_path, estimator)
    loaded = load_estimator(tmp_path)
    assert type(loaded) is type(estimator)
    assert_array_equal(loaded.predict(X), estimator.predict(X))
    loaded.fit(X, Y)  # with the same parameters
    assert_array_equal(loaded.predict(X), estimator.predict(X))


def test_classes(tmp_path: Path) -> None:
    estimator = make_pipeline(StandardScaler(), PEPClassifier(num_inducing=4, random_state=0))
    estimator.fit(NUMBERS, LABELS)
    save_estimator(tmp_path, estimator)
    loaded = load_estimator(tmp_path)
    assert_array_equal(loaded.predict_proba(NUMBERS), estimator.predict_proba(NUMBERS))
    assert_array_equal(loaded.predict(NUMBERS), estimator.predict(NUMBERS))


def test_an_estimator_in_two_places_is_one(tmp_path: Path) -> None:
    member = regressor()
    estimator = VotingRegressor([("x", member), ("y", member)]).fit(NUMBERS, Y)
    save_estimator(tmp_path, estimator)
    (_, first), (_, second) = load_estimator(tmp_path).estimators
    assert first is second and not hasattr(first, "model_")


def double(X: Any) -> Any:
    return 2.0 * X


class OwnScaler(StandardScaler):
    """A user's."""


@pytest.mark.parametrize(
    "step, got",
    [
        (lambda: FunctionTransformer(double), r"got .*test_saved_pipelines\.double in it"),
        (lambda: FunctionTransformer(lambda X: X), r"got .*<lambda> in it"),
        (OwnScaler, r"got .*OwnScaler in it"),
    ],
)
def test_parts_of_the_users_own_are_refused(tmp_path: Path, step: Any, got: str) -> None:
    estimator = make_pipeline(step(), regressor()).fit(NUMBERS, Y)
    with pytest.raises(ValueError, match=rf"estimator: {got}, expected only types .* pickle"):
        save_estimator(tmp_path / "model", estimator)
    assert list(tmp_path.iterdir()) == []


class Spy(BaseEstimator):
    """Says that it was made."""

    restored: ClassVar[list[Any]] = []

    def __setstate__(self, state: Any) -> None:
        self.restored.append(state)


def test_types_of_others_are_not_constructed(tmp_path: Path) -> None:
    """Also where somebody writes them who knows of the digest."""
    save_estimator(tmp_path, regressor().fit(NUMBERS, Y))
    (tmp_path / "pipeline.skops").write_bytes(io.dumps(Spy()))
    rewrite(tmp_path, lambda description, arrays: None)
    with pytest.raises(ValueError, match=r"do not describe an estimator .*got .*Spy in it"):
        load_estimator(tmp_path)
    assert Spy.restored == []
    io.loads(io.dumps(Spy()), trusted=[Spy])
    assert Spy.restored


def test_pickles_and_copies_stay_as_they_were(tmp_path: Path) -> None:
    """What takes the place of an estimator's state is seen by skops alone, and only in a save."""
    estimator = regressor().fit(NUMBERS, Y)
    save_estimator(tmp_path, estimator)
    load_estimator(tmp_path)
    assert "model_" in estimator.__getstate__()
