"""Scores of held-out rows, by hand and by scikit-learn; and what those of all fits come
to.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import (
    small_classification,
    small_comparison,
    small_table,
)
from numpy.testing import assert_allclose
from rich.console import Console
from scipy import stats
from sklearn.metrics import roc_auc_score

from gpflow_pep.compare import Comparison, Fit, Settings, clean, summarise
from gpflow_pep.compare import findings as texts_of
from gpflow_pep.compare.details import Details
from gpflow_pep.compare.findings import _quality as quality
from gpflow_pep.compare.findings import _ranking as ranking
from gpflow_pep.compare.findings import _usable_for as usable_for
from gpflow_pep.compare.findings import findings
from gpflow_pep.compare.losses import METRICS, Difference
from gpflow_pep.compare.run import best_of
from gpflow_pep.compare.scores import difference_over_rows, scores
from gpflow_pep.compare.terminal import MARKS, drawn, score_line, word_tables
from gpflow_pep.engine.records import OVER

METRIC = {metric.name: metric for metric in (*METRICS["numbers"], *METRICS["classes"])}
NLPD, RMSE = METRICS["numbers"][:2]


def of_numbers(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    true = np.random.default_rng(0).normal(size=50)
    table = pd.DataFrame({"true": true, "mean": true + rng.normal(size=50)})
    ends = {"lower_90": table["mean"] - 1.0, "upper_90": table["mean"] + 1.0}
    return table.assign(log_density=rng.normal(size=50), **ends)


def of_classes(seed: int, num_classes: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    names = [f"c{c}" for c in range(num_classes)]
    probability = rng.dirichlet(np.ones(num_classes), size=60)
    true = np.array(names)[np.random.default_rng(0).integers(num_classes, size=60)]
    table = pd.DataFrame(probability, columns=[f"p({name})" for name in names])
    predicted = np.array(names)[np.argmax(probability, axis=1)]
    return table.assign(
        true=true, predicted=predicted, log_density=-rng.uniform(size=60)
    )


def test_scores_of_numbers() -> None:
    table = of_numbers(1)
    error = table["mean"] - table["true"]
    found = scores(table)
    rmse = np.sqrt(np.mean(error**2))
    mae = np.mean(np.abs(error))
    expected = [-table["log_density"].mean(), rmse, mae, np.mean(np.abs(error) <= 1.0)]
    assert_allclose(
        [found[name] for name in ("nlpd", "rmse", "mae", "coverage")], expected
    )


def test_the_area_is_scikit_learns() -> None:
    two = of_classes(1, 2)
    three = of_classes(1, 3)
    expected = roc_auc_score(two["true"] == "c1", two["p(c1)"])
    assert_allclose(scores(two)["auc"], expected)
    probability = three.iloc[:, :3].to_numpy()
    labels = np.arange(60) % 2
    expected = roc_auc_score(three["true"], probability, multi_class="ovr")
    assert_allclose(scores(three)["auc"], expected)
    of_others = three.assign(true=np.array(["c0", "c1"])[labels])  # none of the third
    areas = [roc_auc_score(labels == c, probability[:, c]) for c in (0, 1)]
    assert_allclose(scores(of_others)["auc"], np.mean(areas))
    assert np.isnan(scores(three.assign(true="c0"))["auc"])


@pytest.mark.parametrize("name", ["nlpd", "rmse", "mae", "auc", "error"])
def test_a_difference_over_rows_is_that_of_the_scores(name: str) -> None:
    of_labels = name in ("auc", "error")
    pair = [of_classes(seed, 2) if of_labels else of_numbers(seed) for seed in (1, 2)]
    gap, (ours, theirs) = difference_over_rows(METRIC[name], *pair), map(scores, pair)
    sign = -1.0 if name == "auc" else 1.0  # a loss: turned round
    assert_allclose(gap.mean, sign * (ours[name] - theirs[name]))
    if name == "auc":
        assert np.isnan(gap.error) and not gap.clear
    if not of_labels:
        # Rows of the same table three times have the same mean, and an error that is √3
        # smaller.
        again = difference_over_rows(
            METRIC[name], *(pd.concat([table] * 3) for table in pair)
        )
        assert_allclose(again.mean, gap.mean)
        assert_allclose(again.error * np.sqrt(150 * 149 / 50 / 49 / 3), gap.error)


def test_the_metric_that_decides_comes_first() -> None:
    classes = replace(small_classification(), settings=Settings(metric="auc"))
    assert [m.name for m in classes.metrics] == ["auc", "nlpd", "error", "ece"]
    assert small_comparison().metrics == METRICS["numbers"]


PARTS = np.repeat(np.arange(1, 6), 10)
FAILED = dict.fromkeys(("nlpd", "rmse", "mae", "coverage"), np.nan)
NOISY = [1.0, 1.4, 0.9, 1.1]
STEADY = [1.02, 1.38, 0.95, 1.09]
LOWER = [0.9, 1.4, 0.9, 1.08]
WORSE = [2.0, 2.41, 1.92, 2.1]
WORST = [9.0, 8.0, 9.0, 8.0]


def made(nlpd: dict[str, Any], **changes: Any) -> Comparison:
    """A comparison whose fits have the scores given for each part."""
    rng = np.random.default_rng(0)
    powers = {
        name: float(name.split()[-1]) if "alpha" in name else np.nan for name in nlpd
    }
    comparison = Comparison(clean(small_table(), "load"), Settings(folds=4), powers)
    for name, losses in nlpd.items():
        values = rng.standard_normal((len(losses), 10))
        rows = (
            np.array(losses)[:, None] + values - values.mean(axis=1, keepdims=True)
        ).ravel()
        # A tenth is outside of the intervals.
        true = 2.0 * (np.arange(len(rows)) % 10 == 0)
        table = pd.DataFrame(
            {"part": PARTS[: len(rows)], "log_density": -rows, "true": true}
        )
        comparison.held_out[name] = table.assign(mean=0.0, lower_90=-1.0, upper_90=1.0)
        for number, score in enumerate(losses, start=1):
            values = {"nlpd": score, "rmse": 2.0 * score, "mae": score}
            values |= {"mape": score, "coverage": 0.9}
            fit = Fit(name, number, values, 1.0, 0.5, 7, True, "", 30)
            comparison.fits.append(fit._replace(**changes.get(name, {})))
    return replace(comparison, best=best_of(comparison))


def errors(nlpd: float, rmse: float, mae: float) -> dict[str, Any]:
    return {"scores": {"nlpd": nlpd, "rmse": rmse, "mae": mae, "coverage": 0.5}}


def texts(comparison: Comparison, kind: str) -> list[str]:
    return [text for each, text in findings(comparison) if each == kind]


def test_differences_of_folds_that_share_rows() -> None:
    ours = np.array([1.0, 1.3, 1.1, 1.6])
    theirs = np.array([0.9, 1.0, 1.1, 1.1])
    found = made({"alpha 1": ours, "alpha 0": theirs}).difference("alpha 1", "alpha 0")
    gaps = ours - theirs
    assert_allclose(found.mean, gaps.mean())
    # Nadeau & Bengio: 1 / J + n_test / n_train, with 10 rows held out of 40.
    assert_allclose(found.error, gaps.std(ddof=1) * np.sqrt(1 / 4 + 10 / 30))
    assert_allclose(found.limit, stats.t(3).ppf(0.975))


def test_a_single_part_is_compared_by_rows() -> None:
    comparison = made({"alpha 1": [1.0], "alpha 0": [0.5]})
    found = comparison.difference("alpha 1", "alpha 0")
    densities = [
        comparison.held_out[name]["log_density"] for name in ("alpha 0", "alpha 1")
    ]
    assert_allclose(found.mean, 0.5)
    assert_allclose(
        found.error, (densities[0] - densities[1]).std(ddof=1) / np.sqrt(10)
    )
    assert_allclose(found.limit, 1.96, atol=1e-3)
    assert np.isnan(summarise(comparison)["nlpd_se"]).all()


def test_the_best_and_what_is_about_as_good() -> None:
    comparison = made(
        {"mean": WORSE, "alpha 0": STEADY, "alpha 0.5": NOISY, "alpha 1": WORSE}
    )
    table = summarise(comparison)
    assert list(table["verdict"]) == ["worse", "about as good", "saved", "worse"]
    assert_allclose(table.loc["alpha 1", "nlpd"], np.mean(WORSE))
    assert_allclose(table.loc["alpha 1", "nlpd_se"], np.std(WORSE, ddof=1) / 2)
    assert_allclose(table.loc["alpha 1", "rmse"], 2 * np.mean(WORSE))
    assert [row[0] for row in word_tables(comparison)[0].rows.values()] == [
        "",
        "~",
        "*",
        "",
    ]


@pytest.mark.parametrize(
    "mean, error, gain, mark",
    [
        (0.3, 0.1, 2.0, ""),  # clear
        (-0.3, 0.1, 2.0, "+"),
        (0.02, 0.05, 2.0, "~"),
        (-0.02, 0.05, 2.0, "~"),
        (0.1, 0.049, 2.0, "?"),  # the difference itself is more than .05 nats
        (-0.1, 0.049, 2.0, "?"),
        (0.05, 0.049, 2.0, "~"),
        (0.04, 0.02, 0.3, "?"),  # the difference is more than a tenth of the gain
        (0.02, 0.051, 2.0, "?"),  # more than .05 nats
        (0.0, 1.5, 2.0, "?"),
        (0.02, 0.05, 0.3, "?"),  # more than a tenth of the gain
        (0.02, 0.029, 0.3, "~"),
        (0.01, 0.02, -0.1, "?"),  # a constant is better than the saved model
        (0.0, 0.0, 0.1, "~"),
        (0.1, np.nan, 2.0, "?"),
    ],
)
@pytest.mark.parametrize("is_beaten", [False, True])
def test_verdicts(
    mean: float, error: float, gain: float, mark: str, is_beaten: bool
) -> None:
    """A difference of five folds is clear above 2.78 standard errors."""
    change = Difference(mean, error, 2.78)
    small = min(texts_of.SMALL, texts_of.SMALL_SHARE * gain)
    word = texts_of.verdict(change, small, is_beaten)
    expected = "?" if is_beaten and mark == "~" else mark
    assert MARKS[word] == expected


@pytest.mark.parametrize(
    "errors, spread, mark, clear",
    [
        (-1.5, 0.01, "~", 0),
        (0.9, 0.01, "~", 0),
        (2.7, 0.01, "~", 0),
        (2.9, 0.01, "", 1),
        (0.9, 1.0, "?", 0),
        (-1.5, 1.0, "?", 0),
        (2.9, 1.0, "", 1),
    ],
)
def test_marks_of_what_is_as_good(
    errors: float, spread: float, mark: str, clear: bool
) -> None:
    """From 2.78 errors of Nadeau and Bengio on a difference of five folds is clear."""
    gaps = spread * np.array([1.0, -1.0, 0.0, 1.0, -1.0])
    gaps = gaps + errors * gaps.std(ddof=1) * np.sqrt(1 / 5 + 10 / 40)
    comparison = made({"mean": [9.0] * 5, "default": np.zeros(5), "alpha 0": gaps})
    comparison.fits[:] = [fit._replace(num_rows=40) for fit in comparison.fits]
    table = word_tables(replace(comparison, settings=Settings()))[0]
    assert table.rows["alpha 0"][0] == mark and table.rows["default"][0] == "*"
    assert comparison.difference("alpha 0", "default").clear == clear
    caption = "the difference and its standard error are at most 0.05 nats and a tenth"
    assert f"{caption} of the gain over a constant" in table.caption
    assert "~ about as good; + clearly better; ? not told apart" in table.title


def test_noise_makes_no_model_as_good_and_none_that_a_constant_beats() -> None:
    """A5: alpha 0 had 9.25 ± 1.5 beside 7.8, and a constant 8.5."""
    scores = {
        "mean": [8.4, 8.5, 8.6, 8.5],
        "default": [7.8, 7.7, 7.9, 7.8],
        "alpha 0": [7.5, 13.0, 7.5, 9.0],
        "alpha 1": [8.55, 8.5, 8.6, 8.5],
    }
    table = summarise(made(scores))
    assert table["verdict"].to_dict() == {
        "mean": "worse",
        "default": "saved",
        "alpha 0": "not told apart",
        "alpha 1": "worse",
    }
    assert "about as good" not in ranking(made(scores))


def test_two_folds_do_not_make_a_worse_model_as_good() -> None:
    """An exact GP of 6.516 ± .014 beside 6.288, which is not clear in two folds."""
    scores = {
        "mean": [8.03, 8.14],
        "exact GP": [6.49, 6.542],
        "default": [6.288, 6.2885],
    }
    comparison = replace(made(scores), settings=Settings(folds=2))
    assert summarise(comparison)["verdict"]["exact GP"] == "not told apart"
    assert "about as good" not in ranking(comparison)
    (advice,) = texts(comparison, "advice")
    assert advice == (
        "2 folds are few to tell the models marked ? apart from the default model: a"
        " difference is clear only above 12.7 standard errors. --folds 5 (in Python"
        " folds=5) or more rows would show more differences."
    )


@pytest.mark.parametrize(
    "settings, left_out, remedy",
    [
        (Settings(splits=2), (), "--splits 5 (in Python splits=5) or more rows"),
        (Settings(folds=4), ("fold 3 of 4", "fold 4 of 4"), "More folds, for which"),
        (Settings(time_column="time", folds=4), (), "A longer table or more rows"),
    ],
)
def test_what_tells_models_apart(settings: Any, left_out: Any, remedy: str) -> None:
    scores = {"mean": [8.0, 8.1], "default": [6.0, 6.0], "alpha 0": [6.1, 6.5]}
    comparison = replace(made(scores), settings=settings, left_out=left_out)
    assert remedy in texts_of._more_parts(comparison)
    same = {"mean": [8.0, 8.0], "default": [6.0, 6.0], "alpha 0": [6.01, 6.02]}
    assert not texts_of._more_parts(replace(made(same), settings=settings))
    five = {name: [6.0, 6.5, 6.0, 7.0, 8.0] for name in scores}
    five["default"] = [6.0] * 5
    assert not texts_of._more_parts(made(five))


WINDOWS = Settings(time_column="time", folds=4)


def test_the_best_is_saved_if_another_model_refutes_the_default() -> None:
    """The table of a forecast in two windows: alpha 1 is clearly below the default by
    luck, alpha 0 is best."""
    scores = {
        "mean": [8.08, 8.18],
        "default": [7.41, 8.38],
        "alpha 0": [6.49, 6.94],
        "alpha 1": [6.52, 7.42],
    }
    comparison = replace(made(scores), settings=WINDOWS)
    assert comparison.difference("alpha 1", "default").clear
    assert not comparison.difference("alpha 0", "default").clear
    assert best_of(comparison) == "alpha 0"
    text = "is saved because the default model is clearly worse than alpha 1."
    saved = replace(comparison, best="alpha 0")
    assert ranking(saved) == f"alpha 0 has the lowest NLPD, and {text}"
    linear = {"linear": [5.0, 5.1], **scores}
    saved = replace(made(linear), settings=WINDOWS, best="alpha 0")
    assert "which is saved because the default model is clearly worse" in ranking(saved)


@pytest.mark.parametrize(
    "default, alpha_0, metric, saved",
    [
        # Better in each window, by .36 +- .29: clear from .92 on.
        ([3.0, 3.0, 3.0, 3.0], [2.9, 2.9, 2.2, 2.56], None, "alpha 0"),
        ([3.0, 3.0, 3.0, 3.0], [2.9, 2.9, 2.2, 3.01], None, "default"),  # worse in one
        ([3.0, 3.0, 3.0, 3.0], [2.96, 2.96, 2.99, 2.92], None, "default"),  # .043 nats
        # One error.
        (
            [3.0, 3.0, 3.0, 3.0],
            [2.999, 2.999, 0.1, 2.999],
            None,
            "default",
        ),
        ([3.0, 3.0, 3.0, 3.0], [2.9, 2.9, 2.2, 2.56], "rmse", "alpha 0"),
        ([9.0, 9.0, 9.0, 9.0], [8.9, 8.9, 8.2, 8.5], "rmse", "default"),  # by 4%
    ],
)
def test_what_is_better_in_every_window_is_saved(
    default: Any, alpha_0: Any, metric: Any, saved: str
) -> None:
    scores = {"mean": [40.0] * 4, "default": default, "alpha 0": alpha_0}
    comparison = replace(made(scores), settings=replace(WINDOWS, metric=metric))
    assert best_of(comparison) == saved
    random = replace(comparison, settings=Settings(folds=4, metric=metric))
    assert best_of(random) == "default"
    two = replace(comparison, fits=[f for f in comparison.fits if f.part > 2])
    assert best_of(two) == "default"
    if saved != "default":
        text = ranking(replace(comparison, best=saved))
        by = {"rmse": "0.72"}.get(metric, "0.360")
        heading = {"rmse": "RMSE"}.get(metric, "NLPD")
        assert text == (
            f"alpha 0 has the lowest {heading}, and is saved because it is below the"
            f" default model in every window, by {by} on average."
        )


def test_a_baseline_with_the_lowest_score_beside_what_is_better_in_every_window() -> (
    None
):
    scores = {
        "mean": [9.0] * 4,
        "linear": [1.0, 1.1, 1.0, 1.0],
        "default": [3.0, 3.0, 3.0, 3.0],
        "alpha 0": [2.9, 2.9, 2.2, 2.56],
    }
    comparison = replace(made(scores), settings=WINDOWS, best="alpha 0")
    assert ranking(comparison) == (
        "linear has the lowest NLPD, clearly below alpha 0, which is saved because it"
        " is below the default model in every window, by 0.360 on average."
    )


@pytest.mark.parametrize(
    "nlpd, best, text",
    [
        (
            {"alpha 0": STEADY, "alpha 0.5": NOISY, "alpha 1": WORSE},
            "alpha 0.5",
            "alpha 0.5 has the lowest NLPD; alpha 0 is about as good.",
        ),
        (
            {"default": STEADY, "alpha 0.5": NOISY},
            "default",
            "alpha 0.5 has the lowest NLPD, not clearly below the default model, which"
            " is saved.",
        ),
        (
            {"mean": WORST, "default": WORSE, "alpha 0.5": NOISY},
            "alpha 0.5",
            "alpha 0.5 has the lowest NLPD, and is saved because it is clearly below"
            " the default model.",
        ),
        (
            {"boosted trees": NOISY, "alpha 0": WORSE},
            "alpha 0",
            "boosted trees have the lowest NLPD, clearly below",
        ),
        (
            {"exact GP": NOISY, "alpha 0": WORSE, "alpha 1": WORST},
            "alpha 0",
            "exact GP has the lowest NLPD, clearly below alpha 0, which is saved.",
        ),
        (
            {"linear": LOWER, "alpha 0": WORSE, "alpha 1": NOISY},
            "alpha 1",  # as in the table
            "linear has the lowest NLPD, not clearly below alpha 1, which is saved.",
        ),
    ],
)
def test_the_lowest_loss_and_what_is_saved_are_named(
    nlpd: Any, best: str, text: str
) -> None:
    comparison = made({"mean": WORSE, **nlpd})
    assert comparison.best == best and ranking(comparison).startswith(text)
    assert ranking(comparison) == text or not text.endswith(".")
    assert text.startswith(str(summarise(comparison)["nlpd"].idxmin()))


def test_large_scores_are_written_in_full() -> None:
    large = [7000.0, 9000.0, 8000.0, 10000.0]
    row = word_tables(made({"mean": large, "alpha 0": large, "alpha 1": NOISY}))[
        0
    ].rows["alpha 0"]
    # RMSE: the mean of twice these, and the standard deviation 2582 over the root of 4.
    assert row[3] == "17000 ± 1300" and row[4] == "8500 ± 650"


def test_a_constant_that_is_better_is_not_passed_over() -> None:
    """Its errors are smaller, so that it is of some use: as its warning says too."""
    scores = {"mean": NOISY, "alpha 0": WORSE, "alpha 1": WORST}
    comparison = made(scores, **{"alpha 0": errors(3.0, 1.0, 1.0)})
    assert ranking(comparison).startswith(
        "mean has the lowest NLPD, clearly below alpha 0, which"
    )
    text = (
        "Use its means but not its intervals: the intervals of a constant are better."
    )
    assert usable_for(comparison) == text


LATE = {"converged": False, "message": "The time ran out.", "iterations": 70}
STOPPED = {**LATE, "iterations": 1}
REFUSED = {"scores": FAILED, "converged": False, "message": "it was too hard"}


@pytest.mark.parametrize(
    "alpha_0, alpha_1, changes, warnings",
    [
        (
            [2.0, 2.4, 1.92, 2.1],
            NOISY,
            {},
            [
                "Alpha 0 does not have a better NLPD than the baseline 'mean' (0.002"
                " lower): it learnt nothing from these inputs that is true of other"
                " rows."
            ],
        ),
        (
            WORSE,
            NOISY,
            {"alpha 0": errors(2.1, 1.0, 2.0)},
            [
                "(0.007 lower), but its RMSE is 1 instead of 4.215: it is too"
                "...certain when it is wrong."
            ],
        ),
        (
            [1.0, 1.1, 9.0, 1.05],
            NOISY,
            {},
            [
                "Alpha 0 is unstable: the NLPD is 9.00 in fold 3 and 1.08 in the median"
                " fold."
            ],
        ),
        ([1.0, 1.1, 90.0, 1.05], NOISY, {}, ["Alpha 0 is unstable"]),  # and not useless
        (
            NOISY,
            STEADY,
            {"alpha 0": LATE, "alpha 1": REFUSED},
            [
                (
                    "Alpha 0: 4 of 4 fits did not converge: The time ran out. More"
                    " minutes may help."
                ),
                "Alpha 1: 4 of 4 fits failed: it was too hard",
            ],
        ),
        (
            NOISY,
            STEADY,
            {"alpha 0": LATE, "alpha 1": LATE},
            [
                "Alpha 0 and alpha 1: 8 of 8 fits did not converge: The time ran out."
                " More minutes may help."
            ],
        ),
    ],
)
def test_what_is_wrong_warns(
    alpha_0: Any, alpha_1: Any, changes: Any, warnings: Any
) -> None:
    comparison = made(
        {"mean": WORSE, "alpha 0": alpha_0, "alpha 1": alpha_1}, **changes
    )
    for found, words in zip(texts(comparison, "warning"), warnings, strict=True):
        begin, several, end = words.partition("...")
        assert begin in found and found.endswith(end)
        assert found == words or several or not words.endswith(".")
    row = word_tables(comparison)[0].rows
    if "unstable" in warnings[0]:
        assert dict(summarise(comparison)["verdict"])["alpha 0"] == "unstable"
        assert row["alpha 0"][0] == "!" and "as good" not in ranking(comparison)
    if changes.get("alpha 1") is REFUSED:
        assert comparison.best == "alpha 0"
        assert (row["alpha 0"][-1], row["alpha 1"][-1]) == ("0 of 4", "4 failed")


def test_a_ranking_of_rows_is_something_learnt() -> None:
    """A model that names the most frequent class alone may put rows in the
    right order.
    """
    comparison = small_classification()
    constant = {"nlpd": 0.5, "error": 0.1, "auc": 0.5, "ece": 0.0}
    scores = {"class frequencies": constant, "alpha 0.5": {**constant, "auc": 0.899}}
    fits = [f._replace(scores=scores.get(f.model, f.scores)) for f in comparison.fits]
    comparison = replace(comparison, fits=fits, best="alpha 0.5")
    gain, smaller, use, values = texts_of._gain_over_trivial(comparison, "alpha 0.5")
    assert (gain, use, values) == (
        0.0,
        "order of rows",
        "AUC is 0.899 instead of 0.500",
    )
    assert_allclose(smaller, 1.0 - 0.101 / 0.5)
    assert usable_for(comparison).startswith(
        "Use its order of rows but not its probabilities"
    )


def test_a_baseline_with_smaller_errors_is_named() -> None:
    """Where the densities of the best model are better nevertheless."""
    nlpd = {"mean": [9, 9.4, 9, 9], "boosted trees": WORSE, "alpha 0": NOISY}
    comparison = made(nlpd, **{"boosted trees": errors(2.0, 2.6, 2.0)})
    fits = [
        (
            fit._replace(scores={**fit.scores, "rmse": 4.93 + 0.01 * fit.part})
            if fit.model == "alpha 0"
            else fit
        )
        for fit in comparison.fits
    ]
    comparison = replace(comparison, fits=fits)
    assert comparison.best == "alpha 0"
    assert (
        texts_of._better_at_errors(comparison)
        == "boosted trees (RMSE 2.6 instead of 4.955)"
    )
    table = comparison.held_out["alpha 0"].assign(
        mean=lambda table: 0.5 * table["true"]
    )
    comparison.held_out["alpha 0"] = table
    text = (
        "Use its intervals. For means, use boosted trees (RMSE 2.6 instead of 4.955)."
    )
    assert usable_for(comparison) == text
    close = [
        fit._replace(scores={**fit.scores, "rmse": 2.6}) for fit in comparison.fits
    ]
    assert texts_of._better_at_errors(replace(comparison, fits=close)) == ""


def test_medians_are_ours_where_means_are_of_trees() -> None:
    nlpd = {"mean": WORSE, "boosted trees": WORSE, "default": NOISY, "alpha 0": NOISY}
    comparison = made(nlpd, **{"boosted trees": errors(2.1, 1.0, 2.0)})
    table = comparison.held_out["default"]
    table["mean"] = 0.5 * table["true"]
    trees = "or means, use boosted trees (RMSE 1 instead of 2.2)"
    assert usable_for(comparison) == f"Use its intervals. F{trees}."
    settings = replace(comparison.settings, likelihood="log_normal")
    table = table.assign(true=np.exp(table["true"]), median=np.exp(table["mean"]))
    comparison.held_out["default"] = table
    text = usable_for(replace(comparison, settings=settings))
    assert text.startswith("Use its medians") and text.endswith(f" F{trees}.")


def numbers(**columns: Any) -> Comparison:
    """A comparison whose best model has these held-out predictions, with 90% intervals
    of 1.64.
    """
    comparison = made({"mean": WORSE, "alpha 0": NOISY})
    table = pd.DataFrame({"part": 1, "log_density": 0.0, **columns})
    ends = {"lower_90": table["mean"] - 1.64, "upper_90": table["mean"] + 1.64}
    table = table.assign(**ends)
    comparison.held_out["alpha 0"] = table
    of_table = {name: scores(table)[name] for name in ("mae", "coverage")}
    fits = [
        fit._replace(scores={**fit.scores, **of_table})
        if fit.model == "alpha 0"
        else fit
        for fit in comparison.fits
    ]
    return replace(comparison, fits=fits)


def test_the_headline_is_in_plain_words() -> None:
    rng = np.random.default_rng(0)
    mean = 3.0 * rng.standard_normal(400)
    true = mean + rng.standard_normal(400)
    share = 1.0 - np.sum((true - mean) ** 2) / np.sum((true - true.mean()) ** 2)
    assert (
        quality(numbers(true=true, mean=mean))
        == f"On held-out rows, alpha 0 explains {share:.0%} of the variance of 'load';"
        f" its mean absolute error is {np.mean(np.abs(true - mean)):.4g}, and its"
        f" 90% intervals contain {np.mean(np.abs(true - mean) <= 1.64):.0%} of the"
        " targets. Use its means and its intervals."
    )
    text = quality(numbers(true=true, mean=-mean))
    assert (
        "explains 0%" in text
        and "Its means of 'load' are not better than a constant" in text
    )


def test_what_is_too_good_is_not_recommended() -> None:
    """Of products of inputs, of R^2 above .99, and of one input that does
    nearly all.
    """
    rng = np.random.default_rng(0)
    mean = 3.0 * rng.standard_normal(400)
    importance = pd.DataFrame(
        {"mean": [2.0, 0.05, 0.01], "error": 0.01}, index=["a", "b", "c"]
    )
    for noise, details, names in (
        (0.1, Details(importance, {}), ["nearly all by 'a'."]),
        (0.1, None, ["of the variance of 'load' is explained. Leave out"]),
        (0.6, Details(importance, {}), ["nearly all by 'a'."]),
        (0.6, None, []),
        (1.5, Details(importance, {}), []),
        (0.6, Details(importance.assign(mean=1.0), {}), []),
        (
            0.1,
            Details(importance.assign(mean=1.0), {}),
            ["nearly all by 'a', 'b' and 'c'."],
        ),
    ):
        comparison = numbers(true=mean + noise * rng.standard_normal(400), mean=mean)
        comparison = replace(comparison, details=details)
        warnings = [
            text for text in texts(comparison, "warning") if text.startswith("Too good")
        ]
        assert len(warnings) == len(names) and all(
            map(str.__contains__, warnings, names)
        )
        assert ("Read the warning about these scores" in quality(comparison)) == bool(
            names
        )
    table = pd.DataFrame(
        {"units": rng.poisson(9.0, 40) + 1.0, "price": rng.uniform(1.0, 3.0, 40)}
    )
    data = clean(table.assign(load=table["units"] * table["price"]), "load")
    comparison = replace(
        numbers(true=mean, mean=mean + rng.standard_normal(400)), data=data
    )
    (warning,) = (
        text for text in texts(comparison, "warning") if text.startswith("Too good")
    )
    assert (
        "% of the variance of 'load' is explained, nearly all by 'units' and 'price'."
        in warning
    )


@pytest.mark.parametrize("factor, kind", [(3.0, "narrow"), (0.1, "wide")])
def test_intervals_that_are_wrong_are_loud(factor: float, kind: str) -> None:
    mean, noise = np.random.default_rng(0).standard_normal((2, 100)) * [
        [6.0 * factor],
        [factor],
    ]
    text = quality(numbers(true=mean + noise, mean=mean))
    assert (
        f"Use its means. Its intervals are too {kind}, which predict_interval(" in text
    )


def test_intervals_that_were_wrong_in_earlier_windows_are_not_recommended() -> None:
    """88% of the latest window, and 79% of both."""
    rng = np.random.default_rng(0)
    mean = 6.0 * rng.standard_normal(216)
    error = np.where(np.arange(216) % 108 < [[95], [74]], 1.0, 2.0).reshape(2, 216)
    error = np.r_[error[0, :108], error[1, 108:]]
    comparison = numbers(true=mean + error, mean=mean)
    table = comparison.held_out["alpha 0"].assign(part=np.repeat([1, 2], 108))
    comparison.held_out["alpha 0"] = table
    comparison = replace(comparison, settings=Settings(time_column="time", folds=2))
    assert usable_for(comparison) == (
        "Use its means. Its intervals are too narrow in earlier windows (they contain"
        " 78% of the targets of all windows)."
    )


def test_intervals_of_counts_may_hold_more() -> None:
    comparison = numbers(true=np.zeros(100), mean=np.zeros(100))
    assert texts_of._width_of_intervals(comparison)
    counts = replace(
        comparison, settings=replace(comparison.settings, likelihood="poisson")
    )
    assert not texts_of._width_of_intervals(counts)


def test_a_class_that_is_missed_is_loud() -> None:
    labels = np.array(["ham"] * 30 + ["spam"] * 9)
    spam = np.r_[np.full(37, 0.2), 0.9, 0.9]
    table = pd.DataFrame({"true": labels, "p(ham)": 1.0 - spam, "p(spam)": spam})
    table["predicted"] = np.where(spam > 0.5, "spam", "ham")
    table["log_density"] = np.log(np.where(labels == "spam", spam, 1.0 - spam))
    comparison = small_classification()
    held_out = dict.fromkeys(comparison.candidates, table)
    fits = [
        fit._replace(scores=scores(table)) if fit.model == "alpha 0.5" else fit
        for fit in comparison.fits
    ]
    changed = replace(comparison, best="alpha 0.5", held_out=held_out, fits=fits)
    text = quality(changed)
    assert (
        "predicts the right class for 82% of the rows" in text
        and "is right for 77%" in text
    )
    assert f"ROC curve is {30 * (2 + 7 * 0.5) / 270:.3f}" in text
    assert text.endswith("do not rely on it to find 'spam' (2 of 9 rows).")


def test_nothing_is_best_if_all_failed() -> None:
    comparison = made({"mean": WORSE, "alpha 0": NOISY}, **{"alpha 0": REFUSED})
    assert comparison.best is None
    (result,) = texts(comparison, "result")
    assert result.startswith("No model could be trained in every part")
    assert list(summarise(comparison)["verdict"]) == ["", ""]


@pytest.mark.parametrize(
    "width, shown",
    [
        (110, "90% coverage seconds"),
        (80, "report.html also has converged"),
        (40, "html also has RMSE, MAE, 90"),
    ],
)
def test_the_table_fits_a_terminal(width: int, shown: str) -> None:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    comparison = made({"class frequencies": WORSE, "mean": WORSE, "alpha 0.5": NOISY})
    console.print(drawn(comparison, word_tables(comparison)[0], width))
    text = " ".join(console.export_text().replace("┃", "").split())
    for part in (
        "Target 'load', 1 input, 40 rows",
        "class frequencies",
        "1.100 ± 0.108",
        shown,
    ):
        assert part in text and "…" not in text


def test_a_model_of_few_steps_is_not_that_of_the_scores() -> None:
    """Seven steps of each fit that was scored."""
    comparison = made({"mean": WORSE, "alpha 0": NOISY})
    for steps, said in ((3, True), (4, False)):
        final = comparison.fits[-1]._replace(part=0, iterations=steps, message=OVER)
        text = usable_for(replace(comparison, final=final))
        assert (
            "the time ran out after 3 of about 7 steps of its training" in text
        ) == said


def test_a_model_that_hardly_began_is_marked() -> None:
    """One step of the default in 30 seconds, and no step in one of four folds."""
    default = [score + 0.6 for score in NOISY]
    scores = {"mean": WORSE, "default": default, "alpha 0": NOISY}
    comparison = made(scores, default=STOPPED)
    assert comparison.best == "alpha 0"
    assert word_tables(comparison)[0].rows["default"][0] == "t"
    assert "t too little time" in word_tables(comparison)[0].title
    warnings = texts(comparison, "warning")
    assert warnings == [
        "The default model: 4 of 4 fits had no time for step 10, so the scores say"
        " little. Raise --minutes."
    ]
    assert "Do not use it yet" not in usable_for(comparison)
    saved = replace(comparison, best="default")
    assert word_tables(saved)[0].rows["default"][0] == "*"
    assert usable_for(saved) == (
        "Do not use it yet: in 4 of 4 folds the time ran out after at most 1 step of"
        " its training. Raise --minutes."
    )
    unclear = {**scores, "default": [1.05, 2.2, 0.95, 2.0]}
    assert made(unclear).best == "default"
    comparison = made(unclear, default=STOPPED)
    assert comparison.best == "alpha 0" and ranking(comparison) == (
        "alpha 0 has the lowest NLPD, and is saved because the default model had too"
        " little time."
    )
    assert made(unclear, **{"default": STOPPED, "alpha 0": STOPPED}).best == "default"
    ten = {**STOPPED, "iterations": 10}
    assert "t" not in word_tables(made(scores, default=ten))[0].rows["default"][0]


def test_the_headline_and_the_table_have_the_same_numbers() -> None:
    """Of folds of different sizes the mean over folds is not that over all rows."""
    comparison = made({"mean": WORSE, "default": NOISY})
    fits = [
        fit._replace(scores={**fit.scores, "mae": 100.0 * fit.part, "coverage": 0.9})
        for fit in comparison.fits
    ]
    comparison = replace(comparison, fits=fits, best="default")
    row = word_tables(comparison)[0].rows["default"]
    (cell,) = (cell for cell in row if cell.startswith("250"))
    assert "its mean absolute error is 250, " in quality(comparison)
    assert f"MAE {cell}," in score_line(comparison)


def test_no_sentence_begins_with_the_name_of_a_model_in_lower_case() -> None:
    comparison = made({"mean": WORSE, "default": NOISY, "alpha 0": NOISY}, default=LATE)
    comparison = replace(comparison, best="default")
    shown = [text for _, text in findings(comparison)]
    assert any(text.startswith("The default model") for text in shown)
    for text in shown:
        for sentence in re.split(r"(?<=[.:]) ", text):
            assert not sentence.startswith(("default", "alpha", "mean is"))
