"""What held-out predictions are good for, in plain words."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from sklearn.metrics import mean_absolute_error, r2_score, roc_auc_score

from .held_out import class_indices
from .run import Comparison

#: Intervals are said to be wrong where so many rows more or fewer than 90% are inside, and the
#: chance of that would be below LEAST_CHANCE if they were right.
COVERAGE_OFF, LEAST_CHANCE = 0.03, 0.01
#: A class is said to be missed where it has at least so many held-out rows, and half of them get
#: another one.
FEWEST_OF_CLASS = 5


def headline(comparison: Comparison) -> str:
    """Say how good the best model's predictions of held-out rows are; empty if all failed."""
    if comparison.best is None:
        return ""
    table = comparison.held_out[comparison.best]
    words = _of_classes(table) if comparison.data.kind == "classes" else _of_numbers(table)
    return f"On rows that were held out, {comparison.best} {words}"


def _of_numbers(table: pd.DataFrame) -> str:
    share = r2_score(table["true"], table["mean"]) if len(table) > 1 else np.nan
    explained = f"explains {share:.0%}" if share > 0.0 else "explains nothing"
    error = mean_absolute_error(table["true"], table["mean"])
    return (
        f"{explained} of the variance of the target; its mean absolute error is {error:.3g}, and"
        f" its 90% intervals hold {_inside(table).mean():.0%} of the targets."
    )


def _of_classes(table: pd.DataFrame) -> str:
    labels, probability = class_indices(table)
    right, frequent = _hits(table).mean(), table["true"].value_counts(normalize=True).iloc[0]
    text = f"names the right class of {right:.0%} of the rows; always naming the most frequent one"
    text += f" would be right in {frequent:.0%}."
    if probability.shape[1] == 2 and len(set(labels)) == 2 and np.isfinite(probability).all():
        area = roc_auc_score(labels, probability[:, 1])
        text += f" The area under its ROC curve is {area:.2f}."
    return text


def cautions(comparison: Comparison) -> Iterator[str]:
    """Say what the best model's predictions cannot be relied on for, a sentence each."""
    if comparison.best is None:
        return
    table = comparison.held_out[comparison.best]
    if comparison.data.kind == "classes":
        for name, hits in _hits(table).groupby(table["true"]):
            if len(hits) >= FEWEST_OF_CLASS and hits.mean() < 0.5:
                yield (
                    f"{comparison.best}: of {len(hits)} held-out rows of class '{name}' it names"
                    f" {hits.sum()}: do not rely on it to find them; look at their probabilities."
                )
        return
    likelihood = comparison.settings.likelihood
    if likelihood == "poisson":
        return  # counts are whole numbers, of which no interval holds exactly 90%
    inside = _inside(table)
    chance = binomtest(int(inside.sum()), len(inside), 0.9).pvalue
    if abs(inside.mean() - 0.9) > COVERAGE_OFF and chance < LEAST_CHANCE:
        kind = "narrow" if inside.mean() < 0.9 else "wide"
        yield (
            f"{comparison.best}: its 90% intervals hold {inside.mean():.0%} of the held-out"
            f" targets: they are too {kind}."
            + " predict_interval(calibrate='folds') corrects that."
            * (likelihood != "student_t")
        )


def _inside(table: pd.DataFrame) -> "pd.Series[bool]":
    return (table["lower_90"] <= table["true"]) & (table["true"] <= table["upper_90"])


def _hits(table: pd.DataFrame) -> "pd.Series[bool]":
    return table["predicted"] == table["true"]
