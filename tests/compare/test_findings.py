"""What the scores of fits come to."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from compare.small_comparison import small_classification, small_table
from numpy.testing import assert_allclose
from rich.console import Console
from scipy import stats

from gpflow_pep.compare import Comparison, Fit, Settings, clean, summarise
from gpflow_pep.compare.details import Details
from gpflow_pep.compare.findings import (
    better_at_errors,
    findings,
    gain_over_trivial,
    quality,
    ranking,
    usable_for,
    width_of_intervals,
)
from gpflow_pep.compare.run import best_of
from gpflow_pep.compare.terminal import drawn, word_tables

PARTS = np.repeat([1, 2, 3, 4], 10)


def made(nlpd: dict[str, Any], **changes: Any) -> Comparison:
    """A comparison whose fits have the scores given for each part."""
    rng = np.random.default_rng(0)
    powers = {name: float(name.split()[-1]) if "alpha" in name else np.nan for name in nlpd}
    comparison = Comparison(clean(small_table(), "load"), Settings(folds=4), powers)
    for name, scores in nlpd.items():
        rows = np.concatenate([score + centred(rng) for score in scores])
        part = PARTS[: len(rows)]
        true = 2.0 * (np.arange(len(rows)) % 10 == 0)  # a tenth is outside of the intervals
        table = pd.DataFrame({"part": part, "log_density": -rows, "true": true, "mean": 0.0})
        comparison.held_out[name] = table.assign(lower_90=-1.0, upper_90=1.0)
        for number, score in enumerate(scores, start=1):
            values = {"nlpd": score, "rmse": 2.0 * score, "mae": score, "coverage": 0.9}
            fit = Fit(name, number, values, 1.0, 0.5, 7, True, "", 30)
            comparison.fits.append(fit._replace(**changes.get(name, {})))
    return replace(comparison, best=best_of(comparison))


def texts(comparison: Comparison, kind: str) -> list[str]:
    return [finding.text for finding in findings(comparison) if finding.kind == kind]


def centred(rng: np.random.Generator) -> np.ndarray:
    values = rng.standard_normal(10)
    return values - values.mean()


def test_differences_of_folds_that_share_rows() -> None:
    ours, theirs = np.array([1.0, 1.3, 1.1, 1.6]), np.array([0.9, 1.0, 1.1, 1.1])
    found = made({"alpha 1": ours, "alpha 0": theirs}).difference("alpha 1", "alpha 0")
    gaps = ours - theirs
    assert_allclose(found.mean, gaps.mean())
    # Nadeau & Bengio: 1 / J + n_test / n_train, with 10 rows held out of 40.
    assert_allclose(found.error, gaps.std(ddof=1) * np.sqrt(1 / 4 + 10 / 30))
    assert_allclose(found.limit, stats.t(3).ppf(0.975))


def test_a_single_part_is_compared_by_rows() -> None:
    comparison = made({"alpha 1": [1.0], "alpha 0": [0.5]})
    found = comparison.difference("alpha 1", "alpha 0")
    densities = [comparison.held_out[name]["log_density"] for name in ("alpha 0", "alpha 1")]
    rows = densities[0] - densities[1]
    assert_allclose(found.mean, 0.5)
    assert_allclose(found.error, rows.std(ddof=1) / np.sqrt(10))
    assert_allclose(found.limit, 1.96, atol=1e-3)
    assert np.isnan(summarise(comparison)["nlpd_se"]).all()


FAILED = dict.fromkeys(("nlpd", "rmse", "mae", "coverage"), np.nan)
NOISY, STEADY = [1.0, 1.4, 0.9, 1.1], [1.02, 1.38, 0.95, 1.09]
WORSE = [2.0, 2.41, 1.92, 2.1]


def test_the_best_and_what_is_within_noise() -> None:
    comparison = made({"mean": WORSE, "alpha 0": STEADY, "alpha 0.5": NOISY, "alpha 1": WORSE})
    table = summarise(comparison)
    assert dict(table["verdict"]) == {
        "mean": "", "alpha 0": "within noise", "alpha 0.5": "saved", "alpha 1": "",
    }  # fmt: skip
    assert_allclose(table.loc["alpha 1", "nlpd"], np.mean(WORSE))
    assert_allclose(table.loc["alpha 1", "nlpd_se"], np.std(WORSE, ddof=1) / 2)
    assert_allclose(table.loc["alpha 1", "rmse"], 2 * np.mean(WORSE))
    text = "alpha 0.5 has the lowest NLPD; alpha 0 is within noise of it."
    assert ranking(comparison) == text
    assert {name: row[0] for name, row in word_tables(comparison)[0].rows.items()} == {
        "mean": "", "alpha 0": "~", "alpha 0.5": "*", "alpha 1": "",
    }  # fmt: skip


def test_which_row_is_saved_is_worded() -> None:
    comparison = made({"mean": WORSE, "default": STEADY, "alpha 0.5": NOISY})
    assert comparison.best == "default"
    text = "alpha 0.5 has the lowest NLPD, within noise of default, which is saved."
    assert ranking(comparison) == text
    comparison = made({"mean": [9, 8, 9, 8], "default": WORSE, "alpha 0.5": NOISY})
    assert comparison.best == "alpha 0.5"
    text = "alpha 0.5 has the lowest NLPD, clearly below default, and is saved."
    assert ranking(comparison) == text


def test_boosted_trees_are_many() -> None:
    comparison = made({"mean": WORSE, "boosted trees": NOISY, "alpha 0": WORSE})
    assert ranking(comparison).startswith("boosted trees have the lowest NLPD, clearly below")


def test_two_folds_show_little() -> None:
    comparison = made({"mean": [2.0, 2.3], "alpha 0": [1.0, 1.4], "alpha 1": [1.1, 1.3]})
    comparison = replace(comparison, settings=Settings(folds=2))
    few = "2 folds show large differences alone; more folds show smaller ones."
    assert ranking(comparison).endswith(f"within noise of it. {few}")


def test_large_scores_are_written_in_full() -> None:
    large = [7000.0, 9000.0, 8000.0, 10000.0]
    comparison = made({"mean": large, "alpha 0": large, "alpha 1": NOISY})
    row = word_tables(comparison)[0].rows["alpha 0"]
    # RMSE: the mean of twice these, and the standard deviation 2582 over the root of 4.
    assert row[3] == "17000 ± 1300" and row[4] == "8500 ± 650"


def test_a_baseline_that_is_better_is_named() -> None:
    comparison = made({"mean": WORSE, "exact GP": NOISY, "alpha 0": WORSE, "alpha 1": [9, 8, 9, 8]})
    assert ranking(comparison) == (
        "exact GP has the lowest NLPD, clearly below alpha 0, which is saved; mean is within noise"
        " of alpha 0."
    )


def test_a_baseline_whose_score_is_lower_is_not_passed_over() -> None:
    """Within noise too: the words agree with the table."""
    comparison = made({"mean": WORSE, "linear": [s - d for s, d in zip(NOISY, (0.1, 0, 0, 0.02))],
                       "alpha 0": WORSE, "alpha 1": NOISY})  # fmt: skip
    table = summarise(comparison)
    assert table["nlpd"].idxmin() == "linear" and table.loc["linear", "verdict"] == "within noise"
    assert ranking(comparison) == (
        "linear has the lowest NLPD, within noise of alpha 1, which is saved."
    )


def test_a_constant_that_is_better_is_not_passed_over() -> None:
    """Its errors are smaller, so that it is of some use: as its warning says too."""
    errors = {"scores": {"nlpd": 3.0, "rmse": 1.0, "mae": 1.0, "coverage": 0.5}}
    scores = {"mean": NOISY, "alpha 0": WORSE, "alpha 1": [9, 8, 9, 8]}
    comparison = made(scores, **{"alpha 0": errors})
    assert ranking(comparison).startswith("mean has the lowest NLPD, clearly below alpha 0, which")
    assert usable_for(comparison) == (
        "Use its means but not its intervals: a constant has a better NLPD."
    )


def test_a_model_that_fell_back_to_the_mean_says_so() -> None:
    comparison = made({"mean": WORSE, "alpha 0": [2.0, 2.4, 1.92, 2.1], "alpha 1": NOISY})
    assert texts(comparison, "warning") == [
        "alpha 0 has no better NLPD than the baseline 'mean' (+0.002 nats): it learnt nothing from"
        " these inputs that holds for other rows."
    ]


def test_a_model_whose_errors_are_smaller_has_learnt_something() -> None:
    errors = {"scores": {"nlpd": 2.1, "rmse": 1.0, "mae": 2.0, "coverage": 0.5}}
    comparison = made({"mean": WORSE, "alpha 0": WORSE, "alpha 1": NOISY}, **{"alpha 0": errors})
    (warning,) = texts(comparison, "warning")
    constant = 2.0 * np.mean(WORSE)
    assert f"(+0.007 nats), but its RMSE is 1 instead of {constant:.4g}: it is too sure" in warning
    assert warning.endswith("Use its means, not its intervals.")


def test_a_ranking_of_rows_is_something_learnt() -> None:
    """A model that names the most frequent class alone may put rows in the right order."""
    comparison = small_classification()
    constant = {"nlpd": 0.5, "error": 0.1, "auc": 0.5, "ece": 0.0}
    scores = {"class frequencies": constant, "alpha 0.5": {**constant, "auc": 0.899}}
    fits = [f._replace(scores=scores.get(f.model, f.scores)) for f in comparison.fits]
    comparison = replace(comparison, fits=fits, best="alpha 0.5")
    gain, smaller, use, values = gain_over_trivial(comparison, "alpha 0.5")
    assert (gain, use, values) == (0.0, "order of rows", "AUC is 0.899 instead of 0.500")
    assert_allclose(smaller, 1.0 - 0.101 / 0.5)
    assert usable_for(comparison).startswith("Use its order of rows but not its probabilities")


def test_a_baseline_with_smaller_errors_is_named() -> None:
    """Where the densities of the best model are better nevertheless."""
    values = {"nlpd": 2.0, "rmse": 2.6, "mae": 2.0, "coverage": 0.9}
    scores = {"mean": [9, 9.4, 9, 9], "boosted trees": WORSE, "alpha 0": NOISY}
    comparison = made(scores, **{"boosted trees": {"scores": values}})
    fits = [
        fit._replace(scores={**fit.scores, "rmse": 4.93 + 0.01 * fit.part})
        if fit.model == "alpha 0" else fit for fit in comparison.fits
    ]  # fmt: skip
    comparison = replace(comparison, fits=fits)
    assert comparison.best == "alpha 0"
    assert better_at_errors(comparison) == "boosted trees (RMSE 2.6 instead of 4.955)"
    table = comparison.held_out["alpha 0"].assign(mean=lambda table: 0.5 * table["true"])
    comparison.held_out["alpha 0"] = table
    text = "For means, take boosted trees (RMSE 2.6 instead of 4.955)"
    assert usable_for(comparison).startswith(text)
    close = [fit._replace(scores={**fit.scores, "rmse": 2.6}) for fit in comparison.fits]
    assert better_at_errors(replace(comparison, fits=close)) == ""


def test_medians_are_ours_where_means_are_of_trees() -> None:
    errors = {"scores": {"nlpd": 2.1, "rmse": 1.0, "mae": 2.0, "coverage": 0.5}}
    scores = {"mean": WORSE, "boosted trees": WORSE, "default": NOISY, "alpha 0": NOISY}
    comparison = made(scores, **{"boosted trees": errors})
    comparison.held_out["default"]["mean"] = 0.5 * comparison.held_out["default"]["true"]
    trees = "or means, take boosted trees (RMSE 1 instead of 2.2)"
    assert usable_for(comparison) == f"F{trees}; use its intervals."
    settings = replace(comparison.settings, likelihood="log_normal")
    table = comparison.held_out["default"]
    comparison.held_out["default"] = table.assign(
        true=np.exp(table["true"]), median=np.exp(table["mean"])
    )
    text = usable_for(replace(comparison, settings=settings))
    assert text.startswith("Use its medians") and text.endswith(f" F{trees}.")


def test_one_part_that_is_far_worse_is_named() -> None:
    scores = {"mean": WORSE, "alpha 0": [1.0, 1.1, 9.0, 1.05], "alpha 1": NOISY}
    comparison = made(scores)
    assert dict(summarise(comparison)["verdict"])["alpha 0"] == "unstable"
    assert word_tables(comparison)[0].rows["alpha 0"][0] == "!"
    (unstable,) = texts(comparison, "warning")
    assert (
        unstable == "alpha 0 is unstable: the NLPD is 9.00 in fold 3 and 1.08 in the median fold."
    )
    assert "within noise" not in ranking(comparison)


def test_one_bad_part_does_not_make_a_model_useless() -> None:
    scores = {"mean": WORSE, "alpha 0": [1.0, 1.1, 90.0, 1.05], "alpha 1": NOISY}
    (unstable,) = texts(made(scores), "warning")
    assert unstable.startswith("alpha 0 is unstable")


def numbers(**columns: Any) -> Comparison:
    """A comparison whose best model has these held-out predictions, with 90% intervals of 1.64."""
    comparison = made({"mean": WORSE, "alpha 0": NOISY})
    table = pd.DataFrame({"part": 1, "log_density": 0.0, **columns})
    ends = {"lower_90": table["mean"] - 1.64, "upper_90": table["mean"] + 1.64}
    comparison.held_out["alpha 0"] = table.assign(**ends)
    return comparison


def test_the_headline_is_in_plain_words() -> None:
    rng = np.random.default_rng(0)
    mean = 3.0 * rng.standard_normal(400)
    true = mean + rng.standard_normal(400)
    comparison = numbers(true=true, mean=mean)
    share = 1.0 - np.sum((true - mean) ** 2) / np.sum((true - true.mean()) ** 2)
    assert quality(comparison) == (
        f"On held-out rows, alpha 0 explains {share:.0%} of the variance of 'load';"
        f" its mean absolute error is {np.mean(np.abs(true - mean)):.3g}, and its 90% intervals"
        f" hold {np.mean(np.abs(true - mean) <= 1.64):.0%} of the targets."
        " Use its means and its intervals."
    )
    text = quality(numbers(true=true, mean=-mean))
    assert "explains 0%" in text and "Its means of 'load' are no better than a constant" in text


def test_what_is_too_good_is_not_recommended() -> None:
    """Of products of inputs, of R^2 above .99, and of one input that does nearly all."""
    rng = np.random.default_rng(0)
    mean = 3.0 * rng.standard_normal(400)
    importance = pd.DataFrame({"mean": [2.0, 0.05, 0.01], "error": 0.01}, index=["a", "b", "c"])
    for noise, details, names in (
        (0.1, Details(importance, {}), ["nearly all by 'a'."]),
        (0.1, None, ["of the variance of 'load' is explained. Leave out"]),
        (0.6, Details(importance, {}), ["nearly all by 'a'."]),
        (0.6, None, []),
        (1.5, Details(importance, {}), []),
        (0.6, Details(importance.assign(mean=1.0), {}), []),
        (0.1, Details(importance.assign(mean=1.0), {}), ["nearly all by 'a', 'b' and 'c'."]),
    ):
        comparison = numbers(true=mean + noise * rng.standard_normal(400), mean=mean)
        comparison = replace(comparison, details=details)
        warnings = [text for text in texts(comparison, "warning") if text.startswith("Too good")]
        assert len(warnings) == len(names) and all(map(str.__contains__, warnings, names))
        assert ("Read the warning of such scores" in quality(comparison)) == bool(names)
    table = pd.DataFrame({"units": rng.poisson(9.0, 40) + 1.0, "price": rng.uniform(1.0, 3.0, 40)})
    data = clean(table.assign(load=table["units"] * table["price"]), "load")
    comparison = replace(numbers(true=mean, mean=mean + rng.standard_normal(400)), data=data)
    (warning,) = (text for text in texts(comparison, "warning") if text.startswith("Too good"))
    assert "% of the variance of 'load' is explained, nearly all by 'units' and 'price'." in warning


@pytest.mark.parametrize("factor, kind", [(3.0, "narrow"), (0.1, "wide")])
def test_intervals_that_are_wrong_are_loud(factor: float, kind: str) -> None:
    mean, noise = np.random.default_rng(0).standard_normal((2, 100)) * [[6.0 * factor], [factor]]
    text = quality(numbers(true=mean + noise, mean=mean))
    assert f"Use its means; its intervals are too {kind}, which predict_interval(" in text


def test_intervals_of_counts_may_hold_more() -> None:
    comparison = numbers(true=np.zeros(100), mean=np.zeros(100))
    assert width_of_intervals(comparison)
    counts = replace(comparison, settings=replace(comparison.settings, likelihood="poisson"))
    assert not width_of_intervals(counts)


def test_a_class_that_is_missed_is_loud() -> None:
    comparison = small_classification()
    labels = np.array(["ham"] * 30 + ["spam"] * 9)
    spam = np.r_[np.full(37, 0.2), 0.9, 0.9]
    table = pd.DataFrame({"true": labels, "p(ham)": 1.0 - spam, "p(spam)": spam})
    table["predicted"] = np.where(spam > 0.5, "spam", "ham")
    comparison = replace(comparison, best="alpha 0.5", held_out={"alpha 0.5": table})
    text = quality(comparison)
    assert "names the right class for 82% of the rows" in text and "is right for 77%" in text
    assert f"ROC curve is {30 * (2 + 7 * 0.5) / 270:.2f}" in text
    assert text.endswith("do not rely on it to name 'spam' (2 of 9 rows).")


def test_fits_that_did_not_converge_or_failed_are_named() -> None:
    late = {"converged": False, "message": "The time was over."}
    failed = {"scores": FAILED, "converged": False, "message": "it was too hard"}
    scores = {"mean": WORSE, "alpha 0": NOISY, "alpha 1": STEADY}
    comparison = made(scores, **{"alpha 0": late, "alpha 1": failed})
    assert comparison.best == "alpha 0"
    assert texts(comparison, "warning") == [
        "alpha 0: 4 of 4 fits did not converge: The time was over. More minutes may help.",
        "alpha 1: 4 of 4 fits failed: it was too hard",
    ]
    assert word_tables(comparison)[0].rows["alpha 0"][-1] == "0 of 4"
    assert word_tables(comparison)[0].rows["alpha 1"][-1] == "4 failed"


def test_nothing_is_best_if_all_failed() -> None:
    failed = {"scores": FAILED, "converged": False, "message": "no"}
    comparison = made({"mean": WORSE, "alpha 0": NOISY}, **{"alpha 0": failed})
    assert comparison.best is None
    (result,) = texts(comparison, "result")
    assert result.startswith("No model could be trained in every part")
    assert list(summarise(comparison)["verdict"]) == ["", ""]


@pytest.mark.parametrize("width", [110])
def test_the_table_fits_a_terminal(width: int) -> None:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    comparison = made({"mean": WORSE, "alpha 0.5": NOISY})
    console.print(drawn(comparison, word_tables(comparison)[0]))
    text = console.export_text()
    for part in (
        "Target 'load', 1 input, 40 rows",
        "1.100 ± 0.108",
        "90% coverage",
        "over 4 folds",
    ):
        assert part in text
