"""Estimators: units, names of columns, labels, draws, and what scikit-learn does with them."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
from gpflow.base import AnyNDArray
from helpers import skip_training
from scipy.stats import norm
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from gpflow_pep.estimators import (
    PEPClassifier,
    PEPRegressor,
    export_numpy,
    load_estimator,
    save_estimator,
)
from gpflow_pep.estimators.parts import KERNELS
from gpflow_pep.estimators.separate import SeparateRegressors
from gpflow_pep.models import ARPEP, PEP, PEPRegression
from gpflow_pep.scoring import load_scorer
from gpflow_pep.tables import TableEncoder, recognise
from gpflow_pep.training.choosing.ensemble import ensemble_posterior

SMALL: dict[str, Any] = {"num_inducing": 6, "alpha": 0.5, "max_iterations": 30, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")


def table(num_rows: int = 60) -> tuple[pd.DataFrame, AnyNDArray]:
    rng = np.random.default_rng(1)
    X = pd.DataFrame(
        {"far": 1e3 + 50.0 * rng.standard_normal(num_rows), "near": rng.uniform(-1, 1, num_rows)}
    )
    noise = rng.standard_normal(num_rows)
    return X, 200.0 + 30.0 * np.sin(3.0 * X["near"].to_numpy()) + 5.0 * noise


def labels(y: AnyNDArray) -> AnyNDArray:
    return np.array(["low", "middle", "high"])[np.digitize(y, [190.0, 210.0])]


@pytest.fixture(scope="module")
def regressor() -> PEPRegressor:
    return PEPRegressor(**SMALL).fit(*table())


@pytest.fixture(scope="module")
def classifier() -> PEPClassifier:
    X, y = table()
    return PEPClassifier(**SMALL).fit(X, labels(y))


def test_everything_is_in_original_units(regressor: PEPRegressor) -> None:
    X, y = table()
    model = regressor.model_
    assert isinstance(model, PEPRegression)
    scaled = (X.to_numpy() - X.to_numpy().mean(0)) / X.to_numpy().std(0)
    mean, variance = (part.numpy()[:, 0] for part in model.predict_y(scaled))
    expected_mean, expected_std = y.std() * mean + y.mean(), y.std() * np.sqrt(variance)
    got_mean, got_std = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(got_mean, expected_mean, rtol=1e-9)
    np.testing.assert_allclose(got_std, expected_std, rtol=1e-9)
    np.testing.assert_allclose(
        regressor.log_score(X, y), norm.logpdf(y, got_mean, got_std).mean(), rtol=1e-8
    )
    np.testing.assert_allclose(
        regressor.predict_quantiles(X, [0.1, 0.9])[:, 1], norm.ppf(0.9, got_mean, got_std)
    )
    assert regressor.score(X, y) > 0.5


def test_covariance_and_draws_agree(regressor: PEPRegressor) -> None:
    X, _ = table(4)
    mean, covariance = regressor.predict(X, return_cov=True)
    _, std = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-9)
    draws = regressor.sample_y(X, 20_000, random_state=3)
    tolerance = 5.0 * std.max() / np.sqrt(20_000)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=tolerance)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.06 * std.max() ** 2)
    np.testing.assert_array_equal(draws, regressor.sample_y(X, 20_000, random_state=3))
    twice = pd.concat([X, X])  # a covariance that has no Cholesky factor
    assert np.all(np.isfinite(regressor.sample_y(twice)))


@pytest.mark.parametrize("kind", ["regressor", pytest.param("classifier", marks=pytest.mark.slow)])
def test_columns_are_matched_by_name(kind: str, request: pytest.FixtureRequest) -> None:
    fitted = request.getfixturevalue(kind)
    X, _ = table(5)
    np.testing.assert_array_equal(fitted.predict(X), fitted.predict(X[["near", "far"]]))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(X.rename(columns={"far": "else"}))
    with pytest.raises(ValueError, match="features"):
        fitted.predict(X.to_numpy()[:, :1])


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
@pytest.mark.near_copies("regressor")
def test_pickled_and_cloned(kind: str, request: pytest.FixtureRequest) -> None:
    fitted = request.getfixturevalue(kind)
    X, _ = table(5)
    back = pickle.loads(pickle.dumps(fitted))
    assert type(back) is type(fitted)
    if kind == "classifier":
        np.testing.assert_allclose(back.predict_proba(X), fitted.predict_proba(X), rtol=1e-9)
    else:
        np.testing.assert_allclose(back.predict(X), fitted.predict(X), rtol=1e-12)
    assert not hasattr(clone(fitted), "model_")


def test_labels_are_words(classifier: PEPClassifier) -> None:
    X, y = table()
    assert list(classifier.classes_) == ["high", "low", "middle"]
    probability = classifier.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    best = classifier.classes_[probability.argmax(axis=1)]
    np.testing.assert_array_equal(classifier.predict(X), best)
    own = probability[np.arange(len(y)), np.searchsorted(classifier.classes_, labels(y))]
    np.testing.assert_allclose(classifier.log_score(X, labels(y)), np.log(own).mean())
    assert classifier.score(X, labels(y)) > 0.6
    with pytest.raises(ValueError, match="y: got labels that are none of"):
        classifier.log_score(X, np.full(len(X), "other"))


@pytest.mark.filterwarnings("ignore:Training ended")
def test_grades_are_in_the_order_of_their_values() -> None:
    """Those of numbers as text too, of which 10 comes before 2 in the alphabet."""
    X, grades = np.arange(24.0)[:, None], np.repeat(np.arange(1, 13), 2)
    small = {"likelihood": "ordinal", "num_inducing": 5, "max_iterations": 10, "random_state": 0}
    fitted = [PEPClassifier(**small).fit(X, y) for y in (grades, grades.astype(str))]
    assert list(fitted[1].classes_) == [str(grade) for grade in range(1, 13)]
    np.testing.assert_allclose(*(one.predict_proba(X) for one in fitted), rtol=1e-9)
    scores = [one.log_score(X, y) for one, y in zip(fitted, (grades, grades.astype(str)))]
    np.testing.assert_allclose(*scores, rtol=1e-9)
    assert fitted[1].score(X, grades.astype(str)) == fitted[0].score(X, grades)
    few = PEPClassifier(**{**small, "num_inducing": 2}).fit(X[:3], [2.5, 3.0, 2.75])
    assert list(few.classes_) == [2.5, 2.75, 3.0]


@pytest.mark.slow
def test_alpha_by_leaving_out() -> None:
    X, y = table()
    fitted = PEPRegressor(**{**SMALL, "alpha": [0.0, 1.0]}).fit(X, y)
    assert list(fitted.alpha_scores_) == [0.0, 1.0]
    assert fitted.alpha_ == max(fitted.alpha_scores_, key=fitted.alpha_scores_.get)
    alone = PEPRegressor(**{**SMALL, "alpha": fitted.alpha_}).fit(X, y)
    np.testing.assert_allclose(alone.predict(X), fitted.predict(X), rtol=1e-6)
    score = float(np.mean(alone.model_.loo_log_density())) - np.log(np.std(y))
    np.testing.assert_allclose(score, fitted.alpha_scores_[fitted.alpha_], rtol=1e-6)


@pytest.mark.slow
def test_counts_are_not_scaled() -> None:
    X, y = table()
    counts = np.random.default_rng(0).poisson(np.exp((y - 180.0) / 20.0))
    fitted = PEPRegressor(likelihood="poisson", **SMALL).fit(X, counts)
    assert isinstance(fitted.model_, PEP)
    np.testing.assert_array_equal(fitted.model_.data[1][:, 0], counts)
    mean, std = fitted.predict(X, return_std=True)
    assert np.all(std > np.sqrt(mean))
    quantiles = fitted.predict_quantiles(X, [0.05, 0.95])
    assert np.mean((quantiles[:, 0] <= counts) & (counts <= quantiles[:, 1])) > 0.8
    with pytest.raises(ValueError, match="return_cov: got it with Poisson"):
        fitted.predict(X, return_cov=True)


def state(estimator: Any) -> dict[str, int]:
    return {name: id(value) for name, value in vars(estimator).items()}


def refits() -> dict[str, Any]:
    """Estimators, the rows of a first fit, and those of one that fails."""
    X, y = table()
    Y = pd.DataFrame({"p": y, "q": -y})
    formats = {name: recognise(X[name]) for name in X}
    several = SeparateRegressors(PEPRegressor(**SMALL))
    words = np.where(y > 200.0, "zebra", "ant")
    return {
        "regressor": (PEPRegressor(**SMALL), (X, y), (X * 50.0 + 7.0, Y)),
        "classifier": (PEPClassifier(**SMALL), (X, y > 200.0), (X.to_numpy(), words)),
        "separate": (several, (X, Y), (X * 50.0, Y[["q", "p"]])),
        "encoder": (TableEncoder(formats), (X,), (X * 2.0,)),
    }


@pytest.mark.parametrize("name", ["regressor", "classifier", "separate", "encoder"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_fit_that_fails_leaves_the_one_before(
    name: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rows, others = refits()[name]
    never = clone(model)
    with monkeypatch.context() as patched:
        skip_training(patched)
        model.fit(*rows)
    before, predict = state(model), getattr(model, "predict", getattr(model, "transform", None))
    predictions, calls = predict(rows[0]), []

    def fail(*arguments: Any) -> Any:
        calls.append(None)
        if len(calls) > (name == "separate"):  # in the training of the second column
            raise error("stopped")
        return ensemble_posterior(*arguments)

    # Where it is latest: all other attributes have been computed.
    monkeypatch.setattr("gpflow_pep.estimators.base.ensemble_posterior", fail)
    monkeypatch.setattr("gpflow_pep.tables.encoder.learn", fail)
    skip_training(monkeypatch)
    for estimator, expected in ((model, before), (never, state(never))):
        calls.clear()
        with pytest.raises(error, match="stopped"):
            estimator.fit(*others)
        assert state(estimator) == expected
    monkeypatch.undo()
    np.testing.assert_array_equal(predict(rows[0]), predictions)


def test_targets_that_are_equal_are_warned_of(no_training: None) -> None:
    X, y = table(8)
    for Y, place in (
        (np.full(8, 5e6), ""),
        (np.full(8, 1e-9), ""),
        (np.full(8, 0.1) + 0.2 - np.arange(8) % 2 * 1e-17, ""),
        (np.column_stack([y, np.full(8, 3.0)]), " in column 1"),
    ):
        with pytest.warns(UserWarning, match=f"y: all targets{place} are .* cannot be learnt") as w:
            PEPRegressor(**SMALL).fit(X, Y)
        assert len([each for each in w if "cannot be learnt" in str(each.message)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PEPRegressor(**SMALL).fit(X, np.full(8, 5e6) + 1e-6 * np.arange(8))
        PEPRegressor(**SMALL, likelihood="poisson").fit(X, np.ones(8))  # without a size of noise


def test_one_wild_input_is_named(no_training: None) -> None:
    X, y = table()
    for fit in (PEPRegressor(**SMALL).fit, lambda X, y: PEPClassifier(**SMALL).fit(X, y > 200.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit(X.assign(rare=np.arange(60) == 7), y)  # an indicator of one row
        wild = X.assign(near=np.where(np.arange(60) == 7, -1e9, X["near"]))
        with pytest.warns(UserWarning, match=r"X: got -1e\+09 in column 'near' of row 7 \("):
            fit(wild, y)


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_lengthscale_for_all_inputs(kernel: str, tmp_path: Path, no_training: None) -> None:
    X, y = table()
    for estimator, targets in ((PEPRegressor, y), (PEPClassifier, y > 200.0)):
        fitted = estimator(kernel, ard=False, **SMALL).fit(X, targets)
        assert fitted.kernel_.lengthscales.shape == ()
        assert estimator(kernel, **SMALL).fit(X, targets).kernel_.lengthscales.shape == (2,)
        save_estimator(tmp_path / "model", fitted)
        loaded = load_estimator(tmp_path / "model")
        assert loaded.ard is False
        export_numpy(tmp_path / "scorer", fitted)
        for again in (loaded, load_scorer(tmp_path / "scorer")):
            np.testing.assert_allclose(
                getattr(again, "predict_proba" if targets is not y else "predict")(X),
                getattr(fitted, "predict_proba" if targets is not y else "predict")(X),
                rtol=1e-9,
            )


def test_what_scikit_learn_passes_and_asks_for(no_training: None) -> None:
    X, y = table()
    seeds = [PEPRegressor(num_inducing=6, alpha=0.5, random_state=r) for r in generators()]
    points = [model.fit(X, y, sample_weight=None).inducing_variable_.Z for model in seeds]
    np.testing.assert_array_equal(points[0], points[1])
    draws = [seeds[0].sample_y(X[:3], 2, random_state=r) for r in generators()]
    np.testing.assert_array_equal(draws[0], draws[1])
    classifier = PEPClassifier(**SMALL).fit(X, labels(y), sample_weight=None)
    logarithms = classifier.predict_log_proba(X)
    np.testing.assert_array_equal(np.exp(logarithms), np.exp(np.log(classifier.predict_proba(X))))
    SeparateRegressors(PEPRegressor(**SMALL)).fit(X, y[:, None], sample_weight=None)


def generators() -> list[np.random.Generator]:
    return [np.random.default_rng(5), np.random.default_rng(5)]


def test_own_kernel_and_points_are_copied() -> None:
    X, y = table()
    kernel, Z = gpflow.kernels.Matern32(lengthscales=[1.0, 2.0]), np.zeros([3, 2])
    Z[:, 0] = [-1.0, 0.0, 1.0]
    fitted = PEPRegressor(kernel, inducing=Z, max_iterations=5).fit(X, y)
    assert fitted.inducing_variable_.num_inducing == 3
    np.testing.assert_array_equal(kernel.lengthscales, [1.0, 2.0])
    assert isinstance(fitted.kernel_, gpflow.kernels.Matern32)


@pytest.mark.slow
def test_minibatches() -> None:
    X, y = table()
    fitted = PEPRegressor(batch_size=20, **SMALL).fit(X, y)
    assert isinstance(fitted.model_, ARPEP)
    assert fitted.n_iter_ == 30 * 3
    assert np.all(np.isfinite(fitted.predict(X)))


@pytest.mark.slow
def test_warm_start_goes_on() -> None:
    X, y = table()
    fitted = PEPRegressor(warm_start=True, num_inducing=6, alpha=0.5, random_state=0).fit(X, y)
    before, steps = fitted.model_.pep_log_marginal_likelihood(), fitted.n_iter_
    fitted.fit(X, y)
    assert fitted.n_iter_ < steps
    assert fitted.model_.pep_log_marginal_likelihood() >= before


@pytest.mark.parametrize(
    "change, message",
    [
        ({"kernel": "cosine"}, "kernel: got 'cosine', expected 'rbf'"),
        ({"likelihood": "normal"}, "likelihood: got 'normal', expected 'gaussian'"),
        ({"inducing": "best"}, "inducing: got 'best', expected 'kmeans'"),
        ({"alpha": "best"}, "alpha: got 'best', expected a number"),
        ({"alpha": [0.5, 1.5]}, "alphas: got"),
        ({"alpha": 1.5}, "alpha"),
        ({"alpha": "mix", "batch_size": 5}, "alpha: got 'mix' with minibatches"),
        ({"batch_size": "many"}, "batch_size: got 'many'"),
        ({"batch_size": 0}, "batch_size"),
        ({"num_inducing": 0}, "num_inducing"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"max_seconds": "x"}, "max_seconds: got 'x', expected a number"),
        ({"max_seconds": -1}, "max_seconds: got -1"),
        ({"standardize": "yes"}, "standardize: got 'yes', expected True or False"),
        ({"warm_start": 1}, "warm_start: got 1"),
        ({"alpha": True}, "alpha: got True, expected a number"),
        ({"random_state": "a"}, "random_state: got 'a', expected None, a whole number"),
        ({"ard": None}, "ard: got None, expected True or False"),
        ({"kernel": gpflow.kernels.Matern32(), "ard": False}, "ard: got False with a Matern32"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PEPRegressor(**{**SMALL, **change}).fit(*table(10))


def test_refused_by_fit_and_predict(regressor: PEPRegressor) -> None:
    X, y = table()
    with pytest.raises(TypeError, match="sample_weight: got weights"):
        PEPRegressor().fit(X, y, sample_weight=np.ones(len(y)))
    for model, rows in ((SeparateRegressors(PEPRegressor()), y[:, None]), (PEPClassifier(), y)):
        with pytest.raises(TypeError, match="sample_weight: got weights"):
            model.fit(X, rows, sample_weight=np.ones(len(y)))
    with pytest.raises(ValueError, match="y: got missing labels"):
        PEPClassifier().fit(X[:3], np.array(["a", None, "b"], dtype=object))
    with pytest.raises(ValueError, match="y: got one class"):
        PEPClassifier().fit(X, np.zeros(len(y)))
    with pytest.raises(ValueError, match="y: got Unknown label type: continuous, expected labels"):
        PEPClassifier().fit(X[:3], [2.5, 2.75, 3.0])
    with pytest.raises(
        ValueError, match=r"y: got 1 sample\(s\) with a target, expected at least 2"
    ):
        PEPRegressor().fit(X[:1], y[:1])
    with pytest.raises(ValueError, match=r"X: got 1e\+200 in row 3 .*, expected numbers below"):
        PEPRegressor().fit(np.where(np.arange(60)[:, None] == 3, 1e200, X), y)
    for number in (1e200, -1e160):
        with pytest.raises(ValueError, match=r"y: got -?1e\+\d+ in row 0"):
            PEPRegressor().fit(X, np.r_[number, y[1:]])
        with pytest.raises(ValueError, match=r"X: got -?1e\+\d+ in row 0"):
            regressor.predict(X[:1] * 0.0 + number)
    with pytest.raises(ValueError, match="'bernoulli' for 3 classes"):
        PEPClassifier(likelihood="bernoulli").fit(X, labels(y))
    with pytest.raises(ValueError, match="inconsistent"):
        regressor.log_score(X, y[:-1])
    with pytest.raises(ValueError, match="NaN"):
        regressor.log_score(X, np.where(y == y[0], np.nan, y))
    with pytest.raises(ValueError, match="got both"):
        regressor.predict(X, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="quantiles: got"):
        regressor.predict_quantiles(X, [0.0, 0.5])


@pytest.mark.slow
def test_in_scikit_learns_hands() -> None:
    X, y = table(40)
    assert len(cross_val_score(PEPRegressor(**SMALL), X, y, cv=2, n_jobs=2)) == 2
    search = GridSearchCV(PEPRegressor(**SMALL), {"alpha": [0.0, 1.0]}, cv=2).fit(X, y)
    assert search.best_params_["alpha"] in (0.0, 1.0)
    calibrated = CalibratedClassifierCV(PEPClassifier(**SMALL), cv=2).fit(X, y > 200.0)
    assert calibrated.predict_proba(X).shape == (40, 2)


@pytest.mark.slow
def test_table_with_words_and_gaps() -> None:
    X, y = table(40)
    X["colour"] = np.array(["red", "green"])[np.arange(40) % 2]
    X.loc[3, "near"] = np.nan
    columns = make_column_transformer(
        (OneHotEncoder(), ["colour"]), (SimpleImputer(), ["near", "far"])
    )
    fitted = make_pipeline(columns, PEPRegressor(**SMALL)).fit(X, y)
    np.testing.assert_allclose(fitted.predict(X), fitted.predict(X[X.columns[::-1]]))
