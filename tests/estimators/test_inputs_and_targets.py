"""What estimators accept: sparse inputs, targets of every support, floats, numbers of
classes.
"""

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from cases.forms import saved
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from gpflow_pep.estimators import (
    PEPClassifier,
    PEPRegressor,
    SeparateRegressors,
)
from gpflow_pep.estimators.classifier import log_of_labels
from gpflow_pep.estimators.single import inputs
from gpflow_pep.estimators.single.inputs import filled
from gpflow_pep.estimators.single.outputs import as_outputs
from gpflow_pep.models import PEPRegression

RNG = np.random.default_rng(0)
X = RNG.uniform(-3.0, 3.0, (60, 1))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(60)
LABELS = np.digitize(X[:, 0], [-1.0, 1.0])
SMALL: dict[str, Any] = {"num_inducing": 6, "alpha": 0.5, "random_state": 0}
lik = gpflow.likelihoods
pytestmark = pytest.mark.usefixtures("no_training")


@pytest.mark.near_copies("csr*")
@pytest.mark.parametrize("make", [scipy.sparse.csr_matrix, scipy.sparse.coo_array])
def test_sparse_inputs_are_those_that_they_stand_for(make: Any) -> None:
    dense = np.where(RNG.uniform(size=(60, 3)) < 0.5, 0.0, RNG.normal(size=(60, 3)))
    expected = PEPRegressor(**SMALL).fit(dense, Y)
    model = PEPRegressor(**SMALL).fit(make(dense), Y)
    assert_array_equal(model.predict(make(dense)), expected.predict(dense))
    assert_array_equal(model.predict(dense), expected.predict(dense))
    classes = PEPClassifier(**SMALL).fit(make(dense), LABELS > 0)
    assert classes.predict_proba(make(dense)).shape == (60, 2)


TARGETS: dict[str, Any] = {
    "Gamma": (lik.Gamma(), np.exp(Y)),
    "Exponential": (lik.Exponential(), np.exp(Y)),
    "Beta": (lik.Beta(), 1.0 / (1.0 + np.exp(-Y))),
    "Poisson": (lik.Poisson(), np.round(np.exp(Y))),
    "Ordinal": (lik.Ordinal(np.array([-0.5, 0.5])), LABELS),  # places in an order
}


@pytest.mark.near_copies("Poisson")
@pytest.mark.parametrize("name", TARGETS)
def test_targets_with_a_narrower_support_are_not_standardised(name: str) -> None:
    likelihood, y = TARGETS[name]
    model = PEPRegressor(likelihood=likelihood, **SMALL).fit(X, y)
    assert_array_equal(model.model_.data[1][:, 0], y)
    assert np.isfinite(model.log_score(X, y))
    if name == "Ordinal":
        return  # which has no mean
    mean, std = model.predict(X, return_std=True)
    expected = model.model_.predict_y(model.input_scaler_.transform(X))
    assert_allclose(mean, expected[0][:, 0])
    assert_allclose(std**2, expected[1][:, 0])
    with pytest.raises(ValueError, match=f"return_cov: got True with {name}"):
        model.predict(X, return_cov=True)


def test_alpha_scores_are_in_units_of_the_targets() -> None:
    model = PEPRegressor(**{**SMALL, "alpha": [0.3, 0.7]})
    scores = model.fit(X, Y).alpha_scores_
    y = 1e3 * Y + 7.0
    model.fit(X, y)
    for alpha, score in scores.items():
        assert_allclose(model.alpha_scores_[alpha], score - np.log(1e3), rtol=1e-6)
    # Of the densities of rows left out.
    assert model.alpha_ == max(scores, key=scores.get)
    left_out = np.mean(model.model_.loo_log_density()) - np.log(np.std(y))
    assert_allclose(model.alpha_scores_[model.alpha_], left_out, rtol=1e-6)


@pytest.mark.slow
def test_noise_by_a_second_latent_function(tmp_path: Path) -> None:
    y = 1e3 * (np.sin(X[:, 0]) + np.exp(0.5 * X[:, 0]) * RNG.standard_normal(60))
    model = PEPRegressor(likelihood=lik.HeteroskedasticTFPConditional(), **SMALL).fit(
        X, y
    )
    rows = np.array([[-2.0], [2.0]])
    mean, std = model.predict(rows, return_std=True)
    assert std[1] > 1.5 * std[0]
    draws = model.sample_y(rows, 4000)
    assert_allclose(draws.mean(axis=1), mean, atol=5.0 * std.max() / np.sqrt(4000))
    assert_allclose(draws.std(axis=1), std, rtol=0.15)
    low, median, high = model.predict_quantiles(rows, [0.16, 0.5, 0.84]).T
    assert_allclose(median, mean, atol=0.1 * std.max())
    assert_allclose(high - low, 2.0 * std, rtol=0.25)
    assert np.isfinite(model.log_score(X, y))
    with pytest.raises(ValueError, match="got a function that the constructor makes"):
        saved(model, tmp_path)


@pytest.mark.near_copies("float32")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_single_precision(dtype: Any) -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-4)):
        model = PEPRegressor(**SMALL).fit(X.astype(dtype), Y.astype(dtype))
        classes = PEPClassifier(**SMALL).fit(X, LABELS > 0)
        assert model.model_.data[0].dtype == classes.model_.data[0].dtype == np.float32
        mean, std = model.predict(X.astype(dtype), return_std=True)
        assert model.score(X, Y) > 0.5 and np.all(std > 0.0)
        assert (
            mean.shape
            == model.sample_y(X)[:, 0].shape
            == model.predict_quantiles(X)[:, 0].shape
        )
        assert np.isfinite(model.log_score(X, Y)) and classes.score(X, LABELS > 0) > 0.7


DAYS = pd.DataFrame({"t": pd.date_range("2020-01-01", periods=60)})
GAP = DAYS.drop(3).reindex(range(60))
WORDS = pd.DataFrame({"a": np.arange(60.0), "b": ["u", "v"] * 30})
TWICE = pd.DataFrame(np.column_stack([X, X, Y]), columns=["a", "a", "b"])
WIDE = scipy.sparse.csr_matrix((60, inputs.MAX_DENSE // 60 + 1))
NO_DATES = "got dates or durations, expected numbers"
NO_NAMES = "got more than one column named 'a', expected different names"
NO_MASK = "got a masked array with .*Leave out their rows, or pass .filled"
ONE = PEPRegressor(**SMALL)
SEVERAL = PEPClassifier(**SMALL)


@pytest.mark.parametrize(
    "estimator, rows, y, message",
    [
        (ONE, WIDE, Y, r"X: got a sparse matrix .*, expected at most 50,000,000"),
        (ONE, WORDS, Y, r"X: got the column\(s\) 'b' of words.*make_preparation"),
        (ONE, WORDS.assign(b=DAYS["t"][0]), Y, "'b' of words, dates or mixed cells"),
        *(
            (estimator, frame, LABELS, f"X: {NO_DATES}")
            for frame in (DAYS, GAP, DAYS - DAYS.iloc[0], DAYS.to_numpy())
            for estimator in (ONE, SEVERAL)
        ),
        (ONE, X, DAYS["t"], f"y: {NO_DATES}"),
        (ONE, X, pd.DatetimeIndex(DAYS["t"]), f"y: {NO_DATES}"),
        (ONE, X, DAYS.assign(u=DAYS["t"]), f"y: {NO_DATES}"),
        (ONE, X, DAYS.assign(u=1.0), f"y: {NO_DATES}"),
        (ONE, pd.Series(Y), Y, "Expected a 2-dimensional container"),
        (ONE, np.ma.array(X, mask=X > 2.0), Y, f"X: {NO_MASK}"),
        (ONE, X, np.ma.array(Y, mask=Y > 0.9), f"y: {NO_MASK}"),
        (ONE, X, np.ma.array(X, mask=X > 2.0), f"y: {NO_MASK}"),
        (SEVERAL, X, np.ma.array(LABELS, mask=Y > 0.9), f"y: {NO_MASK}"),
        (SEVERAL, X, LABELS.astype(object), r"an array of object.*y.astype\(int\)"),
        (ONE, TWICE, Y, f"X: {NO_NAMES}"),
        (ONE, X, TWICE, f"y: {NO_NAMES}"),
        *(
            (
                PEPClassifier(likelihood=likelihood, **SMALL),
                X,
                labels,
                rf"likelihood: got .* classes, expected .*not of {number}",
            )
            for likelihood, labels, number in (
                (lik.MultiClass(6), LABELS, 6),
                (lik.Softmax(2), LABELS, 2),
                (lik.Bernoulli(), LABELS, 2),
                ("bernoulli", LABELS, 2),
                (lik.MultiClass(3), LABELS > 0, 3),
            )
        ),
    ],
)
def test_refused(estimator: Any, rows: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimator.fit(rows, y)


@pytest.mark.parametrize("estimator", [ONE, SEVERAL])
def test_masked_values_are_refused_after_training(estimator: Any) -> None:
    labels = LABELS if estimator is SEVERAL else Y
    fitted = clone(estimator).fit(X, np.ma.array(labels))  # nothing is masked
    with pytest.raises(ValueError, match=f"X: {NO_MASK}"):
        fitted.predict(np.ma.array(X, mask=X > 2.0))
    with pytest.raises(ValueError, match=f"y: {NO_MASK}"):
        fitted.log_densities(X, np.ma.array(labels, mask=Y > 0.9))


@pytest.mark.parametrize(
    "estimator",
    [ONE, SEVERAL, clone(ONE).set_params(inputs="yeo-johnson")],
)
def test_scikit_learn_may_give_tables(estimator: Any) -> None:
    """The option of scikit-learn for the output of transformers changes nothing."""
    y = LABELS if estimator is SEVERAL else Y
    expected = clone(estimator).fit(X, y)
    with sklearn.config_context(transform_output="pandas"):
        fitted = clone(estimator).fit(X, y)
        assert_array_equal(fitted.predict(X), expected.predict(X))


def test_models_refuse_masked_values() -> None:
    parts: Any = gpflow.kernels.Matern32(), X[:5]
    masked = np.ma.array(Y[:, None], mask=Y[:, None] > 0.9)
    with pytest.raises(ValueError, match=f"Y: {NO_MASK}"):
        PEPRegression((X, masked), *parts)
    with pytest.raises(ValueError, match=f"Xnew: {NO_MASK}"):
        PEPRegression((X, Y[:, None]), *parts).predict_f(np.ma.array(X, mask=X > 2.0))


def test_exact_models_where_scikit_learn_gives_tables() -> None:
    with sklearn.config_context(transform_output="pandas"):
        fitted = PEPRegressor(max_iterations=2, random_state=0).fit(X, Y)
    assert np.isfinite(fitted.predict(X)).all()


def test_counts_that_are_all_zero_are_told() -> None:
    with pytest.warns(UserWarning, match="y: all targets are 0, so the spread"):
        PEPRegressor(likelihood="poisson", **SMALL).fit(X, np.zeros(60))


def test_whole_numbers_of_any_size_are_settings() -> None:
    many = PEPRegressor(**{**SMALL, "num_inducing": 10**30}).fit(X, Y)
    assert many.inducing_variable_.Z.shape[0] == 60
    with pytest.raises(ValueError, match=r"max_iterations: got -1000\d+, expected"):
        PEPRegressor(max_iterations=-(10**30)).fit(X, Y)


def _spellings(column: list[Any], missing: list[int]) -> dict[str, Any]:
    """A column with gaps, in all forms in which users have them."""
    there = np.isin(np.arange(len(column)), missing, invert=True)

    def gapped(gap: Any) -> list[Any]:
        return [value if has else gap for value, has in zip(column, there, strict=True)]

    words = [str(value) for value in column]
    texts = [word if has else None for word, has in zip(words, there, strict=True)]
    return {
        "list of None": gapped(None),
        "objects, None": np.array(gapped(None), object),
        "objects, NaN": np.array(gapped(np.nan), object),
        "objects, NA": np.array(gapped(pd.NA), object),
        "objects, NaT": np.array(gapped(pd.NaT), object),
        "list of NA": gapped(pd.NA),
        "series, None": pd.Series(gapped(None), dtype=object),
        "series, NaT": pd.Series(gapped(pd.NaT), dtype=object),
        "string": pd.Series(texts, dtype="string"),
        "category": pd.Series(texts, dtype="category"),
        "index": pd.Index(gapped(None), dtype=object),
        "table": pd.DataFrame({"y": pd.Series(gapped(None), dtype=object)}),
        "string table": pd.DataFrame({"y": pd.Series(texts, dtype="string")}),
    }


_NUMBERS = np.arange(12.0).tolist()
_OF_NUMBERS = _spellings(_NUMBERS, [0, 5, 7]) | {
    "floats": np.where(np.isin(np.arange(12), [0, 5, 7]), np.nan, _NUMBERS),
    "Float64": pd.Series(
        _spellings(_NUMBERS, [0, 5, 7])["list of None"], dtype="Float64"
    ),
}
_OF_LABELS = _spellings(["a", "b"] * 6, [0, 5, 7]) | {
    "list of NaN": [np.nan, *["a", "b"] * 2, np.nan, "a", np.nan, *"abab"],
}
_ROWS = np.arange(12.0)[:, None]


@pytest.mark.parametrize("form", _OF_NUMBERS)
def test_missing_targets_in_any_form(form: str) -> None:
    y = _OF_NUMBERS[form]
    message = "y: got no target in 3 rows of 12, expected a target in each"
    for settings in ({}, {"num_inducing": 3, "alpha": 0.5}):
        with pytest.raises(ValueError, match=message):
            PEPRegressor(**settings).fit(_ROWS, y)
    # In several columns they are gaps.
    column = filled(y)
    column = np.asarray(column, dtype=np.float64).reshape(12)
    assert np.flatnonzero(np.isnan(column)).tolist() == [0, 5, 7]
    if isinstance(y, pd.DataFrame):
        two: Any = pd.concat([y, y.rename(columns={"y": "z"})], axis=1)
    else:
        two = pd.DataFrame({"y": pd.Series(np.asarray(y, object)), "z": _NUMBERS})
    for table in (two, two.to_numpy()):
        outputs = as_outputs("y", table, _ROWS)
        assert_allclose(outputs[:, 0], column)
    assert as_outputs("y", two, _ROWS, 2, ["z", "y"]).shape == (12, 2)


@pytest.mark.parametrize("form", _OF_LABELS)
def test_missing_labels_in_any_form(form: str) -> None:
    y = _OF_LABELS[form]
    message = "y: got no label in 3 rows of 12, expected a label in each"
    with pytest.raises(ValueError, match=message):
        PEPClassifier().fit(_ROWS, y)
    with pytest.raises(ValueError, match=message):
        log_of_labels(np.full([12, 2], 0.5), np.array(["a", "b"]), y)


def test_separate_regressors_take_missing_objects(no_training: None) -> None:
    y = _OF_NUMBERS["objects, NA"]
    two = np.column_stack([y, np.array(_NUMBERS, object)])
    one = PEPRegressor(num_inducing=3, alpha=0.5)
    fitted = SeparateRegressors(one).fit(_ROWS, two)
    assert [len(part.model_.data[0]) for part in fitted.estimators_] == [9, 12]
    assert np.isfinite(fitted.log_score(_ROWS, two))


def test_scalars_of_numpy_are_settings(no_training: None) -> None:
    settings: dict[str, Any] = {
        "num_inducing": np.int64(5),
        "alpha": np.float64(0.5),
        "ard": np.bool_(True),
        "warp": np.bool_(False),
        "standardize": np.bool_(True),
        "max_iterations": np.int32(4),
        "max_seconds": np.float32(9.0),
        "near_rows": np.int64(0),
        "random_state": np.int64(0),
        "verbose": np.bool_(False),
        "kernel": np.str_("rbf"),
    }
    plain = {name: value.item() for name, value in settings.items()}
    of_numpy = PEPRegressor(**settings).fit(_ROWS, _NUMBERS)
    of_python = PEPRegressor(**plain).fit(_ROWS, _NUMBERS)
    assert clone(of_numpy).get_params() == plain | clone(of_python).get_params()
    assert of_numpy.get_params() == of_python.get_params()
    assert_allclose(of_numpy.predict(_ROWS), of_python.predict(_ROWS), rtol=1e-12)
