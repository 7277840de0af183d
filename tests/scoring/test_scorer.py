"""Estimators exported for NumPy, and their own predictions with it."""

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpflow_pep.engine.files import SCORER
from gpflow_pep.estimators import PEPClassifier, PEPRegressor, export_numpy
from gpflow_pep.estimators.exporting_numpy import why_no_scorer
from gpflow_pep.scoring import Scorer, load_scorer
from gpflow_pep.scoring.stored import digest
from gpflow_pep.tables import Format, TableEncoder

SMALL: dict[str, Any] = {"num_inducing": 6, "random_state": 0}
RNG = np.random.default_rng(0)
X = 100.0 + 9.0 * RNG.normal(size=(24, 2))
XNEW = 100.0 + 9.0 * RNG.normal(size=(7, 2))
Y = 3e3 * np.sin(X[:, 0] / 9.0)
POSITIVE = np.exp(Y / 1e3)
TABLE = pd.DataFrame({"a": X[:, 0], "c": ["u", "v", "w"] * 8, "d": ["2024-01-31"] * 24})
FORMATS = {
    "a": Format("number"),
    "c": Format("text"),
    "d": Format("date", pattern="ymd"),
}
WORDS = np.array(["dry", "wet", "ice"])[np.digitize(Y, [-1e3, 1e3])]
WIDE = gpflow.kernels.SquaredExponential(1e2, 9.0) + gpflow.kernels.Constant(1e2)
BINS = gpflow.likelihoods.Ordinal(np.array([-0.5, 0.5]))
pytestmark = pytest.mark.usefixtures("no_training")


@cache
def regressor() -> PEPRegressor:
    return PEPRegressor(**SMALL).fit(X, Y)


ESTIMATORS: dict[str, Callable[[], Any]] = {
    "ensemble": regressor,
    "one power": lambda: PEPRegressor("matern32", alpha=0.5, **SMALL).fit(X, Y),
    "units as they are": lambda: PEPRegressor(WIDE, standardize=False, **SMALL).fit(
        X, Y
    ),
    "minibatches": lambda: PEPRegressor(batch_size=8, max_iterations=1, **SMALL).fit(
        X, Y
    ),
    "Student-t": lambda: PEPRegressor(likelihood="student_t", **SMALL).fit(X, Y),
    "logarithms": lambda: PEPRegressor(likelihood="log_normal", **SMALL).fit(
        X, POSITIVE
    ),
    "counts": lambda: PEPRegressor(likelihood="poisson", **SMALL).fit(
        X, np.round(X[:, 0] - 60.0)
    ),
    "two classes": lambda: PEPClassifier(**SMALL).fit(X, Y > 0.0),
    "numbered classes": lambda: PEPClassifier(**SMALL).fit(
        X, np.digitize(Y, [-1e3, 1e3])
    ),
    "RobustMax": lambda: PEPClassifier(likelihood="multiclass", **SMALL).fit(X, WORDS),
    "ordered classes": lambda: PEPClassifier(
        likelihood="ordinal", order=["dry", "ice", "wet"], **SMALL
    ).fit(X, WORDS),
    "GPflow's ordered classes": lambda: PEPClassifier(likelihood=BINS, **SMALL).fit(
        X, WORDS
    ),
    "words": cache(lambda: PEPClassifier(**SMALL).fit(X, WORDS)),
    "words as objects": lambda: PEPClassifier(**SMALL).fit(X, WORDS.astype(object)),
}


def predictions(model: Any, rows: Any) -> dict[str, Any]:
    """All that a model predicts, by name."""
    if hasattr(model, "classes_"):
        return {"probability": model.predict_proba(rows), "label": model.predict(rows)}
    mean, sd = model.predict(rows, return_std=True)
    found = {"mean": mean, "sd": sd, "mean alone": model.predict(rows)}
    likelihood = getattr(model, "likelihood_", None) or model[-1].likelihood_
    if isinstance(likelihood, gpflow.likelihoods.Gaussian):
        found["quantiles"] = model.predict_quantiles(rows, [0.01, 0.5, 0.9])
        found["interval"] = model.predict_interval(rows, 0.8)
        found["log density"] = model.log_densities(rows, 1.1 * mean)
    return found


def of_tensorflow(estimator: Any, rows: Any) -> dict[str, Any]:
    """What an estimator predicts where NumPy does not know its parts."""
    estimator.mixture_.heaviest._numpy_components = ()
    try:
        return predictions(estimator, rows)
    finally:
        estimator.mixture_.heaviest._numpy_components = None


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        if name == "label":
            assert_array_equal(found[name], values)
        else:
            assert_allclose(found[name], values, rtol=1e-10, atol=1e-10, err_msg=name)


@pytest.mark.near_copies(
    "logarithms", "counts", "two classes", "RobustMax", "one power"
)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimator_and_scorer_predict_what_tensorflow_does(
    name: str, tmp_path: Path
) -> None:
    estimator = ESTIMATORS[name]()
    expected = of_tensorflow(estimator, XNEW)
    assert_same(predictions(estimator, XNEW), expected)
    assert estimator.mixture_.heaviest._numpy_components
    scorer = scorer_of(estimator, tmp_path)
    scorer.likelihood_ = estimator.likelihood_  # type: ignore[attr-defined]
    assert_same(predictions(scorer, XNEW), expected)
    for number in (1, 7):
        assert_same(
            predictions(scorer, XNEW[:number].tolist()),
            predictions(scorer, XNEW[:number]),
        )
    if name in ("ensemble", "two classes"):
        rows = np.vstack([X[:3], X[:2] + 1e3])
        expected = [False, False, False, True, True]
        assert scorer.far_rows(rows).tolist() == expected
        for prepared in (None, ()):
            estimator.mixture_.heaviest._numpy_components = prepared
            assert estimator.far_rows(rows).tolist() == expected
        estimator.mixture_.heaviest._numpy_components = None


def scorer_of(estimator: Any, folder: Path) -> Scorer:
    export_numpy(folder / "scorer", estimator)
    return load_scorer(folder / "scorer")


@pytest.mark.slow
def test_parts_that_are_not_known_leave_it_to_tensorflow(tmp_path: Path) -> None:
    """As does single precision."""
    estimator = PEPRegressor(gpflow.kernels.ArcCosine(), alpha=0.5, **SMALL).fit(X, Y)
    assert len(estimator.predict(XNEW)) == 7
    assert estimator.mixture_.heaviest.mixture_in_numpy()[0] == ()
    with pytest.raises(ValueError, match=r"got ArcCosine.*, expected .*save_estim"):
        export_numpy(tmp_path / "scorer", estimator)
    assert not list(tmp_path.iterdir())
    assert "kernel: got ArcCosine" in why_no_scorer(estimator)
    student = ESTIMATORS["Student-t"]()
    assert "a scorer has no quantiles under the likelihood StudentT" in why_no_scorer(
        student
    )
    assert (
        why_no_scorer(regressor()) == why_no_scorer(ESTIMATORS["two classes"]()) == ""
    )
    gpflow.config.set_default_float(np.float32)
    estimator = PEPRegressor(**SMALL, alpha=0.5).fit(X, Y)
    assert estimator.predict(XNEW).dtype == np.float32
    assert estimator.mixture_.heaviest.mixture_in_numpy()[0] == ()


def test_what_predicts_follows_another_fit_and_is_not_pickled() -> None:
    estimator = PEPRegressor(**SMALL).fit(X, Y)
    before = estimator.predict(XNEW)
    assert estimator.mixture_.heaviest._numpy_components
    state = estimator.mixture_.heaviest.__getstate__()
    assert state["_numpy_components"] is None and state["_posterior"] is None
    assert_allclose(
        pickle.loads(pickle.dumps(estimator)).predict(XNEW), before, rtol=1e-10
    )
    assert_allclose(estimator.fit(X, Y + 5e3).predict(XNEW), before + 5e3, rtol=1e-6)


def test_a_pipeline_for_tables(tmp_path: Path) -> None:
    last = PEPRegressor(**SMALL)
    model = make_pipeline(TableEncoder(FORMATS), StandardScaler(), "passthrough", last)
    scorer = scorer_of(model.fit(TABLE, Y), tmp_path)
    new = TABLE.iloc[:3, ::-1].copy()
    new.loc[0, "c"], new.loc[1, "a"], new.loc[2, "a"] = "x", 1e3, np.nan
    found, expected = (each.predict(new, return_std=True) for each in (scorer, model))
    assert_allclose(found, expected, rtol=1e-10)
    remarks = ["c 'x' is new", "a is above all", "a is missing"]
    assert scorer.unusual(new) == model[0].unusual(new) == remarks
    assert list(scorer.feature_names_in_) == ["a", "c", "d"]
    with pytest.raises(ValueError, match=r"no column .*'c'"):
        scorer.predict(new[["a", "d"]])


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    table, new = (pd.DataFrame(rows, columns=["p", "q"]) for rows in (X, XNEW))
    model = make_pipeline(StandardScaler(), PEPRegressor(**SMALL)).fit(table, Y)
    scorer = scorer_of(model, tmp_path)
    assert_allclose(scorer.predict(new[["q", "p"]]), model.predict(new), rtol=1e-10)
    with pytest.raises(
        ValueError, match=r"got the columns \['p', 'r'\], expected the columns"
    ):
        scorer.predict(new.rename(columns={"q": "r"}))
    with pytest.raises(ValueError, match="unusual: got a scorer of numbers"):
        scorer.unusual(new)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scorer of a trained estimator, whose predictions it has."""
    trained = PEPRegressor(**SMALL, max_iterations=3).fit(X, Y)
    assert trained.n_iter_ > 0
    path: Path = tmp_path_factory.mktemp("scorer") / "scorer"
    export_numpy(path, trained)
    expected = of_tensorflow(trained, XNEW)
    scorer = load_scorer(path)
    scorer.likelihood_ = trained.likelihood_  # type: ignore[attr-defined]
    for model in (trained, scorer):
        assert_same(predictions(model, XNEW), expected)
    return path


INPUTS: list[tuple[Any, str]] = [
    (XNEW[:, :1], r"X: got shape \(7, 1\), expected \[N, 2\]"),
    (XNEW[0], r"shape \(2,\).*a single row is X\[None, :\]"),
    (XNEW[:0], r"shape \(0, 2\), expected .* at least one row"),
    ([[1.0, np.nan], [1.0, 2.0]], "NaN or infinity in 1 row.* index 0"),
    *(
        (rows, "not an array of real numbers")
        for rows in ([["a", "b"]], [[1.0], [1.0, 2.0]], 1j * XNEW)
    ),
    *((rows, "X: got") for rows in ([[1.0, None]], None)),
]


def test_inputs_that_are_refused(folder: Path) -> None:
    for rows, message in INPUTS:
        with pytest.raises(ValueError, match=message):
            load_scorer(folder).predict(rows)


CALLS: dict[str, list[tuple[Callable[[Scorer], Any], str]]] = {
    "ensemble": [
        (lambda s: s.predict_proba(XNEW), "predict_proba: got a model of numbers"),
        (
            lambda s: s.predict_quantiles(XNEW, [0.0, 0.5]),
            "quantiles: got .*between 0 and 1",
        ),
        (lambda s: s.predict_quantiles(XNEW, "half"), "quantiles: got 'half'"),
        (
            lambda s: s.predict_interval(XNEW, 1.0),
            r"coverage: got 1.0, expected .*\(0, 1\)",
        ),
        (lambda s: s.log_densities(XNEW, [1.0]), "y: got 1 value, expected 7"),
    ],
    "logarithms": [
        (lambda s: s.log_densities(XNEW, -np.ones(7)), "y: got -1, .* above 0")
    ],
    "words": [
        (
            lambda s: s.predict(XNEW, return_std=True),
            "return_std: got True for classes",
        ),
        (
            lambda s: s.predict_quantiles(XNEW),
            "predict_quantiles: got a model of classes",
        ),
    ],
}


@pytest.mark.near_copies("words")
@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_refused(name: str, tmp_path: Path) -> None:
    scorer = scorer_of(ESTIMATORS[name](), tmp_path)
    for call, message in CALLS[name]:
        with pytest.raises(ValueError, match=message):
            call(scorer)


def of_dates() -> PEPClassifier:
    estimator = PEPClassifier(**SMALL).fit(X, Y > 0.0)
    estimator.classes_ = np.array(["2024-01-31", "2024-02-01"], dtype="datetime64[D]")
    return estimator


def test_estimators_that_are_refused(tmp_path: Path) -> None:
    by_pca = make_pipeline(PCA(1), PEPRegressor(**SMALL))
    refused = {
        "got a LinearRegression, expected a PEPRegressor": LinearRegression().fit(X, Y),
        "got the step PCA, expected a pipeline .*TableEncoder": by_pca.fit(X, Y),
        "not fitted": PEPRegressor(),
        r"classes_: got an array of datetime64\[D\], expected": of_dates(),
    }
    for message, estimator in refused.items():
        with pytest.raises(ValueError, match=message):
            export_numpy(tmp_path / "scorer", estimator)
        assert not list(tmp_path.iterdir())


def test_an_export_replaces_its_own_and_no_others(folder: Path, tmp_path: Path) -> None:
    own = shutil.copytree(folder, tmp_path / "own")
    export_numpy(own, PEPRegressor(**SMALL).fit(X, Y + 1e4))
    assert load_scorer(own).predict(XNEW).mean() > 5e3
    assert sorted(path.name for path in own.iterdir()) == ["arrays.npz", "scorer.json"]
    (own / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"got notes.txt in it"):
        export_numpy(own, regressor())


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def edit(
    change: Callable[[dict[str, Any]], object], sign: bool
) -> Callable[[Path], None]:
    """Change the description, as somebody would who knows of the digest if ``sign``."""

    def apply(folder: Path) -> None:
        path = folder / "scorer.json"
        description = json.loads(path.read_text())
        change(description)
        if sign:
            header = ("format", "versions", "files", "digest")
            content = {
                name: part for name, part in description.items() if name not in header
            }
            description["digest"] = digest(content, folder, SCORER)
        path.write_text(json.dumps(description))

    return apply


def flip_a_bit(folder: Path) -> None:
    content = bytearray((folder / "arrays.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "arrays.npz").write_bytes(bytes(content))


def other_arrays(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        with np.load(folder / "arrays.npz") as archive:
            np.savez(folder / "arrays.npz", **change(dict(archive)))
        edit(lambda description: None, sign=True)(folder)

    return apply


infinite = other_arrays(
    lambda arrays: {**arrays, "0": np.full_like(arrays["0"], np.inf)}
)
objects = other_arrays(lambda arrays: {"0": np.array([print], dtype=object)})


def kernel_of(description: dict[str, Any]) -> dict[str, Any]:
    kernel: dict[str, Any] = description["components"][0]["ensemble"]["components"][0][
        "kernel"
    ]
    return kernel


execute = edit(
    lambda description: kernel_of(description).update({"class": "exec"}), sign=True
)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda folder: (folder / "arrays.npz").unlink(),
            "no file arrays.npz, expected scorer.j",
        ),
        (lambda folder: (folder / "scorer.json").unlink(), "no file scorer.json"),
        (write("scorer.json", "{"), "damaged or was changed"),
        (write("scorer.json", "[]"), "got format None, expected format 8"),
        (
            edit(lambda d: d.update(format=1), sign=False),
            "1, expected format 8. Load it with",
        ),
        (
            edit(lambda d: d.update(format=True), sign=False),
            "format True, expected format 8",
        ),
        (edit(lambda d: d.update(names=["a", "b"]), sign=False), "digest of the files"),
        (flip_a_bit, "digest of the files differs"),
        (write("arrays.npz", "no archive"), "digest of the files differs"),
        (infinite, "float64 values in entry 0 that are not finite numbers"),
        (objects, "damaged or was changed .*allow_pickle"),
        (
            edit(lambda d: d["components"][0].pop("target"), sign=True),
            "do not describe a scorer",
        ),
        (execute, "do not describe a scorer .*got exec, expected one of"),
    ],
)
def test_files_that_were_changed_are_refused(
    folder: Path, tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    change(copy)
    with pytest.raises(ValueError, match=message) as caught:
        load_scorer(copy)
    assert "export" in str(caught.value)


NUMPY_ALONE = """
import sys
from gpflow_pep.scoring import load_scorer
mean, sd = load_scorer(sys.argv[1]).predict([[100.0, 95.0]], return_std=True)
assert sd > 0.0
slow = {'tensorflow', 'gpflow', 'sklearn', 'pandas', 'check_shapes'} & {*sys.modules}
assert not slow, slow
"""


def test_a_scorer_needs_numpy_and_scipy_alone_and_no_training_rows(
    folder: Path,
) -> None:
    subprocess.run([sys.executable, "-c", NUMPY_ALONE, str(folder)], check=True)
    with np.load(folder / "arrays.npz") as archive:
        sizes = [size for array in archive.values() for size in array.shape]
    assert sizes and len(X) not in sizes
    assert sorted(path.name for path in folder.iterdir()) == [
        "arrays.npz",
        "scorer.json",
    ]
