"""Rows of single models, skewed targets, and details of the saved model."""

import datetime
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import real, small_comparison, small_table
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline

import gpflow_pep
from gpflow_pep.compare import Settings, clean, compare, details
from gpflow_pep.compare.candidates import (
    WithSpread,
    label_of,
    make_candidates,
    name_of,
)
from gpflow_pep.compare.candidates import _is_skewed as is_skewed
from gpflow_pep.compare.details import Details, importance_of
from gpflow_pep.compare.figures import pictures
from gpflow_pep.compare.findings import _inputs_that_matter as inputs_that_matter
from gpflow_pep.compare.findings import _more_rows as more_rows
from gpflow_pep.compare.findings import _quality as quality
from gpflow_pep.compare.findings import _ranking as ranking
from gpflow_pep.compare.findings import _usable_for as usable_for
from gpflow_pep.compare.findings import (
    findings,
)
from gpflow_pep.compare.losses import METRICS
from gpflow_pep.compare.scores import class_report
from gpflow_pep.compare.trials import Fit, Outcome, Trial, Trials
from gpflow_pep.estimators import load_estimator
from gpflow_pep.tables.cleaning import make_preparation

NLPD, RMSE, *_ = METRICS["numbers"]
NOTHING = Outcome(Fit("alpha 0.5", 1, {}, 0.0, 0.0, 1, True, ""), None)
SMALL: dict[str, Any] = {"num_inducing": 5, "baselines": False}


def test_configurations_are_named_by_what_differs() -> None:
    settings = Settings(kernel=("rbf", "matern32"), num_inducing=(5, 10))
    four = [("rbf", 5), ("matern32", 5), ("rbf", 10), ("matern32", 10)]
    assert settings.configurations == four
    assert settings.label("rbf", 5) == "rbf, M 5"
    assert Settings(kernel=("rbf", "matern32")).label("rbf", 50) == "rbf"
    assert Settings().label("rbf", 50) == ""
    assert (
        name_of("alpha 0.5", "rbf, M 5", "separate") == "alpha 0.5 (rbf, M 5, separate)"
    )
    assert (
        label_of("alpha 0.5 (rbf, M 5)") == "rbf, M 5"
        and label_of(name_of("default")) == ""
    )


def test_every_pair_of_a_kernel_and_points_is_a_single_model_at_every_power() -> None:
    several: dict[str, Any] = {
        "kernel": ("rbf", "matern12", "matern32"),
        "num_inducing": (3, 6),
    }
    settings = Settings(alphas=(0.0, 1.0), baselines=False, **several)
    candidates = make_candidates(clean(small_table(), "load"), settings)
    first, *singles, last = candidates
    assert (first, last) == ("default", "mean") and len(singles) == 12
    power, estimator = candidates["alpha 1 (matern12, M 6)"]
    options = estimator.get_params()
    assert (power, options["kernel"], options["num_inducing"]) == (1.0, "matern12", 6)


def test_an_input_that_does_not_matter_has_no_importance() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"idle": rng.normal(size=80), "busy": rng.normal(size=80)})
    y = 3.0 * X["busy"] + 0.1 * rng.normal(size=80)
    model = Pipeline(
        [("prepare", make_preparation(X)), ("model", WithSpread(LinearRegression()))]
    )
    table = importance_of(model.fit(X, y), X, y, False, RMSE)
    assert list(table.index) == ["busy", "idle"]
    # Permuted, the part of the input in the error is twice its variance.
    assert_allclose(
        table.loc["busy", "mean"], 3.0 * np.sqrt(2.0) * X["busy"].std(), rtol=0.1
    )
    assert abs(table.loc["idle", "mean"]) < 0.01


class Timed(BaseEstimator):
    """Its score takes a second of a clock of its own."""

    seconds = 0.0

    def fit(self, X: Any, y: Any) -> "Timed":
        return self

    def log_score(self, X: Any, y: Any) -> float:
        Timed.seconds += 1.0 if len(X) in (8, 1000) else len(X) / 1000
        return 0.0


@pytest.mark.parametrize(
    "num_rows, deadline, scores",
    [(8, np.inf, 12), (8, 9.0, 10), (8, 5.0, 6), (8, 4.5, 1), (1400, 4.5, 6)],
)
def test_inputs_are_permuted_in_time(
    num_rows: int, deadline: float, scores: int, monkeypatch: Any
) -> None:
    """In this process: others, begun for it, would load TensorFlow, and show what it
    writes.
    """
    monkeypatch.setattr(Timed, "seconds", 0.0)
    monkeypatch.setattr(details.time, "perf_counter", lambda: Timed.seconds)
    X = pd.DataFrame({"a": np.arange(float(num_rows)), "b": 0.0})
    model = Pipeline([("prepare", make_preparation(X)), ("model", Timed())]).fit(
        X, X["a"]
    )
    with joblib.parallel_config("loky", n_jobs=2):
        table = importance_of(model, X, X["a"], False, NLPD, deadline)
    # The first score, without a change, is computed twice.
    assert Timed.seconds <= deadline + 1.0
    if num_rows == 8:
        assert Timed.seconds == scores
    assert (table is None) == (scores == 1)


@pytest.mark.parametrize(
    "gain, noise, words",
    [
        (0.5, 0.1, "worse: more rows would probably help."),
        (0.0, 0.5, "): no sign that more rows like these would help."),
        (
            -0.5,
            0.1,
            "better: look for wrong entries among the rows that are predicted worst.",
        ),
    ],
)
def test_whether_more_rows_help_is_told_beyond_noise(
    gain: float, noise: float, words: str
) -> None:
    rng = np.random.default_rng(0)
    few = pd.DataFrame({"log_density": rng.normal(size=100)})
    many = few + gain + noise * rng.normal(size=(100, 1))
    columns = dict.fromkeys(("true", "mean", "lower_90", "upper_90"), 0.0)
    learning = {40: few.assign(**columns), 80: many.assign(**columns)}
    text = more_rows(replace(small_comparison(), details=Details(None, learning)))
    size = f"{abs(np.mean(many - few)):.3f}"
    assert text.startswith(f"With 40 instead of 80 training rows, the NLPD is {size} ")
    assert text.endswith(words)
    alone = replace(small_comparison(), details=Details(None, {40: learning[40]}))
    assert more_rows(alone) == ""
    for unfinished in ((40,), (80,), (40, 80)):
        cut_short = Details(None, learning, unfinished)
        text = more_rows(replace(small_comparison(), details=cut_short))
        assert "training on 40" in text or "training on 80" in text
        assert text.endswith("rows did not converge.")
        assert "wrong entries" not in text


@pytest.mark.parametrize(
    "means, words",
    [
        (
            [0.5, 0.25, 0.125, 0.1],
            "The most important of 4 inputs: 'a' (0.500), 'b' (0.250) and 'c' (0.125)."
            " The number in brackets shows how much worse the NLPD is if the values of"
            " the input are permuted.",
        ),
        (
            [0.5, 0.01, 0.0, -0.01],
            "The most important of 4 inputs: 'a' (0.500). The number in",
        ),
        ([0.01, 0.0, 0.0, -0.01], "No input matters by itself: permuting the values"),
    ],
)
def test_inputs_that_matter_are_named(means: list[float], words: str) -> None:
    table = pd.DataFrame({"mean": means, "error": 0.01}, index=list("abcd"))
    found = inputs_that_matter(replace(small_comparison(), details=Details(table, {})))
    assert found.startswith(words)
    for nothing in (None, table.head(1)):  # a single input is not compared with others
        without = replace(small_comparison(), details=Details(nothing, {}))
        assert inputs_that_matter(without) == ""


def test_the_picture_of_inputs_needs_no_learning_curve() -> None:
    comparison = small_comparison()
    assert comparison.details is not None
    alone = replace(comparison, details=comparison.details._replace(learning={}))
    assert "learning" not in pictures(alone) and "learning" in pictures(comparison)


def test_details_of_a_comparison() -> None:
    comparison = small_comparison()
    details = comparison.details
    assert details is not None and details.importance is not None
    assert list(details.learning) == [10, 20] and list(details.importance.index) == [
        "time"
    ]
    assert details.importance.loc["time", "mean"] > 0.0
    best = comparison.held_out[str(comparison.best)].query("part == 1")
    assert_allclose(details.learning[20]["log_density"], best["log_density"], rtol=1e-6)
    assert details.unfinished == (20,)  # after 15 steps
    assert more_rows(comparison).startswith(
        "It is not known whether more rows would help"
    )
    ended = replace(comparison, details=details._replace(unfinished=()))
    assert more_rows(ended).startswith("With 10 instead of 20 training rows, the NLPD")
    assert not any("time ran out" in text for _, text in findings(comparison))


def test_the_card_of_a_model_is_in_its_folder() -> None:
    comparison = small_comparison()
    out = real("numbers").out
    card = (out / "model" / "README.md").read_text()
    for part in (
        "# Target 'load', 1 input, 40 rows",
        str(datetime.date.today()),
        quality(comparison),
        "| time | 100.",
        "    gpflow-pep",
        f"gpflow_pep {gpflow_pep.__version__}",
    ):
        assert part in card
    assert load_estimator(out / "model")[-1].alpha_ == comparison.model[-1].alpha_


def test_classes_are_counted_one_by_one() -> None:
    true = ["ham"] * 4 + ["spam"] * 6
    predicted = ["ham", "ham", "spam", "spam"] + ["spam"] * 5 + ["ham"]
    table = pd.DataFrame({"true": true, "predicted": predicted})
    report = class_report(table)
    assert_allclose(report.loc[["ham", "spam"]], [[4, 2 / 4, 2 / 3], [6, 5 / 6, 5 / 7]])


def test_what_no_better_than_a_constant_is_not_to_be_used() -> None:
    comparison = small_comparison()
    assert usable_for(comparison).startswith("Use its means")
    mean = comparison.fits_of("mean")
    fits = [fit._replace(scores=mean[fit.part - 1].scores) for fit in comparison.fits]
    useless = usable_for(replace(comparison, fits=fits))
    assert useless == "Do not use it: it predicts no better than a constant."


def skewed_table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    x = rng.uniform(-3.0, 3.0, 60)
    return pd.DataFrame(
        {"x": x, "price": np.exp(3.0 * np.sin(x) + 0.3 * rng.normal(size=60))}
    )


def test_logarithms_are_taken_where_they_predict_clearly_better() -> None:
    options = {**SMALL, "max_iterations": 30, "details": False}
    comparison = compare(skewed_table(), "price", alphas=(0.5,), splits=1, **options)
    best = "default (log_normal)"
    assert comparison.choices == ["default", best, "alpha 0.5"]
    assert comparison.best == best and comparison.model is not None
    assert comparison.model[-1].likelihood == comparison.likelihood == "log_normal"
    assert comparison.settings.likelihood == "auto"
    change = comparison.difference(best, "default")
    assert change.clear and change.mean < 0.0
    assert (
        f"{best} has the lowest NLPD, and is saved because it is clearly below"
        in ranking(comparison)
    )
    assert np.all(comparison.model.predict(skewed_table()[["x"]]) > 0.0)
    table = comparison.held_out[best]
    error = np.mean(np.abs(np.log(table["true"] / table["median"])))
    text = quality(comparison)
    assert f"its medians are off by a factor of {np.exp(error):.3g} on average" in text
    assert (
        "of the variance of the logarithm of 'price'" in text
        and "Use its medians and" in text
    )
    assert {"predictions", "histogram"} <= pictures(comparison).keys()


@pytest.mark.parametrize("seed", range(5))
def test_fewer_rows_have_all_classes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit without a class cannot be scored, and said nothing of more rows."""
    y = np.repeat(["a", "b", "c", "d", "rare"], [40, 24, 16, 16, 4])
    table = pd.DataFrame({"x": np.random.default_rng(seed).normal(size=100), "y": y})
    trials = Trials(clean(table, "y"), Settings(folds=2, seed=seed, **SMALL))
    seen: list[Any] = []
    monkeypatch.setattr(
        trials, "train", lambda *arguments: seen.append(arguments[1]) or NOTHING
    )
    monkeypatch.setattr(trials, "_scored", lambda outcome, test: outcome)
    for fraction in (0.25, 0.5):
        trials.run(Trial("alpha 0.5", 1, fraction), 0.0)
        rows = seen.pop()
        assert len(rows) == len(set(rows)) == int(fraction * 50)
        counts = trials.data.y.iloc[rows].value_counts()
        assert len(counts) == 5 and counts["a"] == pytest.approx(20 * fraction, abs=2)


def test_logarithms_are_tried_only_of_skewed_positive_numbers() -> None:
    data = clean(skewed_table(), "price")
    assert is_skewed(data, Settings()) and not is_skewed(
        data, Settings(likelihood="gaussian")
    )
    for y in (data.y - 1.0, np.log(data.y) + 10.0):
        assert not is_skewed(data._replace(y=y), Settings())


def test_counts_are_told_of_their_likelihoods() -> None:
    comparison = small_comparison()
    counts = pd.Series(np.arange(40) % 7, name="load", dtype=float)
    told = findings(replace(comparison, data=comparison.data._replace(y=counts)))
    line = (
        "The targets are counts, 0 to 6: try --likelihood poisson or --likelihood"
        " negative_binom"
    )
    assert any(text.startswith(line) for _, text in told)
    assert not any("counts" in text for _, text in findings(comparison))
    told = findings(replace(comparison, data=comparison.data._replace(y=counts + 1.0)))
    assert any("1 to 7: try" in text and "zero" not in text for _, text in told)
