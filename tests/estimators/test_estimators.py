"""Estimators: units, names of columns, labels, draws, and what scikit-learn does with
them.
"""

import pickle
import warnings
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
from cases.forms import check_mixture, saved, scorer
from gpflow.base import AnyNDArray
from helpers import skip_training
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import get_scorer

from gpflow_pep.estimators import PEPClassifier, PEPRegressor
from gpflow_pep.estimators.separate import SeparateRegressors
from gpflow_pep.estimators.single import parts
from gpflow_pep.estimators.single.parts import KERNELS
from gpflow_pep.models import PEPRegression
from gpflow_pep.tables import TableEncoder, recognise
from gpflow_pep.training.choosing import ensemble
from gpflow_pep.training.choosing.ensemble import ensemble_posterior

SMALL: dict[str, Any] = {
    "num_inducing": 6,
    "alpha": 0.5,
    "max_iterations": 30,
    "random_state": 0,
}
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")

RNG = np.random.default_rng(1)
X = pd.DataFrame(
    {"far": 1e3 + 50.0 * RNG.standard_normal(60), "near": RNG.uniform(-1, 1, 60)}
)
Y = 200.0 + 30.0 * np.sin(3.0 * X["near"].to_numpy()) + 5.0 * RNG.standard_normal(60)
LABELS = np.array(["low", "middle", "high"])[np.digitize(Y, [190.0, 210.0])]


@pytest.fixture(scope="module")
def regressor() -> PEPRegressor:
    return PEPRegressor(**SMALL).fit(X, Y)


@pytest.fixture(scope="module")
def classifier() -> PEPClassifier:
    return PEPClassifier(**SMALL).fit(X, LABELS)


def test_everything_is_in_original_units(regressor: PEPRegressor) -> None:
    assert isinstance(regressor.model_, PEPRegression)
    scaled = (X.to_numpy() - X.to_numpy().mean(0)) / X.to_numpy().std(0)
    mean, variance = (part.numpy()[:, 0] for part in regressor.model_.predict_y(scaled))
    expected = Y.std() * mean + Y.mean(), Y.std() * np.sqrt(variance)
    check_mixture(regressor, X, np.ones((1, 1)), *np.reshape(expected, (2, 1, 60)))
    density = norm.logpdf(Y, *expected)
    assert_allclose(regressor.log_score(X, Y), density.mean(), rtol=1e-8)
    assert regressor.score(X, Y) > 0.5
    rows = X[:4]
    _, covariance = regressor.predict(rows, return_cov=True)
    draws = regressor.sample_y(rows, 20_000, random_state=3)
    assert_allclose(np.cov(draws), covariance, atol=0.06 * covariance.max())
    assert_array_equal(draws, regressor.sample_y(rows, 20_000, random_state=3))
    twice = pd.concat([rows, rows])  # a covariance that has no Cholesky factor
    assert np.all(np.isfinite(regressor.sample_y(twice)))


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
@pytest.mark.near_copies("regressor")
def test_columns_are_matched_by_name_and_pickled(kind: str, request: Any) -> None:
    fitted = request.getfixturevalue(kind)
    predict = "predict" if kind == "regressor" else "predict_proba"
    expected = getattr(fitted, predict)(X)
    assert_array_equal(getattr(fitted, predict)(X[["near", "far"]]), expected)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(X.rename(columns={"far": "else"}))
    with pytest.raises(ValueError, match="features"):
        fitted.predict(X.to_numpy()[:, :1])
    back = pickle.loads(pickle.dumps(fitted))
    assert type(back) is type(fitted) and not hasattr(clone(fitted), "model_")
    assert_allclose(getattr(back, predict)(X), expected, rtol=1e-9)


def test_labels_are_words(classifier: PEPClassifier) -> None:
    assert list(classifier.classes_) == ["high", "low", "middle"]
    probability = classifier.predict_proba(X)
    assert_allclose(probability.sum(axis=1), 1.0)
    best = classifier.classes_[probability.argmax(axis=1)]
    assert_array_equal(classifier.predict(X), best)
    own = probability[np.arange(60), np.searchsorted(classifier.classes_, LABELS)]
    assert_allclose(classifier.log_score(X, LABELS), np.log(own).mean())
    assert_array_equal(
        np.exp(classifier.predict_log_proba(X)), np.exp(np.log(probability))
    )
    assert classifier.score(X, LABELS) > 0.6
    with pytest.raises(ValueError, match="y: got labels that are not among"):
        classifier.log_score(X, np.full(60, "other"))


@pytest.mark.slow
def test_grades_are_in_the_order_of_their_values(no_training: None) -> None:
    """Those of numbers as text too, of which 10 comes before 2 in the alphabet."""
    rows = np.arange(24.0)[:, None]
    grades = np.repeat(np.arange(1, 13), 2)
    words = grades.astype(str)
    small = {**SMALL, "likelihood": "ordinal", "num_inducing": 5}
    fitted = [PEPClassifier(**small).fit(rows, y) for y in (grades, words)]
    assert list(fitted[1].order_) == [str(grade) for grade in range(1, 13)]
    assert list(fitted[1].classes_) == sorted(words[::2])
    numbers, texts = (one.predict_proba(rows) for one in fitted)
    in_order = np.argsort(fitted[1].classes_.astype(int))
    assert_allclose(texts[:, in_order], numbers, rtol=1e-9)
    assert_allclose(
        fitted[1].log_score(rows, words), fitted[0].log_score(rows, grades), rtol=1e-9
    )
    assert fitted[1].score(rows, words) == fitted[0].score(rows, grades)
    few = PEPClassifier(**{**small, "num_inducing": 2}).fit(rows[:3], [2.5, 3.0, 2.75])
    assert list(few.classes_) == [2.5, 2.75, 3.0]


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("settings", [{"num_inducing": 5}, {}], ids=["one", "mixed"])
def test_scorers_of_scikit_learn_for_ordered_classes(
    settings: dict[str, Any], several: bool
) -> None:
    """They expect the columns of sorted labels."""
    labels = LABELS if several else np.where(Y > 200.0, "high", "low")
    options = {"likelihood": "ordinal", "order": ["low", "middle", "high"]}
    model = PEPClassifier(max_iterations=15, random_state=0, **options, **settings)
    model.fit(X, labels)
    assert_array_equal(model.classes_, np.unique(labels))
    assert_array_equal(
        model.order_, [word for word in options["order"] if word in labels]
    )
    log_score = model.log_score(X, labels)
    assert_allclose(get_scorer("neg_log_loss")(model, X, labels), log_score, rtol=1e-9)
    assert log_score > -0.7 and model.score(X, labels) > 0.7
    area = get_scorer("roc_auc_ovr" if several else "roc_auc")(model, X, labels)
    assert area > 0.9


def state(estimator: Any) -> dict[str, int]:
    return {name: id(value) for name, value in vars(estimator).items()}


PAIR = pd.DataFrame({"p": Y, "q": -Y})
#: Estimators, the rows of a first fit, and those of one that fails.
REFITS: dict[str, Any] = {
    "regressor": (PEPRegressor(**SMALL), (X, Y), (X * 50.0 + 7.0, PAIR)),
    "classifier": (
        PEPClassifier(**SMALL),
        (X, Y > 200.0),
        (X.to_numpy(), np.where(Y > 200.0, "zebra", "ant")),
    ),
    "separate": (
        SeparateRegressors(PEPRegressor(**SMALL)),
        (X, PAIR),
        (X * 50.0, PAIR[["q", "p"]]),
    ),
    "encoder": (
        TableEncoder({name: recognise(X[name]) for name in X}),
        (X,),
        (X * 2.0,),
    ),
}


@pytest.mark.near_copies(
    "KeyboardInterrupt-regressor",
    "ValueError-separate",
    "ValueError-classifier",
    "*-encoder",
)
@pytest.mark.parametrize("name", REFITS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_fit_that_fails_leaves_the_one_before(
    name: str, error: Any, monkeypatch: Any
) -> None:
    model, rows, others = REFITS[name]
    model, never = clone(model), clone(model)
    with monkeypatch.context() as patched:
        skip_training(patched)
        model.fit(*rows)
    before = state(model)
    predict = getattr(model, "predict", getattr(model, "transform", None))
    predictions = predict(rows[0])
    calls = []

    def fail(*arguments: Any) -> Any:
        calls.append(None)
        if len(calls) > (name == "separate"):  # in the training of the second column
            raise error("stopped")
        return ensemble_posterior(*arguments)

    # Where it is latest: all other attributes have been computed.
    monkeypatch.setattr(ensemble, "ensemble_posterior", fail)
    monkeypatch.setattr("gpflow_pep.tables.encoder.learn", fail)
    skip_training(monkeypatch)
    for estimator, expected in ((model, before), (never, state(never))):
        calls.clear()
        with pytest.raises(error, match="stopped"):
            estimator.fit(*others)
        assert state(estimator) == expected
    monkeypatch.undo()
    assert_array_equal(predict(rows[0]), predictions)


@pytest.mark.parametrize(
    "targets, place",
    [
        (np.full(8, 5e6), ""),
        (np.full(8, 1e-9), ""),
        (np.full(8, 0.1) + 0.2 - np.arange(8) % 2 * 1e-17, ""),
        (np.column_stack([Y[:8], np.full(8, 3.0)]), " in column 1"),
    ],
)
def test_targets_that_are_equal_are_warned_of(
    targets: Any, place: str, no_training: None
) -> None:
    with pytest.warns(
        UserWarning, match=f"y: all targets{place} are .* cannot be learnt"
    ) as w:
        PEPRegressor(**SMALL).fit(X[:8], targets)
    assert len([each for each in w if "cannot be learnt" in str(each.message)]) == 1


def test_one_wild_number_is_named(no_training: None) -> None:
    is_seventh = np.arange(60) == 7
    wild = X.assign(near=np.where(is_seventh, -1e9, X["near"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Nor equal ones.
        PEPRegressor(**SMALL).fit(X[:8], np.full(8, 5e6) + 1e-6 * np.arange(8))
        # Without size of noise.
        PEPRegressor(**SMALL, likelihood="poisson").fit(X[:8], np.ones(8))
    for estimator, y in (
        (PEPRegressor(**SMALL), Y),
        (PEPClassifier(**SMALL), Y > 200.0),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            estimator.fit(X.assign(rare=is_seventh), y)  # an indicator of one row
        with pytest.warns(
            UserWarning, match=r"X: got -1e\+09 in column 'near', row 7 \("
        ):
            estimator.fit(wild, y)
    with pytest.warns(UserWarning, match=r"y: got 1e\+09 in column 0, row 7 \("):
        PEPRegressor(**SMALL).fit(X, np.where(is_seventh, 1e9, Y))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.near_copies("rational_quadratic")
def test_one_lengthscale_for_all_inputs(
    kernel: str, tmp_path: Path, no_training: None
) -> None:
    for kind, y, name in (
        (PEPRegressor, Y, "predict"),
        (PEPClassifier, Y > 200.0, "predict_proba"),
    ):
        fitted = kind(kernel, ard=False, **SMALL).fit(X, y)
        assert fitted.kernel_.lengthscales.shape == ()
        assert kind(kernel, **SMALL).fit(X, y).kernel_.lengthscales.shape == (2,)
        loaded = saved(fitted, tmp_path)
        assert loaded.ard is False
        for again in (loaded, scorer(fitted, tmp_path)):
            assert_allclose(
                getattr(again, name)(X), getattr(fitted, name)(X), rtol=1e-9
            )


def test_what_scikit_learn_passes_and_asks_for(no_training: None) -> None:
    generators = [np.random.default_rng(5) for _ in range(4)]
    seeds = [
        PEPRegressor(num_inducing=6, alpha=0.5, random_state=r) for r in generators[:2]
    ]
    points = [
        model.fit(X, Y, sample_weight=None).inducing_variable_.Z for model in seeds
    ]
    assert_array_equal(points[0], points[1])
    draws = [seeds[0].sample_y(X[:3], 2, random_state=r) for r in generators[2:]]
    assert_array_equal(draws[0], draws[1])
    PEPClassifier(**SMALL).fit(X, LABELS, sample_weight=None)
    SeparateRegressors(PEPRegressor(**SMALL)).fit(X, Y[:, None], sample_weight=None)


def test_own_kernel_and_points_are_copied() -> None:
    kernel = gpflow.kernels.Matern32(lengthscales=[1.0, 2.0])
    Z = np.zeros([3, 2])
    Z[:, 0] = [-1.0, 0.0, 1.0]
    fitted = PEPRegressor(kernel, inducing=Z, max_iterations=5).fit(X, Y)
    assert fitted.inducing_variable_.num_inducing == 3
    assert_array_equal(kernel.lengthscales, [1.0, 2.0])
    assert isinstance(fitted.kernel_, gpflow.kernels.Matern32)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"kernel": "cosine"}, "kernel: got 'cosine', expected 'rbf'"),
        ({"likelihood": "normal"}, "likelihood: got 'normal', expected 'gaussian'"),
        ({"inducing": "best"}, "inducing: got 'best', expected 'kmeans'"),
        ({"alpha": "best"}, "alpha: got 'best', expected a number.*'mix' or 'auto'"),
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
        ({"ard": None}, "ard: got None, expected True, False or a positive"),
        (
            {"kernel": gpflow.kernels.Matern32(), "ard": False},
            "ard: got False with a Matern32",
        ),
        (
            {"ard": 0.5, "objective": "loo"},
            r"got 'loo', .* number as ard",
        ),
        (
            {"noise": "odd"},
            "noise: got 'odd', expected 'auto' or 'constant' or 'varying'",
        ),
        ({"warp": "yes"}, "warp: got 'yes', expected True, False or 'auto'"),
        ({"inputs": "log"}, "inputs: got 'log'"),
        (
            {"inducing": np.full((5, 2), np.nan)},
            "inducing: got NaN or infinite numbers",
        ),
        (
            {"inputs": "yeo-johnson", "standardize": False},
            "inputs: got .*standardize=False",
        ),
        ({"warp": True, "likelihood": "poisson"}, "warp: got True with .*poisson"),
        (
            {"noise": "varying", "likelihood": "student_t"},
            "noise: got 'varying' with .*student_t",
        ),
        (
            {"warp": True, "standardize": False},
            "warp: got True with .*standardize=False",
        ),
        *(
            ({"near_rows": n}, f"near_rows: got {n!r}, expected 'auto', 0 or N")
            for n in ("many", 3)
        ),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PEPRegressor(**{**SMALL, **change}).fit(X[:10], Y[:10])


@pytest.mark.parametrize(
    "estimator, rows, y, message",
    [
        (
            PEPClassifier(),
            X[:3],
            np.array(["a", None, "b"], object),
            "y: got no label in 1 row of ",
        ),
        (PEPClassifier(), X, np.zeros(60), "y: got one class"),
        (
            PEPClassifier(),
            X[:3],
            [2.5, 2.75, 3.0],
            "y: got Unknown label type: continuous, expected labels",
        ),
        (PEPClassifier(likelihood="bernoulli"), X, LABELS, "'bernoulli' for 3 classes"),
        (
            PEPClassifier(gpflow.kernels.RBF(), ard=0.5),
            X,
            LABELS,
            r"ard: got 0\.5 with a SquaredExponential as the kernel",
        ),
        *(
            (PEPClassifier(ard=a), X, LABELS, "ard: got")
            for a in (0.0, -1.0, np.nan, "yes")
        ),
        *(
            (
                PEPClassifier(near_rows=n),
                X,
                LABELS,
                f"near_rows: got {n!r}, expected 'auto', 0 or None",
            )
            for n in ("many", 5, True, -1)
        ),
        (
            PEPRegressor(),
            X[:1],
            Y[:1],
            r"y: got 1 sample\(s\) with a target, expected at least 2",
        ),
        (
            PEPRegressor(),
            np.where(np.arange(60)[:, None] == 3, 1e200, X),
            Y,
            r"X: got 1e\+200 in row 3 .*, expected numbers below",
        ),
        (PEPRegressor(), X, np.r_[-1e160, Y[1:]], r"y: got -1e\+160 in row 0"),
        (
            PEPRegressor(),
            X,
            1e-170 * Y,
            "y: got at most .*e-1.., expected values above",
        ),
        (
            PEPClassifier(),
            X,
            np.array([1, *["b"] * 59], object),
            "y: got words and numbers as labels",
        ),
    ],
)
def test_rows_that_are_refused(
    estimator: Any, rows: Any, y: AnyNDArray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        estimator.fit(rows, y)


def test_refused_by_fit_and_predict(regressor: PEPRegressor) -> None:
    separate = SeparateRegressors(PEPRegressor())
    for model, y in ((PEPRegressor(), Y), (separate, Y[:, None]), (PEPClassifier(), Y)):
        with pytest.raises(TypeError, match="sample_weight: got weights"):
            model.fit(X, y, sample_weight=np.ones(60))
    for call, message in (
        (lambda: regressor.predict(X[:1] * 0.0 - 1e160), r"X: got -1e\+160 in row 0"),
        (lambda: regressor.log_score(X, Y[:-1]), "inconsistent"),
        (
            lambda: regressor.log_score(X, np.where(Y[0] == Y, np.nan, Y)),
            r"no target in 1 row .* without a target\.",
        ),
        (lambda: regressor.predict(X, return_std=True, return_cov=True), "got both"),
        (lambda: regressor.predict_quantiles(X, [0.0, 0.5]), "quantiles: got"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("estimator", [PEPRegressor(), PEPClassifier()], ids=repr)
@pytest.mark.parametrize(
    "name, number", [("predict", 1), ("score", 2), ("log_score", 2)]
)
def test_what_needs_a_fit_is_refused_before_it(
    estimator: Any, name: str, number: int
) -> None:
    with pytest.raises(NotFittedError):
        getattr(estimator, name)(*[np.zeros([3, 2]), np.zeros(3)][:number])


def test_points_of_many_rows_are_chosen_from_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts, "MOST_CHOSEN_FROM", 20)
    Z = parts.make_inducing_variable(
        "kmeans", X.to_numpy(), 20, gpflow.kernels.RBF(), 0
    ).Z
    some = X.to_numpy()[np.random.default_rng(0).permutation(60)[:20]]
    assert_allclose(np.sort(Z, axis=0), np.sort(some, axis=0), rtol=1e-12)


@pytest.mark.near_copies("rbf")
@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": "matern52"},
        {"kernel": "rbf", "ard": False},
        {"kernel": "additive", "noise": "varying"},
    ],
    ids=lambda settings: settings["kernel"],
)
def test_a_sparse_model_finds_a_wave_beside_a_trend(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-2.0, 2.0, [150, 1])
    y = 1.5 * x[:, 0] + 0.7 * np.sin(20.0 * x[:, 0]) + 0.1 * rng.standard_normal(150)
    model = PEPRegressor(num_inducing=60, alpha=0.5, random_state=0, **settings)
    model.fit(x, y)
    at = np.linspace(-1.8, 1.8, 100)[:, None]
    error = model.predict(at) - 1.5 * at[:, 0] - 0.7 * np.sin(20.0 * at[:, 0])
    assert np.sqrt(np.mean(error**2)) < 0.15
