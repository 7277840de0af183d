"""Estimators, and scikit-learn's around them, on disk and back; and files that are
none.
"""

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from cases.readers import check_folder, rewrite, spoiled_folders
from gpflow.base import AnyNDArray
from helpers import skip_training
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import compose, preprocessing
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import VotingRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    QuantileTransformer,
    StandardScaler,
)
from skops import io

import gpflow_pep as pep
from gpflow_pep.estimators import (
    PEPClassifier,
    PEPRegressor,
    load_estimator,
    save_estimator,
)
from gpflow_pep.models import ARPEP, PEP, PEPClassification, PEPRegression
from gpflow_pep.scoring import load_scorer
from gpflow_pep.tables import Format, TableEncoder
from gpflow_pep.training.choosing.ensemble import components

RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": 100.0 + 9.0 * RNG.normal(size=18), "b": RNG.normal(size=18)})
Y = np.sin(X["a"] / 9.0) + X["b"]
CLASSES = np.array(["low", "middle", "high"])[np.digitize(Y, [-0.4, 0.4])]
MESSY = X.assign(c=["u", "v", None] * 6, day=pd.date_range("2020-01-01", periods=18))
MESSY.loc[4, "b"] = np.nan
SMALL: dict[str, Any] = {"num_inducing": 5, "alpha": 0.5, "random_state": 0}
pytestmark = pytest.mark.usefixtures("no_training")


def regressor(**options: Any) -> PEPRegressor:
    return PEPRegressor(**{**SMALL, **options}).fit(X, Y)


def classifier(**options: Any) -> PEPClassifier:
    return PEPClassifier(**{**SMALL, **options}).fit(X, CLASSES)


def encoder() -> TableEncoder:
    numbers = dict.fromkeys("ab", Format("number"))
    return TableEncoder(
        numbers | {"c": Format("text"), "day": Format("date", pattern="dmy")}
    )


def pipeline() -> Pipeline:
    return make_pipeline(encoder(), PEPRegressor(**SMALL)).fit(MESSY, Y)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    with pytest.MonkeyPatch.context() as patch:
        skip_training(patch)
        save_estimator(folder, pipeline())
    return folder


def predictions(model: Any, rows: Any) -> list[AnyNDArray]:
    if hasattr(model, "predict_proba"):
        return [model.predict_proba(rows), model.predict(rows)]
    return list(model.predict(rows, return_std=True))


def check_comes_back(folder: Path, before: Any, rows: Any = X) -> Any:
    save_estimator(folder, before)
    after = load_estimator(folder)
    same: Any = assert_array_equal
    model = getattr(before, "model_", None)
    if model is not None and isinstance(components(model)[0][0], PEP):
        # Sweeps of sites that have converged.
        same = partial(assert_allclose, rtol=1e-12)
    for found, expected in zip(
        predictions(after, rows), predictions(before, rows), strict=True
    ):
        (assert_array_equal if found.dtype.kind in "OU" else same)(found, expected)
    return after


def test_regression(tmp_path: Path) -> None:
    before = regressor(
        kernel=gpflow.kernels.Matern32(lengthscales=[0.5, 2.0]), alpha=0.3
    )
    after = check_comes_back(tmp_path / "new" / "model", before)
    assert isinstance(after.model_, PEPRegression)
    assert after.model_.alpha.numpy() == after.alpha_ == 0.3
    assert list(after.feature_names_in_) == ["a", "b"]
    assert after.get_params()["num_inducing"] == 5
    for found, expected in zip(after.model_.data, before.model_.data, strict=True):
        assert_array_equal(found, expected)
    assert_allclose(
        tf.function(after.model_.training_loss)(), before.model_.training_loss()
    )
    assert len(after.model_.trainable_variables) == len(
        before.model_.trainable_variables
    )
    assert_array_equal(after.predict(X[["b", "a"]]), before.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        after.predict(X.rename(columns={"a": "A"}))
    after.set_params(warm_start=True).fit(X, Y)  # goes on
    assert_array_equal(after.kernel_.lengthscales, before.kernel_.lengthscales)


BLURRED = pep.inducing_variables.BlurredInducingPoints(np.eye(2), np.ones(2))


@pytest.mark.near_copies("options2*")
@pytest.mark.parametrize(
    "options, model",
    [
        pytest.param({"likelihood": "student_t"}, PEP, marks=pytest.mark.slow),
        ({"batch_size": 10, "max_iterations": 1}, ARPEP),
        ({"inducing": BLURRED, "standardize": False}, PEPRegression),
    ],
)
def test_other_regressions(
    tmp_path: Path, options: dict[str, Any], model: type
) -> None:
    after = check_comes_back(tmp_path, regressor(**options))
    assert type(after.model_) is model


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["auto", "softmax"])
def test_classes(tmp_path: Path, likelihood: str) -> None:
    before = classifier(likelihood=likelihood)
    before.model_.max_sweeps = 150
    after = check_comes_back(tmp_path, before)
    assert isinstance(after.model_, PEPClassification)
    assert (
        after.model_.max_sweeps == 150
        and after.model_.tolerance == before.model_.tolerance
    )
    # The sites are restored, not found anew.
    assert_allclose(after.model_.sites.nu, before.model_.sites.nu, rtol=1e-13)
    assert_allclose(after.model_.sites.tau, before.model_.sites.tau, rtol=1e-13)
    # Labels keep their type.
    for labels in ([0, 3, 7], ["ja", "nein", "wie"]):
        before.classes_ = np.array(labels)
        found = check_comes_back(tmp_path, before).classes_
        assert found.dtype == before.classes_.dtype and list(found) == labels


def test_a_pipeline_and_its_description(tmp_path: Path) -> None:
    after = check_comes_back(tmp_path, pipeline(), MESSY)
    assert [name for name, _ in after.steps] == ["tableencoder", "pepregressor"]
    text = MESSY.assign(day=MESSY["day"].dt.strftime("%d.%m.%Y"))
    assert_array_equal(
        after.predict(text[["day", "c", "b", "a"]]), after.predict(MESSY)
    )
    with pytest.raises(ValueError, match=r"got no column 'c' among 'a', 'b', 'day'"):
        after.predict(MESSY.drop(columns="c"))
    with pytest.raises(ValueError, match=r"got the columns 'z', expected"):
        after.predict(MESSY.assign(z=1))
    description = json.loads((tmp_path / "model.json").read_text())
    assert description["versions"]["gpflow"] == gpflow.__version__
    (estimator,) = description["estimators"]
    assert (
        estimator["mixture"]["components"][0]["model"]["kernel"]["class"]
        == "gpflow.kernels.SquaredExponential"
    )


@pytest.mark.slow
def test_other_gpflow_config(tmp_path: Path) -> None:
    before = regressor()
    save_estimator(tmp_path, before)
    with gpflow.config.as_context(gpflow.config.Config(positive_bijector="exp")):
        assert_array_equal(load_estimator(tmp_path).predict(X), before.predict(X))
    with (
        gpflow.config.as_context(gpflow.config.Config(jitter=1e-3)),
        pytest.raises(
            ValueError, match=r"got .*0\.001.*, expected .*1e-06.*set_default_jitter"
        ),
    ):
        load_estimator(tmp_path)


# Estimators of scikit-learn's around ours.
ONE = X[["a"]]
POSITIVE = np.exp(np.sin(X["a"] / 9.0))
WORDS = MESSY.drop(columns="day")


def plain() -> PEPRegressor:
    return PEPRegressor(num_inducing=4, alpha=0.5, random_state=0)


def words(text: Any, numbers: Any) -> Any:
    of_text = compose.make_column_selector("c")
    of_numbers = compose.make_column_selector(dtype_include=np.number)
    return compose.make_column_transformer((text, of_text), (numbers, of_numbers))


ONE_HOT = preprocessing.OneHotEncoder(handle_unknown="ignore")
AROUND = {
    "quantiles": make_pipeline(QuantileTransformer(n_quantiles=9), plain()),
    "function": make_pipeline(FunctionTransformer(np.log1p), plain()),
    "splines": make_pipeline(preprocessing.SplineTransformer(), plain()),
    "best": make_pipeline(SelectKBest(f_regression, k=1), plain()),
    "encoder": make_pipeline(encoder(), StandardScaler(), plain()),
    "columns": make_pipeline(
        words(ONE_HOT, SimpleImputer(add_indicator=True)), plain()
    ),
    "ordinal columns": make_pipeline(
        words(preprocessing.OrdinalEncoder(encoded_missing_value=-1), SimpleImputer()),
        plain(),
    ),
    "logarithm": compose.TransformedTargetRegressor(
        plain(), func=np.log, inverse_func=np.exp
    ),
    "target's quantiles": compose.TransformedTargetRegressor(
        plain(), transformer=QuantileTransformer(n_quantiles=9)
    ),
    "several": VotingRegressor([("x", plain()), ("y", plain())]),
    "search": GridSearchCV(plain(), {"alpha": [0.0, 1.0]}, cv=2),
    "classes": make_pipeline(StandardScaler(), PEPClassifier(**SMALL)),
    "calibrated classes": CalibratedClassifierCV(PEPClassifier(**SMALL), cv=2),
}


@pytest.mark.parametrize("name", AROUND)
@pytest.mark.near_copies("several", "classes", "columns")
def test_what_is_around_comes_back(name: str, tmp_path: Path) -> None:
    rows = {"encoder": MESSY, "columns": WORDS, "ordinal columns": WORDS}.get(name, ONE)
    targets = (
        np.where(np.median(POSITIVE) < POSITIVE, "high", "low")
        if "classes" in name
        else POSITIVE
    )
    estimator = clone(AROUND[name]).fit(rows, targets)
    save_estimator(tmp_path, estimator)
    loaded = load_estimator(tmp_path)
    assert type(loaded) is type(estimator)
    assert_array_equal(loaded.predict(rows), estimator.predict(rows))
    if "classes" in name:
        assert_array_equal(loaded.predict_proba(rows), estimator.predict_proba(rows))
    loaded.fit(rows, targets)  # with the same parameters
    assert_array_equal(loaded.predict(rows), estimator.predict(rows))


def test_an_estimator_in_two_places_is_one(tmp_path: Path) -> None:
    member = plain()
    estimator = VotingRegressor([("x", member), ("y", member)]).fit(ONE, Y)
    save_estimator(tmp_path, estimator)
    (_, first), (_, second) = load_estimator(tmp_path).estimators
    assert first is second and not hasattr(first, "mixture_")


def double(X: Any) -> Any:
    return 2.0 * X


class OwnScaler(StandardScaler):
    """A user's."""


class OwnRegressor(PEPRegressor):
    """A user's."""


class OwnLikelihood(gpflow.likelihoods.Gaussian):
    """A user's, whose constructor checks its argument."""

    def __init__(self, variance: Any) -> None:
        if not (isinstance(variance, float | str) and float(variance) > 0.75):
            raise ValueError(f"variance: {variance!r} is no number above 0.75")
        super().__init__(float(variance))


class Forgetful(OwnLikelihood):
    """A user's, whose constructor refuses the number that its objects have."""

    def __init__(self, variance: str) -> None:
        super().__init__(str.strip(variance))


def test_classes_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = regressor(likelihood=OwnLikelihood(0.8), standardize=False)
    after = check_comes_back(tmp_path, fitted)
    assert type(after.likelihood_) is OwnLikelihood and after.num_inducing_ == 5
    # In a save alone skops sees another state.
    assert "mixture_" in fitted.__getstate__()
    monkeypatch.delitem(sys.modules, __name__)
    with pytest.raises(
        ValueError, match=f"got a class of the module {__name__}, .* Import the module"
    ):
        load_estimator(tmp_path)


def changed(change: Any) -> PEPRegressor:
    estimator = regressor()
    model = estimator.model_
    parts = model.data, model.kernel, model.inducing_variable
    estimator.mixture_.heaviest.set_model(PEPRegression(*parts, **change))
    return estimator


def more_points() -> gpflow.likelihoods.Likelihood:
    likelihood = gpflow.likelihoods.StudentT()
    likelihood.num_gauss_hermite_points = 50
    return likelihood


def piped(step: Any) -> Pipeline:
    return make_pipeline(step, plain()).fit(ONE, Y)


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: LinearRegression().fit(X, Y),
            r"estimator: got a LinearRegression, expected",
        ),
        (
            lambda: make_pipeline(LinearRegression()).fit(X, Y),
            r"got a Pipeline, expected a PEPReg",
        ),
        (
            lambda: OwnRegressor(**SMALL).fit(X, Y),
            r"estimator: got a OwnRegressor, expected",
        ),
        (
            lambda: regressor(likelihood=Forgetful("0.8")),
            r"estimator: got a part .*Forgetful: d",
        ),
        (
            lambda: regressor(random_state=np.random.RandomState(0)),
            r"random_state: got .*Random",
        ),
        (
            lambda: changed({"blocks": np.arange(18) // 4}),
            r"model_: got blocks of rows, expected",
        ),
        (
            lambda: changed({"mean_function": gpflow.functions.Constant(1.0)}),
            r"model_.mean_function: got a Constant, expected a Zero",
        ),
        (
            lambda: piped(FunctionTransformer(double)),
            (
                r"estimator: got .*test_save_estimator\.double in it, expected only"
                r" types .* pickle"
            ),
        ),
        (
            lambda: piped(FunctionTransformer(lambda X: X)),
            r"estimator: got .*<lambda> in it",
        ),
        (lambda: piped(OwnScaler()), r"estimator: got .*OwnScaler in it"),
        (
            lambda: regressor(likelihood=more_points()),
            "hermite_points: got 50, expected None",
        ),
        (PEPRegressor, r"not fitted yet"),
    ],
)
def test_what_would_be_lost_is_refused(tmp_path: Path, make: Any, message: str) -> None:
    estimator = make()
    with pytest.raises(ValueError, match=message):
        save_estimator(tmp_path / "model", estimator)
    assert list(tmp_path.iterdir()) == []


class Spy(BaseEstimator):
    """Says that it was made."""

    restored: ClassVar[list[Any]] = []

    def __setstate__(self, state: Any) -> None:
        self.restored.append(state)


def test_types_of_others_are_not_constructed(tmp_path: Path, saved: Path) -> None:
    """Also where somebody writes them who knows of the digest."""
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    (tmp_path / "pipeline.skops").write_bytes(io.dumps(Spy()))
    rewrite(tmp_path, lambda description, arrays: None)
    with pytest.raises(
        ValueError, match=r"do not describe an estimator .*got .*Spy in it"
    ):
        load_estimator(tmp_path)
    assert Spy.restored == []
    io.loads(io.dumps(Spy()), trusted=[Spy])
    assert Spy.restored


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("step", ["savez", "write_text", "rename"])
def test_a_save_that_fails_leaves_what_was_there(
    tmp_path: Path,
    saved: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    earlier: bool,
) -> None:
    folder = tmp_path / "model"
    if earlier:
        shutil.copytree(saved, folder)
    estimator = load_estimator(saved)
    place = np if step == "savez" else Path
    original = getattr(place, step)

    def fail(target: Any, *arguments: Any, **options: Any) -> Any:
        if step != "rename":
            original(target, *arguments, **options)  # written, and then
        elif target.name != "new" or not target.exists():
            return original(target, *arguments)
        raise OSError("no space left")

    monkeypatch.setattr(place, step, fail)
    with pytest.raises(OSError, match="no space left"):
        save_estimator(folder, estimator)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [folder] * earlier
    if earlier:
        load_estimator(folder)


def test_a_saved_folder_is_as_open_as_any_and_replaces_another(
    tmp_path: Path, saved: Path
) -> None:
    save_estimator(tmp_path / "model", regressor())
    save_estimator(tmp_path / "model", load_estimator(saved))
    assert isinstance(load_estimator(tmp_path / "model"), Pipeline)
    (tmp_path / "other").mkdir()
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "other"]


@pytest.mark.near_copies("README.md-True", "sub/.hidden-False")
@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "README.md", "sub/.hidden"])
def test_files_of_others_are_not_replaced(
    tmp_path: Path, saved: Path, name: str, earlier: bool
) -> None:
    """Beside an earlier model too; the card of a model is none of others."""
    folder = tmp_path / "model"
    if earlier:
        save_estimator(folder, load_estimator(saved), card="ours")
        save_estimator(folder, load_estimator(saved))
        assert not (folder / "README.md").exists()
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("mine")
    with pytest.raises(
        ValueError, match=rf"got {name} in it, expected only files .* Choose"
    ):
        save_estimator(folder, load_estimator(saved))
    assert (folder / name).read_text() == "mine"


@pytest.mark.near_copies("s3://bucket/model", "None", "place8", "file/below")
@pytest.mark.parametrize(
    "place",
    [
        "file",
        "file/below",
        "s3://bucket/model",
        "s3://bucket",
        Path("s3://bucket"),
        "S3:/model",
        "file:///tmp/model",
        "a\0b",
        "n" * 300,
        "",
        None,
        3,
    ],
)
def test_places_where_no_folder_can_be(
    tmp_path: Path, saved: Path, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    model = load_estimator(saved)
    got = r"(cannot be written|got a URL|not a path|no name).*"
    for write in (save_estimator, pep.estimators.export_numpy):
        with pytest.raises(ValueError, match=got + "Choose another folder"):
            write(place, model)  # type: ignore[operator]
    for read in (load_estimator, load_scorer):
        with pytest.raises(ValueError, match=r"no file|URL|not a path|no name"):
            read(place)  # type: ignore[operator]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def write(name: str, text: str) -> Any:
    return lambda folder: (folder / name).write_text(text)


def in_model(key: str, value: Any) -> Any:
    def change(description: Any, arrays: Any) -> None:
        (single,) = description["estimators"][0]["mixture"]["components"]
        single["model"][key] = value

    return lambda folder: rewrite(folder, change)


def without_numbers(description: Any, arrays: dict[str, Any]) -> None:
    arrays.update(
        {n: np.full(a.shape, np.nan) for n, a in arrays.items() if a.ndim == 2}
    )


@pytest.mark.parametrize(
    "damage, got",
    [
        # Mutated files, below, have what else can happen.
        *(
            (lambda folder, name=name: (folder / name).unlink(), f"got no file {name}")
            for name in ("model.json", "arrays.npz", "pipeline.skops")
        ),
        (write("model.json", "[" * 100_000), "is damaged"),
        (write("model.json", "[]"), "got format None, expected format 8"),
        (write("model.json", '{"format": 3}'), "got format 3, expected format 8"),
        (write("model.json", '{"format": 8}'), "digest of the files differs"),
        (write("arrays.npz", ""), "is damaged"),
        (lambda folder: rewrite(folder, without_numbers), "not finite numbers"),
        (in_model("class", "SVGP"), "do not describe an estimator"),
        (in_model("kernel", {"function": "exp"}), "do not describe an estimator"),
        (in_model("alpha", 7.0), "do not describe an estimator"),
    ],
)
def test_damaged_folder(tmp_path: Path, saved: Path, damage: Any, got: str) -> None:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    damage(tmp_path)
    with pytest.raises(ValueError) as error:
        load_estimator(tmp_path)
    assert all(part in str(error.value) for part in (str(tmp_path), got, "expected"))


class Evil:
    flag = Path()

    def __reduce__(self) -> Any:
        return (Path.touch, (self.flag,))


def test_objects_in_arrays_are_not_unpickled(tmp_path: Path, saved: Path) -> None:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    Evil.flag = tmp_path / "flag"
    objects = {"0": np.array([Evil()], dtype=object)}
    rewrite(tmp_path, lambda _, arrays: arrays.update(objects))
    Evil.flag.unlink(missing_ok=True)
    with pytest.raises(ValueError, match="damaged or was changed"):
        load_estimator(tmp_path)
    assert not Evil.flag.exists()


@pytest.mark.parametrize("number", [20, pytest.param(2000, marks=pytest.mark.slow)])
def test_mutated_files(tmp_path: Path, saved: Path, number: int) -> None:
    for must_be_noticed in spoiled_folders(tmp_path, saved, number):
        check_folder(tmp_path, must_be_noticed)
