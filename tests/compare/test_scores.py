"""Scores of held-out rows, by hand and by scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import roc_auc_score

from gpflow_pep.compare.scores import (
    METRICS,
    area_under_curve,
    difference_over_rows,
    metrics_of,
    scores,
)

NUMBERS = {metric.name: metric for metric in METRICS["numbers"]}
CLASSES = {metric.name: metric for metric in METRICS["classes"]}


def numbers(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    true = np.random.default_rng(0).normal(size=50)
    table = pd.DataFrame({"true": true, "mean": true + rng.normal(size=50)})
    ends = {"lower_90": table["mean"] - 1.0, "upper_90": table["mean"] + 1.0}
    return table.assign(log_density=rng.normal(size=50), **ends)


def classes(seed: int, num_classes: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    names = [f"c{c}" for c in range(num_classes)]
    probability = rng.dirichlet(np.ones(num_classes), size=60)
    true = np.array(names)[np.random.default_rng(0).integers(num_classes, size=60)]
    table = pd.DataFrame(probability, columns=[f"p({name})" for name in names])
    predicted = np.array(names)[np.argmax(probability, axis=1)]
    return table.assign(true=true, predicted=predicted, log_density=-rng.uniform(size=60))


def test_scores_of_numbers() -> None:
    table = numbers(1)
    error = table["mean"] - table["true"]
    assert_allclose(
        [scores(table)[name] for name in ("nlpd", "rmse", "mae", "coverage")],
        [
            -table["log_density"].mean(), np.sqrt(np.mean(error**2)), np.mean(np.abs(error)),
            np.mean(np.abs(error) <= 1.0),
        ],
    )  # fmt: skip


@pytest.mark.parametrize("num_classes", [2, 3])
def test_the_area_is_scikit_learns(num_classes: int) -> None:
    table = classes(1, num_classes)
    probability = table[[f"p(c{c})" for c in range(num_classes)]].to_numpy()
    if num_classes == 2:
        expected = roc_auc_score(table["true"] == "c1", probability[:, 1])
    else:
        expected = roc_auc_score(table["true"], probability, multi_class="ovr")
    assert_allclose(scores(table)["auc"], expected)


def test_the_area_without_some_class() -> None:
    probability = classes(2, 3).iloc[:, :3].to_numpy()
    labels = np.arange(60) % 2  # none of the third
    areas = [roc_auc_score(labels == c, probability[:, c]) for c in (0, 1)]
    assert_allclose(area_under_curve(labels, probability), np.mean(areas))
    assert np.isnan(area_under_curve(np.zeros(60, dtype=int), probability))


@pytest.mark.parametrize("name", ["nlpd", "rmse", "mae"])
def test_a_difference_over_rows_is_that_of_the_scores(name: str) -> None:
    ours, theirs = numbers(1), numbers(2)
    gap = difference_over_rows(NUMBERS[name], ours, theirs)
    assert_allclose(gap.mean, scores(ours)[name] - scores(theirs)[name])
    # Rows of the same table three times have the same mean, and an error that is √3 smaller.
    again = [pd.concat([table] * 3) for table in (ours, theirs)]
    assert_allclose(difference_over_rows(NUMBERS[name], *again).mean, gap.mean)
    ratio = np.sqrt(150 * 149 / 50 / 49 / 3)
    assert_allclose(difference_over_rows(NUMBERS[name], *again).error * ratio, gap.error)


def test_a_difference_of_areas_has_no_error_over_rows() -> None:
    ours, theirs = classes(1, 2), classes(2, 2)
    gap = difference_over_rows(CLASSES["auc"], ours, theirs)
    assert_allclose(gap.mean, scores(theirs)["auc"] - scores(ours)["auc"])  # a loss: turned round
    assert np.isnan(gap.error) and not gap.clear
    wrong = difference_over_rows(CLASSES["error"], ours, theirs)
    assert_allclose(wrong.mean, scores(ours)["error"] - scores(theirs)["error"])


def test_the_metric_that_decides_comes_first() -> None:
    assert [metric.name for metric in metrics_of("classes", "auc")] == [
        "auc",
        "nlpd",
        "error",
        "ece",
    ]
    assert metrics_of("numbers") == METRICS["numbers"]
