"""Estimators as TensorFlow SavedModels."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from gpflow_pep.estimators import PEPClassifier, PEPRegressor, export_numpy, export_saved_model
from gpflow_pep.estimators.exporting_columns import encode_columns
from gpflow_pep.scoring import load_scorer
from gpflow_pep.tables import Format, TableEncoder, recognise

SMALL: dict[str, Any] = {"num_inducing": 5, "alpha": 0.5, "random_state": 0}
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"a": 100.0 + 9.0 * RNG.normal(size=18), "c": ["u", "v", "w"] * 6})
Y = 3e3 * np.sin(TABLE["a"] / 9.0)
pytestmark = pytest.mark.usefixtures("no_training")


def test_regression(tmp_path: Path) -> None:
    encoder = TableEncoder({"a": Format("number"), "c": Format("text")})
    model = make_pipeline(encoder, PEPRegressor(**SMALL)).fit(TABLE, Y)
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
    served = predictor.signatures["serving_default"](X=X)
    assert_allclose(served["mean"][:, 0], expected, rtol=1e-10)


@pytest.mark.parametrize("kind", ["numbers", "classes", "counts"])
def test_a_row_of_which_nothing_is_known_is_as_any_training_row(kind: str, tmp_path: Path) -> None:
    """The moments of f over training rows and posteriors; the same wherever predictions are."""
    y: Any = {"numbers": Y, "classes": Y > 0.0, "counts": np.round(np.exp(Y / 3e3))}[kind]
    estimator: Any = PEPClassifier(**SMALL) if kind == "classes" else PEPRegressor(**SMALL)
    if kind == "counts":
        estimator.set_params(likelihood="poisson")
    model = make_pipeline(TableEncoder({n: recognise(TABLE[n]) for n in TABLE}), estimator)
    model.fit(TABLE, y)
    new = pd.DataFrame({"a": [np.nan, 101.0, np.nan], "c": [None, "u", np.nan]})
    X = model[0].transform(new)
    assert_array_equal(np.isnan(X).all(axis=1), [True, False, True])
    scaled = model[-1].input_scaler_.transform(model[0].transform(TABLE))
    means, variances = (part.numpy()[:, 0] for part in model[-1].model_.predict_f(scaled))
    center, spread = means.mean(), variances.mean() + means.var()
    export_saved_model(tmp_path / "tf", model)
    export_numpy(tmp_path / "numpy", model)
    predictor = tf.saved_model.load(str(tmp_path / "tf"))
    columns = {
        "a": tf.constant([np.nan, 101.0, np.nan], tf.float64),
        "c": tf.constant(["", "u", ""]),
    }
    served, scorer = predictor.predict_table(columns), load_scorer(tmp_path / "numpy")
    assert_array_equal(scorer.far_rows(new), [True, False, True])
    assert_array_equal(model[-1].far_rows(X), [True, False, True])
    if kind == "classes":
        p = norm.cdf(center / np.sqrt(1.0 + spread)) * (1.0 - 2e-3) + 1e-3  # GPflow's probit
        for probability in (model.predict_proba(new), scorer.predict_proba(new), served[0]):
            assert_allclose(np.asarray(probability)[:, 1][[0, 2]], [p, p], rtol=1e-7)
        return
    mean, std = model[-1].predict(X, return_std=True)
    if kind == "numbers":
        noise = float(model[-1].likelihood_.variance.numpy())
        scale = np.std(Y, ddof=0)
        expected = Y.mean() + scale * center, scale * np.sqrt(spread + noise)
        assert_allclose(model[-1].predict_interval(X)[0, 1], norm.ppf(0.95, *expected), rtol=1e-7)
        densities = model[-1].log_densities(X, np.zeros(3))
        assert_allclose(densities[0], norm.logpdf(0.0, *expected), rtol=1e-7)
        draws = model[-1].sample_y(X, 4000)
        assert_allclose(draws[[0, 2]].std(axis=1), expected[1], rtol=0.05)
        assert abs(np.corrcoef(draws)[0, 2]) < 0.1  # they are different rows
    else:
        rate = np.exp(center + 0.5 * spread)
        expected = rate, np.sqrt(rate + rate**2 * np.expm1(spread))
    assert_allclose([mean[0], std[0]], expected, rtol=1e-6)
    assert_allclose(scorer.predict(new, return_std=True), (mean, std), rtol=1e-7)
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
    draws = several.sample_y(np.vstack([gap, X[:1]]), 2000)
    _, std = several.predict(np.vstack([gap, X[:1]]), return_std=True)
    assert_allclose(draws.std(axis=-1), std, rtol=0.1)


def test_columns_of_a_table(tmp_path: Path) -> None:
    days = pd.date_range("2020-01-01", periods=18, freq="61D")
    table = TABLE.assign(day=days)
    table.loc[[0, 1], "a"] = [np.nan, -999.0]
    table.loc[2, "c"], table.loc[3, "c"] = "rare", None
    formats = {
        "a": Format("number", sentinels=(-999.0,)),
        "c": Format("text"),
        "day": Format("date"),
    }
    encoder = TableEncoder(formats)
    model = make_pipeline(encoder, PEPRegressor(**SMALL)).fit(table, Y)
    export_saved_model(tmp_path, model)
    table.loc[4, "c"] = "?"  # as it is written in files
    columns = {
        "a": table["a"].to_numpy(),
        "c": tf.constant(table["c"].fillna("").to_list()),
        "day": (days - pd.Timestamp(0)) / pd.Timedelta(days=1),
    }
    assert_allclose(encode_columns(encoder, {k: tf.constant(v) for k, v in columns.items()}),
                    encoder.transform(table), rtol=1e-12)  # fmt: skip
    predictor = tf.saved_model.load(str(tmp_path))
    mean, variance = predictor.predict_table({k: tf.constant(v) for k, v in columns.items()})
    expected, std = model.predict(table, return_std=True)
    assert_allclose(mean[:, 0], expected, rtol=1e-10)
    assert_allclose(np.sqrt(variance[:, 0]), std, rtol=1e-10)


def test_replaces_its_own_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that fails leaves the earlier one as it was, and nothing else."""
    model = PEPRegressor(**SMALL).fit(TABLE[["a"]], Y)
    folder = tmp_path / "saved"
    export_saved_model(folder, model)
    earlier = (folder / "saved_model.pb").read_bytes()

    def fail(module: Any, path: str, **options: Any) -> None:
        (Path(path) / "saved_model.pb").write_text("half")
        raise OSError("no space left")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):
        patch.setattr(tf.saved_model, "save", fail)
        export_saved_model(folder, model)
    assert (folder / "saved_model.pb").read_bytes() == earlier
    assert list(tmp_path.iterdir()) == [folder]
    export_saved_model(folder, model)
    (folder / "variables" / "mine.csv").write_text("mine")
    with pytest.raises(ValueError, match=r"got variables/mine.csv in it, expected only .* Choose"):
        export_saved_model(folder, model)


def test_a_model_of_another_program_is_not_replaced(tmp_path: Path) -> None:
    model = PEPRegressor(**SMALL).fit(TABLE[["a"]], Y)
    (tmp_path / "variables").mkdir()
    (tmp_path / "saved_model.pb").write_text("theirs")
    with pytest.raises(ValueError, match=r"got saved_model.pb in it, expected only .* Choose"):
        export_saved_model(tmp_path, model)
    assert (tmp_path / "saved_model.pb").read_text() == "theirs"


def test_a_full_disk_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="No space left on device"):
        export_saved_model(tmp_path, PEPRegressor(**SMALL).fit(TABLE[["a"]], Y))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_classes_without_standardising(tmp_path: Path) -> None:
    X = TABLE[["a"]].to_numpy() - 100.0
    model = PEPClassifier(standardize=False, **SMALL).fit(X, Y > 0)
    export_saved_model(tmp_path, model)
    predictor = tf.saved_model.load(str(tmp_path))
    assert predictor.columns.numpy().tolist() == [b"x0"]
    (probability,) = predictor.predict_y(tf.constant(X))
    assert_allclose(probability, model.predict_proba(X), rtol=1e-8)


def test_others_are_refused(tmp_path: Path) -> None:
    for other in (LinearRegression(), make_pipeline(LinearRegression())):
        with pytest.raises(ValueError, match=r"estimator: got a LinearRegression, expected a PEP"):
            export_saved_model(tmp_path, other)
