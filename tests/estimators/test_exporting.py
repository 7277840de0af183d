"""Estimators as TensorFlow SavedModels."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from cases.forms import check_served, scorer
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline, make_pipeline

from gpflow_pep.estimators import PEPClassifier, PEPRegressor, export_saved_model
from gpflow_pep.estimators.exporting_columns import encode_columns
from gpflow_pep.tables import Format, TableEncoder, recognise

SMALL: dict[str, Any] = {"num_inducing": 5, "alpha": 0.5, "random_state": 0}
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"a": 100.0 + 9.0 * RNG.normal(size=18), "c": ["u", "v", "w"] * 6})
Y = 3e3 * np.sin(TABLE["a"] / 9.0)
pytestmark = pytest.mark.usefixtures("no_training")


def piped(estimator: Any, y: Any) -> Pipeline:
    encoder = TableEncoder({name: recognise(TABLE[name]) for name in TABLE})
    return make_pipeline(encoder, estimator).fit(TABLE, y)


@pytest.fixture
def model() -> PEPRegressor:
    return PEPRegressor(**SMALL).fit(TABLE[["a"]], Y)


def test_regression(tmp_path: Path) -> None:
    model = piped(PEPRegressor(**SMALL), Y)
    export_saved_model(tmp_path, model)
    predictor = tf.saved_model.load(str(tmp_path))
    columns = [name.decode() for name in predictor.columns.numpy()]
    assert columns == ["a", "c=u", "c=v", "c=w"]
    X = tf.constant(model[0].transform(TABLE))
    expected, std = model.predict(TABLE, return_std=True)
    for rows in (slice(0, 18), slice(3, 4)):
        mean, variance = predictor.predict_y(X[rows])
        assert_allclose(mean[:, 0], expected[rows], rtol=1e-10)
        assert_allclose(np.sqrt(variance[:, 0]), std[rows], rtol=1e-10)
    mean = predictor.signatures["serving_default"](X=X)["mean"]
    assert_allclose(mean[:, 0], expected, rtol=1e-10)


@pytest.mark.parametrize("kind", ["numbers", "classes", "counts"])
def test_a_row_of_which_nothing_is_known_is_as_any_training_row(kind: str, tmp_path: Path) -> None:
    """The moments of f over training rows and posteriors; the same wherever predictions are."""
    y: Any = {"numbers": Y, "classes": Y > 0.0, "counts": np.round(np.exp(Y / 3e3))}[kind]
    named = {"likelihood": "poisson"} if kind == "counts" else {}
    model = piped((PEPClassifier if kind == "classes" else PEPRegressor)(**named, **SMALL), y)
    last = model[-1]
    new = pd.DataFrame({"a": [np.nan, 101.0, np.nan], "c": [None, "u", np.nan]})
    X = model[0].transform(new)
    assert_array_equal(np.isnan(X).all(axis=1), [True, False, True])
    scaled = last.input_scaler_.transform(model[0].transform(TABLE))
    means, variances = (part.numpy()[:, 0] for part in last.model_.predict_f(scaled))
    center, spread = means.mean(), variances.mean() + means.var()
    export_saved_model(tmp_path / "tf", model)
    predictor = tf.saved_model.load(str(tmp_path / "tf"))
    columns = {"a": tf.constant(new["a"].to_numpy()), "c": tf.constant(["", "u", ""])}
    served, of_numpy = predictor.predict_table(columns), scorer(model, tmp_path)
    assert_array_equal(of_numpy.far_rows(new), [True, False, True])
    assert_array_equal(last.far_rows(X), [True, False, True])
    if kind == "classes":
        p = norm.cdf(center / np.sqrt(1.0 + spread)) * (1.0 - 2e-3) + 1e-3  # GPflow's probit
        for probability in (model.predict_proba(new), of_numpy.predict_proba(new), served[0]):
            assert_allclose(np.asarray(probability)[:, 1][[0, 2]], [p, p], rtol=1e-7)
        return
    mean, std = last.predict(X, return_std=True)
    if kind == "numbers":
        noise = float(last.likelihood_.variance.numpy())
        scale = np.std(Y, ddof=0)
        expected = Y.mean() + scale * center, scale * np.sqrt(spread + noise)
        assert_allclose(last.predict_interval(X)[0, 1], norm.ppf(0.95, *expected), rtol=1e-7)
        densities = last.log_densities(X, np.zeros(3))
        assert_allclose(densities[0], norm.logpdf(0.0, *expected), rtol=1e-7)
        draws = last.sample_y(X, 4000)
        assert_allclose(draws[[0, 2]].std(axis=1), expected[1], rtol=0.05)
        assert abs(np.corrcoef(draws)[0, 2]) < 0.1  # they are different rows
    else:
        rate = np.exp(center + 0.5 * spread)
        expected = rate, np.sqrt(rate + rate**2 * np.expm1(spread))
    assert_allclose([mean[0], std[0]], expected, rtol=1e-6)
    assert_allclose(of_numpy.predict(new, return_std=True), (mean, std), rtol=1e-7)
    assert_allclose((served[0][:, 0], np.sqrt(served[1][:, 0])), (mean, std), rtol=1e-7)


def test_rows_of_which_nothing_is_known_are_left_out_of_training() -> None:
    X, gap = np.asarray(TABLE[["a"]]), np.full((1, 1), np.nan)
    with pytest.warns(UserWarning, match=r"X: nothing is known of 1 row\(s\), which are left out"):
        model = PEPRegressor(**SMALL).fit(np.vstack([X, gap]), [*Y, 0.0])
    assert len(model.model_.data[0]) == 18
    both = np.column_stack([X, X])
    for rows in (np.where([True, False], both, np.nan), np.where(both == both[0], np.inf, both)):
        with pytest.raises(ValueError, match="Input X contains"):
            PEPRegressor(**SMALL).fit(rows, Y)
    several = PEPRegressor(**SMALL).fit(X, np.column_stack([Y, -Y]))
    with pytest.raises(ValueError, match="known: got rows of X that are NaN throughout"):
        several.predict(gap, known=[[1.0, np.nan]])
    rows = np.vstack([gap, X[:1]])
    _, std = several.predict(rows, return_std=True)
    assert_allclose(several.sample_y(rows, 2000).std(axis=-1), std, rtol=0.1)


def test_columns_of_a_table(tmp_path: Path) -> None:
    days = pd.date_range("2020-01-01", periods=18, freq="61D")
    table = TABLE.assign(day=days)
    table.loc[[0, 1], "a"] = [np.nan, -999.0]
    table.loc[2, "c"], table.loc[3, "c"] = "rare", None
    formats = {"a": Format("number", sentinels=(-999.0,)), "c": Format("text")}
    encoder = TableEncoder(formats | {"day": Format("date")})
    model = make_pipeline(encoder, PEPRegressor(**SMALL)).fit(table, Y)
    export_saved_model(tmp_path, model)
    table.loc[4, "c"] = "?"  # as it is written in files
    words, since = table["c"].fillna("").to_list(), (days - pd.Timestamp(0)) / pd.Timedelta(days=1)
    cells = {"a": table["a"].to_numpy(), "c": words, "day": since.to_numpy()}
    columns = {name: tf.constant(values) for name, values in cells.items()}
    assert_allclose(encode_columns(encoder, columns), encoder.transform(table), rtol=1e-12)
    predictor = tf.saved_model.load(str(tmp_path))
    mean, variance = predictor.predict_table(columns)
    expected = model.predict(table, return_std=True)
    assert_allclose((mean[:, 0], np.sqrt(variance[:, 0])), expected, rtol=1e-10)


def test_replaces_its_own_and_no_others(
    model: PEPRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save that fails leaves the earlier one as it was, and nothing else."""
    folder = tmp_path / "saved"
    export_saved_model(folder, model)
    earlier = (folder / "saved_model.pb").read_bytes()

    def fail(module: Any, path: str, **options: Any) -> None:
        (Path(path) / "saved_model.pb").write_text("half")
        raise OSError("no space left")

    def full(*_: Any, **__: Any) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    for save in (fail, full):
        with monkeypatch.context() as patch, pytest.raises(OSError, match=r"[Nn]o space left"):
            patch.setattr(tf.saved_model, "save", save)
            export_saved_model(folder, model)
        assert (folder / "saved_model.pb").read_bytes() == earlier
        assert list(tmp_path.iterdir()) == [folder]
    export_saved_model(folder, model)
    (folder / "variables" / "mine.csv").write_text("mine")
    with pytest.raises(ValueError, match=r"got variables/mine.csv in it, expected only .* Choose"):
        export_saved_model(folder, model)


def test_a_model_of_another_program_is_not_replaced(model: PEPRegressor, tmp_path: Path) -> None:
    (tmp_path / "variables").mkdir()
    (tmp_path / "saved_model.pb").write_text("theirs")
    with pytest.raises(ValueError, match=r"got saved_model.pb in it, expected only .* Choose"):
        export_saved_model(tmp_path, model)
    assert (tmp_path / "saved_model.pb").read_text() == "theirs"


@pytest.mark.slow
def test_classes_without_standardising(tmp_path: Path) -> None:
    X = TABLE[["a"]].to_numpy() - 100.0
    model = PEPClassifier(standardize=False, **SMALL).fit(X, Y > 0)
    check_served(model, tmp_path, X, rtol=1e-8)


def test_others_are_refused(tmp_path: Path) -> None:
    for other in (LinearRegression(), make_pipeline(LinearRegression())):
        with pytest.raises(ValueError, match=r"estimator: got a LinearRegression, expected a PEP"):
            export_saved_model(tmp_path, other)
